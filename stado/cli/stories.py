"""A job's story: its epochs, who held them, how each ended, and what came too late."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from stado.cli.render import duration, instant_text, plural
from stado.cli.views import ending_text, job_fields, wait_fields, wait_text

if TYPE_CHECKING:
    from stado.core.records import Heartbeat, LateResult, Record
    from stado.jobs.status import EpochStory, Story
    from stado.jobs.waiting import Wait

_LABEL_WIDTH = 10


def story_fields(story: Story, wait: Wait | None) -> dict[str, Any]:
    return {
        **job_fields(story.record),
        "waiting": wait_fields(wait) if wait is not None else None,
        "cancel_asked_by": story.cancel_asked_by,
        "last_heard": _heartbeat_fields(story.heartbeat) if story.heartbeat else None,
        "epochs": [_epoch_fields(epoch) for epoch in story.epochs],
    }


def story_lines(story: Story, wait: Wait | None, now: datetime) -> Iterator[str]:
    """`wait`: why it is in the queue, for a job that is."""
    record = story.record
    yield _line("job", record.id)
    yield _line("status", _status(story, now))
    yield from _spec_lines(record)
    yield _line("submitted", f"{_ago(record.submitted_at, now)} by {record.submitter}")
    if story.cancel_asked_by is not None:
        yield _line("cancel", f"asked for by {story.cancel_asked_by}")
    for epoch in story.epochs:
        yield from _epoch_lines(epoch, record, now)
    if wait is not None:
        yield _line("waits", wait_text(wait))


def _line(label: str, text: str) -> str:
    return f"{label:<{_LABEL_WIDTH}}{text}"


def _ago(instant: datetime, now: datetime) -> str:
    age = duration((now - instant).total_seconds())
    return f"{instant.isoformat(sep=' ', timespec='seconds')} ({age} ago)"


def _status(story: Story, now: datetime) -> str:
    record, heartbeat = story.record, story.heartbeat
    parts = [f"{record.state.value}, epoch {record.epoch}"]
    if record.starts:
        parts.append(f"started {plural(record.starts, 'time')}")
    if heartbeat is not None:
        if heartbeat.phase.value != record.state.value:
            parts.append(heartbeat.phase.value)
        parts.append(f"last heard {duration((now - heartbeat.at).total_seconds())} ago")
    return ", ".join(parts)


def _spec_lines(record: Record) -> Iterator[str]:
    spec = record.spec
    yield _line("command", spec.command)
    stated = {
        "verify": spec.verify,
        "workdir": spec.workdir,
        "env": ", ".join(sorted(spec.environment)) or None,
        "cpu": spec.cpu,
        "memory": None if spec.memory_gb is None else f"{spec.memory_gb:g} GiB",
        "priority": record.priority or None,
        "deadline": instant_text(spec.deadline_at),
        "run": record.run_id,
        "batch": record.batch_id,
        "rerun of": record.rerun_of,
    }
    for label, value in stated.items():
        if value is not None:
            yield _line(label, str(value))


def _epoch_lines(epoch: EpochStory, record: Record, now: datetime) -> Iterator[str]:
    told = [*_held(epoch, record, now), *_ended(epoch, now), *_late(epoch, now)]
    yield _line(f"epoch {epoch.epoch}", told[0])
    for text in told[1:]:
        yield _line("", text)


def _held(epoch: EpochStory, record: Record, now: datetime) -> Iterator[str]:
    claim = epoch.claim
    if claim is not None and claim.intent is None:
        yield f"{claim.by} since {_ago(claim.at, now)}"
        if epoch.end is None:
            yield "goes on"
    elif epoch.end is None:
        yield "in the queue" if epoch.epoch == record.epoch else "was queued"


def _ended(epoch: EpochStory, now: datetime) -> Iterator[str]:
    if epoch.end is not None:
        ending = epoch.end.ending
        yield ending_text(ending)
        yield f"by {ending.by} {_ago(ending.ended_at, now)}"


def _late(epoch: EpochStory, now: datetime) -> Iterator[str]:
    late = epoch.late
    if late is not None:
        ended = "" if late.exit_code is None else f"exit code {late.exit_code}: "
        yield f"too late, from {late.consumer}: {ended}{late.detail}"
        yield f"said {_ago(late.at, now)}"


def _epoch_fields(epoch: EpochStory) -> dict[str, Any]:
    claim, ending = epoch.claim, epoch.end.ending if epoch.end else None
    holder = claim.record.holder if claim and claim.intent is None else None
    return {
        "epoch": epoch.epoch,
        "worker": holder.consumer if holder else None,
        "host": holder.host if holder else None,
        "intent": claim.intent.value if claim and claim.intent else None,
        "claimed_at": instant_text(claim.at) if claim else None,
        "started_at": instant_text(ending.started_at) if ending else None,
        "ended_at": instant_text(ending.ended_at) if ending else None,
        "verdict": ending.verdict.value if ending else None,
        "status_reason": ending.reason.value if ending and ending.reason else None,
        "status_detail": ending.detail if ending else None,
        "exit_code": ending.exit_code if ending else None,
        "ended_by": ending.by if ending else None,
        "late": _late_fields(epoch.late) if epoch.late else None,
    }


def _late_fields(late: LateResult) -> dict[str, Any]:
    return {
        "worker": late.consumer,
        "at": instant_text(late.at),
        "exit_code": late.exit_code,
        "detail": late.detail,
    }


def _heartbeat_fields(heartbeat: Heartbeat) -> dict[str, Any]:
    return {
        "at": instant_text(heartbeat.at),
        "phase": heartbeat.phase.value,
        "started_at": instant_text(heartbeat.started_at),
        "sealed": heartbeat.sealed,
    }
