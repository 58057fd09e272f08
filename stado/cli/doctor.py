"""`stado doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import click

from stado.cli.context import (
    json_option,
    live_machine,
    opened_repository,
    opened_store,
    read_settings,
    watched_store,
)
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.composition import Machine
    from stado.core.records import Heartbeat
    from stado.jobs.health import AgentSight, CoordinatorSight
    from stado.jobs.repository import Repository
    from stado.jobs.status import Life, Row
    from stado.storage.port import Store
    from stado.storage.trouble import StoreTrouble

_READ_EACH_MAX = 300
"""Documents of each folder that are read."""

_NAMED_MAX = 20

_SKEW_SECONDS_MAX = 60.0
_PHASE_SECONDS_MAX = 3600.0
_NOTICE_SECONDS_MAX = 600.0
_SILENT_LEASES = 2
"""A coordinator brings a job back after one; then something is wrong with that too."""

_INDENT = 18
_THROTTLING_REMEDY = (
    "nothing is lost, work is slower: a bucket's limits grow within an hour of steady use; else "
    "ask its provider for more, or let fewer agents work"
)
_TOLD_WHEN_WELL = ("store", "agents", "coordinator", "queue")


class Finding(NamedTuple):
    """What a check saw. `remedy` is None where nothing is to be done."""

    check: str
    text: str
    remedy: str | None = None


@click.command()
@json_option
@target_options
def doctor(*, as_json: bool, target: Target) -> int:
    """Check the store and who works on it, and say how to mend what is wrong.

    Looks at: the store's answers, the conditions that it must honour, records, hosts, running jobs,
    the coordinator, the queue, and this machine's clock. Exits with 0 when all is well, with 1 when
    there is something to do. --json tells what was well, too.
    """
    from stado.cli import exits

    findings = list(_examine(target))
    _print(findings, as_json=as_json)
    return exits.FAILED if any(finding.remedy for finding in findings) else exits.OK


def _examine(target: Target) -> Iterator[Finding]:
    """What keeps the store from being looked at ends the check-up: it is its only finding."""
    from stado.errors import StoreError, Unreadable

    settings, machine = read_settings(target), live_machine()
    with watched_store(machine) as trouble:
        try:
            with opened_store(settings, machine, trouble=trouble) as store:
                yield from _store_findings(store, machine)
            trouble.take_throttled()  # a proof races for one object, and some stores mind that
            with opened_repository(target, trouble) as repo:
                yield from _work_findings(repo)
        except (StoreError, Unreadable) as error:
            yield Finding("store", str(error), _store_remedy(error))
        yield from _own_throttling(trouble)


def _store_remedy(error: Exception) -> str:
    from stado.errors import Denied, Misconfigured

    if isinstance(error, Denied):
        return "check the credentials and what they allow"
    if isinstance(error, Misconfigured):
        return "`stado config list` shows what names it; --store names another"
    return "check the network and the server, then run this again"


def _store_findings(store: Store, machine: Machine) -> Iterator[Finding]:
    from stado.cli.proving import prove
    from stado.jobs.deployments import read_deployment

    deployment = read_deployment(store)
    yield Finding("store", f"{store.address} answers (lease {deployment.lease_seconds:g} s)")
    yield clock_finding(machine.clock.now(), store.now())
    proof = prove(store, machine)
    remedy = None if proof.accepted else "move to a store that honours them: jobs may run twice"
    yield Finding("conditions", proof.text, remedy)


def clock_finding(here: datetime, store: datetime) -> Finding:
    ahead_seconds = (here - store).total_seconds()
    if abs(ahead_seconds) <= _SKEW_SECONDS_MAX:
        return Finding("clock", "this machine's clock agrees with the store's")
    return _skew_finding("this machine's clock", ahead_seconds)


def _host_clock_findings(sights: Sequence[AgentSight]) -> Iterator[Finding]:
    """Once a host, however many agents it has."""
    off = {
        sight.capacity.host: sight.skew_seconds
        for sight in sights
        if sight.alive and abs(sight.skew_seconds) > _SKEW_SECONDS_MAX
    }
    for host, ahead_seconds in sorted(off.items()):
        yield _skew_finding(f"the clock of host {host}", ahead_seconds)


def _skew_finding(whose: str, ahead_seconds: float) -> Finding:
    """Nothing is decided by such a clock, but people read it, and signatures expire."""
    from stado.cli.render import duration

    side = "ahead of" if ahead_seconds > 0 else "behind"
    return Finding(
        "clock",
        f"{whose} is {duration(abs(ahead_seconds))} {side} the store's",
        "set it, such as with `timedatectl set-ntp true`: no job is judged by it, but a bucket "
        "refuses credentials of another time",
    )


def _own_throttling(trouble: StoreTrouble) -> Iterator[Finding]:
    from stado.cli.render import plural

    put_off = trouble.take_throttled()
    if put_off:
        text = f"the store put off {plural(put_off, 'request')} of this check-up"
        yield Finding("throttling", text, _THROTTLING_REMEDY)


def _agents_throttling(sights: Sequence[AgentSight]) -> Iterator[Finding]:
    """What those say who are at work; what was before is over."""
    from stado.cli.render import plural

    held = [sight.capacity for sight in sights if sight.alive and sight.capacity.throttled]
    for one in held[:1]:
        text = (
            f"the store puts off requests of {plural(len(held), 'agent')}, such as "
            f"{one.consumer} on {one.host}: {plural(one.throttled, 'request')} since its report "
            "before"
        )
        yield Finding("throttling", text, _THROTTLING_REMEDY)


def _work_findings(repo: Repository) -> Iterator[Finding]:
    from stado.core.states import State
    from stado.jobs.health import agents, find_coordinator
    from stado.jobs.listings import Wanted, newest

    yield from _record_findings(repo)
    sights = agents(repo)
    running = newest(repo, limit=_READ_EACH_MAX, wanted=Wanted(states=(State.RUNNING,))).rows
    yield from _agent_findings(sights, running, repo.now())
    yield from _accelerator_findings(sights)
    yield from _host_clock_findings(sights)
    yield from _agents_throttling(sights)
    yield from _running_findings(running, repo.now())
    yield _coordinator_finding(find_coordinator(repo))
    yield from _queue_findings(repo)
    yield from _notice_findings(repo)


def _record_findings(repo: Repository) -> Iterator[Finding]:
    from stado.jobs.health import read_folders

    for folder, reading in read_folders(repo, limit=_READ_EACH_MAX).items():
        for error in reading.unreadable[:_NAMED_MAX]:
            yield Finding("records", str(error), "submit the job again, then remove the object")
        if len(reading.unreadable) > _NAMED_MAX:
            more = len(reading.unreadable) - _NAMED_MAX
            yield Finding("records", f"{more:,} more of {folder} are unreadable", "as above")
        if reading.cut:
            yield Finding("records", f"of {folder} the first {_READ_EACH_MAX} were read")


def _agent_findings(
    sights: Sequence[AgentSight], running: Sequence[Row], now: datetime
) -> Iterator[Finding]:
    from stado.cli.host_views import hindrance_text, hosts_line
    from stado.jobs.health import CLOSED, AgentState

    states = {sight.state for sight in sights}
    if states & {AgentState.WORKING, AgentState.HINDERED}:  # what hinders is a finding of its own
        yield Finding("agents", hosts_line(sights))
    else:
        leaving = ": those that are there drain" if AgentState.DRAINING in states else ""
        yield Finding(
            "agents",
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
                f"agent {one.consumer} on {one.host} takes no jobs: "
                f"{hindrance_text(one.hindrance, now)}",
                remedy,
            )


def _accelerator_findings(sights: Sequence[AgentSight]) -> Iterator[Finding]:
    from stado.cli.accelerator_views import accelerator_remarks

    for one in (sight.capacity for sight in sights if sight.alive):
        for remark in accelerator_remarks(one):
            yield Finding(
                "accelerators",
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
        return Finding("agents", text, start)
    return Finding("agents", f"{text}; {held_text(held)}", f"{start}; `stado job why {held[0]}`")


def _agent_run(consumer: str) -> str:
    import shlex

    return f"stado agent run --consumer-id {shlex.quote(consumer)}"


def _running_findings(rows: Sequence[Row], now: datetime) -> Iterator[Finding]:
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
                f"{where} has given no sign of life for {duration(silence)}: its lease is "
                f"{holder.lease_seconds:g} s",
                "a coordinator queues it again: `stado up`, or `stado coordinator run`; "
                f"`stado job why {record.id}`",
            )
        elif heartbeat is not None and (heartbeat.trouble or _is_long(heartbeat, now)):
            yield Finding(
                "jobs",
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


def _coordinator_finding(sight: CoordinatorSight | None) -> Finding:
    from stado.cli.render import duration

    remedy = (
        "`stado up`, or `stado coordinator run`: without one, repairs are late, and nothing else"
    )
    if sight is None:
        return Finding("coordinator", "no coordinator has worked here", remedy)
    age = duration(sight.age_seconds)
    if not sight.alive:
        gone = "has left" if sight.lease.released else "is silent"
        text = f"no coordinator is at work: {sight.lease.holder} {gone}, last heard {age} ago"
        return Finding("coordinator", text, remedy)
    return Finding("coordinator", f"{sight.lease.holder} is at work, last heard {age} ago")


def _queue_findings(repo: Repository) -> Iterator[Finding]:
    from stado.cli.render import duration, plural
    from stado.jobs.health import find_pause
    from stado.jobs.waiting import hopeless

    for wait, job_ids in hopeless(repo).items():
        if wait.hindered:
            continue  # said of the agents already, with what mends it
        yield Finding(
            "queue",
            f"{plural(len(job_ids), 'job')} cannot start, such as {job_ids[0]}: {wait.text}",
            f"{wait.remedy or 'start another worker'}; `stado job why {job_ids[0]}`",
        )
    pause = find_pause(repo)
    if pause is None:
        yield Finding("queue", "the queue is open")
    else:
        by = f" by {pause.by}" if pause.by else ""
        yield Finding(
            "queue",
            f"the queue is paused{by} for {duration(pause.age_seconds)}: no job starts",
            "`stado queue resume`",
        )


def _notice_findings(repo: Repository) -> Iterator[Finding]:
    """Nothing where no rule asks for notices."""
    from stado.cli.render import duration, plural
    from stado.jobs.notices import oldest_pending_seconds, undelivered

    waiting = oldest_pending_seconds(repo)
    if waiting is not None and waiting > _NOTICE_SECONDS_MAX:
        text = f"notices wait to be sent, the first for {duration(waiting)}"
        remedy = "look at the coordinator's log, and whether it runs with --channels"
        yield Finding("notices", text, remedy)
    lost = undelivered(repo, limit=_NAMED_MAX)
    for one in lost:
        yield Finding(
            "notices",
            f"that job {one.job_id} is {one.word.value} could not be told on channel "
            f"{one.channel}: {one.why} (tried {plural(one.tries, 'time')})",
            "mend the channel where the coordinator runs; this is told for a week",
        )
    if len(lost) == _NAMED_MAX:
        yield Finding("notices", f"there may be more than these {_NAMED_MAX}")


def _print(findings: list[Finding], *, as_json: bool) -> None:
    from stado.cli import render

    if as_json:
        render.print_json(
            {
                "healthy": not any(finding.remedy for finding in findings),
                "findings": [
                    {**finding._asdict(), "ok": finding.remedy is None} for finding in findings
                ],
            }
        )
        return
    to_do = [finding for finding in findings if finding.remedy is not None]
    for finding in to_do:
        render.print_wrapped(f"FIX  {finding.check:<11}  {finding.text}", indent=_INDENT)
        render.print_wrapped(f"{'':<{_INDENT}}-> {finding.remedy}", indent=_INDENT + 3)
    well = len(findings) - len(to_do)
    if not to_do:
        told = [finding.text for finding in findings if finding.check in _TOLD_WHEN_WELL]
        render.print_wrapped(f"all is well: {'; '.join(told)}")
    elif well:
        checks = "1 other check is" if well == 1 else f"{well} other checks are"
        render.tell(f"{checks} well (--json tells them)")
