"""Stores through which an actor can be stopped at each of its requests: killed, stalled, or
stepped one request at a time beside others."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from stado.storage.observe import WRITES, Operation
from stado.storage.port import LIST_LIMIT_MAX, Blob, Entry, FileDigest, Store, Version

Result = TypeVar("Result")


class Crash(BaseException):
    """The process is gone: nothing in it runs any more."""


class GuardedStore:
    """Asks a guard before each request and tells it after."""

    def __init__(
        self,
        inner: Store,
        *,
        before: Callable[[Operation, str], None] | None = None,
        after: Callable[[Operation, str], None] | None = None,
    ) -> None:
        self._inner = inner
        self._before = before
        self._after = after

    def _guarded(self, operation: Operation, key: str, call: Callable[[], Result]) -> Result:
        if self._before is not None:
            self._before(operation, key)
        try:
            return call()
        finally:
            if self._after is not None:
                self._after(operation, key)

    @property
    def address(self) -> str:
        return self._inner.address

    def get(self, key: str, *, unless: Version | None = None) -> Blob:
        return self._guarded(Operation.GET, key, lambda: self._inner.get(key, unless=unless))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._guarded(
            Operation.GET_RANGE, key, lambda: self._inner.get_range(key, start, length)
        )

    def head(self, key: str) -> Entry:
        return self._guarded(Operation.HEAD, key, lambda: self._inner.head(key))

    def create(self, key: str, data: bytes) -> Version:
        return self._guarded(Operation.CREATE, key, lambda: self._inner.create(key, data))

    def create_many(self, items: Sequence[tuple[str, bytes]]) -> builtins.list[Version | None]:
        return self._guarded(
            Operation.CREATE_MANY, items[0][0], lambda: self._inner.create_many(items)
        )

    def replace(self, key: str, data: bytes, version: Version) -> Version:
        return self._guarded(
            Operation.REPLACE, key, lambda: self._inner.replace(key, data, version)
        )

    def put(self, key: str, data: bytes) -> Version:
        return self._guarded(Operation.PUT, key, lambda: self._inner.put(key, data))

    def delete(self, key: str, version: Version | None) -> None:
        self._guarded(Operation.DELETE, key, lambda: self._inner.delete(key, version))

    def list(
        self, prefix: str, *, start_after: str = "", limit: int = LIST_LIMIT_MAX
    ) -> builtins.list[Entry]:
        return self._guarded(
            Operation.LIST,
            prefix,
            lambda: self._inner.list(prefix, start_after=start_after, limit=limit),
        )

    def now(self) -> datetime:
        return self._inner.now()

    def upload(self, key: str, path: Path) -> FileDigest:
        return self._guarded(Operation.UPLOAD, key, lambda: self._inner.upload(key, path))

    def download(self, key: str, path: Path) -> FileDigest:
        return self._guarded(Operation.DOWNLOAD, key, lambda: self._inner.download(key, path))

    def close(self) -> None:
        self._inner.close()


def mortal(inner: Store, *, at: int, applied: bool) -> GuardedStore:
    """A store whose user dies at request number `at` (from 0), before it or just after it."""
    count = iter(range(1_000_000))
    current = [0]

    def before(operation: Operation, key: str) -> None:
        current[0] = next(count)
        if not applied and current[0] == at:
            raise Crash

    def after(operation: Operation, key: str) -> None:
        if applied and current[0] == at:
            raise Crash

    return GuardedStore(inner, before=before, after=after)


class Actor:
    """A thread that makes as many requests as it is told to, and then waits.

    What it does between two requests belongs to the first of them; only one actor moves."""

    def __init__(self, inner: Store, work: Callable[[Store], object]) -> None:
        self.requests = 0
        self.writes = 0
        self.pending: Operation | None = None
        self.pending_key = ""
        self.result: object = None
        self.error: BaseException | None = None
        self.done = False
        self._go = threading.Semaphore(0)
        self._waits = threading.Semaphore(0)
        self._killed = False
        self._work = work
        self._store = GuardedStore(inner, before=self._before)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._waits.acquire()

    def step(self, requests: int = 1) -> bool:
        """Lets it make so many requests; whether it goes on after them."""
        for _ in range(requests):
            if self.done:
                return False
            self._go.release()
            self._waits.acquire()
        return not self.done

    def step_to_write(self, number: int, *, made: bool) -> bool:
        """Lets it run until its write number `number` (from 0) comes next or, with `made`, is
        just made; False when it makes fewer."""
        while not self.done:
            if self.writes == number + made and (made or self.pending in WRITES):
                return True
            self.step()
        return False

    def finish(self) -> None:
        """Lets it run to its end."""
        while self.step():
            pass
        self._thread.join()

    def kill(self) -> None:
        """It makes no request any more."""
        self._killed = True
        self.finish()

    def _before(self, operation: Operation, key: str) -> None:
        self.pending, self.pending_key = operation, key
        self._waits.release()
        self._go.acquire()
        if self._killed:
            raise Crash
        self.requests += 1
        self.writes += operation in WRITES

    def _run(self) -> None:
        try:
            self.result = self._work(self._store)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        finally:
            self.done = True
            self._waits.release()
