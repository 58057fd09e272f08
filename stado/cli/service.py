"""`stado service …`: processes that jobs started on this host, and those of them that nobody
answers for any more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from stado.cli.context import (
    host_name,
    host_processes,
    json_option,
    live_machine,
    opened_repository,
    user_name,
)
from stado.cli.options import plain_text
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.core.records import HostReap
    from stado.jobs.host_reaps import Reaped
    from stado.jobs.repository import Repository
    from stado.ports import HostProcess

_GRACE_SECONDS = 10.0
_GRACE_SECONDS_MAX = 600.0
_REAPS_SHOWN = 20


@click.command("list")
@click.option(
    "--unowned", is_flag=True, help="Only what nobody answers for: earlier jobs' leavings."
)
@json_option
def list_processes(*, unowned: bool, as_json: bool) -> None:
    """List the processes that jobs started on this host, by what stands in their environment, and
    who answers for each: the supervisor of its job, a unit of systemd, another process; or nobody.

    It asks no store, and sees the processes of other accounts only as root.
    """
    from stado.cli import render
    from stado.jobs.host_reaps import of_jobs

    found, unseen = host_processes().look()
    shown = [one for one in of_jobs(found) if not unowned or one.held_by is None]
    if as_json:
        fields = [_process_fields(one) for one in shown]
        render.print_json({"host": host_name(), "processes": fields, "not_looked_at": unseen})
        return
    _print_processes(shown)
    if not shown:
        what = "left on" if unowned else "started on"
        render.tell(f"there is nothing that jobs {what} this host ({host_name()})")
    elif any(one.held_by is None for one in shown):
        render.tell(f"next: stado service reap --host {host_name()} --command PROGRAM")
    _tell_unseen(unseen)


def _tell_unseen(unseen: int) -> None:
    from stado.cli import render

    if unseen:
        render.tell(
            f"{_processes(unseen)} could not be looked at: of other accounts, which root can do, "
            "or protected"
        )


@click.command()
@click.option(
    "--host",
    required=True,
    callback=plain_text,
    metavar="HOST",
    help="This host, by its name or its agent's: processes are ended where they are.",
)
@click.option(
    "--command",
    "program",
    required=True,
    callback=plain_text,
    metavar="PROGRAM",
    help="The program, by its name or path, as `stado service list --unowned` has it.",
)
@click.option("--apply", is_flag=True, help="End them. Without it, it is shown what would be.")
@click.option(
    "--grace",
    "grace_seconds",
    type=click.FloatRange(min=0, max=_GRACE_SECONDS_MAX),
    default=_GRACE_SECONDS,
    metavar="SECONDS",
    help="How long they have from TERM to KILL.  [default: 10]",
)
@json_option
@target_options
def reap(
    *,
    host: str,
    program: str,
    apply: bool,
    grace_seconds: float,
    as_json: bool,
    target: Target,
) -> int:
    """End processes of a program that earlier jobs left on this host.

    Only what nobody answers for is ended: nothing of a job whose supervisor lives, nothing that a
    declared unit of systemd holds, nothing that another living process has started. Who did it is
    kept in the store, before the first signal. Exits with 1 when something is still there.

    \b
      stado service list --unowned
      stado service reap --host lab-7 --command sleep
      stado service reap --host lab-7 --command sleep --apply
    """
    from stado.cli import exits, render
    from stado.jobs.host_reaps import of_jobs
    from stado.jobs.host_reaps import reap as reap_processes

    user, here, processes = user_name(), host_name(), host_processes()
    with opened_repository(target) as repo:
        _check_host(repo, host, here)
        found, unseen = processes.look()
        named = [one for one in of_jobs(found) if program in one.names]
        left = [one for one in named if one.held_by is None]
        if not apply or not left:
            _tell_what_would_be(left, named, program, as_json=as_json, applied=apply)
            _tell_unseen(unseen)
            return exits.OK
        reaped = reap_processes(
            repo,
            processes,
            left,
            host=here,
            command=program,
            by=user,
            grace_seconds=grace_seconds,
        )
    if as_json:
        render.print_json({**_reap_fields(reaped.record), "applied": True})
    return _tell_reaped(reaped, as_json=as_json)


def _check_host(repo: Repository, name: str, here: str) -> None:
    """Raises `Refused` for another host."""
    from stado.errors import Refused
    from stado.jobs.capacity import find_capacity

    if here in (name, name.partition("@")[2]):
        return
    capacity = find_capacity(repo, name)
    if capacity is None or capacity.host != here:
        raise Refused(
            "host_is_another",
            f"{name} is not this host, which is {here}: processes are ended where they are; run "
            "the command there",
        )


def _tell_what_would_be(
    left: Sequence[HostProcess],
    named: Sequence[HostProcess],
    program: str,
    *,
    as_json: bool,
    applied: bool,
) -> None:
    from stado.cli import render

    held = [one for one in named if one.held_by is not None]
    if as_json:
        fields = [_process_fields(one) for one in left]
        kept = [_process_fields(one) for one in held]
        render.print_json({"applied": applied, "processes": fields, "held": kept})
        return
    _print_processes(left)
    if left:
        count = _processes(len(left))
        render.tell(f"{count} would be ended: --apply does it")
    else:
        render.tell(f"no earlier job left a process of {program} on this host: nothing is ended")
    if held:
        count = _processes(len(held))
        render.tell(f"{count} of {program} would be left alone: {held[0].held_by} answers for it")


def _tell_reaped(reaped: Reaped, *, as_json: bool) -> int:
    from stado.cli import exits, render
    from stado.core.records import ReapOutcome

    record = reaped.record
    for one in record.processes:
        if not as_json and one.outcome is not None:
            render.print_line(f"{one.pid}  {one.outcome.value}  {one.program}  {one.job_id}")
    ended = [one for one in record.processes if one.outcome is ReapOutcome.ENDED]
    still = [
        one
        for one in record.processes
        if one.outcome in (ReapOutcome.STAYS, ReapOutcome.DENIED, ReapOutcome.HELD)
    ]
    count = _processes(len(ended))
    render.tell(f"ended {count} of {record.command}, as {record.by}; {len(still)} left")
    if any(one.outcome is ReapOutcome.DENIED for one in still):
        render.tell("what is another account's is ended by that account, or by root")
    if reaped.untold is not None:
        render.tell(f"stado: the store does not know what became of them: {reaped.untold}")
    return exits.FAILED if still else exits.OK


@click.command()
@json_option
@target_options
def reaped(*, as_json: bool, target: Target) -> None:
    """List what was ended on hosts with `stado service reap`, the newest first."""
    from stado.cli import render
    from stado.cli.tables import Column
    from stado.jobs.host_reaps import newest_reaps

    with opened_repository(target) as repo:
        found = list(newest_reaps(repo, limit=_REAPS_SHOWN))
    if as_json:
        render.print_json({"reaps": [_reap_fields(one) for one in found]})
        return
    columns = (Column("AT"), Column("HOST"), Column("BY"), Column("PROGRAM"), Column("WHAT"))
    if found:
        render.print_table(columns, [_reap_cells(one) for one in found])
    else:
        render.tell("nothing was ended on any host yet")


# --- how they are shown -------------------------------------------------------------------


def _print_processes(found: Sequence[HostProcess]) -> None:
    from stado.cli import render
    from stado.cli.tables import Column

    columns = (
        Column("PID", right=True),
        Column("PROGRAM"),
        Column("JOB"),
        Column("AGE", right=True),
        Column("ACCOUNT"),
        Column("HELD BY"),
    )
    now = live_machine().clock.now().timestamp()
    rows = [
        [
            str(one.identity.pid),
            one.program,
            one.job_id,
            render.duration(max(0, round(now - one.started_at))),
            _account(one.uid),
            one.held_by or "nobody",
        ]
        for one in found
    ]
    if rows:
        render.print_table(columns, rows)


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count:,} processes"


def _account(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _process_fields(one: HostProcess) -> dict[str, Any]:
    started_at = datetime.fromtimestamp(one.started_at, UTC)
    return {
        "pid": one.identity.pid,
        "program": one.program,
        "job_id": one.job_id,
        "epoch": one.epoch,
        "started_at": started_at.isoformat(timespec="milliseconds"),
        "uid": one.uid,
        "held_by": one.held_by,
    }


def _reap_fields(one: HostReap) -> dict[str, Any]:
    return {
        "at": one.at.isoformat(timespec="milliseconds"),
        "host": one.host,
        "by": one.by,
        "command": one.command,
        "processes": [process.plain() for process in one.processes],
    }


def _reap_cells(one: HostReap) -> list[str]:
    from stado.cli.stories import moment_text

    outcomes = [
        "not known" if process.outcome is None else process.outcome.value
        for process in one.processes
    ]
    counted = {word: outcomes.count(word) for word in dict.fromkeys(outcomes)}
    what = ", ".join(f"{count} {word}" for word, count in counted.items())
    return [moment_text(one.at), one.host, one.by, one.command, what]
