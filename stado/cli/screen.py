"""A terminal that shows one thing again and again, each time over what was there before."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from stado.cli import render
from stado.cli.failures import going_on
from stado.errors import Ambiguous, Refused, Unavailable

if TYPE_CHECKING:
    from stado.ports import Clock

PAUSE_SECONDS = 2.0

_CLEAR = "\x1b[2J"
_HOME = "\x1b[H"
_ERASE_LINE = "\x1b[K"
_ERASE_BELOW = "\x1b[J"
_HIDE_CURSOR = "\x1b[?25l"
_SHOW_CURSOR = "\x1b[?25h"


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


def redraw(look: Callable[[], Frame], clock: Clock) -> None:
    """Shows a new frame every two seconds until Ctrl-C, which ends it as an interruption does.

    A store that does not answer leaves the last frame, with a line that says so."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    frame = Frame([], [])
    _write(_HIDE_CURSOR + _HOME + _CLEAR)
    try:
        with going_on("no longer watching"):
            while True:
                try:
                    frame = look()
                    _draw(frame)
                except (Unavailable, Ambiguous) as error:
                    told = render.wrapped(f"no answer: {error}; trying again")
                    _draw(Frame(frame.body, [*frame.foot, *told]))
                clock.sleep(PAUSE_SECONDS)
    finally:
        _write(_ERASE_BELOW + _SHOW_CURSOR)
        signal.signal(signal.SIGTERM, before)


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
