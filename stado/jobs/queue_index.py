"""The order of the queue as names in one folder: read by agents, mended by whoever finds it wrong.

Entries are derived. The queue record is the authority; an entry without a record is ignored.
"""

from __future__ import annotations

import bisect
import itertools
import logging
import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from stado.core import keys, moves
from stado.core.order import ReadyEntry, entry_name, parse_entry
from stado.core.records import Record
from stado.core.states import Opening, State
from stado.errors import Exists, StoreError, Unreadable
from stado.jobs.dependents import look_again
from stado.jobs.endings import (
    finish_intent,
    remove_queued,
    remove_superseded,
    settle,
    settle_open,
)
from stado.jobs.expiry import expire_if_over
from stado.jobs.repository import Cells, Repository
from stado.ports import Entropy
from stado.storage.port import LIST_LIMIT_MAX, Entry, walk

log = logging.getLogger(__name__)

PAGES_MAX = 200
"""Listing pages that one repair looks at: 200,000 names."""

LATER = f"{keys.READY}d"
"""Sorts before every entry that is not due yet, and behind all others."""

_MARKS_MAX = 20
"""Names at the head of the queue among which its newest mark is looked for."""

_FAILURES_MAX = 3
"""Jobs that may fail in one turn before it is the store that fails."""


@dataclass(frozen=True, slots=True)
class Page:
    """The head of the queue, or what follows it."""

    entries: list[ReadyEntry]
    paused: bool
    next_after: str | None
    """Where the following page starts; None at the end of the queue."""


def read_page(repo: Repository, *, start_after: str = "", limit: int = LIST_LIMIT_MAX) -> Page:
    """One listing: a page of the queue in order, and whether the queue is paused (the newest mark
    sorts first, so every reader of the head sees it at no extra request)."""
    listed = repo.store.list(keys.READY, start_after=start_after, limit=limit)
    names = [entry.key.removeprefix(keys.READY) for entry in listed]
    parsed = [parse_entry(name) for name in names]
    return Page(
        entries=[entry for entry in parsed if entry is not None],
        paused=_pause_mark(listed[:_MARKS_MAX]) is not None,
        next_after=listed[-1].key if len(listed) == limit else None,
    )


def queue_paused(repo: Repository) -> bool:
    """One listing."""
    return find_pause_mark(repo) is not None


def find_pause_mark(repo: Repository) -> Entry | None:
    """The mark that pauses the queue, named by who made it; None while it goes on. One listing."""
    return _pause_mark(repo.store.list(keys.READY, limit=_MARKS_MAX))


def mark_queue(repo: Repository, *, paused: bool, by: str) -> None:
    """Pauses or resumes the queue, from the moment on that this is called. The newest mark counts,
    and none is ever written again: one that lands late lies behind those that were made since.

    A listing, a write, and a deletion for each older mark. A crash leaves older marks, which the
    next one deletes."""
    listed = repo.store.list(keys.QUEUE_MARKS, limit=_MARKS_MAX)
    known = (keys.parse_queue_mark(entry.key) for entry in listed)
    newest_ms = max((parsed[0] for parsed in known if parsed is not None), default=-1)
    at_ms = max(repo.now_ms(), newest_ms + 1)
    mark = keys.queue_mark(at_ms, paused=paused)
    with suppress(Exists):  # somebody else said the same in the same millisecond
        repo.store.create(mark, by.encode())
    for entry in listed:
        if entry.key > mark and keys.parse_queue_mark(entry.key) is not None:
            repo.store.delete(entry.key, None)


def _pause_mark(listed: Sequence[Entry]) -> Entry | None:
    """The newest mark in the head of the folder, if it pauses the queue. What others put among the
    marks is passed over."""
    for entry in listed:
        parsed = keys.parse_queue_mark(entry.key)
        if parsed is not None:
            return entry if parsed[1] else None
    return None


def mend_entry(repo: Repository, record: Record, entry: ReadyEntry) -> None:
    """An entry and the queue record it names disagree.

    An entry of a later epoch belongs to a move that is under way: that is finished. One that may
    be ahead of the record stays. Otherwise the right entry is written, then the wrong one
    deleted."""
    if entry.epoch > record.epoch:
        settle(repo, record.id, record.epoch)
        return
    if _may_be_ahead(record, entry):
        return
    repo.create_entry(record)
    repo.store.delete(keys.ready(entry.name), None)


def _may_be_ahead(record: Record, entry: ReadyEntry) -> bool:
    """Whether somebody may be about to write the record that an entry stands for: of a job that
    waits for others the new entry comes first when it is let go."""
    return entry.epoch == record.epoch and bool(record.awaits)


@dataclass(slots=True)
class RepairReport:
    """What one repair found and mended."""

    entries_written: int = 0
    entries_deleted: int = 0
    settled: int = 0
    expired: int = 0
    """Jobs whose time was up while they waited."""
    unreadable: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Jobs at which the store refused something."""

    @property
    def changed(self) -> bool:
        changes = self.entries_written, self.entries_deleted, self.settled, self.expired
        return any(changes)


class _Turns:
    """Takes the next few of names that change a little each time, so that none waits for ever
    behind others that nothing can be done about.

    With `entropy` it begins anywhere: for a process that has one turn only."""

    def __init__(self, size: int, entropy: Entropy | None) -> None:
        self._size = size
        self._entropy = entropy
        self._after = ""

    def take(self, names: list[str]) -> Iterator[str]:
        """`names` are sorted. A turn that ends early is gone on with by the next."""
        if names and self._entropy is not None:
            self._after = names[int(self._entropy.uniform(0, len(names)))]
            self._entropy = None
        first = bisect.bisect_right(names, self._after)
        for name in (names[first:] + names[:first])[: self._size]:
            self._after = name
            yield name


def _alternating(*sources: Iterator[str]) -> Iterator[str]:
    """One name of each in turn, each name once: whoever stops early has begun with all."""
    seen: set[str] = set()
    waiting = deque(sources)
    while waiting:
        source = waiting.popleft()
        name = next(source, None)
        if name is None:
            continue
        waiting.append(source)
        if name not in seen:
            seen.add(name)
            yield name


class Repair:
    """Compares `queue/` with `index/ready/` both ways, and looks at the cells of queued jobs, a
    slice a turn; on the way it ends jobs whose time is up. Any number of repairs may run at once.

    A turn mends for `turn_seconds` at most, by whole jobs. `once`: for a process that makes one
    turn, which then begins anywhere. `by`: whose name is under what it ends."""

    def __init__(
        self,
        repo: Repository,
        *,
        by: str = "repair",
        slice_size: int = 50,
        turn_seconds: float = math.inf,
        once: bool = False,
    ) -> None:
        self._repo = repo
        self._by = by
        self._turn_seconds = turn_seconds
        entropy = repo.entropy if once else None
        self._over = _Turns(slice_size * 4, entropy)
        self._missing = _Turns(slice_size * 4, entropy)
        self._orphans = _Turns(slice_size * 4, entropy)
        self._doubled = _Turns(slice_size * 4, entropy)
        self._queued = _Turns(slice_size, entropy)
        self._ahead: dict[str, float] = {}
        """Entries to which somebody may be about to write the record, and when they were first
        seen."""

    def turn(self) -> RepairReport:
        """The index is listed before the queue: an entry is written before its record, so that
        an entry without a record is a slow submitter's, a dead mover's, or out of date."""
        report = RepairReport()
        by_job = self._entries_by_job()
        self._forget_others(by_job)
        queued = self._queued_ids()
        orphans = sorted(by_job.keys() - set(queued))
        missing = [job_id for job_id in queued if job_id not in by_job]
        doubled = [job_id for job_id in queued if len(by_job.get(job_id, [])) > 1]
        now_ms = self._repo.now_ms()
        over = sorted(job_id for job_id in queued if _is_over(by_job.get(job_id, ()), now_ms))
        chosen = _alternating(
            self._over.take(over),
            self._orphans.take(orphans),
            self._missing.take(missing),
            self._doubled.take(doubled),
            self._queued.take(queued),
        )
        end = self._repo.clock.monotonic() + self._turn_seconds
        for job_id in chosen:
            self._mend(job_id, by_job.get(job_id, []), report)
            if self._repo.clock.monotonic() >= end:
                break
        return report

    def _forget_others(self, by_job: dict[str, list[ReadyEntry]]) -> None:
        if self._ahead:
            there = {entry.name for entries in by_job.values() for entry in entries}
            self._ahead = {name: at for name, at in self._ahead.items() if name in there}

    def _entries_by_job(self) -> dict[str, list[ReadyEntry]]:
        by_job: dict[str, list[ReadyEntry]] = defaultdict(list)
        for entry in _bounded(walk(self._repo.store, keys.READY)):
            parsed = parse_entry(entry.key.removeprefix(keys.READY))
            if parsed is not None:
                by_job[parsed.job_id].append(parsed)
        return by_job

    def _queued_ids(self) -> list[str]:
        listed = _bounded(self._repo.walk_records(State.QUEUED))
        return [keys.job_of_record(entry.key) for entry in listed]

    def _mend(self, job_id: str, entries: list[ReadyEntry], report: RepairReport) -> None:
        """One job and the entries that name it. What cannot be read, or is refused, costs this
        job alone; raises when several fail."""
        try:
            queued = self._repo.find_record(State.QUEUED, job_id)
            cells = self._repo.cells(job_id)
            if queued is None:
                self._drop_over(job_id, entries, cells, report)
            elif self._finish(job_id, queued.value.epoch, cells, report):
                return
            elif expire_if_over(self._repo, queued.value, by=self._by):
                report.expired += 1
            else:
                self._correct(queued.value, entries, report)
                look_again(self._repo, queued.value)
        except Unreadable as error:
            report.unreadable.append(error.key)
            self._repo.tell_unreadable(error)
        except StoreError as error:
            log.warning("event=mend_failed job=%s error=%r", job_id, str(error))
            report.failed.append(job_id)
            if len(report.failed) == _FAILURES_MAX:
                raise

    def _drop_over(
        self, job_id: str, entries: list[ReadyEntry], cells: Cells, report: RepairReport
    ) -> None:
        """Entries without a record: those of epochs that wait for nobody are deleted. One whose
        epoch is the next after a verdict, or was opened, is a mover's that died, or its record was
        lost: settling writes it."""
        for entry in entries:
            if self._finish(job_id, entry.epoch, cells, report):
                self._delete(entry, report)
            elif entry.epoch in cells.opens:
                self._go_on_for_opener(entry, report)
            elif cells.highest == entry.epoch - 1 and cells.highest in cells.ends:
                self._settle_before(entry, report)

    def _go_on_for_opener(self, entry: ReadyEntry, report: RepairReport) -> None:
        opened = self._repo.open_cell(entry.job_id, entry.epoch)
        if opened.kind is Opening.DELETE:
            self._delete(entry, report)
            return
        settle_open(self._repo, opened)
        report.settled += 1

    def _settle_before(self, entry: ReadyEntry, report: RepairReport) -> None:
        """Of a job that stays at rest then, somebody is about to open the epoch, or has died over
        it: the entry has a lease. (Who opens it after that is slow, and the record gets its entry
        from us.)"""
        end = settle(self._repo, entry.job_id, entry.epoch - 1)
        if end is None or end.ending.verdict.state is None:
            report.settled += 1
            return
        self._delete_old(entry, report)

    def _delete_old(self, entry: ReadyEntry, report: RepairReport) -> None:
        """Once it has been seen for a lease."""
        now = self._repo.clock.monotonic()
        since = self._ahead.setdefault(entry.name, now)
        if now - since >= self._repo.deployment.lease_seconds:
            self._delete(entry, report)
            del self._ahead[entry.name]

    def _correct(self, record: Record, entries: list[ReadyEntry], report: RepairReport) -> None:
        """The right entry is written before a wrong one is deleted. One of a later epoch belongs
        to a move that is under way. The record at rest goes that the job was taken out of."""
        remove_superseded(self._repo, record)
        right = entry_name(record)
        if right not in {entry.name for entry in entries}:
            report.entries_written += self._repo.create_entry(record)
        for entry in entries:
            if entry.name == right or entry.epoch > record.epoch:
                continue
            if _may_be_ahead(record, entry):
                self._delete_old(entry, report)
            else:
                self._delete(entry, report)

    def _delete(self, entry: ReadyEntry, report: RepairReport) -> None:
        self._repo.store.delete(keys.ready(entry.name), None)
        report.entries_deleted += 1

    def _finish(self, job_id: str, epoch: int, cells: Cells, report: RepairReport) -> bool:
        """Whether the epoch waits for nobody any more; finishes what made it so."""
        if epoch in cells.ends:
            settle(self._repo, job_id, epoch)
        elif epoch in cells.claims:
            claim = self._repo.claim_cell(job_id, epoch)
            if claim.intent is not None:
                finish_intent(self._repo, claim)
            elif not self._drop_claimed(claim.record):
                return True
        elif cells.highest <= epoch:
            return False
        report.settled += 1
        return True

    def _drop_claimed(self, record: Record) -> bool:
        """Whether the queue record of an epoch that an agent has is gone. One with a priority of
        which the claim does not know stays, without its entry, for whoever ends the epoch: settling
        removes it then."""
        queued = self._repo.find_record(State.QUEUED, record.id)
        if queued is not None and _knows_more(queued.value, record):
            self._repo.delete_entry(queued.value)
            return False
        remove_queued(self._repo, record.id, up_to_epoch=record.epoch)
        return True


def _knows_more(queued: Record, claimed: Record) -> bool:
    return queued.epoch == claimed.epoch and moves.as_queued(claimed, queued) != claimed


def _is_over(entries: Iterable[ReadyEntry], now_ms: int) -> bool:
    """Whether an entry of a job says that its time is up."""
    return any(entry.is_over(now_ms) for entry in entries)


def _bounded(entries: Iterable[Entry]) -> Iterable[Entry]:
    return itertools.islice(entries, PAGES_MAX * LIST_LIMIT_MAX)
