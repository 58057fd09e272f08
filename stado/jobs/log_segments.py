"""What is stored of a log: segments, written one after another while a command prints, and in
their place, once the log is complete, blocks with an index.

The index says which bytes the blocks hold. It is created after them and before a segment is
deleted, and none of these is ever changed: whoever reads finds each byte in the one or the other.
A segment whose bytes the index has counts for nothing, whenever it turns up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from stado.core import keys
from stado.core.records import LogIndex
from stado.errors import Unreadable
from stado.jobs.repository import PARALLEL_REQUESTS, Repository
from stado.storage.port import walk

SEGMENT_BYTES_MAX = 2 * 1024 * 1024
_EPOCHS_PAGE = 16


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """Which part of an epoch's output a segment is."""

    offset: int
    size: int
    stored_at: datetime | None = field(default=None, compare=False)
    """By the store; its bytes were printed before."""

    @property
    def end(self) -> int:
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class LogListing:
    """What a listing shows of an epoch's log."""

    segments: list[SegmentPlace]
    indexed: bool
    """Whether there is an index. A listing of one folder is in order, and the index sorts behind
    all segments: none of them was deleted for it before it could be seen."""


def write_segment(repo: Repository, job_id: str, epoch: int, offset: int, data: bytes) -> None:
    """One write. Raises `Exists` when a segment begins there: an earlier attempt that had no answer
    has landed since, perhaps with fewer lines, and it must not land upon a later one either.

    `offset` is the place of its first byte in all that the command printed in this epoch: what
    lies between two segments was dropped."""
    repo.store.create(keys.log_segment(job_id, epoch, offset), data)


def delete_segment(repo: Repository, job_id: str, epoch: int, offset: int) -> None:
    """Of the middle of a log that has grown beyond its limit, or one whose bytes an index has.
    While the log grows only the holder deletes."""
    repo.store.delete(keys.log_segment(job_id, epoch, offset), None)


def list_log(
    repo: Repository, job_id: str, epoch: int, *, after: SegmentPlace | None = None
) -> LogListing:
    """All segments of an epoch (those behind `after`), in order. One listing for each 1,000 of
    them."""
    segments, indexed = [], False
    start = "" if after is None else keys.log_segment(job_id, epoch, after.offset)
    index_key = keys.log_index(job_id, epoch)
    for entry in walk(repo.store, keys.log_segments_of(job_id, epoch), start_after=start):
        parsed = keys.parse_log_segment(entry.key)
        if parsed is not None:
            segments.append(SegmentPlace(parsed[1], entry.size, entry.modified_at))
        indexed = indexed or entry.key == index_key
    return LogListing(segments, indexed)


def find_log_index(repo: Repository, job_id: str, epoch: int) -> LogIndex | None:
    """None when there is none, or none that can be read."""
    try:
        found = repo.find(LogIndex, keys.log_index(job_id, epoch))
    except Unreadable as error:
        repo.tell_unreadable(error)
        return None
    return found.value if found is not None else None


def uncovered(index: LogIndex | None, places: Iterable[SegmentPlace]) -> list[SegmentPlace]:
    """Those of which the index does not have each byte."""
    return [place for place in places if index is None or not _covers(index, place)]


def delete_covered(
    repo: Repository,
    index: LogIndex,
    places: Iterable[SegmentPlace],
    *,
    between: Callable[[], None],
) -> None:
    """Deletes the segments of which the index has each byte, the first ones first: who lists them
    meanwhile, from a store that shows some names and not others, sees a gap before what is left,
    and looks again. `between` is called now and then."""
    covered = [place for place in places if place.size and _covers(index, place)]
    for start in range(0, len(covered), PARALLEL_REQUESTS):
        between()
        repo.tasks.map(
            lambda place: delete_segment(repo, index.job_id, index.epoch, place.offset),
            covered[start : start + PARALLEL_REQUESTS],
            limit=PARALLEL_REQUESTS,
        )


def epochs_with_log(repo: Repository, job_id: str) -> list[int]:
    """Which epochs left a log, ascending. A listing, and one more for each of them.

    Where none is seen it is looked for again: a listing of a directory can miss a new index and
    the segments that are deleted for it."""
    return _epochs_listed(repo, job_id) or _epochs_listed(repo, job_id)


def _epochs_listed(repo: Repository, job_id: str) -> list[int]:
    """A few names tell of an epoch; the rest of it is passed over."""
    found: set[int] = set()
    after = ""
    while True:
        page = repo.store.list(keys.log_folder(job_id), start_after=after, limit=_EPOCHS_PAGE)
        found.update(_epochs_of(entry.key for entry in page))
        if len(page) < _EPOCHS_PAGE:
            return sorted(found)
        last = keys.parse_log_segment(page[-1].key)
        after = page[-1].key if last is None else keys.log_index(job_id, last[0])


def _epochs_of(names: Iterable[str]) -> Iterator[int]:
    for name in names:
        segment = keys.parse_log_segment(name)
        epoch = segment[0] if segment is not None else keys.parse_log_index(name)
        if epoch is not None:
            yield epoch


def _covers(index: LogIndex, place: SegmentPlace) -> bool:
    return any(one.offset <= place.offset and place.end <= one.end for one in index.ranges)
