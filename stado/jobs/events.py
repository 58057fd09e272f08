"""The timeline of a job, read: one listing, its cells, and what lies beside them. Nothing is
written for it (but what `find_job` finishes)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from stado.core import keys, pipelines
from stado.core.documents import AnyDocument
from stado.core.events import EpochTrace, Event, Launched, Sources, awaited_ends, timeline
from stado.core.records import (
    Asks,
    ClaimCell,
    EndCell,
    Heartbeat,
    LateResult,
    OpenCell,
    Record,
    RunRecord,
)
from stado.core.states import State
from stado.errors import NotFound, Unreadable
from stado.jobs.finding import find_job
from stado.jobs.notices import undelivered
from stado.jobs.repository import PARALLEL_REQUESTS, Cells, Repository

EPOCHS_MAX = 100
"""The newest epochs of a job, whose documents are read: at most five each."""

_UNDELIVERED_MAX = 20


@dataclass(slots=True)
class Timeline:
    """What happened to a job, oldest first."""

    job_id: str
    events: list[Event]
    earlier_epochs: int
    """How many were not looked at, before those that are told."""
    unreadable: list[str] = field(default_factory=list)
    """Keys of what could not be read: it is not told."""


def events_of(repo: Repository, job_id: str, *, epochs_max: int = EPOCHS_MAX) -> Timeline:
    """Also of a job that was deleted, for its cells stay. Raises `NotFound` for an unknown job."""
    record, cells = _present(repo, job_id)
    numbers = sorted(cells.claims | cells.ends | cells.opens | {record.epoch})
    shown = numbers[-epochs_max:]
    reading = _Reading(repo, cells, record)
    epochs = repo.tasks.map(reading.trace, shown, limit=PARALLEL_REQUESTS)
    sources = Sources(record, epochs, reading.parents_ended_at(epochs))
    if any(one.notice_rules for trace in epochs for one in trace.records):
        sources.undelivered = undelivered(repo, job_id=job_id, limit=_UNDELIVERED_MAX)
    return Timeline(job_id, timeline(sources), len(numbers) - len(shown), reading.unreadable)


def _present(repo: Repository, job_id: str) -> tuple[Record, Cells]:
    found = find_job(repo, job_id)
    if found is not None:
        return found.record, found.cells
    cells = repo.cells(job_id)
    if not cells.highest:
        raise NotFound(job_id, "there is no such job")
    return repo.open_cell(job_id, cells.highest).record, cells


class _Reading:
    """What cannot be read costs what it would have told, and is named."""

    def __init__(self, repo: Repository, cells: Cells, record: Record) -> None:
        self._repo = repo
        self._cells = cells
        self._record = record
        self.unreadable: list[str] = []

    def trace(self, epoch: int) -> EpochTrace:
        job_id, cells = self._record.id, self._cells
        end = self._cell(EndCell, keys.end_cell(job_id, epoch), epoch in cells.ends)
        return EpochTrace(
            epoch=epoch,
            opening=self._cell(OpenCell, keys.open_cell(job_id, epoch), epoch in cells.opens),
            claim=self._cell(ClaimCell, keys.claim_cell(job_id, epoch), epoch in cells.claims),
            asks=self._find(Asks, keys.asks(job_id, epoch)),
            beat=self._beat(epoch),
            end=end,
            late=self._find(LateResult, keys.late(job_id, epoch)) if end is not None else None,
            launched=[] if end is None else self._launched(end),
        )

    def _cell(self, kind: type[AnyDocument], key: str, listed: bool) -> AnyDocument | None:
        return self._find(kind, key) if listed else None

    def _find(self, kind: type[AnyDocument], key: str) -> AnyDocument | None:
        try:
            found = self._repo.find(kind, key)
        except Unreadable:
            self.unreadable.append(key)
            return None
        return found.value if found is not None else None

    def _beat(self, epoch: int) -> Heartbeat | None:
        """There is one heartbeat a job, that of the epoch which beat last."""
        if self._record.state is not State.RUNNING or epoch != self._record.epoch:
            return None
        found = self._repo.find_heartbeat(self._record.id)
        return found.value if found is not None and found.value.epoch == epoch else None

    def _launched(self, end: EndCell) -> list[Launched]:
        """A read for each step that the end of this epoch let start."""
        final = end.record
        if final.state is not State.COMPLETED:
            return []
        return [one for launch in pipelines.launches(final) for one in self._launch(final, launch)]

    def _launch(self, final: Record, launch: pipelines.Launch) -> list[Launched]:
        run_id = pipelines.step_run_id(pipelines.root_of(final), launch.number)
        run = self._find(RunRecord, keys.run(run_id))
        if run is None or not pipelines.is_of_step(run, pipelines.root_of(final), launch.number):
            return []
        return [Launched(launch.number, launch.step.name, run.base_id, run.submitted_at)]

    def parents_ended_at(self, epochs: list[EpochTrace]) -> dict[tuple[str, int], datetime]:
        """A read for each job that it waited for, of which it learned."""
        ends = [end for _, end in awaited_ends(self._record, epochs)]
        found = self._repo.tasks.map(
            lambda end: self._find(EndCell, keys.end_cell(end.job_id, end.epoch)),
            ends,
            limit=PARALLEL_REQUESTS,
        )
        return {
            (end.job_id, end.epoch): cell.ending.ended_at
            for end, cell in zip(ends, found, strict=True)
            if cell is not None
        }
