"""A large object, fetched in pieces at once into one file; its digest is taken in order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from stado.ports import Tasks
from stado.storage.port import FileDigest
from stado.storage.transfer import CHUNK_BYTES

PIECE_BYTES = 8 << 20
_AT_ONCE = 8
_ATTEMPTS = 3

Fetch = Callable[[int, int], Iterable[bytes]]
"""The bytes from a place on, so many of them."""


def fetch_pieces(
    fetch: Fetch, path: Path, size: int, *, tasks: Tasks, again: tuple[type[Exception], ...]
) -> FileDigest:
    """Makes a new file of what `fetch` gives for each piece. A piece that meets one of the errors
    in `again` is fetched anew, some times. Nothing stays behind when it fails: what is still
    under way writes into a file without a name. Raises `ValueError` for a piece of another
    length, and `OSError`."""
    file = _PiecedFile(fetch, path, size, again)
    try:
        path.touch()
        tasks.map(file.take, range(0, size, PIECE_BYTES), limit=_AT_ONCE)
        return file.digest()
    except BaseException:
        file.failed = True
        path.unlink(missing_ok=True)
        raise


class _PiecedFile:
    def __init__(
        self, fetch: Fetch, path: Path, size: int, again: tuple[type[Exception], ...]
    ) -> None:
        self._fetch = fetch
        self._path = path
        self._size = size
        self._again = again
        self._done: set[int] = set()
        self._hashed = 0
        self._sha256 = hashlib.sha256()
        self._hashing = False
        self.failed = False

    def take(self, start: int) -> None:
        """Each thread has a handle of its own: one that outlives a failure harms nobody."""
        if self.failed:
            return
        try:
            with self._path.open("r+b") as file:
                self._fill(file, start)
                self._done.add(start)
                self._hash_on(file)
        except BaseException:
            self.failed = True
            raise

    def _fill(self, file: BinaryIO, start: int) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._fill_once(file, start)
                return
            except self._again:
                if attempt == _ATTEMPTS or self.failed:
                    raise

    def _fill_once(self, file: BinaryIO, start: int) -> None:
        length = min(PIECE_BYTES, self._size - start)
        file.seek(start)
        for chunk in self._fetch(start, length):
            file.write(chunk)
        file.flush()
        if file.tell() != start + length:
            raise ValueError(f"a piece of {length} bytes has {file.tell() - start}")

    def _hash_on(self, file: BinaryIO) -> None:
        """One thread at a time, which others leave their pieces to, and which may therefore leave
        some to the end."""
        if self._hashing:
            return
        self._hashing = True
        try:
            self._hash(file)
        finally:
            self._hashing = False

    def _hash(self, file: BinaryIO) -> None:
        while self._hashed in self._done and not self.failed:
            end = min(self._hashed + PIECE_BYTES, self._size)
            file.seek(self._hashed)
            while self._hashed < end:
                chunk = file.read(min(CHUNK_BYTES, end - self._hashed))
                self._sha256.update(chunk)
                self._hashed += len(chunk)

    def digest(self) -> FileDigest:
        with self._path.open("rb") as file:
            self._hash(file)
        return FileDigest(self._size, self._sha256.hexdigest())
