from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.core import keys
from stado.core.ids import milliseconds
from stado.core.order import Needs, entry_key, entry_name, needs_of, parse_entry
from stado.core.records import Record
from stado.core.spec import PRIORITY_MAX, Spec
from stado.storage.keys import check_key
from tests.core.records import NOW, queued

priorities = st.integers(0, PRIORITY_MAX)
instants = st.integers(10**12, 10**13 - 1)


@st.composite
def records(draw: st.DrawFn) -> Record:
    return queued(
        priority=draw(priorities),
        queued_ms=draw(instants),
        epoch=draw(st.integers(1, 999_999)),
        id=draw(st.from_regex(r"[a-z]{16}(-[0-9]{1,6})?", fullmatch=True)),
        nonce=draw(st.from_regex(r"[a-z2-7]{8}", fullmatch=True)),
        spec=Spec(
            command="true",
            cpu=draw(st.none() | st.floats(0.001, 1e5)),
            memory_gb=draw(st.none() | st.floats(0.001, 1e5)),
            deadline_at=draw(st.none() | st.just(NOW)),
            image=draw(st.none() | st.just("lab/train:1")),
            gpus=draw(st.none() | st.integers(1, 64)),
            gpu_type=draw(st.none() | st.sampled_from(["a100", "RTX 4090"])),
            vram_gb=draw(st.none() | st.floats(0.001, 1e5)),
            disk_gb=draw(st.none() | st.floats(0.001, 1e5)),
            exclusive=draw(st.booleans()),
            pinned_host=draw(st.none() | st.just("local@lab-7")),
            labels=draw(st.lists(st.sampled_from(["zone=a", "rack=7", "disk=nvme"]), unique=True)),
            max_cost_per_hour=draw(st.none() | st.floats(0.001, 9e4)),
            group=draw(st.none() | st.just("licences")),
            runtime_seconds_estimate=draw(st.none() | st.integers(1, 10**8)),
        ),
    )


@given(records())
def test_an_entry_tells_everything_that_went_into_it(record: Record) -> None:
    entry = parse_entry(entry_name(record))
    assert entry is not None
    assert entry.name == entry_name(record)
    assert (entry.priority, entry.queued_ms) == (record.priority, record.queued_ms)
    assert (entry.job_id, entry.epoch) == (record.id, record.epoch)
    needs = needs_of(record.spec)
    left_out = {"price_milli": None, "runtime_seconds": None, "group": None}
    assert replace(entry.needs, **left_out) == replace(needs, **left_out)
    assert entry.needs.encode() == needs.encode()
    check_key(entry_key(record))


@given(records(), records())
def test_higher_priority_comes_first_then_the_older(one: Record, other: Record) -> None:
    """R142"""
    expected = sorted([one, other], key=lambda record: (-record.priority, record.queued_ms))
    if (one.priority, one.queued_ms) != (other.priority, other.queued_ms):
        assert sorted([entry_name(one), entry_name(other)]) == [entry_name(r) for r in expected]


@pytest.mark.parametrize(
    ("priority", "inverted"),
    [(0, "9223372036854775807"), (1, "9223372036854775806"), (PRIORITY_MAX, "0" * 19)],
)
def test_the_priority_is_inverted_in_19_digits(priority: int, inverted: str) -> None:
    """R147"""
    name = entry_name(queued(priority=priority))
    assert name.split("-")[0] == inverted


def test_the_pause_mark_sorts_before_every_entry() -> None:
    """R209"""
    assert entry_key(queued(priority=PRIORITY_MAX)) > keys.queue_mark(0, paused=True)


def test_a_job_that_states_nothing_needs_one_core_and_one_gib() -> None:
    """R184"""
    assert needs_of(queued().spec) == Needs(cpu_milli=1000, memory_mib=1024)
    assert entry_name(queued()).endswith("~c1000.m1024")


def test_a_deadline_is_in_the_entry() -> None:
    """R136"""
    deadline = NOW + timedelta(hours=1)
    record = queued(spec=Spec(command="true", deadline_at=deadline))
    assert needs_of(record.spec).deadline_ms == milliseconds(deadline)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "!paused",
        "rubbish",
        entry_name(queued()) + ".z1",
        entry_name(queued()) + ".g0",
        entry_name(queued()) + ".g65",
        entry_name(queued()) + ".r0",
        entry_name(queued()) + ".r316224001",
        entry_name(queued()) + ".kabc",
        entry_name(queued()) + ".fbbbbbaaaaa",
        entry_name(queued()) + ".c1",
        entry_name(queued()) + ".i0",
        entry_name(queued()) + ".i2",
        entry_name(queued()).replace("~c1000.m1024", "~c1000"),
        entry_name(queued()).replace("~c1000.m1024", "~"),
        entry_name(queued()).replace(".1.", ".0."),
    ],
)
def test_what_is_no_entry_or_needs_something_unknown_is_left_alone(name: str) -> None:
    assert parse_entry(name) is None


def test_what_does_not_fit_into_a_name_is_left_out_from_the_end() -> None:
    """Of facts four are named; who claims looks at the record."""
    spec = Spec(
        command="true",
        cpu=999_999,
        memory_gb=999_999,
        disk_gb=999_999,
        deadline_at=NOW,
        image="lab/train:1",
        gpus=64,
        gpu_type="a100",
        vram_gb=999_999,
        exclusive=True,
        labels=["a=1", "b=1", "c=1", "d=1"],
        pinned_host="lab-7",
        group="g",
        max_cost_per_hour=99_999,
        runtime_seconds_estimate=10**8,
    )
    record = queued(spec=spec, epoch=999_999, id="z" * 16 + "-999999", due_ms=10**12)
    check_key(entry_key(record))
    entry = parse_entry(entry_name(record))
    assert entry is not None
    needs = needs_of(spec)
    assert (len(needs.facts), len(entry.needs.facts)) == (5, 4)
    assert entry.needs.facts < needs.facts
    assert (entry.needs.vram_mib, entry.needs.runtime_seconds) == (needs.vram_mib, None)


@pytest.mark.parametrize(
    ("stated", "gpus", "vram_mib"),
    [
        ({}, 0, 0),
        ({"gpus": 2}, 2, 0),
        ({"gpu_type": "a100"}, 1, 0),
        ({"vram_gb": 16}, 0, 16_384),
        ({"gpu_type": "a100", "vram_gb": 16}, 0, 16_384),
        ({"gpus": 1, "vram_gb": 16}, 1, 16_384),
    ],
)
def test_memory_of_cards_alone_is_a_part_of_one(
    stated: dict[str, Any], gpus: int, vram_mib: int
) -> None:
    """R137"""
    needs = needs_of(Spec(command="true", **stated))
    assert (needs.gpus, needs.vram_mib) == (gpus, vram_mib)
