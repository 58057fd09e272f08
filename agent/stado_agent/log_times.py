"""When a command printed what: noted as its output is read, to the second, or less closely the
longer it takes, so that the notes stay few.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from stado.core.ids import milliseconds
from stado.core.records import LogTime
from stado.ports import Clock

_STRETCH_SECONDS = 1.0
_STRETCHES_MAX = 8192
_LOOK_BYTES = 64 * 1024
"""Within which the end of a line that is under way is looked for."""


@dataclass(slots=True)
class _Stretch:
    """Lines that were read within a short time, by the monotonic clock."""

    offset: int
    began: float
    ended: float


class LogTimes:
    """One thread at a time notes, another one asks once nothing more is noted. Offsets count from
    the first byte ever printed."""

    def __init__(self, clock: Clock, *, stretches_max: int = _STRETCHES_MAX) -> None:
        self._clock = clock
        self._stretches_max = stretches_max
        self._seconds = _STRETCH_SECONDS
        self._stretches: list[_Stretch] = []
        self._line_open = False

    def note(self, offset: int, data: memoryview) -> None:
        """What has just been read. A stretch begins with a line."""
        now = self._clock.monotonic()
        last = self._stretches[-1] if self._stretches else None
        if last is None or now - last.began >= self._seconds:
            start = _start_of_line(data) if self._line_open else 0
            if start is not None:
                self._stretches.append(_Stretch(offset + start, now, now))
                self._thin_out()
        if not self._stretches:
            return
        self._stretches[-1].ended = now
        self._line_open = bytes(data[-1:]) != b"\n"

    def told(self, now: datetime, *, base: int) -> list[LogTime]:
        """Of what was printed from `base` on; `now` is the present moment of the clock that is
        told."""
        monotonic = self._clock.monotonic()
        return [
            LogTime(
                offset=max(0, one.offset - base),
                ms=milliseconds(now - timedelta(seconds=monotonic - one.ended)),
            )
            for one, following in zip(self._stretches, [*self._stretches[1:], None], strict=True)
            if following is None or following.offset > base
        ]

    def _thin_out(self) -> None:
        """Neighbours become one, unless the command was silent in between."""
        while len(self._stretches) > self._stretches_max:
            self._seconds *= 2
            kept: list[_Stretch] = []
            for one in self._stretches:
                if kept and one.ended - kept[-1].began <= self._seconds:
                    kept[-1].ended = one.ended
                else:
                    kept.append(one)
            self._stretches = kept


def _start_of_line(data: memoryview) -> int | None:
    """Where the first line begins that begins in it; None: nowhere near."""
    at = bytes(data[:_LOOK_BYTES]).find(b"\n") + 1
    return at if 0 < at < len(data) else None
