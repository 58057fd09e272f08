"""What a command reports while it runs, read from the folder that is its own: it may hold anything,
and is looked at again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stado.core.records import Progress
from stado.core.reported import Mask, live_of, progress_of, refusal_of
from stado.reports import LIVE_NAME, PROGRESS_NAME, REFUSAL_NAME, REPORT_BYTES_MAX
from stado_agent.small_files import read_beginning


class ReportFolder:
    """One job's report folder."""

    def __init__(
        self, folder: Path, mask: Mask = str, *, say: Callable[[str], None] | None = None
    ) -> None:
        """`mask`: what is taken out of all that is said. `say` tells the job's log, once, of a
        live view that is not taken."""
        self._folder = folder
        self._mask = mask
        self._say = say
        self._progress_file = _ChangingFile(folder / PROGRESS_NAME)
        self._progress: Progress | None = None
        self._live_file = _ChangingFile(folder / LIVE_NAME)
        self._live: str | None = None

    def progress(self) -> Progress | None:
        """What was told last and can be read. One look at the file, which is read when it has
        changed."""
        if self._progress_file.has_changed() and self._progress_file.is_there:
            data = self._progress_file.read()
            told = progress_of(data, self._mask) if data is not None else None
            self._progress = told or self._progress
        return self._progress

    def live(self) -> str | None:
        """Where the job says that it can be watched, looked at in the same way. None once the file
        is gone or empty; what is no such URL changes nothing."""
        if self._live_file.has_changed():
            self._live = self._look_at_live()
        return self._live

    def _look_at_live(self) -> str | None:
        if not self._live_file.is_there:
            return None
        try:
            data = self._live_file.read()
            if data is None:
                raise ValueError("is in no file that can be read")
            return live_of(data, self._mask)
        except ValueError as flaw:
            say, self._say = self._say, None
            if say is not None:
                say(f"the live view that the job states is ignored: its URL {flaw}")
            return self._live

    def find_refusal(self) -> str | None:
        """Why the job refuses to go on; None when it does not say that it does."""
        data = _read(self._folder / REFUSAL_NAME)
        return refusal_of(data, self._mask) if data is not None else None


class _ChangingFile:
    """A file that is looked at again and again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        """I-node, size, mtime in ns; None: it was not there."""

    @property
    def is_there(self) -> bool:
        """When it was looked at last."""
        return self._seen is not None

    def has_changed(self) -> bool:
        """Since it was looked at last."""
        try:
            status = self._path.lstat()
            seen = (status.st_ino, status.st_size, status.st_mtime_ns)
        except OSError:
            seen = None
        before, self._seen = self._seen, seen
        return seen != before

    def read(self) -> bytes | None:
        return _read(self._path)


def _read(path: Path) -> bytes | None:
    return read_beginning(path, bytes_max=REPORT_BYTES_MAX)
