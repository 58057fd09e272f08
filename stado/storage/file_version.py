"""The version of a file: a digest, so that every reader computes the same one."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from stado.storage.port import Version

DIGEST_BYTES = 16
WHOLE_BYTES_MAX = 1 << 20
"""Larger files are transfers, written once: a listing should not read gigabytes for them."""

_HEAD_BYTES = 1 << 16


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


def state_of(path: Path) -> FileState:
    """Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _state(descriptor)
    finally:
        os.close(descriptor)


def read_file(path: Path) -> tuple[bytes, Version]:
    """Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
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


def modified_at(stat: os.stat_result) -> datetime:
    return datetime.fromtimestamp(stat.st_mtime_ns / 1e9, UTC)


def _state(descriptor: int) -> FileState:
    """Small files by content; large ones by their identity, which moving a file keeps."""
    stat = os.fstat(descriptor)
    if stat.st_size == 0:
        version = EMPTY_VERSION
    elif stat.st_size <= WHOLE_BYTES_MAX:
        version = version_of(os.pread(descriptor, stat.st_size, 0))
    else:
        head = os.pread(descriptor, _HEAD_BYTES, 0)
        identity = f"{stat.st_ino} {stat.st_mtime_ns} {stat.st_size} ".encode()
        version = version_of(identity + head)
    return FileState(version, stat.st_size, modified_at(stat))
