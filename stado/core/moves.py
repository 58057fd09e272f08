"""How a record changes from one step of its life to the next. Pure: same input, same bytes,
whoever computes it, so that any number of settlers write the same thing.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from stado.core import clocks
from stado.core.ids import milliseconds
from stado.core.records import EndCell, Ending, Holder, Record, RunRecord
from stado.core.spec import MAX_LEASE_LOSSES_DEFAULT, Spec
from stado.core.states import Opening, Reason, State, Verdict

DETAIL_MAX = 1024


def first_record(run: RunRecord, *, job_id: str, spec: Spec) -> Record:
    """The queue record of epoch 1: the same from every submitter of the run."""
    return Record(
        id=job_id,
        run_id=run.run_id,
        batch=run.request.batch,
        spec=spec,
        submitted_at=run.submitted_at,
        submitter=run.submitter,
        rerun_of=run.rerun_of,
        state=State.QUEUED,
        epoch=1,
        priority=spec.priority,
        queued_ms=milliseconds(run.submitted_at),
        nonce=run.token[:8],
    )


def claimed(record: Record, holder: Holder, *, runtime_limit_seconds: int | None = None) -> Record:
    """The running record of a queued one. At the first claim its clock starts, and what the
    deployment allows it is fixed."""
    if record.picked_up_at is None:
        record = record.evolve(
            picked_up_at=holder.claimed_at, runtime_limit_seconds=runtime_limit_seconds
        )
    return record.evolve(state=State.RUNNING, holder=holder)


def ended(record: Record, ending: Ending) -> Record:
    """The job as it is when its epoch has ended so."""
    if _never_ran_at_all(record, ending):
        record = record.evolve(picked_up_at=None, runtime_limit_seconds=None)
    return record.evolve(
        state=ending.verdict.state or record.state,
        ending=ending,
        starts=record.starts + _has_started(record, ending),
        lease_losses=record.lease_losses + _is_loss(ending),
        given_back=record.given_back + _is_given_back(ending),
        pauses=record.pauses + (ending.verdict is Verdict.PAUSED),
    )


def _has_started(record: Record, ending: Ending) -> bool:
    """Whether the epoch executed the command; one that was adopted is counted already."""
    adopted = record.holder is not None and record.holder.adopted
    return ending.started_at is not None and not adopted


def _never_ran_at_all(record: Record, ending: Ending) -> bool:
    """Whether it was given back untouched by the first who had it: its clock has not begun."""
    first = record.holder is not None and record.holder.claimed_at == record.picked_up_at
    return first and _is_given_back(ending)


def _is_loss(ending: Ending) -> bool:
    """Whether a lost epoch counts against the job: not when its host gave it back untouched."""
    return ending.verdict is Verdict.LOST and not _is_given_back(ending)


def _is_given_back(ending: Ending) -> bool:
    return ending.verdict is Verdict.LOST and ending.reason is Reason.HOST_UNABLE


def after(cell: EndCell) -> Record:
    """What a verdict leads to: the record at rest, or the queue record of the next epoch, which
    keeps its place in the queue."""
    if cell.ending.verdict.state is not None:
        return cell.record
    return cell.record.evolve(
        state=State.QUEUED, epoch=cell.record.epoch + 1, nonce=cell.token[:8], holder=None
    )


def opened(record: Record, kind: Opening, *, token: str, at: datetime) -> Record:
    """The queue record of the epoch that follows a record at rest: it queues as of now. Losses
    before a retry count no more, and its time begins anew; that of a paused job stood still."""
    retried = kind is Opening.RETRY
    picked_up_at, ending = record.picked_up_at, record.ending
    if picked_up_at is not None and ending is not None:
        picked_up_at += max(at - ending.ended_at, timedelta(0))
    return record.evolve(
        state=State.QUEUED,
        epoch=record.epoch + 1,
        nonce=token[:8],
        queued_ms=milliseconds(at),
        holder=None,
        opened_from=record.state,
        manual_retries=record.manual_retries + retried,
        lease_losses=0 if retried else record.lease_losses,
        given_back=0 if retried else record.given_back,
        picked_up_at=None if retried else picked_up_at,
        runtime_limit_seconds=None if retried else record.runtime_limit_seconds,
    )


def lost(
    record: Record,
    *,
    started_at: datetime | None,
    now: datetime,
    by: str,
    reason: Reason,
    detail: str,
) -> Ending:
    """The verdict on an epoch whose holder is gone: queued again; timed out when its time is up;
    failed when it was lost too often. `started_at`: when its command was started, as its last beat
    told."""
    limit = clocks.passed_limit(record, milliseconds(now))
    if limit is not None:
        return Ending(
            verdict=Verdict.TIMED_OUT,
            reason=limit.reason,
            detail=clip(f"{limit.detail}; {detail}"),
            started_at=started_at,
            ended_at=now,
            by=by,
        )
    allowed = record.spec.max_lease_losses
    if allowed is None:
        allowed = MAX_LEASE_LOSSES_DEFAULT
    if allowed < 0 or record.lease_losses < allowed:
        verdict = Verdict.LOST
    else:
        verdict = Verdict.FAILED
        reason = Reason.LEASE_EXPIRED_MAX_ATTEMPTS
        detail = f"{detail}; that was loss {record.lease_losses + 1} and {allowed} are allowed"
    return Ending(
        verdict=verdict,
        reason=reason,
        detail=clip(detail),
        started_at=started_at,
        ended_at=now,
        by=by,
    )


def clip(detail: str) -> str:
    """One line of at most 1,024 characters."""
    line = " ".join(detail.split())
    return line if len(line) <= DETAIL_MAX else f"{line[: DETAIL_MAX - 1]}…"
