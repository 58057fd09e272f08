"""Lines of a log, where a part of them is shown, or when each was printed. Otherwise bytes pass as
they come.

A pattern is Python's, whose search can take for ever. So it looks at the beginning of a line only,
and gets a bounded time of this process.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from types import FrameType

import click

SEARCHED_BYTES = 64 * 1024
"""Of a line; what lies behind is neither searched nor held."""

SEARCH_SECONDS = 5.0
"""Of processor time, for as much as is read at once: two MiB at most."""

Write = Callable[[bytes], None]
FindTime = Callable[[int], datetime | None]


class LogLines:
    """Passes on the lines in which `pattern` is found (None: all), each behind the time that
    `find_time` tells of its place, if that is given. Without both, whatever comes."""

    def __init__(
        self,
        write: Write,
        *,
        pattern: re.Pattern[str] | None = None,
        find_time: FindTime | None = None,
    ) -> None:
        self._write = write
        self._pattern = pattern
        self._find_time = find_time
        self._begun = b""
        """Of a line of which it is not known yet whether it is shown."""
        self._begun_at = 0
        self._passing: bool | None = None
        """Whether the rest of the line under way is shown; None: no line is under way."""

    def take(self, data: bytes, offset: int) -> None:
        """`offset` is the place of its first byte."""
        if self._pattern is None and self._find_time is None:
            self._write(data)
            return
        shown: list[bytes] = []
        with _search_time() if self._pattern is not None else _no_limit():
            begin, end = self._whole_lines(data)
            for start, part in _parts(data[:begin]):
                shown += self._shown(part, offset + start)
            shown += self._found_in(data[begin:end])
            for start, part in _parts(data[end:]):
                shown += self._shown(part, offset + end + start)
        if shown:
            self._write(b"".join(shown))

    def end_line(self) -> None:
        """What is under way will not go on."""
        if self._begun and self._is_wanted(self._begun):
            self._write(self._stamp(self._begun_at) + self._begun)
        self._begun, self._passing = b"", None

    def _whole_lines(self, data: bytes) -> tuple[int, int]:
        """From where to where it is lines that are only searched: all of a large log but for its
        edges, so that these are searched without ado."""
        if self._pattern is None or self._find_time is not None:
            return len(data), len(data)
        under_way = self._begun or self._passing is not None
        begin = data.find(b"\n") + 1 if under_way else 0
        end = data.rfind(b"\n") + 1
        return (begin, end) if end > begin else (len(data), len(data))

    def _found_in(self, lines: bytes) -> list[bytes]:
        if self._pattern is None or not lines:
            return []
        search = self._pattern.search
        return [
            line + b"\n"
            for line in lines[:-1].split(b"\n")
            if search(line[:SEARCHED_BYTES].rstrip(b"\r").decode("utf-8", "replace"))
        ]

    def _shown(self, part: bytes, offset: int) -> Iterator[bytes]:
        """Of a line, or of a part of one."""
        ends = part.endswith(b"\n")
        if self._passing is not None:
            if self._passing:
                yield part
            self._passing = None if ends else self._passing
            return
        if not self._begun:
            self._begun_at = offset
        self._begun += part
        if not ends and self._pattern is not None and len(self._begun) < SEARCHED_BYTES:
            return
        line, self._begun = self._begun, b""
        wanted = self._is_wanted(line)
        self._passing = None if ends else wanted
        if wanted:
            yield self._stamp(self._begun_at) + line

    def _is_wanted(self, line: bytes) -> bool:
        if self._pattern is None:
            return True
        text = line[:SEARCHED_BYTES].rstrip(b"\r\n").decode("utf-8", "replace")
        return self._pattern.search(text) is not None

    def _stamp(self, offset: int) -> bytes:
        if self._find_time is None:
            return b""
        at = self._find_time(offset)
        told = at.strftime("%Y-%m-%dT%H:%M:%SZ") if at is not None else "-"
        return f"{told:20} ".encode()


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Lines and where they begin; the last may not have its end."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield start, data[start:end]
        start = end


@contextmanager
def _search_time() -> Iterator[None]:
    """Raises `click.UsageError` out of a search that takes too long: the machinery of patterns
    looks for signals now and then."""

    def give_up(_signal: int, _frame: FrameType | None) -> None:
        raise click.UsageError(
            f"the pattern takes more than {SEARCH_SECONDS:g} s for a part of the log: write it "
            "without repetitions within repetitions, as (a+)+ has them."
        )

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, SEARCH_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def _no_limit() -> Iterator[None]:
    yield
