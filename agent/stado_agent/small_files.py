"""Small files that a job may have put anything in the place of."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_beginning(path: Path, *, bytes_max: int) -> bytes | None:
    """The beginning of a regular file; None for anything else: a pipe would keep us waiting, and a
    link may lead anywhere."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        regular = stat.S_ISREG(os.fstat(file).st_mode)
        return os.read(file, bytes_max) if regular else None
    except OSError:
        return None
    finally:
        os.close(file)
