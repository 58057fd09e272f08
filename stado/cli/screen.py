"""A terminal that shows one thing again and again, each time over what was there before."""

from __future__ import annotations

import signal
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

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


def check_screen(*, as_json: bool) -> None:
    """Raises `Refused` where there is nothing to draw on."""
    if as_json:
        raise Refused("watch_needs_terminal", "--watch draws for people: leave --json out")
    if not render.stdout_is_terminal():
        raise Refused(
            "watch_needs_terminal",
            "--watch draws on a terminal and stdout is none: leave it out, and call this again",
        )


def redraw(frame: Callable[[], Sequence[str]], clock: Clock) -> None:
    """Shows `frame` every two seconds until Ctrl-C, which ends it as an interruption does. Lines
    may hold colours; each fits the width, but for those of plain text.

    A store that does not answer leaves the last frame, with a line that says so."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    lines: Sequence[str] = []
    _write(_HIDE_CURSOR + _HOME + _CLEAR)
    try:
        with going_on("no longer watching"):
            while True:
                try:
                    lines = frame()
                    _draw(lines)
                except (Unavailable, Ambiguous) as error:
                    _draw([render.clean(f"no answer: {error}; trying again"), "", *lines])
                clock.sleep(PAUSE_SECONDS)
    finally:
        _write(_ERASE_BELOW + _SHOW_CURSOR)


def wrapped(text: str, *, indent: str = "") -> list[str]:
    """Plain text as lines that fit the terminal."""
    width = max(20, render.terminal_size()[0])
    return textwrap.wrap(
        render.clean(text), width, initial_indent=indent, subsequent_indent=indent
    ) or [""]


def _draw(lines: Sequence[str]) -> None:
    """Over the last frame, line by line: nothing is cleared first, so that nothing flickers."""
    height = max(2, render.terminal_size()[1] - 1)
    shown = list(lines)
    if len(shown) > height:
        more = len(shown) - height + 1
        shown = [*shown[: height - 1], f"… {render.plural(more, 'more line')}: a taller terminal"]
    body = "".join(f"{line}{_ERASE_LINE}\n" for line in shown)
    _write(_HOME + body + _ERASE_BELOW)


def _write(text: str) -> None:
    click.echo(text, nl=False)
    sys.stdout.flush()
