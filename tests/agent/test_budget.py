"""What a host gives: what its owner says, less what is given away, and no memory it has not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stado.core.admission import Card, Reservation
from stado.core.order import Needs
from stado_agent.budget import Budget, DiskLeft, Limits
from stado_agent.idle_use import IdleUse
from stado_agent.workspace import HostFolder

GIB = 1024**3


@dataclass
class _Host:
    free_gb: float = 30

    def host_name(self) -> str:
        return "host"

    def cpu_count(self) -> float:
        return 8

    def memory_total_bytes(self) -> int:
        return 32 * GIB

    def memory_available_bytes(self) -> int:
        return round(self.free_gb * GIB)

    def disk_free_bytes(self, folder: Path) -> int:
        return 100 * GIB


def held(cpu_milli: int, memory_mib: int, *cards: str, **needs: Any) -> Reservation:
    return Reservation(Needs(cpu_milli, memory_mib, **needs), cards)


def card(uuid: str, *, free_mib: int = 24_000, others_mib: int = 0) -> Card:
    return Card(uuid, "rtx-4090", total_mib=24_000, free_mib=free_mib, others_mib=others_mib)


def test_what_is_reserved_is_not_offered_again() -> None:
    """R183."""
    offer = Budget(_Host(), Limits()).offer([held(2000, 1024), held(500, 2048)])
    assert (offer.cpu_milli, offer.memory_mib, offer.jobs) == (5500, 29 * 1024, 2)


def test_memory_that_others_use_is_not_offered() -> None:
    assert Budget(_Host(free_gb=3), Limits()).offer([]).memory_mib == 3 * 1024


def test_the_owner_of_the_host_may_say_what_jobs_get() -> None:
    offer = Budget(_Host(free_gb=3), Limits(cpu=2, memory_gb=10)).offer([held(1000, 1024)])
    assert (offer.cpu_milli, offer.memory_mib) == (1000, 9 * 1024)


def test_no_disk_is_promised_that_is_reserved_or_taken_or_not_known() -> None:
    """R183"""
    disk = DiskLeft(total_mib=1000, free_mib=700)
    budget = Budget(_Host(), Limits(), disk=lambda: disk)
    assert budget.offer([]).disk_mib == 700
    assert budget.offer([held(1, 1, disk_mib=200)]).disk_mib == 500
    disk = DiskLeft(total_mib=1000, free_mib=400)
    assert budget.offer([held(1, 1, disk_mib=400)]).disk_mib == 300
    assert Budget(_Host(), Limits()).offer([]).disk_mib == 0


def test_of_a_card_no_more_is_offered_than_is_free_or_not_reserved() -> None:
    """R183: what a job has reserved and not used yet is not there for another, and what somebody
    else uses neither."""
    seen = [card("a", free_mib=22_000), card("b", free_mib=4_000, others_mib=20_000), card("c")]
    budget = Budget(_Host(), Limits(), cards=lambda: seen)
    offer = budget.offer(
        [held(1, 1, "a", vram_mib=16_000), held(1, 1, "c", gpus=1)],
    )
    assert [(one.uuid, one.free_mib, one.closed) for one in offer.cards] == [
        ("a", 8_000, False),
        ("b", 4_000, False),
        ("c", 0, True),
    ]


def test_a_host_that_one_job_has_for_itself_offers_nothing() -> None:
    """R185"""
    assert Budget(_Host(), Limits()).offer([held(1, 1, exclusive=True)]).spent


def test_what_is_promised_and_not_used_yet_is_not_promised_twice() -> None:
    """R183: of 1,000 others had 550 when no job ran; what the first has reserved is still free."""
    disk = DiskLeft(total_mib=1000, free_mib=450)
    budget = Budget(_Host(), Limits(), disk=lambda: disk)
    assert budget.offer([]).disk_mib == 450
    first = held(1, 1, disk_mib=300)
    assert budget.offer([first]).disk_mib == 150
    assert budget.beside([], of=[first]).disk_mib == 450


def test_an_agent_that_begins_while_jobs_run_promises_nothing_twice(tmp_path: Path) -> None:
    """R183: what others had when no job ran is known over a restart, and not over a boot."""
    folder = HostFolder(tmp_path, "one")
    folder.make()
    disk = DiskLeft(total_mib=10_000, free_mib=4_500)
    first = held(1, 1, disk_mib=3_000)
    for boot_id, left in (("a", 1_500), ("b", 4_500), (None, 4_500)):
        before = Budget(_Host(), Limits(), disk=lambda: disk, idle_use=IdleUse(folder, "a"))
        assert before.offer([]).disk_mib == 4_500
        assert before.offer([first]).disk_mib == 1_500
        after = Budget(_Host(), Limits(), disk=lambda: disk, idle_use=IdleUse(folder, boot_id))
        assert after.offer([first]).disk_mib == left


@pytest.mark.parametrize("written", [b"", b"{}", b"[]", b'{"boot_id": "a", "mib": {"disk": "x"}}'])
def test_what_says_nothing_of_a_host_is_no_hindrance(tmp_path: Path, written: bytes) -> None:
    folder = HostFolder(tmp_path, "one")
    folder.make()
    folder.write_idle_use(written)
    assert IdleUse(folder, "a").last("disk") == 0


def test_a_folder_that_takes_nothing_costs_that_knowledge_alone(tmp_path: Path) -> None:
    known = IdleUse(HostFolder(tmp_path / "away", "one"), "a")
    known.note("disk", 500)
    assert known.last("disk") == 500


def test_memory_of_others_is_not_counted_on_once_jobs_have_gone() -> None:
    host = _Host(free_gb=20)
    budget = Budget(host, Limits())
    budget.offer([])
    host.free_gb = 12
    job = held(1000, 8 * 1024)
    assert budget.offer([job]).memory_mib == 12 * 1024
    assert budget.beside([], of=[job]).memory_mib == 20 * 1024
    host.free_gb = 30
    assert budget.beside([], of=[job]).memory_mib == 30 * 1024
