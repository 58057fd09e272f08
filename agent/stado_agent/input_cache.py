"""What jobs of this host have fetched before, by its SHA-256, within a limit.

A job gets a copy, never a link: it runs as the same user, and could write through one. What is
copied is read and its digest taken on the way, so that a damaged entry is found out before a job
sees it. Several supervisors use the folder at once, and any of them can be killed at any time: an
entry appears whole, under a name that is its digest; locks are the kernel's, and end with their
holder.

Layout: `objects/<sha256>`; `partial/<token>`, one that is being fetched; `locks/<sha256>`, held by
who fetches it; `reserved/<token>.<bytes>`, held by who has been given room; `lock`, held while
room is counted. A cache that does not work costs time, and no job.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from stado.errors import Conflict
from stado.ports import Clock, Entropy, Hardware
from stado.storage.port import FileDigest
from stado_agent.downloads import Heed
from stado_agent.file_lock import take_lock, try_to_lock

log = logging.getLogger(__name__)

_CHUNK_BYTES = 1024 * 1024
_POLL_SECONDS = 0.2
_STANDSTILL_SECONDS = 60.0
"""Somebody else's download that grows no more is not waited for any longer."""

_LOCK_ATTEMPTS = 100
_LIMIT_BYTES_DEFAULT = 20 * 1024**3
_LIMIT_SHARE = 0.1
"""Of the disk, where that is less."""

Download = Callable[[Path], FileDigest]
"""Writes a new file, and says what it wrote. Raises errors of the store."""


def cache_bytes(stated: int | None, hardware: Hardware, folder: Path) -> int:
    """The limit of a host's cache, in bytes."""
    if stated is not None:
        return stated
    try:
        total = hardware.disk_total_bytes(folder)
    except OSError:
        return 0
    return min(_LIMIT_BYTES_DEFAULT, round(total * _LIMIT_SHARE))


@dataclass(frozen=True, slots=True)
class Content:
    """A file by what is in it. `key` is where it is from, for errors."""

    key: str
    sha256: str
    size: int | None = None
    """Bytes; None where nobody has said."""

    def check(self, digest: FileDigest) -> None:
        """Raises `Conflict`."""
        if digest.sha256 != self.sha256 or self.size not in (None, digest.size):
            expected = "" if self.size is None else f"{self.size} bytes, "
            raise Conflict(
                self.key,
                f"it has {digest.size} bytes, SHA-256 {digest.sha256}; expected were "
                f"{expected}{self.sha256}",
            )


class InputCache:
    """One folder, shared by the supervisors of a host. `limit_bytes` 0: nothing is kept."""

    def __init__(self, folder: Path, *, limit_bytes: int, clock: Clock, entropy: Entropy) -> None:
        self._objects = folder / "objects"
        self._partial = folder / "partial"
        self._locks = folder / "locks"
        self._reserved = folder / "reserved"
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._entropy = entropy

    @contextmanager
    def room_for(self, contents: list[Content]) -> Iterator[bool]:
        """Whether what is missing of these may be kept, once the least recently used have made
        room for it. Held for as long as the caller is within."""
        reservation = None
        try:
            reservation = self._reserve(self._missing_bytes(contents))
        except OSError as error:
            self._tell(error)
        try:
            yield reservation is not None
        finally:
            if reservation is not None:
                reservation.release()

    def deliver(
        self,
        content: Content,
        target: Path,
        download: Download,
        *,
        keep: bool,
        heed: Heed,
    ) -> None:
        """Makes `target` a file with this content. `keep`: there is room for it here (`room_for`).

        Raises `Conflict` when the content is not what it should be, what `download` raises,
        `OSError` of the target, and what `heed` raises. Half a file has another name."""
        partial = target.with_name(f".stado-{self._entropy.token()}")
        try:
            if not self._copy_kept(content, partial, heed) and not (
                keep
                and self._fill(content, download, heed)
                and self._copy_kept(content, partial, heed)
            ):
                self._fetch_uncached(content, partial, download)
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)

    def clear(self) -> bool:
        """Gives up all that nobody uses just now, for a disk that is full; whether that was
        anything."""
        if not self._objects.exists():
            return False
        try:
            with self._counting() as ours:
                return ours and self._evict(self._entries(), at_least=None) > 0
        except OSError:
            return False

    # --- entries ------------------------------------------------------------------------

    def _copy_kept(self, content: Content, target: Path, heed: Heed) -> bool:
        """False when there is no such entry, or a damaged one, which is removed."""
        entry = self._objects / content.sha256
        try:
            descriptor = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if content.size in (None, os.fstat(descriptor).st_size):
                with suppress(OSError):
                    os.utime(entry)
                digest = _copy(descriptor, target, heed)
                if digest is not None and digest.sha256 == content.sha256:
                    return True
        except BlockingIOError:  # it is being removed
            return False
        finally:
            os.close(descriptor)
        log.warning("event=cached_input_damaged sha256=%s", content.sha256)
        with suppress(OSError):
            entry.unlink()
        return False

    def _fetch_uncached(self, content: Content, target: Path, download: Download) -> None:
        """What the cache has is given up where there is no room for this."""
        try:
            digest = download(target)
        except OSError as error:
            if error.errno != errno.ENOSPC or not self.clear():
                raise
            digest = download(target)
        content.check(digest)

    def _fill(self, content: Content, download: Download, heed: Heed) -> bool:
        """Whether the entry is there now: fetched by us, or by who was at it already. Errors of
        this folder are told and cost nothing else."""
        partial = self._partial / f"{self._entropy.token()}.{content.sha256}"
        try:
            with self._alone_with(content.sha256, heed) as ours:
                if not ours or (self._objects / content.sha256).exists():
                    return ours
                try:
                    content.check(download(partial))
                    os.replace(partial, self._objects / content.sha256)
                finally:
                    partial.unlink(missing_ok=True)
                return True
        except OSError as error:
            self._tell(error)
            return False

    @contextmanager
    def _alone_with(self, sha256: str, heed: Heed) -> Iterator[bool]:
        """One at a time fetches an object; False when the one that does stands still."""
        path = self._locks / sha256
        lock = self._wait_for(path, sha256, heed)
        if lock is None:
            yield False
            return
        try:
            yield True
        finally:
            path.unlink(missing_ok=True)
            os.close(lock)

    def _wait_for(self, path: Path, sha256: str, heed: Heed) -> int | None:
        seen, since = self._fetched_bytes(sha256), self._clock.monotonic()
        while True:
            descriptor = try_to_lock(path)
            if descriptor is not None:
                return descriptor
            heed()
            self._clock.sleep(_POLL_SECONDS)
            before, seen = seen, self._fetched_bytes(sha256)
            if seen != before:
                since = self._clock.monotonic()
            elif self._clock.monotonic() - since > _STANDSTILL_SECONDS:
                return None

    def _fetched_bytes(self, sha256: str) -> int:
        """Of all that is being fetched with this digest; what changes lives."""
        return sum(_size(path) for path in self._partial.glob(f"*.{sha256}"))

    # --- room ---------------------------------------------------------------------------

    def _missing_bytes(self, contents: list[Content]) -> int | None:
        """None where that cannot be told."""
        missing = [one for one in contents if not (self._objects / one.sha256).exists()]
        sizes = [one.size for one in missing]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    def _reserve(self, wanted: int | None) -> _Reservation | None:
        """None when there is no such room."""
        if not self._limit_bytes or wanted is None or wanted > self._limit_bytes:
            return None
        for folder in (self._objects, self._partial, self._locks, self._reserved):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._counting() as ours:
            if not ours:
                return None
            self._remove_dead()
            entries = self._entries()
            used = sum(entry.size for entry in entries) + self._reserved_bytes()
            excess = used + wanted - self._limit_bytes
            if excess > 0 and self._evict(entries, at_least=excess) < excess:
                return None
            return _Reservation.make(self._reserved / f"{self._entropy.token()}.{wanted}")

    @contextmanager
    def _counting(self) -> Iterator[bool]:
        """One at a time, for as long as it takes to list the folder."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield self._is_locked_soon(descriptor)
        finally:
            os.close(descriptor)

    def _is_locked_soon(self, descriptor: int) -> bool:
        for _ in range(_LOCK_ATTEMPTS):
            if take_lock(descriptor):
                return True
            self._clock.sleep(_POLL_SECONDS)
        return False

    def _entries(self) -> list[_Entry]:
        """The least recently used first."""
        try:
            with os.scandir(self._objects) as found:
                entries = [_Entry(Path(item.path), *_used(item)) for item in found]
        except FileNotFoundError:
            return []
        return sorted(entries, key=lambda entry: entry.used_ns)

    def _evict(self, entries: list[_Entry], *, at_least: int | None) -> int:
        """The bytes that were given up: enough, or all that is not in use."""
        given_up = 0
        for entry in entries:
            if at_least is not None and given_up >= at_least:
                break
            if _remove_unused(entry.path):
                given_up += entry.size
        return given_up

    def _reserved_bytes(self) -> int:
        sizes = (path.name.rpartition(".")[2] for path in self._reserved.iterdir())
        return sum(int(size) for size in sizes if size.isdecimal())

    def _remove_dead(self) -> None:
        """What killed supervisors left: nobody holds it. Who begins to fetch takes its lock first,
        so that the locks are looked at last."""
        partials = list(self._partial.iterdir())
        for path in self._reserved.iterdir():
            _remove_unused(path)
        fetched = {path.name for path in self._locks.iterdir() if not _remove_unused(path)}
        for path in partials:
            if path.name.rpartition(".")[2] not in fetched:
                path.unlink(missing_ok=True)

    def _tell(self, error: OSError) -> None:
        log.warning("event=input_cache_unusable error=%r", str(error))
        if error.errno == errno.ENOSPC:
            self.clear()


@dataclass(frozen=True, slots=True)
class _Entry:
    path: Path
    size: int
    used_ns: int


@dataclass(frozen=True, slots=True)
class _Reservation:
    """Room that was given to us, until we give it back or die."""

    path: Path
    descriptor: int

    @classmethod
    def make(cls, path: Path) -> _Reservation:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return cls(path, descriptor)

    def release(self) -> None:
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
        os.close(self.descriptor)


def _copy(source: int, target: Path, heed: Heed) -> FileDigest | None:
    """What was copied; None when the source could not be read. Raises `OSError` of the target."""
    digest = hashlib.sha256()
    size = 0
    with target.open("wb") as output:
        while True:
            heed()
            try:
                chunk = os.read(source, _CHUNK_BYTES)
            except OSError:
                return None
            if not chunk:
                return FileDigest(size, digest.hexdigest())
            digest.update(chunk)
            output.write(chunk)
            size += len(chunk)


def _remove_unused(path: Path) -> bool:
    """Whether it is gone: nobody held a lock on it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        if not take_lock(descriptor):
            return False
        path.unlink(missing_ok=True)
        return True
    finally:
        os.close(descriptor)


def _used(item: os.DirEntry[str]) -> tuple[int, int]:
    """Bytes, and when it was last used; nothing of one that is gone by now."""
    try:
        status = item.stat(follow_symlinks=False)
    except FileNotFoundError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
