"""What goes wrong with requests: drawn for each of them, at rates that the seed has drawn."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Protocol

from stado.storage.observe import Operation
from tests.simulation.kernel import Kernel
from tests.simulation.process import SimProcess


class Fate(StrEnum):
    """Of one request."""

    FINE = "fine"
    CRASH_BEFORE = "crash_before"
    """The process that asks is gone, before the store has heard of it."""
    CRASH_AFTER = "crash_after"
    """The same, once it is applied."""
    LOST_REQUEST = "lost_request"
    LOST_ANSWER = "lost_answer"
    LATE = "late"
    """No answer now; a write is applied when nobody expects it any more."""
    DUPLICATE = "duplicate"
    """Applied and answered, and later applied once more."""
    STALL_BEFORE = "stall_before"
    """The process stands still for a while before the request leaves it."""
    STALL_AFTER = "stall_after"
    THROTTLED = "throttled"
    UNAVAILABLE = "unavailable"
    """Also what S3 says (409) when two conditional writes collide: nobody may have won."""
    SLOW = "slow"
    """Takes most of a lease."""


@dataclass(frozen=True)
class Rates:
    """Probabilities of each fate but the fine one, for each request."""

    crash_before: float = 0.0
    crash_after: float = 0.0
    lost_request: float = 0.0
    lost_answer: float = 0.0
    late: float = 0.0
    duplicate: float = 0.0
    stall_before: float = 0.0
    stall_after: float = 0.0
    throttled: float = 0.0
    unavailable: float = 0.0
    slow: float = 0.0

    @classmethod
    def drawn(cls, kernel: Kernel) -> Rates:
        """Most seeds have some kinds of fault, and few have all; how often differs by the
        thousandfold, and so does what a run is stopped by."""
        dice = kernel.random

        def rate(highest: float) -> float:
            return 0.0 if dice.random() < 0.4 else highest * 10 ** -(2 * dice.random())

        return cls(
            crash_before=rate(0.02),
            crash_after=rate(0.02),
            lost_request=rate(0.1),
            lost_answer=rate(0.1),
            late=rate(0.1),
            duplicate=rate(0.1),
            stall_before=rate(0.03),
            stall_after=rate(0.03),
            throttled=rate(0.2),
            unavailable=rate(0.2),
            slow=rate(0.03),
        )


class Weather(Protocol):
    """Decides, as a request is made, what becomes of it."""

    def draw(self, process: SimProcess, operation: Operation, key: str) -> Fate: ...


class Calm:
    """Nothing goes wrong."""

    def draw(self, process: SimProcess, operation: Operation, key: str) -> Fate:
        return Fate.FINE


class Storm:
    """Dice, as long as it lasts."""

    def __init__(self, kernel: Kernel, rates: Rates) -> None:
        self._kernel = kernel
        self._rates = [
            (Fate(field.name), getattr(rates, field.name))
            for field in fields(rates)
            if getattr(rates, field.name) > 0
        ]
        self.active = True

    def draw(self, process: SimProcess, operation: Operation, key: str) -> Fate:
        if not self.active:
            return Fate.FINE
        dice = self._kernel.random.random()
        for fate, rate in self._rates:
            dice -= rate
            if dice < 0:
                return fate
        return Fate.FINE
