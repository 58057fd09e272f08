"""The ledger, read and kept: what ended epochs used, out of the folder where each has a name of its
own, into segments that the index names.

Compaction is a coordinator's pass. It creates a segment, replaces the index by version, and deletes
the names that the segment has, in this order: a crash leaves a segment that nobody names (for the
sweep), or names that a segment has (for the next turn), and nothing is missing or counts twice.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from stado.core import keys
from stado.core.documents import decode
from stado.core.ledger import (
    SEGMENT_ROWS_MAX,
    SEGMENTS_MAX,
    LedgerIndex,
    SegmentRef,
    decode_segment,
    encode_segment,
    in_order,
    open_segment,
    segment_of,
)
from stado.core.usage import Use, instant, is_understood, parse_use
from stado.errors import Conflict, NotFound, NotModified, Unavailable, Unreadable
from stado.jobs.repository import PARALLEL_REQUESTS, Repository, Stored
from stado.storage.port import LIST_LIMIT_MAX, Entry, walk

log = logging.getLogger(__name__)

EVER_MS = 10**13
_NAMES_MAX = 10_000_000
"""That wait for a segment: so many come together where no coordinator runs for very long."""

_SEGMENTS_KEPT = 8
"""In memory, of those that were read last: a coordinator looks at the newest again and again."""

_LOOKED_INTO_MAX = 20
"""Segments that one turn reads to see whether they have what came late."""

_COUNTED_MAX = 10_000
_TOKEN_LETTERS = 16
_ROUNDS_MAX = 5
"""A reader begins anew when a segment was written anew meanwhile: once an hour, or less often."""

_GONE = "segments that it names are gone: `stado ledger rebuild`"
_FULL = (
    f"it names {SEGMENTS_MAX} segments, as many as it can, and names wait in {keys.USAGE}: "
    "`stado ledger rebuild` makes fewer, fuller ones"
)


@dataclass(frozen=True, slots=True)
class Pace:
    """When compaction sets in, and how much it does at a time."""

    names_min: int = 200
    leases_max: float = 30.0
    """Or where the oldest name is older than so many leases: an hour by default."""
    pages_max: int = 5
    page_size: int = LIST_LIMIT_MAX
    segment_rows_max: int = SEGMENT_ROWS_MAX
    sweep_leases: float = 30.0
    """Between two looks for segments that nobody names, and how old those are that go."""


PACE = Pace()


# --- reading ------------------------------------------------------------------------------


class Ledger:
    """A deployment's ledger, as one process reads it. Keep it where it is read again and again:
    what did not change is not fetched twice."""

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._index: Stored[LedgerIndex] | None = None
        self._segments: dict[str, list[Use]] = {}

    def index(self) -> Stored[LedgerIndex] | None:
        """None: there is none yet. One conditional read. Raises `Unreadable`."""
        unless = None if self._index is None else self._index.version
        try:
            blob = self._repo.store.get(keys.LEDGER, unless=unless)
        except NotModified:
            return self._index
        except NotFound:
            self._index = None
            return None
        self._index = Stored(decode(LedgerIndex, keys.LEDGER, blob.data), blob.version)
        return self._index

    def write_index(self, index: LedgerIndex, before: Stored[LedgerIndex] | None) -> None:
        """In the place of `before`. Raises `Conflict` where somebody else was first, `Unreadable`
        for one that nobody could read again: that is not written."""
        data = index.encode()
        decode(LedgerIndex, keys.LEDGER, data)
        if before is None:
            version = self._repo.create(keys.LEDGER, index)
            if version is None:
                raise Conflict(keys.LEDGER)
        else:
            version = self._repo.store.replace(keys.LEDGER, data, before.version)
        self._index = Stored(index, version)

    def segment(self, ref: SegmentRef) -> list[Use]:
        """Raises `NotFound`, `Unreadable`."""
        known = self._segments.pop(ref.name, None)
        uses = known if known is not None else self._fetched(ref)
        self._segments[ref.name] = uses
        while len(self._segments) > _SEGMENTS_KEPT:
            del self._segments[next(iter(self._segments))]
        return uses

    def _fetched(self, ref: SegmentRef) -> list[Use]:
        key = keys.ledger_segment(ref.name)
        uses = decode_segment(ref.name, self._repo.store.get(key).data)
        if len(uses) != ref.rows:
            raise Unreadable(key, f"it has {len(uses)} rows, and the index says {ref.rows}")
        return uses

    def segments(self, refs: Sequence[SegmentRef]) -> list[list[Use] | Unreadable]:
        """Of each what is in it, or why that cannot be read. Raises `NotFound`."""
        missing = [ref for ref in refs if ref.name not in self._segments]
        if len(missing) <= 1:
            return [self._tried(ref) for ref in refs]
        fetched = self._repo.tasks.map(self._try_to_fetch, missing, limit=PARALLEL_REQUESTS)
        found = dict(zip((ref.name for ref in missing), fetched, strict=True))
        return [found.get(ref.name) or self._tried(ref) for ref in refs]

    def _tried(self, ref: SegmentRef) -> list[Use] | Unreadable:
        try:
            return self.segment(ref)
        except Unreadable as error:
            return error

    def _try_to_fetch(self, ref: SegmentRef) -> list[Use] | Unreadable:
        try:
            return self._fetched(ref)
        except Unreadable as error:
            return error


@dataclass(slots=True)
class LedgerRead:
    """What ended between two moments, each epoch once."""

    tail: list[Use] = field(default_factory=list)
    """Of which no segment that was read has one."""
    segments: list[list[Use]] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    """Keys of what cannot be read: of what they have nothing is here."""
    left_from_ms: int | None = None
    """From when on something may be missing, since only so many segments were to be read."""

    def uses(self) -> Iterator[Use]:
        """In no order."""
        seen = {use.name for use in self.tail}
        yield from self.tail
        for rows in self.segments:
            for use in rows:
                name = use.name
                if name not in seen:
                    seen.add(name)
                    yield use


def read_uses(
    ledger: Ledger,
    repo: Repository,
    *,
    from_ms: int,
    until_ms: int = EVER_MS,
    segments_max: int = SEGMENTS_MAX,
    names_max: int = _NAMES_MAX,
) -> LedgerRead:
    """What has ended between these moments, and maybe more before and after. Requests: a listing
    (a page each 1,000 names that no segment has), a read, and one for each segment that reaches
    into that time; `segments_max` of those that begin after `from_ms`, and `names_max` names.
    Raises `Unreadable` where the index is."""
    for _ in range(_ROUNDS_MAX):
        names = walk(repo.store, keys.USAGE, start_after=keys.usage(f"{max(0, from_ms):013d}"))
        entries = list(itertools.islice(names, names_max))
        tail = _named(entries)
        stored = ledger.index()
        refs, left_from_ms = _reaching(stored, from_ms, until_ms, segments_max)
        if len(entries) == names_max and tail:
            last_ms = max(use.ended_ms for use in tail.values())
            left_from_ms = min(last_ms, EVER_MS if left_from_ms is None else left_from_ms)
        try:
            found = ledger.segments(refs)
        except NotFound:  # it was written anew since the index was read
            continue
        unreadable = [each.key for each in found if isinstance(each, Unreadable)]
        segments = [each for each in found if not isinstance(each, Unreadable)]
        return LedgerRead(list(tail.values()), segments, unreadable, left_from_ms)
    raise Unavailable(keys.LEDGER, _GONE)


def _named(entries: Iterable[Entry]) -> dict[tuple[str, int], Use]:
    """An epoch that has two names, as from two versions of the program, counts once."""
    uses: dict[tuple[str, int], Use] = {}
    for entry in entries:
        use = parse_use(entry.key.rpartition("/")[2])
        if use is not None:
            uses.setdefault(use.name, use)
    return uses


def _reaching(
    stored: Stored[LedgerIndex] | None, from_ms: int, until_ms: int, segments_max: int
) -> tuple[list[SegmentRef], int | None]:
    if stored is None:
        return [], None
    refs = [ref for ref in stored.value.segments if ref.reaches(from_ms, until_ms)]
    refs.sort(key=lambda ref: ref.first_ms)
    needed = sum(ref.first_ms <= from_ms for ref in refs) + segments_max
    left = refs[needed:]
    return refs[:needed], left[0].first_ms if left else None


@dataclass(frozen=True, slots=True)
class LedgerSight:
    """How much there is."""

    segments: int
    rows: int
    first: datetime | None
    """When the first of them ended; None: there are none."""
    last: datetime | None
    waiting: int
    """Names that no segment has taken."""
    more: bool
    """Whether there are more of them than were counted."""


def look_at_ledger(repo: Repository) -> LedgerSight:
    """A read, and up to ten pages of names. Raises `Unreadable`."""
    entries = itertools.islice(walk(repo.store, keys.USAGE), _COUNTED_MAX + 1)
    waiting = sum(1 for _ in entries)
    stored = Ledger(repo).index()
    refs = [] if stored is None else stored.value.segments
    return LedgerSight(
        segments=len(refs),
        rows=sum(ref.rows for ref in refs),
        first=instant(min(ref.first_ms for ref in refs)) if refs else None,
        last=instant(max(ref.last_ms for ref in refs)) if refs else None,
        waiting=min(waiting, _COUNTED_MAX),
        more=waiting > _COUNTED_MAX,
    )


# --- compaction ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What one turn did."""

    taken: int = 0
    """Uses that a segment has since."""
    deleted: int = 0
    """Names."""
    behind: bool = False
    """Whether there is more to do at once."""


class Compaction:
    """The pass. Keep it between ticks. Any number may run at once: the index decides."""

    def __init__(
        self, repo: Repository, *, by: str, ledger: Ledger | None = None, pace: Pace = PACE
    ) -> None:
        self._repo = repo
        self._by = by
        self._ledger = ledger or Ledger(repo)
        self._pace = pace
        self._sweep_at = float("-inf")
        self._after = ""
        """The key that the next turn lists from: what was looked at before it, and is still
        there, may not be taken for now. From the beginning again once the end was reached."""

    def turns(self, seconds: float) -> CompactionReport:
        """Turns until there is nothing to take, for so long at most: what is left, the next call
        goes on with."""
        until = self._repo.clock.monotonic() + seconds
        taken = deleted = 0
        while True:
            report = self.turn()
            taken, deleted = taken + report.taken, deleted + report.deleted
            if not report.behind or self._repo.clock.monotonic() >= until:
                return CompactionReport(taken, deleted, report.behind)

    def turn(self) -> CompactionReport:
        """Requests where there is little: a listing. Else pages of names, five at most; the
        index; up to 20 segments; a create, a replace, and a delete for each name, 5,000 at most.
        Raises `Unavailable` where the index has no room, or names segments that are gone."""
        self._sweep_when_due()
        entries, more = self._listed()
        uses = self._understood(entries)
        if not uses or not self._is_due(len(uses), min(use.ended_ms for use in uses.values())):
            return self._went_on(entries[-1] if more else None)
        stored = self._ledger.index()
        index = None if stored is None else stored.value
        try:
            looked_at, held, left = self._held(index, uses)
        except NotFound:
            if self._ledger.index() is stored:
                raise Unavailable(keys.LEDGER, _GONE) from None
            return CompactionReport(behind=True)  # somebody wrote it and a segment anew
        chosen = {key: uses[key] for key in looked_at}
        fresh: dict[tuple[str, int], Use] = {}
        for use in chosen.values():
            if use.name not in held:
                fresh.setdefault(use.name, use)
        if fresh and not self._take(stored, list(fresh.values())):
            return CompactionReport(behind=True)
        self._repo.tasks.map(self._forget, list(chosen), limit=PARALLEL_REQUESTS)
        return self._went_on(left or (entries[-1] if more else None), len(fresh), len(chosen))

    def _went_on(self, after: str | None, taken: int = 0, deleted: int = 0) -> CompactionReport:
        """`after`: up to where names were looked at; None: to the end."""
        self._after = after or ""
        return CompactionReport(taken, deleted, behind=after is not None)

    def _listed(self) -> tuple[list[str], bool]:
        found: list[str] = []
        for _ in range(self._pace.pages_max):
            after = found[-1] if found else self._after
            page = self._repo.store.list(keys.USAGE, start_after=after, limit=self._pace.page_size)
            found += [entry.key for entry in page]
            if len(page) < self._pace.page_size:
                return found, False
        return found, True

    def _understood(self, entries: list[str]) -> dict[str, Use]:
        """By key. What a newer program wrote stays where it is: a segment would forget some."""
        uses: dict[str, Use] = {}
        for key in entries:
            name = key.rpartition("/")[2]
            use = parse_use(name)
            if use is not None and is_understood(name, use):
                uses[key] = use
        return uses

    def _is_due(self, names: int, oldest_ms: int) -> bool:
        age_ms = 1000 * self._pace.leases_max * self._repo.deployment.lease_seconds
        return names >= self._pace.names_min or oldest_ms <= self._repo.now_ms() - age_ms

    def _held(
        self, index: LedgerIndex | None, uses: dict[str, Use]
    ) -> tuple[list[str], set[tuple[str, int]], str | None]:
        """The keys of which we know whether a segment has them, the epochs that one has, and the
        last key that was looked at; None: all of them were."""
        refs = [] if index is None else index.segments
        looked_into: dict[str, SegmentRef] = {}
        chosen: list[str] = []
        for key, use in uses.items():
            over = [ref for ref in refs if ref.reaches(use.ended_ms, use.ended_ms)]
            wider = looked_into | {ref.name: ref for ref in over}
            if chosen and len(wider) > _LOOKED_INTO_MAX:
                break
            looked_into = wider
            chosen.append(key)
        found = self._ledger.segments(list(looked_into.values()))
        held: set[tuple[str, int]] = set()
        dark: list[SegmentRef] = []
        for ref, each in zip(looked_into.values(), found, strict=True):
            if isinstance(each, Unreadable):
                self._repo.tell_unreadable(each)
                dark.append(ref)
            else:
                held.update(use.name for use in each)
        clear = [key for key in chosen if not _is_over(dark, uses[key])]
        return clear, held, chosen[-1] if len(chosen) < len(uses) else None

    def _take(self, stored: Stored[LedgerIndex] | None, fresh: list[Use]) -> bool:
        """Whether a segment that the index names has them now."""
        index = None if stored is None else stored.value
        last = open_segment(index, more=len(fresh), rows_max=self._pace.segment_rows_max)
        before = self._read_again(last)
        replaced = last if before is not None else None
        kept = [] if index is None else [each for each in index.segments if each is not replaced]
        if len(kept) >= SEGMENTS_MAX:
            raise Unavailable(keys.LEDGER, _FULL)
        rows = in_order([*fresh, *(before or ())])
        ref = segment_of(rows, token=self._repo.entropy.letters(_TOKEN_LETTERS))
        key = keys.ledger_segment(ref.name)
        self._repo.store.create(key, encode_segment(rows))
        try:
            self._write(stored, [*kept, ref])
        except Conflict:
            self._repo.store.delete(key, None)
            return False
        if replaced is not None:
            self._repo.store.delete(keys.ledger_segment(replaced.name), None)
        return True

    def _read_again(self, last: SegmentRef | None) -> list[Use] | None:
        """None: there is none to write anew."""
        if last is None:
            return None
        (found,) = self._ledger.segments([last])
        return None if isinstance(found, Unreadable) else found

    def _write(self, stored: Stored[LedgerIndex] | None, segments: list[SegmentRef]) -> None:
        self._ledger.write_index(next_index(self._repo, stored, segments, by=self._by), stored)

    def _forget(self, key: str) -> None:
        self._repo.store.delete(key, None)

    # --- segments that nobody names -------------------------------------------------------

    def _sweep_when_due(self) -> None:
        now = self._repo.clock.monotonic()
        if now >= self._sweep_at:
            self._sweep_at = now + self._pace.sweep_leases * self._repo.deployment.lease_seconds
            self.sweep()

    def sweep(self) -> int:
        """Deletes segments that the index does not name, and how many. Before it does, it writes
        the index anew: who has created one of them and is slow finds that out, and names none."""
        age = timedelta(seconds=self._pace.sweep_leases * self._repo.deployment.lease_seconds)
        stored = self._ledger.index()
        named = {ref.name for ref in stored.value.segments} if stored is not None else set()
        old = [
            entry.key
            for entry in walk(self._repo.store, keys.LEDGER_SEGMENTS)
            if entry.key.rpartition("/")[2] not in named
            and self._repo.now() - entry.modified_at > age
        ]
        if not old:
            return 0
        try:
            self._write(stored, [] if stored is None else stored.value.segments)
        except Conflict:
            return 0
        for key in old[:LIST_LIMIT_MAX]:
            self._repo.store.delete(key, None)
        log.info("event=ledger_swept segments=%d", len(old))
        return len(old)


def next_index(
    repo: Repository, stored: Stored[LedgerIndex] | None, segments: list[SegmentRef], *, by: str
) -> LedgerIndex:
    """The one that follows."""
    return LedgerIndex(
        counter=1 if stored is None else stored.value.counter + 1,
        at=repo.now(),
        by=by,
        segments=segments,
    )


def _is_over(refs: Iterable[SegmentRef], use: Use) -> bool:
    return any(ref.reaches(use.ended_ms, use.ended_ms) for ref in refs)
