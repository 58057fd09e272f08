"""The order of the queue as names in one folder: read by agents, mended by whoever finds it wrong.

Entries are derived. The queue record is the authority; an entry without a record is ignored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from stado.core import keys
from stado.core.order import ReadyEntry, entry_name, parse_entry
from stado.core.records import Record
from stado.core.states import State
from stado.errors import Unreadable
from stado.jobs.endings import finish_intent, remove_queued, settle
from stado.jobs.repository import Cells, Repository
from stado.storage.port import LIST_LIMIT_MAX, Entry, walk

PAGES_MAX = 200
"""Listing pages that one repair looks at: 200,000 names."""


@dataclass(frozen=True, slots=True)
class Page:
    """The head of the queue, or what follows it."""

    entries: list[ReadyEntry]
    paused: bool
    next_after: str | None
    """Where the following page starts; None at the end of the queue."""


def read_page(repo: Repository, *, start_after: str = "", limit: int = LIST_LIMIT_MAX) -> Page:
    """One listing: a page of the queue in order, and whether the queue is paused (the mark sorts
    first, so every reader of the head sees it at no extra request)."""
    listed = repo.store.list(keys.READY, start_after=start_after, limit=limit)
    names = [entry.key.removeprefix(keys.READY) for entry in listed]
    parsed = [parse_entry(name) for name in names]
    return Page(
        entries=[entry for entry in parsed if entry is not None],
        paused=any(entry.key == keys.QUEUE_PAUSED for entry in listed[:1]),
        next_after=listed[-1].key if len(listed) == limit else None,
    )


def mend_entry(repo: Repository, record: Record, entry: ReadyEntry) -> None:
    """An entry and the queue record it names disagree.

    An entry of a later epoch belongs to a move that is under way: that is finished. Otherwise
    the right entry is written, then the wrong one deleted."""
    if entry.epoch > record.epoch:
        settle(repo, record.id, record.epoch)
        return
    repo.create_entry(record)
    repo.store.delete(keys.ready(entry.name), None)


@dataclass(slots=True)
class RepairReport:
    """What one repair found and mended."""

    entries_written: int = 0
    entries_deleted: int = 0
    settled: int = 0
    unreadable: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return bool(self.entries_written or self.entries_deleted or self.settled)


class Repair:
    """Compares `queue/` with `index/ready/` both ways, and looks at the cells of queued jobs, a
    slice a turn. Any number of repairs may run at once."""

    def __init__(self, repo: Repository, *, slice_size: int = 50) -> None:
        self._repo = repo
        self._slice_size = slice_size
        self._after = ""

    def turn(self) -> RepairReport:
        """The index is listed before the queue: an entry is written before its record, so that
        an entry without a record is a slow submitter's, a dead mover's, or out of date."""
        report = RepairReport()
        by_job = self._entries_by_job()
        queued = list(self._bounded(walk(self._repo.store, keys.prefix(State.QUEUED))))
        ids = [keys.job_of_record(entry.key) for entry in queued]
        self._write_missing([job_id for job_id in ids if job_id not in by_job], report)
        self._drop_wrong({job: by_job[job] for job in by_job.keys() - set(ids)}, report)
        doubled = {job: found for job, found in by_job.items() if len(found) > 1}
        self._drop_doubled({job: doubled[job] for job in doubled.keys() & set(ids)}, report)
        self._settle_slice(queued, report)
        return report

    def _bounded(self, entries: Iterable[Entry]) -> Iterable[Entry]:
        for count, entry in enumerate(entries):
            if count >= PAGES_MAX * LIST_LIMIT_MAX:
                return
            yield entry

    def _entries_by_job(self) -> dict[str, list[ReadyEntry]]:
        by_job: dict[str, list[ReadyEntry]] = defaultdict(list)
        for entry in self._bounded(walk(self._repo.store, keys.READY)):
            parsed = parse_entry(entry.key.removeprefix(keys.READY))
            if parsed is not None:
                by_job[parsed.job_id].append(parsed)
        return by_job

    def _queued(self, job_id: str, report: RepairReport) -> Record | None:
        try:
            found = self._repo.find_record(State.QUEUED, job_id)
        except Unreadable as error:
            report.unreadable.append(error.key)
            return None
        return found.value if found else None

    def _write_missing(self, job_ids: list[str], report: RepairReport) -> None:
        for job_id in job_ids[: self._slice_size * 4]:
            record = self._queued(job_id, report)
            if record is None or self._over(job_id, record.epoch, report):
                continue
            self._repo.create_entry(record)
            report.entries_written += 1

    def _drop_wrong(self, orphans: dict[str, list[ReadyEntry]], report: RepairReport) -> None:
        for job_id in sorted(orphans)[: self._slice_size * 4]:
            for entry in orphans[job_id]:
                if self._over(job_id, entry.epoch, report):
                    self._repo.store.delete(keys.ready(entry.name), None)
                    report.entries_deleted += 1

    def _drop_doubled(self, doubled: dict[str, list[ReadyEntry]], report: RepairReport) -> None:
        for job_id in sorted(doubled)[: self._slice_size * 4]:
            record = self._queued(job_id, report)
            if record is None:
                continue
            for entry in doubled[job_id]:
                if entry.name != entry_name(record) and entry.epoch <= record.epoch:
                    mend_entry(self._repo, record, entry)
                    report.entries_deleted += 1

    def _settle_slice(self, queued: list[Entry], report: RepairReport) -> None:
        """A queued job whose epoch has a cell: its mover died, or is about to finish."""
        waiting = [entry for entry in queued if entry.key > self._after] or queued
        chosen = waiting[: self._slice_size]
        self._after = chosen[-1].key if chosen else ""
        for entry in chosen:
            job_id = keys.job_of_record(entry.key)
            cells = self._repo.cells(job_id)
            if cells.highest:
                record = self._queued(job_id, report)
                if record is not None:
                    self._finish(job_id, record.epoch, cells, report)

    def _over(self, job_id: str, epoch: int, report: RepairReport) -> bool:
        """Whether the epoch is no longer waiting to be claimed; finishes what made it so."""
        cells = self._repo.cells(job_id)
        return cells.highest >= epoch and self._finish(job_id, epoch, cells, report)

    def _finish(self, job_id: str, epoch: int, cells: Cells, report: RepairReport) -> bool:
        if epoch in cells.ends:
            settle(self._repo, job_id, epoch)
        elif epoch in cells.claims:
            claim = self._repo.claim_cell(job_id, epoch)
            if claim.intent is not None:
                finish_intent(self._repo, claim)
            else:
                remove_queued(self._repo, job_id, up_to_epoch=epoch)
        elif cells.highest <= epoch:
            return False
        report.settled += 1
        return True
