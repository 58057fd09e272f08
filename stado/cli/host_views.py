"""What the agents look like: a table, a line, fields of JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import click

from stado.cli import render
from stado.cli.accelerator_views import (
    accelerator_fields,
    accelerator_remarks,
    accelerators_cell,
)
from stado.cli.screen import Frame
from stado.cli.tables import Colour, Column, cell_width
from stado.core.records import Capacity, Hindrance, JobClaim, JobEnd
from stado.errors import Unreadable
from stado.jobs.health import AGENTS_MAX, CLOSED, AgentSight, AgentState

_STATE_STYLES: Mapping[str, Colour] = {
    "working": "green",
    "draining": "magenta",
    "cordoned": "magenta",
    "drained": "magenta",
    "suspect": "magenta",
    "quarantined": "red",
    "hindered": "red",
    "stale": "red",
}

_GPUS = "GPUS"
_COLUMNS = (
    Column("AGENT", width_max=32),
    Column("STATE", styles=_STATE_STYLES),
    Column("CORES", right=True),
    Column("MEMORY GiB", right=True),
    Column(_GPUS, right=True),
    Column("DISK GiB", right=True, expendable=1),
    Column("JOBS", right=True),
    Column("SEEN", right=True),
    Column("VERSION", width_max=12, expendable=1),
)
_NOT_AT_WORK = (
    AgentState.DRAINING.value,
    *(word for word in CLOSED if word != AgentState.DRAINING.value),
    AgentState.HINDERED.value,
    AgentState.STALE.value,
)
_INDENT = 4
_HELD_NAMED_MAX = 3


class Hosts(NamedTuple):
    """What one look at the agents showed."""

    sights: Sequence[AgentSight]
    unreadable: Sequence[Unreadable]
    held: Mapping[str, Sequence[str]]
    """Job ids by consumer, of agents that are not heard."""


def hosts_line(sights: Sequence[AgentSight]) -> str:
    """`2 hosts at work (1 not heard lately), 1 stale`; agents that left are not counted."""
    counts = Counter(sight.word for sight in sights)
    told = [f"{counts[word]:,} {word}" for word in _NOT_AT_WORK if counts[word]]
    late = sum(sight.late for sight in sights if sight.state is AgentState.WORKING)
    unheard = f" ({late:,} not heard lately)" if late else ""
    working = f"{render.plural(counts[AgentState.WORKING.value], 'host')} at work{unheard}"
    return ", ".join([working, *told])


def no_host_text(sights: Sequence[AgentSight]) -> str:
    """When none is there."""
    stale = sum(sight.state is AgentState.STALE for sight in sights)
    gone = f" ({stale:,} {'is' if stale == 1 else 'are'} stale)" if stale else ""
    return f"no host is at work{gone}: `stado up` here, or `stado agent run` on a host, starts one"


def unreadable_text(unreadable: Sequence[Unreadable]) -> str:
    """Who wrote these reports may be at work."""
    reports = render.plural(len(unreadable), "report")
    return f"{reports} cannot be read: `stado doctor` names what is wrong"


def hindrance_text(hindrance: Hindrance, now: datetime) -> str:
    """`disk full for 3m 12s: free some`."""
    since = render.duration(max(0.0, (now - hindrance.since).total_seconds()))
    return f"{hindrance.code.replace('_', ' ')} for {since}: {hindrance.detail}"


def hosts_frame(hosts: Hosts, now: datetime) -> Frame:
    """All of it, for a terminal."""
    told = [line for note in notes(hosts) for line in render.wrapped(note)]
    return Frame(table_lines(hosts, now), told)


def table_lines(hosts: Hosts, now: datetime) -> list[str]:
    """A row an agent: who is there, who may be gone, who has left. What hinders one is below its
    row, and so is what else there is to say where the terminal is too narrow for a column."""
    if not hosts.sights:
        return []
    shown = sorted(hosts.sights, key=lambda one: (one.capacity.stopped, not one.alive))
    alike = _common_means(shown) is not None
    held = [hosts.held.get(sight.capacity.consumer) for sight in shown]
    remarks = [
        "; ".join(_remarks(sight, jobs, with_means=not alike))
        for sight, jobs in zip(shown, held, strict=True)
    ]
    hindrances = [_hindrance_of(sight, now) for sight in shown]
    rows = [_cells(sight, jobs) for sight, jobs in zip(shown, held, strict=True)]
    if not render.stdout_is_terminal():
        texts = ["; ".join(filter(None, both)) for both in zip(hindrances, remarks, strict=True)]
        return _lines(rows, texts)
    lines = _lines(rows, [])
    if _fits_beside(lines, remarks):
        return _with_below(_lines(rows, remarks), [[text] for text in hindrances])
    return _with_below(lines, list(zip(hindrances, remarks, strict=True)))


def notes(hosts: Hosts) -> Iterator[str]:
    sights, unreadable = hosts.sights, hosts.unreadable
    if any(sight.alive for sight in sights):
        working = [one.capacity for one in sights if one.state is AgentState.WORKING]
        free = sum(max(0.0, one.cpu_free) for one in working)
        cores = f"{free:g} core{'' if free == 1 else 's'}"
        yield f"{hosts_line(sights)}; {cores} free, as last reported"
    else:
        yield no_host_text(sights)
    common = _common_means(sights)
    if common:
        yield f"each {common}" if len(sights) > 1 else common
    if unreadable:
        yield unreadable_text(unreadable)
    if _may_lack_some(sights, unreadable):
        yield f"{AGENTS_MAX:,} reports were read: there may be more"


def hosts_fields(hosts: Hosts) -> dict[str, Any]:
    sights, unreadable = hosts.sights, hosts.unreadable
    return {
        "hosts": [host_fields(sight, hosts.held.get(sight.capacity.consumer)) for sight in sights],
        "counts": dict(Counter(sight.word for sight in sights)),
        "unreadable": [error.key for error in unreadable],
        "more": _may_lack_some(sights, unreadable),
    }


def _may_lack_some(sights: Sequence[AgentSight], unreadable: Sequence[Unreadable]) -> bool:
    return len(sights) + len(unreadable) >= AGENTS_MAX


def _lines(rows: Sequence[Sequence[str]], remarks: Sequence[str]) -> list[str]:
    columns, rows = _without_gpus_if_none(rows)
    if not any(remarks):
        return render.clean_table_lines(columns, rows)
    columns = [*columns, Column("REMARKS")]
    return render.clean_table_lines(
        columns, [[*row, text] for row, text in zip(rows, remarks, strict=True)]
    )


def _without_gpus_if_none(
    rows: Sequence[Sequence[str]],
) -> tuple[Sequence[Column], Sequence[Sequence[str]]]:
    place = [column.title for column in _COLUMNS].index(_GPUS)
    if any(row[place] for row in rows):
        return _COLUMNS, rows
    left = [row[:place] + row[place + 1 :] for row in map(list, rows)]
    return _COLUMNS[:place] + _COLUMNS[place + 1 :], left


def _fits_beside(lines: Sequence[str], remarks: Sequence[str]) -> bool:
    """Whether the longest remark has room at the right of the table."""
    table_width = max(cell_width(click.unstyle(line)) for line in lines)
    longest = max(cell_width(render.clean(text)) for text in remarks)
    return table_width + 2 + longest <= render.terminal_size()[0]


def _with_below(lines: Sequence[str], below: Sequence[Sequence[str]]) -> list[str]:
    """The table, with what is said of each row under it."""
    title, *rows = lines
    shown = [title]
    for row, texts in zip(rows, below, strict=True):
        shown.append(row)
        for text in filter(None, texts):
            shown.extend(render.wrapped(" " * _INDENT + text, indent=_INDENT))
    return shown


def _cells(sight: AgentSight, held: Sequence[str] | None) -> list[str]:
    one = sight.capacity
    jobs = len(one.jobs) if held is None else len(held)
    return [
        one.consumer,
        sight.word,
        f"{max(0.0, one.cpu_free):g}/{one.cpu_total:g}",
        f"{max(0.0, one.memory_free_gb):.1f}/{one.memory_total_gb:.1f}",
        accelerators_cell(one),
        _amount_text(one.disk_free_gb),
        f"{jobs:,}",
        render.short_duration(sight.age_seconds),
        one.version,
    ]


def free_texts(one: Capacity) -> list[str]:
    """`6.5 of 8 cores`, and so on."""
    return [
        f"{max(0.0, one.cpu_free):g} of {one.cpu_total:g} cores",
        f"{max(0.0, one.memory_free_gb):.1f} of {one.memory_total_gb:.1f} GiB of memory",
        f"{_amount_text(one.disk_free_gb)} GiB of disk",
    ]


def _amount_text(gigabytes: float) -> str:
    """A little is not nothing: `0.06`, `2.5`, `1,234`."""
    if gigabytes < 1:
        return f"{gigabytes:.2f}"
    return f"{gigabytes:.1f}" if gigabytes < 10 else f"{gigabytes:,.0f}"


def _hindrance_of(sight: AgentSight, now: datetime) -> str:
    """It is told of whoever is there: one that drains may be hindered too."""
    hindrance = sight.capacity.hindrance
    return hindrance_text(hindrance, now) if hindrance is not None and sight.alive else ""


def held_text(job_ids: Sequence[str]) -> str:
    """`1 job is running under its name: a`."""
    shown = ", ".join(job_ids[:_HELD_NAMED_MAX])
    more = len(job_ids) - _HELD_NAMED_MAX
    are = "is" if len(job_ids) == 1 else "are"
    named = f"{shown} and {more:,} more" if more > 0 else shown
    return f"{render.plural(len(job_ids), 'job')} {are} running under its name: {named}"


def _remarks(sight: AgentSight, held: Sequence[str] | None, *, with_means: bool) -> Iterator[str]:
    one = sight.capacity
    if sight.state is AgentState.STOPPED:
        return
    if sight.silent:
        yield f"not heard for {render.duration(sight.age_seconds)}"
    if held:
        yield held_text(held)
    yield from accelerator_remarks(one)
    if one.host not in one.consumer:
        yield f"on {one.host}"
    if one.throttled:
        yield f"the store put off {render.plural(one.throttled, 'request')}"
    if with_means:
        yield from means(one)


def means(one: Capacity) -> list[str]:
    """How it holds jobs to what they may have, and by what it runs those with an image."""
    means = {
        "limits memory by": one.limits_memory_by,
        "contains by": one.contains_by,
        "runs images by": one.runs_images_by,
    }
    return [f"{what} {how}" for what, how in means.items() if how]


def _common_means(sights: Sequence[AgentSight]) -> str | None:
    """What all have in common, to be said once; None when they differ."""
    found = {"; ".join(means(sight.capacity)) for sight in sights if not sight.capacity.stopped}
    return found.pop() if len(found) == 1 else None if found else ""


def host_fields(sight: AgentSight, held: Sequence[str] | None) -> dict[str, Any]:
    one = sight.capacity
    return {
        "worker": one.consumer,
        "host": one.host,
        "state": sight.word,
        "cpu_free": one.cpu_free,
        "cpu_total": one.cpu_total,
        "memory_free_gb": one.memory_free_gb,
        "memory_total_gb": one.memory_total_gb,
        "disk_free_gb": one.disk_free_gb,
        "disk_total_gb": one.disk_total_gb,
        "disk_reserve_gb": one.disk_reserve_gb,
        "accelerators": [accelerator_fields(report) for report in one.accelerators],
        "accelerators_unknown": one.accelerators_unknown,
        "jobs": [{"job_id": job.job_id, "epoch": job.epoch} for job in one.jobs],
        "held": None if held is None else list(held),
        "last_report_at": render.instant_text(one.at),
        "age_seconds": round(sight.age_seconds, 3),
        "clock_ahead_seconds": round(sight.skew_seconds, 3),
        "broadcast_seconds": one.broadcast_seconds,
        "version": one.version,
        "incarnation": one.incarnation,
        "hindrance": _hindrance_fields(one.hindrance) if one.hindrance else None,
        "contains_by": one.contains_by,
        "limits_memory_by": one.limits_memory_by,
        "runs_images_by": one.runs_images_by,
        "max_run_seconds": one.max_run_seconds,
        "throttled": one.throttled,
        "labels": one.labels,
        "last_claim": _claim_fields(one.last_claim) if one.last_claim is not None else None,
        "recent_ends": [_end_fields(end) for end in one.recent_ends],
    }


def _claim_fields(claim: JobClaim) -> dict[str, Any]:
    return {"job_id": claim.job_id, "at": render.instant_text(claim.at)}


def _end_fields(end: JobEnd) -> dict[str, Any]:
    return {
        "job_id": end.job_id,
        "verdict": end.verdict,
        "reason": end.reason,
        "ran_seconds": end.ran_seconds,
        "at": render.instant_text(end.at),
    }


def _hindrance_fields(hindrance: Hindrance) -> dict[str, Any]:
    return {
        "code": hindrance.code,
        "detail": hindrance.detail,
        "since": render.instant_text(hindrance.since),
    }
