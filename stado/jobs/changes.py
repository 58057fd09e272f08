"""What people ask of a job: to cancel, pause, resume, retry it, or run it again; and of the queue:
to pause it. (`deletion` deletes one.)"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from stado.core import ids, reopening
from stado.core.pipelines import pipeline_root
from stado.core.records import Asks, EndCell, Intent, Record
from stado.core.reopening import Retryable
from stado.core.spec import make_request
from stado.core.states import Opening, State, Verdict
from stado.errors import Ambiguous, Denied, NotFound, Refused, Unreadable
from stado.jobs.asking import ask
from stado.jobs.endings import (
    AS_ASKED,
    claim_for_intent,
    finish_intent,
    open_epoch,
    settle,
    settle_open,
)
from stado.jobs.finding import find_job, was_deleted
from stado.jobs.queue_index import mark_queue
from stado.jobs.repository import Repository
from stado.jobs.snapshots import may_be_used
from stado.jobs.status import states_of
from stado.jobs.submit import Submission, submit

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Stopping:
    """The answer to a cancel or a pause.

    `record` is the job as it is now: stopped by us, at rest before, or still running, and then
    `asked` holds the request that its supervisor will meet at its next check-in."""

    record: Record
    asked: Asks | None
    stopped_now: bool


def cancel(
    repo: Repository, job_id: str, *, by: str, note: str | None = None, terminate: bool = False
) -> Stopping:
    """Cancels a queued or a paused job at once; asks the holder of a running one to stop it, and,
    with `terminate`, whoever rented its machine to give that back.

    Either way the request is durable when this returns, and the job never starts again, unless
    somebody has it retried. Raises `NotFound` for an unknown job."""
    wish = _Wish(Intent.CANCEL, by, note, repo.now(), terminate=terminate)
    return on_present(repo, job_id, "cancelled", lambda found: _cancel_found(repo, found, wish))


def pause(repo: Repository, job_id: str, *, by: str, note: str | None = None) -> Stopping:
    """Pauses a queued job at once; asks the holder of a running one to stop it and to save what
    it has. The request is durable when this returns. Raises `NotFound` for an unknown job."""
    wish = _Wish(Intent.PAUSE, by, note, repo.now())
    return on_present(repo, job_id, "paused", lambda found: _stop(repo, found, wish))


def on_present(
    repo: Repository, job_id: str, done: str, step: Callable[[Record], Answer | None]
) -> Answer:
    """The first answer of a step that is given the job as it is now, again and again while it
    turns out to have moved."""
    for _ in repo.rounds():
        answer = step(_present(repo, job_id))
        if answer is not None:
            return answer
    raise Ambiguous(job_id, f"the job moved each time it was to be {done}: try again")


def _present(repo: Repository, job_id: str) -> Record:
    """Raises `NotFound`, also for a job that was deleted."""
    found = find_job(repo, job_id)
    if found is not None:
        return found.record
    if was_deleted(repo, job_id):
        raise NotFound(job_id, "the job was deleted")
    raise NotFound(job_id, "there is no such job")


@dataclass(slots=True)
class _Wish:
    """What one call is to bring about, over all of its rounds."""

    intent: Intent
    by: str
    note: str | None
    began_at: datetime
    terminate: bool = False
    asked: bool = False
    """Whether a holder was asked by this call, or by the same person meanwhile: what has ended as
    was asked ended by it, whoever was the first to say so."""

    def note_asked(self, asked: Asks, *, ours: bool) -> None:
        """`ours`: this call added the flag, whatever the store's clock says of when."""
        cancelling = self.intent is Intent.CANCEL
        by = asked.cancel_by if cancelling else asked.pause_by
        at = asked.cancel_at if cancelling else asked.pause_at
        self.asked |= ours or (by == self.by and at is not None and at >= self.began_at)

    def at_rest(self, record: Record, *, ours: bool = False) -> Stopping:
        as_asked = record.state is AS_ASKED[self.intent][0].state
        return Stopping(record, None, stopped_now=ours or (self.asked and as_asked))


def _cancel_found(repo: Repository, record: Record, wish: _Wish) -> Stopping | None:
    if record.state is State.PAUSED:
        return _cancel_paused(repo, record, wish)
    return _stop(repo, record, wish)


def _stop(repo: Repository, record: Record, wish: _Wish) -> Stopping | None:
    """None when the epoch is not, or no longer, the one to stop."""
    if record.state.at_rest:
        return wish.at_rest(record)
    if record.state is State.QUEUED:
        return _stop_queued(repo, record, wish)
    return _ask_holder(repo, record, wish)


def _stop_queued(repo: Repository, record: Record, wish: _Wish) -> Stopping | None:
    """Claims the epoch, gives its verdict, settles. A crash after the claim leaves an intent,
    which whoever meets it finishes.

    A reaper that judged a claimer's running record may give its verdict first; then there is a
    next epoch, and that is the one to stop."""
    claim = claim_for_intent(repo, record, intent=wish.intent, by=wish.by, note=wish.note)
    if claim is None:
        return None
    end = finish_intent(repo, claim)
    if _goes_on(end, wish.intent):
        return None
    return wish.at_rest(end.record, ours=end.ending.verdict is AS_ASKED[wish.intent][0])


def _ask_holder(repo: Repository, record: Record, wish: _Wish) -> Stopping | None:
    """Adds the flag, then looks whether the epoch still lives: whoever ends it after that look
    has to read the flag."""
    asked, ours = ask(
        repo,
        record.id,
        record.epoch,
        wish.intent,
        by=wish.by,
        note=wish.note,
        terminate=wish.terminate,
    )
    wish.note_asked(asked, ours=ours)
    end = repo.find_end(record.id, record.epoch)
    if end is None:
        return Stopping(record, asked, stopped_now=False)
    settle(repo, record.id, record.epoch)
    return None if _goes_on(end, wish.intent) else wish.at_rest(end.record)


def _goes_on(end: EndCell, intent: Intent) -> bool:
    """Whether a job that ended so has still to be stopped as was asked."""
    verdict = end.ending.verdict
    return verdict.state is None or (verdict is Verdict.PAUSED and intent is Intent.CANCEL)


def _cancel_paused(repo: Repository, record: Record, wish: _Wish) -> Stopping | None:
    """By an open cell, whose epoch is never queued. None when the job was resumed instead."""
    opened, ours = open_epoch(repo, record, Opening.CANCEL, by=wish.by, note=wish.note)
    settle_open(repo, opened)
    if opened.kind is not Opening.CANCEL:
        return None
    end = repo.find_end(record.id, opened.record.epoch)
    return None if end is None else wish.at_rest(end.record, ours=ours)


# --- out of its rest ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reopening:
    """The answer to a resume or a retry: the job, queued again. `opened_now`: by us."""

    record: Record
    opened_now: bool


def resume(repo: Repository, job_id: str, *, by: str, note: str | None = None) -> Reopening:
    """Queues a paused job as of now: it goes on from its newest checkpoint. Durable when this
    returns. Raises `NotFound`, and `Refused` (`job_not_paused`) with the job's state."""

    def step(record: Record) -> Reopening | None:
        if record.state is not State.PAUSED:
            raise Refused("job_not_paused", f"job {job_id} is {record.state}, and not paused")
        return _reopen(repo, record, Opening.RESUME, by=by, note=note)

    return on_present(repo, job_id, "resumed", step)


def retry(repo: Repository, job_id: str, *, by: str, note: str | None = None) -> Reopening:
    """Queues a job that failed, was cancelled or timed out as of now, under its own id: it goes
    on from its newest checkpoint. Durable when this returns. Raises `NotFound`, and `Refused`
    with what `retry_refusal` says."""

    def step(record: Record) -> Reopening | None:
        refusal = retry_refusal(repo, record)
        if refusal is not None:
            raise refusal
        return _reopen(repo, record, Opening.RETRY, by=by, note=note)

    return on_present(repo, job_id, "retried", step)


def retry_refusal(repo: Repository, record: Record) -> Refused | None:
    """Why a job cannot be retried; None when it can. A read, where it took a snapshot along, and
    for each input of this store."""
    refusal, snapshot = reopening.retry_refusal(record, repo.now()), record.spec.snapshot
    if refusal is None and snapshot is not None and not may_be_used(repo, snapshot.digest):
        text = f"the files that job {record.id} took along are not in the store any more"
        return Refused("snapshot_missing", f"{text}: submit it anew")
    return refusal or _input_missing(repo, record)


def _input_missing(repo: Repository, record: Record) -> Refused | None:
    """Of a job that takes along what others left, as steps do."""
    again = "the pipeline" if pipeline_root(record) else "it"
    for one in record.spec.inputs_here:
        try:
            repo.store.head(one.source)
        except NotFound:
            gone = "was deleted with the job that had left it, or has gone for its age"
            text = f"input {one.name} of job {record.id} {gone}"
            return Refused("input_missing", f"{text}: submit {again} anew")
    return None


def retryable(repo: Repository, record: Record) -> Retryable:
    """The same for who only looks, and may not be allowed to read what decides."""
    try:
        return Retryable(retry_refusal(repo, record))
    except Unreadable as error:
        repo.tell_unreadable(error)
    except Denied:
        pass
    return reopening.by_its_record(record, repo.now())


def _reopen(
    repo: Repository, record: Record, kind: Opening, *, by: str, note: str | None
) -> Reopening | None:
    """None when somebody asked for something else just before."""
    opened, ours = open_epoch(repo, record, kind, by=by, note=note)
    settle_open(repo, opened, announced=ours)
    return Reopening(opened.record, ours) if opened.kind is kind else None


# --- another job, and the queue -------------------------------------------------------------


def rerun(repo: Repository, job_id: str, *, run_id: str | None, submitter: str) -> Submission:
    """Submits the exact spec of a job again, under a new id; the original is untouched.

    Without a run id each call makes a new job. Raises `NotFound` for an unknown job, and `Refused`
    (`input_missing`) for what takes along what is deleted."""
    record = _present(repo, job_id)
    missing = _input_missing(repo, record)
    if missing is not None:
        raise missing
    if run_id == record.run_id:
        raise Refused(
            "run_id_conflict",
            f"run id {run_id} is that of {job_id} itself: a rerun needs another, or none",
        )
    spec = record.spec
    if spec.step_of is not None:  # alone: what follows it follows the original
        spec = spec.evolve(
            step_of=None, then=[], then_cpu=None, then_memory_gb=None, then_gpus=None
        )
    request = make_request([spec.command], spec, batch=False)
    return submit(
        repo,
        run_id=run_id or f"rerun-{repo.entropy.letters(10)}",
        request=request,
        submitter=submitter,
        rerun_of=job_id,
    )


def rerun_some(
    repo: Repository,
    base_id: str,
    wanted: Collection[State],
    *,
    run_id: str | None,
    submitter: str,
) -> Submission:
    """Submits those jobs of a batch again that have come to one of these states, as a new batch of
    their exact specs. Seven listings and a few reads. Raises as `rerun` does, and `Refused` where
    no job of it is so."""
    states = states_of(repo, base_id)
    chosen = sorted(job_id for job_id, state in states.items() if state in wanted)
    if not chosen:
        raise Refused(
            "nothing_to_rerun",
            f"no job of {base_id} is {' or '.join(sorted(wanted))}: `stado status {base_id}`",
        )
    record = _present(repo, chosen[0])
    missing = _input_missing(repo, record)
    if missing is not None:
        raise missing
    run = repo.find_run(record.run_id)
    if run is None:
        raise NotFound(record.run_id, "the record of this submission is gone")
    return submit(
        repo,
        run_id=run_id or f"rerun-{repo.entropy.letters(10)}",
        request=run.value.request.part([ids.number_in(job_id, base_id) for job_id in chosen]),
        submitter=submitter,
        rerun_of=base_id,
    )


def pause_queue(repo: Repository, *, by: str) -> None:
    """No agent claims anything until the queue is resumed; what runs goes on."""
    mark_queue(repo, paused=True, by=by)


def resume_queue(repo: Repository, *, by: str) -> None:
    """Also where it is not paused: a pause that is still on its way comes to nothing then."""
    mark_queue(repo, paused=False, by=by)
