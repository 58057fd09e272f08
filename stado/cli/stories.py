"""A job's story: its epochs, who held them, how each ended, and what came too late."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from stado.cli.envelopes import envelope_words
from stado.cli.outcomes import elapsed_text
from stado.cli.policy import save_fields, save_text, seal_fields
from stado.cli.render import duration, instant_text, plural, size_text
from stado.cli.store_words import store_fields, store_text
from stado.cli.views import (
    CANCELLING,
    PAUSING,
    cancel_text,
    input_text,
    instant_of,
    life_word,
    live_job_fields,
    progress_text,
    repo_text,
    retryable_fields,
    running_seconds,
    silent_seconds,
    snapshot_text,
    usage_fields,
    usage_text,
    wait_fields,
    wait_text,
    waiting_seconds,
    warning_fields,
)
from stado.core.clocks import runtime_limit_seconds
from stado.core.durations import duration_text
from stado.core.ids import milliseconds
from stado.core.moves import why_not_retried
from stado.core.pipelines import pipeline_id
from stado.core.records import Usage
from stado.core.schedules import parse_fire_run_id
from stado.core.sidecar import NAME as SIDECAR
from stado.core.states import JobType, Opening, State
from stado.core.usage import used_in, used_so_far

if TYPE_CHECKING:
    from stado.core.records import (
        Checkpoint,
        Ending,
        Heartbeat,
        LateResult,
        LogAccount,
        OpenCell,
        Record,
    )
    from stado.core.reopening import Retryable
    from stado.jobs.fitting import Wait
    from stado.jobs.status import EpochStory, Life, Story

LABEL_WIDTH = 10


def story_fields(story: Story, wait: Wait | None, again: Retryable) -> dict[str, Any]:
    life = story.life
    heartbeat = life.heartbeat if life is not None else None
    return {
        **live_job_fields(story.record, life),
        "retryable": retryable_fields(again),
        "wait_reasons": [wait.code] if wait is not None else [],
        "waiting": wait_fields(wait) if wait is not None else None,
        "run_time": story.run_time,
        "last_heard": _heartbeat_fields(heartbeat) if heartbeat else None,
        "checkpoint": _checkpoint_fields(story.checkpoint) if story.checkpoint else None,
        "policy": seal_fields(story.seal) if story.seal else None,
        "log": _log_fields(story.log) if story.log else None,
        "paused_by": story.pause.by if story.pause is not None else None,
        "paused_at": instant_text(story.pause.at) if story.pause is not None else None,
        "pause_reason": story.pause.note if story.pause is not None else None,
        "epochs": [_epoch_fields(epoch) for epoch in story.epochs],
    }


def story_lines(story: Story, wait: Wait | None, again: Retryable, now: datetime) -> Iterator[str]:
    """`wait`: why it is in the queue, for a job that is."""
    record = story.record
    yield _line("job", record.id)
    yield _line("status", _status(story, now))
    if story.life is not None:
        for label, text in life_lines(record, story.life, now):
            yield _line(label, text)
    yield from _pause_lines(story, now)
    yield from _usage_lines(record, story.life, now)
    yield from _spec_lines(record)
    if story.run_time is not None:
        yield _line("run time", story.run_time)
    yield _line("submitted", f"{ago_text(record.submitted_at, now)} by {record.submitter}")
    for epoch in story.epochs:
        yield from _epoch_lines(epoch, record, now)
    yield from _log_lines(story)
    yield from _checkpoint_lines(story, now)
    if wait is not None:
        yield _line("waits", wait_text(wait))
    yield from _retry_lines(record, again)


def _retry_lines(record: Record, again: Retryable) -> Iterator[str]:
    """Of what has ended and did not complete."""
    if not record.state.terminal or record.state is State.COMPLETED:
        return
    refusal = again.refusal
    if refusal is None:
        yield _line("retry", f"`stado job retry {record.id}` queues it again")
    else:
        yield _line("retry", f"it cannot be retried ({refusal.code}): {refusal.text}")


def life_lines(record: Record, life: Life, now: datetime) -> Iterator[tuple[str, str]]:
    """What is known of a job that runs, by label: when its holder was last heard and how long
    its lease lasts, what it cannot get done, who wants it stopped."""
    holder, heartbeat = record.holder, life.heartbeat
    if holder is not None:
        silence = silent_seconds(record, heartbeat, now)
        what = "heard" if heartbeat is not None else "claimed, no beat yet"
        yield (
            "heard",
            (
                f"{holder.consumer} was last {what} {ago_text(_last_sign(record, life), now)}, "
                f"{_lease_text(holder.lease_seconds, silence)}"
            ),
        )
    if heartbeat is not None and heartbeat.progress is not None:
        yield "progress", progress_text(heartbeat.progress)
    if heartbeat is not None and heartbeat.live is not None:
        yield "live", heartbeat.live
    if heartbeat is not None and heartbeat.trouble:
        yield "trouble", heartbeat.trouble
    if life.cancel_asked_by is not None:
        asked_at = life.cancel_asked_at
        when = f" {ago_text(asked_at, now)}" if asked_at is not None else ""
        stopping = life_word(life) == CANCELLING
        then = f": {cancel_text(life.cancel_grace_seconds)}" if stopping else ""
        machine = _WITH_ITS_MACHINE if life.terminate_asked else ""
        asked = f"asked for by {life.cancel_asked_by}{when}{machine}{_because(life.note)}{then}"
        yield "cancel", asked
    elif life.pause_asked_by is not None:
        asked_at = life.pause_asked_at
        when = f" {ago_text(asked_at, now)}" if asked_at is not None else ""
        stopping = life_word(life) == PAUSING
        then = f": {cancel_text(life.cancel_grace_seconds)}" if stopping else ""
        yield "pause", f"asked for by {life.pause_asked_by}{when}{_because(life.note)}{then}"
    yielding = _yield_text(record, life, now)
    if yielding is not None:
        yield "yields", yielding


def _yield_text(record: Record, life: Life, now: datetime) -> str | None:
    """Whether it may be put back for others, and whether it is about to be; None: it never said
    that it may, and nobody asked."""
    times = plural(record.yields_left, "more time")
    if life.yield_asked_by is not None:
        at = life.yield_asked_at
        when = f" {ago_text(at, now)}" if at is not None else ""
        asked = f"asked for by {life.yield_asked_by}{when}{_because(life.yield_note)}"
        if life.evict or record.yields_left:
            return f"{asked}: stopped, saved and queued again with its worker's next check-in"
        return f"{asked}: it is protected, and goes on"
    if not record.spec.yieldable:
        return None
    if not record.yields_left:
        return "protected: it is not put back any more" if record.yields else "protected"
    return f"it may be put back for a more urgent job, {times}"


_WITH_ITS_MACHINE = ", to give its machine back (--terminate), which nobody heeds yet"


def _because(note: str | None) -> str:
    """Of a change that somebody asked for, in their own words."""
    return "" if note is None else f' ("{note}")'


def _pause_lines(story: Story, now: datetime) -> Iterator[str]:
    pause, job_id = story.pause, story.record.id
    if pause is not None:
        yield _line("paused", f"{ago_text(pause.at, now)} by {pause.by}{_because(pause.note)}")
        yield _line("", f"`stado job resume {job_id}` lets it go on")


def _usage_lines(record: Record, life: Life | None, now: datetime) -> Iterator[str]:
    heartbeat = life.heartbeat if life is not None else None
    used = used_so_far(record, heartbeat, now) if life is not None else record.usage
    if used.wall_ms:
        yield _line("used", usage_text(used))


def ago_text(instant: datetime, now: datetime) -> str:
    """`2026-03-29 01:30:00Z (3m 12s ago)`."""
    age = duration((now - instant).total_seconds())
    return f"{moment_text(instant)} ({age} ago)"


def moment_text(instant: datetime) -> str:
    """`2026-03-29 01:30:00Z`; as it is written where the calendar has no such moment in UTC."""
    try:
        return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
    except OverflowError:
        return instant.isoformat(sep=" ", timespec="seconds")


def _last_sign(record: Record, life: Life) -> datetime:
    if life.heartbeat is not None:
        return life.heartbeat.at
    assert record.holder is not None  # a running record has one
    return record.holder.claimed_at


def _lease_text(lease_seconds: float, silence: float) -> str:
    left = lease_seconds - silence
    if left > 0:
        return f"its lease of {lease_seconds:g} s lasts {duration(left)} more"
    return (
        f"longer than its lease of {lease_seconds:g} s: it is queued again once a coordinator "
        "or another agent has watched it be silent"
    )


def _line(label: str, text: str) -> str:
    return f"{label:<{LABEL_WIDTH}}{text}"


def _status(story: Story, now: datetime) -> str:
    record, life = story.record, story.life
    seconds = None
    if record.state is State.QUEUED:
        seconds = waiting_seconds(record, now)
    elif life is not None:
        seconds = running_seconds(record, life.heartbeat, now)
    lasting = f" for {duration(seconds)}" if seconds is not None else _after(record.ending)
    parts = [f"{record.state.value}{lasting}, epoch {record.epoch}"]
    if life is not None and life_word(life) != record.state.value:
        parts.append(life_word(life))
    starts = record.starts + _starts_now(life)
    if starts:
        parts.append(f"started {plural(starts, 'time')}")
    if record.manual_retries:
        parts.append(f"retried {plural(record.manual_retries, 'time')}")
    if record.auto_retries:
        parts.append(f"tried again {plural(record.auto_retries, 'time')} by itself")
    if record.lease_losses:
        parts.append(f"lost {plural(record.lease_losses, 'time')}")
    if record.pauses:
        parts.append(f"paused {plural(record.pauses, 'time')}")
    if life is not None and life.heartbeat is not None and life.heartbeat.runs > 1:
        parts.append(f"run {life.heartbeat.runs} of {record.spec.body_retries + 1}")
    return ", ".join(parts)


def _starts_now(life: Life | None) -> int:
    """A record counts the starts of epochs that have ended; of the present one its beats tell."""
    return int(life is not None and life.heartbeat is not None and bool(life.heartbeat.started_at))


def _after(ending: Ending | None) -> str:
    if ending is None or ending.started_at is None:
        return ""
    return f" after {elapsed_text((ending.ended_at - ending.started_at).total_seconds())}"


def _spec_lines(record: Record) -> Iterator[str]:
    spec = record.spec
    yield _line("command", spec.command)
    stated = {
        "before": spec.pre_command,
        "shell": "bash, strict" if spec.strict_shell else None,
        "image": spec.image,
        "verify": spec.verify,
        "type": None if spec.type is JobType.JOB else spec.type.value,
        "requires": "a checkpoint" if spec.require_checkpoint else None,
        "from": spec.start_from.ref if spec.start_from is not None else None,
        "host_dir": spec.host_dir,
        "snapshot": None if spec.snapshot is None else snapshot_text(spec.snapshot),
        "repo": None if spec.repo is None else repo_text(spec.repo),
        "env": ", ".join(sorted(spec.environment)) or None,
        "secrets": ", ".join(f"{k}={v}" for k, v in sorted(spec.secrets.items())) or None,
        "cpu": None if spec.cpu is None else f"{spec.cpu:g} core{'' if spec.cpu == 1 else 's'}",
        "memory": None if spec.memory_gb is None else f"{spec.memory_gb:g} GiB",
        **envelope_words(record),
        "begins": None if spec.not_before is None else f"not before {moment_text(spec.not_before)}",
        "expects": ", ".join(spec.expected_outputs) or None,
        "copy to": spec.output_uri,
        "tags": ", ".join(spec.tags) or None,
        "priority": record.priority or None,
        "deadline": None if spec.deadline_at is None else moment_text(spec.deadline_at),
        "time": _time_text(record),
        "idle": None
        if spec.idle_timeout_seconds is None
        else f"ended after {duration_text(spec.idle_timeout_seconds)} without a sign of work",
        "tells": ", ".join(record.notice_rules) or None,
        "final": "nobody can retry it" if spec.final else None,
        "retries": None
        if not spec.body_retries
        else f"run {plural(spec.body_retries + 1, 'time')} at most on its host",
        "again": _again_text(record),
        "step": None
        if spec.step_of is None
        else f"{spec.step_of.number} ({spec.step_of.name}) of {pipeline_id(record)}",
        "workload": spec.workload_kind,
        "after": ", ".join(f"{one.job_id} ({one.when.value})" for one in spec.after) or None,
        "then": _then_text(record),
        "schedule": _schedule_text(record),
        "run": record.run_id,
        "batch": record.batch_id,
        "rerun of": record.rerun_of,
    }
    for label, value in stated.items():
        if value is not None:
            yield _line(label, str(value))
    for number, pinned in enumerate(spec.inputs):
        yield _line("" if number else "inputs", input_text(pinned))


def _schedule_text(record: Record) -> str | None:
    """Which one has submitted it, and for when."""
    parsed = parse_fire_run_id(record.run_id)
    if parsed is None:
        return None
    name, at, was_due = parsed
    return f"{name}, {'due' if was_due else 'asked for'} {moment_text(at)}"


def _then_text(record: Record) -> str | None:
    """What is to follow it, and where one sees what became of that."""
    names = ", ".join(step.name for step in record.spec.then)
    return f"{names} (`stado pipeline show {record.id}`)" if names else None


def _again_text(record: Record) -> str | None:
    """What it may do by itself once it has failed, as far as that is fixed."""
    rule = record.retry_rule
    if rule is None:
        return f"{plural(record.spec.retries, 'time')} at most" if record.spec.retries else None
    left = f"{record.auto_retries_left} of {plural(rule.retries, 'time')} left"
    why_not = why_not_retried(record)
    if why_not is not None:
        return f"not tried again: {why_not} ({left})"
    return f"{left}, after {', '.join(rule.on)}"


def _time_text(record: Record) -> str | None:
    """`at most 2h (until 2026-03-29 03:30:00Z)`; None where nothing limits it but its deadline."""
    seconds = runtime_limit_seconds(record)
    if seconds is None:
        return None
    text = f"at most {duration_text(seconds)}"
    if record.picked_up_at is None:
        return f"{text} from when it is picked up"
    until = milliseconds(record.picked_up_at) + 1000 * seconds
    return f"{text} (until {moment_text(instant_of(until))})"


def _log_lines(story: Story) -> Iterator[str]:
    """Only where it is not whole: the rest is seen when it is read."""
    account = story.log
    if account is not None and account.dropped:
        yield _line(
            "log",
            f"{size_text(account.kept)} of {size_text(account.written)} are kept: "
            f"{size_text(account.dropped)} between its beginning and its end were dropped, beyond "
            "its worker's --log-limit-mb",
        )


def _checkpoint_lines(story: Story, now: datetime) -> Iterator[str]:
    """What was saved last, whether what the job says of it is believed, and what became of it."""
    saved = story.checkpoint
    if saved is not None:
        said = save_text(saved.meta)
        size = size_text(saved.size)
        yield _line("saved", f"{ago_text(saved.at, now)}, {size}{said and f', {said}'}")
        if saved.best is not None and story.seal is None:
            yield _line("", f"the best so far: {save_text(saved.best.meta)}")
        if saved.meta_invalid is not None:
            why = saved.meta_invalid
            yield _line("", f"its {SIDECAR} is not believed (checkpoint_meta_invalid): {why}")
    seal = story.seal
    if seal is not None:
        best = "" if seal.best is None else f", best: {save_text(seal.best.meta)}"
        what = f"{seal.policy_id}{best}" if seal.latest is not None else "none: nothing was saved"
        yield _line("policy", what)
    elif story.record.policy_id is not None and story.record.manual_retries:
        yield _line("policy", f"{story.record.policy_id}, once it has ended")


def _log_fields(account: LogAccount) -> dict[str, int]:
    return {"written": account.written, "kept": account.kept, "dropped": account.dropped}


def _checkpoint_fields(saved: Checkpoint) -> dict[str, Any]:
    return {
        "epoch": saved.epoch,
        "sequence": saved.sequence,
        "saved_at": instant_text(saved.at),
        "size": saved.size,
        "files": len(saved.files),
        "meta": saved.meta.plain() if saved.meta is not None else None,
        "meta_invalid": saved.meta_invalid,
        "best": save_fields(saved.best) if saved.best is not None else None,
    }


def _epoch_lines(epoch: EpochStory, record: Record, now: datetime) -> Iterator[str]:
    told = [
        *_opened(epoch, now),
        *_held(epoch, record, now),
        *_ended(epoch, now),
        *_late(epoch, now),
    ]
    yield _line(f"epoch {epoch.epoch}", told[0])
    for text in told[1:]:
        yield _line("", text)


_OPENED = {
    Opening.RETRY: "retried",
    Opening.RESUME: "resumed",
    Opening.CANCEL: "cancelled while it was paused",
}


def _opened(epoch: EpochStory, now: datetime) -> Iterator[str]:
    cell = epoch.opening
    if cell is not None and cell.kind in _OPENED:
        yield f"{_OPENED[cell.kind]} by {cell.by} {ago_text(cell.at, now)}{_because(cell.note)}"


def _held(epoch: EpochStory, record: Record, now: datetime) -> Iterator[str]:
    claim = epoch.claim
    if claim is not None and claim.intent is None:
        yield f"{claim.by} since {ago_text(claim.at, now)}"
        if epoch.end is None:
            yield "goes on"
    elif epoch.end is None:
        yield "in the queue" if epoch.epoch == record.epoch else "was queued"


def _ended(epoch: EpochStory, now: datetime) -> Iterator[str]:
    if epoch.end is not None:
        ending = epoch.end.ending
        yield f"{ending.told}{_asked_by(epoch)}"
        if ending.retry_at is not None:
            yield f"tried again from {moment_text(ending.retry_at)} on"
        ran = _after(ending)
        yield f"by {ending.by} {ago_text(ending.ended_at, now)}{ran and f',{ran}'}"
        if ending.runs is not None and ending.runs > 1:
            yield f"its command was run {ending.runs} times"
        if ending.output_files:
            files = plural(ending.output_files, "file")
            yield f"left {files}, {size_text(ending.output_bytes or 0)}"
        asked = store_text(ending)
        if asked is not None:
            yield asked
        for warning in ending.warnings:
            yield f"warning: {warning.code.value}: {warning.detail}"


def _asked_by(epoch: EpochStory) -> str:
    asked = epoch.cancel_asked_by or epoch.pause_asked_by
    if asked is None:
        return ""
    told = epoch.end.ending.detail if epoch.end is not None else None
    note = None if epoch.note is not None and epoch.note in (told or "") else epoch.note
    machine = _WITH_ITS_MACHINE if epoch.terminate_asked else ""
    return f", asked for by {asked}{machine}{_because(note)}"


def _late(epoch: EpochStory, now: datetime) -> Iterator[str]:
    late = epoch.late
    if late is not None:
        ended = "" if late.exit_code is None else f"exit code {late.exit_code}: "
        yield f"late result of epoch {late.epoch}, from {late.consumer}: {ended}{late.detail}"
        yield f"said {ago_text(late.at, now)}"


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
        **usage_fields(used_in(epoch.end) if epoch.end else Usage()),
        "retry_at": instant_text(ending.retry_at) if ending else None,
        "output_files": ending.output_files if ending else None,
        "output_bytes": ending.output_bytes if ending else None,
        "store": store_fields(ending),
        "warnings": warning_fields(ending),
        "cancel_asked_by": epoch.cancel_asked_by,
        "terminate_asked": epoch.terminate_asked,
        "pause_asked_by": epoch.pause_asked_by,
        "asked_reason": epoch.note,
        "opening": _opening_fields(epoch.opening) if epoch.opening else None,
        "late": _late_fields(epoch.late) if epoch.late else None,
    }


def _opening_fields(cell: OpenCell) -> dict[str, Any]:
    return {
        "kind": cell.kind.value,
        "by": cell.by,
        "at": instant_text(cell.at),
        "reason": cell.note,
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
        "doing": heartbeat.phase.value,
        "started_at": instant_text(heartbeat.started_at),
        "sealed": heartbeat.sealed,
    }
