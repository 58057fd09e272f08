"""Amounts of memory and of disk in words; pure."""

from __future__ import annotations

_MIB = 1 << 20
_GIB = 1 << 30


def in_words(size_bytes: int) -> str:
    """`96 MiB`, `1.5 GiB`: two digits after the point at most."""
    if size_bytes >= _GIB:
        return f"{_number(size_bytes / _GIB)} GiB"
    return f"{_number(size_bytes / _MIB)} MiB"


def _number(amount: float) -> str:
    return f"{amount:.2f}".rstrip("0").rstrip(".")
