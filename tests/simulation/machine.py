"""The ports of a simulated machine: clock, randomness, concurrency."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, TypeVar

from stado.ports import Event, Task
from stado.storage.port import Billed
from tests.jobs.fakes import InlineTasks
from tests.simulation.kernel import Door, Kernel, Strand
from tests.simulation.process import SimHost

Item = TypeVar("Item")
Result = TypeVar("Result")

START = datetime(2026, 3, 1, tzinfo=UTC)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_TOKEN_LETTERS = _LETTERS + "234567"
_PARALLEL_MAX = 3
"""Requests at a time in a simulated process: enough for each order of two."""


class TrueClock:
    """The world's own, which is the store's."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def now(self) -> datetime:
        return START + timedelta(seconds=self._kernel.now)

    def monotonic(self) -> float:
        return self._kernel.now

    def sleep(self, seconds: float) -> None:
        self._kernel.sleep(seconds)


class HostClock:
    """As fast, and as wrong, as its host's."""

    def __init__(self, host: SimHost) -> None:
        self._host = host

    def now(self) -> datetime:
        return START + timedelta(seconds=self._host.wall())

    def monotonic(self) -> float:
        return self._host.monotonic()

    def sleep(self, seconds: float) -> None:
        self._host.kernel.sleep(seconds / self._host.rate)


class SimEntropy:
    """Chance that comes from the seed."""

    def __init__(self, kernel: Kernel) -> None:
        self._random = kernel.random

    def token(self) -> str:
        return "".join(self._random.choices(_TOKEN_LETTERS, k=16))

    def letters(self, count: int) -> str:
        return "".join(self._random.choices(_LETTERS, k=count))

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


class Unlocked(InlineTasks):
    """For what never waits while it is in a lock, in a world where one thread carries all: a
    checker may look at the store from within a write."""

    def lock(self) -> AbstractContextManager[Any]:
        return nullcontext()


class _SimTask:
    def __init__(self, kernel: Kernel, strand: Strand) -> None:
        self._kernel = kernel
        self._strand = strand

    def join(self, timeout_seconds: float | None = None) -> bool:
        seconds = inf if timeout_seconds is None else timeout_seconds
        return self._kernel.wait_until(lambda: self._strand.done, seconds, self._strand.ended)


class _SimEvent:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._set = False
        self._door = Door(kernel)

    def set(self) -> None:
        self._set = True
        self._door.open()

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout_seconds: float) -> bool:
        return self._kernel.wait_until(self.is_set, timeout_seconds, self._door)


class _SimLock:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._taken = False
        self._door = Door(kernel)

    def __enter__(self) -> None:
        if self._taken:
            self._kernel.wait_until(lambda: not self._taken, inf, self._door)
        self._taken = True

    def __exit__(self, *_: object) -> None:
        self._taken = False
        self._door.open()


class SimMeter:
    """Counts time for requests: who reads it twice finds more the second time."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def reading(self) -> Billed:
        milliseconds = int(self._kernel.now * 1000)
        return Billed(milliseconds, 2 * milliseconds, 3 * milliseconds, milliseconds)


class SimTasks:
    """Strands of the process that starts them."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def start(self, name: str, work: Callable[[], None]) -> Task:
        strand = self._kernel.spawn(self._kernel.running.process, name, work)
        return _SimTask(self._kernel, strand)

    def map(
        self, work: Callable[[Item], Result], items: Iterable[Item], *, limit: int
    ) -> list[Result]:
        todo = list(enumerate(items))
        if len(todo) < 2:
            return [work(item) for _, item in todo]
        results: dict[int, Result] = {}
        errors: dict[int, BaseException] = {}

        def carry() -> None:
            while todo:
                number, item = todo.pop(0)
                try:
                    results[number] = work(item)
                except Exception as error:  # noqa: BLE001 - raised by who waits
                    errors[number] = error

        carriers = [self.start("map", carry) for _ in range(min(limit, _PARALLEL_MAX, len(todo)))]
        for carrier in carriers:
            carrier.join()
        if errors:
            raise errors[min(errors)]
        return [results[number] for number in sorted(results)]

    def event(self) -> Event:
        return _SimEvent(self._kernel)

    def lock(self) -> AbstractContextManager[Any]:
        return _SimLock(self._kernel)
