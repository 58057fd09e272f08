"""The way from a process to the store, with everything that can happen on it."""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import NoReturn, Protocol, TypeVar

from stado.errors import Ambiguous, Conflict, NotFound, StadoError, Throttled, Unavailable
from stado.storage.memory import MemoryStore
from stado.storage.observe import WRITES, Operation
from stado.storage.port import LIST_LIMIT_MAX, Blob, Entry, FileDigest, Version
from tests.simulation.kernel import Kernel
from tests.simulation.process import SimProcess
from tests.simulation.weather import Fate, Weather

Result = TypeVar("Result")

_REFUSALS = {Fate.THROTTLED: Throttled, Fate.UNAVAILABLE: Unavailable}


@dataclass(frozen=True)
class Ways:
    """How a store and the way to it behave. Seconds of true time."""

    latency_max: float = 0.1
    timeout: float = 10.0
    """Until somebody who waits for an answer gives up."""
    stall_min: float = 0.0
    stall_max: float = 300.0
    late_min: float = 0.0
    late_max: float = 600.0
    slow: float = 20.0
    page_size: int = LIST_LIMIT_MAX
    """Names that the server tells at a time; there is time between its pages."""
    creates_at_once: bool = True
    """Whether the store has a bulk operation, as a directory."""
    deletes_by_version: bool = True


class Observer(Protocol):
    """Hears of each request, in the order of what the store does."""

    def note_request(
        self, process: SimProcess, operation: Operation, key: str, fate: Fate, answer: str
    ) -> None: ...


class Bucket:
    """The store itself, and on whose behalf it is being changed."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.author: SimProcess | None = None

    def act(self, author: SimProcess, call: Callable[[], Result]) -> Result:
        self.author = author
        try:
            return call()
        finally:
            self.author = None


class Line:
    """A store, as whoever asks reaches it: each request belongs to the process that runs."""

    def __init__(
        self, kernel: Kernel, bucket: Bucket, weather: Weather, ways: Ways, observer: Observer
    ) -> None:
        self._kernel = kernel
        self._bucket = bucket
        self._weather = weather
        self._ways = ways
        self._observer = observer

    @property
    def address(self) -> str:
        return "sim:"

    # --- the operations -----------------------------------------------------------------

    def get(self, key: str, *, unless: Version | None = None) -> Blob:
        return self._ask(Operation.GET, key, lambda: self._store.get(key, unless=unless))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._ask(
            Operation.GET_RANGE, key, lambda: self._store.get_range(key, start, length)
        )

    def head(self, key: str) -> Entry:
        return self._ask(Operation.HEAD, key, lambda: self._store.head(key))

    def create(self, key: str, data: bytes) -> Version:
        return self._ask(Operation.CREATE, key, lambda: self._store.create(key, data))

    def create_many(self, items: Sequence[tuple[str, bytes]]) -> builtins.list[Version | None]:
        """In bulk; one that is interrupted has created any of them."""
        if not items:
            return []
        some = [item for item in items if self._kernel.chance(0.5)]
        return self._ask(
            Operation.CREATE_MANY,
            items[0][0],
            lambda: self._store.create_many(items),
            in_part=lambda: self._store.create_many(some),
        )

    def replace(self, key: str, data: bytes, version: Version) -> Version:
        return self._ask(Operation.REPLACE, key, lambda: self._store.replace(key, data, version))

    def put(self, key: str, data: bytes) -> Version:
        return self._ask(Operation.PUT, key, lambda: self._store.put(key, data))

    def delete(self, key: str, version: Version | None) -> None:
        if version is None or self._ways.deletes_by_version:
            self._ask(Operation.DELETE, key, lambda: self._store.delete(key, version))
            return
        try:
            found = self.head(key)
        except NotFound:
            return
        if found.version != version:
            raise Conflict(key)
        self._ask(Operation.DELETE, key, lambda: self._store.delete(key, None))

    def list(
        self, prefix: str, *, start_after: str = "", limit: int = LIST_LIMIT_MAX
    ) -> builtins.list[Entry]:
        found: builtins.list[Entry] = []
        while len(found) < limit:
            size = min(self._ways.page_size, limit - len(found))
            page = self._list_page(prefix, start_after, size)
            found += page
            if len(page) < size:
                break
            start_after = page[-1].key
        return found

    def now(self) -> datetime:
        """Measured once by each process, then carried on by its host's monotonic clock."""
        process = self._kernel.running.process
        if process.store_clock is None:
            at = self._ask(Operation.LIST, "", lambda: self._kernel.now)
            process.store_clock = (at, process.host.monotonic())
        at, since = process.store_clock
        passed = process.host.monotonic() - since
        return self._store.now() + timedelta(seconds=at + passed - self._kernel.now)

    def upload(self, key: str, path: Path) -> FileDigest:
        """What comes late, or twice, is what the file held when it was sent."""
        content = path.read_bytes()
        digest = FileDigest(len(content), hashlib.sha256(content).hexdigest())

        def put() -> FileDigest:
            self._store.put(key, content)
            return digest

        return self._ask(Operation.UPLOAD, key, put)

    def download(self, key: str, path: Path) -> FileDigest:
        return self._ask(Operation.DOWNLOAD, key, lambda: self._store.download(key, path))

    def close(self) -> None:
        """Nothing to give back."""

    # --- on the way ---------------------------------------------------------------------

    @property
    def _store(self) -> MemoryStore:
        return self._bucket.store

    def _list_page(self, prefix: str, start_after: str, size: int) -> builtins.list[Entry]:
        return self._ask(
            Operation.LIST,
            prefix,
            lambda: self._store.list(prefix, start_after=start_after, limit=size),
        )

    def _ask(
        self,
        operation: Operation,
        key: str,
        call: Callable[[], Result],
        *,
        in_part: Callable[[], Result] | None = None,
    ) -> Result:
        """`in_part`: what is left of a bulk operation of which the caller hears no answer."""
        process = self._kernel.running.process
        fate = self._weather.draw(process, operation, key)
        request = _Request(process, operation, key, fate)
        if fate is Fate.LATE and operation in WRITES:
            self._apply_later(process, call)
        process.underway.append(fate)
        try:
            self._leave(request)
        except StadoError:
            process.underway.remove(fate)
            raise
        process.underway.remove(fate)
        if fate in (Fate.CRASH_AFTER, Fate.LOST_ANSWER) and in_part is not None:
            call = in_part
        try:
            answer = self._bucket.act(process, call)
        except StadoError as error:
            self._note(request, type(error).__name__)
            self._come_back(request)
            raise
        self._note(request, "ok")
        if fate is Fate.DUPLICATE:  # what is read twice is given to nobody the second time
            self._apply_later(process, call if operation in WRITES else _nothing)
        self._come_back(request)
        return answer

    def _leave(self, request: _Request) -> None:
        """Returns when the request has reached the store; raises when it never will."""
        fate, process = request.fate, request.process
        if fate is Fate.CRASH_BEFORE:
            self._note(request, "never asked")
            self._crash(process)
        if fate is Fate.STALL_BEFORE:
            self._stall(process)
        self._kernel.sleep(self._latency(fate))
        if fate in _REFUSALS:
            self._note(request, "refused")
            raise _REFUSALS[fate](request.key, "by chance")
        if process.host.cut_off or fate in (Fate.LOST_REQUEST, Fate.LATE):
            self._note(request, "no answer")
            self._wait_in_vain(request)

    def _come_back(self, request: _Request) -> None:
        """Returns when the answer has reached the caller; raises when it never will."""
        fate, process = request.fate, request.process
        if fate is Fate.CRASH_AFTER:
            self._crash(process)
        if fate is Fate.STALL_AFTER:
            self._stall(process)
        if fate is Fate.LOST_ANSWER or process.host.cut_off:
            self._wait_in_vain(request)
        self._kernel.sleep(self._latency(fate))

    def _latency(self, fate: Fate) -> float:
        if fate is Fate.SLOW:
            return self._ways.slow / 2
        return self._kernel.random.random() * self._ways.latency_max / 2

    def _wait_in_vain(self, request: _Request) -> NoReturn:
        self._kernel.sleep(self._ways.timeout)
        unclear = Ambiguous if request.operation in WRITES else Unavailable
        raise unclear(request.key, "no answer in time")

    def _crash(self, process: SimProcess) -> None:
        process.kill()
        self._kernel.running.vanish()

    def _stall(self, process: SimProcess) -> None:
        process.freeze()
        seconds = self._kernel.random.uniform(self._ways.stall_min, self._ways.stall_max)
        self._kernel.after(seconds, process.thaw)

    def _apply_later(self, process: SimProcess, call: Callable[[], object]) -> None:
        """When nobody expects it any more; and nobody hears what came of it."""

        def land() -> None:
            with suppress(StadoError):
                self._bucket.act(process, call)

        seconds = self._kernel.random.uniform(self._ways.late_min, self._ways.late_max)
        self._kernel.after(seconds, land)

    def _note(self, request: _Request, answer: str) -> None:
        self._observer.note_request(
            request.process, request.operation, request.key, request.fate, answer
        )


def _nothing() -> None:
    """What a request does to the store that only reads."""


@dataclass(frozen=True, slots=True)
class _Request:
    process: SimProcess
    operation: Operation
    key: str
    fate: Fate
