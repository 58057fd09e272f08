"""A job's log: segments of bytes, written by one supervisor, read by anybody.

Bytes go in and come out unchanged; who shows them decides how to decode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stado.core import keys
from stado.core.records import LogAccount, Manifest
from stado.errors import NotFound, Unreadable
from stado.jobs.repository import PARALLEL_REQUESTS, Repository
from stado.storage.port import walk

SEGMENT_BYTES_MAX = 1024 * 1024

_BATCH_BYTES_MAX = 4 * SEGMENT_BYTES_MAX
_HELD_BYTES_MAX = 8 * SEGMENT_BYTES_MAX


def write_segment(repo: Repository, job_id: str, epoch: int, offset: int, data: bytes) -> None:
    """One write. Raises `Exists` when a segment begins there: an earlier attempt that had no answer
    has landed since, perhaps with fewer lines, and it must not land upon a later one either.

    `offset` is the place of its first byte in all that the command printed in this epoch: what
    lies between two segments was dropped."""
    repo.store.create(keys.log_segment(job_id, epoch, offset), data)


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """Which part of an epoch's output a segment is."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size


def segment_places(
    repo: Repository, job_id: str, epoch: int, *, after: SegmentPlace | None = None
) -> list[SegmentPlace]:
    """Of all segments of an epoch (those behind `after`), in order. One listing for each 1,000
    segments."""
    found = []
    start = "" if after is None else keys.log_segment(job_id, epoch, after.offset)
    for entry in walk(repo.store, keys.log_segments_of(job_id, epoch), start_after=start):
        parsed = keys.parse_log_segment(entry.key)
        if parsed is not None:
            found.append(SegmentPlace(parsed[1], entry.size))
    return found


def delete_segment(repo: Repository, job_id: str, epoch: int, offset: int) -> None:
    """Of the middle of a log that has grown beyond its limit. Only the holder deletes."""
    repo.store.delete(keys.log_segment(job_id, epoch, offset), None)


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes that were printed between two pieces of a log, or after the last, and dropped."""

    size: int
    at_end: bool = False
    """Whether nothing follows."""

    @property
    def text(self) -> str:
        """For people."""
        were = "byte of the log was" if self.size == 1 else "bytes of the log were"
        return f"{self.size:,} {were} dropped here" + (", at its end" if self.at_end else "")


Piece = bytes | Gap
"""What a log consists of."""


class LogReader:
    """Reads one epoch's log from the beginning, from an offset, or from near its end, and then
    what comes; each byte once.

    Segments of the middle may be deleted while one reads: what is gone is a gap. Holds a few MiB
    at most, whatever the size of the log."""

    def __init__(self, repo: Repository, job_id: str, epoch: int, *, offset: int = 0) -> None:
        self._repo = repo
        self._job_id = job_id
        self._epoch = epoch
        self._offset = offset
        self._last: SegmentPlace | None = None
        """Behind it the listings begin."""
        self._held: dict[int, bytes] = {}
        """What the search for the last lines has read, by offset."""

    @property
    def offset(self) -> int:
        """Of the first byte that has not been given yet, in all that the epoch printed."""
        return self._offset

    def skip_to_tail(self, lines: int) -> int:
        """Later reads begin with the last lines that are there now; how many fewer there are. A
        line ends with a line feed: a progress bar that returns to its beginning is one line."""
        places = self._new_places()
        if not places:
            return lines
        self._offset, missing = self._find_tail(places, lines)
        for place in places:
            if place.end > self._offset:
                break
            self._last = place
        return missing

    def read_new(self) -> Iterator[Piece]:
        """What has come since the last call, in order. A listing (two where there is a gap), and
        a read a segment."""
        places = [place for place in self._new_places() if place.end > self._offset]
        for batch in _batches(places):
            for place, data in zip(batch, self._read(batch), strict=True):
                self._last = place
                if data:
                    yield from self._taken(place, data)
        self._held.clear()

    def read_rest(self) -> Iterator[Piece]:
        """The same of an epoch that has ended, and then what was dropped at its end."""
        yield from self.read_new()
        account = find_log_account(self._repo, self._job_id, self._epoch)
        if account is not None and account.written > self._offset:
            yield self._gap_up_to(account.written, at_end=True)

    def _new_places(self) -> list[SegmentPlace]:
        """A listing of a directory may show a name and miss an older one that appeared while it
        was made: a gap is believed when a second listing shows it too."""
        places = self._listed()
        if _adjoin(places, self._offset):
            return places
        newest = places[-1].offset
        return [place for place in self._listed() if place.offset <= newest]

    def _listed(self) -> list[SegmentPlace]:
        return segment_places(self._repo, self._job_id, self._epoch, after=self._last)

    def _taken(self, place: SegmentPlace, data: bytes) -> Iterator[Piece]:
        """Counted as given before it is: whoever goes on after an error repeats nothing."""
        if place.offset > self._offset:
            yield self._gap_up_to(place.offset)
        new = data[self._offset - place.offset :]
        self._offset += len(new)
        yield new

    def _gap_up_to(self, offset: int, *, at_end: bool = False) -> Gap:
        gap = Gap(offset - self._offset, at_end)
        self._offset = offset
        return gap

    def _find_tail(self, places: list[SegmentPlace], lines: int) -> tuple[int, int]:
        """Where the last lines begin, and how many are missing. Reads from the end, as far as
        need be."""
        end = places[-1].end
        if lines <= 0:
            return end, 0
        for batch in _batches(reversed(places)):
            for place, data in zip(batch, self._read(batch), strict=True):
                if data is None:
                    continue
                self._hold(place, data)
                at = len(data) - (place.end == end)  # a last line feed begins no line
                while lines and (at := data.rfind(b"\n", 0, at)) >= 0:
                    lines -= 1
                if not lines:
                    return place.offset + at + 1, 0
        return self._offset, lines - 1  # the first line has no line feed before it

    def _hold(self, place: SegmentPlace, data: bytes) -> None:
        """For the reads that follow. Beyond its limit the oldest that was read goes first, which
        is the one that they need last."""
        self._held[place.offset] = data
        held_bytes = sum(map(len, self._held.values()))
        while held_bytes > _HELD_BYTES_MAX:
            held_bytes -= len(self._held.pop(next(iter(self._held))))

    def _read(self, batch: list[SegmentPlace]) -> list[bytes | None]:
        return self._repo.tasks.map(self._read_one, batch, limit=PARALLEL_REQUESTS)

    def _read_one(self, place: SegmentPlace) -> bytes | None:
        """None when it has been deleted since it was listed."""
        held = self._held.pop(place.offset, None)
        if held is not None:
            return held
        try:
            return self._repo.store.get(
                keys.log_segment(self._job_id, self._epoch, place.offset)
            ).data
        except NotFound:
            return None


def find_log_account(repo: Repository, job_id: str, epoch: int) -> LogAccount | None:
    """What the holder said at the end of an epoch; None when it said nothing that can be read."""
    try:
        manifest = repo.find(Manifest, keys.output_manifest(job_id, epoch))
    except Unreadable:
        return None
    return manifest.value.log if manifest is not None else None


def epochs_with_log(repo: Repository, job_id: str) -> list[int]:
    """Which epochs left a log, ascending."""
    found = set()
    for entry in walk(repo.store, keys.log_folder(job_id)):
        parsed = keys.parse_log_segment(entry.key)
        if parsed is not None:
            found.add(parsed[0])
    return sorted(found)


def _adjoin(places: list[SegmentPlace], offset: int) -> bool:
    """Whether there is no gap before or between them, from an offset on."""
    for place in places:
        if place.offset > offset:
            return False
        offset = max(offset, place.end)
    return True


def _batches(places: Iterable[SegmentPlace]) -> Iterator[list[SegmentPlace]]:
    """What is read at once: a few MiB."""
    batch: list[SegmentPlace] = []
    size = 0
    for place in places:
        if batch and (len(batch) == PARALLEL_REQUESTS or size + place.size > _BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(place)
        size += place.size
    if batch:
        yield batch
