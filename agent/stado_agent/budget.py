"""What a host has to give, and what of it is given away. No slots are counted: jobs are let in
until a resource is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from stado.core.admission import Card, Offer, Reservation
from stado.ports import Hardware
from stado_agent.idle_use import IdleUse

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What the owner of the host lets jobs have; None: all there is."""

    cpu: float | None = None
    memory_gb: float | None = None


@dataclass(frozen=True, slots=True)
class DiskLeft:
    """Of the file system that jobs' folders are on, in MiB, less what is to be kept free."""

    total_mib: int
    free_mib: int


def no_cards() -> Sequence[Card]:
    return ()


@dataclass(slots=True)
class _OfOthers:
    """How much of a resource is in use by what is no job of ours. While jobs run, what they use of
    what they reserved is not known: it is no less than what is in use beyond that, and as much as
    there was when none ran last, unless less is in use at all."""

    name: str
    kept: IdleUse | None
    """Where what was in use when none ran is kept over a restart."""
    idle: int = 0
    """When none ran last."""

    def __post_init__(self) -> None:
        if self.kept is not None:
            self.idle = self.kept.last(self.name)

    def estimate(self, *, total: int, free: int, reserved: int, is_idle: bool) -> int:
        used = max(0, total - free)
        if is_idle:
            self.idle = used
            if self.kept is not None:
                self.kept.note(self.name, used)
        return max(0, used - reserved, min(self.idle, used))


class Budget:
    """The resources of one agent. `cards`: the accelerators as they are now, whatever our jobs
    have of them; `disk`: None when it cannot be asked, and then no disk is promised; `idle_use`:
    what others used before this agent began."""

    def __init__(
        self,
        hardware: Hardware,
        limits: Limits,
        *,
        cards: Callable[[], Sequence[Card]] = no_cards,
        disk: Callable[[], DiskLeft | None] = lambda: None,
        idle_use: IdleUse | None = None,
    ) -> None:
        self._hardware = hardware
        self._limits = limits
        self._cards = cards
        self._disk = disk
        self._others_memory = _OfOthers("memory", idle_use)
        self._others_disk = _OfOthers("disk", idle_use)

    @property
    def cpu_total(self) -> float:
        """Cores."""
        return self._hardware.cpu_count() if self._limits.cpu is None else self._limits.cpu

    @property
    def memory_total_mib(self) -> int:
        if self._limits.memory_gb is not None:
            return round(self._limits.memory_gb * 1024)
        return self._hardware.memory_total_bytes() // _MIB

    def offer(self, reserved: Collection[Reservation]) -> Offer:
        """What is left beside these reservations, which are all that there are, and what others
        use; no more memory, disk or memory of a card than is free just now."""
        disk, seen = self._disk(), tuple(self._cards())
        offer = self._empty(reserved, seen, disk)
        for held in reserved:
            offer = offer.less(held)
        return self._no_more_than_is_free(offer, seen, disk)

    def beside(self, kept: Iterable[Reservation], *, of: Collection[Reservation]) -> Offer:
        """What would be left beside these of the reservations `of`, once the others had gone with
        all that they use. What is no job of ours stays."""
        offer = self._empty(of, tuple(self._cards()), self._disk())
        for held in kept:
            offer = offer.less(held)
        return offer

    def _empty(
        self, reserved: Collection[Reservation], seen: Sequence[Card], disk: DiskLeft | None
    ) -> Offer:
        """What jobs may have together, beside what others use."""
        disk_mib = 0
        if disk is not None:
            disk_mib = disk.total_mib - self._others_disk.estimate(
                total=disk.total_mib,
                free=disk.free_mib,
                reserved=sum(held.needs.disk_mib for held in reserved),
                is_idle=not reserved,
            )
        return Offer(
            cpu_milli=round(self.cpu_total * 1000),
            memory_mib=self.memory_total_mib - self._memory_of_others(reserved),
            disk_mib=disk_mib,
            cards=tuple(replace(card, free_mib=_not_of_others(card)) for card in seen),
        )

    def _memory_of_others(self, reserved: Collection[Reservation]) -> int:
        if self._limits.memory_gb is not None:
            return 0
        return self._others_memory.estimate(
            total=self.memory_total_mib,
            free=self._hardware.memory_available_bytes() // _MIB,
            reserved=sum(held.needs.memory_mib for held in reserved),
            is_idle=not reserved,
        )

    def _no_more_than_is_free(
        self, offer: Offer, seen: Sequence[Card], disk: DiskLeft | None
    ) -> Offer:
        free_now = {card.uuid: card.free_mib for card in seen}
        cards = tuple(
            replace(card, free_mib=min(card.free_mib, free_now[card.uuid])) for card in offer.cards
        )
        memory_mib = offer.memory_mib
        if self._limits.memory_gb is None:
            memory_mib = min(memory_mib, self._hardware.memory_available_bytes() // _MIB)
        disk_mib = 0 if disk is None else min(offer.disk_mib or 0, disk.free_mib)
        return replace(offer, memory_mib=memory_mib, cards=cards, disk_mib=disk_mib)


def _not_of_others(card: Card) -> int:
    """What our jobs may have of it together."""
    return card.total_mib - card.others_mib
