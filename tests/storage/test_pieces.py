"""A large object arrives whole from pieces in any order, or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from stado.storage.pieces import PIECE_BYTES, fetch_pieces
from stado.system.tasks import LiveTasks

DATA = hashlib.shake_128(b"x").digest(2 * PIECE_BYTES + 12_345)


class Server:
    """Sends what is asked for, unless it fails."""

    def __init__(self, *, failures: int = 0, short: bool = False) -> None:
        self._failures = failures
        self._short = short
        self.asked: list[int] = []

    def __call__(self, start: int, length: int) -> Iterator[bytes]:
        self.asked.append(start)
        yield DATA[start : start + 1000]
        if start == PIECE_BYTES and self._failures:
            self._failures -= 1
            raise ConnectionError
        yield DATA[start + 1000 : start + length - self._short]


def fetch(server: Server, path: Path) -> None:
    digest = fetch_pieces(server, path, len(DATA), tasks=LiveTasks(), again=(ConnectionError,))
    assert path.read_bytes() == DATA
    assert (digest.size, digest.sha256) == (len(DATA), hashlib.sha256(DATA).hexdigest())


def test_pieces_make_the_whole_and_its_digest(tmp_path: Path) -> None:
    server = Server()
    fetch(server, tmp_path / "file")
    assert sorted(server.asked) == [0, PIECE_BYTES, 2 * PIECE_BYTES]


def test_a_piece_that_breaks_off_is_fetched_again_alone(tmp_path: Path) -> None:
    server = Server(failures=2)
    fetch(server, tmp_path / "file")
    assert sorted(server.asked) == [0, *[PIECE_BYTES] * 3, 2 * PIECE_BYTES]


@pytest.mark.parametrize(
    ("server", "error"), [(Server(failures=3), ConnectionError), (Server(short=True), ValueError)]
)
def test_what_cannot_be_had_whole_leaves_nothing(
    tmp_path: Path, server: Server, error: type[Exception]
) -> None:
    with pytest.raises(error):
        fetch(server, tmp_path / "file")
    assert not list(tmp_path.iterdir())
