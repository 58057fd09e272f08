"""A store in a directory, for one host or a network file system that several hosts mount.

Every object is a file that appears whole: it is written under `.tmp/`, flushed, then linked or
renamed to its key. An object is never opened for writing under its key, for a reader, or a crash,
would meet half of it.

Writes outlive a power cut, deletes may not: a deleted object can be back afterwards, which looks
like a clean-up that did not happen.
"""

from __future__ import annotations

import builtins
import errno
import heapq
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from stado.errors import (
    Ambiguous,
    Conflict,
    Exists,
    Misconfigured,
    NotFound,
    NotModified,
    StoreError,
    Unavailable,
)
from stado.ports import Clock, Entropy
from stado.storage.file_errors import store_errors
from stado.storage.file_locks import FOLDER as LOCKS_FOLDER
from stado.storage.file_locks import FileLocks
from stado.storage.file_sync import sync_path, sync_paths
from stado.storage.file_version import (
    modified_at,
    open_file,
    read_file,
    read_part,
    state_of,
    version_of_new,
)
from stado.storage.keys import check_key, check_prefix, check_range, is_listed
from stado.storage.port import LIST_LIMIT_MAX, Blob, Entry, FileDigest, Version
from stado.storage.transfer import CHUNK_BYTES, chunks_of, pour, pour_into_file

TEMPORARY_FOLDER = ".tmp"
STALE_AFTER = timedelta(hours=1)
_OWN_NAMES = (TEMPORARY_FOLDER, LOCKS_FOLDER, "lost+found")
_PLACE_ATTEMPTS = 5
"""How often a folder may be removed under a writer's hands before it gives up."""

_FIXED_DEPTH = 2
"""Object folders of so many components or fewer stay when they are empty (`queue`,
`index/ready`); deeper ones, with their parents, belong to a job and go with it."""

_KNOWN_FOLDERS_MAX = 4096


class FileStore:
    """`root` must exist: a typing error in a path shall not make a second, empty deployment.

    `durable=False` leaves flushing to the kernel, for tests."""

    def __init__(self, root: Path, clock: Clock, entropy: Entropy, *, durable: bool = True) -> None:
        self._root = root.absolute()
        self._clock = clock
        self._entropy = entropy
        self._durable = durable
        self._found = False
        self._prepared = False
        self._locks = FileLocks(self._root, clock, entropy)
        self._temporary = self._root / TEMPORARY_FOLDER
        self._known_folders: set[Path] = set()
        self._clock_read: tuple[datetime, float] | None = None
        with store_errors(str(self._root), writing=False, folder=self._root):
            self._check_root()
        self._found = True
        with suppress(OSError, StoreError):  # who may only read goes on without
            self._make_own_folders()
            self._sweep()

    @classmethod
    def make(cls, root: Path, clock: Clock, entropy: Entropy, *, durable: bool = True) -> FileStore:
        """Makes the directory if need be. Only `stado init` may do that."""
        with store_errors(str(root), writing=False, folder=root):
            try:
                root.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                raise Misconfigured(
                    str(root), "there is a file of this name: name a directory"
                ) from None
            if durable:
                sync_path(root.absolute().parent)
        store = cls(root, clock, entropy, durable=durable)
        with suppress(OSError):
            store._locks.make_all()
        return store

    @staticmethod
    def names_in(root: Path) -> builtins.list[str]:
        """What is there, whoever put it there, but for what an adapter or a file system keeps for
        itself; folders end with `/`. Makes nothing."""
        with store_errors(str(root), writing=False, folder=root):
            try:
                with os.scandir(root) as found:
                    return sorted(
                        item.name + ("/" if item.is_dir() else "")
                        for item in found
                        if item.name not in _OWN_NAMES
                    )
            except (FileNotFoundError, NotADirectoryError):
                return []

    @property
    def address(self) -> str:
        return str(self._root)

    def get(self, key: str, *, unless: Version | None = None) -> Blob:
        with self._reading(key) as path:
            data, version = read_file(path)
        if version == unless:
            raise NotModified(key)
        return Blob(data, version)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(key, start, length)
        with self._reading(key) as path:
            return read_part(path, start, length)

    def head(self, key: str) -> Entry:
        with self._reading(key) as path:
            state = state_of(path)
        return Entry(key, state.version, state.size, state.modified_at)

    def create(self, key: str, data: bytes) -> Version:
        """Needs no lock: linking fails on a taken key, and whoever replaces or deletes an object
        has, under the lock, seen one."""
        with self._writing(key) as path, self._temporary_file([data]) as source:
            version = version_of_new(source, data)
            if not self._link(source, path):
                raise Exists(key)
            self._sync_folders(key, [path.parent])
        return version

    def create_many(self, items: Sequence[tuple[str, bytes]]) -> list[Version | None]:
        for key, _ in items:
            check_key(key)
        with self._errors(self.address, writing=True):
            self._check_root()
            self._make_own_folders()
            sources = [self._temporary / self._entropy.token() for _ in items]
            try:
                return self._link_all(items, sources)
            finally:
                for source in sources:
                    _remove(source)

    def replace(self, key: str, data: bytes, version: Version) -> Version:
        with self._writing(key) as path, self._temporary_file([data]) as source:
            replaced = version_of_new(source, data)
            with self._locks.holding(key):
                if _version_at(path) != version:
                    raise Conflict(key)
                os.replace(source, path)
            self._sync_folders(key, [path.parent])
        return replaced

    def put(self, key: str, data: bytes) -> Version:
        with self._writing(key) as path, self._temporary_file([data]) as source:
            version = version_of_new(source, data)
            self._put(key, source, path)
        return version

    def delete(self, key: str, version: Version | None) -> None:
        with self._writing(key) as path, self._locks.holding(key):
            found = _version_at(path) if version is not None else None
            if version is not None and found is not None and found != version:
                raise Conflict(key)
            path.unlink(missing_ok=True)
            self._remove_empty(path.parent)

    def list(
        self, prefix: str, *, start_after: str = "", limit: int = LIST_LIMIT_MAX
    ) -> list[Entry]:
        check_prefix(prefix, limit, LIST_LIMIT_MAX)
        folder = prefix[: prefix.rfind("/") + 1]
        with self._errors(prefix, writing=False):
            keys = self._keys(folder)
            page: list[Entry] = []
            after = start_after
            while len(page) < limit:
                wanted = limit - len(page)
                found = heapq.nsmallest(
                    wanted, (key for key in keys if key > after and key.startswith(prefix))
                )
                page.extend(self._entries(found))
                if len(found) < wanted:
                    break
                after = found[-1]  # objects that vanished meanwhile left room on the page
            return page

    def now(self) -> datetime:
        if self._clock_read is None:
            with self._errors(self.address, writing=False):
                self._check_root()
                self._clock_read = self._read_clock()
        at, monotonic = self._clock_read
        return at + timedelta(seconds=self._clock.monotonic() - monotonic)

    def upload(self, key: str, path: Path) -> FileDigest:
        check_key(key)
        source = self._temporary / self._entropy.token()
        try:
            digest = self._copy_in(key, path, source)
            with self._writing(key) as target:
                self._put(key, source, target)
            return digest
        finally:
            _remove(source)

    def download(self, key: str, path: Path) -> FileDigest:
        with self._reading(key) as source:
            descriptor = open_file(source)
        with os.fdopen(descriptor, "rb") as content:
            return pour_into_file(self._chunks(key, content), path)

    def close(self) -> None:
        """Nothing is kept open between operations."""

    # Reading

    @contextmanager
    def _reading(self, key: str) -> Iterator[Path]:
        check_key(key)
        with self._errors(key, writing=False):
            try:
                yield self._root / key
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                self._check_root()
                raise NotFound(key) from None

    def _chunks(self, key: str, content: BinaryIO) -> Iterator[bytes]:
        """Errors of the store, not of the user's file."""
        while True:
            with self._errors(key, writing=False):
                chunk = content.read(CHUNK_BYTES)
            if not chunk:
                return
            yield chunk

    def _keys(self, folder: str) -> builtins.list[str]:
        try:
            with os.scandir(self._root / folder) as found:
                return [
                    folder + item.name
                    for item in found
                    if is_listed(folder + item.name, folder) and item.is_file(follow_symlinks=False)
                ]
        except (FileNotFoundError, NotADirectoryError):
            self._check_root()
            return []

    def _entries(self, keys: Iterable[str]) -> Iterator[Entry]:
        for key in keys:
            try:
                state = state_of(self._root / key)
            except FileNotFoundError:
                self._check_root()  # deleted since it was listed, or is the whole store away?
                continue
            yield Entry(key, state.version, state.size, state.modified_at)

    # Writing

    @contextmanager
    def _writing(self, key: str) -> Iterator[Path]:
        check_key(key)
        with self._errors(key, writing=True):
            self._check_root()
            self._make_own_folders()
            yield self._root / key

    @contextmanager
    def _temporary_file(self, chunks: Iterable[bytes]) -> Iterator[Path]:
        """A flushed file with this content, gone afterwards unless it was moved away."""
        path = self._temporary / self._entropy.token()
        try:
            self._write_file(path, chunks, durable=self._durable)
            yield path
        finally:
            _remove(path)

    def _write_file(self, path: Path, chunks: Iterable[bytes], *, durable: bool = False) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            for chunk in chunks:
                _write_all(descriptor, chunk)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _copy_in(self, key: str, path: Path, target: Path) -> FileDigest:
        """Errors of the user's file stay `OSError`; those of the store become its own."""
        with self._errors(key, writing=True):
            self._check_root()
            self._make_own_folders()
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

        def write(chunk: bytes) -> None:
            with self._errors(key, writing=True):
                _write_all(descriptor, chunk)

        try:
            digest = pour(chunks_of(path), write)
            with self._errors(key, writing=True):
                if self._durable:
                    os.fsync(descriptor)
            return digest
        finally:
            os.close(descriptor)

    def _link_all(
        self, items: Sequence[tuple[str, bytes]], sources: Sequence[Path]
    ) -> builtins.list[Version | None]:
        """All data is flushed before the first link, all folders after the last."""
        for (_, data), source in zip(items, sources, strict=True):
            self._write_file(source, [data])
        if self._durable and sources:
            sync_paths(sources)
        versions: list[Version | None] = []
        for (key, data), source in zip(items, sources, strict=True):
            version = version_of_new(source, data)
            versions.append(version if self._link(source, self._root / key) else None)
        self._sync_folders(self.address, sorted({(self._root / key).parent for key, _ in items}))
        return versions

    def _link(self, source: Path, path: Path) -> bool:
        """Whether the key was free. The one step that decides a create."""
        for _ in range(_PLACE_ATTEMPTS):
            try:
                self._make_folder(path.parent)
                os.link(source, path)
                return True
            except OSError as error:
                # On NFS the answer can be lost: then a second name of our file is the witness.
                if source.stat().st_nlink == 2:
                    return True
                if isinstance(error, FileExistsError):
                    return False
                if not isinstance(error, FileNotFoundError):
                    raise
                self._forget_folder(path.parent)
        raise Unavailable(str(path.parent), "the folder is removed again and again")

    def _put(self, key: str, source: Path, path: Path) -> None:
        for _ in range(_PLACE_ATTEMPTS):
            try:
                self._make_folder(path.parent)
                with self._locks.holding(key):
                    os.replace(source, path)
            except FileNotFoundError:
                source.stat()  # ours is there, so it is the folder that was removed meanwhile
                self._forget_folder(path.parent)
                continue
            self._sync_folders(key, [path.parent])
            return
        raise Unavailable(key, "its folder is removed again and again")

    # Folders

    def _errors(self, key: str, *, writing: bool) -> AbstractContextManager[None]:
        return store_errors(key, writing=writing, folder=self._root)

    def _check_root(self) -> None:
        """Raises `OSError` where that cannot be told: a disk in trouble is no missing one. Nor is
        an empty folder where a store was: a file system that is not mounted holds nothing, and
        says nothing of what it would hold."""
        try:
            is_there = stat.S_ISDIR(os.stat(self._root).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            is_there = False
        if not is_there:
            no_store = f"there is no store at {self._root}"
            if self._found:
                raise Misconfigured("", f"{no_store} any more: is its file system mounted?")
            raise Misconfigured("", f"{no_store}: check the path or run `stado init`")
        if self._prepared and not (self._root / LOCKS_FOLDER).is_dir():
            raise Unavailable(
                str(self._root), "what this directory held is gone: is its file system mounted?"
            )

    def _make_own_folders(self) -> None:
        if self._prepared:
            return
        (self._root / LOCKS_FOLDER).mkdir(exist_ok=True)
        self._temporary.mkdir(exist_ok=True)
        self._prepared = True

    def _sweep(self) -> None:
        """Removes what killed writers left."""
        for path in self._temporary.iterdir():
            with suppress(FileNotFoundError):
                if self.now() - modified_at(path.stat()) > STALE_AFTER:
                    path.unlink()

    def _read_clock(self) -> tuple[datetime, float]:
        """The file server's clock, which for a network file system is not this host's. Who may
        only read decides nothing by it, and gets this host's. Makes no file, for the disk may be
        full."""
        try:
            self._make_own_folders()
            os.utime(self._temporary)
            read = modified_at(self._temporary.stat())
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            read = self._clock.now()
        return read, self._clock.monotonic()

    def _make_folder(self, folder: Path) -> None:
        """Makes a folder and its parents; `_sync_folders` flushes them, when the object is in
        its place: then one commit of the file system's journal serves for all."""
        if folder in self._known_folders:
            return
        try:
            self._make_below_root(folder)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None

    def _make_below_root(self, folder: Path) -> None:
        """Never the root: one that was moved away a moment ago must not be found empty in its
        place, by us or by anybody."""
        try:
            folder.mkdir(exist_ok=True)
        except FileNotFoundError:
            if folder.parent == self._root:
                raise
            self._make_below_root(folder.parent)
            folder.mkdir(exist_ok=True)

    def _forget_folder(self, folder: Path) -> None:
        self._known_folders.difference_update([folder, *folder.parents])

    def _depth(self, folder: Path) -> int:
        return len(folder.parts) - len(self._root.parts)

    def _sync_folders(self, key: str, folders: Sequence[Path]) -> None:
        """Flushes folders with new names in them, and the names of those folders in theirs, also
        where another process made them: it may not have come to that."""
        if not self._durable or not folders:
            return
        chain = {folder for leaf in folders for folder in self._unknown_chain(leaf)}
        try:
            sync_paths(sorted(chain, key=self._depth))
        except FileNotFoundError:
            # The object was deleted, and its empty folder with it: nothing left to keep.
            self._check_root()
            return
        except OSError as error:
            why = error.strerror or str(error)
            raise Ambiguous(
                key, f"{why}: it is written, but may not outlive a power cut"
            ) from error
        if len(self._known_folders) >= _KNOWN_FOLDERS_MAX:
            self._known_folders.clear()
        self._known_folders.update(
            folder for folder in chain if 0 < self._depth(folder) <= _FIXED_DEPTH
        )

    def _unknown_chain(self, folder: Path) -> Iterator[Path]:
        """A folder, and its parents up to the first whose own name is known to be flushed."""
        yield folder
        while folder != self._root and folder not in self._known_folders:
            folder = folder.parent
            yield folder

    def _remove_empty(self, folder: Path) -> None:
        """A job's own folders would otherwise pile up for ever."""
        if self._depth(folder) <= _FIXED_DEPTH:
            return
        with suppress(OSError):
            while self._depth(folder) >= _FIXED_DEPTH:
                folder.rmdir()
                folder = folder.parent


def _version_at(path: Path) -> Version | None:
    try:
        return state_of(path).version
    except FileNotFoundError:
        return None


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _remove(path: Path) -> None:
    """Of a temporary file. It is swept some day: nothing else that was done fails for it."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
