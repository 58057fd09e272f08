"""Where a workload is placed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from stado.core.order import Needs, needs_of
from stado.core.records import AcceleratorReport, Capacity
from stado.core.spec import Spec
from stado.core.workload_places import choose_place

AT = datetime(2030, 1, 1, tzinfo=UTC)


def host(name: str, **changes: Any) -> Capacity:
    capacity = Capacity(
        consumer=name,
        incarnation="i1",
        host=name,
        at=AT,
        counter=1,
        broadcast_seconds=30,
        cpu_total=8,
        cpu_free=8,
        memory_total_gb=64,
        memory_free_gb=64,
        disk_free_gb=100,
        version="0.1",
        contains_by="cgroup-v2",
        limits_memory_by="watchdog",
    )
    return capacity.evolve(**changes)


def cards(count: int) -> list[AcceleratorReport]:
    return [
        AcceleratorReport(
            index=number,
            uuid=f"GPU-{number}",
            kind="a100",
            vram_total_mib=80_000,
            vram_used_mib=0,
            vram_free_mib=80_000,
        )
        for number in range(count)
    ]


def needs(**stated: Any) -> Needs:
    return needs_of(Spec(command="run", **({"cpu": 2, "memory_gb": 4} | stated)))


def chosen(asked: Needs, *free: Capacity, pinned: tuple[Needs, ...] = ()) -> str | None:
    found = choose_place(asked, free, pinned)
    return None if found is None else found.consumer


@pytest.mark.parametrize(
    ("free", "name"),
    [
        ([host("a", price_per_hour=2.0), host("b", price_per_hour=1.0), host("c")], "c"),
        ([host("a", accelerators=cards(2)), host("b", memory_free_gb=8)], "b"),
        ([host("a", memory_free_gb=8), host("b", memory_free_gb=16)], "b"),
        ([host("b"), host("a")], "a"),
        ([], None),
    ],
)
def test_the_cheapest_then_the_one_that_others_need_least(
    free: list[Capacity], name: str | None
) -> None:
    """R126"""
    assert chosen(needs(), *free) == name


def test_one_that_needs_cards_gets_as_few_as_will_do() -> None:
    """R126"""
    free = [host("a", accelerators=cards(8)), host("b", accelerators=cards(2)), host("c")]
    assert chosen(needs(gpus=2), *free) == "b"
    assert chosen(needs(gpus=3), *free) == "a"


def test_room_that_pinned_jobs_wait_for_is_not_given_away() -> None:
    """R126: two that are started one right after the other do not get the same room."""
    first = needs(cpu=6, pinned_host="a")
    assert chosen(needs(cpu=6), host("a"), host("b"), pinned=(first,)) == "b"
    assert chosen(needs(cpu=6), host("a"), pinned=(first,)) is None
    assert chosen(needs(cpu=2), host("a"), pinned=(first,)) == "a"
    on_card = needs(gpus=1, pinned_host="a")
    assert chosen(needs(gpus=1), host("a", accelerators=cards(1)), pinned=(on_card,)) is None
    assert chosen(needs(gpus=1), host("a", accelerators=cards(2)), pinned=(on_card,)) == "a"
    alone = needs(exclusive=True, pinned_host="a")
    assert chosen(needs(), host("a"), pinned=(alone,)) is None


def test_a_deadline_is_not_a_matter_of_place() -> None:
    assert chosen(needs(deadline_at=datetime(2000, 1, 1, tzinfo=UTC)), host("a")) == "a"
