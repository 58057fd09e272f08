"""Checks of who works on a store: agents, what runs there, coordinators, their programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from stado.cli.findings import Finding
from stado.cli.store_checks import SKEW_SECONDS_MAX, THROTTLING_REMEDY, skew_finding

if TYPE_CHECKING:
    from stado.core.records import Heartbeat
    from stado.jobs.health import AgentSight, CoordinatorSight
    from stado.jobs.repository import Repository
    from stado.jobs.status import Life, Row

_PHASE_SECONDS_MAX = 3600.0
_AWAITED_SECONDS = 3600.0
_NAMED_MAX = 3
_SILENT_LEASES = 2
"""A coordinator brings a job back after one; then something is wrong with that too."""


def host_clock_findings(sights: Sequence[AgentSight]) -> Iterator[Finding]:
    """Once a host, however many agents it has."""
    off = {
        sight.capacity.host: sight.skew_seconds
        for sight in sights
        if sight.alive and abs(sight.skew_seconds) > SKEW_SECONDS_MAX
    }
    for host, ahead_seconds in sorted(off.items()):
        yield skew_finding(f"the clock of host {host}", ahead_seconds)


def agents_throttling(sights: Sequence[AgentSight]) -> Iterator[Finding]:
    """What those say who are at work; what was before is over."""
    from stado.cli.render import plural

    held = [sight.capacity for sight in sights if sight.alive and sight.capacity.throttled]
    for one in held[:1]:
        text = (
            f"the store puts off requests of {plural(len(held), 'agent')}, such as "
            f"{one.consumer} on {one.host}: {plural(one.throttled, 'request')} since its report "
            "before"
        )
        yield Finding("throttling", "throttled", text, THROTTLING_REMEDY)


def agent_findings(
    sights: Sequence[AgentSight], running: Sequence[Row], now: datetime
) -> Iterator[Finding]:
    from stado.cli.host_views import hindrance_text, hosts_line
    from stado.jobs.health import CLOSED, AgentState

    states = {sight.state for sight in sights}
    if states & {AgentState.WORKING, AgentState.HINDERED}:  # what hinders is a finding of its own
        yield Finding("agents", "agents_at_work", hosts_line(sights))
    else:
        leaving = ": those that are there drain" if AgentState.DRAINING in states else ""
        yield Finding(
            "agents",
            "no_agent",
            f"no agent is at work{leaving}: no job starts",
            "`stado up` here, or `stado agent run` on a host",
        )
    for sight in sights:
        one = sight.capacity
        if sight.state is AgentState.STALE:
            yield _stale_finding(sight, _held(one.consumer, running))
        elif sight.state is AgentState.HINDERED and one.hindrance is not None:
            remedy = f"mend it on {one.host}; the agent goes on by itself, `stado hosts` shows when"
            if one.hindrance.code in CLOSED:
                remedy = f"`stado hosts {one.consumer}` tells more"
            yield Finding(
                "agents",
                "agent_takes_nothing",
                f"agent {one.consumer} on {one.host} takes no jobs: "
                f"{hindrance_text(one.hindrance, now)}",
                remedy,
            )


def accelerator_findings(sights: Sequence[AgentSight]) -> Iterator[Finding]:
    from stado.cli.accelerator_views import accelerator_remarks

    for one in (sight.capacity for sight in sights if sight.alive):
        for remark in accelerator_remarks(one):
            yield Finding(
                "accelerators",
                "accelerator_ails",
                f"agent {one.consumer} on {one.host}: {remark}",
                f"mend it on {one.host}; jobs get it again by themselves, `stado hosts` shows when",
            )


def _held(consumer: str, running: Sequence[Row]) -> list[str]:
    """The jobs under its name by their records: a report that is old may miss them."""
    records = [row.record for row in running if row.record is not None]
    return [one.id for one in records if one.holder and one.holder.consumer == consumer]


def _stale_finding(sight: AgentSight, held: Sequence[str]) -> Finding:
    from stado.cli.host_views import held_text
    from stado.cli.render import duration

    one = sight.capacity
    text = (
        f"agent {one.consumer} on {one.host} is stale: its last report is "
        f"{duration(sight.age_seconds)} old"
    )
    start = f"look after {one.host}, or start the agent there: `{_agent_run(one.consumer)}`"
    if not held:
        return Finding("agents", "agent_stale", text, start)
    return Finding(
        "agents", "agent_stale", f"{text}; {held_text(held)}", f"{start}; `stado job why {held[0]}`"
    )


def _agent_run(consumer: str) -> str:
    import shlex

    return f"stado agent run --consumer-id {shlex.quote(consumer)}"


def running_findings(rows: Sequence[Row], now: datetime) -> Iterator[Finding]:
    """What a holder says that it cannot get done, and holders that are silent for long."""
    from stado.cli.render import duration
    from stado.cli.views import silent_seconds

    for row in rows:
        record, life = row.record, row.life
        if record is None or record.holder is None or life is None:
            continue
        holder, heartbeat = record.holder, life.heartbeat
        where = f"job {record.id} on {holder.consumer}"
        silence = silent_seconds(record, heartbeat, now)
        if silence > _SILENT_LEASES * holder.lease_seconds:
            yield Finding(
                "jobs",
                "holder_silent",
                f"{where} has given no sign of life for {duration(silence)}: its lease is "
                f"{holder.lease_seconds:g} s",
                "a coordinator queues it again: `stado up`, or `stado coordinator run`; "
                f"`stado job why {record.id}`",
            )
        elif heartbeat is not None and (heartbeat.trouble or _is_long(heartbeat, now)):
            yield Finding(
                "jobs",
                "holder_in_trouble",
                f"{where} {_doing_text(life, heartbeat, now)}",
                f"look after {holder.host}; `stado job why {record.id}` shows whether it goes on",
            )


def _is_long(heartbeat: Heartbeat, now: datetime) -> bool:
    """Whether it ends, or brings its files to the store, for longer than most jobs need."""
    from stado.core.records import Phase

    if heartbeat.phase not in (Phase.STOPPING, Phase.UPLOADING) or heartbeat.phase_since is None:
        return False
    return (now - heartbeat.phase_since).total_seconds() > _PHASE_SECONDS_MAX


def _doing_text(life: Life, heartbeat: Heartbeat, now: datetime) -> str:
    from stado.cli.render import duration
    from stado.cli.views import life_word

    since = heartbeat.phase_since
    lasts = "" if since is None else f" for {duration((now - since).total_seconds())}"
    trouble = f": {heartbeat.trouble}" if heartbeat.trouble else ""
    return f"is {life_word(life)}{lasts}{trouble}"


def coordinator_finding(sight: CoordinatorSight | None) -> Finding:
    from stado.cli.render import duration

    remedy = (
        "`stado up`, or `stado coordinator run`: without one, agents give lost jobs back and "
        "submit what is due; notices and assignments wait, and nobody works out budgets"
    )
    if sight is None:
        return Finding("coordinator", "no_coordinator", "no coordinator has worked here", remedy)
    age = duration(sight.age_seconds)
    if not sight.alive:
        gone = "has left" if sight.lease.released else "is silent"
        text = f"no coordinator is at work: {sight.lease.holder} {gone}, last heard {age} ago"
        return Finding("coordinator", "no_coordinator", text, remedy)
    return Finding(
        "coordinator",
        "coordinator_at_work",
        f"{sight.lease.holder} is at work, last heard {age} ago",
    )


def pass_findings(sight: CoordinatorSight | None) -> Iterator[Finding]:
    """Passes of the coordinator that acts which have not succeeded since they failed."""
    for note in sight.lease.passes if sight is not None and sight.alive else []:
        if note.fails:
            yield Finding(
                "coordinator",
                "pass_fails",
                f"the {note.name} pass of {sight.lease.holder if sight else ''} fails: "
                f"{note.error or 'it did not say why'}",
                "`stado coordinator status` tells since when; its log has more",
            )


def awaited_findings(repo: Repository, sight: CoordinatorSight | None) -> Iterator[Finding]:
    """What only a coordinator does, and that waits, when none was heard for an hour."""
    from stado.cli.render import duration
    from stado.jobs.notices import oldest_pending_seconds

    silent = None if sight is None else sight.age_seconds
    if sight is not None and (sight.alive or sight.age_seconds < _AWAITED_SECONDS):
        return
    waiting = oldest_pending_seconds(repo)
    if waiting is not None and (silent is not None or waiting > _AWAITED_SECONDS):
        gone = "ever" if silent is None else f"for {duration(silent)}"
        yield Finding(
            "coordinator",
            "coordinator_awaited",
            f"no coordinator was at work {gone}, and notices wait for one",
            "`stado coordinator run --channels FILE` on a host that stays",
        )


def version_findings(
    sights: Sequence[AgentSight], sight: CoordinatorSight | None, own: str
) -> Iterator[Finding]:
    """Programs of several versions at work on one store."""
    from stado.cli.render import plural

    versions: dict[str, list[str]] = {}
    for one in sights:
        if one.alive:
            versions.setdefault(one.capacity.version, []).append(one.capacity.consumer)
    said = []
    for version, consumers in sorted(versions.items()):
        more = ", …" if len(consumers) > _NAMED_MAX else ""
        named = f" ({', '.join(sorted(consumers)[:_NAMED_MAX])}{more})" if version != own else ""
        said.append(f"{plural(len(consumers), 'agent')} {version}{named}")
    found = set(versions) | {own}
    if sight is not None and sight.alive and sight.lease.version is not None:
        found.add(sight.lease.version)
        said.append(f"the coordinator {sight.lease.version}")
    if len(found) == 1:
        yield Finding("versions", "one_version", f"all programs here are stado {own}")
        return
    yield Finding(
        "versions",
        "versions_differ",
        f"programs of several versions work on this store: {', '.join(said)}; this one is {own}",
        "bring all to the newest: the coordinator first, then agents one by one; jobs go on",
    )
