"""What a program tells the service manager that started it: that it works, that it still turns.

The protocol is that of sd_notify(3): a datagram of lines `NAME=value` to the socket that
`NOTIFY_SOCKET` names. Without such a manager nothing is sent. A manager that does not listen
keeps nobody from working: what cannot be sent is left out.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, MutableMapping
from contextlib import suppress

from stado.ports import Clock

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
_SEND_SECONDS_MAX = 1.0
_FEEDS_A_WATCHDOG = 8
"""So many signs of life fit into the time after which the manager takes us for hung."""
_STATUS_MAX = 300


class ServiceNotice:
    """The line to one manager. `turned` is for the program's main loop, once a turn: the manager
    starts us anew when it hears of no turn for too long, so nothing else may call it."""

    def __init__(
        self, address: str | None, *, clock: Clock, watchdog_seconds: float | None = None
    ) -> None:
        """`address`: path of a socket, or `@name` of an abstract one; None: nobody listens."""
        self._address = address
        self._clock = clock
        self._feed_seconds = (watchdog_seconds or 0.0) / _FEEDS_A_WATCHDOG
        self._watched = watchdog_seconds is not None
        self._ready = False
        self._fed_at = float("-inf")

    def turned(self) -> None:
        """The main loop has gone round. The first time: the program works."""
        now = self._clock.monotonic()
        if not self._ready:
            self._ready = True
            self._fed_at = now
            self._send("READY=1", "STATUS=at work")
        elif self._watched and now - self._fed_at >= self._feed_seconds:
            self._fed_at = now
            self._send("WATCHDOG=1")

    def tell(self, status: str) -> None:
        """For people: what it is doing, in a few words."""
        self._send(f"STATUS={' '.join(status.split())[:_STATUS_MAX]}")

    def leaving(self) -> None:
        """The last thing to say: from here on the manager counts how long leaving takes."""
        self._send("STOPPING=1", "STATUS=leaving")

    def _send(self, *lines: str) -> None:
        if self._address is None:
            return
        name = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.settimeout(_SEND_SECONDS_MAX)
            line.sendto("\n".join(lines).encode(), name)


def notice_of(
    environment: MutableMapping[str, str], clock: Clock, *, pid: Callable[[], int] = os.getpid
) -> ServiceNotice:
    """As the manager's variables say, which are taken out: they are ours, and no child's."""
    address, usec, watched = (environment.pop(name, "") for name in _VARIABLES)
    ours = not watched or watched == str(pid())
    seconds = int(usec) / 1e6 if ours and usec.isascii() and usec.isdecimal() else 0.0
    named = address if address.startswith(("/", "@")) else None
    return ServiceNotice(named, clock=clock, watchdog_seconds=seconds or None)
