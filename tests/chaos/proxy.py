"""What stands between one process and its object store, and decides about each request: pass it
on, keep it, lose it, lose its answer, or answer in the store's name that it is too much.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO
from urllib.parse import urlsplit

from tests.servers.process import HOST

_ANSWER_SECONDS = 30.0
_LATE_SECONDS = (0.5, 7.0)
_DELAY_SECONDS = (0.1, 3.0)
_OF_ONE_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}
_WITHOUT_BODY = (204, 304)

SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n'
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message>"
    b"<RequestId>CHAOS</RequestId><HostId>CHAOS</HostId></Error>"
)


class Act(StrEnum):
    """What becomes of a request."""

    PASS = "pass"
    DELAY = "delay"
    CUT_BEFORE = "cut before"
    DROP_ANSWER = "drop answer"
    SLOW_DOWN = "503 SlowDown"
    CUT_AMID = "cut amid answer"
    LATE = "apply late"
    """A write whose client is told nothing, and which the store gets seconds later."""


RATES: Mapping[Act, float] = {
    Act.DELAY: 0.015,
    Act.CUT_BEFORE: 0.008,
    Act.DROP_ANSWER: 0.012,
    Act.SLOW_DOWN: 0.01,
    Act.CUT_AMID: 0.006,
    Act.LATE: 0.006,
}
"""Shares of all requests; the others pass."""


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def writes(self) -> bool:
        return self.method not in ("GET", "HEAD")


class FaultyProxy:
    """In threads of this process. Its decisions are drawn from `draw`, in the order in which
    requests come."""

    def __init__(
        self, endpoint: str, draw: random.Random, rates: Mapping[Act, float] = RATES
    ) -> None:
        port = urlsplit(endpoint).port
        assert port is not None
        self._target = port
        self._draw = draw
        self._acts = list(rates)
        self._weights = list(rates.values())
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._flowing = threading.Event()
        self._refusing = False
        self._closed = False
        self.counts: Counter[Act] = Counter()
        self.late = 0
        """Writes that the store has yet to get."""
        self._listener = socket.create_server((HOST, 0), backlog=128)
        self._port: int = self._listener.getsockname()[1]
        self.restore()
        _start(self._accept_all)

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self._port}"

    # --- what it is told ----------------------------------------------------------------

    def refuse(self) -> None:
        """As if the server had been stopped: connections end, new ones are reset at once. We go on
        listening: a port that nobody listens at may be taken by the next server that starts."""
        self._refusing = True
        with self._lock:
            for connection in self._open:
                _end(connection)

    def stall(self) -> None:
        """As if the network swallowed everything: connections are taken, and nothing answers."""
        self._flowing.clear()

    def restore(self) -> None:
        self._refusing = False
        self._flowing.set()

    def calm(self) -> None:
        """From here on every request passes."""
        with self._lock:
            self._weights = [0.0] * len(self._acts)
        self.restore()

    def close(self) -> None:
        self._closed = True
        self.refuse()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._flowing.set()

    # --- connections --------------------------------------------------------------------

    def _accept_all(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                _reset(near)
                continue
            with self._lock:
                self._open.add(near)
            _start(self._serve, near)

    def _serve(self, near: socket.socket) -> None:
        far = http.client.HTTPConnection(HOST, self._target, timeout=_ANSWER_SECONDS)
        with (
            contextlib.suppress(OSError, http.client.HTTPException, ValueError),
            closing(far),
            near.makefile("rb") as stream,
        ):
            while (request := _read_request(stream, near)) is not None:
                self._flowing.wait()
                if not self._answer(request, near, far):
                    break
        _end(near)
        near.close()
        with self._lock:
            self._open.discard(near)

    def _answer(
        self, request: Request, near: socket.socket, far: http.client.HTTPConnection
    ) -> bool:
        """Whether the connection goes on."""
        act, seconds, share = self._decide(request)
        if act is Act.SLOW_DOWN:
            near.sendall(_encode(request, 503, "Slow Down", [_XML], SLOW_DOWN))
            return True
        if act is Act.CUT_BEFORE:
            return False
        if act is Act.LATE:
            with self._lock:
                self.late += 1
            _start(self._send_late, request, seconds)
            return False
        if act is Act.DELAY:
            time.sleep(seconds)
        answer = _forward(request, far)
        if act is Act.DROP_ANSWER:
            return False
        if act is Act.CUT_AMID:
            near.sendall(answer[: 1 + int(share * (len(answer) - 1))])
            return False
        near.sendall(answer)
        return True

    def _decide(self, request: Request) -> tuple[Act, float, float]:
        """What to do, how many seconds it takes, and how much of an answer is sent."""
        with self._lock:
            passing = 1 - sum(self._weights)
            act = self._draw.choices([*self._acts, Act.PASS], [*self._weights, passing])[0]
            seconds = self._draw.uniform(*(_LATE_SECONDS if act is Act.LATE else _DELAY_SECONDS))
            share = self._draw.random()
            if act is Act.LATE and not request.writes:
                act = Act.PASS
            self.counts[act] += 1
        return act, seconds, share

    def _send_late(self, request: Request, seconds: float) -> None:
        time.sleep(seconds)
        far = http.client.HTTPConnection(HOST, self._target, timeout=_ANSWER_SECONDS)
        with contextlib.suppress(OSError, http.client.HTTPException), closing(far):
            _forward(request, far)
        with self._lock:
            self.late -= 1


@contextmanager
def faulty_proxy(
    endpoint: str, draw: random.Random, rates: Mapping[Act, float] = RATES
) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(endpoint, draw, rates)
    try:
        yield proxy
    finally:
        proxy.close()


# --- HTTP -----------------------------------------------------------------------------------

_XML = ("Content-Type", "application/xml")


def _read_request(stream: BinaryIO, near: socket.socket) -> Request | None:
    """None when the client has gone. One that asks whether its body is welcome is told so."""
    line = stream.readline(65537)
    if not line.strip():
        return None
    method, target, _ = line.decode("latin-1").split(" ", 2)
    headers = http.client.parse_headers(stream)
    if headers.get("Expect"):
        near.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        del headers["Expect"]
    if headers.get("Transfer-Encoding"):
        raise ValueError("no client of ours sends a body in chunks")
    size = int(headers.get("Content-Length", "0"))
    body = stream.read(size)
    return Request(method, target, headers.items(), body) if len(body) == size else None


def _forward(request: Request, far: http.client.HTTPConnection) -> bytes:
    """The whole answer, as it goes to the client."""
    far.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
    for name, value in request.headers:
        far.putheader(name, value)
    far.endheaders(request.body or None)
    answer = far.getresponse()
    body = answer.read()
    headers = answer.getheaders()
    return _encode(request, answer.status, answer.reason, headers, body)


def _encode(
    request: Request, status: int, reason: str, headers: list[tuple[str, str]], body: bytes
) -> bytes:
    """An answer to HEAD keeps the size that it tells of."""
    kept = [(name, value) for name, value in headers if name.lower() not in _OF_ONE_HOP]
    if request.method == "HEAD":
        told = [value for name, value in headers if name.lower() == "content-length"]
        kept += [("Content-Length", value) for value in told] or [("Content-Length", "0")]
        body = b""
    elif status not in _WITHOUT_BODY:
        kept.append(("Content-Length", str(len(body))))
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in kept)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def _start(work: object, *arguments: object) -> None:
    threading.Thread(target=work, args=arguments, daemon=True).start()  # type: ignore[arg-type]


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _end(connection: socket.socket) -> None:
    """Whoever reads from it is told; only its own thread closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
