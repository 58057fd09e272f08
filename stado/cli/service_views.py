"""`stado agent status` and `logs`, and the same of the coordinator: an installed service, as
systemd and the store see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from stado.cli import coordinator_views
from stado.cli.context import json_option
from stado.cli.services import Installed, find_installed, own_folder, scope_options
from stado.errors import Refused, StadoError, Unreadable
from stado.target import Target, target_options

if TYPE_CHECKING:
    from datetime import datetime

    from stado.jobs.health import CoordinatorSight
    from stado.services.port import UnitState
    from stado.services.service import Kind

_LINES = 5
_LABEL_WIDTH = 12


class _Sight(NamedTuple):
    """What the store knows, in a sentence; of an agent its state and the jobs that it told of; of
    coordinators the one that acts, or acted last, at which moment of the store's clock."""

    text: str
    state: str | None = None
    """`unreachable`: the store did not answer; `absent`: it knows none; `unreadable`: what it
    holds says nothing."""
    heard: bool = False
    """Of an agent: whether it has reported in time."""
    jobs: tuple[str, ...] | None = None
    coordinator: CoordinatorSight | None = None
    now: datetime | None = None


@click.command("status")
@scope_options
@json_option
def agent_status(**options: Any) -> int:
    """Tell how an installed agent fares: as systemd sees it, its last lines, and what the store
    knows of this host. Exits with 1 when it is not at work, or its store does not hear it."""
    from stado.services.service import Kind

    return _status(Kind.AGENT, **options)


@click.command("status")
@scope_options
@json_option
@target_options
def coordinator_status(
    *, user: bool, system: bool, name: str | None, as_json: bool, target: Target
) -> int:
    """Tell which coordinator acts, since when, and when each of its passes last succeeded; and of
    one that is installed here how it fares, as systemd sees it, with its last lines.

    Exits with 1 when none acts, or the one that is installed here is not at work. Where a store is
    named, only that is asked.
    """
    from stado.services.service import Kind

    scoped = user or system or name is not None
    if any(target) and scoped:
        raise click.UsageError(
            "--name, --user and --system mean a service that is installed here, which has its "
            "store; leave them out to ask the store that you name"
        )
    if not any(target):
        try:
            return _status(Kind.COORDINATOR, user=user, system=system, name=name, as_json=as_json)
        except Refused as error:
            if error.code != "not_installed" or scoped:
                raise
    return _coordinator_of_store(target, as_json=as_json)


def _coordinator_of_store(target: Target, *, as_json: bool) -> int:
    from stado.cli import render
    from stado.cli.context import opened_repository
    from stado.jobs.health import find_coordinator

    with opened_repository(target) as repo:
        sight, now, address = find_coordinator(repo), repo.now(), repo.store.address
    if as_json:
        fields = coordinator_views.coordinator_fields(sight, now)
        render.print_json({"unit": None, "store": address, "coordinator": fields})
    else:
        _print_label("store", address)
        _show_coordinator(sight, now)
    return 0 if sight is not None and sight.alive else 1


def _show_coordinator(sight: CoordinatorSight | None, now: datetime) -> None:
    from stado.cli import render

    _print_label("acts", coordinator_views.acting_text(sight))
    _print_label("next", coordinator_views.next_text(sight))
    for line in coordinator_views.pass_lines(sight, now):
        render.print_styled(line)


def _log_options(command: Any) -> Any:
    for option in (
        click.option(
            "-n",
            "--lines",
            type=click.IntRange(0, 100_000),
            default=100,
            show_default=True,
            metavar="N",
            help="How many of the last lines.",
        ),
        click.option("--since", metavar="WHEN", help="As `journalctl` takes it: '1 hour ago'."),
        click.option("-f", "--follow", is_flag=True, help="And those to come, until Ctrl-C."),
    ):
        command = option(command)
    return command


@click.command("logs")
@scope_options
@_log_options
def agent_logs(**options: Any) -> int:
    """Show the log of an installed agent, from the host's journal. Logs of jobs: `stado logs`."""
    from stado.services.service import Kind

    return _logs(Kind.AGENT, **options)


@click.command("logs")
@scope_options
@_log_options
def coordinator_logs(**options: Any) -> int:
    """Show the log of an installed coordinator, from the host's journal."""
    from stado.services.service import Kind

    return _logs(Kind.COORDINATOR, **options)


def _logs(
    kind: Kind,
    *,
    user: bool,
    system: bool,
    name: str | None,
    follow: bool,
    lines: int,
    since: str | None,
) -> int:
    from stado.cli.context import service_manager
    from stado.services.service import Scope

    one = find_installed(kind, user=user, system=system, name=name)
    options = ["--lines", str(lines), "--no-pager", *(["--follow"] if follow else [])]
    options += [] if since is None else [f"--since={since}"]
    return service_manager(user=one.scope is Scope.USER).show_log(one.unit, options)


def _status(kind: Kind, *, user: bool, system: bool, name: str | None, as_json: bool) -> int:
    from stado.cli.context import service_manager
    from stado.services.service import Kind, Scope

    one = find_installed(kind, user=user, system=system, name=name)
    manager = service_manager(user=one.scope is Scope.USER)
    state = manager.state(one.unit)
    try:
        lines, unread = manager.last_lines(one.unit, _LINES), None
    except Refused as error:
        lines, unread = [], error.text
    here, unknown = _jobs_here(one)
    sight = _of_agent(one) if kind is Kind.AGENT else _of_coordinator(one, state)
    if as_json:
        _print_json(one, state, lines, here, sight)
    else:
        _show(one, state, lines, unread, unknown if here is None else _jobs_text(here), sight)
    acts = sight.coordinator is not None and sight.coordinator.alive
    works = sight.heard if kind is Kind.AGENT else acts
    return 0 if state.active == "active" and works else 1


def _jobs_here(one: Installed) -> tuple[list[str] | None, str]:
    """None, and why, where that cannot be told."""
    from stado.cli.context import service_host

    folder = own_folder(one.stated)
    if folder is None:
        return None, ""
    try:
        return service_host().running_jobs(folder), ""
    except Refused as error:
        return None, error.text


def _jobs_text(jobs: list[str]) -> str:
    return ", ".join(jobs) or "none"


def _target(one: Installed) -> Target:
    return Target(one.stated.store, one.stated.endpoint, one.stated.region)


def _of_agent(one: Installed) -> _Sight:
    from stado.cli.context import host_name, opened_repository
    from stado.cli.render import duration, plural
    from stado.jobs.health import find_agent

    consumer = one.stated.consumer or f"local@{host_name()}"
    try:
        with opened_repository(_target(one)) as repo:
            sight = find_agent(repo, consumer)
    except Unreadable as error:
        return _Sight(f"the report of {consumer} says nothing: {error}", "unreadable")
    except StadoError as error:
        return _Sight(f"it could not be asked about {consumer}: {error}", "unreachable")
    if sight is None:
        return _Sight(f"no agent {consumer} has reported lately", "absent")
    jobs = tuple(job.job_id for job in sight.capacity.jobs)
    seen = duration(sight.age_seconds)
    text = f"{consumer} is {sight.word}, with {plural(len(jobs), 'job')}; heard {seen} ago"
    return _Sight(text, sight.word, sight.alive, jobs)


def _of_coordinator(one: Installed, state: UnitState) -> _Sight:
    from stado.cli.context import host_name, opened_repository
    from stado.cli.render import duration
    from stado.jobs.health import find_coordinator

    try:
        with opened_repository(_target(one)) as repo:
            sight, now = find_coordinator(repo), repo.now()
    except StadoError as error:
        word = "unreadable" if isinstance(error, Unreadable) else "unreachable"
        return _Sight(f"it could not be asked: {error}", word)
    if sight is None:
        return _Sight("no coordinator has worked there", "absent", now=now)
    holder, seen = sight.lease.holder, duration(sight.age_seconds)
    if not sight.alive:
        text, word = f"no coordinator is at work: {holder}, last heard {seen} ago", "none"
    elif state.main_pid and holder == f"coordinator@{host_name()}:{state.main_pid}":
        text, word = f"this one acts ({holder}); heard {seen} ago", "acts"
    else:
        text, word = f"{holder} acts, this one stands by; heard {seen} ago", "stands_by"
    return _Sight(text, word, coordinator=sight, now=now)


def _show(
    one: Installed,
    state: UnitState,
    lines: list[str],
    unread: str | None,
    jobs: str,
    sight: _Sight,
) -> None:
    from stado.cli import render

    since = f" since {state.since}" if state.since and state.active == "active" else ""
    told = {
        "unit": f"{one.unit} of the {'host' if one.scope == 'system' else 'user'}, {state.enabled}",
        "state": f"{state.active} ({state.sub}){since}",
        "says": state.status_text,
        "process": str(state.main_pid or "none"),
        "restarts": str(state.restarts) if state.restarts else "",
        "last end": "" if state.result in ("", "success") else _end_text(state),
        "store": one.stated.store,
        "work folder": one.stated.work_dir or "",
        "jobs here": jobs,
        "the store": sight.text,
    }
    for label, text in told.items():
        if text:
            _print_label(label, text)
    if sight.now is not None:
        _show_coordinator(sight.coordinator, sight.now)
    if unread is not None:
        render.tell(f"its log cannot be read: {unread}")
    for line in lines:
        render.print_line(line)


def _print_label(label: str, text: str) -> None:
    from stado.cli import render

    render.print_wrapped(f"{label:<{_LABEL_WIDTH}}{text}", indent=_LABEL_WIDTH)


def _end_text(state: UnitState) -> str:
    return f"{state.result} ({state.exit_status})"


def _print_json(
    one: Installed, state: UnitState, lines: list[str], here: list[str] | None, sight: _Sight
) -> None:
    from stado.cli import render

    coordinator = {}
    if sight.now is not None:
        fields = coordinator_views.coordinator_fields(sight.coordinator, sight.now)
        coordinator = {"coordinator": fields}
    render.print_json(
        {
            "unit": one.unit,
            "scope": one.scope.value,
            "active": state.active,
            "sub": state.sub,
            "enabled": state.enabled,
            "process": state.main_pid,
            "restarts": state.restarts,
            "says": state.status_text,
            "result": state.result,
            "store": one.stated.store,
            "worker": one.stated.consumer,
            "work_dir": one.stated.work_dir,
            "jobs_here": here,
            "in_store": {
                "text": sight.text,
                "state": sight.state,
                "jobs": None if sight.jobs is None else list(sight.jobs),
            },
            **coordinator,
            "lines": lines,
        }
    )
