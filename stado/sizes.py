"""Amounts of memory and of disk in words; pure."""

from __future__ import annotations

_KIB = 1 << 10
_MIB = 1 << 20
_GIB = 1 << 30


def in_words(size_bytes: int) -> str:
    """`96 MiB`, `1.5 GiB`: two digits after the point at most."""
    if size_bytes >= _GIB:
        return f"{_number(size_bytes / _GIB)} GiB"
    return f"{_number(size_bytes / _MIB)} MiB"


def file_size(size_bytes: int) -> str:
    """The same of files, which can be small: `1 byte`, `34 KiB`."""
    if size_bytes >= _MIB:
        return in_words(size_bytes)
    if size_bytes >= _KIB:
        return f"{size_bytes // _KIB} KiB"
    return f"{size_bytes} byte{'' if size_bytes == 1 else 's'}"


def _number(amount: float) -> str:
    return f"{amount:.2f}".rstrip("0").rstrip(".")
