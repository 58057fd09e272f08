"""A gate before an S3 server: it lets pass what a policy allows, refuses the rest as S3 does, and
notes both. A gate for each role, so that who asks is known by the port."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from stado.storage.observe import Operation
from tests.security.asking import Request, s3_asks
from tests.security.policies import Policy
from tests.servers.process import HOST

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "expect"}
_DENIED = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code>'
    b"<Message>Access Denied</Message><RequestId>1</RequestId></Error>"
)
_SECONDS = 60


class Gate:
    """`requests` were let through, `refused` were not."""

    def __init__(self, upstream: str, policy: Policy) -> None:
        self.requests: set[Request] = set()
        self.refused: set[Request] = set()
        self._policy = policy
        self._upstream = urlsplit(upstream).netloc
        self._server = _Server((HOST, 0), _Handler)
        self._server.gate = self
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def lets_pass(self, request: Request) -> bool:
        allowed = all(self._policy.allows(ask) for ask in s3_asks(request))
        (self.requests if allowed else self.refused).add(request)
        return allowed

    def forward(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """The server's answer. The host stays as it was asked for, since it is signed."""
        connection = HTTPConnection(self._upstream, timeout=_SECONDS)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


@contextmanager
def open_gate(upstream: str, policy: Policy) -> Iterator[Gate]:
    gate = Gate(upstream, policy)
    try:
        yield gate
    finally:
        gate.close()


def request_of(method: str, target: str, headers: Mapping[str, str]) -> Request:
    """What a request line and its headers ask for, in our words. An object's key is what follows
    the bucket."""
    parts = urlsplit(target)
    query = parse_qs(parts.query, keep_blank_values=True)
    key = unquote(parts.path).lstrip("/").partition("/")[2]
    if not key:
        assert method == "GET", f"{method} {target}"
        return Request(Operation.LIST, "".join(query.get("prefix", [""])))
    if "uploads" in query or "uploadId" in query:
        return Request(Operation.UPLOAD, key)
    if method == "DELETE":
        return Request(Operation.DELETE, key, versioned="if-match" in headers)
    if method == "PUT":
        return Request(_write_by(headers), key)
    return Request({"GET": Operation.GET, "HEAD": Operation.HEAD}[method], key)


def _write_by(headers: Mapping[str, str]) -> Operation:
    if "if-none-match" in headers:
        return Operation.CREATE
    return Operation.REPLACE if "if-match" in headers else Operation.PUT


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    gate: Gate


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if not self.server.gate.lets_pass(request_of(self.command, self.path, headers)):
            self._answer(403, [("Content-Type", "application/xml")], _DENIED)
            return
        status, answer_headers, answer = self.server.gate.forward(
            self.command, self.path, dict(self.headers.items()), body
        )
        self._answer(status, answer_headers, answer)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Of a HEAD the length is the object's."""
        self.send_response_only(status)
        for name, value in headers:
            keeps = name.lower() != "content-length" or self.command == "HEAD"
            if keeps and name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        elif status == 403:
            self.send_header("Content-Length", "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - theirs
        pass
