"""The version of a file: a digest, so that every reader computes the same one."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from stado.storage.port import Version

DIGEST_BYTES = 16
WHOLE_BYTES_MAX = 1 << 20
"""Larger files are transfers, written once: a listing should not read gigabytes for them."""

_HEAD_BYTES = 1 << 16
_READING = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NO_FILE = {errno.ELOOP, errno.ENXIO}
"""What opening a link, and a socket, fails with."""

_TIME_MAX = 253_402_300_799
"""The last second of year 9999."""


def version_of(data: bytes) -> Version:
    """Of an object of at most `WHOLE_BYTES_MAX`."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


EMPTY_VERSION = version_of(b"")
"""Known beforehand, so that listing the index reads no file."""


def version_of_new(path: Path, data: bytes) -> Version:
    """Of a file that has just been written with `data`. Raises `OSError`."""
    return version_of(data) if len(data) <= WHOLE_BYTES_MAX else state_of(path).version


@dataclass(frozen=True, slots=True)
class FileState:
    """A file as it stood at one moment."""

    version: Version
    size: int
    modified_at: datetime


def open_file(path: Path) -> int:
    """A descriptor to read from. What is no file of its own (a link, a pipe that would keep us
    waiting) was put there by others and is no object: raises `FileNotFoundError`, as for what is
    not there; else `OSError`."""
    try:
        descriptor = os.open(path, _READING)
    except OSError as error:
        if error.errno in _NO_FILE and not stat.S_ISREG(os.lstat(path).st_mode):
            raise FileNotFoundError(errno.ENOENT, "it is no file", str(path)) from error
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise FileNotFoundError(errno.ENOENT, "it is no file", str(path))


def state_of(path: Path) -> FileState:
    """Raises `OSError`."""
    descriptor = open_file(path)
    try:
        return _state(descriptor)
    finally:
        os.close(descriptor)


def read_file(path: Path) -> tuple[bytes, Version]:
    """Raises `OSError`."""
    descriptor = open_file(path)
    try:
        size = os.fstat(descriptor).st_size
        data = os.read(descriptor, size) if size <= WHOLE_BYTES_MAX else b""
        if size <= WHOLE_BYTES_MAX and len(data) == size:
            return data, version_of(data)
        with os.fdopen(os.dup(descriptor), "rb", buffering=0) as source:
            source.seek(0)
            return source.readall(), _state(descriptor).version
    finally:
        os.close(descriptor)


def read_part(path: Path, start: int, length: int) -> bytes:
    """Fewer bytes where the file ends. Raises `OSError`."""
    with os.fdopen(open_file(path), "rb") as source:
        source.seek(start)
        return source.read(length)


def modified_at(status: os.stat_result) -> datetime:
    """The nearest instant that there is: file systems know others."""
    return datetime.fromtimestamp(min(max(0, status.st_mtime_ns / 1e9), _TIME_MAX), UTC)


def _state(descriptor: int) -> FileState:
    """Small files by content; large ones by their identity, which moving a file keeps."""
    status = os.fstat(descriptor)
    if status.st_size == 0:
        version = EMPTY_VERSION
    elif status.st_size <= WHOLE_BYTES_MAX:
        version = version_of(os.pread(descriptor, status.st_size, 0))
    else:
        head = os.pread(descriptor, _HEAD_BYTES, 0)
        identity = f"{status.st_ino} {status.st_mtime_ns} {status.st_size} ".encode()
        version = version_of(identity + head)
    return FileState(version, status.st_size, modified_at(status))
