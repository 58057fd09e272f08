"""Waiting for a descriptor or for a process to end, at once when it happens."""

from __future__ import annotations

import math
import os
import select
import sys
import threading
from contextlib import suppress

_MILLISECONDS_MAX = 2**31 - 1

_WORD = (1).to_bytes(8, sys.byteorder)
"""A number, as eventfd(2) wants it."""


def poll_timeout(seconds: float | None) -> int | None:
    """What `poll` wants: milliseconds, rounded up so that no caller spins."""
    if seconds is None:
        return None
    return min(max(0, math.ceil(seconds * 1000)), _MILLISECONDS_MAX)


def wait_ready(descriptor: int, events: int, timeout_seconds: float | None) -> bool:
    poller = select.poll()
    poller.register(descriptor, events)
    return bool(poller.poll(poll_timeout(timeout_seconds)))


def open_exit_watch(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None where the kernel has none."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


class Wakeup:
    """Ends a wait in one thread at the word of another. Once closed it wakes nobody."""

    def __init__(self) -> None:
        """Raises `OSError` when descriptors have run out."""
        if hasattr(os, "eventfd"):
            self._reader = self._writer = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        else:
            self._reader, self._writer = os.pipe()
            for end in (self._reader, self._writer):
                os.set_blocking(end, False)
        self._lock = threading.Lock()
        self._closed = False

    @property
    def descriptor(self) -> int:
        """Readable once somebody has called `set`."""
        return self._reader

    def set(self) -> None:
        with self._lock:
            if not self._closed:
                with suppress(BlockingIOError):  # Full of words that nobody has heeded yet.
                    os.write(self._writer, _WORD)

    def wait(self, timeout_seconds: float, *, besides: int) -> None:
        """Until `besides` is readable, somebody has called `set`, or the time is over."""
        poller = select.poll()
        poller.register(besides, select.POLLIN)
        if not self._closed:
            poller.register(self._reader, select.POLLIN)
        ready = [descriptor for descriptor, _ in poller.poll(poll_timeout(timeout_seconds))]
        if self._reader in ready:
            with suppress(BlockingIOError):
                os.read(self._reader, 4096)

    def close(self) -> None:
        """By the thread that waits."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for descriptor in {self._reader, self._writer}:
                    os.close(descriptor)
