"""A job's log: segments of bytes, written by one supervisor, read by anybody.

Bytes go in and come out unchanged; who shows them decides how to decode.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stado.core import keys
from stado.jobs.repository import Repository
from stado.storage.port import LIST_LIMIT_MAX, Entry, walk

SEGMENT_BYTES_MAX = 1024 * 1024


def write_segment(repo: Repository, job_id: str, epoch: int, offset: int, data: bytes) -> None:
    """One write to a key that only the epoch's holder writes, with the same bytes each time.

    `offset` is the place of its first byte in all that the command printed in this epoch: what
    lies between two segments was dropped."""
    repo.store.put(keys.log_segment(job_id, epoch, offset), data)


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """Which part of an epoch's output a segment is."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size


def segment_places(repo: Repository, job_id: str, epoch: int) -> list[SegmentPlace]:
    """Of all segments of an epoch, in order. One listing for each 1,000 segments."""
    found = []
    for entry in walk(repo.store, keys.log_segments_of(job_id, epoch)):
        parsed = keys.parse_log_segment(entry.key)
        if parsed is not None:
            found.append(SegmentPlace(parsed[1], entry.size))
    return found


def delete_segment(repo: Repository, job_id: str, epoch: int, offset: int) -> None:
    """Of the middle of a log that has grown beyond its limit. Only the holder deletes."""
    repo.store.delete(keys.log_segment(job_id, epoch, offset), None)


class LogReader:
    """Reads one epoch's log from the beginning, or from near its end, and then what comes."""

    def __init__(self, repo: Repository, job_id: str, epoch: int) -> None:
        self._repo = repo
        self._job_id = job_id
        self._folder = keys.log_segments_of(job_id, epoch)
        self._after = ""

    def skip_to_tail(self, lines: int) -> bytes:
        """The last lines that are there now; later reads go on behind them."""
        segments = self._segments()
        if segments:
            self._after = segments[-1].key
        if lines <= 0:
            return b""
        tail = b""
        for entry in reversed(segments):
            tail = self._repo.store.get(entry.key).data + tail
            if tail.count(b"\n") > lines:
                break
        return b"".join(tail.splitlines(keepends=True)[-lines:])

    def read_new(self) -> Iterator[bytes]:
        """The segments that have come since the last call, in order."""
        while True:
            page = self._repo.store.list(
                self._folder, start_after=self._after, limit=LIST_LIMIT_MAX
            )
            for entry in page:
                yield self._repo.store.get(entry.key).data
                self._after = entry.key
            if len(page) < LIST_LIMIT_MAX:
                return

    def _segments(self) -> list[Entry]:
        return list(walk(self._repo.store, self._folder))


def epochs_with_log(repo: Repository, job_id: str) -> list[int]:
    """Which epochs left a log, ascending."""
    found = set()
    for entry in walk(repo.store, keys.log_folder(job_id)):
        parsed = keys.parse_log_segment(entry.key)
        if parsed is not None:
            found.add(parsed[0])
    return sorted(found)
