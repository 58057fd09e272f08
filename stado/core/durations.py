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


def parse_duration(text: str) -> int | None:
    """Seconds; None for what is no duration."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    seconds = int(match[1]) * _UNITS[match[2]]
    return seconds if 1 <= seconds <= DURATION_SECONDS_MAX else None


def duration_text(seconds: int) -> str:
    """As short as it can be written exactly: `90`, `30m`, `2h`."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
