"""What a job looks like: as fields of JSON, as a row, as a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import compress
from typing import TYPE_CHECKING, Any

from stado.cli.render import duration, hours_text, instant_text, plural, short_duration
from stado.cli.tables import Colour, Column
from stado.core.ids import milliseconds
from stado.core.pipelines import PipelineState
from stado.core.reopening import Retryable, by_its_record
from stado.core.states import JobType, State

if TYPE_CHECKING:
    from stado.core.records import Ending, Heartbeat, PolicySeal, Progress, Record, Usage
    from stado.core.spec import GitRepo, Input, Snapshot, Spec, StartFrom
    from stado.jobs.fitting import Wait
    from stado.jobs.listings import Listing
    from stado.jobs.status import Life, Row

STATUS_STYLES: Mapping[str, Colour] = {
    "preparing": "cyan",
    "running": "cyan",
    "verifying": "cyan",
    "uploading": "cyan",
    "stopping": "magenta",
    "cancelling": "magenta",
    "pausing": "magenta",
    "paused": "magenta",
    "completed": "green",
    "failed": "red",
    "cancelled": "magenta",
    "timed_out": "red",
    "succeeded": "green",
    "partial": "red",
    "stopped": "magenta",
}

CANCELLING = "cancelling"
"""What a job is said to be doing from when its cancel is asked for until it has ended."""

PAUSING = "pausing"
"""The same of a pause."""

_FOR_SOME = ("TYPE", "STEPS", "PROGRESS", "POLICY", "REASON", "WARNING", "TAGS")

LIST_COLUMNS = (
    Column("TYPE", expendable=2),
    Column("JOB"),
    Column("STATUS", styles=STATUS_STYLES),
    Column("STEPS"),
    Column("AGE", right=True, expendable=1),
    Column("TIME", right=True),
    Column("RUN", width_max=20),
    Column("PROGRESS", width_max=26, joins="REASON"),
    Column("POLICY", expendable=3),
    Column("REASON", width_max=26),
    Column("WARNING", width_max=26),
    Column("TAGS", width_max=20, expendable=2),
    Column("COMMAND"),
)
"""Of a list of jobs."""

_BELOW = "  "
"""Before the id of a step that stands below its pipeline."""

_TELLING = (
    (State.RUNNING,),
    (State.QUEUED, State.PAUSED),
    (State.FAILED, State.TIMED_OUT, State.CANCELLED),
)

_SUMMARY_ORDER = (
    State.QUEUED,
    State.RUNNING,
    State.PAUSED,
    State.COMPLETED,
    State.FAILED,
    State.CANCELLED,
    State.TIMED_OUT,
)


def job_fields(record: Record) -> dict[str, Any]:
    """A job in JSON. Values of its environment may be private: the names are shown."""
    from stado.core.phases import job_ref
    from stado.core.pipelines import pipeline_id
    from stado.core.schedules import schedule_of_run

    spec, holder, ending = record.spec, record.holder, telling_ending(record)
    return {
        "job_id": record.id,
        "job_ref": job_ref(record),
        "status": record.state.value,
        "epoch": record.epoch,
        "starts": record.starts,
        "status_reason": ending.reason.value if ending and ending.reason else None,
        "status_detail": ending.detail if ending else None,
        "exit_code": ending.exit_code if ending else None,
        "runs": ending.runs if ending else None,
        "batch_id": record.batch_id,
        "run_id": record.run_id,
        "schedule": schedule_of_run(record.run_id),
        "rerun_of": record.rerun_of,
        "command": spec.command,
        "pre_command": spec.pre_command,
        "strict_shell": spec.strict_shell,
        "image": spec.image,
        "verify": spec.verify,
        "host_dir": spec.host_dir,
        "snapshot": snapshot_fields(spec.snapshot) if spec.snapshot is not None else None,
        "repo": repo_fields(spec.repo) if spec.repo is not None else None,
        "environment_names": sorted(spec.environment),
        "secrets": dict(sorted(spec.secrets.items())),
        "cpu": spec.cpu,
        "memory_gb": spec.memory_gb,
        **_envelope_fields(spec),
        "priority": record.priority,
        "deadline_at": instant_text(spec.deadline_at),
        "timeout_seconds": spec.timeout_seconds,
        "runtime_limit_seconds": record.runtime_limit_seconds,
        "idle_timeout_seconds": spec.idle_timeout_seconds,
        "body_retries": spec.body_retries,
        "retries": spec.retries,
        "retry_on": [reason.value for reason in spec.retry_on],
        "retry_delay_seconds": spec.retry_delay_seconds,
        "auto_retries": record.auto_retries,
        "auto_retries_left": _auto_retries_left(record),
        "retry_count": record.auto_retries + record.manual_retries,
        "due_at": None if record.due_ms is None else instant_text(instant_of(record.due_ms)),
        "picked_up_at": instant_text(record.picked_up_at),
        "time_is_up_at": time_is_up_text(record),
        "max_lease_losses": spec.max_lease_losses,
        "expected_outputs": spec.expected_outputs,
        "output_uri": spec.output_uri,
        "inputs": [_input_fields(one) for one in spec.inputs],
        "lease_losses": record.lease_losses,
        "final": spec.final,
        "terminates_agent": spec.terminates_agent,
        "notify": record.notice_rules,
        "manual_retries": record.manual_retries,
        "pauses": record.pauses,
        "yields": record.yields,
        "opened_from": record.opened_from.value if record.opened_from is not None else None,
        "tags": spec.tags,
        "type": spec.type.value,
        "require_checkpoint": spec.needs_checkpoint,
        "start_from": _start_fields(spec.start_from) if spec.start_from else None,
        "policy_id": record.policy_id,
        "pipeline_id": pipeline_id(record),
        "step": step_of.number if (step_of := spec.step_of) is not None else None,
        "step_name": step_of.name if step_of is not None else None,
        "workload_kind": spec.workload_kind,
        "after": [f"{one.job_id}:{one.when.value}" for one in spec.after],
        "then": [step.plain() for step in spec.then],
        "submitter": record.submitter,
        "submitted_at": instant_text(record.submitted_at),
        "started_at": instant_text(ending.started_at) if ending else None,
        "ended_at": instant_text(ending.ended_at) if ending else None,
        "output_files": ending.output_files if ending else None,
        "output_bytes": ending.output_bytes if ending else None,
        "warnings": warning_fields(ending),
        "worker": holder.consumer if holder else None,
        "host": holder.host if holder else None,
        **usage_fields(record.usage),
    }


def _auto_retries_left(record: Record) -> int | None:
    """None until it is picked up first: what the deployment allows counts as of then."""
    return None if record.picked_up_at is None else record.auto_retries_left


def _envelope_fields(spec: Spec) -> dict[str, Any]:
    """What the job asks of its host, beside cores and memory."""
    return {
        "gpus": spec.gpus,
        "gpu_type": spec.gpu_type,
        "vram_gb": spec.vram_gb,
        "disk_gb": spec.disk_gb,
        "exclusive": spec.exclusive,
        "machine_type": spec.machine_type,
        "labels": spec.labels,
        "pinned_host": spec.pinned_host,
        "provider": spec.provider,
        "pin_provider": spec.pin_provider,
        "spot": spec.spot.value,
        "max_cost_per_hour": spec.max_cost_per_hour,
        "boot_disk_gb": spec.boot_disk_gb,
        "model": spec.model,
        "runtime_seconds_estimate": spec.runtime_seconds_estimate,
        "group": spec.group,
        "array_index": None if spec.array is None else spec.array.index,
        "array_at_a_time": None if spec.array is None else spec.array.at_a_time,
        "not_before": instant_text(spec.not_before),
        "yieldable": spec.yieldable,
        "max_yields": spec.max_yields,
    }


def usage_fields(used: Usage) -> dict[str, Any]:
    """What the epochs of a job have used."""
    return {
        "wall_seconds": used.wall_ms / 1000,
        "gpu_seconds": used.gpu_ms / 1000,
        "gpu_share_seconds": used.gpu_share_ms / 1000,
        "usage_estimated": used.estimated,
    }


def usage_text(used: Usage) -> str:
    """`3h 12m, 6.40 GPU-hours, partly estimated`."""
    parts = [duration(used.wall_ms / 1000)]
    if used.gpu_ms:
        parts.append(f"{hours_text(used.gpu_ms)} GPU-hours")
    if used.estimated:
        parts.append("partly estimated")
    return ", ".join(parts)


def time_is_up_text(record: Record) -> str | None:
    """When the first of its limits is reached; None: never, or it counts from a claim to come, or
    the job is not to run at all."""
    from stado.core.clocks import time_limit

    limit = time_limit(record)
    return None if limit is None or not limit.at_ms else instant_text(instant_of(limit.at_ms))


def instant_of(ms: int) -> datetime:
    """The last one that the calendar has, where it has no such moment."""
    try:
        return datetime.fromtimestamp(ms / 1000, tz=UTC)
    except (ValueError, OverflowError):
        return datetime.max.replace(tzinfo=UTC)


def warning_fields(ending: Ending | None) -> list[dict[str, str]]:
    warnings = ending.warnings if ending is not None else []
    return [{"code": warning.code.value, "detail": warning.detail} for warning in warnings]


def _input_fields(pinned: Input) -> dict[str, Any]:
    return {
        "name": pinned.name,
        "source": pinned.source,
        "path": pinned.path,
        "sha256": pinned.sha256,
    }


def input_text(pinned: Input) -> str:
    """Where an input is from, in words, and the pin."""
    from stado.core import keys

    output, artifact = keys.parse_output_manifest(pinned.source), keys.parse_artifact(pinned.source)
    said = pinned.source
    if output is not None:
        said = f"output of job {output[0]}, epoch {output[1]}"
    elif artifact is not None:
        said = f"artifact {artifact[0]}@{artifact[1]}"
    part = f", {pinned.path} of it" if pinned.path else ""
    return f"{pinned.name}: {said}{part} (SHA-256 {pinned.sha256})"


def snapshot_fields(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "digest": snapshot.digest,
        "files": snapshot.files,
        "bytes": snapshot.bytes,
        "commit": snapshot.commit,
        "dirty": snapshot.dirty,
    }


def snapshot_text(snapshot: Snapshot) -> str:
    """`1a2b3c4d5e6f (12 files, 34 KiB), commit 5d6e7f8a9b0c, dirty`."""
    from stado.core.trees import shown
    from stado.sizes import file_size

    what = f"{plural(snapshot.files, 'file')}, {file_size(snapshot.bytes)}"
    commit = "" if snapshot.commit is None else f", commit {shown(snapshot.commit)}"
    dirty = ", dirty" if snapshot.dirty else ""
    return f"{shown(snapshot.digest)} ({what}){commit}{dirty}"


def repo_fields(repo: GitRepo) -> dict[str, Any]:
    return {"url": repo.url, "commit": repo.commit, "folder": repo.folder}


def repo_text(repo: GitRepo) -> str:
    folder = f", folder {repo.folder}" if repo.folder is not None else ""
    return f"{repo.url} at commit {repo.commit}{folder}"


def telling_ending(record: Record) -> Ending | None:
    """The ending that explains the present status: of this epoch at rest, of the one before
    while the job is queued again. What runs needs no reason."""
    return None if record.state is State.RUNNING else record.ending


def row_fields(row: Row, wait: Wait | None, now: datetime) -> dict[str, Any]:
    if row.record is None:
        return {"job_id": row.job_id, "status": row.state.value, "problem": row.problem}
    return {
        **live_job_fields(row.record, row.life),
        "retryable": retryable_fields(by_its_record(row.record, now)),
        "wait_reasons": [wait.code] if wait is not None else [],
        "policy": policy_text(row.record, row.seal) or None,
        "paused_by": row.pause.by if row.pause is not None else None,
        "problem": None,
    }


def retryable_fields(again: Retryable) -> dict[str, Any]:
    refusal = again.refusal
    return {
        "allowed": again.allowed,
        "code": refusal.code if refusal is not None else None,
        "detail": refusal.text if refusal is not None else None,
    }


def live_job_fields(record: Record, life: Life | None) -> dict[str, Any]:
    """A job, with what the holder of a running one says; null of one that does not run. What it
    has used is as of its last beat."""
    from stado.core.phases import phase_of
    from stado.core.usage import used_so_far

    heartbeat = life.heartbeat if life is not None else None
    started_at = heartbeat.started_at if heartbeat is not None else None
    fields = job_fields(record)
    if heartbeat is not None:
        fields["started_at"] = instant_text(heartbeat.started_at)
        fields["runs"] = heartbeat.runs or None
        fields |= usage_fields(used_so_far(record, heartbeat, heartbeat.at))
    return {
        **fields,
        "phase": phase_of(record, heard=heartbeat is not None, started_at=started_at).value,
        "doing": heartbeat.phase.value if heartbeat else None,
        "trouble": heartbeat.trouble if heartbeat else None,
        "progress": progress_fields(heartbeat.progress if heartbeat else None),
        "live": heartbeat.live if heartbeat else None,
        "last_heard_at": instant_text(heartbeat.at) if heartbeat else None,
        "cancel_asked_by": life.cancel_asked_by if life is not None else None,
        "terminate_asked": life is not None and life.terminate_asked,
        "pause_asked_by": life.pause_asked_by if life is not None else None,
    }


def progress_fields(progress: Progress | None) -> dict[str, Any] | None:
    return None if progress is None else {"fraction": progress.fraction, "text": progress.text}


def progress_text(progress: Progress) -> str:
    """`42%: round 3 of 7`."""
    done = f"{int(progress.fraction * 100)}%"
    return f"{done}: {progress.text}" if progress.text else done


def listing_fields(listing: Listing, waits: Mapping[str, Wait], now: datetime) -> dict[str, Any]:
    return {
        "jobs": [row_fields(row, waits.get(row.job_id), now) for row in listing.rows],
        "total": {"count": listing.total, "at_least": listing.total_at_least},
        "more": listing.more,
        "search_cut": listing.search_cut,
        "queue_paused": listing.queue_paused,
        "counts": {state.value: count for state, count in _ordered(listing.counts).items()},
    }


def own_reasons(waits: Mapping[str, Wait], *, alive: bool) -> dict[str, str]:
    """Of queued jobs, by id, what is theirs alone to wait for. That the queue is paused, or, with
    no agent `alive`, that nobody is at work, is said of all of them at once, elsewhere."""
    everybodys = {"queue_paused", "starting", "waiting_capacity"}
    if not alive:
        everybodys.add("no_eligible_worker")
    return {job_id: wait.code for job_id, wait in waits.items() if wait.code not in everybodys}


def listing_table(
    listing: Listing, reasons: Mapping[str, str], now: datetime, *, steps: bool = False
) -> tuple[list[Column], list[list[str]]]:
    """The columns and cells of a list. `reasons`: of queued jobs, by id. `steps`: those of a
    pipeline have rows below it. TYPE, STEPS, PROGRESS, POLICY, REASON, WARNING and TAGS are there
    only when some row has one."""
    rows = listing.jobs if steps else listing.rows
    below = {step.job_id for row in listing.rows if row.steps for step in row.steps.rows}
    cells = [
        [
            kind,
            f"{_BELOW if row.job_id in below else ''}{row.job_id}",
            _status_word(row),
            _steps_text(row),
            *_row_cells(row, _row_reason(row, reasons, now), now),
        ]
        for row, kind in zip(rows, _types(rows), strict=True)
    ]
    shown = [
        column.title not in _FOR_SOME or any(row[number] for row in cells)
        for number, column in enumerate(LIST_COLUMNS)
    ]
    return list(compress(LIST_COLUMNS, shown)), [list(compress(row, shown)) for row in cells]


def _telling(row: Row) -> Row:
    """The job by which one sees what a pipeline is at: its root until that has completed, then a
    step that is under way, or else the first that went wrong."""
    steps = row.steps
    if steps is None or steps.root is not State.COMPLETED:
        return row
    for states in _TELLING:
        found = next((step for step in steps.rows if step.state in states), None)
        if found is not None:
            return found
    return row


def _row_reason(row: Row, reasons: Mapping[str, str], now: datetime) -> str:
    """Of a pipeline with the name of the step whose reason it is."""
    telling = _telling(row)
    told = _reason(telling, now) or reasons.get(telling.job_id, "")
    if not told or telling is row or telling.record is None:
        return told
    step_of = telling.record.spec.step_of
    return f"{step_of.name}: {told}" if step_of is not None else told


def _steps_text(row: Row) -> str:
    """`1/2!` of a pipeline, of which something did not happen; `2 eval` of a step."""
    if row.steps is not None:
        short = "!" if row.steps.state is PipelineState.PARTIAL else ""
        return f"{row.steps.done}/{len(row.steps.states)}{short}"
    step_of = row.record.spec.step_of if row.record is not None else None
    return f"{step_of.number} {step_of.name}" if step_of is not None else ""


def _types(rows: Sequence[Row]) -> list[str]:
    """Nothing where all are what most jobs are."""
    types = [row.record.spec.type.value if row.record is not None else "" for row in rows]
    return types if set(types) - {"", JobType.JOB.value} else [""] * len(rows)


def policy_text(record: Record | None, seal: PolicySeal | None) -> str:
    """`made policy_x`, `none` of a train job that ended without a checkpoint, `uses policy_y:best`
    of others; nothing where there is nothing to say."""
    if record is None:
        return ""
    if record.policy_id is not None and record.state.terminal:
        return f"made {record.policy_id}" if seal is not None and seal.latest else "none"
    start_from = record.spec.start_from
    return f"uses {start_from.ref}" if start_from is not None else ""


def _start_fields(start_from: StartFrom) -> dict[str, Any]:
    return {
        "policy_id": start_from.policy,
        "kind": start_from.kind.value,
        "manifest": start_from.manifest,
        "sha256": start_from.sha256,
    }


def life_word(life: Life | None) -> str:
    """What a running job is doing, in a word: `running`, `uploading`, `cancelling`, `pausing`."""
    from stado.core.records import Phase

    if life is None:
        return Phase.PREPARING.value
    phase = life.heartbeat.phase if life.heartbeat is not None else Phase.PREPARING
    if life.cancel_asked_by is not None and phase is not Phase.UPLOADING:
        return CANCELLING
    if life.pause_asked_by is not None and phase is not Phase.UPLOADING:
        return PAUSING
    return phase.value


def cancel_text(grace_seconds: float) -> str:
    """What comes of a cancel that was asked for."""
    return f"TERM with its worker's next check-in, then KILL after {duration(grace_seconds)}"


def silent_seconds(record: Record, heartbeat: Heartbeat | None, now: datetime) -> float:
    """Since the last sign of life of a running job: a beat, or else the claim."""
    if heartbeat is not None:
        return max(0.0, (now - heartbeat.at).total_seconds())
    claimed_at = record.holder.claimed_at if record.holder is not None else now
    return max(0.0, (now - claimed_at).total_seconds())


def trouble_lines(listing: Listing) -> list[str]:
    """What the holders of jobs in this list cannot get done; and of those that are cancelled,
    once, what comes of it."""
    lives = {row.job_id: row.life for row in listing.jobs if row.life is not None}
    told = [
        f"{job_id} is {life_word(life)}: {life.heartbeat.trouble}"
        for job_id, life in lives.items()
        if life.heartbeat is not None and life.heartbeat.trouble
    ]
    cancelling = [life for life in lives.values() if life_word(life) == CANCELLING]
    if len(cancelling) > len(told):
        told.append(f"cancelling: {cancel_text(cancelling[0].cancel_grace_seconds)}")
    return told


def counts_line(counts: Mapping[State, int], *, counted_max: int) -> str:
    """`5 queued, 2 running, 1,000+ completed`."""
    return ", ".join(
        f"{count:,}{'+' if count >= counted_max else ''} {state.value}"
        for state, count in _ordered(counts).items()
    )


def count_lines(states: Iterable[State]) -> list[str]:
    """A line for each state that occurs: `completed  20`."""
    counts = _counts(states)
    width = max((len(f"{count:,}") for count in counts.values()), default=1)
    return [f"{state.value:<9}  {count:>{width},}" for state, count in counts.items()]


def count_text(states: Iterable[State]) -> str:
    """`2 queued, 1 running, 21 completed`."""
    return ", ".join(f"{count:,} {state.value}" for state, count in _counts(states).items())


def wait_text(wait: Wait) -> str:
    """`no worker is at work; stado up starts one`, for people."""
    return wait.text if wait.remedy is None else f"{wait.text}; {wait.remedy}"


def wait_fields(wait: Wait) -> dict[str, Any]:
    return {"code": wait.code, "text": wait.text, "remedy": wait.remedy}


def jobs_text(count: int) -> str:
    return plural(count, "job")


def _counts(states: Iterable[State]) -> dict[State, int]:
    return _ordered(Counter(states))


def _ordered(counts: Mapping[State, int]) -> dict[State, int]:
    return {state: counts[state] for state in _SUMMARY_ORDER if counts.get(state)}


def _status_word(row: Row) -> str:
    if row.steps is not None and row.life is None:
        return row.steps.state.value
    return life_word(row.life) if row.life is not None else row.state.value


def _reason(row: Row, now: datetime) -> str:
    if row.record is None:
        return "unreadable"
    if row.life is not None:
        return _running_reason(row.record, row.life, now)
    ending = telling_ending(row.record)
    if ending is None or ending.reason is None:
        return ""
    code = ending.exit_code
    return f"{ending.reason.value} {code}" if code else ending.reason.value


def _running_reason(record: Record, life: Life, now: datetime) -> str:
    silence = silent_seconds(record, life.heartbeat, now)
    if record.holder is not None and silence > record.holder.lease_seconds:
        return f"silent {short_duration(silence)}"
    return "trouble" if life.heartbeat is not None and life.heartbeat.trouble else ""


def _row_cells(row: Row, reason: str, now: datetime) -> list[str]:
    if row.record is None:
        return ["", "", "", "", "", reason, "", "", row.problem or ""]
    record, telling = row.record, _telling(row)
    age = short_duration((now - record.submitted_at).total_seconds())
    taken = _time(telling.record or record, telling.life, now)
    told = [_progress(telling.life), policy_text(record, row.seal), reason, _warnings(row)]
    return [age, taken, record.run_id, *told, " ".join(record.spec.tags), record.spec.command]


def _progress(life: Life | None) -> str:
    """What the job itself says of a run that lasts."""
    heartbeat = life.heartbeat if life is not None else None
    reported = heartbeat.progress if heartbeat is not None else None
    return progress_text(reported) if reported is not None else ""


def _warnings(row: Row) -> str:
    """Of a pipeline those of all its jobs."""
    told = [row, *(row.steps.rows if row.steps is not None else ())]
    endings = [telling_ending(one.record) for one in told if one.record is not None]
    codes = [one.code.value for ending in endings if ending is not None for one in ending.warnings]
    return " ".join(dict.fromkeys(codes))


def _time(record: Record, life: Life | None, now: datetime) -> str:
    """How long it has been waiting, or running, or had run."""
    if record.state is State.QUEUED:
        return short_duration(waiting_seconds(record, now))
    ending = record.ending
    if record.state is State.RUNNING:
        heartbeat = life.heartbeat if life is not None else None
        return short_duration(running_seconds(record, heartbeat, now))
    if ending is None or ending.started_at is None:
        return ""
    return short_duration((ending.ended_at - ending.started_at).total_seconds())


def waiting_seconds(record: Record, now: datetime) -> float:
    """Of a queued job: since it was queued, or since the epoch before ended."""
    queued = (milliseconds(now) - record.queued_ms) / 1000
    if record.ending is None:
        return queued
    return min(queued, (now - record.ending.ended_at).total_seconds())


def running_seconds(record: Record, heartbeat: Heartbeat | None, now: datetime) -> float:
    """Of a running job: since its command was started, or else since the claim."""
    if heartbeat is not None and heartbeat.started_at is not None:
        return (now - heartbeat.started_at).total_seconds()
    return (now - record.holder.claimed_at).total_seconds() if record.holder is not None else 0.0
