"""Lets a wait end when a signal has been handled: Python itself would go on waiting."""

from __future__ import annotations

import os
import signal
import threading


class SignalWakeup:
    """A pipe into which the interpreter writes at each signal that has a handler in Python.

    One a process, made at the first wait: a signal that came earlier wakes nobody, so a caller
    waits in turns of bounded length. Must be forgotten in a forked child, whose signals would
    otherwise wake the parent."""

    def __init__(self) -> None:
        self._reader: int | None = None
        self._writer: int | None = None

    def descriptor(self) -> int | None:
        """Readable after a signal; None outside the main thread, which alone handles them."""
        if threading.current_thread() is not threading.main_thread():
            return None
        if self._reader is None:
            self._reader, self._writer = os.pipe()
            os.set_blocking(self._reader, False)
            os.set_blocking(self._writer, False)
            signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        return self._reader

    def clear(self) -> None:
        if self._reader is not None:
            os.read(self._reader, 4096)

    def forget(self) -> None:
        if self._reader is not None and self._writer is not None:
            signal.set_wakeup_fd(-1)
            os.close(self._reader)
            os.close(self._writer)
            self._reader = self._writer = None
