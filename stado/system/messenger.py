"""Messages on the channels of this machine: by POST, or on the standard input of a program.

Each call has an end. Where a channel leads, and what it takes to get there, may be secret: no error
tells of it.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from stado.errors import SendFailed
from stado.system.channel_file import Program, Webhook

SEND_SECONDS = 10.0
"""Of one call, but for the resolver's own limits."""

_PASSED_ON = ("PATH", "HOME", "LANG", "TZ")
"""Of our environment: the rest may hold the keys to the store."""


class LiveMessenger:
    """Any number of threads may send at once."""

    def __init__(
        self,
        channels: Mapping[str, Webhook | Program],
        environment: Mapping[str, str],
        *,
        send_seconds: float = SEND_SECONDS,
    ) -> None:
        self._channels = channels
        self._environment = {name: environment[name] for name in _PASSED_ON if name in environment}
        self._seconds = send_seconds

    @property
    def channels(self) -> frozenset[str]:
        return frozenset(self._channels)

    def send(self, channel: str, body: bytes) -> None:
        address = self._channels[channel]
        if isinstance(address, Webhook):
            self._post(address, body)
        else:
            self._execute(address, body)

    # --- webhooks -----------------------------------------------------------------------

    def _post(self, webhook: Webhook, body: bytes) -> None:
        """Goes nowhere but to that address: an answer that leads elsewhere is none."""
        try:
            status = self._status_of(webhook, body)
        except TimeoutError:
            raise SendFailed(f"it did not answer within {self._seconds:g} s") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise SendFailed(f"it could not be reached: {_kind_of(error)}") from None
        if not 200 <= status < 300:
            raise SendFailed(f"it answered with HTTP {status}")

    def _status_of(self, webhook: Webhook, body: bytes) -> int:
        url = webhook.url
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        headers = {"Content-Type": "application/json", "User-Agent": "stado", **webhook.headers}
        connection = _connection(webhook, self._seconds)
        try:
            with self._ended_in_time(connection):
                connection.request("POST", target, body, headers)
                return connection.getresponse().status
        finally:
            connection.close()

    @contextmanager
    def _ended_in_time(self, connection: http.client.HTTPConnection) -> Iterator[None]:
        """The limit of a socket begins anew with each byte that a slow server sends."""
        over = threading.Event()

        def end() -> None:
            over.set()
            sock = connection.sock
            if sock is not None:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(self._seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except (OSError, http.client.HTTPException):
            if not over.is_set():
                raise
        finally:
            timer.cancel()
        if over.is_set():
            raise TimeoutError

    # --- programs -----------------------------------------------------------------------

    def _execute(self, program: Program, body: bytes) -> None:
        try:
            child = subprocess.Popen(
                program.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self._environment,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise SendFailed(f"it could not be started: {_kind_of(error)}") from None
        try:
            child.communicate(body, timeout=self._seconds)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise SendFailed(f"it took longer than {self._seconds:g} s") from None
        if child.returncode:
            raise SendFailed(f"it ended with {_code_text(child.returncode)}")


def _connection(webhook: Webhook, seconds: float) -> http.client.HTTPConnection:
    url, host = webhook.url, webhook.url.hostname or ""
    if url.scheme == "http":
        return http.client.HTTPConnection(host, url.port, timeout=seconds)
    context = ssl.create_default_context()
    return http.client.HTTPSConnection(host, url.port, timeout=seconds, context=context)


def _kind_of(error: Exception) -> str:
    """Never the text of an error: it can quote the address."""
    if isinstance(error, OSError) and isinstance(error.errno, int) and error.errno > 0:
        return os.strerror(error.errno)
    return type(error).__name__


def _code_text(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
