"""Schedules in words, tables and JSON. Asks no store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any

from stado.cli import render, views
from stado.cli.render import instant_text, short_duration
from stado.cli.shown import Shown
from stado.cli.stories import LABEL_WIDTH, ago_text, moment_text
from stado.cli.tables import Colour, Column
from stado.core.schedules import (
    LEASES_LATE,
    DroppedFire,
    DropReason,
    Fire,
    Schedule,
    count_words,
)
from stado.core.spec import Spec
from stado.core.states import State
from stado.core.zones import find_zone
from stado.jobs.schedules import Outcome, ScheduleList, ScheduleRow

_STYLES: Mapping[str, Colour] = {"paused": "magenta"}

_COLUMNS = (
    Column("SCHEDULE", width_max=32),
    Column("CRON", width_max=24),
    Column("ZONE", width_max=20, expendable=1),
    Column("NEXT", styles=_STYLES),
    Column("LAST", width_max=30),
    Column("SKIPPED", expendable=1),
    Column("BY", width_max=12, expendable=1),
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
    due = schedule.next_at
    return f"due next {local_text(due, zone)} ({_distance_text(due, now, render.duration)})"


def _distance_text(due: datetime, now: datetime, duration: Callable[[float], str]) -> str:
    """`in 4h 12m`, `3m late`."""
    seconds = (due - now).total_seconds()
    return f"in {duration(seconds)}" if seconds >= 0 else f"{duration(-seconds)} late"


# --- lists --------------------------------------------------------------------------------


def listed(found: ScheduleList, now: datetime, lease_seconds: float) -> Shown:
    """One page, by name."""
    rows = found.rows
    return Shown(
        lambda: {"schedules": [_row_fields(row) for row in rows], "more": found.more},
        render.clean_table_lines(_COLUMNS, [_cells(row, now) for row in rows]) if rows else [],
        list(_list_notes(found, now, lease_seconds)),
    )


def _list_notes(found: ScheduleList, now: datetime, lease_seconds: float) -> Iterator[str]:
    if not found.rows:
        yield "no schedule yet: `stado schedule create` makes one"
    for row in found.rows:
        if row.problem is not None:
            yield f"stado: schedule {row.name} cannot be read: {row.problem}"
    if _is_neglected(found.rows, now, lease_seconds):
        yield "nobody submits what is due: `stado up` or a coordinator does, and agents do"
    if found.more:
        yield f"there are more: stado schedule list --after {found.rows[-1].name}"


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
    return _distance_text(schedule.next_at, now, short_duration)


def _is_neglected(rows: Sequence[ScheduleRow], now: datetime, lease_seconds: float) -> bool:
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


def coming(
    schedule: Schedule, dues: Sequence[datetime], zone: tzinfo, now: datetime, *, count: int
) -> Shown:
    """`dues`: of `count` that were asked for, those that there are."""
    if schedule.paused is not None:
        notes = [f"it is paused: `stado schedule resume {schedule.name}` lets these come"]
    elif len(dues) < count:
        notes = ["it is never due after that" if dues else "it is never due again"]
    else:
        notes = []
    return Shown(
        lambda: {
            "schedule": schedule.name,
            "zone": schedule.zone,
            "paused": schedule.paused is not None,
            "next": [due.astimezone(zone).isoformat(timespec="seconds") for due in dues],
        },
        [f"{local_text(due, zone)}  {_distance_text(due, now, render.duration)}" for due in dues],
        notes,
    )


def history(schedule: Schedule, found: Sequence[Outcome]) -> Shown:
    """The newest first."""
    return Shown(
        lambda: {"schedule": schedule.name, "submissions": [_outcome_fields(one) for one in found]},
        _history_lines(found, find_zone(schedule.zone)) if found else [],
        [] if found else ["nothing was submitted yet"],
    )


def _history_lines(found: Sequence[Outcome], zone: tzinfo | None) -> list[str]:
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
    return render.clean_table_lines(columns, rows)


def submission(schedule: Schedule, fire: Fire) -> Shown:
    """What was submitted at once, for somebody asked."""
    base, batch = fire.base_id or "", schedule.request.batch
    job_ids = schedule.job_ids(fire)
    jobs = f"{views.jobs_text(len(schedule.request.commands))} as batch {base}"
    follow = f"status {base} --watch" if batch else f"job watch {base} --follow"
    return Shown(
        lambda: {"schedule": schedule.name, "run_id": fire.run_id, "job_ids": job_ids},
        job_ids,
        [
            f"submitted {jobs if batch else f'job {base}'} (run {fire.run_id})",
            f"next: stado {follow}",
        ],
    )


# --- one schedule -------------------------------------------------------------------------


def story(schedule: Schedule, last: Outcome | None, now: datetime) -> Shown:
    """`last`: what has become of the last submission."""
    lines = [
        line
        for label, text in _story(schedule, last, now)
        for line in render.wrapped(f"{label:<{LABEL_WIDTH}}{text}", indent=LABEL_WIDTH)
    ]
    return Shown(lambda: schedule_fields(schedule, last), lines)


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
        "last": None if last is None else _outcome_fields(last),
        "skipped": None if dropped is None else _dropped_fields(dropped),
        "created_by": schedule.created_by,
        "created_at": instant_text(schedule.created_at),
        "changed_by": schedule.changed_by,
        "changed_at": instant_text(schedule.changed_at),
        "batch": schedule.request.batch,
        "commands": schedule.request.commands,
        "options": stated(schedule.request.shared),
    }


def _row_fields(row: ScheduleRow) -> dict[str, Any]:
    if row.schedule is None:
        return {"schedule": row.name, "problem": row.problem}
    return {**schedule_fields(row.schedule, row.last), "problem": None}


def _outcome_fields(outcome: Outcome) -> dict[str, Any]:
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
