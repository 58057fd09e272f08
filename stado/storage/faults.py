"""A store that fails on purpose: for tests and simulations of everything above the port.

Which request fails, and how, is asked of a plan: a script of single faults, or dice.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeVar

from stado.errors import (
    Ambiguous,
    Denied,
    NotFound,
    StoreError,
    Throttled,
    Unavailable,
)
from stado.ports import Clock, Entropy
from stado.storage.observe import WRITES, Operation
from stado.storage.port import LIST_LIMIT_MAX, Blob, Entry, FileDigest, Store, Version

Result = TypeVar("Result")


class FaultKind(StrEnum):
    """What goes wrong with one request."""

    UNAVAILABLE = "unavailable"
    THROTTLED = "throttled"
    DENIED = "denied"
    LOST_ANSWER = "lost_answer"
    """Applied, then `Ambiguous`; a read is `Unavailable`."""

    LOST_REQUEST = "lost_request"
    """Not applied, then `Ambiguous`; a read is `Unavailable`."""

    LATE = "late"
    """`Ambiguous` now, applied when `land_late_writes` is called; a read is `Unavailable`."""

    DELAY = "delay"
    """Takes `seconds` longer, then goes on as if nothing had been."""

    STALE_PAGE = "stale_page"
    """A listing answers as it did the last time."""

    DROPPED_PAGE = "dropped_page"
    """A listing answers with the first half of its page only."""

    REPEATED_PAGE = "repeated_page"
    """A listing ignores `start_after`."""

    STALE_READ = "stale_read"
    """A created object is not found by reads for `seconds`."""

    TRUNCATED = "truncated"
    """A `get` answers with the first half of the data."""


_BEFORE: dict[FaultKind, Callable[[str, str], StoreError]] = {
    FaultKind.UNAVAILABLE: Unavailable,
    FaultKind.THROTTLED: Throttled,
    FaultKind.DENIED: Denied,
}
_UNCLEAR = {FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.LATE}
_TEXT = "injected fault"


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault, and the requests that it meets."""

    kind: FaultKind
    operation: Operation | None = None
    """None: any."""

    key_prefix: str = ""
    times: int = 1
    skip: int = 0
    """So many matching requests pass first."""

    seconds: float = 0.0

    def matches(self, operation: Operation, key: str) -> bool:
        return self.operation in (None, operation) and key.startswith(self.key_prefix)


class FaultPlan(Protocol):
    """Decides, before each request, what will go wrong with it."""

    def next(self, operation: Operation, key: str) -> Fault | None: ...


class ScriptedFaults:
    """Each fault meets its next matching requests, then is used up. More can be added."""

    def __init__(self, *faults: Fault) -> None:
        self._faults = list(faults)

    def add(self, fault: Fault) -> None:
        self._faults.append(fault)

    @property
    def used_up(self) -> bool:
        return not self._faults

    def next(self, operation: Operation, key: str) -> Fault | None:
        for index, fault in enumerate(self._faults):
            if not fault.matches(operation, key):
                continue
            if fault.skip:
                self._faults[index] = replace(fault, skip=fault.skip - 1)
                continue
            if fault.times == 1:
                del self._faults[index]
            else:
                self._faults[index] = replace(fault, times=fault.times - 1)
            return fault
        return None


class RandomFaults:
    """Dice: each fault has a probability, and the whole comes out the same for equal entropy."""

    def __init__(self, entropy: Entropy, probabilities: Mapping[Fault, float]) -> None:
        self._entropy = entropy
        self._probabilities = probabilities
        self.active = True

    def next(self, operation: Operation, key: str) -> Fault | None:
        if not self.active:
            return None
        dice = self._entropy.uniform(0.0, 1.0)
        for fault, probability in self._probabilities.items():
            if not fault.matches(operation, key):
                continue
            dice -= probability
            if dice < 0:
                return fault
        return None


class FaultyStore:
    """Not for several threads at once."""

    def __init__(self, inner: Store, clock: Clock, plan: FaultPlan) -> None:
        self._inner = inner
        self._clock = clock
        self._plan = plan
        self._late: list[Callable[[], object]] = []
        self._hidden_until: dict[str, float] = {}
        self._pages: dict[tuple[str, str, int], list[Entry]] = {}

    @property
    def late_writes(self) -> int:
        """How many writes are still under way."""
        return len(self._late)

    def land_late_writes(self, count: int | None = None) -> None:
        """Applies the oldest `count` late writes (None: all); what they answer reaches nobody."""
        landing, self._late = self._late[:count], self._late[len(self._late[:count]) :]
        for write in landing:
            try:
                write()
            except StoreError:
                continue

    @property
    def address(self) -> str:
        return self._inner.address

    def get(self, key: str, *, unless: Version | None = None) -> Blob:
        fault = self._draw(Operation.GET, key)
        self._check_hidden(key)
        blob = self._run(Operation.GET, key, fault, lambda: self._inner.get(key, unless=unless))
        if _is(fault, FaultKind.TRUNCATED):
            return Blob(blob.data[: len(blob.data) // 2], blob.version)
        return blob

    def get_range(self, key: str, start: int, length: int) -> bytes:
        fault = self._draw(Operation.GET_RANGE, key)
        self._check_hidden(key)
        return self._run(
            Operation.GET_RANGE, key, fault, lambda: self._inner.get_range(key, start, length)
        )

    def head(self, key: str) -> Entry:
        fault = self._draw(Operation.HEAD, key)
        self._check_hidden(key)
        return self._run(Operation.HEAD, key, fault, lambda: self._inner.head(key))

    def create(self, key: str, data: bytes) -> Version:
        fault = self._draw(Operation.CREATE, key)
        version = self._run(Operation.CREATE, key, fault, lambda: self._inner.create(key, data))
        if fault is not None and fault.kind is FaultKind.STALE_READ:
            self._hidden_until[key] = self._clock.monotonic() + fault.seconds
        return version

    def create_many(self, items: Sequence[tuple[str, bytes]]) -> builtins.list[Version | None]:
        """A lost answer may have applied half of the items, in the order given."""
        key = items[0][0] if items else ""
        fault = self._draw(Operation.CREATE_MANY, key)
        if _is(fault, FaultKind.LOST_ANSWER):
            self._inner.create_many(items[: (len(items) + 1) // 2])
            raise Ambiguous(key, _TEXT)
        return self._run(Operation.CREATE_MANY, key, fault, lambda: self._inner.create_many(items))

    def replace(self, key: str, data: bytes, version: Version) -> Version:
        fault = self._draw(Operation.REPLACE, key)
        return self._run(
            Operation.REPLACE, key, fault, lambda: self._inner.replace(key, data, version)
        )

    def put(self, key: str, data: bytes) -> Version:
        fault = self._draw(Operation.PUT, key)
        return self._run(Operation.PUT, key, fault, lambda: self._inner.put(key, data))

    def delete(self, key: str, version: Version | None) -> None:
        fault = self._draw(Operation.DELETE, key)
        self._run(Operation.DELETE, key, fault, lambda: self._inner.delete(key, version))

    def list(
        self, prefix: str, *, start_after: str = "", limit: int = LIST_LIMIT_MAX
    ) -> builtins.list[Entry]:
        fault = self._draw(Operation.LIST, prefix)
        question = (prefix, start_after, limit)
        if _is(fault, FaultKind.STALE_PAGE) and question in self._pages:
            return self._pages[question]
        after = "" if _is(fault, FaultKind.REPEATED_PAGE) else start_after
        page = self._run(
            Operation.LIST,
            prefix,
            fault,
            lambda: self._inner.list(prefix, start_after=after, limit=limit),
        )
        if _is(fault, FaultKind.DROPPED_PAGE):
            return page[: len(page) // 2]
        self._pages[question] = page
        return page

    def now(self) -> datetime:
        return self._inner.now()

    def upload(self, key: str, path: Path) -> FileDigest:
        fault = self._draw(Operation.UPLOAD, key)
        return self._run(Operation.UPLOAD, key, fault, lambda: self._inner.upload(key, path))

    def download(self, key: str, path: Path) -> FileDigest:
        fault = self._draw(Operation.DOWNLOAD, key)
        self._check_hidden(key)
        return self._run(Operation.DOWNLOAD, key, fault, lambda: self._inner.download(key, path))

    def close(self) -> None:
        self._inner.close()

    def _draw(self, operation: Operation, key: str) -> Fault | None:
        fault = self._plan.next(operation, key)
        if fault is not None and fault.kind is FaultKind.DELAY:
            self._clock.sleep(fault.seconds)
        return fault

    def _check_hidden(self, key: str) -> None:
        until = self._hidden_until.get(key)
        if until is None:
            return
        if self._clock.monotonic() < until:
            raise NotFound(key, _TEXT)
        del self._hidden_until[key]

    def _run(
        self, operation: Operation, key: str, fault: Fault | None, call: Callable[[], Result]
    ) -> Result:
        """Applies the faults that every operation can have."""
        if fault is None:
            return call()
        if fault.kind in _BEFORE:
            raise _BEFORE[fault.kind](key, _TEXT)
        if fault.kind not in _UNCLEAR:
            return call()
        if operation not in WRITES:
            raise Unavailable(key, _TEXT)
        if fault.kind is FaultKind.LOST_ANSWER:
            call()
        elif fault.kind is FaultKind.LATE:
            self._late.append(call)
        raise Ambiguous(key, _TEXT)


def _is(fault: Fault | None, kind: FaultKind) -> bool:
    return fault is not None and fault.kind is kind
