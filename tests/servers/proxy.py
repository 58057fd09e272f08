"""A connection to a server that can be cut: what stands between a program and its store."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from tests.servers.process import HOST

_BYTES = 65536


class Proxy:
    """Passes on what it gets, until it is told otherwise. In threads of this process."""

    def __init__(self, endpoint: str) -> None:
        port = urlsplit(endpoint).port
        assert port is not None
        self._target = (HOST, port)
        self._listener = self._listen(0)
        self._port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self.holds_something = False
        """Whether anything was swallowed since the last `stall`."""
        self._lock = threading.Lock()
        self._accept()

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self._port}"

    def cut(self) -> None:
        """As if the server had been stopped: connections end, new ones are refused."""
        _close(self._listener)
        with self._lock:
            for connection in self._open:
                _close(connection)
            self._open.clear()

    def restore(self) -> None:
        self._listener = self._listen(self._port)
        self._accept()

    def stall(self) -> None:
        """As if the network swallowed everything: connections are taken, and nothing answers."""
        self.holds_something = False
        self._flowing.clear()

    def resume(self) -> None:
        self._flowing.set()

    @staticmethod
    def _listen(port: int) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(128)
        return listener

    def _accept(self) -> None:
        _start(self._accept_all, self._listener)

    def _accept_all(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
                far = socket.create_connection(self._target)
            except OSError:
                return
            with self._lock:
                self._open |= {near, far}
            _start(self._pass_on, near, far)
            _start(self._pass_on, far, near)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_BYTES):
                if not self._flowing.is_set():
                    self.holds_something = True
                    self._flowing.wait()
                target.sendall(data)
        for end in (source, target):
            _close(end)
        with self._lock:
            self._open -= {source, target}


@contextmanager
def proxy_of(endpoint: str) -> Iterator[Proxy]:
    proxy = Proxy(endpoint)
    try:
        yield proxy
    finally:
        proxy.resume()
        proxy.cut()


def _start(work: object, *arguments: object) -> None:
    threading.Thread(target=work, args=arguments, daemon=True).start()  # type: ignore[arg-type]


def _close(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
