"""The proxy does to a request what it says, and tells the client nothing else."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest

from tests.chaos.proxy import Act, FaultyProxy, faulty_proxy
from tests.system.commands import eventually

_BODY = b"what is under the key"
_CUT = (http.client.HTTPException, ConnectionError)


class Store(ThreadingHTTPServer):
    """Answers everything, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str, bytes, str | None]] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Store

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.asked.append((self.command, self.path, body, self.headers.get("If-Match")))
        self.send_response(200)
        self.send_header("ETag", '"one"')
        self.send_header("Content-Length", str(len(_BODY)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(_BODY)

    do_GET = do_PUT = do_HEAD = do_DELETE = _answer

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def proxy(store: Store) -> Iterator[FaultyProxy]:
    with faulty_proxy(store.endpoint, random.Random(1), {}) as found:
        yield found


def _always(store: Store, act: Act) -> FaultyProxy:
    return FaultyProxy(store.endpoint, random.Random(1), {act: 1.0})


def _connect(proxy: FaultyProxy) -> http.client.HTTPConnection:
    parts = urlsplit(proxy.endpoint)
    return http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=20)


def _ask(proxy: FaultyProxy, method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
    connection = _connect(proxy)
    try:
        connection.request(method, "/bucket/key?x=%20", body, {"If-Match": "abc"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_what_passes_is_the_same_on_both_sides(store: Store, proxy: FaultyProxy) -> None:
    assert _ask(proxy, "PUT", b"new") == (200, _BODY)
    assert store.asked == [("PUT", "/bucket/key?x=%20", b"new", "abc")]


def test_a_connection_is_used_again(store: Store, proxy: FaultyProxy) -> None:
    connection = _connect(proxy)
    for method in ("GET", "HEAD", "GET"):
        connection.request(method, "/key")
        answer = connection.getresponse()
        assert answer.getheader("ETag") == '"one"'
        assert answer.getheader("Content-Length") == str(len(_BODY))
        assert answer.read() == (b"" if method == "HEAD" else _BODY)
    connection.close()
    assert len(store.asked) == 3


def test_a_client_that_asks_whether_its_body_is_welcome_is_told_so(
    store: Store, proxy: FaultyProxy
) -> None:
    connection = _connect(proxy)
    connection.putrequest("PUT", "/key")
    connection.putheader("Expect", "100-continue")
    connection.putheader("Content-Length", "4")
    connection.endheaders()
    connection.send(b"body")
    assert connection.getresponse().status == 200
    connection.close()
    assert store.asked[0][2] == b"body"


def test_a_request_is_kept_for_a_while(store: Store) -> None:
    began = time.monotonic()
    assert _ask(_always(store, Act.DELAY)) == (200, _BODY)
    assert time.monotonic() - began > 0.1


def test_a_request_that_is_lost_never_comes_to_the_store(store: Store) -> None:
    with pytest.raises(_CUT):
        _ask(_always(store, Act.CUT_BEFORE), "PUT", b"new")
    assert store.asked == []


def test_an_answer_that_is_lost_was_given(store: Store) -> None:
    with pytest.raises(_CUT):
        _ask(_always(store, Act.DROP_ANSWER), "PUT", b"new")
    assert [body for _, _, body, _ in store.asked] == [b"new"]


def test_an_answer_is_cut_in_the_middle(store: Store) -> None:
    """Be it in its headers: a client that goes by them takes what has come for all of it."""
    proxy = _always(store, Act.CUT_AMID)
    for _ in range(10):
        with closing(_connect(proxy)) as connection:
            connection.request("GET", "/key")
            assert connection.sock is not None
            with connection.sock.makefile("rb") as stream:
                got = stream.read()
        assert got
        assert not got.endswith(_BODY)
    assert len(store.asked) == 10


def test_too_many_requests_are_refused_as_s3_does(store: Store) -> None:
    status, body = _ask(_always(store, Act.SLOW_DOWN), "PUT", b"new")
    assert status == 503
    assert ElementTree.fromstring(body).findtext("Code") == "SlowDown"
    assert store.asked == []


def test_a_late_write_comes_to_the_store_after_its_client_gave_up(store: Store) -> None:
    proxy = _always(store, Act.LATE)
    with pytest.raises(_CUT):
        _ask(proxy, "PUT", b"new")
    assert proxy.late == 1
    assert store.asked == []
    assert eventually(lambda: proxy.late == 0)
    assert [body for _, _, body, _ in store.asked] == [b"new"]


def test_a_read_is_never_late(store: Store) -> None:
    assert _ask(_always(store, Act.LATE)) == (200, _BODY)


def test_a_store_that_is_away_refuses_and_is_back_at_the_same_place(proxy: FaultyProxy) -> None:
    endpoint, connection = proxy.endpoint, _connect(proxy)
    connection.request("GET", "/key")
    connection.getresponse().read()
    proxy.refuse()
    with pytest.raises(_CUT):
        connection.request("GET", "/key")
        connection.getresponse()
    with pytest.raises(_CUT):
        _ask(proxy)
    proxy.restore()
    assert proxy.endpoint == endpoint
    assert _ask(proxy) == (200, _BODY)


def test_a_network_that_swallows_everything_gives_it_back(store: Store, proxy: FaultyProxy) -> None:
    proxy.stall()
    connection = _connect(proxy)
    connection.request("GET", "/key")
    assert connection.sock is not None
    connection.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        connection.sock.recv(1)
    assert store.asked == []
    proxy.restore()
    connection.sock.settimeout(20)
    assert connection.sock.recv(4) == b"HTTP"
    connection.close()


def test_a_calm_proxy_does_nothing_more(store: Store) -> None:
    proxy = _always(store, Act.CUT_BEFORE)
    proxy.refuse()
    proxy.calm()
    assert [_ask(proxy) for _ in range(20)] == [(200, _BODY)] * 20
    assert proxy.counts == {Act.PASS: 20}


def test_the_same_seed_decides_the_same(store: Store) -> None:
    rates = {Act.SLOW_DOWN: 0.3}
    statuses = []
    for _ in range(2):
        with faulty_proxy(store.endpoint, random.Random(7), rates) as proxy:
            statuses.append([_ask(proxy)[0] for _ in range(30)])
    assert statuses[0] == statuses[1]
    assert set(statuses[0]) == {200, 503}
