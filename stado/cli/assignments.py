"""`stado coordinator assignments`: which host should get which job, and which are left to all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from stado.cli.context import json_option, opened_repository
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.core.hints import Assignment, Assignments, Skipped

_SHOWN_MAX = 20
"""Jobs of one host that are listed for people; `--json` has all."""


@click.command()
@json_option
@target_options
def assignments(*, as_json: bool, target: Target) -> None:
    """Show which host should get which queued job, and what is left to all of them.

    A coordinator works it out each tick, from the run times that are stated or were measured. A
    job without one is left unassigned, and so is what would end after its deadline: any host that
    has room may still take it.
    """
    from stado.cli import render
    from stado.jobs.assignments import read_assignments

    with opened_repository(target) as repo:
        found, now = read_assignments(repo), repo.now()
    if as_json:
        render.print_json(_fields(found, now))
        return
    if found is None:
        render.tell("no coordinator has assigned anything: every job can be taken by every host")
        return
    for line in _lines(found, now):
        render.print_styled(line)
    if found.hosts and found.expires_at <= now:
        render.tell("this has expired, so nobody goes by it: no coordinator has renewed it")


def _lines(found: Assignments, now: datetime) -> Iterator[str]:
    from stado.cli.render import clean, clean_table_lines, duration, plural
    from stado.cli.tables import Column

    assigned = sum(len(host.jobs) for host in found.hosts)
    age = duration((now - found.at).total_seconds())
    ends = "" if found.ends_ms is None else f"; the last should end {_moment(found.ends_ms)}"
    yield f"{plural(assigned, 'job')} of {found.planned:,} planned {_are(assigned)} assigned{ends}"
    yield clean(f"worked out {age} ago by {found.by}")
    rows = [[host.consumer, *_cells(job)] for host in found.hosts for job in host.jobs[:_SHOWN_MAX]]
    if rows:
        yield ""
        columns = [
            Column("HOST", width_max=40),
            Column("JOB"),
            Column("BEGINS"),
            Column("TAKES", right=True),
        ]
        yield from clean_table_lines(columns, rows)
        for host in found.hosts:
            if len(host.jobs) > _SHOWN_MAX:
                more = len(host.jobs) - _SHOWN_MAX
                yield clean(
                    f"... and {plural(more, 'more job')} on {host.consumer} (--json has all)"
                )
    if found.skipped:
        yield ""
        yield f"left to all hosts: {plural(sum(one.count for one in found.skipped), 'job')}"
        columns = [
            Column("JOBS", right=True),
            Column("MODEL", width_max=40),
            Column("TYPE"),
            Column("WHY", width_max=120),
            Column("SUCH AS"),
        ]
        yield from clean_table_lines(columns, [_skipped_cells(one) for one in found.skipped])


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _cells(job: Assignment) -> list[str]:
    from stado.cli.render import duration

    return [_job_of(job), _moment(job.begins_ms), duration(job.seconds)]


def _job_of(job: Assignment) -> str:
    from stado.core.order import parse_entry

    entry = parse_entry(job.entry)
    return job.entry if entry is None else entry.job_id


def _skipped_cells(one: Skipped) -> list[str]:
    job_type = "?" if one.job_type is None else one.job_type.value
    return [f"{one.count:,}", one.model or "(none)", job_type, one.text, one.example]


def _moment(ms: int) -> str:
    from stado.cli.stories import moment_text

    return moment_text(_instant(ms))


def _fields(found: Assignments | None, now: datetime) -> dict[str, Any]:
    from stado.cli.render import instant_text

    if found is None:
        none = ("at", "expires_at", "by", "ends_at")
        return {
            "in_force": False,
            **dict.fromkeys(none),
            "assigned": 0,
            "planned": 0,
            "skipped": 0,
            "hosts": [],
            "groups_skipped": [],
        }
    return {
        "in_force": found.expires_at > now,
        "at": instant_text(found.at),
        "expires_at": instant_text(found.expires_at),
        "by": found.by,
        "ends_at": None if found.ends_ms is None else instant_text(_instant(found.ends_ms)),
        "assigned": sum(len(host.jobs) for host in found.hosts),
        "planned": found.planned,
        "skipped": sum(one.count for one in found.skipped),
        "hosts": [
            {
                "consumer": host.consumer,
                "incarnation": host.incarnation,
                "report": host.counter,
                "jobs": [_job_fields(job) for job in host.jobs],
            }
            for host in found.hosts
        ],
        "groups_skipped": [
            {
                "code": one.code,
                "text": one.text,
                "model": one.model,
                "type": None if one.job_type is None else one.job_type.value,
                "count": one.count,
                "example": one.example,
            }
            for one in found.skipped
        ],
    }


def _job_fields(job: Assignment) -> dict[str, Any]:
    from stado.cli.render import instant_text

    return {
        "job_id": _job_of(job),
        "since": instant_text(_instant(job.since_ms)),
        "begins_at": instant_text(_instant(job.begins_ms)),
        "run_seconds": job.seconds,
    }


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=UTC)
