"""A store that counts the requests made of it, so that a test can hold a move to its budget."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from stado.ports import Tasks
from stado.storage.port import LIST_LIMIT_MAX, Blob, Entry, FileDigest, Store, Version


class Operation(StrEnum):
    """What can be asked of a store over the wire. `create_many` counts as its creates."""

    GET = "get"
    GET_RANGE = "get_range"
    HEAD = "head"
    CREATE = "create"
    CREATE_MANY = "create_many"
    REPLACE = "replace"
    PUT = "put"
    DELETE = "delete"
    LIST = "list"
    UPLOAD = "upload"
    DOWNLOAD = "download"


WRITES = frozenset(
    {
        Operation.CREATE,
        Operation.CREATE_MANY,
        Operation.REPLACE,
        Operation.PUT,
        Operation.DELETE,
        Operation.UPLOAD,
    }
)


def folder_kind(key: str) -> str:
    """The folder of a key without the id in it: `status/<id>/cells/1.claim.json` is of
    `status/*/cells`, `queue/<id>.json` of `queue`, `stado.json` of the empty one."""
    folders = key.split("/")[:-1]
    if len(folders) > 1 and folders[0] != "index":
        folders[1] = "*"
    return "/".join(folders[:3])


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests by operation and folder kind."""

    counts: Counter[tuple[Operation, str]] = field(default_factory=Counter)
    bytes_read: int = 0
    """Of objects that were read, wholly or in part; downloads and listings are not in it."""

    def of(self, *operations: Operation, kind: str | None = None) -> int:
        """How many were of these operations (none given: of any), under this folder kind."""
        return sum(
            count
            for (operation, folder), count in self.counts.items()
            if (not operations or operation in operations) and (kind is None or folder == kind)
        )

    @property
    def writes(self) -> int:
        """Without deletes, which stores count and charge apart."""
        return self.of(*(WRITES - {Operation.DELETE}))

    @property
    def reads(self) -> int:
        return self.of(Operation.GET, Operation.GET_RANGE, Operation.HEAD, Operation.DOWNLOAD)

    @property
    def lists(self) -> int:
        return self.of(Operation.LIST)

    @property
    def deletes(self) -> int:
        return self.of(Operation.DELETE)


class CountingStore:
    """Counts each request before it is made, whether or not it succeeds."""

    def __init__(
        self, inner: Store, tasks: Tasks, kind_of: Callable[[str], str] = folder_kind
    ) -> None:
        self._inner = inner
        self._lock = tasks.lock()
        self._kind_of = kind_of
        self._counts: Counter[tuple[Operation, str]] = Counter()
        self._bytes_read = 0

    def snapshot(self) -> Requests:
        """All requests so far."""
        with self._lock:
            return Requests(Counter(self._counts), self._bytes_read)

    def since(self, earlier: Requests) -> Requests:
        """The requests made after a snapshot."""
        now = self.snapshot()
        return Requests(now.counts - earlier.counts, now.bytes_read - earlier.bytes_read)

    def _count(self, operation: Operation, key: str) -> None:
        with self._lock:
            self._counts[operation, self._kind_of(key)] += 1

    def _noting_size(self, data: bytes) -> bytes:
        with self._lock:
            self._bytes_read += len(data)
        return data

    @property
    def address(self) -> str:
        return self._inner.address

    def get(self, key: str, *, unless: Version | None = None) -> Blob:
        self._count(Operation.GET, key)
        blob = self._inner.get(key, unless=unless)
        self._noting_size(blob.data)
        return blob

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self._count(Operation.GET_RANGE, key)
        return self._noting_size(self._inner.get_range(key, start, length))

    def head(self, key: str) -> Entry:
        self._count(Operation.HEAD, key)
        return self._inner.head(key)

    def create(self, key: str, data: bytes) -> Version:
        self._count(Operation.CREATE, key)
        return self._inner.create(key, data)

    def create_many(self, items: Sequence[tuple[str, bytes]]) -> list[Version | None]:
        for key, _ in items:
            self._count(Operation.CREATE, key)
        return self._inner.create_many(items)

    def replace(self, key: str, data: bytes, version: Version) -> Version:
        self._count(Operation.REPLACE, key)
        return self._inner.replace(key, data, version)

    def put(self, key: str, data: bytes) -> Version:
        self._count(Operation.PUT, key)
        return self._inner.put(key, data)

    def delete(self, key: str, version: Version | None) -> None:
        self._count(Operation.DELETE, key)
        self._inner.delete(key, version)

    def list(
        self, prefix: str, *, start_after: str = "", limit: int = LIST_LIMIT_MAX
    ) -> builtins.list[Entry]:
        self._count(Operation.LIST, prefix)
        return self._inner.list(prefix, start_after=start_after, limit=limit)

    def now(self) -> datetime:
        return self._inner.now()

    def upload(self, key: str, path: Path) -> FileDigest:
        self._count(Operation.UPLOAD, key)
        return self._inner.upload(key, path)

    def download(self, key: str, path: Path) -> FileDigest:
        self._count(Operation.DOWNLOAD, key)
        return self._inner.download(key, path)

    def close(self) -> None:
        self._inner.close()
