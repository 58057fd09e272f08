"""Downloads that can be broken off: a job that is cancelled waits for no object of gigabytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from stado.errors import Unavailable
from stado.storage.port import FileDigest, Store

_IN_ONE_PIECE_BYTES = 64 * 1024 * 1024
_RANGE_BYTES = 16 * 1024 * 1024


class Interrupted(Exception):
    """The job has other things to do than to wait for this."""


Heed = Callable[[], None]
"""Called now and then, from any thread; raises `Interrupted`."""


def download(store: Store, key: str, path: Path, *, size: int | None, heed: Heed) -> FileDigest:
    """Writes a new file. A large object comes in ranges, each with the store's own retries."""
    heed()
    if size is None or size <= _IN_ONE_PIECE_BYTES:
        return store.download(key, path)
    return pour(_ranges(store, key, size), path, heed=heed)


def pour(chunks: Iterable[bytes], path: Path, *, heed: Heed) -> FileDigest:
    """Writes the chunks to a new file; no half of it stays behind. Raises what the chunks raise,
    and `OSError` of the file."""
    digest = hashlib.sha256()
    size = 0
    try:
        with path.open("wb") as output:
            for chunk in chunks:
                heed()
                output.write(chunk)
                digest.update(chunk)
                size += len(chunk)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return FileDigest(size, digest.hexdigest())


def _ranges(store: Store, key: str, size: int) -> Iterator[bytes]:
    for start in range(0, size, _RANGE_BYTES):
        length = min(_RANGE_BYTES, size - start)
        data = store.get_range(key, start, length)
        if not data:
            return  # it is shorter than was said: its digest will not be right
        yield data


def read_all(read: Callable[[int], bytes], place: str, *errors: type[Exception]) -> Iterator[bytes]:
    """A stream, a megabyte at a time. These errors of it become the place's: none of them is one
    of the file that it is written to."""
    while True:
        try:
            chunk = read(1024 * 1024)
        except errors as error:
            raise Unavailable(place, f"it cannot be read: {error}") from None
        if not chunk:
            return
        yield chunk
