"""Durations as people write them: whole seconds, or `30m`, `2h`, `3d`."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

DURATION_SECONDS_MAX = 10 * 365 * 86_400

Duration = Annotated[int, msgspec.Meta(ge=1, le=DURATION_SECONDS_MAX)]
"""Seconds: positive and whole, ten years at most."""

DURATION_FORM = "a positive whole number of seconds, or one with s, m, h or d behind it: 30m, 2h"

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_TEXT = re.compile(r"([0-9]{1,9})([smhd]?)")
_WORDS = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)[ \t]*([a-z]{1,7})")
_SPELT = {
    word: unit
    for unit, words in {
        "s": "s sec secs second seconds",
        "m": "m min mins minute minutes",
        "h": "h hr hrs hour hours",
        "d": "d day days",
    }.items()
    for word in words.split()
}
"""Units as people write them, who mean them all the same."""


def parse_duration(text: str) -> int | None:
    """Seconds; None for what is no duration."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    seconds = int(match[1]) * _UNITS[match[2]]
    return seconds if 1 <= seconds <= DURATION_SECONDS_MAX else None


def meant_duration(text: str) -> str | None:
    """How a duration is written that somebody wrote otherwise: `2h` for `2 h`, `90m` for `1h 30min`
    and for `1.5 hours`; None where it cannot be told."""
    words = _WORDS.findall(text.lower())
    if not words or _WORDS.sub("", text.lower()).strip(" \t,"):
        return None
    total = 0.0
    for number, word in words:
        unit = _SPELT.get(word)
        if unit is None:
            return None
        total += float(number) * _UNITS[unit]
    return duration_text(int(total)) if _is_duration(total) else None


def _is_duration(seconds: float) -> bool:
    return seconds.is_integer() and 1 <= seconds <= DURATION_SECONDS_MAX


def duration_text(seconds: int) -> str:
    """As short as it can be written exactly: `90`, `30m`, `2h`."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
