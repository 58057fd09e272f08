"""A terminal that shows one thing again and again, each time over what was there before."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from stado.cli import render
from stado.cli.context import terminal_is_dumb
from stado.cli.failures import going_on
from stado.errors import Refused, StoreError

if TYPE_CHECKING:
    from stado.ports import Clock

PAUSE_SECONDS = 2.0

_CLEAR = "\x1b[2J"
_HOME = "\x1b[H"
_ERASE_LINE = "\x1b[K"
_ERASE_BELOW = "\x1b[J"
_HIDE_CURSOR = "\x1b[?25l"
_SHOW_CURSOR = "\x1b[?25h"
_BEGIN = _HIDE_CURSOR + _HOME + _CLEAR
_END = _ERASE_BELOW + _SHOW_CURSOR


class Frame(NamedTuple):
    """Lines that fit the width, perhaps with colours. Where there are too many for the terminal,
    `foot` is shown all the same."""

    body: Sequence[str]
    foot: Sequence[str]


def check_screen(*, as_json: bool) -> None:
    """Raises `Refused` where there is nothing to draw on."""
    if as_json:
        raise Refused("watch_needs_terminal", "--watch draws for people: leave --json out")
    if not render.stdout_is_terminal():
        raise Refused(
            "watch_needs_terminal",
            "--watch draws on a terminal and stdout is none: leave it out, and call this again",
        )
    if terminal_is_dumb():
        raise Refused(
            "watch_needs_terminal",
            "--watch draws on a terminal and TERM is dumb: leave it out, and call this again",
        )


def redraw(look: Callable[[], Frame], clock: Clock) -> None:
    """Shows a new frame every two seconds until Ctrl-C, which ends it as an interruption does.

    A store that does not answer leaves the last frame, with a line that says so."""
    frame = Frame([], [])
    with _screen(), going_on("no longer watching"):
        while True:
            try:
                frame = look()
                _draw(frame)
            except StoreError as error:
                # Also where a store is said to be wrong or to refuse us: we know that it was right.
                told = render.wrapped(f"no answer: {error}; trying again")
                _draw(Frame(frame.body, [*frame.foot, *told]))
            clock.sleep(PAUSE_SECONDS)


@contextmanager
def _screen() -> Iterator[None]:
    """The terminal to draw on, given back as it was however we end or are stopped."""
    handlers = {signal.SIGTERM: signal.default_int_handler, signal.SIGTSTP: _stop}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    _write(_BEGIN)
    try:
        yield
    finally:
        _write(_END)
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(_number: int, _frame: object) -> None:
    """Ctrl-Z. Past the buffer of stdout, which may be in the midst of a write."""
    terminal = sys.stdout.fileno()
    os.write(terminal, _END.encode())
    os.kill(os.getpid(), signal.SIGSTOP)
    os.write(terminal, _BEGIN.encode())


def _draw(frame: Frame) -> None:
    """Over the last frame, line by line: nothing is cleared first, so that nothing flickers."""
    lines = _fitted(frame, max(2, render.terminal_size()[1] - 1))
    body = "".join(f"{line}{_ERASE_LINE}\n" for line in lines)
    _write(_HOME + body + _ERASE_BELOW)


def _fitted(frame: Frame, height: int) -> list[str]:
    foot = ["", *frame.foot][:height] if frame.foot else []
    room = height - len(foot)
    body = list(frame.body)
    if len(body) > room:
        kept = max(0, room - 1)
        body = [*body[:kept], f"… {render.plural(len(body) - kept, 'more line')}"][:room]
    return [*body, *foot]


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
