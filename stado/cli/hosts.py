"""`stado hosts`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from stado.cli.context import json_option, opened_repository
from stado.target import Target, target_options

if TYPE_CHECKING:
    from datetime import datetime

    from stado.cli.tables import Column
    from stado.core.records import Hindrance
    from stado.jobs.health import AgentSight, Fleet
    from stado.jobs.repository import Repository

NO_HOST = "no host works here: `stado up` here, or `stado agent run` on a host, starts one"

_STATE_STYLES = {
    "working": "green",
    "draining": "yellow",
    "hindered": "red",
    "stale": "red",
    "stopped": "bright_black",
}


@click.command()
@click.option("--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
@json_option
@target_options
def hosts(*, watch: bool, as_json: bool, target: Target) -> None:
    """List the agents: what each has free, what it runs, and why it takes no jobs.

    An agent that is late by three reports is stale: it may be gone, and its host too. Nothing
    waits for it.
    """
    from stado.cli import render
    from stado.cli.screen import check_screen, redraw
    from stado.jobs.health import Fleet

    if watch:
        check_screen(as_json=as_json)
    with opened_repository(target) as repo:
        fleet = Fleet(repo)
        if watch:
            redraw(lambda: _frame(repo, fleet), repo.clock)
        sights = _sorted(fleet.look())
        if as_json:
            render.print_json(_fields(sights, fleet))
            return
        for line in _table_lines(sights, repo.now()):
            render.print_styled(line)
        for note in _notes(sights, fleet):
            render.tell(note)


def hosts_line(sights: Sequence[AgentSight]) -> str:
    """`2 hosts at work, 1 draining, 1 stale`; agents that left are not counted."""
    from stado.jobs.health import AgentState

    counts = Counter(sight.state for sight in sights)
    working = counts[AgentState.WORKING]
    others = (AgentState.DRAINING, AgentState.HINDERED, AgentState.STALE)
    told = [f"{counts[state]:,} {state.value}" for state in others if counts[state]]
    return ", ".join([f"{working:,} host{'' if working == 1 else 's'} at work", *told])


def _frame(repo: Repository, fleet: Fleet) -> list[str]:
    from stado.cli.screen import wrapped

    sights = _sorted(fleet.look())
    notes = [line for note in _notes(sights, fleet) for line in wrapped(note)]
    return [*_table_lines(sights, repo.now()), "", *notes]


def _sorted(sights: Sequence[AgentSight]) -> list[AgentSight]:
    """Who is there, then who may be gone, then who has left; by name."""
    return sorted(sights, key=lambda one: (one.capacity.stopped, not one.alive))


def _table_lines(sights: Sequence[AgentSight], now: datetime) -> list[str]:
    """A row an agent. What there is to say of it is in the last column where it fits the
    terminal, else below its row."""
    from stado.cli import render
    from stado.cli.screen import wrapped
    from stado.cli.tables import Column, cell_width

    if not sights:
        return []
    rows = [_cells(sight) for sight in sights]
    notes = [list(_remarks(sight, now)) for sight in sights]
    lines = render.clean_table_lines(_columns(), rows)
    if not any(notes):
        return lines
    joined = [render.clean("; ".join(note)) for note in notes]
    with_notes = [[*row, note] for row, note in zip(rows, joined, strict=True)]
    wide = [Column("REMARKS")]
    if not render.stdout_is_terminal():
        return render.clean_table_lines([*_columns(), *wide], with_notes)
    table_width = max(cell_width(click.unstyle(line)) for line in lines)
    if table_width + 2 + max(map(cell_width, joined)) <= render.terminal_size()[0]:
        return render.clean_table_lines([*_columns(), *wide], with_notes)
    shown = [lines[0]]
    for line, note in zip(lines[1:], notes, strict=True):
        shown.append(line)
        shown.extend(part for text in note for part in wrapped(text, indent="    "))
    return shown


def _columns() -> list[Column]:
    from stado.cli.tables import Column

    return [
        Column("AGENT", width_max=32),
        Column("STATE", styles=_STATE_STYLES),
        Column("CORES", right=True),
        Column("MEMORY GiB", right=True),
        Column("DISK GiB", right=True, expendable=True),
        Column("JOBS", right=True),
        Column("SEEN", right=True),
        Column("VERSION", width_max=12, expendable=True),
    ]


def _cells(sight: AgentSight) -> list[str]:
    from stado.cli.render import short_duration

    one = sight.capacity
    return [
        one.consumer,
        sight.state.value,
        f"{max(0.0, one.cpu_free):g}/{one.cpu_total:g}",
        f"{max(0.0, one.memory_free_gb):.1f}/{one.memory_total_gb:.1f}",
        f"{one.disk_free_gb:,.0f}",
        f"{len(one.jobs):,}",
        short_duration(sight.age_seconds),
        one.version,
    ]


def _remarks(sight: AgentSight, now: datetime) -> Iterator[str]:
    from stado.cli.render import plural
    from stado.jobs.health import AgentState

    one = sight.capacity
    if sight.state is AgentState.STOPPED:
        return
    if one.hindrance is not None:
        yield hindrance_text(one.hindrance, now)
    if sight.state is AgentState.STALE and one.jobs:
        yield f"had {plural(len(one.jobs), 'job')} when it was last heard"
    if one.host not in one.consumer:
        yield f"on {one.host}"
    if one.throttled:
        yield f"the store put off {plural(one.throttled, 'request')}"
    means = {"limits memory by": one.limits_memory_by, "contains by": one.contains_by}
    told = [f"{what} {means_of}" for what, means_of in means.items() if means_of]
    if told:
        yield "; ".join(told)


def hindrance_text(hindrance: Hindrance, now: datetime) -> str:
    """`disk full for 3m 12s: free some`."""
    from stado.cli.render import duration

    since = duration((now - hindrance.since).total_seconds())
    return f"{hindrance.code.replace('_', ' ')} for {since}: {hindrance.detail}"


def _notes(sights: Sequence[AgentSight], fleet: Fleet) -> list[str]:
    from stado.cli.render import plural
    from stado.jobs.health import AgentState

    notes = []
    free = sum(
        max(0.0, sight.capacity.cpu_free) for sight in sights if sight.state is AgentState.WORKING
    )
    if any(sight.alive for sight in sights):
        notes.append(f"{hosts_line(sights)}; {free:g} core{'' if free == 1 else 's'} free")
    else:
        notes.append(NO_HOST)
    if fleet.unreadable:
        reports = plural(len(fleet.unreadable), "report")
        notes.append(f"{reports} cannot be read: `stado doctor` names them")
    return notes


def _fields(sights: Sequence[AgentSight], fleet: Fleet) -> dict[str, Any]:
    return {
        "hosts": [_host_fields(sight) for sight in sights],
        "counts": {
            state.value: count for state, count in Counter(one.state for one in sights).items()
        },
        "unreadable": [error.key for error in fleet.unreadable],
    }


def _host_fields(sight: AgentSight) -> dict[str, Any]:
    from stado.cli.render import instant_text

    one = sight.capacity
    return {
        "worker": one.consumer,
        "host": one.host,
        "state": sight.state.value,
        "cpu_free": one.cpu_free,
        "cpu_total": one.cpu_total,
        "memory_free_gb": one.memory_free_gb,
        "memory_total_gb": one.memory_total_gb,
        "disk_free_gb": one.disk_free_gb,
        "jobs": [{"job_id": job.job_id, "epoch": job.epoch} for job in one.jobs],
        "last_report_at": instant_text(one.at),
        "age_seconds": round(sight.age_seconds, 3),
        "broadcast_seconds": one.broadcast_seconds,
        "version": one.version,
        "incarnation": one.incarnation,
        "hindrance": _hindrance_fields(one.hindrance) if one.hindrance else None,
        "contains_by": one.contains_by,
        "limits_memory_by": one.limits_memory_by,
        "throttled": one.throttled,
    }


def _hindrance_fields(hindrance: Hindrance) -> dict[str, Any]:
    from stado.cli.render import instant_text

    return {
        "code": hindrance.code,
        "detail": hindrance.detail,
        "since": instant_text(hindrance.since),
    }
