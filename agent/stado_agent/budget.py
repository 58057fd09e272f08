"""What a host has to give, and what of it is given away. No slots are counted: jobs are let in
until a resource is spent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stado.core.admission import Offer
from stado.core.order import Needs
from stado.ports import Hardware

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What the owner of the host lets jobs have; None: all there is."""

    cpu: float | None = None
    memory_gb: float | None = None


class Budget:
    """The resources of one agent."""

    def __init__(self, hardware: Hardware, limits: Limits) -> None:
        self._hardware = hardware
        self._limits = limits

    @property
    def cpu_total(self) -> float:
        """Cores."""
        return self._hardware.cpu_count() if self._limits.cpu is None else self._limits.cpu

    @property
    def memory_total_mib(self) -> int:
        if self._limits.memory_gb is not None:
            return round(self._limits.memory_gb * 1024)
        return self._hardware.memory_total_bytes() // _MIB

    def offer(self, reserved: Iterable[Needs]) -> Offer:
        """What is left beside these reservations, and no more memory than is free just now."""
        offer = Offer(cpu_milli=round(self.cpu_total * 1000), memory_mib=self.memory_total_mib)
        for needs in reserved:
            offer = offer.less(needs)
        if self._limits.memory_gb is not None:
            return offer
        free_now = self._hardware.memory_available_bytes() // _MIB
        return Offer(offer.cpu_milli, min(offer.memory_mib, free_now))
