"""Tells people on stderr that their store keeps a command waiting, and what it cost in the end.

A store that throttles, or does not answer, must not look like a command that hangs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stado.cli import render

if TYPE_CHECKING:
    from stado.composition import Machine
    from stado.ports import Clock
    from stado.storage.trouble import Setback, StoreTrouble, TroubleSight

PATIENCE_SECONDS = 1.0
"""What setbacks may cost together before a line is due."""

SILENCE_SECONDS = 2.0
"""How long one request may go without an answer. More, for a slow one is not in trouble yet."""

AGAIN_SECONDS = 5.0
"""The next line is due so long after one."""

_LOOK_SECONDS = 0.2
_ERROR_MAX = 300


class WaitingLines:
    """The line that is due, if one is."""

    def __init__(self, trouble: StoreTrouble, clock: Clock) -> None:
        self._trouble = trouble
        self._clock = clock
        self._told_at: float | None = None

    def due(self) -> str | None:
        now = self._clock.monotonic()
        if self._told_at is not None and now - self._told_at < AGAIN_SECONDS:
            return None
        line = waiting_line(self._trouble.sight())
        if line is not None:
            self._told_at = now
        return line


def waiting_line(sight: TroubleSight) -> str | None:
    """What is waited for, if that has lasted."""
    if sight.silent_seconds >= SILENCE_SECONDS:
        return f"stado: the store has not answered for {sight.silent_seconds:.0f} s: waiting for it"
    if sight.present is None or sight.lost_seconds < PATIENCE_SECONDS:
        return None
    tries = f"try {sight.present.attempt + 1} of at most {sight.present.attempts_max}"
    return f"stado: {_what(sight, sight.present)}; {tries} in {sight.next_seconds:.1f} s"


def closing_line(sight: TroubleSight) -> str | None:
    """What throttling has cost, once the command is over."""
    if not sight.throttled:
        return None
    return (
        f"stado: the store throttled {sight.throttled} of this command's requests; it took "
        f"{sight.lost_seconds:.1f} s longer"
    )


@contextmanager
def telling(trouble: StoreTrouble, machine: Machine) -> Iterator[None]:
    """Lines on stderr while the body waits for the store, from a thread of its own: the body's
    is the one that waits."""
    lines = WaitingLines(trouble, machine.clock)
    over = machine.tasks.event()

    def tell_until_over() -> None:
        while not over.wait(_LOOK_SECONDS):
            _tell(lines.due())

    teller = machine.tasks.start("waiting-lines", tell_until_over)
    try:
        yield
    finally:
        over.set()
        teller.join(_LOOK_SECONDS)
        _tell(closing_line(trouble.sight()))


def _what(sight: TroubleSight, setback: Setback) -> str:
    error = setback.error[:_ERROR_MAX]
    if setback.throttled:
        return (
            f"the store is throttling ({error}): {render.plural(sight.throttled, 'request')} put "
            "off so far"
        )
    return (
        f"the store cannot be used just now ({error}): trying again, until "
        f"{setback.left_seconds:.0f} s from now at the latest"
    )


def _tell(line: str | None) -> None:
    if line is not None:
        render.tell(line)
