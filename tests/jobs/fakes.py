"""Ports of a machine where nothing happens by itself: time moves when a test says so, randomness
has a seed, work is done at once by who starts it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from stado.ports import Event, Task

Item = TypeVar("Item")
Result = TypeVar("Result")

START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """Sleeping moves time on and takes none."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._suspended_seconds = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self._seconds + self._suspended_seconds)

    def monotonic(self) -> float:
        return self._seconds

    def sleep(self, seconds: float) -> None:
        self._seconds += seconds

    def suspend(self, seconds: float) -> None:
        """The machine sleeps: its monotonic clock sees nothing of that."""
        self._suspended_seconds += seconds


class FakeEntropy:
    """The same sequence for the same seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def token(self) -> str:
        return "".join(self._random.choices("abcdefghijklmnopqrstuvwxyz234567", k=16))

    def letters(self, count: int) -> str:
        return "".join(self._random.choices("abcdefghijklmnopqrstuvwxyz", k=count))

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


class _Done:
    def join(self, timeout_seconds: float | None = None) -> bool:
        return True


class _Flag:
    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout_seconds: float) -> bool:
        return self._set


class InlineTasks:
    """One thing after the other, in the order given."""

    def start(self, name: str, work: Callable[[], None]) -> Task:
        work()
        return _Done()

    def map(
        self, work: Callable[[Item], Result], items: Iterable[Item], *, limit: int
    ) -> list[Result]:
        return [work(item) for item in items]

    def event(self) -> Event:
        return _Flag()

    def lock(self) -> AbstractContextManager[Any]:
        return threading.Lock()
