"""Objects on the web, from a server that takes its time or breaks off."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stado.errors import Unavailable
from stado_agent.downloads import Interrupted, in_time
from stado_agent.web import download_from_web
from tests.jobs.fakes import FakeClock

_PATIENCE_SECONDS = 60.0
Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/x"
    finally:
        server.shutdown()
        server.server_close()


def stating(size: int, *, then: Answer) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_header("Content-Length", str(size))
        request.end_headers()
        then(request)

    return answer


def test_each_piece_is_an_occasion_to_break_off(tmp_path: Path) -> None:
    """However little of it has come."""
    broken_off = threading.Event()
    heard: list[bool] = []
    answered = threading.Event()

    def drip(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"one")
        heard.append(broken_off.wait(_PATIENCE_SECONDS))
        answered.set()

    def heed() -> None:
        broken_off.set()
        raise Interrupted

    with serving(stating(1_000_000, then=drip)) as address, pytest.raises(Interrupted):
        download_from_web(address, tmp_path / "x", heed=heed, clock=FakeClock())
    assert answered.wait(_PATIENCE_SECONDS)
    assert heard == [True]
    assert not (tmp_path / "x").exists()


def test_an_answer_that_breaks_off_may_be_asked_for_again(tmp_path: Path) -> None:
    """It is no object with another content, for which a job would have to fail."""

    def half(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"half")

    with (
        serving(stating(8, then=half)) as address,
        pytest.raises(Unavailable, match="broke off after 4 bytes"),
    ):
        download_from_web(address, tmp_path / "x", heed=lambda: None, clock=FakeClock())
    assert not (tmp_path / "x").exists()


def test_an_object_comes_whole(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000

    def all_of_it(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(data)

    with serving(stating(len(data), then=all_of_it)) as address:
        digest = download_from_web(address, tmp_path / "x", heed=lambda: None, clock=FakeClock())
    assert digest.size == len(data)
    assert (tmp_path / "x").read_bytes() == data


@pytest.mark.parametrize(("size", "seconds", "comes"), [(1, 1, False), (2000, 1, True)])
def test_a_connection_over_which_next_to_nothing_comes_is_given_up(
    size: int, seconds: float, comes: bool
) -> None:
    clock = FakeClock()

    def chunks() -> Iterator[bytes]:
        for _ in range(300):
            clock.sleep(seconds)
            yield b"x" * size

    if comes:
        assert sum(map(len, in_time(chunks(), "a place", clock))) == 300 * size
        return
    with pytest.raises(Unavailable, match=r"a place: only 60 bytes of it came in 60 s"):
        list(in_time(chunks(), "a place", clock))
