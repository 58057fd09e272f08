"""What a job looks like: as fields of JSON, as a row, as a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from stado.cli.render import Column, clean, duration, instant_text, plural
from stado.core.states import State

if TYPE_CHECKING:
    from stado.core.records import Ending, Record
    from stado.jobs.status import Listing, Row
    from stado.jobs.waiting import Wait

STATUS_STYLES: Mapping[str, str] = {
    "queued": "yellow",
    "running": "cyan",
    "completed": "green",
    "failed": "red",
    "cancelled": "magenta",
    "timed_out": "red",
}

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
    spec, holder, ending = record.spec, record.holder, telling_ending(record)
    return {
        "job_id": record.id,
        "status": record.state.value,
        "epoch": record.epoch,
        "starts": record.starts,
        "status_reason": ending.reason.value if ending and ending.reason else None,
        "status_detail": ending.detail if ending else None,
        "exit_code": ending.exit_code if ending else None,
        "batch_id": record.batch_id,
        "run_id": record.run_id,
        "rerun_of": record.rerun_of,
        "command": spec.command,
        "verify": spec.verify,
        "workdir": spec.workdir,
        "environment_names": sorted(spec.environment),
        "cpu": spec.cpu,
        "memory_gb": spec.memory_gb,
        "priority": record.priority,
        "deadline_at": instant_text(spec.deadline_at),
        "max_lease_losses": spec.max_lease_losses,
        "lease_losses": record.lease_losses,
        "submitter": record.submitter,
        "submitted_at": instant_text(record.submitted_at),
        "started_at": instant_text(ending.started_at) if ending else None,
        "ended_at": instant_text(ending.ended_at) if ending else None,
        "worker": holder.consumer if holder else None,
        "host": holder.host if holder else None,
    }


def telling_ending(record: Record) -> Ending | None:
    """The ending that explains the present status: of this epoch at rest, of the one before
    while the job is queued again. What runs needs no reason."""
    return None if record.state is State.RUNNING else record.ending


def row_fields(row: Row) -> dict[str, Any]:
    if row.record is not None:
        return {**job_fields(row.record), "problem": None}
    return {"job_id": row.job_id, "status": row.state.value, "problem": row.problem}


def listing_fields(listing: Listing) -> dict[str, Any]:
    return {
        "jobs": [row_fields(row) for row in listing.rows],
        "more": listing.more,
        "search_cut": listing.search_cut,
        "queue_paused": listing.queue_paused,
    }


def listing_table(listing: Listing, now: datetime) -> tuple[list[Column], list[list[str]]]:
    """The columns and cells of a list. REASON is there only when some row has one."""
    reasons = [_reason(row) for row in listing.rows]
    columns = [
        Column("JOB"),
        Column("STATUS", styles=STATUS_STYLES),
        Column("AGE", right=True),
        Column("RUN", width_max=14),
        Column("REASON", width_max=14),
        Column("COMMAND"),
    ]
    cells = [
        [row.job_id, row.state.value, *_row_cells(row, reason, now)]
        for row, reason in zip(listing.rows, reasons, strict=True)
    ]
    if not any(reasons):
        del columns[4]
        for row in cells:
            del row[4]
    return columns, cells


def count_lines(states: Iterable[State]) -> list[str]:
    """A line for each state that occurs: `completed  20`."""
    counts = _counts(states)
    width = max((len(str(count)) for count in counts.values()), default=1)
    return [f"{state.value:<9}  {count:>{width}}" for state, count in counts.items()]


def count_text(states: Iterable[State]) -> str:
    """`2 queued, 1 running, 21 completed`."""
    return ", ".join(f"{count} {state.value}" for state, count in _counts(states).items())


def outcome_text(record: Record) -> str:
    """`job x failed: exit code 3 (job_failed)`, for people."""
    ending = telling_ending(record)
    text = f"job {record.id} {_was(record.state)}"
    if ending is None:
        return text
    told = ending.detail or _exit_text(ending)
    reason = f" ({ending.reason.value})" if ending.reason else ""
    return clean(f"{text}: {told}{reason}" if told else f"{text}{reason}")


def wait_text(wait: Wait) -> str:
    """`no worker is at work; stado up starts one`, for people."""
    return wait.text if wait.remedy is None else f"{wait.text}; {wait.remedy}"


def wait_fields(wait: Wait) -> dict[str, Any]:
    return {"code": wait.code, "text": wait.text, "remedy": wait.remedy}


def jobs_text(count: int) -> str:
    return plural(count, "job")


def ending_text(ending: Ending) -> str:
    """`failed (job_failed): the command exited with 3`."""
    reason = f" ({ending.reason.value})" if ending.reason is not None else ""
    told = ending.detail or _exit_text(ending)
    return f"{ending.verdict.value}{reason}" + (f": {told}" if told else "")


def _was(state: State) -> str:
    return "timed out" if state is State.TIMED_OUT else f"{_verb(state)}{state.value}"


def _verb(state: State) -> str:
    return "" if state in (State.COMPLETED, State.FAILED) else "is "


def _exit_text(ending: Ending) -> str:
    code = ending.exit_code
    if code is None or code == 0:
        return ""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _counts(states: Iterable[State]) -> dict[State, int]:
    found = list(states)
    return {state: found.count(state) for state in _SUMMARY_ORDER if state in found}


def _reason(row: Row) -> str:
    if row.record is None:
        return "unreadable"
    ending = telling_ending(row.record)
    if ending is None or ending.reason is None:
        return ""
    code = ending.exit_code
    return f"{ending.reason.value} {code}" if code else ending.reason.value


def _row_cells(row: Row, reason: str, now: datetime) -> list[str]:
    if row.record is None:
        return ["", "", reason, row.problem or ""]
    record = row.record
    age = duration((now - record.submitted_at).total_seconds())
    return [age, record.run_id, reason, record.spec.command]
