"""Sizes as people state them: `500GB`; pure."""

from __future__ import annotations

import re
from decimal import Decimal

_UNITS = {
    **{f"{letter}B": 1000**power for power, letter in enumerate(("k", "M", "G", "T", "P"), 1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate(("K", "M", "G", "T", "P"), 1)},
}
_STATED = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) ?([kmgtp]i?b)", re.IGNORECASE)

SIZE_FORM = "a size with its unit: 500GB, 2TB, 300GiB"


def parse_size(text: str) -> int | None:
    """Bytes; None for what is no size above zero in whole bytes. `500GB` are 500 * 1000**3 bytes,
    `500GiB` 500 * 1024**3."""
    match = _STATED.fullmatch(text)
    if match is None:
        return None
    units = {name.lower(): factor for name, factor in _UNITS.items()}
    size = Decimal(match[1]) * units[match[2].lower()]
    return int(size) if size > 0 and size == int(size) else None


def stated_size(size_bytes: int) -> str:
    """As `parse_size` reads it, exactly, in the unit that makes it shortest."""
    texts = []
    for name, factor in _UNITS.items():
        whole, rest = divmod(size_bytes * 1000, factor)
        if rest == 0:
            number = f"{whole // 1000}.{whole % 1000:03d}".rstrip("0").rstrip(".")
            texts.append(f"{number}{name}")
    fitting = [text for text in texts if parse_size(text) == size_bytes]
    return min(fitting, key=lambda text: (len(text), "i" in text), default=f"{size_bytes} bytes")
