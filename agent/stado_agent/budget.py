"""What a host has to give, and what of it is given away. No slots are counted: jobs are let in
until a resource is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from stado.core.admission import Card, Offer, Reservation
from stado.ports import Hardware

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


class Budget:
    """The resources of one agent. `cards`: the accelerators as they are now, whatever our jobs
    have of them; `disk`: None when it cannot be asked, and then no disk is promised."""

    def __init__(
        self,
        hardware: Hardware,
        limits: Limits,
        *,
        cards: Callable[[], Sequence[Card]] = no_cards,
        disk: Callable[[], DiskLeft | None] = lambda: None,
    ) -> None:
        self._hardware = hardware
        self._limits = limits
        self._cards = cards
        self._disk = disk

    @property
    def cpu_total(self) -> float:
        """Cores."""
        return self._hardware.cpu_count() if self._limits.cpu is None else self._limits.cpu

    @property
    def memory_total_mib(self) -> int:
        if self._limits.memory_gb is not None:
            return round(self._limits.memory_gb * 1024)
        return self._hardware.memory_total_bytes() // _MIB

    def offer(self, reserved: Iterable[Reservation]) -> Offer:
        """What is left beside these reservations, and no more memory, disk or memory of a card
        than is free just now."""
        disk, seen = self._disk(), tuple(self._cards())
        return self._no_more_than_is_free(self._beside(reserved, seen, disk), seen, disk)

    def beside(self, reserved: Iterable[Reservation]) -> Offer:
        """What would be left beside these alone, once all else has given back what it uses."""
        return self._beside(reserved, tuple(self._cards()), self._disk())

    def _beside(
        self, reserved: Iterable[Reservation], seen: Sequence[Card], disk: DiskLeft | None
    ) -> Offer:
        offer = Offer(
            cpu_milli=round(self.cpu_total * 1000),
            memory_mib=self.memory_total_mib,
            disk_mib=0 if disk is None else disk.total_mib,
            cards=tuple(replace(card, free_mib=_not_of_others(card)) for card in seen),
        )
        for held in reserved:
            offer = offer.less(held)
        return offer

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
