"""A web server that answers as it is told: for what no real server can be made to say."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, slots=True)
class Answer:
    """What to say next. `status` 0 closes the connection without a word."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    tells_length: bool = True
    """False: the body ends with the connection, as it does where headers were cut off."""


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class CannedServer:
    """Gives the answers in turn, and the last one for ever; or what a function makes of each
    request."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.requests: list[Request] = []
        self.date: str | None = None
        """What it says of the time; None: this machine's."""
        self._answers: list[Answer] = []
        self._answer_by: Callable[[Request], Answer] | None = None

    def answers(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self._answer_by = None

    def answers_by(self, answer: Callable[[Request], Answer]) -> None:
        self._answer_by = answer

    def next(self, request: Request) -> Answer:
        self.requests.append(request)
        if self._answer_by is not None:
            return self._answer_by(request)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


@contextmanager
def canned_server() -> Iterator[CannedServer]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(length)
            told = canned.next(Request(self.command, self.path, dict(self.headers), body))
            if told.status == 0:
                _reset(self.connection)
                self.close_connection = True
                return
            self.send_response(told.status)
            for name, value in told.headers.items():
                self.send_header(name, value)
            if not told.tells_length:
                self.close_connection = True
            if told.tells_length and "Content-Length" not in told.headers:
                self.send_header("Content-Length", str(len(told.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(told.body)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return canned.date or super().date_time_string(timestamp)

        def log_message(self, *_: object) -> None:
            """Silence."""

    for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.answer)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    canned = CannedServer(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=lambda: server.serve_forever(0.02), daemon=True)
    thread.start()
    try:
        yield canned
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
