"""Files that hold credentials, which somebody may exchange or be writing at any moment."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

SETTLING_SECONDS = 5.0
"""A file changed less long ago may be half written: what it causes is worth another try."""

Stamp = tuple[int, int, int] | None
"""Of a file's state: changes whenever its content does. None: there is no such file."""


class Sight(NamedTuple):
    """A file as it was once; its content as a digest, for that is secret."""

    stamp: Stamp
    digest: bytes | None
    """None: it cannot be read."""


def look_at(path: Path) -> Sight:
    """The stamp comes first: what is written meanwhile will be seen as a change."""
    return Sight(_stamp_of(path), _digest_of(path))


def has_changed(path: Path, since: Sight) -> bool:
    """Whether its content has. The stamp says so by itself, but for file systems where it changes
    with each look."""
    return _stamp_of(path) != since.stamp and _digest_of(path) != since.digest


def find_unsettled(paths: Sequence[Path], now: datetime) -> Path | None:
    """A file that was changed a moment ago.

    Compares with this host's clock, which wrote the time. Where that is wrong, a half-written
    file is called wrong credentials; the next request reads it again all the same."""
    for path in paths:
        stamp = _stamp_of(path)
        if stamp is not None and abs(now.timestamp() - stamp[0] / 1e9) < SETTLING_SECONDS:
            return path
    return None


def unreadable_sentence(paths: Sequence[Path]) -> str | None:
    """Of the first file that is there and cannot be opened. SDKs pass it over in silence."""
    for path in paths:
        try:
            with path.open("rb"):
                pass
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"{path} cannot be read ({error.strerror})"
    return None


def _stamp_of(path: Path) -> Stamp:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino


def _digest_of(path: Path) -> bytes | None:
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return None
