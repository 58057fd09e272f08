"""Streaming between files and stores, with the digest taken on the way."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from stado.storage.port import FileDigest

CHUNK_BYTES = 1 << 20


def chunks_of(path: Path) -> Iterator[bytes]:
    """The content of a file, a megabyte at a time. Raises `OSError`."""
    with path.open("rb") as source:
        while chunk := source.read(CHUNK_BYTES):
            yield chunk


def pour(chunks: Iterable[bytes], write: Callable[[bytes], object]) -> FileDigest:
    """Hands each chunk to `write` and says what went through."""
    digest = hashlib.sha256()
    size = 0
    for chunk in chunks:
        write(chunk)
        digest.update(chunk)
        size += len(chunk)
    return FileDigest(size, digest.hexdigest())


def pour_into_file(chunks: Iterable[bytes], path: Path) -> FileDigest:
    """Writes the chunks to `path`; no half-written file stays behind when they fail."""
    try:
        with path.open("wb") as target:
            return pour(chunks, target.write)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


class HashingReader:
    """A file read once from front to back, for a library that pulls its upload by itself.

    It has no `seek` on purpose: a library that could go back would be hashed twice."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._digest = hashlib.sha256()
        self._size = 0

    def read(self, size: int = -1) -> bytes:
        chunk = self._file.read(size)
        self._digest.update(chunk)
        self._size += len(chunk)
        return chunk

    def digest(self) -> FileDigest:
        """What has been read so far."""
        return FileDigest(self._size, self._digest.hexdigest())

    def close(self) -> None:
        self._file.close()
