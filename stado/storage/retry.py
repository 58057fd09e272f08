"""A store that tries again, and that finds out what became of a write without an answer.

This is the only place that retries: the SDKs are told not to, for their retries hide that an
earlier attempt may have been applied, and then report the caller's own write as someone else's.

An attempt that was refused for the time being (503) counts as not applied, but there are services
and proxies that say so of a write which they have applied. What a later attempt meets is therefore
compared with what was sent, after any failed attempt.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from stado.errors import (
    Ambiguous,
    Conflict,
    Exists,
    NotFound,
    StoreError,
    Throttled,
    Unavailable,
)
from stado.ports import Clock, Entropy, Tasks
from stado.storage.port import LIST_LIMIT_MAX, Blob, Entry, FileDigest, Store, Version
from stado.storage.trouble import RequestInHand, Setback, StoreTrouble

if TYPE_CHECKING:
    from tenacity import RetryCallState

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """When to give up, and how long to wait between attempts."""

    attempts: int = 8
    total_seconds: float = 20.0
    first_wait_seconds: float = 0.1
    wait_seconds_max: float = 4.0


_READ_BACKS_AT_A_TIME = 16


class RetryingStore:
    """Raises `Unavailable` when every attempt was certainly not applied, `Ambiguous` otherwise.

    `concurrent_creates` is for stores without a bulk operation: `create_many` then makes so many
    creates at a time, each with retries of its own. None leaves it to the store. `trouble` hears
    of each attempt that failed and will be repeated, before the wait."""

    def __init__(
        self,
        inner: Store,
        *,
        clock: Clock,
        entropy: Entropy,
        tasks: Tasks,
        limits: RetryLimits | None = None,
        concurrent_creates: int | None = None,
        trouble: StoreTrouble | None = None,
    ) -> None:
        self._inner = inner
        self._clock = clock
        self._entropy = entropy
        self._tasks = tasks
        self._limits = limits if limits is not None else RetryLimits()
        self._concurrent_creates = concurrent_creates
        self._trouble = trouble

    @property
    def address(self) -> str:
        return self._inner.address

    def get(self, key: str, *, unless: Version | None = None) -> Blob:
        return self._repeated(key, lambda: self._inner.get(key, unless=unless))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._repeated(key, lambda: self._inner.get_range(key, start, length))

    def head(self, key: str) -> Entry:
        return self._repeated(key, lambda: self._inner.head(key))

    def create(self, key: str, data: bytes) -> Version:
        attempts = _Create(self._inner, key, data)
        return self._repeated(key, attempts.once)

    def create_many(self, items: Sequence[tuple[str, bytes]]) -> builtins.list[Version | None]:
        if self._concurrent_creates is not None:
            return self._create_concurrently(items, self._concurrent_creates)
        attempts = _CreateMany(self._inner, self._tasks, items)
        return self._repeated(items[0][0] if items else "", attempts.once, transfer=True)

    def replace(self, key: str, data: bytes, version: Version) -> Version:
        attempts = _Replace(self._inner, key, data, version)
        return self._repeated(key, attempts.once)

    def put(self, key: str, data: bytes) -> Version:
        return self._repeated(key, lambda: self._inner.put(key, data))

    def delete(self, key: str, version: Version | None) -> None:
        attempts = _Delete(self._inner, key, version)
        self._repeated(key, attempts.once)

    def list(
        self, prefix: str, *, start_after: str = "", limit: int = LIST_LIMIT_MAX
    ) -> builtins.list[Entry]:
        return self._repeated(
            prefix, lambda: self._inner.list(prefix, start_after=start_after, limit=limit)
        )

    def now(self) -> datetime:
        return self._repeated(self.address, self._inner.now)

    def upload(self, key: str, path: Path) -> FileDigest:
        return self._repeated(key, lambda: self._inner.upload(key, path), transfer=True)

    def download(self, key: str, path: Path) -> FileDigest:
        return self._repeated(key, lambda: self._inner.download(key, path), transfer=True)

    def close(self) -> None:
        self._inner.close()

    def _repeated(self, key: str, call: Callable[[], Result], *, transfer: bool = False) -> Result:
        """Calls until there is an answer, or the budget is spent."""
        if self._trouble is None:
            return self._called(key, call, None)
        request = self._trouble.begin(transfer=transfer)
        try:
            return self._called(key, call, request)
        finally:
            self._trouble.end(request)

    def _called(
        self, key: str, call: Callable[[], Result], request: RequestInHand | None
    ) -> Result:
        """Nearly every first call answers, and then the machinery for the others costs nothing."""
        end = self._clock.monotonic() + self._limits.total_seconds
        try:
            return call()
        except (Unavailable, Ambiguous) as error:
            if not _is_worth_retrying(error):
                raise
            return self._repeat(key, call, request, first_error=error, end=end)

    def _repeat(
        self,
        key: str,
        call: Callable[[], Result],
        request: RequestInHand | None,
        *,
        first_error: StoreError,
        end: float,
    ) -> Result:
        """The attempts after one that failed; its error counts as the first one's."""
        from tenacity import Retrying, retry_if_exception

        unclear = False
        errors = [first_error]

        def once() -> Result:
            nonlocal unclear
            try:
                if errors:
                    raise errors.pop()
                return call()
            except Ambiguous:
                unclear = True
                raise

        def is_spent(state: RetryCallState) -> bool:
            too_late = self._clock.monotonic() + state.upcoming_sleep > end
            return too_late or state.attempt_number >= self._limits.attempts

        def tell(state: RetryCallState) -> None:
            self._tell(key, state, request, end)

        retrying = Retrying(
            sleep=self._clock.sleep,
            wait=self._wait,
            stop=is_spent,
            before_sleep=tell,
            retry=retry_if_exception(_is_worth_retrying),
            reraise=True,
        )
        try:
            return retrying(once)
        except Unavailable as error:
            if unclear:
                raise Ambiguous(key, f"an earlier attempt had no answer; then: {error}") from error
            raise

    def _tell(
        self, key: str, state: RetryCallState, request: RequestInHand | None, end: float
    ) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if self._trouble is None or request is None or error is None:
            return
        left_seconds = end - self._clock.monotonic()
        setback = Setback(
            key=key,
            error=str(error).removeprefix(f"{key}: "),
            throttled=isinstance(error, Throttled),
            attempt=state.attempt_number,
            attempts_max=self._limits.attempts,
            wait_seconds=state.upcoming_sleep,
            elapsed_seconds=self._limits.total_seconds - left_seconds,
            left_seconds=left_seconds,
        )
        self._trouble.put_off(request, setback)

    def _wait(self, state: RetryCallState) -> float:
        """Exponential, with jitter over its upper half."""
        longest: float = self._limits.first_wait_seconds * 2 ** (state.attempt_number - 1)
        longest = min(longest, self._limits.wait_seconds_max)
        return self._entropy.uniform(longest / 2, longest)

    def _create_concurrently(
        self, items: Sequence[tuple[str, bytes]], limit: int
    ) -> builtins.list[Version | None]:
        failures: list[StoreError] = []

        def create(item: tuple[str, bytes]) -> Version | None:
            if failures:  # the store is gone: thousands more would wait for it one by one
                raise failures[0]
            try:
                return self.create(*item)
            except Exists:
                return None
            except StoreError as error:
                failures.append(error)
                raise

        return self._tasks.map(create, items, limit=limit)


class _Superseded(Ambiguous):
    """The object holds something else, after a write of ours that had no answer. Final."""


def _is_worth_retrying(error: BaseException) -> bool:
    return isinstance(error, Unavailable | Ambiguous) and not isinstance(error, _Superseded)


def _read_back(store: Store, key: str) -> Blob | None:
    """What is under the key after an unclear write; None: nothing. The write stays unclear
    (`Ambiguous`) when the store does not tell."""
    try:
        return store.get(key)
    except NotFound:
        return None
    except Unavailable as error:
        raise Ambiguous(key, f"nor did a read after it answer: {error}") from error


class _Create:
    """The attempts of one create."""

    def __init__(self, store: Store, key: str, data: bytes) -> None:
        self._store = store
        self._key = key
        self._data = data
        self._failed = False

    def once(self) -> Version:
        try:
            return self._store.create(self._key, self._data)
        except Unavailable:
            self._failed = True
            raise
        except Ambiguous as error:
            self._failed = True
            return self._own_version(error)
        except Exists as error:
            if not self._failed:
                raise
            return self._own_version(error)

    def _own_version(self, error: StoreError) -> Version:
        found = _read_back(self._store, self._key)
        if found is None:
            raise Ambiguous(self._key, f"a create had no answer ({error})") from error
        if found.data != self._data:
            raise Exists(self._key) from error
        return found.version


class _CreateMany:
    """The attempts of one bulk create: after a failed one, what is there may be our own."""

    def __init__(self, store: Store, tasks: Tasks, items: Sequence[tuple[str, bytes]]) -> None:
        self._store = store
        self._tasks = tasks
        self._items = items
        self._unclear = False

    def once(self) -> list[Version | None]:
        try:
            versions = self._store.create_many(self._items)
        except (Ambiguous, Unavailable):
            self._unclear = True
            raise
        if not self._unclear:
            return versions
        pairs = list(zip(self._items, versions, strict=True))
        return self._tasks.map(self._own_version, pairs, limit=_READ_BACKS_AT_A_TIME)

    def _own_version(self, pair: tuple[tuple[str, bytes], Version | None]) -> Version | None:
        (key, data), version = pair
        if version is not None:
            return version
        found = _read_back(self._store, key)
        return found.version if found is not None and found.data == data else None


class _Replace:
    """The attempts of one compare-and-swap."""

    def __init__(self, store: Store, key: str, data: bytes, version: Version) -> None:
        self._store = store
        self._key = key
        self._data = data
        self._version = version
        self._failed = False
        self._unclear = False

    def once(self) -> Version:
        try:
            return self._store.replace(self._key, self._data, self._version)
        except Unavailable:
            self._failed = True
            raise
        except Ambiguous as error:
            self._unclear = True
            return self._own_version(error)
        except Conflict as error:
            if not self._unclear and not self._failed:
                raise
            return self._own_version(error)

    def _own_version(self, error: StoreError) -> Version:
        found = _read_back(self._store, self._key)
        if found is not None and found.data == self._data:
            return found.version
        if not self._unclear:
            raise error
        if found is not None and found.version == self._version:
            raise Ambiguous(self._key, f"a replace had no answer ({error})") from error
        raise _Superseded(
            self._key, "a replace without an answer may have been applied and since overwritten"
        ) from error


class _Delete:
    """The attempts of one delete."""

    def __init__(self, store: Store, key: str, version: Version | None) -> None:
        self._store = store
        self._key = key
        self._version = version
        self._unclear = False

    def once(self) -> None:
        try:
            self._store.delete(self._key, self._version)
        except Ambiguous:
            self._unclear = True
            raise
        except Conflict as error:
            if not self._unclear:
                raise
            raise _Superseded(
                self._key,
                "a delete without an answer may have been applied; another object is there",
            ) from error
