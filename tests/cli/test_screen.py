"""A terminal that is drawn again and again."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from stado.cli.failures import Interrupted
from stado.cli.screen import Frame, redraw
from stado.errors import Denied, Misconfigured, NotFound, StoreError, Unavailable
from tests.jobs.fakes import FakeClock


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A command that was interrupted is about to end, and heeds no further Ctrl-C."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def drawn(
    capsys: pytest.CaptureFixture[str], *looks: Callable[[], Frame]
) -> tuple[list[str], FakeClock]:
    """What each frame sent, until Ctrl-C came after the last."""
    clock, left = FakeClock(), list(looks)

    def look() -> Frame:
        if not left:
            raise KeyboardInterrupt
        return left.pop(0)()

    with pytest.raises(Interrupted, match="no longer watching"):
        redraw(look, clock)
    return capsys.readouterr().out.split("\x1b[H")[2:], clock


def away() -> Frame:
    raise Unavailable("queue/", "no route to host")


def test_a_store_that_is_away_leaves_the_last_frame_and_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    frames, clock = drawn(capsys, lambda: Frame(["a row"], ["a note"]), away, away)
    assert clock.monotonic() == 6
    assert len(frames) == 3
    assert "no answer" not in frames[0]
    for frame in frames[1:]:
        assert "a row" in frame
        assert "no route to host; trying again" in frame


def test_a_store_that_is_not_there_was_there_before(capsys: pytest.CaptureFixture[str]) -> None:
    """A directory that is gone looks like a wrong address: it comes back with its file system."""

    def unmounted() -> Frame:
        raise Misconfigured("/queue", "there is no store at /queue")

    frames, _ = drawn(capsys, lambda: Frame(["a row"], []), unmounted, lambda: Frame(["back"], []))
    assert "no store at /queue; trying again" in frames[1]
    assert "back" in frames[2]


@pytest.mark.parametrize("kind", [Denied, NotFound])
def test_whatever_a_store_answers_for_a_moment_is_outlived(
    capsys: pytest.CaptureFixture[str], kind: type[StoreError]
) -> None:
    """It was right before: a directory comes back, and so do credentials."""

    def wrong() -> Frame:
        raise kind("queue/", "not now")

    frames, _ = drawn(capsys, lambda: Frame(["a row"], []), wrong, lambda: Frame(["back"], []))
    assert "a row" in frames[1]
    assert "not now; trying again" in frames[1]
    assert "back" in frames[2]


def test_what_is_too_long_is_cut_above_the_notes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES", "8")
    monkeypatch.setenv("COLUMNS", "80")
    rows = [f"row {number}" for number in range(50)]
    ((shown,), _) = drawn(capsys, lambda: Frame(rows, ["a note"]))
    lines = [line.partition("\x1b")[0] for line in shown.splitlines()]
    assert lines[:8] == ["row 0", "row 1", "row 2", "row 3", "… 46 more lines", "", "a note", ""]


def test_a_frame_replaces_all_of_a_longer_one(capsys: pytest.CaptureFixture[str]) -> None:
    long, short = Frame(["x" * 40] * 5, []), Frame(["y"], [])
    frames, _ = drawn(capsys, lambda: long, lambda: short)
    assert frames[1].startswith("y\x1b[K\n\x1b[J")


def test_the_signal_that_it_took_is_given_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    drawn(capsys, lambda: Frame([], []))
    assert signal.getsignal(signal.SIGTERM) is before
