"""Mutual exclusion between processes that replace or delete objects of one directory.

The kernel frees a lock when its holder dies, so nothing has to be cleaned up. Works between
threads too, since each taking opens the lock file anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stado.errors import Unavailable
from stado.ports import Clock, Entropy

FOLDER = ".locks"
SHARDS = 64
WAIT_SECONDS_MAX = 10.0
_PAUSE_SECONDS = 0.0005
_PAUSE_SECONDS_MAX = 0.02


class FileLocks:
    """One lock for every 64th key."""

    def __init__(self, root: Path, clock: Clock, entropy: Entropy) -> None:
        self._folder = root / FOLDER
        self._clock = clock
        self._entropy = entropy

    def make_all(self) -> None:
        """Beforehand, so that a full disk can be made less full: deleting takes a lock."""
        for shard in range(SHARDS):
            os.close(self._open(shard))

    @contextmanager
    def holding(self, key: str) -> Iterator[None]:
        """Raises `Unavailable` when the lock is not to be had in time, `OSError` otherwise."""
        shard = hashlib.blake2b(key.encode(), digest_size=1).digest()[0] % SHARDS
        descriptor = self._open(shard)
        try:
            self._take(descriptor, key)
            yield
        finally:
            os.close(descriptor)

    def _open(self, shard: int) -> int:
        path = self._folder / f"{shard:02x}"
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def _take(self, descriptor: int, key: str) -> None:
        """Polls, because a blocking wait would have no end while a holder is stopped."""
        end = self._clock.monotonic() + WAIT_SECONDS_MAX
        pause = _PAUSE_SECONDS
        while not _try_lock(descriptor):
            if self._clock.monotonic() >= end:
                raise Unavailable(key, "another process keeps the lock of this key: is it stopped?")
            self._clock.sleep(self._entropy.uniform(pause / 2, pause))
            pause = min(pause * 2, _PAUSE_SECONDS_MAX)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
