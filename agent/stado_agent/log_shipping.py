"""From the file that a command writes its output to, into segments in the store.

The command never waits for the store: it writes to a local file. Bytes are never changed.
"""

from __future__ import annotations

from pathlib import Path

from stado.jobs.logs import SEGMENT_BYTES_MAX, write_segment
from stado.jobs.repository import Repository

_FIRST_INTERVAL_SECONDS = 1.0
_INTERVAL_SECONDS_MAX = 60.0
_INTERVAL_SHARE = 1 / 100
"""Of the job's age: a log of a week is some ten thousand segments, one of a minute is prompt."""


class LogShipper:
    """Ships one job's log file. What was shipped stays shipped when the epoch changes."""

    def __init__(self, repo: Repository, path: Path) -> None:
        self._repo = repo
        self._path = path
        self._offset = 0
        self._base = 0
        self._epoch = 0
        self._began = repo.clock.monotonic()
        self._shipped_at = self._began

    def ship_when_due(self, job_id: str, epoch: int) -> None:
        """Ships whole lines if the last segment is old enough, or enough has come."""
        now = self._repo.clock.monotonic()
        age = now - self._began
        interval = max(_FIRST_INTERVAL_SECONDS, min(_INTERVAL_SECONDS_MAX, age * _INTERVAL_SHARE))
        waiting = self._size() - self._offset
        if waiting >= SEGMENT_BYTES_MAX or (waiting and now - self._shipped_at >= interval):
            self._ship_one(job_id, epoch, whole_lines=True)

    def ship_rest(self, job_id: str, epoch: int) -> None:
        """Ships all that is there."""
        while self._size() > self._offset:
            self._ship_one(job_id, epoch, whole_lines=False)

    def _size(self) -> int:
        """Of the file; 0 for a job that never came so far as to have one."""
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def _ship_one(self, job_id: str, epoch: int, *, whole_lines: bool) -> None:
        """One segment, if there is a whole line to ship."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read(SEGMENT_BYTES_MAX)
        if whole_lines or len(data) == SEGMENT_BYTES_MAX:
            data = _whole_lines(data)
        self._shipped_at = self._repo.clock.monotonic()
        if not data:
            return
        if epoch != self._epoch:
            self._epoch, self._base = epoch, self._offset
        write_segment(self._repo, job_id, epoch, self._offset - self._base, data)
        self._offset += len(data)


def _whole_lines(data: bytes) -> bytes:
    """Up to the last end of a line (a progress bar's return counts as one). All of it when a
    single line fills a segment."""
    end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    if end == 0 and len(data) == SEGMENT_BYTES_MAX:
        return data
    return data[:end]
