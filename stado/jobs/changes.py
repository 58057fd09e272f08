"""What people ask of a job: cancel it, run it again; and of the queue: pause it."""

from __future__ import annotations

from dataclasses import dataclass

from stado.core import keys
from stado.core.records import Asks, Intent, Record
from stado.core.spec import make_request
from stado.core.states import State, Verdict
from stado.errors import Ambiguous, NotFound
from stado.jobs.endings import ask_cancel, claim_for_intent, finish_intent, settle
from stado.jobs.finding import find_job
from stado.jobs.repository import Repository
from stado.jobs.submit import Submission, submit

_ROUNDS_MAX = 20


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The answer to a cancel.

    `record` is the job as it is now: cancelled by us, ended before, or still running, and then
    `asked` holds the request that its supervisor will meet at its next check-in."""

    record: Record
    asked: Asks | None
    cancelled_now: bool


def cancel(repo: Repository, job_id: str, *, by: str) -> Cancellation:
    """Cancels a queued job at once; asks the holder of a running one to stop it.

    Either way the request is durable when this returns, and the job never starts again. Raises
    `NotFound` for an unknown job."""
    for _ in range(_ROUNDS_MAX):
        found = find_job(repo, job_id)
        if found is None:
            raise NotFound(job_id, "there is no such job")
        record = found.record
        if record.state.at_rest:
            return Cancellation(record, None, cancelled_now=False)
        if record.state is State.QUEUED:
            claim = claim_for_intent(repo, record, intent=Intent.CANCEL, by=by)
            if claim is not None:
                end = finish_intent(repo, claim)
                return Cancellation(end.record, None, cancelled_now=True)
            continue
        asked = ask_cancel(repo, job_id, record.epoch, by=by)
        end_cell = repo.find_end(job_id, record.epoch)
        if end_cell is None:
            return Cancellation(record, asked, cancelled_now=False)
        settle(repo, job_id, record.epoch)
        if end_cell.ending.verdict is not Verdict.LOST:
            return Cancellation(end_cell.record, None, cancelled_now=False)
    raise Ambiguous(job_id, "the job moved each time it was to be cancelled: try again")


def rerun(repo: Repository, job_id: str, *, run_id: str | None, submitter: str) -> Submission:
    """Submits the exact spec of a job again, under a new id; the original is untouched.

    Without a run id each call makes a new job. Raises `NotFound` for an unknown job."""
    found = find_job(repo, job_id)
    if found is None:
        raise NotFound(job_id, "there is no such job")
    spec = found.record.spec
    request = make_request([spec.command], spec, batch=False)
    return submit(
        repo,
        run_id=run_id or f"rerun-{job_id}-{repo.entropy.letters(8)}",
        request=request,
        submitter=submitter,
        rerun_of=job_id,
    )


def pause_queue(repo: Repository, *, by: str) -> None:
    """No agent claims anything until the queue is resumed; what runs goes on."""
    repo.store.put(keys.QUEUE_PAUSED, by.encode())


def resume_queue(repo: Repository) -> None:
    repo.store.delete(keys.QUEUE_PAUSED, None)
