"""What a command reports while it runs, read from the folder that is its own: it may hold anything,
and is looked at again and again.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from stado.core.records import Progress
from stado.core.reported import Mask, progress_of, refusal_of
from stado.reports import PROGRESS_NAME, REFUSAL_NAME, REPORT_BYTES_MAX


class ReportFolder:
    """One job's report folder."""

    def __init__(self, folder: Path, mask: Mask = str) -> None:
        """`mask`: what is taken out of all that is said."""
        self._folder = folder
        self._mask = mask
        self._seen: tuple[int, int, int] | None = None
        """Of the progress that was read last: i-node, size, mtime in ns."""
        self._progress: Progress | None = None

    def progress(self) -> Progress | None:
        """What was told last and can be read. One look at the file, which is read when it has
        changed."""
        path = self._folder / PROGRESS_NAME
        try:
            status = path.lstat()
        except OSError:
            return self._progress
        seen = (status.st_ino, status.st_size, status.st_mtime_ns)
        if seen != self._seen:
            self._seen = seen
            data = _read(path)
            told = progress_of(data, self._mask) if data is not None else None
            self._progress = told or self._progress
        return self._progress

    def find_refusal(self) -> str | None:
        """Why the job refuses to go on; None when it does not say that it does."""
        data = _read(self._folder / REFUSAL_NAME)
        return refusal_of(data, self._mask) if data is not None else None


def _read(path: Path) -> bytes | None:
    """The beginning of a regular file; None for anything else: a pipe would keep us waiting."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        regular = stat.S_ISREG(os.fstat(file).st_mode)
        return os.read(file, REPORT_BYTES_MAX) if regular else None
    except OSError:
        return None
    finally:
        os.close(file)
