"""Checks of what waits and what is kept: records, the queue, limits, schedules, notices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stado.cli.findings import Finding

if TYPE_CHECKING:
    from datetime import datetime

    from stado.jobs.repository import Repository
    from stado.jobs.schedules import ScheduleRow

READ_EACH_MAX = 300
"""Documents of each folder that are read."""

UNREADABLE_REMEDY = "submit the job again, then remove the object"
_NAMED_MAX = 20
_SCHEDULES_MAX = 100
_NOTICE_SECONDS_MAX = 600.0
_LATE_SECONDS = 600.0


def record_findings(repo: Repository) -> Iterator[Finding]:
    from stado.jobs.health import read_folders

    for folder, reading in read_folders(repo, limit=READ_EACH_MAX).items():
        for error in reading.unreadable[:_NAMED_MAX]:
            yield Finding("records", "record_unreadable", str(error), UNREADABLE_REMEDY)
        if len(reading.unreadable) > _NAMED_MAX:
            more = len(reading.unreadable) - _NAMED_MAX
            yield Finding(
                "records",
                "record_unreadable",
                f"{more:,} more of {folder} are unreadable",
                "as above",
            )
        if reading.cut:
            text = f"of {folder} the first {READ_EACH_MAX} were read only"
            yield Finding("records", "records_cut", text, unknown=True)


def queue_findings(repo: Repository) -> Iterator[Finding]:
    from stado.cli.render import duration, plural
    from stado.jobs.health import find_pause
    from stado.jobs.queue_index import read_page
    from stado.jobs.waiting import hopeless
    from stado.storage.port import LIST_LIMIT_MAX

    for wait, job_ids in hopeless(repo).items():
        if wait.hindered:
            continue  # said of the agents already, with what mends it
        yield Finding(
            "queue",
            "jobs_cannot_start",
            f"{plural(len(job_ids), 'job')} cannot start, such as {job_ids[0]}: {wait.text}",
            f"{wait.remedy or 'start another worker'}; `stado job why {job_ids[0]}`",
        )
    if read_page(repo).next_after is not None:
        text = f"whether jobs can start: looked at the first {LIST_LIMIT_MAX:,} of the queue only"
        yield Finding("queue", "queue_cut", text, unknown=True)
    pause = find_pause(repo)
    if pause is None:
        yield Finding("queue", "queue_open", "the queue is open")
    else:
        by = f" by {pause.by}" if pause.by else ""
        yield Finding(
            "queue",
            "queue_paused",
            f"the queue is paused{by} for {duration(pause.age_seconds)}: no job starts",
            "`stado queue resume`",
        )


def notice_findings(repo: Repository) -> Iterator[Finding]:
    """Nothing where no rule asks for notices."""
    from stado.cli.render import duration, plural
    from stado.jobs.notices import oldest_pending_seconds, undelivered

    waiting = oldest_pending_seconds(repo)
    if waiting is not None and waiting > _NOTICE_SECONDS_MAX:
        text = f"notices wait to be sent, the first for {duration(waiting)}"
        remedy = "look at the coordinator's log, and whether it runs with --channels"
        yield Finding("notices", "notices_wait", text, remedy)
    lost = undelivered(repo, limit=_NAMED_MAX)
    for one in lost:
        yield Finding(
            "notices",
            "notice_not_delivered",
            f"that job {one.job_id} is {one.word.value} could not be told on channel "
            f"{one.channel}: {one.why} (tried {plural(one.tries, 'time')})",
            "mend the channel where the coordinator runs; this is told for a week",
        )
    if len(lost) == _NAMED_MAX:
        text = f"there may be more than these {_NAMED_MAX}"
        yield Finding("notices", "notices_cut", text, unknown=True)


def limit_findings(repo: Repository) -> Iterator[Finding]:
    """Limits of the deployment that let nothing start."""
    from stado.jobs.limit_sight import look_at_limits

    for limit in look_at_limits(repo):
        if limit.limit == 0:
            yield Finding(
                "limits",
                "limit_lets_nothing_start",
                f"limit {limit.name} is 0: no job under it starts",
                "`stado settings list` shows where it is set, `stado settings set` changes it",
            )


def budget_findings(repo: Repository) -> Iterator[Finding]:
    """Nothing where no budget is set. What is spent, and whether anybody works that out."""
    from stado.cli.render import duration
    from stado.jobs.budget_sight import see_budgets

    seen = see_budgets(repo)
    remedy = "`stado up`, or `stado coordinator run`; `stado cost budgets` shows what is known"
    if seen.rows and seen.known is None:
        text = "budgets are set, and no coordinator has worked out what is spent: nobody is held"
        yield Finding("budgets", "budgets_unknown", text, remedy)
    elif seen.rows and seen.old and seen.known is not None:
        age = duration((seen.now - seen.known.at).total_seconds())
        text = f"what is spent of budgets is not known for the last {age}: nobody is newly held"
        yield Finding("budgets", "budgets_old", text, remedy)
    elif seen.rows:
        held = sum(row.state == "held" for row in seen.rows)
        text = f"what is spent of budgets is known; of {held} all is spent"
        yield Finding("budgets", "budgets_known", text)


def schedule_findings(repo: Repository, now: datetime) -> Iterator[Finding]:
    """Schedules that submit nothing, or whose jobs fail: the first 100 by name."""
    from stado.jobs.schedules import list_schedules

    found = list_schedules(repo, limit=_SCHEDULES_MAX)
    for row in found.rows:
        yield from _schedule_findings(row, now)
    if found.more:
        yield Finding(
            "schedules",
            "schedules_cut",
            f"of the schedules the first {_SCHEDULES_MAX} were looked at",
            unknown=True,
        )


def _schedule_findings(row: ScheduleRow, now: datetime) -> Iterator[Finding]:
    from stado.cli.render import duration
    from stado.core.schedules import DropReason
    from stado.core.states import State

    look = f"`stado schedule show {row.name}`"
    schedule, last = row.schedule, row.last
    if schedule is None:
        text = f"schedule {row.name} cannot be read: {row.problem}"
        yield Finding(
            "schedules", "schedule_unreadable", text, f"remove it, and make it anew; {look}"
        )
        return
    dropped = schedule.dropped
    newest = schedule.last.at if schedule.last is not None else None
    if (
        dropped is not None
        and dropped.reason is DropReason.REFUSED
        and (newest is None or newest < dropped.at)
    ):
        text = f"schedule {row.name} could not submit its jobs: {dropped.detail or 'refused'}"
        yield Finding(
            "schedules", "schedule_refused", text, f"{look}; make it anew as it should be"
        )
    due = schedule.next_at
    if schedule.paused is None and due is not None:
        late = (now - due).total_seconds()
        if late > _LATE_SECONDS:
            text = f"schedule {row.name} was due {duration(late)} ago, and nobody has submitted it"
            yield Finding(
                "schedules", "schedule_late", text, "`stado coordinator status` tells why it waits"
            )
    states = set(last.states.values()) if last is not None else set()
    if states and states <= {State.FAILED, State.TIMED_OUT}:
        text = f"all jobs of the last submission of schedule {row.name} failed"
        why = f"`stado job why {next(iter(last.states))}`" if last is not None else look
        yield Finding("schedules", "schedule_fails", text, f"{why}; {look}")
