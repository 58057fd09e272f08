"""Threads. They are daemons: a process that has finished never waits for one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from stado.ports import Event, Task

Item = TypeVar("Item")
Result = TypeVar("Result")

_logger = logging.getLogger(__name__)


class LiveTasks:
    """Concurrency by threads."""

    def start(self, name: str, work: Callable[[], None]) -> Task:
        """An exception that leaves `work` is logged and ends this task alone."""
        return _ThreadTask(_start_thread(name, lambda: _run_logged(name, work)))

    def map(
        self, work: Callable[[Item], Result], items: Iterable[Item], *, limit: int
    ) -> list[Result]:
        """The caller's thread works too, so that one item, or a limit of 1, starts no thread."""
        run = _Run(work, list(items))
        extra_threads = min(limit, len(run.items)) - 1
        threads = [_start_thread("map", run.work_off) for _ in range(extra_threads)]
        run.work_off()
        for thread in threads:
            if run.interruption is None:
                thread.join()
        return run.results_or_first_error()

    def event(self) -> Event:
        return _ThreadEvent()

    def lock(self) -> AbstractContextManager[Any]:
        return threading.Lock()


class _ThreadTask:
    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread

    def join(self, timeout_seconds: float | None = None) -> bool:
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()


class _ThreadEvent:
    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout_seconds: float) -> bool:
        return self._event.wait(timeout_seconds)


class _Run(Generic[Item, Result]):
    """One `map`: items that several threads take in turn, and what became of each."""

    def __init__(self, work: Callable[[Item], Result], items: list[Item]) -> None:
        self.items = items
        self._work = work
        self._results: dict[int, Result] = {}
        self._errors: dict[int, BaseException] = {}
        self._waiting: Iterator[int] = iter(range(len(items)))
        self._lock = threading.Lock()
        self.interruption: BaseException | None = None
        """Such as Ctrl-C: nothing more begins, and what runs is not waited for, since a request
        may take as long as a store is silent."""

    def work_off(self) -> None:
        while (index := self._take()) is not None:
            try:
                self._results[index] = self._work(self.items[index])
            except Exception as error:  # noqa: BLE001 - the caller gets it
                self._errors[index] = error
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                self.interruption = error

    def results_or_first_error(self) -> list[Result]:
        if self.interruption is not None:
            raise self.interruption
        if self._errors:
            raise self._errors[min(self._errors)]
        return [self._results[index] for index in range(len(self.items))]

    def _take(self) -> int | None:
        with self._lock:
            return None if self.interruption is not None else next(self._waiting, None)


def _start_thread(name: str, work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def _run_logged(name: str, work: Callable[[], None]) -> None:
    try:
        work()
    except Exception:
        _logger.exception("task failed task=%s", name)
