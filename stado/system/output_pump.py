"""What a command prints, from a pipe to a sink, on a thread of its own.

A pipe rather than a file: what a command does to its own stdout (truncate it, fill a disk) must
not cost what it has printed. The command must never wait for more than the sink.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress

from stado.system.waiting import Wakeup

_logger = logging.getLogger(__name__)

_PIPE_BYTES = 1 << 20
_READ_BYTES = 1 << 18
_SINK_SECONDS_MAX = 1.0
"""A call of the sink that is under way when the time is over may take so long."""


class OutputPump:
    """Between `writer`, which a command gets as stdout and stderr, and a sink."""

    def __init__(self, sink: Callable[[memoryview], None], name: str) -> None:
        """Raises `OSError` when descriptors have run out."""
        self._sink = sink
        self._name = name
        self._sink_failed = False
        self._stop = Wakeup()
        try:
            # Closed on exec, like the other: no other command gets hold of them.
            self._reader, self.writer = os.pipe()
        except OSError:
            self._stop.close()
            raise
        os.set_blocking(self._reader, False)
        with suppress(OSError, AttributeError):  # More than this account may have, or no Linux.
            fcntl.fcntl(self._reader, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._stopping = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"output {name}", daemon=True)

    def start(self) -> None:
        """Begins to read. Raises `OSError` when threads have run out."""
        try:
            self._thread.start()
        except RuntimeError as error:
            raise OSError(
                errno.EAGAIN, f"no thread for the output of {self._name}: {error}"
            ) from error

    def close_writer(self) -> None:
        """Once the command has its copy: the output ends when the last copy is closed."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def finish(self, timeout_seconds: float) -> bool:
        """Waits for the end of the output, and stops reading when the time is over. Whether all
        of it has been given to the sink."""
        self.close_writer()
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            self._stopping = True
            self._stop.set()
            self._thread.join(_SINK_SECONDS_MAX)
        if not self._thread.is_alive():
            # Otherwise it would go on with whatever gets these numbers next.
            os.close(self._reader)
            self._stop.close()
        return self._ended

    def _run(self) -> None:
        buffer = bytearray(_READ_BYTES)
        view = memoryview(buffer)
        buffers = [buffer]
        poller = select.poll()
        poller.register(self._reader, select.POLLIN)
        poller.register(self._stop.descriptor, select.POLLIN)
        while not self._stopping:
            try:
                count = os.readv(self._reader, buffers)
            except BlockingIOError:
                poller.poll()
                continue
            if count == 0:
                self._ended = True
                return
            self._give(view[:count])

    def _give(self, piece: memoryview) -> None:
        try:
            self._sink(piece)
        except Exception:
            if not self._sink_failed:
                self._sink_failed = True
                _logger.exception("event=output_lost command=%s", self._name)
