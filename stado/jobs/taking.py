"""Which submissions take along what a job left: an empty object for each, written before the
submission is.

Who takes an output along writes the name first and looks for the mark then; who removes the output
marks it first and lists the names then. So one of the two sees the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import suppress

from stado.core import ids, keys
from stado.core.records import RunRecord
from stado.core.spec import Input
from stado.core.states import Leftover, Opening, State
from stado.errors import Exists, Refused, Unreadable
from stado.jobs.expired import find_expired
from stado.jobs.repository import PARALLEL_REQUESTS, Repository
from stado.storage.port import walk

_TAKERS_MAX = 10_000
"""Names of one job that are looked at; where there are more, the output is taken along."""


def take_along(repo: Repository, inputs: Iterable[Input], holder: str) -> None:
    """Says that a submission (or a schedule) takes outputs of jobs along, before there is a
    submission: from here on they are not removed for their age. For each job a write and two
    listings. Raises `Refused` (`input_missing`) for what is about to go, or has gone.

    A crash after it, or a refusal, leaves a name of a submission that is not there, which keeps
    the output. It is not taken back: the same submission may be under way elsewhere."""
    for job_id, epoch in _sources(inputs):
        with suppress(Exists):
            repo.store.create(keys.taken(job_id, holder), b"")
        expired = find_expired(repo, Leftover.OUTPUTS, job_id, epoch=epoch)
        if expired is not None:
            raise Refused(
                "input_missing",
                f"what job {job_id} left goes, or has gone, for its age ({expired.rule}): it "
                "cannot be taken along any more",
            )
        if _is_deleted(repo, job_id):
            raise Refused("input_missing", f"job {job_id} has just been deleted, with its output")


def _is_deleted(repo: Repository, job_id: str) -> bool:
    """Or somebody has begun to delete it."""
    cells = repo.cells(job_id)
    epoch = cells.highest
    if epoch not in cells.opens or cells.begun(epoch):
        return False
    return repo.open_cell(job_id, epoch).kind is Opening.DELETE


def leave_behind(repo: Repository, inputs: Iterable[Input], holder: str) -> None:
    """For who deletes the last job of a submission, or removes a schedule."""
    for job_id, _ in _sources(inputs):
        repo.store.delete(keys.taken(job_id, holder), None)


def is_taken_along(repo: Repository, job_id: str) -> bool:
    """Whether a submission has this job's output as an input whose jobs have not all completed:
    each that has not may start, or start again. So does one that is not there yet. A listing;
    where there are names, a read and a listing for each."""
    walked = itertools.islice(walk(repo.store, keys.taken_folder(job_id)), _TAKERS_MAX + 1)
    names = [entry.key for entry in walked]
    if len(names) > _TAKERS_MAX:
        return True
    counts = repo.tasks.map(lambda key: _counts(repo, key), names, limit=PARALLEL_REQUESTS)
    return any(counts)


def _counts(repo: Repository, key: str) -> bool:
    try:
        stored = repo.find(RunRecord, keys.run_of_taken(key))
    except Unreadable as error:
        repo.tell_unreadable(error)
        return True
    if stored is None:
        return True
    run = stored.value
    records = repo.walk_records(State.COMPLETED, beginning=run.base_id)
    completed = {ids.number_in(keys.job_of_record(one.key), run.base_id) for one in records}
    return len(completed | set(run.deleted)) < run.count


def of_jobs(inputs: Iterable[Input]) -> list[Input]:
    """Those that are outputs of jobs."""
    return [one for one in inputs if keys.parse_output_manifest(one.source) is not None]


def _sources(inputs: Iterable[Input]) -> list[tuple[str, int]]:
    """The jobs whose outputs they are, with the highest epoch of each."""
    found: dict[str, int] = {}
    for one in inputs:
        parsed = keys.parse_output_manifest(one.source)
        if parsed is not None:
            found[parsed[0]] = max(parsed[1], found.get(parsed[0], 0))
    return sorted(found.items())
