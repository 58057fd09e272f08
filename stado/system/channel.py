"""A channel between a process and the one that it forked: one line of JSON a message.

Both ends are closed by the kernel when their processes end, so silence is never mistaken for
death: provided that no third process holds a copy. Hence `close_inherited`.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from stado.errors import ChannelClosed
from stado.system.waiting import wait_ready

SEND_TIMEOUT_SECONDS = 10.0
"""A reader that leaves a full buffer alone for so long is stopped or stuck: as good as gone."""

_CHUNK_BYTES = 65_536

_open_channels: set[SocketChannel] = set()
"""Of the whole process: what a forked child has to close."""


class SocketChannel:
    """One end. Several threads may send; one at a time may receive."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._received = bytearray()
        self._ended = False
        self._sending = threading.Lock()
        _open_channels.add(self)

    def send(self, message: Mapping[str, Any]) -> None:
        """Waits while the buffer is full, though no longer than `SEND_TIMEOUT_SECONDS`."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._sending:
            try:
                self._send_all(line)
            except OSError as error:
                # A line that was cut would garble the next one: this end is of no more use.
                self.close()
                raise ChannelClosed(f"the other end of a channel is gone: {error}") from error

    def receive(self, timeout_seconds: float | None) -> dict[str, Any] | None:
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while not self.has_message():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._read_more(left):
                return None
        line, _, rest = self._received.partition(b"\n")
        self._received = rest
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        self._ended = True
        _open_channels.discard(self)
        self._socket.close()

    def has_message(self) -> bool:
        """Whether a whole message has been read already."""
        return b"\n" in self._received

    @property
    def ended(self) -> bool:
        """Whether it is known that nothing more can come."""
        return self._ended

    @property
    def descriptor(self) -> int:
        return self._socket.fileno()

    def _send_all(self, line: bytes) -> None:
        rest = memoryview(line)
        deadline = time.monotonic() + SEND_TIMEOUT_SECONDS
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                left = deadline - time.monotonic()
                if left <= 0 or not wait_ready(self.descriptor, select.POLLOUT, left):
                    raise TimeoutError("it reads nothing") from None

    def _read_more(self, timeout_seconds: float | None) -> bool:
        """False when nothing came in time."""
        if self._ended:
            raise ChannelClosed("the other end of a channel is gone")
        if not wait_ready(self.descriptor, select.POLLIN, timeout_seconds):
            return False
        try:
            chunk = self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return True
        except ConnectionError:
            chunk = b""
        self._received += chunk
        self._ended = not chunk
        return True


def open_pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


def close_inherited() -> None:
    """In a forked child: gives up the parent's ends of its other channels.

    Otherwise a sibling would keep a channel open after the parent has died."""
    for channel in list(_open_channels):
        channel.close()
