"""PROTOCOL.md says what the code stores: its tables of fields, words and keys are held to it."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from inspect import getmembers, isclass, isfunction, signature
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from msgspec.structs import fields

from stado.core import (
    budgets,
    hints,
    keys,
    ledger,
    records,
    retention,
    retries,
    schedules,
    settings,
    sidecar,
    spec,
    states,
)
from stado.core.documents import Document, Instant, Part
from stado.core.states import State
from tests.architecture.source import REPOSITORY

PAGE = (REPOSITORY / "PROTOCOL.md").read_text(encoding="utf-8")

_PLAIN_TYPES = {
    str: "text",
    bool: "yes/no",
    int: "integer",
    float: "number",
    Instant: "instant",
    type(None): "null",
}

_SAMPLES = {
    "n": "7",
    "n:6": "000007",
    "seq:6": "000003",
    "offset:16": "0000000000000003",
    "part:6": "000002",
    "version:6": "000003",
    "name": "a-name",
    "token": "abcdefghij",
    "id": "abcdefghijklmnop-12",
    "run": "a-run",
    "user": "ada",
    "base": "abcdefghijklmnop",
    "consumer": "local@host",
    "parent": "bcdefghijklmnopq",
    "entry": "an-entry",
    "path": "deep/er/file.bin",
    "state": "running",
    "inverted ms:15": "999999999999996",
    "said": "paused",
    "place": "models/night",
    "word": "failed",
    "channel": "team",
    "digest": "0123abcd" * 8,
    "use": "a-use",
    "segment": "a-name",
    "scope": "user.ada",
    "slot:6": "000003",
    "held": "user.ada~000003",
    "schedule": "nightly",
    "kind": "log",
}
"""What stands for each placeholder of a key."""

_ARGUMENTS: Mapping[str, Any] = {
    "state": State.RUNNING,
    "job_id": _SAMPLES["id"],
    "parent_id": _SAMPLES["parent"],
    "epoch": 7,
    "sequence": 3,
    "offset": 3,
    "part": 2,
    "name": "a-name",
    "version": 3,
    "scope": "user.ada",
    "number": 3,
    "slot_name": "user.ada~000003",
    "token": _SAMPLES["token"],
    "run_id": _SAMPLES["run"],
    "user": _SAMPLES["user"],
    "base": _SAMPLES["base"],
    "consumer": _SAMPLES["consumer"],
    "entry_name": _SAMPLES["entry"],
    "path": _SAMPLES["path"],
    "at_ms": 3,
    "paused": True,
    "word": "failed",
    "channel": "team",
    "place": _SAMPLES["place"],
    "digest": _SAMPLES["digest"],
    "use_name": _SAMPLES["use"],
    "schedule_id": _SAMPLES["schedule"],
    "kind": _SAMPLES["kind"],
}

_NO_KEYS = {
    "component",
    "epoch_of_log",
    "epoch_of_save",
    "job_of_record",
    "run_of_key",
    "run_of_taken",
    "schedule_of_key",
}
"""Functions of `stado.core.keys` that give a text which is no key; parsers are left out too."""


def section(heading: str) -> str:
    """The text below a heading, down to the next one of any level."""
    found = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", PAGE, re.DOTALL | re.MULTILINE
    )
    assert found is not None, f"PROTOCOL.md has no heading {heading!r}"
    return found[1]


def rows(text: str) -> Iterator[list[str]]:
    """The cells of each row of the tables in a text, without the heads of the tables."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        is_head = number + 1 < len(lines) and lines[number + 1].startswith("|---")
        if line.startswith("|") and not line.startswith("|---") and not is_head:
            yield [cell.strip() for cell in line.strip("|").split("|")]


def unquoted(cell: str) -> str:
    assert re.fullmatch(r"`[^`]+`", cell), f"{cell!r} is not one name in backquotes"
    return cell.strip("`")


def models() -> dict[str, type[Part]]:
    found = {
        name: model
        for module in (
            budgets,
            hints,
            ledger,
            records,
            retention,
            retries,
            schedules,
            settings,
            sidecar,
            spec,
        )
        for name, model in getmembers(module, isclass)
        if issubclass(model, Part) and model.__module__ == module.__name__
    }
    return {"Document": Document, **found}


def words() -> dict[str, type[StrEnum]]:
    return {
        name: word
        for module in (records, schedules, states)
        for name, word in getmembers(module, isclass)
        if issubclass(word, StrEnum) and word.__module__ == module.__name__
    }


def own_fields(model: type[Part]) -> dict[str, str]:
    """Name in the store and type of each field that is not every document's."""
    inherited = {field.name for field in fields(Part if model is Document else Document)}
    return {
        field.encode_name: type_text(field.type)
        for field in fields(model)
        if field.name not in inherited
    }


def type_text(annotation: Any) -> str:
    if annotation in _PLAIN_TYPES:
        return _PLAIN_TYPES[annotation]
    if get_origin(annotation) is Annotated:  # with what it may be
        return type_text(get_args(annotation)[0])
    arguments = [type_text(argument) for argument in get_args(annotation)]
    if get_origin(annotation) in (types.UnionType, Union):
        return " or ".join(arguments)
    if get_origin(annotation) is list:
        return f"list of {arguments[0]}"
    if get_origin(annotation) is dict:
        return f"map of {arguments[0]} to {arguments[1]}"
    assert isclass(annotation), f"{annotation} has no word in PROTOCOL.md yet"
    return f"`{annotation.__name__}`"


# Fields


@pytest.mark.parametrize("name", models())
def test_each_field_has_its_row_in_order_and_each_row_its_field(name: str) -> None:
    described = {unquoted(row[0]): row[1] for row in rows(section(name))}
    assert list(described.items()) == list(own_fields(models()[name]).items())


def test_no_field_is_described_twice() -> None:
    for name in models():
        named = [row[0] for row in rows(section(name))]
        assert len(named) == len(set(named)), name


def test_each_row_says_who_writes_the_field() -> None:
    for name in models():
        for row in rows(section(name)):
            assert len(row) == 4, (name, row)
            assert row[2], (name, row)


def test_each_table_of_fields_is_a_models() -> None:
    below = PAGE.partition("\n## Fields\n")[2]
    headings = re.findall(r"^### (.+)$", below, re.MULTILINE)
    assert sorted(headings) == sorted([*models(), "Words"])


@pytest.mark.parametrize("name", words())
def test_each_word_of_a_fixed_set_is_listed(name: str) -> None:
    listed = {unquoted(row[0]): row[1] for row in rows(section("Words")) if len(row) == 2}
    assert re.findall(r"`([^`]+)`", listed[name]) == [word.value for word in words()[name]]


def test_each_reason_is_explained() -> None:
    explained = {unquoted(row[0]) for row in rows(section("Words"))} - words().keys()
    assert explained == {reason.value for reason in states.Reason}


# Keys


def described_keys() -> dict[str, str]:
    """Name in `stado.core.keys` to key, placeholders and all."""
    return {unquoted(row[1]): unquoted(row[0]) for row in rows(section("Keys")) if len(row) == 4}


def key_names() -> set[str]:
    """What `stado.core.keys` offers that is a key or the beginning of one."""
    constants = {
        name
        for name, value in vars(keys).items()
        if isinstance(value, str) and not name.startswith("_")
    }
    functions = {
        name
        for name, function in getmembers(keys, isfunction)
        if function.__module__ == keys.__name__
        and not name.startswith(("_", "parse_", "is_"))
        and name not in _NO_KEYS
    }
    return constants | functions


def test_each_key_of_the_code_is_described_and_no_other() -> None:
    assert described_keys().keys() == key_names()


@pytest.mark.parametrize("name", sorted(key_names()))
def test_a_key_is_spelled_as_described(name: str) -> None:
    spelled: str | Callable[..., str] = getattr(keys, name)
    if not isinstance(spelled, str):
        spelled = spelled(**{given: _ARGUMENTS[given] for given in signature(spelled).parameters})
    described = re.sub(r"<([^>]+)>", lambda found: _SAMPLES[found[1]], described_keys()[name])
    assert spelled == described


def test_each_state_has_its_prefix() -> None:
    table = section("Jobs, epochs, cells, verdicts")
    listed = {
        unquoted(row[0]): unquoted(row[1]) for row in rows(table) if row[0] in _quoted_states()
    }
    assert listed == {state.value: keys.prefix(state) for state in State}


def _quoted_states() -> set[str]:
    return {f"`{state.value}`" for state in State}


# The page itself


def test_each_link_within_the_page_leads_somewhere() -> None:
    headings = re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= anchors
