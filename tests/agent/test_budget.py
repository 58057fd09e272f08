"""What a host gives: what its owner says, less what is given away, and no memory it has not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stado.core.admission import Offer
from stado.core.order import Needs
from stado_agent.budget import Budget, Limits

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


def test_what_is_reserved_is_not_offered_again() -> None:
    """R183."""
    offer = Budget(_Host(), Limits()).offer([Needs(2000, 1024), Needs(500, 2048)])
    assert offer == Offer(cpu_milli=5500, memory_mib=29 * 1024)


def test_memory_that_others_use_is_not_offered() -> None:
    assert Budget(_Host(free_gb=3), Limits()).offer([]).memory_mib == 3 * 1024


def test_the_owner_of_the_host_may_say_what_jobs_get() -> None:
    offer = Budget(_Host(free_gb=3), Limits(cpu=2, memory_gb=10)).offer([Needs(1000, 1024)])
    assert offer == Offer(cpu_milli=1000, memory_mib=9 * 1024)
