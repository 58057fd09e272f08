"""Time and randomness that a test decides."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

START = datetime(2031, 5, 1, tzinfo=UTC)


class FakeClock:
    """Moves only when something sleeps."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> datetime:
        return START + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class SeededEntropy:
    """The same for each run with the same seed."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)

    def token(self) -> str:
        return "".join(self._random.choices("abcdefghijklmnopqrstuvwxyz234567", k=16))

    def letters(self, count: int) -> str:
        return "".join(self._random.choices("abcdefghijklmnopqrstuvwxyz", k=count))

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)
