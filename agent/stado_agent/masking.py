"""Secrets in what a command prints: found, also in the usual disguises, and replaced by `***`.

A value may come in pieces. So the end of what has been printed is held back while it is the
beginning of something that has to be masked, and nothing else is: at most 126 bytes, no matter how
long the command is silent, and of a prompt only what a value begins with. What is held back
when the output ends is printed then, masked where it is more than a few bytes.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from typing import Any
from urllib.parse import quote, quote_plus

SECRET_LENGTH_MIN = 8
"""Shorter values would be found in the middle of anything, and can be guessed."""

MASK = b"***"

_SHOWN_AT_END_MAX = 3
"""So many bytes of the beginning of a value may stand at the very end of a log."""

_RUN = 16
"""So many letters and digits in a row are rare in what programs print, and most of what has to be
masked has them."""
_RUNS = bytes(ord("a") if chr(byte).isascii() and chr(byte).isalnum() else 0 for byte in range(256))
_LONG_RUN = b"a" * _RUN
_FEW_RUNS = 8
"""So many patterns are looked for one by one in less time than runs are."""

_FEW = 32
"""So many patterns are looked for one by one in less time than by samples."""
_WORD = 8
_SAMPLED_LENGTH_MIN = 2 * _WORD - 1
"""Wherever text of this length lies, it covers a word at a multiple of the word's size."""

_WRAPPED_AT = (76, 64)
"""Columns at which programs break lines of base64."""

_PIECE = 64
_HEAD = 4
"""So many bytes of the beginning of what has to be masked are looked up."""

Span = tuple[int, int]


class Masker:
    """What has to be masked. Knows no state: see `MaskedSink` for output that comes in pieces."""

    def __init__(self, values: Iterable[str]) -> None:
        found = set(chain.from_iterable(disguises(_bytes_of(value)) for value in values))
        self._patterns = sorted(chain.from_iterable(map(_cut, found)), key=len, reverse=True)
        self._short = [one for one in self._patterns if len(one) < _SAMPLED_LENGTH_MIN]
        self._without_run = [one for one in self._patterns if not _has_run(one)]
        self._heeds_runs = len(self._patterns) - len(self._without_run) > _FEW_RUNS
        long = [one for one in self._patterns if len(one) >= _SAMPLED_LENGTH_MIN]
        self._words = frozenset(chain.from_iterable(map(_words_of, long)))
        self._heads = frozenset(
            one[:length] for one in self._patterns for length in range(1, _HEAD)
        )
        self._by_head: dict[bytes, list[bytes]] = {}
        for one in self._patterns:
            self._by_head.setdefault(one[:_HEAD], []).append(one)

    def text(self, text: str) -> str:
        """A sentence without secrets."""
        data = _bytes_of(text)
        return _masked(data, self.spans(data), covered=0).decode(errors="replace")

    def spans(self, data: bytes) -> list[Span]:
        """Where in it there is something to mask, in order, without overlap."""
        found: list[Span] = []
        for pattern in self._candidates(data):
            position = data.find(pattern)
            while position >= 0:
                found.append((position, position + len(pattern)))
                position = data.find(pattern, position + 1)
        return _united(found)

    def beginning_at_end(self, data: bytes) -> int:
        """Length of the longest end of it that is the beginning of something to mask."""
        end = data[-self._held_max :]
        for start in range(len(end) - _HEAD + 1):
            for pattern in self._by_head.get(end[start : start + _HEAD], ()):
                rest = end[start:]
                if len(rest) < len(pattern) and pattern.startswith(rest):
                    return len(rest)
        short = range(1, min(_HEAD, len(end) + 1))
        return max((length for length in short if end[-length:] in self._heads), default=0)

    @property
    def _held_max(self) -> int:
        return len(self._patterns[0]) - 1

    def _candidates(self, data: bytes) -> Iterable[bytes]:
        """Patterns that may be in it. Where it has no long run of letters and digits, those that
        have one are ruled out together; else a look at every eighth byte mostly rules out all long
        ones, however many there are."""
        if self._heeds_runs and not _has_run(data):
            return self._without_run
        whole = len(data) - len(data) % _WORD
        if len(self._patterns) <= _FEW:
            return self._patterns
        if self._words.isdisjoint(memoryview(data)[:whole].cast("Q")):
            return self._short
        return self._patterns


class MaskedSink:
    """Between a command and whoever keeps what it prints. `lock`: one piece at a time."""

    def __init__(
        self, masker: Masker, sink: Callable[[memoryview], None], lock: AbstractContextManager[Any]
    ) -> None:
        self._masker = masker
        self._sink = sink
        self._lock = lock
        self._held = b""
        self._covered = 0
        """So many bytes of what is held back belong to something whose mask has been printed."""

    def append(self, piece: memoryview) -> None:
        with self._lock:
            data = self._held + bytes(piece)
            spans = self._masker.spans(data)
            end = len(data) - self._masker.beginning_at_end(data)
            self._give(data, spans, end)
            self._held = data[end:]

    def finish(self) -> None:
        """The output has ended: nothing completes any more what was held back."""
        with self._lock:
            data, self._held = self._held, b""
            rest = len(data) - self._covered
            hidden = [(0, len(data))] if rest > _SHOWN_AT_END_MAX else []
            self._give(data, hidden, len(data))

    def _give(self, data: bytes, spans: list[Span], end: int) -> None:
        """All before `end`, and a mask for what begins before it."""
        shown = [(start, min(stop, end)) for start, stop in spans if start < end]
        over_end = max((stop - end for start, stop in spans if start < end < stop), default=0)
        left_over = self._covered - end
        masked = _masked(data[:end], shown, covered=min(self._covered, end))
        self._covered = max(0, over_end, left_over)
        if masked:
            self._sink(memoryview(masked))


def _masked(data: bytes, spans: list[Span], *, covered: int) -> bytes:
    """`covered`: so much of its beginning has been masked already."""
    if not spans and not covered:
        return data
    parts = []
    position = covered
    for start, stop in _united([(0, covered), *spans] if covered else spans):
        if start > 0 or not covered:
            parts += [data[position:start], MASK]
        position = max(position, stop)
    parts.append(data[position:])
    return b"".join(parts)


def _united(spans: list[Span]) -> list[Span]:
    """In order; those that touch as one."""
    united: list[Span] = []
    for start, stop in sorted(spans):
        if united and start <= united[-1][1]:
            united[-1] = (united[-1][0], max(united[-1][1], stop))
        else:
            united.append((start, stop))
    return united


def _cut(pattern: bytes) -> Iterator[bytes]:
    """Pieces of a long one, each found by itself, so that little has to be held back."""
    pieces = max(1, len(pattern) // _PIECE)
    for number in range(pieces):
        start = number * _PIECE
        yield pattern[start : start + _PIECE if number < pieces - 1 else None]


def _has_run(data: bytes) -> bool:
    return _LONG_RUN in data.translate(_RUNS)


def _words_of(pattern: bytes) -> Iterator[int]:
    for start in range(len(pattern) - _WORD + 1):
        yield memoryview(pattern[start : start + _WORD]).cast("Q")[0]


# --- disguises ------------------------------------------------------------------------------


_ESCAPED = [
    re.compile(signs)
    for signs in (
        rb"\\",  # Python
        rb"[\\']",  # $'...' of a shell, Python
        rb'[\\"$`]',  # "..." of a shell
        rb"""[\\"$`' !&()*,;<>?\[\]^{|}]|(?<=[:=])~""",  # printf %q
    )
]
"""Which signs are written with a backslash before them."""

_CONTROL = re.compile(rb"[\0-\x1f\x7f]")
_CONTROLS = bytes((*range(32), 127))
_IN_PYTHON = {sign: repr(chr(sign))[1:-1].encode() for sign in _CONTROLS}
_IN_BASH = {sign: b"\\%03o" % sign for sign in _CONTROLS} | {
    sign: b"\\%c" % letter for sign, letter in zip(b"\a\b\x1b\f\n\r\t\v", b"abEfnrtv", strict=True)
}
"""How control characters are written, mostly where signs of the first two kinds are."""


def disguises(value: bytes) -> Iterator[bytes]:
    """A value and its lines, each as it is and as programs like to write it."""
    lines = [line.strip() for line in value.splitlines()]
    for one in {value, *lines}:
        if len(one) >= SECRET_LENGTH_MIN:
            yield one
            yield from _quoted(one)
            yield from _between_quotes(one)
            yield from in_base64(one)


def _quoted(value: bytes) -> Iterator[bytes]:
    """For a URL, and within JSON; what differs from the value itself."""
    for text in (quote(value), quote(value, safe=""), quote_plus(value)):
        yield text.encode()
        yield re.sub(rb"%[0-9A-F]{2}", lambda found: found[0].lower(), text.encode())
    text = value.decode(errors="surrogateescape")
    for ascii_only in (True, False):
        inner = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        yield inner.encode(errors="surrogateescape")


def _between_quotes(value: bytes) -> Iterator[bytes]:
    """As shells and languages write it within quotes, or instead of them; what differs from the
    value itself."""
    for signs in _ESCAPED:
        yield (escaped := signs.sub(rb"\\\g<0>", value))
        yield from _without_controls(escaped)
    yield value.replace(b"'", b"'\\''")  # bash
    yield value.replace(b"'", b"'\"'\"'")  # Python's shlex
    yield re.sub(rb"'+", rb"""'"\g<0>"'""", value).removesuffix(b"'")  # dash: ends without one
    yield value.replace(b"'", b"''")  # SQL, YAML
    yield value.replace(b'"', b'""')  # CSV


def _without_controls(escaped: bytes) -> Iterator[bytes]:
    """Within the quotes in which they are not written as they are."""
    for written in (_IN_PYTHON, _IN_BASH):
        yield _CONTROL.sub(partial(_written, written), escaped)


def _written(written: Mapping[int, bytes], found: re.Match[bytes]) -> bytes:
    return written[found[0][0]]


def in_base64(value: bytes) -> Iterator[bytes]:
    """As a part of something that is written in base64: the characters that depend on the value
    alone, for each place in a group of three bytes at which it may begin."""
    for encode in (b64encode, urlsafe_b64encode):
        for before, unsure in ((0, 0), (1, 2), (2, 3)):
            bits = 8 * (before + len(value))
            yield encode(bytes(before) + value)[unsure : bits // 6]
        whole = encode(value)[: 8 * len(value) // 6]
        for width in _WRAPPED_AT:
            lines = [whole[start : start + width] for start in range(0, len(whole), width)]
            yield from (line for line in lines if len(line) >= SECRET_LENGTH_MIN)


def _bytes_of(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
