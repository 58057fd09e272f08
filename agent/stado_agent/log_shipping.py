"""From the spool of a command's output into segments in the store.

Segments end with their lines; bytes are never changed. Of a log beyond its limit the store keeps
the beginning and the end, too: as the end moves on, what lies between is deleted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from stado.core.records import LogAccount, LogRange
from stado.errors import Ambiguous, Exists
from stado.jobs.followers import FollowerSight
from stado.jobs.log_segments import (
    SegmentPlace,
    delete_segment,
    find_log_index,
    list_log,
    uncovered,
    write_segment,
)
from stado.jobs.repository import Repository
from stado_agent.log_spool import LogLimit, LogSpool, Piece

_INTERVAL_SECONDS_MIN = 1.0
_FOLLOWED_SECONDS = 2.0
"""Between segments that somebody waits for."""

_INTERVAL_SECONDS_MAX = 120.0
"""So much of a log that nobody follows is lost with a host, at most."""

_INTERVAL_SHARE = 1 / 2
"""Of the job's age, where nobody follows: its first seconds are prompt, its first hour costs few
segments more than each later one."""

_NEWCOMERS_SHARE = 1 / 4
"""Of the time between two segments in which nobody new is looked for: they have just been given
all there was."""

_FULL_SECONDS = 10.0
"""Between full segments: little is lost with a host."""

_SEGMENTS_A_TURN = 8

_LINE_ENDS = (b"\n", b"\r")
"""A progress bar's return counts as one."""

_FIRST_LINE_END = re.compile(rb"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class LogEpoch:
    """Whose log it is, and where in the spool it begins."""

    job_id: str
    epoch: int
    base: int = 0
    """Offset in the spool of the first byte that belongs to the epoch: an adopted command has
    printed before."""


class LogShipper:
    """Ships one job's log. Not shared between threads: who ships the rest has stopped whoever
    shipped before."""

    def __init__(self, repo: Repository, spool: LogSpool, limit: LogLimit, of: LogEpoch) -> None:
        self._repo = repo
        self._spool = spool
        self._limit = limit
        self._of = of
        self._position = of.base
        """All that was printed before it is shipped, or will never be."""
        self._torn = False
        """Whether `_position` lies in the middle of a line whose beginning is gone."""
        self._stored: list[SegmentPlace] = []
        self._compacted: Sequence[LogRange] = ()
        """What somebody else has put together of this epoch, whose holder seemed to be gone."""
        self._unclear = False
        """Whether a write or a deletion had no answer, or met an earlier one of ours that had none:
        then the store is asked what it has."""
        self._may_land_end = of.base
        """Where in the spool what was written without an answer ends."""
        self._began = self._shipped_at = repo.clock.monotonic()
        self._followers = FollowerSight(repo, of.job_id)

    @property
    def of(self) -> LogEpoch:
        return self._of

    @property
    def segments(self) -> int:
        """In the store, as far as we know."""
        return len(self._stored)

    def begin_epoch(self, epoch: int) -> LogEpoch:
        """What has not been shipped yet belongs to this epoch."""
        self._of = LogEpoch(self._of.job_id, epoch, self._position)
        self._stored, self._compacted, self._unclear = [], (), False
        self._spool.keep_head_from(self._position)
        return self._of

    @property
    def unclear(self) -> bool:
        """Whether the store has, or may come to have, more than we know: to be made clear before an
        epoch begins that would ship the same again."""
        return self._unclear or self._may_land_end > self._position

    def make_clear(self) -> None:
        """What may still land is written again, as it was: then its key is taken, and it lands no
        more. Of what the spool has dropped since, the rest is written, so that it belongs to this
        epoch whether the whole lands or not. A listing, and mostly one write."""
        self.go_on()
        try:
            while self._write_what_may_land():
                pass
        except Exists:  # it has just landed
            self.go_on()
        self._may_land_end = self._position

    def _write_what_may_land(self) -> bool:
        """Whether there was any of it behind `_position`."""
        piece = self._spool.read(self._position, bytes_max=self._limit.piece_bytes)
        data = piece.data[: max(0, self._may_land_end - piece.offset)]
        if data:
            self._write(piece.offset, data)
        return bool(data)

    def go_on(self) -> None:
        """Takes up where another shipper of this epoch left off, or where an unclear answer left
        us. One listing."""
        job_id, epoch = self._of.job_id, self._of.epoch
        listing = list_log(self._repo, job_id, epoch)
        index = find_log_index(self._repo, job_id, epoch) if listing.indexed else None
        self._stored = uncovered(index, listing.segments)
        self._compacted = index.ranges if index is not None else ()
        self._unclear = False
        ends = (one.end for one in (*self._stored, *self._compacted))
        end = self._of.base + max(ends, default=0)
        if end > self._position:
            self._move_to(end, torn=False)

    def ship_when_due(self) -> bool:
        """Ships whole lines if the last segment is old enough, enough has come, or somebody
        follows. Whether anything was shipped."""
        now = self._repo.clock.monotonic()
        waiting = self._spool.waiting_behind(self._position)
        least = self._least_worth_a_segment(now) if waiting else None
        if least is None or waiting < least:
            return False
        self._shipped_at = now
        shipped = 0
        while shipped < _SEGMENTS_A_TURN and waiting >= least and self._ship_one(final=False):
            shipped += 1
            waiting = self._spool.waiting_behind(self._position)
        return shipped > 0

    def _least_worth_a_segment(self, now: float) -> int | None:
        """Bytes; None: it is too early for any. Asks for followers only where that makes a
        difference: a silent job asks for nothing."""
        passed = now - self._shipped_at
        share = (now - self._began) * _INTERVAL_SHARE
        interval = max(_INTERVAL_SECONDS_MIN, min(_INTERVAL_SECONDS_MAX, share))
        if passed >= interval:
            return 1
        newcomers = passed >= interval * _NEWCOMERS_SHARE
        if passed >= _FOLLOWED_SECONDS and self._followers.anybody(newcomers=newcomers):
            return 1
        return self._limit.piece_bytes if passed >= _FULL_SECONDS else None

    def ship_rest(self) -> LogAccount:
        """Ships all that is kept, and says what became of everything that was printed."""
        if self._unclear:
            self.go_on()
        self._delete_middle()
        self._skip_middle()
        while self._ship_one(final=True):
            pass
        return self.account()

    def account(self) -> LogAccount:
        """As of now: exact once all is shipped."""
        written = self._spool.written - self._of.base
        kept = _bytes_in((*self._stored, *self._compacted))
        return LogAccount(written=written, kept=kept, dropped=written - kept)

    def _skip_middle(self) -> None:
        """Nothing is uploaded that would have to be deleted at once."""
        head_end = self._of.base + self._limit.head_bytes
        tail_start = self._spool.written - self._limit.tail_bytes
        if self._position < head_end < tail_start:
            while self._position < head_end and self._ship_one(final=True):
                pass
        if head_end <= self._position < tail_start:
            self._move_to(tail_start, torn=True)

    def _ship_one(self, *, final: bool) -> bool:
        """Whether there was anything to do. A failure leaves what was not shipped where it was."""
        if self._unclear:
            self.go_on()
        piece = self._spool.read(self._position, bytes_max=self._limit.piece_bytes)
        if not piece.data:
            return False
        full = len(piece.data) >= self._limit.piece_bytes
        torn = (self._torn or piece.offset > self._position) and not piece.begins_line
        half = _half_line(piece, final=final, full=full) if torn else 0
        if half:
            self._move_to(piece.offset + half, torn=not piece.data[:half].endswith(_LINE_ENDS))
            return True
        whole = None if half is None else _whole_lines(piece, final=final, full=full)
        if whole is None:
            return False
        if whole:
            self._write(piece.offset, piece.data[:whole])
        else:
            self._move_to(piece.end, torn=True)
        self._delete_middle()
        return True

    def _write(self, position: int, data: bytes) -> None:
        offset = position - self._of.base
        try:
            with self._noting_unclear_answers():
                write_segment(self._repo, self._of.job_id, self._of.epoch, offset, data)
        except Ambiguous:
            self._may_land_end = max(self._may_land_end, position + len(data))
            raise
        self._stored.append(SegmentPlace(offset, len(data)))
        self._move_to(position + len(data), torn=False)

    @contextmanager
    def _noting_unclear_answers(self) -> Iterator[None]:
        try:
            yield
        except (Ambiguous, Exists):
            self._unclear = True
            raise

    def _move_to(self, position: int, *, torn: bool) -> None:
        self._position, self._torn = position, torn
        self._spool.discard(position)

    def _delete_middle(self) -> None:
        """What lies behind the head and before the tail, down to the limit. A crash leaves some
        of it, which costs room and nothing else."""
        excess = sum(place.size for place in self._stored) - self._limit.total_bytes
        if excess <= 0:
            return
        behind_head = [place for place in self._stored if place.offset >= self._limit.head_bytes]
        for place in behind_head:
            if excess <= 0:
                return
            with self._noting_unclear_answers():
                delete_segment(self._repo, self._of.job_id, self._of.epoch, place.offset)
            self._stored.remove(place)
            excess -= place.size


def _bytes_in(places: Iterable[SegmentPlace | LogRange]) -> int:
    """Those in several of them once."""
    count = end = 0
    for place in sorted(places, key=lambda place: place.offset):
        count += max(0, place.end - max(place.offset, end))
        end = max(end, place.end)
    return count


def _half_line(piece: Piece, *, final: bool, full: bool) -> int | None:
    """How many bytes belong to a line whose beginning is gone: they are left out. 0: it fills a
    segment, and is taken as it comes. None: its end may still come."""
    end = _FIRST_LINE_END.search(piece.data)
    if end is not None:
        return end.end()
    if full:
        return 0
    return len(piece.data) if final or piece.gap_after else None


def _whole_lines(piece: Piece, *, final: bool, full: bool) -> int | None:
    """How many bytes make a segment: whole lines, or as much as there is of a line that fills one.
    0: there is half a line only, and a gap behind it. None: its end may still come."""
    if final and not piece.gap_after and not full:
        return len(piece.data)
    end = max(map(piece.data.rfind, _LINE_ENDS)) + 1
    if end == 0 and full:
        return len(piece.data)
    return end if end > 0 or piece.gap_after else None
