"""`stado doctor`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stado.cli.context import (
    default_work_dir,
    host_hardware,
    json_option,
    live_machine,
    opened_repository,
    opened_store,
    read_settings,
    watched_store,
)
from stado.cli.findings import Finding, findings_fields, print_findings
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.jobs.health import AgentSight
    from stado.jobs.repository import Repository
    from stado.ports import Clock

_SECONDS_MAX = 120.0
"""Of all checks: those that are left then are told as not looked at."""

ROLES = ("submitter", "reader", "agent", "coordinator")


@click.command()
@click.option(
    "--role",
    type=click.Choice(ROLES),
    help="Try what this role asks of the store, harmlessly, with the credentials that are used "
    "here; of an agent this host, too.",
)
@click.option(
    "--work-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="With --role agent: where its jobs work. Default: ~/.local/state/stado.",
)
@json_option
@target_options
def doctor(*, role: str | None, work_dir: Path | None, as_json: bool, target: Target) -> int:
    """Check the store and who works on it, and say how to mend what is wrong.

    Looks at: the store's answers, the conditions that it must honour, what its bucket does by
    itself, records, hosts, running jobs, the coordinator and its passes, versions, the queue,
    limits, schedules, notices, and this machine's clock. It begins no check after two minutes,
    reads of each folder a few hundred documents, and says what it has not looked at.

    Exits with 0 when all is well, with 1 when there is something to do. What could not be looked at
    is told, with a `?`, and changes nothing of that. --json tells what was well, too.

    \b
      stado doctor --role submitter     # may I submit, cancel, delete?
    """
    from stado.cli import exits, render

    findings = list(_examine(target, role, work_dir))
    if as_json:
        render.print_json(findings_fields(findings))
    else:
        print_findings(findings)
    return exits.FAILED if any(one.remedy for one in findings) else exits.OK


def _examine(target: Target, role: str | None, work_dir: Path | None) -> Iterator[Finding]:
    """What keeps the store from being looked at ends the check-up: it is its only finding."""
    from stado.cli.store_checks import (
        bucket_findings,
        own_throttling,
        store_findings,
        store_remedy,
    )
    from stado.errors import StoreError, Unreadable

    settings, machine = read_settings(target), live_machine()
    sections = Sections(machine.clock)
    with watched_store(machine) as trouble:
        try:
            with opened_store(settings, machine, trouble=trouble) as store:
                yield from store_findings(store, machine, proving=role is None)
            trouble.take_throttled()  # a proof races for one object, and some stores mind that
            yield from sections.run("bucket", lambda: bucket_findings(settings, machine))
            with opened_repository(target, trouble) as repo:
                yield from _work_findings(repo, sections, role)
        except (StoreError, Unreadable) as error:
            yield Finding("store", "store_unusable", str(error), store_remedy(error))
        yield from own_throttling(trouble)
    if role == "agent":
        from stado.cli.host_checks import host_findings

        yield from host_findings(host_hardware(), work_dir or default_work_dir())


class Sections:
    """Checks of which each stands alone: one that is refused, or finds no time, keeps no other
    from its turn, and is told as not looked at."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end = clock.monotonic() + _SECONDS_MAX

    def run(self, check: str, work: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
        """Raises what keeps the store from answering."""
        from stado.errors import Denied, Unreadable

        if self._clock.monotonic() > self._end:
            text = f"not looked at: the checks before took {_SECONDS_MAX:g} s"
            yield Finding(check, "not_looked_at", text, unknown=True)
            return
        try:
            yield from work()
        except Denied as error:
            text = f"not looked at, as it is not allowed to: {error}"
            yield Finding(check, "not_looked_at", text, unknown=True)
        except Unreadable as error:
            remedy = "its writer writes it anew; else remove it"
            yield Finding(check, "record_unreadable", str(error), remedy)


def _work_findings(repo: Repository, sections: Sections, role: str | None) -> Iterator[Finding]:
    from stado.cli import queue_checks
    from stado.cli.role_checks import role_findings
    from stado.jobs.health import agents

    if role is not None:
        yield from sections.run("role", lambda: role_findings(repo, role))
    sights: list[AgentSight] = []

    def fleet() -> Iterator[Finding]:
        sights.extend(agents(repo))
        yield from _fleet_findings(repo, sights)

    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        "records": lambda: queue_checks.record_findings(repo),
        "agents": fleet,
        "coordinator": lambda: _coordinator_findings(repo, sights),
        "queue": lambda: queue_checks.queue_findings(repo),
        "limits": lambda: queue_checks.limit_findings(repo),
        "budgets": lambda: queue_checks.budget_findings(repo),
        "schedules": lambda: queue_checks.schedule_findings(repo, repo.now()),
        "notices": lambda: queue_checks.notice_findings(repo),
    }
    for check, work in checks.items():
        yield from sections.run(check, work)


def _fleet_findings(repo: Repository, sights: list[AgentSight]) -> Iterator[Finding]:
    from stado.cli import fleet_checks
    from stado.cli.queue_checks import READ_EACH_MAX
    from stado.core.states import State
    from stado.jobs.health import AGENTS_MAX
    from stado.jobs.listings import Wanted, newest

    running = newest(repo, limit=READ_EACH_MAX, wanted=Wanted(states=(State.RUNNING,))).rows
    yield from fleet_checks.agent_findings(sights, running, repo.now())
    yield from fleet_checks.accelerator_findings(sights)
    yield from fleet_checks.host_clock_findings(sights)
    yield from fleet_checks.agents_throttling(sights)
    yield from fleet_checks.running_findings(running, repo.now())
    if len(sights) >= AGENTS_MAX or len(running) >= READ_EACH_MAX:
        text = f"looked at {AGENTS_MAX:,} agents and the newest {READ_EACH_MAX} running jobs only"
        yield Finding("agents", "agents_cut", text, unknown=True)


def _coordinator_findings(repo: Repository, sights: list[AgentSight]) -> Iterator[Finding]:
    from stado.cli import fleet_checks
    from stado.jobs.health import find_coordinator
    from stado.version import VERSION

    sight = find_coordinator(repo)
    yield fleet_checks.coordinator_finding(sight)
    yield from fleet_checks.pass_findings(sight)
    yield from fleet_checks.awaited_findings(repo, sight)
    yield from fleet_checks.version_findings(sights, sight, VERSION)
