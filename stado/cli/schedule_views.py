"""Schedules in words, tables and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from typing import Any

from stado.cli import render, views
from stado.cli.render import instant_text, short_duration
from stado.cli.stories import LABEL_WIDTH, ago_text, moment_text
from stado.cli.tables import Column
from stado.core.schedules import (
    LEASES_LATE,
    DroppedFire,
    DropReason,
    Schedule,
    count_words,
)
from stado.core.spec import Spec
from stado.core.states import State
from stado.core.zones import find_zone
from stado.jobs.schedules import Outcome, ScheduleRow

_STYLES = {"paused": "yellow", "over": "bright_black"}

COLUMNS = (
    Column("SCHEDULE", width_max=32),
    Column("CRON", width_max=24),
    Column("ZONE", width_max=20, expendable=True),
    Column("NEXT", styles=_STYLES),
    Column("LAST", width_max=30),
    Column("SKIPPED", expendable=True),
    Column("BY", width_max=12, expendable=True),
    Column("COMMAND"),
)

_WHY = {
    DropReason.OVERLAP: "earlier jobs were live",
    DropReason.MISSED: "nobody looked in time",
    DropReason.REFUSED: "it could not be submitted",
}
_COMMANDS_SHOWN = 5


def local_text(instant: datetime, zone: tzinfo) -> str:
    """`Sun 2026-03-29 03:00 CEST`: by the clock on a wall."""
    return f"{instant.astimezone(zone):%a %Y-%m-%d %H:%M %Z}"


def when_text(schedule: Schedule, zone: tzinfo, now: datetime) -> str:
    """`due next Sun 2026-03-29 03:00 CEST (in 4h 12m)`."""
    if schedule.paused is not None:
        return "it is paused"
    if schedule.next_at is None:
        return "it is never due again"
    seconds = (schedule.next_at - now).total_seconds()
    when = f"in {render.duration(seconds)}" if seconds >= 0 else f"{render.duration(-seconds)} late"
    return f"due next {local_text(schedule.next_at, zone)} ({when})"


# --- tables -------------------------------------------------------------------------------


def cells(rows: Sequence[ScheduleRow], now: datetime) -> list[list[str]]:
    return [_cells(row, now) for row in rows]


def _cells(row: ScheduleRow, now: datetime) -> list[str]:
    schedule = row.schedule
    if schedule is None:
        return [row.name, "?", "?", "?", "?", "?", "?", "unreadable"]
    dropped = schedule.dropped
    return [
        row.name,
        schedule.cron,
        schedule.zone,
        _next_cell(schedule, now),
        "-" if row.last is None else f"{outcome_text(row.last)} {_age(row.last.at, now)}",
        "-" if dropped is None else f"{_age(dropped.due_at, now)}",
        schedule.created_by,
        command_text(schedule),
    ]


def _age(instant: datetime, now: datetime) -> str:
    return f"{short_duration((now - instant).total_seconds())} ago"


def _next_cell(schedule: Schedule, now: datetime) -> str:
    if schedule.paused is not None:
        return "paused"
    if schedule.firing is not None:
        return "now"
    if schedule.waiting_at is not None:
        return "waits"
    if schedule.next_at is None:
        return "over"
    seconds = (schedule.next_at - now).total_seconds()
    return f"in {short_duration(seconds)}" if seconds >= 0 else f"{short_duration(-seconds)} late"


def is_neglected(rows: Sequence[ScheduleRow], now: datetime, lease_seconds: float) -> bool:
    """Whether what was due more than two leases ago still is."""
    schedules = [row.schedule for row in rows if row.schedule is not None]
    dues = [one.next_at for one in schedules if one.paused is None and one.next_at is not None]
    return any((now - due).total_seconds() > LEASES_LATE * lease_seconds for due in dues)


def outcome_text(outcome: Outcome) -> str:
    """`completed`; of a batch `2 completed, 1 failed`."""
    if outcome.problem is not None:
        return "unknown"
    if not outcome.states:
        return "deleted" if outcome.job_ids else "not submitted"
    states = list(outcome.states.values())
    return states[0].value if len(outcome.job_ids) == 1 else views.count_text(states)


def command_text(schedule: Schedule) -> str:
    """`python nightly.py`; of several the first, and how many more there are."""
    first, *others = schedule.request.commands
    return f"{first} (and {len(others):,} more)" if others else first


def history_table(
    found: Sequence[Outcome], zone: tzinfo | None
) -> tuple[list[Column], list[list[str]]]:
    columns = [
        Column("DUE"),
        Column("STATUS", width_max=40, styles={State.FAILED.value: "red"}),
        Column("JOB"),
        Column("RUN"),
    ]
    rows = [
        [
            ("" if one.was_due else "asked ")
            + (moment_text(one.at) if zone is None else local_text(one.at, zone)),
            outcome_text(one),
            one.job_ids[0].partition("-")[0] if one.job_ids else "-",
            one.run_id,
        ]
        for one in found
    ]
    return columns, rows


# --- one schedule -------------------------------------------------------------------------


def print_story(schedule: Schedule, last: Outcome | None, now: datetime) -> None:
    for label, text in _story(schedule, last, now):
        render.print_wrapped(f"{label:<{LABEL_WIDTH}}{text}", indent=LABEL_WIDTH)


def _story(schedule: Schedule, last: Outcome | None, now: datetime) -> Iterator[tuple[str, str]]:
    zone = find_zone(schedule.zone)
    yield "schedule", schedule.name
    yield "cron", f"{schedule.cron}  ({schedule.zone})"
    if zone is None:
        yield "next", f"unknown: this machine knows no time zone {schedule.zone}"
    else:
        yield "next", when_text(schedule, zone, now).removeprefix("due next ")
    if schedule.paused is not None:
        yield "paused", f"{ago_text(schedule.paused.at, now)} by {schedule.paused.by}"
    if schedule.waiting_at is not None:
        yield "waits", f"what was due {ago_text(schedule.waiting_at, now)}: earlier jobs are live"
    if schedule.firing is not None:
        yield "now", f"{schedule.firing.run_id} is being submitted"
    if schedule.start_at is not None:
        yield "start", moment_text(schedule.start_at)
    if schedule.end_at is not None:
        yield "end", moment_text(schedule.end_at)
    yield "overlap", schedule.overlap.value
    yield "missed", schedule.missed.value
    if last is not None:
        job = f", job {last.job_ids[0].partition('-')[0]}" if last.job_ids else ""
        why = "" if last.was_due else ", asked for"
        yield "last", f"{outcome_text(last)}, {ago_text(last.at, now)}{why}{job}"
        if last.problem is not None:
            yield "", last.problem
    if schedule.dropped is not None:
        yield "skipped", _dropped_text(schedule.dropped, now)
    yield "made", f"{ago_text(schedule.created_at, now)} by {schedule.created_by}"
    yield "changed", f"{ago_text(schedule.changed_at, now)} by {schedule.changed_by}"
    yield from _request_lines(schedule)


def _dropped_text(dropped: DroppedFire, now: datetime) -> str:
    many = "" if dropped.count == 1 else f"{count_words(dropped.count)} times, the last "
    job = f" (job {dropped.job_id})" if dropped.job_id else ""
    detail = f": {dropped.detail}" if dropped.detail else ""
    return f"{many}due {ago_text(dropped.due_at, now)}: {_WHY[dropped.reason]}{job}{detail}"


def _request_lines(schedule: Schedule) -> Iterator[tuple[str, str]]:
    commands = schedule.request.commands
    for number, command in enumerate(commands[:_COMMANDS_SHOWN]):
        yield "" if number else "command", command
    if len(commands) > _COMMANDS_SHOWN:
        yield "", f"{len(commands) - _COMMANDS_SHOWN:,} more (--json has all)"
    options = stated(schedule.request.shared)
    if options:
        yield "with", ", ".join(f"{name}={_value_text(value)}" for name, value in options.items())


def _value_text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_value_text, value))
    if isinstance(value, dict):
        return " ".join(f"{name}:{content}" for name, content in value.items() if content)
    return str(value)


def stated(spec: Spec) -> dict[str, Any]:
    """What of a job was asked for, as it is stored; of variables the names alone."""
    plain, unstated = spec.plain(), Spec(command="").plain()
    asked = {
        name: value
        for name, value in plain.items()
        if name != "command" and value != unstated.get(name)
    }
    if "environment" in asked:
        asked["environment"] = sorted(asked["environment"])
    return asked


# --- JSON ---------------------------------------------------------------------------------


def schedule_fields(schedule: Schedule, last: Outcome | None) -> dict[str, Any]:
    paused, dropped = schedule.paused, schedule.dropped
    return {
        "schedule": schedule.name,
        "cron": schedule.cron,
        "zone": schedule.zone,
        "overlap_policy": schedule.overlap.value,
        "missed": schedule.missed.value,
        "start_at": instant_text(schedule.start_at),
        "end_at": instant_text(schedule.end_at),
        "next_at": instant_text(schedule.next_at) if paused is None else None,
        "waiting_at": instant_text(schedule.waiting_at),
        "paused": paused is not None,
        "paused_by": None if paused is None else paused.by,
        "paused_at": None if paused is None else instant_text(paused.at),
        "last": None if last is None else outcome_fields(last),
        "skipped": None if dropped is None else _dropped_fields(dropped),
        "created_by": schedule.created_by,
        "created_at": instant_text(schedule.created_at),
        "changed_by": schedule.changed_by,
        "changed_at": instant_text(schedule.changed_at),
        "batch": schedule.request.batch,
        "commands": schedule.request.commands,
        "options": stated(schedule.request.shared),
    }


def row_fields(row: ScheduleRow) -> dict[str, Any]:
    if row.schedule is None:
        return {"schedule": row.name, "problem": row.problem}
    return {**schedule_fields(row.schedule, row.last), "problem": None}


def outcome_fields(outcome: Outcome) -> dict[str, Any]:
    return {
        "run_id": outcome.run_id,
        "due_at": instant_text(outcome.at) if outcome.was_due else None,
        "asked_at": None if outcome.was_due else instant_text(outcome.at),
        "jobs": [_job_fields(job_id, outcome) for job_id in outcome.job_ids],
        "problem": outcome.problem,
    }


def _job_fields(job_id: str, outcome: Outcome) -> dict[str, Any]:
    """Null: it is deleted, or moved while one looked."""
    state = outcome.states.get(job_id)
    return {"job_id": job_id, "status": None if state is None else state.value}


def _dropped_fields(dropped: DroppedFire) -> dict[str, Any]:
    return {
        "due_at": instant_text(dropped.due_at),
        "count": dropped.count,
        "reason": dropped.reason.value,
        "job_id": dropped.job_id,
        "detail": dropped.detail,
        "at": instant_text(dropped.at),
    }
