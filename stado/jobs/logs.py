"""The log of one epoch, as anybody reads it: from segments while it grows, from blocks once it is
complete, and from both in between. What is read is the same.

Bytes go in and come out unchanged; who shows them decides how to decode.
"""

from __future__ import annotations

import bisect
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256

from stado.core import keys
from stado.core.records import LogAccount, LogIndex, Manifest
from stado.errors import NotFound, Unreadable
from stado.jobs.log_segments import (
    LogListing,
    SegmentPlace,
    find_log_index,
    list_log,
    uncovered,
)
from stado.jobs.repository import PARALLEL_REQUESTS, Repository

log = logging.getLogger(__name__)

_MIB = 1024 * 1024
_BATCH_BYTES_MAX = 4 * _MIB
_HELD_BYTES_MAX = 8 * _MIB

_WINDOW_BYTES_MIN = 64 * 1024
_WINDOW_GROWTH = 4
"""The search for the last lines reads so many bytes from the end, then so many times as many."""

_TIMES_MAX = 40_000


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes that were printed between two pieces of a log, or after the last, and dropped."""

    size: int
    at_end: bool = False
    """Whether nothing follows."""
    damaged: bool = False
    """Whether they were stored, and the store does not have them any more as they were."""

    @property
    def text(self) -> str:
        """For people."""
        if self.damaged:
            are = "byte of the log is" if self.size == 1 else "bytes of the log are"
            return f"{self.size:,} {are} damaged in the store, and not shown here"
        were = "byte of the log was" if self.size == 1 else "bytes of the log were"
        return f"{self.size:,} {were} dropped here" + (", at its end" if self.at_end else "")


Piece = bytes | Gap
"""What a log consists of."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Bytes of a log that lie one after another in one object."""

    key: str
    offset: int
    size: int
    start: int = 0
    """In the object."""
    segment: SegmentPlace | None = None
    """Where it is one, or a part of one."""
    block: int | None = None
    """Which one it is a part of."""

    @property
    def end(self) -> int:
        return self.offset + self.size

    @property
    def is_whole(self) -> bool:
        return self.segment is not None and self.size == self.segment.size

    def from_offset(self, offset: int) -> _Stretch:
        """What of it does not lie before."""
        cut = max(0, offset - self.offset)
        return replace(self, offset=self.offset + cut, size=self.size - cut, start=self.start + cut)

    def last(self, size: int) -> _Stretch:
        """So many bytes of it."""
        return self.from_offset(self.end - size)

    def without_last(self, size: int) -> _Stretch:
        return replace(self, size=self.size - size)


class LogReader:
    """Reads one epoch's log from the beginning, from an offset, from an instant, or from near its
    end, and then what comes; each byte once.

    Segments of the middle may be deleted while one reads: what is gone is a gap, unless it is in
    an index by then. Holds a few MiB at most, whatever the size of the log."""

    def __init__(self, repo: Repository, job_id: str, epoch: int, *, offset: int = 0) -> None:
        self._repo = repo
        self._job_id = job_id
        self._epoch = epoch
        self._offset = offset
        self._last: SegmentPlace | None = None
        """Behind it the listings begin."""
        self._index: LogIndex | None = None
        self._damaged_to = 0
        """From our offset on all is damaged up to there."""
        self._held: dict[int, bytes] = {}
        """What the search for the last lines has read, by offset."""
        self._times: list[tuple[int, datetime]] = []

    @property
    def offset(self) -> int:
        """Of the first byte that has not been given yet, in all that the epoch printed."""
        return self._offset

    def find_time(self, offset: int) -> datetime | None:
        """When what lies there was printed, at the latest; of what has been listed. To the second
        or somewhat coarser from an index, else to the age of a segment."""
        at = bisect.bisect_right(self._times, offset, key=lambda time: time[0]) - 1
        return self._times[at][1] if at >= 0 else None

    def skip_to_tail(self, lines: int, *, bytes_max: int | None = None) -> int:
        """Later reads begin with the last lines that are there now; how many fewer there are. A
        line ends with a line feed: a progress bar that returns to its beginning is one line. Of
        lines that have more than `bytes_max` together, with the last bytes of them."""
        stretches = self._present_stretches()
        if not stretches:
            return lines
        self._offset, missing = self._find_tail(stretches, lines, bytes_max)
        self._pass_what_lies_before(stretches)
        return missing

    def skip_to_time(self, since: datetime) -> None:
        """Later reads begin with what was printed then, as far as that can be told: not later."""
        stretches = self._present_stretches()
        later = (offset for offset, at in self._times if at >= since)
        end = stretches[-1].end if stretches else self._offset
        self._offset = max(self._offset, next(later, end))
        self._pass_what_lies_before(stretches)

    def read_new(self) -> Iterator[Piece]:
        """What has come since the last call, in order. A listing (two where there is a gap), and
        a read for each segment, or each MiB of blocks."""
        for batch in _batches(self._new_stretches()):
            found = self._read(batch)
            if None in found and self._finds_index():
                yield from self.read_new()  # what vanished is there now
                return
            for stretch, data in zip(batch, found, strict=True):
                self._last = stretch.segment or self._last
                if data:
                    yield from self._damage()
                    yield from self._taken(stretch, data)
                elif data is None and stretch.block is not None:
                    yield from self._note_damage(stretch)
        yield from self._damage()
        self._held.clear()

    def read_rest(self) -> Iterator[Piece]:
        """The same of an epoch that has ended, and then what was dropped at its end."""
        index = self._index
        yield from self.read_new()
        if self._finds_index() or self._index is not index:
            yield from self.read_new()
        account = find_log_account(self._repo, self._job_id, self._epoch)
        if account is not None and account.written > self._offset:
            yield self._gap_up_to(account.written, at_end=True)

    # --- what there is ------------------------------------------------------------------

    def _present_stretches(self) -> list[_Stretch]:
        """A listing can miss a new index and what is deleted for it."""
        stretches = self._new_stretches()
        return self._new_stretches() if self._finds_index() else stretches

    def _new_stretches(self) -> list[_Stretch]:
        """A listing of a directory may show a name and miss an older one that appeared while it
        was made: a gap is believed when a second listing shows it too."""
        stretches = self._listed()
        if _adjoin(stretches, self._offset):
            return stretches
        newest, again = stretches[-1].offset, self._listed()
        if self._index is not None:
            return again
        return [stretch for stretch in again if stretch.offset <= newest]

    def _listed(self) -> list[_Stretch]:
        listing = list_log(self._repo, self._job_id, self._epoch, after=self._last)
        if listing.indexed:
            self._finds_index()
        self._note_times(listing)
        segments = uncovered(self._index, listing.segments)
        stretches = [*self._in_blocks(), *map(self._of_segment, segments)]
        return [
            stretch.from_offset(self._offset)
            for stretch in sorted(stretches, key=lambda stretch: stretch.offset)
            if stretch.end > self._offset
        ]

    def _finds_index(self) -> bool:
        """Whether there is one that was not known. One read, if so or not."""
        if self._index is not None:
            return False
        self._index = find_log_index(self._repo, self._job_id, self._epoch)
        if self._index is None:
            return False
        self._times = [(time.offset, _instant(time.ms)) for time in self._index.times]
        return True

    def _of_segment(self, place: SegmentPlace) -> _Stretch:
        key = keys.log_segment(self._job_id, self._epoch, place.offset)
        return _Stretch(key, place.offset, place.size, segment=place)

    def _in_blocks(self) -> Iterator[_Stretch]:
        """What the index has from our offset on, a MiB at a time, or what has one digest."""
        index, before = self._index, 0
        step = max(_MIB, index.digest_bytes) if index is not None else _MIB
        for one in index.ranges if index is not None else ():
            offset = max(one.offset, self._offset)
            while index is not None and offset < one.end:
                part, start = divmod(before + offset - one.offset, index.block_bytes)
                size = min(step - start % step, one.end - offset, index.block_bytes - start)
                key = keys.log_block(self._job_id, self._epoch, index.token, part)
                yield _Stretch(key, offset, size, start, block=part)
                offset += size
            before += one.size

    def _note_times(self, listing: LogListing) -> None:
        known = self._times[-1][0] if self._times else -1
        for place in uncovered(self._index, listing.segments):
            if place.stored_at is not None and place.offset > known:
                self._times.append((place.offset, place.stored_at))
        del self._times[:-_TIMES_MAX]

    def _pass_what_lies_before(self, stretches: list[_Stretch]) -> None:
        """Nothing is listed again that lies before our offset."""
        for stretch in stretches:
            if stretch.end > self._offset:
                return
            self._last = stretch.segment or self._last

    # --- reading ------------------------------------------------------------------------

    def _taken(self, stretch: _Stretch, data: bytes) -> Iterator[Piece]:
        """Counted as given before it is: whoever goes on after an error repeats nothing."""
        if stretch.offset > self._offset:
            yield self._gap_up_to(stretch.offset)
        new = data[self._offset - stretch.offset :]
        self._offset += len(new)
        if new:
            yield new

    def _note_damage(self, stretch: _Stretch) -> Iterator[Piece]:
        """What adjoins is told as one."""
        if stretch.offset > max(self._offset, self._damaged_to):
            yield from self._damage()
            yield self._gap_up_to(stretch.offset)
        self._damaged_to = stretch.end

    def _damage(self) -> Iterator[Piece]:
        if self._damaged_to > self._offset:
            yield replace(self._gap_up_to(self._damaged_to), damaged=True)

    def _gap_up_to(self, offset: int, *, at_end: bool = False) -> Gap:
        gap = Gap(offset - self._offset, at_end)
        self._offset = offset
        return gap

    def _find_tail(
        self, stretches: list[_Stretch], lines: int, bytes_max: int | None
    ) -> tuple[int, int]:
        """Where the last lines begin, and how many are missing. Reads from the end, as far as
        need be."""
        end, wanted = stretches[-1].end, lines
        first = self._offset if bytes_max is None else max(self._offset, end - bytes_max)
        if lines <= 0:
            return end, 0
        for batch in _windows_from_the_end(stretches):
            found = self._read(batch)
            if None in found and self._finds_index():
                return self._find_tail(self._new_stretches(), wanted, bytes_max)
            for stretch, data in zip(batch, found, strict=True):
                if data is None:
                    continue
                self._hold(stretch, data)
                at = len(data) - (stretch.end == end)  # a last line feed begins no line
                while lines and (at := data.rfind(b"\n", 0, at)) >= 0:
                    lines -= 1
                if not lines:
                    return max(first, stretch.offset + at + 1), 0
                if stretch.offset <= first > self._offset:
                    return first, 0
        return self._offset, lines - 1  # the first line has no line feed before it

    def _hold(self, stretch: _Stretch, data: bytes) -> None:
        """For the reads that follow. Beyond its limit the oldest that was read goes first, which
        is the one that they need last."""
        self._held[stretch.offset] = data
        held_bytes = sum(map(len, self._held.values()))
        while held_bytes > _HELD_BYTES_MAX:
            held_bytes -= len(self._held.pop(next(iter(self._held))))

    def _find_held(self, stretch: _Stretch) -> bytes | None:
        """The bytes of a stretch, if all of them are held."""
        same = self._held.get(stretch.offset)
        if same is None and not self._held:
            return None
        if same is not None and len(same) == stretch.size:
            return same
        parts, position = [], stretch.offset
        for offset in sorted(self._held):
            data = self._held[offset]
            if offset <= position < offset + len(data):
                parts.append(data[position - offset : stretch.end - offset])
                position += len(parts[-1])
        return b"".join(parts) if position == stretch.end else None

    def _read(self, batch: list[_Stretch]) -> list[bytes | None]:
        return self._repo.tasks.map(self._read_one, batch, limit=PARALLEL_REQUESTS)

    def _read_one(self, stretch: _Stretch) -> bytes | None:
        """None when it has been deleted since it was listed, or is not what the index knows."""
        held = self._find_held(stretch)
        if held is not None:
            return held
        store, index = self._repo.store, self._index
        try:
            if stretch.block is not None and index is not None and index.digest_bytes:
                return self._read_pieces(stretch, stretch.block, index)
            if stretch.is_whole:
                return store.get(stretch.key).data
            return store.get_range(stretch.key, stretch.start, stretch.size)
        except NotFound:
            return None

    def _read_pieces(self, stretch: _Stretch, block: int, index: LogIndex) -> bytes | None:
        """Of a block, with what else is in pieces that have a digest. None: they are not whole."""
        size = index.digest_bytes
        first = stretch.start // size
        start, before = first * size, block * index.block_bytes
        behind = -(-(stretch.start + stretch.size) // size) * size
        length = min(behind, index.held_bytes - before) - start
        data = self._repo.store.get_range(stretch.key, start, length)
        found = [sha256(data[at : at + size]).hexdigest() for at in range(0, length, size)]
        first += before // size
        if found != index.digests[first : first + len(found)]:
            log.warning("event=log_damaged key=%s start=%d", stretch.key, start)
            return None
        return data[stretch.start - start :][: stretch.size]


def find_log_account(repo: Repository, job_id: str, epoch: int) -> LogAccount | None:
    """What the holder said at the end of an epoch; None when it said nothing that can be read."""
    try:
        manifest = repo.find(Manifest, keys.output_manifest(job_id, epoch))
    except Unreadable:
        return None
    return manifest.value.log if manifest is not None else None


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _adjoin(stretches: list[_Stretch], offset: int) -> bool:
    """Whether there is no gap before or between them, from an offset on."""
    for stretch in stretches:
        if stretch.offset > offset:
            return False
        offset = max(offset, stretch.end)
    return True


def _batches(stretches: Iterable[_Stretch]) -> Iterator[list[_Stretch]]:
    """What is read at once: a few MiB."""
    batch: list[_Stretch] = []
    size = 0
    for stretch in stretches:
        if batch and (len(batch) == PARALLEL_REQUESTS or size + stretch.size > _BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(stretch)
        size += stretch.size
    if batch:
        yield batch


def _windows_from_the_end(stretches: list[_Stretch]) -> Iterator[list[_Stretch]]:
    """What is read at once, the last first: little, then more and more. A large stretch is cut."""
    batch: list[_Stretch] = []
    window, size = _WINDOW_BYTES_MIN, 0
    for stretch in reversed(stretches):
        rest = stretch
        while rest.size:
            full = size + rest.size > window or len(batch) == PARALLEL_REQUESTS
            if batch and full:
                yield batch
                window, batch, size = min(window * _WINDOW_GROWTH, _BATCH_BYTES_MAX), [], 0
            part = rest.last(min(rest.size, window))
            batch.append(part)
            size += part.size
            rest = rest.without_last(part.size)
    if batch:
        yield batch
