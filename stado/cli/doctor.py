"""`stado doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from stado.cli.context import (
    json_option,
    live_machine,
    opened_repository,
    opened_store,
    read_settings,
)
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.composition import Machine
    from stado.jobs.health import AgentSight
    from stado.jobs.repository import Repository
    from stado.storage.port import Store

_READ_EACH_MAX = 300
"""Documents of each folder that are read."""

_NAMED_MAX = 20


class Finding(NamedTuple):
    """What a check saw. `remedy` is None where nothing is to be done."""

    check: str
    text: str
    remedy: str | None = None


@click.command()
@json_option
@target_options
def doctor(*, as_json: bool, target: Target) -> int:
    """Check the store and who works on it: reached, readable, conditions honoured, workers.

    Exits with 0 when all is well, with 1 when there is something to do, and says what.
    """
    from stado.cli import exits

    findings = list(_examine(target))
    _print(findings, as_json=as_json)
    return exits.FAILED if any(finding.remedy for finding in findings) else exits.OK


def _examine(target: Target) -> Iterator[Finding]:
    """What keeps the store from being looked at ends the check-up: it is its only finding."""
    from stado.errors import StoreError, Unreadable

    settings, machine = read_settings(target), live_machine()
    try:
        with opened_store(settings, machine) as store:
            yield from _store_findings(store, machine)
        with opened_repository(target) as repo:
            yield from _work_findings(repo)
    except (StoreError, Unreadable) as error:
        yield Finding("store", str(error), _store_remedy(error))


def _store_remedy(error: Exception) -> str:
    from stado.errors import Denied, Misconfigured

    if isinstance(error, Denied):
        return "check the credentials and what they allow"
    if isinstance(error, Misconfigured):
        return "name another store, or do what it says"
    return "check the network and the server, then run this again"


def _store_findings(store: Store, machine: Machine) -> Iterator[Finding]:
    from stado.cli.proving import prove
    from stado.jobs.deployments import read_deployment

    deployment = read_deployment(store)
    yield Finding(
        "store",
        f"{store.address} answers: format {deployment.format}, lease "
        f"{deployment.lease_seconds:g} s",
    )
    proof = prove(store, machine)
    remedy = None if proof.accepted else "move to a store that honours them: jobs may run twice"
    yield Finding("conditions", proof.text, remedy)


def _work_findings(repo: Repository) -> Iterator[Finding]:
    from stado.cli.render import plural
    from stado.jobs.health import agents, find_coordinator, queue_paused, read_folders
    from stado.jobs.waiting import hopeless

    for folder, reading in read_folders(repo, limit=_READ_EACH_MAX).items():
        for error in reading.unreadable[:_NAMED_MAX]:
            yield Finding("records", str(error), "submit the job again, then remove the object")
        if len(reading.unreadable) > _NAMED_MAX:
            more = len(reading.unreadable) - _NAMED_MAX
            yield Finding("records", f"{more} more of {folder} are unreadable", "as above")
        if reading.cut:
            yield Finding("records", f"of {folder} the first {_READ_EACH_MAX} were read")
    yield from _agent_findings(agents(repo))
    yield _coordinator_finding(find_coordinator(repo))
    for text, job_ids in hopeless(repo).items():
        jobs = plural(len(job_ids), "job")
        yield Finding(
            "queue",
            f"{jobs} will wait for ever, such as {job_ids[0]}: {text}",
            "stado cancel them, or start a worker that can run them",
        )
    if queue_paused(repo):
        yield Finding("queue", "the queue is paused: no job starts", "stado queue resume")
    else:
        yield Finding("queue", "the queue is open")


def _agent_findings(sights: list[AgentSight]) -> Iterator[Finding]:
    from stado.cli.render import duration, plural

    if not any(sight.alive and not sight.capacity.draining for sight in sights):
        yield Finding(
            "agents", "no agent is at work: no job starts", "stado up, or stado agent run"
        )
    for sight in sights:
        capacity = sight.capacity
        age = duration(sight.age_seconds)
        if capacity.stopped:
            continue
        if not sight.alive:
            text = f"agent {capacity.consumer} on {capacity.host} is silent, last report {age} ago"
            yield Finding("agents", text, f"look after {capacity.host}, or start its agent again")
            continue
        state = "draining" if capacity.draining else "at work"
        runs = plural(len(capacity.jobs), "job")
        yield Finding(
            "agents",
            f"agent {capacity.consumer} is {state} with {runs}, last report {age} ago; "
            f"{capacity.cpu_free:g} of {capacity.cpu_total:g} cores free",
        )


def _coordinator_finding(sight: Any) -> Finding:
    from stado.cli.render import duration

    remedy = "stado up, or stado coordinator run (without one, repairs are late, nothing else)"
    if sight is None:
        return Finding("coordinator", "no coordinator has worked here", remedy)
    age = duration(sight.age_seconds)
    if not sight.alive:
        gone = "has left" if sight.lease.released else "is silent"
        text = f"no coordinator is at work: {sight.lease.holder} {gone}, last heard {age} ago"
        return Finding("coordinator", text, remedy)
    return Finding("coordinator", f"{sight.lease.holder} is at work, last heard {age} ago")


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
    for finding in findings:
        mark = "ok  " if finding.remedy is None else "FIX "
        render.print_line(f"{mark}  {finding.check:<11}  {finding.text}")
        if finding.remedy is not None:
            render.print_line(f"      {'':<11}  -> {finding.remedy}")
