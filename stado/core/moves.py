"""How a record changes from one step of its life to the next. Pure: same input, same bytes,
whoever computes it, so that any number of settlers write the same thing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from stado.core import clocks
from stado.core.ids import milliseconds
from stado.core.records import (
    PRIORITY_CHANGES_MAX,
    Awaited,
    EndCell,
    Ending,
    Holder,
    PriorityChange,
    Record,
    RunRecord,
)
from stado.core.retries import rule_of
from stado.core.settings import DeploymentSettings
from stado.core.spec import MAX_LEASE_LOSSES_DEFAULT, Spec
from stado.core.states import JobType, Opening, Reason, State, Verdict
from stado.core.usage import ran_until, used_with

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
        due_ms=_start_ms(spec, milliseconds(run.submitted_at)),
    )


def _start_ms(spec: Spec, now_ms: int) -> int | None:
    """The moment before which the job is not to be started, if it is still to come."""
    if spec.not_before is None or milliseconds(spec.not_before) <= now_ms:
        return None
    return milliseconds(spec.not_before)


def claimed(record: Record, holder: Holder, settings: DeploymentSettings | None = None) -> Record:
    """The running record of a queued one. At the first claim its clock starts, and what the
    deployment allows it is fixed."""
    if record.picked_up_at is None:
        spec, allowed = record.spec, settings or DeploymentSettings()
        record = record.evolve(
            picked_up_at=holder.claimed_at,
            runtime_limit_seconds=allowed.limits.runtime_seconds,
            retry_rule=rule_of(
                allowed.retries,
                retries=spec.retries,
                on=spec.retry_on,
                delay_seconds=spec.retry_delay_seconds,
            ),
            notify=allowed.notify.rules or [],
        )
    return record.evolve(state=State.RUNNING, holder=holder, due_ms=None)


def ended(record: Record, ending: Ending) -> Record:
    """The job as it is when its epoch has ended so."""
    if _never_ran_at_all(record, ending):
        record = record.evolve(
            picked_up_at=None, runtime_limit_seconds=None, retry_rule=None, notify=[]
        )
    retrying = ending.verdict is Verdict.RETRYING
    return record.evolve(
        state=ending.verdict.state or record.state,
        ending=ending,
        starts=record.starts + _has_started(record, ending),
        lease_losses=record.lease_losses + _is_loss(ending),
        given_back=record.given_back + _is_given_back(ending),
        pauses=record.pauses + (ending.verdict is Verdict.PAUSED),
        yields=record.yields + (ending.reason is Reason.YIELDED),
        auto_retries=record.auto_retries + retrying,
        auto_retries_used=record.auto_retries_used + retrying,
        usage=used_with(record, ending.ran),
        due_ms=None,
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
    """What a verdict leads to: the record at rest, or the queue record of the next epoch. That
    keeps its place in the queue after a loss; what is tried again queues as of when it is due."""
    if cell.ending.verdict.state is not None:
        return cell.record
    following = cell.record.evolve(
        state=State.QUEUED, epoch=cell.record.epoch + 1, nonce=cell.token[:8], holder=None
    )
    if cell.ending.retry_at is None:
        return following
    due_ms = milliseconds(cell.ending.retry_at)
    return following.evolve(queued_ms=due_ms, due_ms=due_ms)


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
        due_ms=_start_ms(record.spec, milliseconds(at)),
        holder=None,
        opened_from=record.state,
        manual_retries=record.manual_retries + retried,
        lease_losses=0 if retried else record.lease_losses,
        given_back=0 if retried else record.given_back,
        picked_up_at=None if retried else picked_up_at,
        runtime_limit_seconds=None if retried else record.runtime_limit_seconds,
        retry_rule=None if retried else record.retry_rule,
        notify=[] if retried else record.notify,
        auto_retries_used=0 if retried else record.auto_retries_used,
        doomed_by=None,
    )


def retried(record: Record, failed: Ending, *, jitter: float) -> Ending:
    """What becomes of a failure: the same, where the job is not tried again by itself; else the
    verdict by which it is, `retrying`. Only what was started is tried again, and only where there
    would be time left. `jitter`: 0 to 1, drawn."""
    rule, used = record.retry_rule, record.auto_retries_used
    if rule is None or failed.verdict is not Verdict.FAILED or failed.started_at is None:
        return failed
    if not rule.allows(failed.reason, used=used):
        return failed
    retry_at = failed.ended_at + timedelta(seconds=rule.pause_seconds(used, jitter))
    if clocks.passed_limit(record, milliseconds(retry_at)) is not None:
        return failed
    return failed.evolve(verdict=Verdict.RETRYING, retry_at=retry_at)


def why_not_retried(record: Record) -> str | None:
    """Why a job that has failed was not tried again by itself though it might have been; None where
    it was never to be, or all of its tries are used up."""
    rule, ending = record.retry_rule, record.ending
    if rule is None or ending is None or record.state is not State.FAILED:
        return None
    if ending.reason is Reason.LEASE_EXPIRED_MAX_ATTEMPTS:
        return "it was lost too often"
    if ending.started_at is None:
        return "its command was not started"
    if ending.reason not in rule.on:
        return f"not after {ending.reason}"
    limit = clocks.time_limit(record)
    if limit is None or record.auto_retries_left <= 0:
        return None
    which = "its deadline" if limit.reason is Reason.DEADLINE_PASSED else "its time limit"
    return f"the pause would last until after {which}"


def prioritized(record: Record, change: PriorityChange, *, nonce: str) -> Record:
    """The same queued epoch in another place of the queue."""
    changes = [*record.priority_changes, change][-PRIORITY_CHANGES_MAX:]
    return record.evolve(priority=change.after, priority_changes=changes, nonce=nonce)


def as_queued(record: Record, queued: Record) -> Record:
    """With what may have changed in the queue record of its epoch since `record` was taken from
    it, and outlives that epoch: its priority. A queue record that knows less than `record` was
    written late, and changes nothing."""
    known = record.priority_changes
    if known and known[-1] not in queued.priority_changes:
        return record
    return record.evolve(priority=queued.priority, priority_changes=queued.priority_changes)


def ended_as(final: Record) -> Awaited:
    """What those learn who wait for a job that has ended."""
    return Awaited(job_id=final.id, epoch=final.epoch, state=final.state)


def told_of(record: Record, end: Awaited, *, nonce: str) -> Record | None:
    """The queue record of a job that waits for another one, once that has ended: it goes on, or is
    doomed. None when it does not wait for it, or no more: what was told first stays."""
    awaited = next((one for one in record.awaits if one.job_id == end.job_id), None)
    if awaited is None:
        return None
    if awaited.when.met_by(end.state):
        return record.evolve(met=[*record.met, end], nonce=nonce)
    return record.evolve(doomed_by=end, nonce=nonce)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What whoever ends an epoch without its holder knows of it."""

    started_at: datetime | None
    """When its command was started, as its last beat told."""
    heard_at: datetime | None
    """Its last sign of life."""
    by: str
    """Who ends it."""
    reason: Reason
    detail: str
    agent_gone: bool = False
    """Whether the agent that claimed it is gone, too."""


def lost(record: Record, loss: Loss, *, now: datetime) -> Ending:
    """The verdict on an epoch whose holder is gone: queued again; timed out when its time is up;
    failed when it was lost too often; completed when its command had been declared to end its
    agent, and that agent is gone."""
    reason, detail = loss.reason, loss.detail
    ran = ran_until(record, loss.heard_at, started_at=loss.started_at, estimated=True)
    limit = clocks.passed_limit(record, milliseconds(now))
    if limit is not None:
        return Ending(
            verdict=Verdict.TIMED_OUT,
            reason=limit.reason,
            detail=clip(f"{limit.detail}; {detail}"),
            started_at=loss.started_at,
            ended_at=now,
            ran=ran,
            by=loss.by,
        )
    if loss.agent_gone and loss.started_at is not None and ends_its_agent(record.spec):
        return Ending(
            verdict=Verdict.COMPLETED,
            reason=Reason.AGENT_TERMINATED_AS_DECLARED,
            detail=clip(f"its agent is gone, as its submitter declared; {detail}"),
            started_at=loss.started_at,
            ended_at=now,
            ran=ran,
            by=loss.by,
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
        started_at=loss.started_at,
        ended_at=now,
        ran=ran,
        by=loss.by,
    )


def ends_its_agent(spec: Spec) -> bool:
    """Whether that its agent is gone is a job's success. The declaration alone counts, never the
    command's text; and not where a success has to be checked first, since nobody could."""
    checked = spec.verify is not None or spec.expected_outputs or spec.require_checkpoint
    return spec.terminates_agent and not checked and spec.type is not JobType.TRAIN


def clip(detail: str) -> str:
    """One line of at most 1,024 characters."""
    line = " ".join(detail.split())
    return line if len(line) <= DETAIL_MAX else f"{line[: DETAIL_MAX - 1]}…"
