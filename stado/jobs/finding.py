"""Where a job is, though it may be moving while one looks.

Reading the prefixes in any fixed order can miss a job that moves the other way. The cells only
ever grow, so they are asked first; they say which record to expect where.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from stado.core import keys, moves
from stado.core.records import ClaimCell, Record
from stado.core.states import State
from stado.errors import Ambiguous, Denied, NotFound
from stado.jobs.endings import ending_of_intent, finish_intent, project, settle
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
    """None when there is no such job. Finishes intents and settles what it finds unfinished; who
    may not write learns what the cells say, and leaves that to others.

    Raises `Unreadable` when what decides cannot be read, `Ambiguous` when the job moved at each
    of 20 looks."""
    for _ in repo.rounds():
        cells = repo.cells(job_id)
        if not cells.highest:
            found = _find_new(repo, job_id)
            if found is not None or not repo.cells(job_id).highest:
                return found
            continue
        found = _find_by_cells(repo, job_id, cells)
        if found is not None:
            return found
    raise Ambiguous(job_id, "the job moved each time one looked: try again")


def has_moved(repo: Repository, record: Record) -> bool:
    """Whether a job that was seen to be queued or to run has been claimed, or has ended, since.

    One request, for who looks again and again; what else may happen to a job (its deletion, a
    write that got lost) only `find_job` shows."""
    cell = keys.claim_cell if record.state is State.QUEUED else keys.end_cell
    try:
        repo.store.head(cell(record.id, record.epoch))
    except NotFound:
        return False
    return True


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
