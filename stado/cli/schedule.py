"""`stado schedule`: what is submitted again and again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from stado.cli import options
from stado.cli.context import json_option, opened_repository, user_name
from stado.cli.job_options import job_options, submitter_named, unpinned_of
from stado.cli.which_jobs import request_asked, which_jobs
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.core.schedules import Schedule
    from stado.jobs.repository import Repository

_ROWS_DEFAULT = 50
_ROWS_MAX = 1000
_HISTORY_DEFAULT = 20
_NEXT_DEFAULT = 5
_NEXT_MAX = 1000

_WHEN = ("cron", "zone", "overlap_policy", "missed", "start_at", "end_at")
"""What is no part of the jobs."""

_name_argument = click.argument("name", metavar="SCHEDULE", callback=options.plain_text)


@click.command()
@click.argument("words", metavar="COMMAND", nargs=-1)
@click.option(
    "--cron",
    required=True,
    callback=options.plain_text,
    metavar="EXPRESSION",
    help="When: minute, hour, day of the month, month, day of the week; or @daily and the like.",
)
@click.option(
    "--name",
    callback=options.plain_text,
    metavar="NAME",
    help="Of the schedule, for you to choose: creating it again is safe then.  [default: random]",
)
@click.option(
    "--tz",
    "zone",
    default="UTC",
    show_default=True,
    callback=options.plain_text,
    metavar="ZONE",
    help="Whose clocks count: an IANA name, such as Europe/Berlin.",
)
@click.option(
    "--overlap-policy",
    type=click.Choice(("skip", "queue", "replace", "allow")),
    default="skip",
    show_default=True,
    help="While jobs of an earlier time are live: submit nothing; let one wait for their end; "
    "cancel them first; or submit all the same.",
)
@click.option(
    "--missed",
    type=click.Choice(("latest", "skip")),
    default="latest",
    show_default=True,
    help="After a time in which nobody looked (two leases): submit for the latest time that "
    "passed, or not. `skip` asks for somebody who looks at least so often, also from cron.",
)
@click.option(
    "--start-at",
    callback=options.instant,
    metavar="INSTANT",
    help="Submit nothing before this instant (RFC 3339).",
)
@click.option(
    "--end-at",
    callback=options.instant,
    metavar="INSTANT",
    help="Submit nothing after this instant (RFC 3339).",
)
@which_jobs
@job_options
@json_option
@target_options
def create(
    *,
    words: tuple[str, ...],
    name: str | None,
    batch: str | None,
    array: str | None,
    as_json: bool,
    target: Target,
    **asked: Any,
) -> None:
    """Submit COMMAND (one argument: quote it) each time that EXPRESSION is due.

    Prints the name of the schedule. Its jobs are yours, and take along what is named now: a folder,
    an artifact and a checkpoint stay as they are today. A coordinator submits, or the agents where
    none is at work.

    \b
      stado schedule create --name nightly --cron '0 2 * * *' --tz Europe/Berlin 'python nightly.py'
      stado schedule create --name sync --cron '*/10 * * * *' --overlap-policy queue ./sync.sh
    """
    from stado.cli import render, schedule_views
    from stado.core.schedules import Schedule, check_name
    from stado.core.zones import zone_named
    from stado.jobs.schedules import create as create_schedule
    from stado.pinning import pin

    when = _when({option: asked.pop(option) for option in _WHEN})
    zone = zone_named(when["zone"])
    if name is not None:
        check_name(name)
    example = "stado schedule create --cron '0 2 * * *'"
    request = request_asked(words, batch=batch, array=array, asked=asked, example=example)
    unpinned = unpinned_of(asked)
    user = user_name()
    with opened_repository(target) as repo:
        now = repo.now()
        schedule = Schedule(
            name=name or _random_name(repo),
            nonce="0",
            **when,
            request=pin(repo, request, unpinned, submitter_named(user)),
            created_at=now,
            created_by=user,
            changed_at=now,
            changed_by=user,
        )
        made = create_schedule(repo, schedule)
    if as_json:
        fields = schedule_views.schedule_fields(made.schedule, None)
        render.print_json({**fields, "created": made.created})
        return
    render.print_line(made.schedule.name)
    said = "schedule" if made.created else "there already: schedule"
    render.tell(
        f"{said} {made.schedule.name}: {schedule_views.when_text(made.schedule, zone, now)}"
    )
    _tell_of_instants(made.schedule)
    render.tell(f"next: stado schedule next {made.schedule.name}")


def _when(asked: dict[str, Any]) -> dict[str, Any]:
    """Fields of a schedule. Raises `Refused`."""
    from stado.core.cron import check_cron
    from stado.core.schedules import MissedPolicy, OverlapPolicy

    return {
        **{name: asked[name] for name in ("zone", "start_at", "end_at")},
        "cron": check_cron(asked["cron"]),
        "overlap": OverlapPolicy(asked["overlap_policy"]),
        "missed": MissedPolicy(asked["missed"]),
    }


def _random_name(repo: Repository) -> str:
    from stado.core import ids

    return ids.new_base(repo.now(), repo.entropy.letters(ids.random_letters_needed()))


def _tell_of_instants(schedule: Schedule) -> None:
    """They are the same for each of its jobs."""
    from stado.cli import render

    if schedule.request.shared.deadline_at is not None:
        render.tell(
            "each of its jobs is ended at --deadline-at: state --end-at as well, so that none is "
            "submitted after it; --timeout counts for each job by itself"
        )


@click.command("list")
@click.option(
    "--limit",
    type=click.IntRange(1, _ROWS_MAX),
    default=_ROWS_DEFAULT,
    show_default=True,
    metavar="N",
    help="How many schedules to show.",
)
@click.option(
    "--after", default="", callback=options.plain_text, metavar="NAME", help="Those after NAME."
)
@json_option
@target_options
def list_schedules(*, limit: int, after: str, as_json: bool, target: Target) -> None:
    """List the schedules, by name: when each is due next, and what became of the last time.

    NEXT is when it is due, `paused`, `waits` for earlier jobs, or `over`; of one that should have
    been submitted, how late it is.
    """
    from stado.cli import render, schedule_views
    from stado.core.schedules import check_name
    from stado.jobs import schedules

    if after:
        check_name(after)
    with opened_repository(target) as repo:
        found = schedules.list_schedules(repo, limit=limit, after=after)
        now = repo.now()
    if as_json:
        render.print_json(
            {
                "schedules": [schedule_views.row_fields(row) for row in found.rows],
                "more": found.more,
            }
        )
        return
    if found.rows:
        render.print_table(schedule_views.COLUMNS, schedule_views.cells(found.rows, now))
    else:
        render.tell("no schedule yet: `stado schedule create` makes one")
    for row in found.rows:
        if row.problem is not None:
            render.tell(f"stado: schedule {row.name} cannot be read: {row.problem}")
    if schedule_views.is_neglected(found.rows, now, repo.deployment.lease_seconds):
        render.tell("nobody submits what is due: `stado up` or a coordinator does, and agents do")
    if found.more:
        render.tell(f"there are more: stado schedule list --after {found.rows[-1].name}")


@click.command()
@_name_argument
@json_option
@target_options
def show(*, name: str, as_json: bool, target: Target) -> None:
    """Tell all about a schedule. SCHEDULE is its name, or how that begins."""
    from stado.cli import render, schedule_views
    from stado.jobs.schedules import outcome_of

    with opened_repository(target) as repo, _found(repo, name) as schedule:
        last = None if schedule.last is None else outcome_of(repo, schedule, schedule.last)
        now = repo.now()
    if as_json:
        render.print_json(schedule_views.schedule_fields(schedule, last))
        return
    schedule_views.print_story(schedule, last, now)


@click.command("next")
@_name_argument
@click.option(
    "--count",
    type=click.IntRange(1, _NEXT_MAX),
    default=_NEXT_DEFAULT,
    show_default=True,
    metavar="N",
    help="How many times to show.",
)
@json_option
@target_options
def coming(*, name: str, count: int, as_json: bool, target: Target) -> None:
    """Show the times at which a schedule is due next, by the clocks of its own zone."""
    from stado.cli import render, schedule_views
    from stado.core import schedules
    from stado.core.zones import zone_named

    with opened_repository(target) as repo, _found(repo, name) as schedule:
        now = repo.now()
    zone = zone_named(schedule.zone)
    dues = schedules.coming(schedule, zone, now, count=count)
    if as_json:
        render.print_json(
            {
                "schedule": schedule.name,
                "zone": schedule.zone,
                "paused": schedule.paused is not None,
                "next": [due.astimezone(zone).isoformat(timespec="seconds") for due in dues],
            }
        )
        return
    for due in dues:
        render.print_line(f"{schedule_views.local_text(due, zone)}  {_in_text(due, now)}")
    if schedule.paused is not None:
        render.tell(f"it is paused: `stado schedule resume {schedule.name}` lets these come")
    elif len(dues) < count:
        render.tell("it is never due after that" if dues else "it is never due again")


def _in_text(due: datetime, now: datetime) -> str:
    from stado.cli import render

    seconds = (due - now).total_seconds()
    return f"in {render.duration(seconds)}" if seconds >= 0 else f"{render.duration(-seconds)} late"


@click.command()
@_name_argument
@json_option
@target_options
def pause(*, name: str, as_json: bool, target: Target) -> None:
    """Submit nothing more until the schedule is resumed; jobs that there are go on.

    What waited for earlier jobs is forgotten.
    """
    from stado.cli import render
    from stado.jobs import schedules

    user = user_name()
    with opened_repository(target) as repo, _found(repo, name) as schedule:
        changed, now = schedules.pause(repo, schedule.name, by=user)
    if as_json:
        render.print_json({"schedule": changed.name, "paused": True, "changed_now": now})
        return
    render.print_line(changed.name)
    said = "is paused" if now else "was paused already"
    render.tell(f"the schedule {said}: nothing is submitted until it is resumed")
    render.tell(f"next: stado schedule resume {changed.name}")


@click.command()
@_name_argument
@json_option
@target_options
def resume(*, name: str, as_json: bool, target: Target) -> None:
    """Let a paused schedule go on, from now: what was due meanwhile is not caught up."""
    from stado.cli import render, schedule_views
    from stado.core.zones import zone_named
    from stado.jobs import schedules

    user = user_name()
    with opened_repository(target) as repo, _found(repo, name) as schedule:
        changed, resumed = schedules.resume(repo, schedule.name, by=user)
        now = repo.now()
    if as_json:
        fields = schedule_views.schedule_fields(changed, None)
        render.print_json({**fields, "changed_now": resumed})
        return
    render.print_line(changed.name)
    said = "the schedule goes on" if resumed else "the schedule was not paused"
    when = schedule_views.when_text(changed, zone_named(changed.zone), now)
    render.tell(f"{said}: {when}")


@click.command()
@_name_argument
@json_option
@target_options
def run(*, name: str, as_json: bool, target: Target) -> None:
    """Submit once now, whatever is due when; also while earlier jobs are live, or it is paused."""
    from stado.cli import render
    from stado.cli.failures import going_on
    from stado.jobs import schedules

    user = user_name()
    interrupted = "interrupted while submitting: a coordinator completes what was begun"
    with opened_repository(target) as repo, _found(repo, name) as schedule, going_on(interrupted):
        submitted, fire = schedules.run_now(repo, schedule.name, by=user)
    job_ids = submitted.job_ids(fire)
    if as_json:
        render.print_json({"schedule": schedule.name, "run_id": fire.run_id, "job_ids": job_ids})
        return
    for job_id in job_ids:
        render.print_line(job_id)
    render.tell(f"submitted {_jobs_text(submitted, fire.base_id or '')} (run {fire.run_id})")
    if submitted.request.batch:
        render.tell(f"next: stado status {fire.base_id} --watch")
    else:
        render.tell(f"next: stado job watch {fire.base_id} --follow")


def _jobs_text(schedule: Schedule, base: str) -> str:
    from stado.cli import views

    if not schedule.request.batch:
        return f"job {base}"
    return f"{views.jobs_text(len(schedule.request.commands))} as batch {base}"


@click.command("rm")
@_name_argument
@json_option
@target_options
def remove(*, name: str, as_json: bool, target: Target) -> None:
    """Remove a schedule, and leave its jobs alone. SCHEDULE is its whole name."""
    from stado.cli import render
    from stado.core.schedules import check_name
    from stado.errors import NotFound, Refused
    from stado.jobs import schedules

    user = user_name()
    check_name(name)
    with opened_repository(target) as repo:
        try:
            schedules.remove(repo, name, by=user)
        except NotFound:
            raise Refused(
                "schedule_unknown",
                f"there is no schedule {name!r} in {repo.store.address}: `stado schedule list` "
                "has all",
            ) from None
    if as_json:
        render.print_json({"schedule": name, "removed": True})
        return
    render.print_line(name)
    render.tell("the schedule is removed; its jobs stay as they are")


@click.command()
@_name_argument
@click.option(
    "--limit",
    type=click.IntRange(1, _ROWS_MAX),
    default=_HISTORY_DEFAULT,
    show_default=True,
    metavar="N",
    help="How many submissions to show.",
)
@json_option
@target_options
def history(*, name: str, limit: int, as_json: bool, target: Target) -> None:
    """List what a schedule has submitted, the newest first, and what has become of it."""
    from stado.cli import render, schedule_views
    from stado.core.zones import find_zone
    from stado.jobs import schedules

    with opened_repository(target) as repo, _found(repo, name) as schedule:
        found = schedules.history(repo, schedule, limit=limit)
    if as_json:
        render.print_json(
            {
                "schedule": schedule.name,
                "submissions": [schedule_views.outcome_fields(one) for one in found],
            }
        )
        return
    if not found:
        render.tell("nothing was submitted yet")
        return
    zone = find_zone(schedule.zone)
    columns, rows = schedule_views.history_table(found, zone)
    render.print_table(columns, rows)


@contextmanager
def _found(repo: Repository, name: str) -> Iterator[Schedule]:
    """The schedule that somebody means; one that goes away meanwhile is told as such."""
    from stado.errors import NotFound, Refused
    from stado.jobs.schedules import find_schedule, schedule_named

    whole = schedule_named(repo, name)
    try:
        yield find_schedule(repo, whole)
    except NotFound as error:
        raise Refused("schedule_gone", f"schedule {whole} is gone: {error}") from None
