"""What may stand in a profile, and what wins where something is stated twice."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from stado.api import JobOptions
from stado.core.profiles import OPTIONS, PROFILE_BYTES_MAX, Profile, check_kind, merged
from stado.core.profiles import parse_profile as parse
from stado.errors import Refused


def profile(**stated: Any) -> Profile:
    return parse(json.dumps(stated).encode(), name="x", where="x.json")


def refused(data: bytes) -> str:
    with pytest.raises(Refused) as error:
        parse(data, name="x", where="x.json")
    return error.value.text


def test_a_profile_can_state_whatever_an_option_can() -> None:
    """R171"""
    assert set(OPTIONS) == set(JobOptions.__annotations__) - {"profile"}


def test_values_are_those_of_programs() -> None:
    read = profile(
        timeout="2h",
        idle_timeout=90,
        deadline_at="2030-01-01T00:00:00Z",
        description="a",
        command="b",
        spot=False,
    )
    assert read.options == {
        "timeout": 7200,
        "idle_timeout": 90,
        "deadline_at": datetime(2030, 1, 1, tzinfo=UTC),
        "spot": False,
    }
    assert (read.description, read.command) == ("a", "b")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\xff", "x.json: it is not UTF-8 (invalid start byte): save it as UTF-8"),
        (b"{", "x.json: it is no JSON: Expecting property name"),
        (b"[]", 'x.json: it must be one JSON object, such as {"cpu": 4, "gpus": 1}'),
        (b'{"cpu": 1, "cpu": 2}', "x.json: field 'cpu' stands there twice: state it once"),
        (b'{"memory-gb": 1}', "there is no field 'memory-gb': did you mean memory_gb?"),
        (b'{"--cpu": 1}', "there is no field '--cpu': did you mean cpu?"),
        (b'{"walrus": 1}', "there is no field 'walrus': remove it"),
        (b'{"cpu": "4"}', 'field cpu must be a number, and not "4"'),
        (b'{"cpu": true}', "field cpu must be a number, and not true"),
        (b'{"priority": 1.5}', "field priority must be a whole number, and not 1.5"),
        (b'{"exclusive": 1}', "field exclusive must be true or false, and not 1"),
        (b'{"label": "a=b"}', 'field label must be a list of texts, such as ["a", "b"]'),
        (b'{"env": {"A": 1}}', 'field env must be an object of texts, such as {"NAME": "value"}'),
        (b'{"timeout": "soon"}', "field timeout must be a positive whole number of seconds"),
        (b'{"timeout": true}', "field timeout must be a positive whole number of seconds"),
        (b'{"not_before": "2030-01-01T00:00:00"}', "an instant of RFC 3339 as text, with a time"),
        (b'{"gpus": null}', "field gpus must be a number of cards, or text: a100, a100:2"),
        (b"[" * 200_000, "brackets within too many brackets"),
        (b" " * (PROFILE_BYTES_MAX + 1), f"it has more than {PROFILE_BYTES_MAX} bytes"),
    ],
)
def test_what_is_no_profile_is_refused_with_the_field(data: bytes, sentence: str) -> None:
    """R171"""
    assert sentence in refused(data)


@pytest.mark.parametrize(
    ("stated", "explicit", "merged_to"),
    [
        ({"cpu": 4}, {}, {"cpu": 4}),
        ({"cpu": 4}, {"cpu": 1}, {"cpu": 1}),
        ({"cpu": 4}, {"cpu": None}, {"cpu": 4}),
        ({"priority": 9}, {"priority": 0}, {"priority": 0}),
        ({"exclusive": True}, {"exclusive": False}, {"exclusive": False}),
        ({"label": ["a=1"]}, {"label": ["b=2"]}, {"label": ["b=2"]}),
        ({"env": {"A": "1", "B": "2"}}, {"env": {"B": "3"}}, {"env": {"A": "1", "B": "3"}}),
        ({"gpus": "a100:2"}, {}, {"gpus": 2, "gpu_type": "a100"}),
        ({"gpus": "a100:2"}, {"gpu_type": "h100"}, {"gpus": 2, "gpu_type": "h100"}),
        ({"gpus": "a100:2"}, {"gpus": 4}, {"gpus": 4, "gpu_type": "a100"}),
        ({"gpus": "a100:2"}, {"gpus": "4"}, {"gpus": "4", "gpu_type": "a100"}),
        ({"gpus": "a100:2"}, {"gpus": "h100"}, {"gpus": "h100"}),
        ({"gpus": "a100:2", "vram_gb": 40, "cpu": 2}, {"gpus": "0"}, {"gpus": "0", "cpu": 2}),
        ({"gpus": 2, "gpu_type": "a100"}, {"gpus": 0}, {"gpus": 0}),
        (
            {"env": {"A": "1", "B": "2"}},
            {"secret_env": {"B": "x#y"}},
            {"env": {"A": "1"}, "secret_env": {"B": "x#y"}},
        ),
        (
            {"secret_env": {"B": "x#y"}},
            {"env": {"B": "2"}},
            {"secret_env": {}, "env": {"B": "2"}},
        ),
        ({"yieldable": True, "max_yields": 3}, {"yieldable": False}, {"yieldable": False}),
        ({"workdir": "a", "require_clean": True}, {"host_dir": "/b"}, {"host_dir": "/b"}),
        ({"host_dir": "/b"}, {"workdir": "a"}, {"workdir": "a"}),
        ({"repo": "r", "repo_ref": "c"}, {"repo_ref": "d"}, {"repo": "r", "repo_ref": "d"}),
    ],
)
def test_what_is_stated_besides_wins(
    stated: dict[str, Any], explicit: dict[str, Any], merged_to: dict[str, Any]
) -> None:
    """R172: also where it is what nobody would have to say."""
    assert merged(profile(**stated).options, explicit) == merged_to


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"command": None}, "field command is missing: a kind of workload declares what it runs"),
        ({"cpu": None}, "field cpu is missing: a kind of workload declares how much room it takes"),
        ({"memory_gb": None}, "field memory_gb is missing"),
        ({"pinned_host": "a"}, "field pinned_host is not for a kind of workload"),
    ],
)
def test_a_kind_of_workload_declares_what_it_runs_and_its_room(
    changes: dict[str, Any], sentence: str
) -> None:
    """R126"""
    stated = {"command": "run", "cpu": 1, "memory_gb": 2}
    check_kind(profile(**stated))
    changed = {name: value for name, value in (stated | changes).items() if value is not None}
    with pytest.raises(Refused, match=sentence):
        check_kind(profile(**changed))
