"""Where a job is, though it may be moving while one looks.

Reading the prefixes in any fixed order can miss a job that moves the other way. The cells only
ever grow, so they are asked first; they say which record to expect where.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from stado.core import keys, moves
from stado.core.records import ClaimCell, OpenCell, Record
from stado.core.states import Opening, State
from stado.errors import Ambiguous, Denied, NotFound
from stado.jobs.endings import (
    ending_of_intent,
    ending_of_open,
    finish_intent,
    project,
    settle,
    settle_open,
)
from stado.jobs.repository import Cells, Repository


@dataclass(frozen=True, slots=True)
class Found:
    """A job's present state and the record of its present epoch."""

    record: Record
    cells: Cells

    @property
    def state(self) -> State:
        return self.record.state


def find_job(repo: Repository, job_id: str) -> Found | None:
    """None when there is no such job, or it was deleted (`was_deleted` tells the two apart).
    Finishes intents and settles what it finds unfinished; who may not write learns what the cells
    say, and leaves that to others.

    Raises `Unreadable` when what decides cannot be read, `Ambiguous` when the job moved at each
    of 20 looks."""
    return _seek(repo, job_id)[0]


def is_known(repo: Repository, job_id: str) -> bool:
    """Whether there is such a job, or was one that somebody has deleted. Raises as `find_job`."""
    found, deleted = _seek(repo, job_id)
    return deleted or found is not None


def _seek(repo: Repository, job_id: str) -> tuple[Found | None, bool]:
    """And whether it was deleted."""
    for _ in repo.rounds():
        cells = repo.cells(job_id)
        if not cells.highest:
            found = _find_new(repo, job_id)
            if found is not None or not repo.cells(job_id).highest:
                return found, False
            continue
        opened = _last_opening(repo, job_id, cells)
        if opened is None:
            found = _find_by_cells(repo, job_id, cells)
        elif opened.kind is Opening.DELETE:
            return None, True
        else:
            found = _find_opened(repo, opened, cells)
        if found is not None:
            return found, False
    raise Ambiguous(job_id, "the job moved each time one looked: try again")


def was_deleted(repo: Repository, job_id: str) -> bool:
    """Whether there was such a job, and somebody has deleted it, or begun to. One listing, and a
    read where its last cell is one that opens an epoch."""
    opened = _last_opening(repo, job_id, repo.cells(job_id))
    return opened is not None and opened.kind is Opening.DELETE


def _last_opening(repo: Repository, job_id: str, cells: Cells) -> OpenCell | None:
    """Of a job's highest epoch, where that is opened and nothing else."""
    epoch = cells.highest
    return repo.open_cell(job_id, epoch) if epoch and not cells.begun(epoch) else None


def has_moved(repo: Repository, record: Record) -> bool:
    """Whether a job that was seen in this state has been claimed, has ended, or was taken out of
    its rest since.

    One request, for who looks again and again; what else may happen to a job (a write that got
    lost) only `find_job` shows."""
    try:
        repo.store.head(_next_cell(record))
    except NotFound:
        return False
    return True


def _next_cell(record: Record) -> str:
    if record.state.at_rest:
        return keys.open_cell(record.id, record.epoch + 1)
    cell = keys.claim_cell if record.state is State.QUEUED else keys.end_cell
    return cell(record.id, record.epoch)


def _find_new(repo: Repository, job_id: str) -> Found | None:
    queued = repo.find_record(State.QUEUED, job_id)
    if queued is None:
        return None
    return Found(queued.value, Cells(frozenset(), frozenset(), frozenset()))


def _find_by_cells(repo: Repository, job_id: str, cells: Cells) -> Found | None:
    """None when the prefixes do not show what the cells say: look again."""
    epoch = cells.highest
    if epoch in cells.ends:
        return _find_ended(repo, job_id, epoch, cells)
    claim = repo.claim_cell(job_id, epoch)
    if claim.intent is not None:
        return _finish_intent(repo, claim, cells)
    return _expect(repo, claim.record, cells)


def _find_opened(repo: Repository, opened: OpenCell, cells: Cells) -> Found | None:
    """An epoch that waits, or a paused job's cancel."""
    record = opened.record
    found = _expect(repo, record, cells) if opened.kind.queues else None
    if found is None and repo.cells(record.id) == cells:
        try:
            settle_open(repo, opened)
        except Denied:
            if not opened.kind.queues:
                record = moves.ended(record, ending_of_open(opened))
            return Found(record, cells)
    return found


def _finish_intent(repo: Repository, claim: ClaimCell, cells: Cells) -> Found | None:
    try:
        finish_intent(repo, claim)
    except Denied:
        if repo.cells(claim.record.id) == cells:
            return Found(moves.ended(claim.record, ending_of_intent(claim)), cells)
    return None


def _find_ended(repo: Repository, job_id: str, epoch: int, cells: Cells) -> Found | None:
    end = repo.find_end(job_id, epoch)
    if end is None:
        return None
    following = moves.after(end)
    found = _expect(repo, following, cells)
    if found is None and repo.cells(job_id) == cells:
        try:
            settle(repo, job_id, epoch)
        except Denied:
            return Found(following, cells)
    return found


def _expect(repo: Repository, expected: Record, cells: Cells) -> Found | None:
    """The record of the expected epoch from the expected prefix.

    A running record that is gone while its epoch goes on is put back: without it no reaper
    would see the job. (Should the epoch end in that moment, the reap pass settles it.)"""
    stored = repo.find_record(expected.state, expected.id)
    if stored is not None and stored.value.epoch == expected.epoch:
        return Found(stored.value, cells)
    if expected.state is State.RUNNING and repo.cells(expected.id) == cells:
        with suppress(Denied):
            project(repo, expected)
        return Found(expected, cells)
    return None
