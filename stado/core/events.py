"""What happened to a job, in order: computed from its cells and marks, and stored nowhere.

Pure. An instant is that of the document which tells of it: the cells' are on the store's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from stado.core.pipelines import pipeline_id
from stado.core.records import (
    Asks,
    Awaited,
    ClaimCell,
    EndCell,
    Ending,
    Heartbeat,
    Holder,
    Intent,
    LateResult,
    OpenCell,
    Phase,
    PriorityChange,
    Record,
    Undelivered,
)
from stado.core.states import Opening, Reason, Verdict


class EventKind(StrEnum):
    SUBMITTED = "submitted"
    RELEASED = "released"
    """A job that it waited for has ended as it had to."""
    DOOMED = "doomed"
    """A job that it waited for has ended otherwise."""
    PRIORITY_SET = "priority_set"
    CLAIMED = "claimed"
    ADOPTED = "adopted"
    """Its worker, declared lost, went on with the command that was running."""
    PREPARING = "preparing"
    STARTED = "started"
    RAN_AGAIN = "ran_again"
    """Its command was run more than once in this epoch."""
    STOPPING = "stopping"
    VERIFYING = "verifying"
    UPLOADING = "uploading"
    TROUBLE = "trouble"
    CANCEL_ASKED = "cancel_asked"
    PAUSE_ASKED = "pause_asked"
    YIELD_ASKED = "yield_asked"
    WARNING = "warning"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    PAUSED = "paused"
    LOST = "lost"
    GIVEN_BACK = "given_back"
    """By its host, untouched."""
    RETRYING = "retrying"
    """It failed, and is tried again by itself."""
    YIELDED = "yielded"
    """It made room, and goes on when there is some again."""
    LATE_RESULT = "late_result"
    NOT_TOLD = "not_told"
    """A notice of it could not be delivered."""
    STEP_LAUNCHED = "step_launched"
    RESUMED = "resumed"
    RETRIED = "retried"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Event:
    at: datetime
    kind: EventKind
    epoch: int
    text: str
    """One sentence, with words that others wrote."""
    actor: str | None = None
    """A user, a consumer or a coordinator; None: nothing says who it was."""
    host: str | None = None
    reason: Reason | None = None
    note: str | None = None
    """Why, in the words of who asked."""
    due_at: datetime | None = None
    """Of one that is tried again: not before this."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A step that was queued when a job had completed."""

    number: int
    name: str
    job_id: str
    at: datetime


@dataclass(frozen=True, slots=True)
class EpochTrace:
    """What is stored of one epoch."""

    epoch: int
    opening: OpenCell | None = None
    claim: ClaimCell | None = None
    asks: Asks | None = None
    beat: Heartbeat | None = None
    """Its last one, while it runs."""
    end: EndCell | None = None
    late: LateResult | None = None
    launched: Sequence[Launched] = ()

    @property
    def holder(self) -> Holder | None:
        """None for one that no agent had."""
        claim = self.claim
        return claim.record.holder if claim is not None and claim.intent is None else None

    @property
    def records(self) -> list[Record]:
        cells = (self.opening, self.claim, self.end)
        return [cell.record for cell in cells if cell is not None]


@dataclass(slots=True)
class Sources:
    """Everything that a timeline is computed from."""

    record: Record
    """As it stands; of one that was deleted, as it was last."""
    epochs: Sequence[EpochTrace]
    """In order; the first ones may be missing."""
    parents_ended_at: dict[tuple[str, int], datetime] = field(default_factory=dict)
    """When the jobs ended that it waited for, by id and epoch, as far as that is known."""
    undelivered: Sequence[Undelivered] = ()


def timeline(sources: Sources) -> list[Event]:
    """Oldest first; at the same moment in the order of cause and effect."""
    events = [_submitted(sources.record), *_awaited(sources)]
    for trace in sources.epochs:
        events += _of_epoch(trace, sources.record)
    events += [_not_told(one) for one in sources.undelivered]
    return sorted(events, key=lambda event: event.at)


def awaited_ends(record: Record, epochs: Iterable[EpochTrace]) -> Iterator[tuple[int, Awaited]]:
    """What the job has learned of those that it waited for, once each, and in which epoch."""
    seen = set()
    numbered = [(trace.epoch, one) for trace in epochs for one in trace.records]
    for epoch, one in [*numbered, (record.epoch, record)]:
        for end in [*one.met, *([one.doomed_by] if one.doomed_by is not None else [])]:
            known = (end.job_id, end.epoch)
            if known not in seen:
                seen.add(known)
                yield epoch, end


def _submitted(record: Record) -> Event:
    spec, parts = record.spec, [f"submitted by {record.submitter} as run {record.run_id}"]
    if record.rerun_of is not None:
        parts.append(f"a rerun of {record.rerun_of}")
    if spec.step_of is not None:
        step = spec.step_of
        parts.append(f"step {step.number} ({step.name}) of {pipeline_id(record)}")
    if spec.after:
        parents = ", ".join(f"{one.job_id} ({one.when.value})" for one in spec.after)
        parts.append(f"to wait for {parents}")
    return Event(
        record.submitted_at, EventKind.SUBMITTED, 1, ", ".join(parts), actor=record.submitter
    )


def _awaited(sources: Sources) -> Iterator[Event]:
    """What a job learns of one that had ended before it was submitted, it learns then."""
    record = sources.record
    conditions = {one.job_id: one.when for one in record.spec.after}
    for epoch, end in awaited_ends(record, sources.epochs):
        when = conditions.get(end.job_id)
        ended_at = sources.parents_ended_at.get((end.job_id, end.epoch), record.submitted_at)
        released = when is not None and when.met_by(end.state)
        kind = EventKind.RELEASED if released else EventKind.DOOMED
        then = "it waits for that no more" if released else "it is never to be run"
        yield Event(
            max(ended_at, record.submitted_at),
            kind,
            epoch,
            f"job {end.job_id}, which it was to follow, ended as {end.state.value}: {then}",
        )


def _not_told(lost: Undelivered) -> Event:
    text = f"that it is {lost.word.value} was not told on channel {lost.channel}: {lost.why}"
    return Event(lost.at, EventKind.NOT_TOLD, lost.epoch, text)


def _of_epoch(trace: EpochTrace, record: Record) -> Iterator[Event]:
    yield from _opened(trace)
    yield from _prioritized(trace.epoch, record.priority_changes)
    yield from _claimed(trace)
    yield from _started(trace)
    yield from _asked(trace)
    yield from _of_beat(trace)
    yield from _ended(trace)
    yield from _after_end(trace)


_OPENED = {
    Opening.RETRY: (EventKind.RETRIED, "retried by {by}: queued again as epoch {epoch}"),
    Opening.RESUME: (EventKind.RESUMED, "resumed by {by}: queued again as epoch {epoch}"),
    Opening.CANCEL: (EventKind.CANCEL_ASKED, "{by} asked for it to be cancelled; it was paused"),
    Opening.DELETE: (EventKind.DELETED, "deleted by {by}"),
}


def _opened(trace: EpochTrace) -> Iterator[Event]:
    cell = trace.opening
    if cell is not None:
        kind, text = _OPENED[cell.kind]
        told = text.format(by=cell.by, epoch=trace.epoch)
        yield Event(cell.at, kind, trace.epoch, told, actor=cell.by, note=cell.note)


def _prioritized(epoch: int, changes: Iterable[PriorityChange]) -> Iterator[Event]:
    for one in changes:
        if one.epoch == epoch:
            told = f"{one.by} set its priority to {one.after:,}; it was {one.before:,}"
            yield Event(one.at, EventKind.PRIORITY_SET, epoch, told, actor=one.by)


_INTENDED = {
    Intent.CANCEL: (EventKind.CANCEL_ASKED, "{by} asked for it to be cancelled; it was queued"),
    Intent.PAUSE: (EventKind.PAUSE_ASKED, "{by} asked for it to be paused; it was queued"),
    Intent.EXPIRE: (EventKind.STOPPING, "{by} found that its time was up; it was queued"),
}


def _claimed(trace: EpochTrace) -> Iterator[Event]:
    """An intent is told by the verdict that it comes to, as soon as there is one."""
    claim, holder = trace.claim, trace.holder
    if claim is not None and claim.intent is not None and trace.end is None:
        kind, text = _INTENDED[claim.intent]
        told = text.format(by=claim.by)
        yield Event(claim.at, kind, trace.epoch, told, actor=claim.by, note=claim.note)
    if claim is None or holder is None:
        return
    kind, text = EventKind.CLAIMED, f"claimed by {holder.consumer} on {holder.host}"
    if holder.adopted:
        kind = EventKind.ADOPTED
        text = f"{holder.consumer} on {holder.host} goes on with the command, which still ran"
    yield Event(claim.at, kind, trace.epoch, text, actor=holder.consumer, host=holder.host)


def _started(trace: EpochTrace) -> Iterator[Event]:
    """Nothing of a command that was adopted: the epoch before has told of its start."""
    holder, at = trace.holder, _started_at(trace)
    if at is None or (holder is not None and holder.adopted):
        return
    consumer = holder.consumer if holder is not None else None
    host = holder.host if holder is not None else None
    where = f" on {host}" if host is not None else ""
    text = f"its command was started{where}"
    yield Event(at, EventKind.STARTED, trace.epoch, text, actor=consumer, host=host)


def _started_at(trace: EpochTrace) -> datetime | None:
    if trace.end is not None:
        return trace.end.ending.started_at
    return trace.beat.started_at if trace.beat is not None else None


def _unheeded(trace: EpochTrace) -> str:
    """A yield is for jobs that may be put back, and still run."""
    ended = trace.end is not None and trace.end.ending.verdict is not Verdict.YIELDED
    return ", and it went on" if ended else ""


def _asked(trace: EpochTrace) -> Iterator[Event]:
    asks = trace.asks
    if asks is None:
        return
    if asks.pause and asks.pause_at is not None:
        late = _came_to_nothing(trace, Verdict.PAUSED)
        told = f"{asks.pause_by} asked for it to be paused{late}"
        yield Event(
            asks.pause_at,
            EventKind.PAUSE_ASKED,
            trace.epoch,
            told,
            actor=asks.pause_by,
            note=asks.pause_note,
        )
    if asks.give_way and asks.give_way_at is not None:
        yield Event(
            asks.give_way_at,
            EventKind.YIELD_ASKED,
            trace.epoch,
            f"{asks.give_way_by} asked it to make room{_unheeded(trace)}",
            actor=asks.give_way_by,
            note=asks.give_way_note,
        )
    if asks.cancel and asks.cancel_at is not None:
        late = _came_to_nothing(trace, Verdict.CANCELLED)
        told = f"{asks.cancel_by} asked for it to be cancelled{late}"
        yield Event(
            asks.cancel_at,
            EventKind.CANCEL_ASKED,
            trace.epoch,
            told,
            actor=asks.cancel_by,
            note=asks.cancel_note,
        )


def _came_to_nothing(trace: EpochTrace, asked: Verdict) -> str:
    """What was asked of a lost epoch, or of one that is tried again, goes for the next one."""
    verdict = trace.end.ending.verdict if trace.end is not None else asked
    if verdict is asked or verdict.state is None:
        return ""
    return f", but it has {verdict.value}" if verdict in _BY_ITSELF else ", which came to nothing"


_BY_ITSELF = (Verdict.COMPLETED, Verdict.FAILED, Verdict.TIMED_OUT)

_PHASES = {
    Phase.PREPARING: (EventKind.PREPARING, "being prepared on its host"),
    Phase.STOPPING: (EventKind.STOPPING, "its command is being stopped"),
    Phase.VERIFYING: (EventKind.VERIFYING, "its verify command runs"),
    Phase.UPLOADING: (EventKind.UPLOADING, "what it left is being uploaded"),
}


def _of_beat(trace: EpochTrace) -> Iterator[Event]:
    """What only the last sign of life tells is known of an epoch while that runs."""
    beat = trace.beat
    if beat is None or trace.end is not None:
        return
    if beat.runs > 1:
        yield _ran_again(trace, beat.at, beat.runs)
    if beat.phase in _PHASES and beat.phase_since is not None:
        kind, text = _PHASES[beat.phase]
        yield _by_holder(trace, beat.phase_since, kind, text)
    if beat.trouble:
        yield _by_holder(trace, beat.at, EventKind.TROUBLE, beat.trouble)


def _by_holder(trace: EpochTrace, at: datetime, kind: EventKind, text: str) -> Event:
    holder = trace.holder
    if holder is None:
        return Event(at, kind, trace.epoch, text)
    return Event(at, kind, trace.epoch, text, actor=holder.consumer, host=holder.host)


def _ran_again(trace: EpochTrace, at: datetime, runs: int) -> Event:
    text = f"its command was run {runs} times by then"
    return _by_holder(trace, at, EventKind.RAN_AGAIN, text)


def _ended(trace: EpochTrace) -> Iterator[Event]:
    if trace.end is None:
        return
    ending = trace.end.ending
    if ending.runs is not None and ending.runs > 1:
        yield _ran_again(trace, ending.ended_at, ending.runs)
    for warning in ending.warnings:
        text = f"{warning.code.value}: {warning.detail}"
        yield _by_holder(trace, ending.ended_at, EventKind.WARNING, text)
    holder = trace.holder
    by_holder = holder is not None and ending.by == holder.consumer
    yield Event(
        ending.ended_at,
        _kind_of(ending),
        trace.epoch,
        _told(trace.epoch, ending, by_holder=by_holder),
        actor=ending.by,
        host=holder.host if holder is not None and by_holder else None,
        reason=ending.reason,
        due_at=ending.retry_at,
    )


def _kind_of(ending: Ending) -> EventKind:
    if ending.verdict is Verdict.LOST and ending.reason is Reason.HOST_UNABLE:
        return EventKind.GIVEN_BACK
    return EventKind(ending.verdict.value)


def _told(epoch: int, ending: Ending, *, by_holder: bool) -> str:
    follows = ending.verdict.state is None
    never = not follows and ending.started_at is None
    return ", ".join(
        [
            ending.told,
            *(["its command was not started"] if never else []),
            *([] if by_holder else [f"by {ending.by}"]),
            *([f"epoch {epoch + 1} follows"] if follows else []),
        ]
    )


def _after_end(trace: EpochTrace) -> Iterator[Event]:
    for one in trace.launched:
        text = f"step {one.number} ({one.name}) was queued as job {one.job_id}"
        yield Event(one.at, EventKind.STEP_LAUNCHED, trace.epoch, text)
    late = trace.late
    if late is not None:
        code = "" if late.exit_code is None else f"exit code {late.exit_code}: "
        text = f"{late.consumer} said after the verdict: {code}{late.detail}"
        yield Event(late.at, EventKind.LATE_RESULT, trace.epoch, text, actor=late.consumer)
