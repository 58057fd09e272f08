"""The storage port: the few operations that stado asks of a bucket or a directory.

Adapters and wrappers (retry, counting, fault injection) all have this shape, and one conformance
suite (`stado.storage.contract`) holds for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol

Version = str
"""Opaque, compared for equality only: an ETag (S3), a generation (GCS), a digest (directory)."""

LIST_LIMIT_MAX = 1000
"""The largest page that every store answers in one request."""


@dataclass(frozen=True, slots=True)
class Blob:
    """An object as it was read."""

    data: bytes
    version: Version


@dataclass(frozen=True, slots=True)
class Entry:
    """An object as a listing or a head shows it."""

    key: str
    version: Version
    size: int
    modified_at: datetime
    """Aware UTC, on the store's clock; some stores round it to seconds."""


@dataclass(frozen=True, slots=True)
class FileDigest:
    """What was transferred."""

    size: int
    sha256: str


class Store(Protocol):
    """Keys are plain ASCII paths without empty, `.` or `..` components, at most 200 bytes each.

    Every operation may raise `Unavailable` (not applied), `Denied` or `Misconfigured`; every
    write may raise `Ambiguous`. No operation takes longer than the store's time limit.
    """

    @property
    def address(self) -> str:
        """What a user would type to name this store, without secrets."""
        ...

    def get(self, key: str, *, unless: Version | None = None) -> Blob:
        """Raises `NotFound`; `NotModified` when the object still has the version `unless`."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """At most `length` bytes (1 or more) from `start` on; fewer where the object ends, none
        from there on. Raises `NotFound`.

        Of an object that is written once: parts of two versions would not fit together, and no
        version is told."""
        ...

    def head(self, key: str) -> Entry:
        """Raises `NotFound`."""
        ...

    def create(self, key: str, data: bytes) -> Version:
        """Create-if-absent: of any number of racing callers exactly one wins, the others get
        `Exists`."""
        ...

    def create_many(self, items: Sequence[tuple[str, bytes]]) -> list[Version | None]:
        """Creates each item if absent, in any order; None stands where the key was taken.

        All are durable when it returns. When it raises, any of them may have been created."""
        ...

    def replace(self, key: str, data: bytes, version: Version) -> Version:
        """Compare-and-swap: `Conflict` when the object has another version or is gone."""
        ...

    def put(self, key: str, data: bytes) -> Version:
        """Last writer wins: only for objects with one writer."""
        ...

    def delete(self, key: str, version: Version | None) -> None:
        """Deletes the object if it has this version (None: whatever it is).

        `Conflict` when it has another one; an absent object is no error."""
        ...

    def list(
        self, prefix: str, *, start_after: str = "", limit: int = LIST_LIMIT_MAX
    ) -> list[Entry]:
        """Entries whose key starts with `prefix` and is greater than the key `start_after`, in
        byte order; fewer than `limit` (1 to 1000) only at the end.

        One folder at a time: `prefix` is a folder (`queue/`) or a folder and the beginning of
        names in it (`queue/abc`), and that folder holds objects only, no folders. What others
        put there under names that this port refuses is passed over."""
        ...

    def now(self) -> datetime:
        """The store's own clock, aware UTC: measured once, carried on by a monotonic clock."""
        ...

    def upload(self, key: str, path: Path) -> FileDigest:
        """Streams a file of any size to a key that is used once. Unconditional."""
        ...

    def download(self, key: str, path: Path) -> FileDigest:
        """Streams an object of any size into a new file `path`. Raises `NotFound`."""
        ...

    def close(self) -> None:
        """Gives back connections. The store is not used afterwards."""
        ...


class Billed(NamedTuple):
    """What was asked of a bucket, by what is billed; all of it is 0 for a directory."""

    dear: int
    """Writes and listings."""
    cheap: int
    """Reads. Deletes are in neither: they are free."""
    received_bytes: int
    """Of the bodies of answers."""
    sent_bytes: int
    """Of the bodies of requests."""

    def since(self, earlier: Billed) -> Billed:
        return Billed(*(now - then for now, then in zip(self, earlier, strict=True)))


class Meter(Protocol):
    """Counts what one process asks of its store."""

    def reading(self) -> Billed:
        """Since some moment, each time at least as much."""
        ...


Fetch = Callable[[str, Path, int], FileDigest]
"""Writes an object that should have so many bytes at most to a new file; the caller checks the
digest. Raises as `Store.download`."""


class OpenStore(Protocol):
    """Opens another store than the one in hand, by its address."""

    def __call__(self, address: str, *, to_write: bool) -> Store:
        """The caller closes it. Raises `Misconfigured`, and what opening a store raises."""
        ...


def walk(
    store: Store, prefix: str, *, start_after: str = "", page_size: int = LIST_LIMIT_MAX
) -> Iterator[Entry]:
    """All entries of a folder, a page at a time; the caller bounds how many it takes."""
    while True:
        page = store.list(prefix, start_after=start_after, limit=page_size)
        yield from page
        if len(page) < page_size:
            return
        start_after = page[-1].key
