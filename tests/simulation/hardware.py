"""What simulated hosts have: cores, memory, disk, cards that may ail or be used by others, and the
`Hardware` port that tells an agent of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stado.ports import Accelerator, AcceleratorProcess

if TYPE_CHECKING:
    from tests.simulation.process import SimHost

_GIB = 1024**3
_USED_BY_JOB_MIB = 512
"""By each process of a job, of each of its cards: less than the smallest part that is asked for."""

OTHERS_PID = 7
"""Of a process that is no job's."""


@dataclass(frozen=True, slots=True)
class CardPlan:
    """An accelerator of a host. `others_mib`: what somebody outside the queue has of it, always."""

    uuid: str
    kind: str
    """Its model as a word: `a100-sxm4-40gb`."""
    memory_mib: int
    others_mib: int = 0

    @property
    def left_mib(self) -> int:
        """What jobs may have of it together."""
        return self.memory_mib - self.others_mib


@dataclass(frozen=True)
class HostPlan:
    """A host that agents run on. `rate` and `skew_seconds` are its clocks' (`SimHost`)."""

    cpu: float = 2.0
    memory_gb: float = 8.0
    disk_gb: float = 100.0
    """That is free when no job runs there."""
    cards: tuple[CardPlan, ...] = ()
    labels: tuple[str, ...] = ()
    machine_type: str | None = None
    rate: float = 1.0
    skew_seconds: float = 0.0
    max_run_seconds: int | None = None


class SimHardware:
    """What a simulated host has."""

    def __init__(self, host: SimHost) -> None:
        self._host = host

    def host_name(self) -> str:
        return self._host.name

    def cpu_count(self) -> float:
        return self._host.plan.cpu

    def memory_total_bytes(self) -> int:
        return round(self._host.plan.memory_gb * _GIB)

    def memory_available_bytes(self) -> int:
        return self.memory_total_bytes()

    def disk_free_bytes(self, folder: Path) -> int:
        return 0 if self._host.disk_full else round(self._host.plan.disk_gb * _GIB)

    def disk_total_bytes(self, folder: Path) -> int:
        return 2 * round(self._host.plan.disk_gb * _GIB)

    def accelerators(self) -> list[Accelerator]:
        return [self._accelerator(number) for number in range(len(self._host.plan.cards))]

    def _accelerator(self, number: int) -> Accelerator:
        card = self._host.plan.cards[number]
        processes = tuple(self._processes(card))
        used = sum(process.vram_mib or 0 for process in processes)
        return Accelerator(
            uuid=card.uuid,
            kind=card.kind,
            index=number,
            vram_total_mib=card.memory_mib,
            vram_used_mib=used,
            vram_free_mib=card.memory_mib - used,
            processes=processes,
            ailment="it has fallen off the bus" if card.uuid in self._host.ailing else None,
        )

    def _processes(self, card: CardPlan) -> Iterator[AcceleratorProcess]:
        if card.others_mib:
            yield AcceleratorProcess(OTHERS_PID, card.others_mib)
        for command in self._host.commands:
            if card.uuid in command.cards:
                yield AcceleratorProcess(command.identity.pid, _USED_BY_JOB_MIB)

    def boot_id(self) -> str | None:
        return self._host.boot_id
