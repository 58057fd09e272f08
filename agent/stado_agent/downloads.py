"""Downloads that can be broken off: a job that is cancelled waits for no object of gigabytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from stado.errors import Unavailable
from stado.ports import Clock
from stado.storage.port import FileDigest, Store

_MIB = 1024 * 1024
_AT_ONCE_BYTES_MIN = _MIB // 4
_AT_ONCE_BYTES_MAX = 8 * _MIB
"""Comes within seconds also where a quick line has just become slow, and finds room in memory."""

_QUICK_SECONDS = 0.5
_SLOW_SECONDS = 2.0
_SLOWNESS_SECONDS = 60.0
_SLOWNESS_BYTES = 60_000
"""Fewer in that time, and the rest is not waited for."""

Result = TypeVar("Result")


class Interrupted(Exception):
    """The job has other things to do than to wait for this."""


Heed = Callable[[], None]
"""Called now and then, from any thread; raises `Interrupted`."""


class Pace:
    """How much is asked of a store at once: what it gives within a second or two, so that who
    waits can look up as often. It begins with little, and learns. Threads may share one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.at_once_bytes = _AT_ONCE_BYTES_MIN

    def timed(self, call: Callable[[], Result], *, size_of: Callable[[Result], int]) -> Result:
        """Calls for bytes, and learns from how long those that came took."""
        begun = self._clock.monotonic()
        result = call()
        seconds = self._clock.monotonic() - begun
        size = size_of(result)
        if seconds > _SLOW_SECONDS:
            self.at_once_bytes = max(self.at_once_bytes // 2, _AT_ONCE_BYTES_MIN)
        elif seconds < _QUICK_SECONDS and size >= self.at_once_bytes // 2:
            self.at_once_bytes = min(self.at_once_bytes * 2, _AT_ONCE_BYTES_MAX)
        return result


def download(
    store: Store, key: str, path: Path, *, size: int | None, heed: Heed, pace: Pace
) -> FileDigest:
    """Writes a new file of an object that should have at most `size` bytes; the caller checks the
    digest. What is too much for once comes in ranges, each with the store's own retries, and
    `heed` is called in between."""
    heed()
    if size is not None and size <= pace.at_once_bytes:
        return pace.timed(lambda: store.download(key, path), size_of=lambda digest: digest.size)
    return pour(_ranges(store, key, size, pace), path, heed=heed)


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


def _ranges(store: Store, key: str, size: int | None, pace: Pace) -> Iterator[bytes]:
    """One that is shorter than was said will not have the right digest."""
    start, data, asked = 0, b"", 0
    while len(data) == asked and (size is None or start < size):
        asked = pace.at_once_bytes if size is None else min(pace.at_once_bytes, size - start)
        data = pace.timed(partial(store.get_range, key, start, asked), size_of=len)
        yield data
        start += len(data)


def read_all(read: Callable[[int], bytes], place: str, *errors: type[Exception]) -> Iterator[bytes]:
    """A stream, a megabyte at a time at most. These errors of it become the place's: none of them
    is one of the file that it is written to."""
    while True:
        try:
            chunk = read(_MIB)
        except errors as error:
            raise Unavailable(place, f"it cannot be read: {error}") from None
        if not chunk:
            return
        yield chunk


def in_time(chunks: Iterable[bytes], place: str, clock: Clock) -> Iterator[bytes]:
    """A connection over which next to nothing comes is given up. Raises `Unavailable`."""
    since, size = clock.monotonic(), 0
    for chunk in chunks:
        yield chunk
        size += len(chunk)
        seconds = clock.monotonic() - since
        if seconds < _SLOWNESS_SECONDS:
            continue
        if size < _SLOWNESS_BYTES:
            raise Unavailable(place, f"only {size:,} bytes of it came in {seconds:.0f} s")
        since, size = clock.monotonic(), 0
