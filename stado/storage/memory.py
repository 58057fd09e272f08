"""A store in the memory of one process: for tests and simulations, and to state the semantics.

Nothing is shared with other processes, and nothing survives.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from stado.errors import Conflict, Exists, NotFound, NotModified
from stado.ports import Clock, Tasks
from stado.storage.keys import check_key, check_prefix, check_range
from stado.storage.port import LIST_LIMIT_MAX, Blob, Entry, FileDigest, Version
from stado.storage.transfer import chunks_of, pour, pour_into_file


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    version: Version
    modified_at: datetime


@dataclass(slots=True)
class _Folder:
    """Objects by key, and the keys in order, so that a page costs what it shows."""

    objects: dict[str, _Object] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)


def _folder_of(key: str) -> str:
    return key.rpartition("/")[0]


Watcher = Callable[[str, bytes | None, bytes | None], None]
"""Hears of a change: the key, what was there, and what is there now; None: nothing."""


class MemoryStore:
    """`clock` is the store's clock: it stamps what is written and answers `now`.

    `versions_by_content`: equal bytes have equal versions, as on S3; else each write makes a new
    one. `watcher` is called as soon as a change is made, by who makes it and in its lock."""

    def __init__(
        self,
        clock: Clock,
        tasks: Tasks,
        *,
        versions_by_content: bool = False,
        watcher: Watcher | None = None,
    ) -> None:
        self._clock = clock
        self._tasks = tasks
        self._lock = tasks.lock()
        self._folders: dict[str, _Folder] = {}
        self._writes = 0
        self._versions_by_content = versions_by_content
        self._watcher = watcher

    def copy(self) -> MemoryStore:
        """Another store, with what is in this one now."""
        copy = MemoryStore(self._clock, self._tasks, versions_by_content=self._versions_by_content)
        copy._writes = self._writes
        copy._folders = {
            name: _Folder(dict(folder.objects), list(folder.keys))
            for name, folder in self._folders.items()
        }
        return copy

    @property
    def address(self) -> str:
        return "memory:"

    def get(self, key: str, *, unless: Version | None = None) -> Blob:
        check_key(key)
        with self._lock:
            found = self._get(key)
        if found.version == unless:
            raise NotModified(key)
        return Blob(found.data, found.version)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(key, start, length)
        return self.get(key).data[start : start + length]

    def head(self, key: str) -> Entry:
        check_key(key)
        with self._lock:
            return _entry(key, self._get(key))

    def create(self, key: str, data: bytes) -> Version:
        check_key(key)
        with self._lock:
            if self._find(key) is not None:
                raise Exists(key)
            return self._write(key, data)

    def create_many(self, items: Sequence[tuple[str, bytes]]) -> list[Version | None]:
        for key, _ in items:
            check_key(key)
        with self._lock:
            return [
                self._write(key, data) if self._find(key) is None else None for key, data in items
            ]

    def replace(self, key: str, data: bytes, version: Version) -> Version:
        check_key(key)
        with self._lock:
            found = self._find(key)
            if found is None or found.version != version:
                raise Conflict(key)
            return self._write(key, data)

    def put(self, key: str, data: bytes) -> Version:
        check_key(key)
        with self._lock:
            return self._write(key, data)

    def delete(self, key: str, version: Version | None) -> None:
        check_key(key)
        with self._lock:
            found = self._find(key)
            if found is None:
                return
            if version is not None and found.version != version:
                raise Conflict(key)
            self._remove(key)

    def list(
        self, prefix: str, *, start_after: str = "", limit: int = LIST_LIMIT_MAX
    ) -> list[Entry]:
        check_prefix(prefix, limit, LIST_LIMIT_MAX)
        with self._lock:
            folder = self._folders.get(_folder_of(prefix))
            if folder is None:
                return []
            keys = folder.keys
            begin = max(bisect.bisect_left(keys, prefix), bisect.bisect_right(keys, start_after))
            page = keys[begin : begin + limit]
            return [_entry(key, folder.objects[key]) for key in page if key.startswith(prefix)]

    def now(self) -> datetime:
        return self._clock.now()

    def upload(self, key: str, path: Path) -> FileDigest:
        content = bytearray()
        digest = pour(chunks_of(path), content.extend)
        self.put(key, bytes(content))
        return digest

    def download(self, key: str, path: Path) -> FileDigest:
        return pour_into_file([self.get(key).data], path)

    def close(self) -> None:
        """Nothing to give back."""

    def _find(self, key: str) -> _Object | None:
        folder = self._folders.get(_folder_of(key))
        return folder.objects.get(key) if folder is not None else None

    def _get(self, key: str) -> _Object:
        found = self._find(key)
        if found is None:
            raise NotFound(key)
        return found

    def _write(self, key: str, data: bytes) -> Version:
        self._writes += 1
        data = bytes(data)
        by_content = self._versions_by_content
        version = hashlib.sha256(data).hexdigest() if by_content else f"v{self._writes}"
        folder = self._folders.setdefault(_folder_of(key), _Folder())
        before = folder.objects.get(key)
        if before is None:
            bisect.insort(folder.keys, key)
        folder.objects[key] = _Object(data, version, self._clock.now())
        self._tell(key, before, data)
        return version

    def _remove(self, key: str) -> None:
        folder = self._folders[_folder_of(key)]
        before = folder.objects.pop(key)
        del folder.keys[bisect.bisect_left(folder.keys, key)]
        if not folder.keys:
            del self._folders[_folder_of(key)]
        self._tell(key, before, None)

    def _tell(self, key: str, before: _Object | None, data: bytes | None) -> None:
        if self._watcher is not None:
            self._watcher(key, before.data if before is not None else None, data)


def _entry(key: str, found: _Object) -> Entry:
    return Entry(key, found.version, len(found.data), found.modified_at)
