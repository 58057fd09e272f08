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

_logger = logging.getLogger(__name__)

_PIPE_BYTES = 1 << 20
_READ_BYTES = 1 << 18
_SINK_SECONDS_MAX = 1.0
"""A call of the sink that is under way when the time is over may take so long."""


class OutputPump:
    """Between `writer`, which a command gets as stdout and stderr, and a sink.

    Reads from the first moment on. Raises `OSError` when descriptors or threads have run out."""

    def __init__(self, sink: Callable[[memoryview], None], name: str) -> None:
        self._sink = sink
        self._name = name
        self._sink_failed = False
        # All four are closed on exec: no other command gets hold of them.
        self._reader, self.writer = os.pipe()
        self._stop_reader, self._stop_writer = os.pipe()
        os.set_blocking(self._reader, False)
        with suppress(OSError, AttributeError):  # More than this account may have, or no Linux.
            fcntl.fcntl(self._reader, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._stopping = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"output {name}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.finish(0)
            raise OSError(errno.EAGAIN, f"no thread for the output of {name}: {error}") from error

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
            os.write(self._stop_writer, b"x")
            self._thread.join(_SINK_SECONDS_MAX)
        if not self._thread.is_alive():
            # Otherwise it would go on with whatever gets these numbers next.
            for descriptor in (self._reader, self._stop_reader, self._stop_writer):
                os.close(descriptor)
        return self._ended

    def _run(self) -> None:
        buffer = bytearray(_READ_BYTES)
        view = memoryview(buffer)
        buffers = [buffer]
        poller = select.poll()
        poller.register(self._reader, select.POLLIN)
        poller.register(self._stop_reader, select.POLLIN)
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
