"""What people ask of a job: cancel it, run it again; and of the queue: pause it."""

from __future__ import annotations

from dataclasses import dataclass

from stado.core.records import Asks, Intent, Record
from stado.core.spec import make_request
from stado.core.states import State, Verdict
from stado.errors import Ambiguous, NotFound, Refused
from stado.jobs.endings import ask_cancel, claim_for_intent, finish_intent, settle
from stado.jobs.finding import find_job
from stado.jobs.queue_index import mark_queue
from stado.jobs.repository import Repository
from stado.jobs.submit import Submission, submit


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
    for _ in repo.rounds():
        found = find_job(repo, job_id)
        if found is None:
            raise NotFound(job_id, "there is no such job")
        answer = _cancel_found(repo, found.record, by)
        if answer is not None:
            return answer
    raise Ambiguous(job_id, "the job moved each time it was to be cancelled: try again")


def _cancel_found(repo: Repository, record: Record, by: str) -> Cancellation | None:
    """None when the epoch is not, or no longer, the one to cancel."""
    if record.state.at_rest:
        return Cancellation(record, None, cancelled_now=False)
    if record.state is State.QUEUED:
        return _cancel_queued(repo, record, by)
    return _ask_holder(repo, record, by)


def _cancel_queued(repo: Repository, record: Record, by: str) -> Cancellation | None:
    """Claims the epoch, gives its verdict, settles. A crash after the claim leaves an intent,
    which whoever meets it finishes.

    A reaper that judged a claimer's running record may give its verdict first; then there is a
    next epoch, and that is the one to cancel."""
    claim = claim_for_intent(repo, record, intent=Intent.CANCEL, by=by)
    if claim is None:
        return None
    end = finish_intent(repo, claim)
    if end.ending.verdict is Verdict.LOST:
        return None
    cancelled = end.ending.verdict is Verdict.CANCELLED
    return Cancellation(end.record, None, cancelled_now=cancelled)


def _ask_holder(repo: Repository, record: Record, by: str) -> Cancellation | None:
    """Adds the flag, then looks whether the epoch still lives: whoever ends it after that look
    has to read the flag."""
    asked = ask_cancel(repo, record.id, record.epoch, by=by)
    end = repo.find_end(record.id, record.epoch)
    if end is None:
        return Cancellation(record, asked, cancelled_now=False)
    settle(repo, record.id, record.epoch)
    if end.ending.verdict is Verdict.LOST:
        return None
    return Cancellation(end.record, None, cancelled_now=False)


def rerun(repo: Repository, job_id: str, *, run_id: str | None, submitter: str) -> Submission:
    """Submits the exact spec of a job again, under a new id; the original is untouched.

    Without a run id each call makes a new job. Raises `NotFound` for an unknown job."""
    found = find_job(repo, job_id)
    if found is None:
        raise NotFound(job_id, "there is no such job")
    if run_id == found.record.run_id:
        raise Refused(
            "run_id_conflict",
            f"run id {run_id} is that of {job_id} itself: a rerun needs another, or none",
        )
    spec = found.record.spec
    request = make_request([spec.command], spec, batch=False)
    return submit(
        repo,
        run_id=run_id or f"rerun-{repo.entropy.letters(10)}",
        request=request,
        submitter=submitter,
        rerun_of=job_id,
    )


def pause_queue(repo: Repository, *, by: str) -> None:
    """No agent claims anything until the queue is resumed; what runs goes on."""
    mark_queue(repo, paused=True, by=by)


def resume_queue(repo: Repository, *, by: str) -> None:
    """Also where it is not paused: a pause that is still on its way comes to nothing then."""
    mark_queue(repo, paused=False, by=by)
