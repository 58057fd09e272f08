"""Submitting: idempotent by run id, whoever repeats it and however often.

The run record is created first and names the ids of all jobs; whoever finds it unfinished
finishes it. Index entries are written before queue records, so that an acknowledged job is never
missing from the index.
"""

from __future__ import annotations

import itertools
import logging
import math
from dataclasses import dataclass

from stado.core import ids, keys
from stado.core.pipelines import check_not_of_step
from stado.core.records import Record, RunRecord
from stado.core.schedules import check_not_of_schedule
from stado.core.spec import Request, check_run_id, differing_fields
from stado.errors import Refused, StoreError, Unreadable
from stado.jobs import snapshots, taking
from stado.jobs.dependents import look_for_ends
from stado.jobs.endings import remove_record
from stado.jobs.finding import is_known
from stado.jobs.repository import PARALLEL_REQUESTS, Repository, Stored
from stado.jobs.status import states_of
from stado.jobs.submission import (
    CHUNK,
    announce,
    first_records,
    job_ids_of,
    mark_complete,
    queue,
    run_record_of,
    write_jobs,
)
from stado.storage.port import Entry, walk

log = logging.getLogger(__name__)

_SWEEP_CHUNK = 100
"""The same for the sweep, which may have little time."""

_RUNS_MAX = 200_000
"""Run records among which a sweep that has one turn draws where to begin."""

_FAILURES_MAX = 3
"""Runs that may fail in one turn of the sweep before it is the store that fails."""


@dataclass(frozen=True, slots=True)
class Submission:
    """The answer to a submit."""

    run_id: str
    base_id: str
    job_ids: list[str]
    created: bool
    """False when this run had been submitted before."""


def submit(
    repo: Repository, *, run_id: str, request: Request, submitter: str, rerun_of: str | None = None
) -> Submission:
    """Queues the jobs of a request once, however often it is called.

    Writes the references to a snapshot and to outputs of jobs that it names, the run record, the
    by-user entry, then for each job its index entry and its queue record, then marks the run record
    complete. A crash between leaves a run record that is not complete: submitting again, or the
    coordinator, finishes it. Raises `Refused` (`run_id_conflict`) when the run id belongs to
    another request, (`run_id_reserved`) when it means something else, or is one of a pipeline's
    step or of a schedule, (`job_deleted`) when its jobs were deleted, (`snapshot_missing`) when the
    snapshot is not in the store, (`input_missing`) when the output of a job has just gone."""
    check_run_id(run_id)
    check_not_of_step(run_id)
    check_not_of_schedule(run_id)
    return submit_as(repo, run_id=run_id, request=request, submitter=submitter, rerun_of=rerun_of)


def submit_as(
    repo: Repository, *, run_id: str, request: Request, submitter: str, rerun_of: str | None = None
) -> Submission:
    """The same under a run id that nobody types."""
    _refer(repo, run_id, request)
    stored, created = run_record_of(repo, run_id, request, submitter, rerun_of)
    run = stored.value
    if run.digest != request.digest():
        raise Refused(
            "run_id_conflict",
            f"run id {run_id} belongs to another request: "
            f"{'; '.join(differing_fields(run.request, request))}. Use another run id.",
        )
    if len(run.deleted) == run.count:
        raise Refused(
            "job_deleted",
            f"what run id {run_id} submitted was deleted. Use another run id.",
        )
    if created:
        write_jobs(repo, stored)
    elif not run.complete:
        finish_submission(repo, stored)
    return Submission(run_id, run.base_id, job_ids_of(run), created)


def finish_submission(repo: Repository, stored: Stored[RunRecord]) -> None:
    """Writes what is missing of a run that somebody began, then marks it complete."""
    run = stored.value
    announce(repo, run)
    records = first_records(run)
    for start in range(0, len(records), CHUNK):
        _queue_missing(repo, records[start : start + CHUNK])
    mark_complete(repo, stored)


def _refer(repo: Repository, run_id: str, request: Request) -> None:
    """To the snapshot and the outputs of jobs that it takes along, before there is a run, so that
    nobody removes them in between. A run that is there has its references, or has none any more
    because its jobs were deleted."""
    snapshot, inputs = request.shared.snapshot, taking.of_jobs(request.shared.inputs)
    if (snapshot is None and not inputs) or repo.find_run(run_id) is not None:
        return
    if snapshot is not None:
        snapshots.refer(repo, snapshot.digest, run_id)
    taking.take_along(repo, inputs, run_id)


def _queue_missing(repo: Repository, records: list[Record]) -> None:
    """Also of those that are there somebody may not have looked for what they wait for."""
    queue(repo, _missing(repo, records))
    look_for_ends(repo, records)


def _missing(repo: Repository, records: list[Record]) -> list[Record]:
    """Those of a run's jobs that cannot be found: another submitter may have written the rest,
    and they may have run and ended since."""
    known = repo.tasks.map(
        lambda record: is_known(repo, record.id), records, limit=PARALLEL_REQUESTS
    )
    return [record for record, is_there in zip(records, known, strict=True) if not is_there]


class SubmissionSweep:
    """A slow walk over `runs/` that finishes what submitters who died left half done, and finds
    jobs that nothing else lists: those whose record a store without delete-by-version lost.

    A turn lasts `turn_seconds` and one chunk of jobs; what it leaves, the next goes on with.
    `once`: for a process that makes one turn, which then begins anywhere."""

    def __init__(
        self,
        repo: Repository,
        *,
        slice_size: int = 10,
        turn_seconds: float = math.inf,
        once: bool = False,
    ) -> None:
        self._repo = repo
        self._slice_size = slice_size
        self._turn_seconds = turn_seconds
        self._once = once
        self._after = ""
        self._written: dict[str, int] = {}
        """Of runs that are being finished: how many of their jobs are there."""
        self._stopped_in: str | None = None
        """The run that was left half finished in this turn for want of time."""
        self._failures = 0
        self._end = math.inf

    def turn(self) -> list[str]:
        """The next few runs; those that had to be finished. A run that was touched within the
        last lease is its submitter's. One of them, drawn by chance, is looked at as a whole.
        One that fails costs no other its turn; raises when several do."""
        self._failures, self._stopped_in = 0, None
        self._end = self._repo.clock.monotonic() + self._turn_seconds
        page = self._page()
        now = self._repo.now()
        chosen = int(self._repo.entropy.uniform(0, len(page)))
        finished: list[str] = []
        for number, entry in enumerate(page):
            before, self._after = self._after, entry.key
            if (now - entry.modified_at).total_seconds() < self._repo.deployment.lease_seconds:
                continue
            run_id = self._finish(entry.key, look_for_lost=number == chosen)
            if run_id is not None:
                finished.append(run_id)
            if self._stopped_in is not None:
                self._after = before
            if self._time_is_up():
                return finished
        if len(page) < self._slice_size:
            self._after = ""
        return finished

    def _page(self) -> list[Entry]:
        if not self._once:
            return self._repo.store.list(keys.RUNS, start_after=self._after, limit=self._slice_size)
        runs = list(itertools.islice(walk(self._repo.store, keys.RUNS), _RUNS_MAX))
        begin = int(self._repo.entropy.uniform(0, len(runs)))
        return (runs[begin:] + runs[:begin])[: self._slice_size]

    def _time_is_up(self) -> bool:
        return self._repo.clock.monotonic() >= self._end

    def _finish(self, key: str, *, look_for_lost: bool) -> str | None:
        """The run's id when something of it was missing and all is there now."""
        try:
            stored = self._repo.find(RunRecord, key)
            if stored is None:
                return None
            if not stored.value.complete:
                return stored.value.run_id if self._finish_in_time(key, stored) else None
            self._written.pop(key, None)
            if look_for_lost and self._find_lost(stored.value):
                return stored.value.run_id
        except Unreadable as error:
            self._repo.tell_unreadable(error)
        except StoreError as error:
            log.warning("event=submission_failed key=%s error=%r", key, str(error))
            self._failures += 1
            if self._failures == _FAILURES_MAX:
                raise
        return None

    def _finish_in_time(self, key: str, stored: Stored[RunRecord]) -> bool:
        """As `finish_submission`, from where the turn before stopped; whether it is finished."""
        records = first_records(stored.value)
        begin = self._written.get(key, 0)
        if not begin:
            announce(self._repo, stored.value)
        for start in range(begin, len(records), _SWEEP_CHUNK):
            if start > begin and self._time_is_up():
                self._stopped_in = key
                return False
            _queue_missing(self._repo, records[start : start + _SWEEP_CHUNK])
            self._written[key] = start + _SWEEP_CHUNK
        mark_complete(self._repo, stored)
        del self._written[key]
        return True

    def _find_lost(self, run: RunRecord) -> bool:
        """Looks for each job that no prefix shows: finding it settles it, and one of which there
        is no trace is queued for the first time again. Seven listings a thousand jobs."""
        shown = states_of(self._repo, run.base_id)
        deleted = set(run.deleted)
        for job_id, state in shown.items():
            if state.at_rest and ids.number_in(job_id, run.base_id) in deleted:
                remove_record(self._repo, state, job_id)  # whoever wrote it was slow
        unseen = [
            record
            for number, record in enumerate(first_records(run), 1)
            if record.id not in shown and number not in deleted
        ]
        found_lost = False
        for start in range(0, len(unseen), _SWEEP_CHUNK):
            lost = _missing(self._repo, unseen[start : start + _SWEEP_CHUNK])
            queue(self._repo, lost)
            look_for_ends(self._repo, lost)
            found_lost |= bool(lost)
            if self._time_is_up():
                break
        return found_lost
