"""`stado schedule …`, but for `create`: looking at schedules, and changing them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from stado.cli import options
from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.core.schedules import Schedule
    from stado.jobs.repository import Repository

_ROWS_DEFAULT = 50
_ROWS_MAX = 1000
_HISTORY_DEFAULT = 20
_NEXT_DEFAULT = 5
_NEXT_MAX = 1000


@dataclass(frozen=True, slots=True)
class _Meant:
    """The schedule that somebody means, and where it is."""

    name: str
    """Its name, or how that begins."""
    target: Target

    @contextmanager
    def opened(self) -> Iterator[tuple[Repository, Schedule]]:
        """The store, and the schedule as it is now; one that goes away meanwhile is told as such.
        Raises `Refused` where the name fits none, or several."""
        from stado.errors import NotFound, Refused
        from stado.jobs.schedules import find_schedule, schedule_named

        with opened_repository(self.target) as repo:
            whole = schedule_named(repo, self.name)
            try:
                yield repo, find_schedule(repo, whole)
            except NotFound as error:
                raise Refused("schedule_gone", f"schedule {whole} is gone: {error}") from None


def _about_one(command: Callable[..., Any]) -> Callable[..., Any]:
    """The argument and the options of commands about one schedule; the command gets them as
    `meant`, and `as_json`."""

    @click.argument("name", metavar="SCHEDULE", callback=options.plain_text)
    @json_option
    @target_options
    @functools.wraps(command)
    def with_meant(*, name: str, target: Target, **others: Any) -> Any:
        return command(meant=_Meant(name, target), **others)

    return with_meant


# --- looking ------------------------------------------------------------------------------


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
    from stado.cli import schedule_views
    from stado.core.schedules import check_name
    from stado.jobs import schedules

    if after:
        check_name(after)
    with opened_repository(target) as repo:
        found = schedules.list_schedules(repo, limit=limit, after=after)
        now, lease_seconds = repo.now(), repo.deployment.lease_seconds
    schedule_views.listed(found, now, lease_seconds).show(as_json=as_json)


@click.command()
@_about_one
def show(*, meant: _Meant, as_json: bool) -> None:
    """Tell all about a schedule. SCHEDULE is its name, or how that begins."""
    from stado.cli import schedule_views
    from stado.jobs.schedules import outcome_of

    with meant.opened() as (repo, schedule):
        last = None if schedule.last is None else outcome_of(repo, schedule, schedule.last)
        now = repo.now()
    schedule_views.story(schedule, last, now).show(as_json=as_json)


@click.command("next")
@click.option(
    "--count",
    type=click.IntRange(1, _NEXT_MAX),
    default=_NEXT_DEFAULT,
    show_default=True,
    metavar="N",
    help="How many times to show.",
)
@_about_one
def coming(*, count: int, meant: _Meant, as_json: bool) -> None:
    """Show the times at which a schedule is due next, by the clocks of its own zone."""
    from stado.cli import schedule_views
    from stado.core import schedules
    from stado.core.zones import zone_named

    with meant.opened() as (repo, schedule):
        now = repo.now()
    zone = zone_named(schedule.zone)
    dues = schedules.coming(schedule, zone, now, count=count)
    schedule_views.coming(schedule, dues, zone, now, count=count).show(as_json=as_json)


@click.command()
@click.option(
    "--limit",
    type=click.IntRange(1, _ROWS_MAX),
    default=_HISTORY_DEFAULT,
    show_default=True,
    metavar="N",
    help="How many submissions to show.",
)
@_about_one
def history(*, limit: int, meant: _Meant, as_json: bool) -> None:
    """List what a schedule has submitted, the newest first, and what has become of it."""
    from stado.cli import schedule_views
    from stado.jobs import schedules

    with meant.opened() as (repo, schedule):
        found = schedules.history(repo, schedule, limit=limit)
    schedule_views.history(schedule, found).show(as_json=as_json)


# --- changing -----------------------------------------------------------------------------


@click.command()
@_about_one
def pause(*, meant: _Meant, as_json: bool) -> None:
    """Submit nothing more until the schedule is resumed; jobs that there are go on.

    What waited for earlier jobs is forgotten.
    """
    from stado.cli.shown import Shown
    from stado.jobs import schedules

    user = user_name()
    with meant.opened() as (repo, schedule):
        changed, now = schedules.pause(repo, schedule.name, by=user)
    said = "is paused" if now else "was paused already"
    Shown(
        lambda: {"schedule": changed.name, "paused": True, "changed_now": now},
        [changed.name],
        [
            f"the schedule {said}: nothing is submitted until it is resumed",
            f"next: stado schedule resume {changed.name}",
        ],
    ).show(as_json=as_json)


@click.command()
@_about_one
def resume(*, meant: _Meant, as_json: bool) -> None:
    """Let a paused schedule go on, from now: what was due meanwhile is not caught up."""
    from stado.cli import schedule_views
    from stado.cli.shown import Shown
    from stado.core.zones import zone_named
    from stado.jobs import schedules

    user = user_name()
    with meant.opened() as (repo, schedule):
        changed, resumed = schedules.resume(repo, schedule.name, by=user)
        now = repo.now()
    said = "the schedule goes on" if resumed else "the schedule was not paused"
    when = schedule_views.when_text(changed, zone_named(changed.zone), now)
    Shown(
        lambda: {**schedule_views.schedule_fields(changed, None), "changed_now": resumed},
        [changed.name],
        [f"{said}: {when}"],
    ).show(as_json=as_json)


@click.command()
@_about_one
def run(*, meant: _Meant, as_json: bool) -> None:
    """Submit once now, whatever is due when; also while earlier jobs are live, or it is paused."""
    from stado.cli import schedule_views
    from stado.cli.failures import going_on
    from stado.jobs import schedules

    user = user_name()
    interrupted = "interrupted while submitting: a coordinator completes what was begun"
    with meant.opened() as (repo, schedule), going_on(interrupted):
        submitted, fire = schedules.run_now(repo, schedule.name, by=user)
    schedule_views.submission(submitted, fire).show(as_json=as_json)


@click.command("rm")
@_about_one
def remove(*, meant: _Meant, as_json: bool) -> None:
    """Remove a schedule, and leave its jobs alone. SCHEDULE is its whole name."""
    from stado.cli.shown import Shown
    from stado.core.schedules import check_name
    from stado.errors import NotFound, Refused
    from stado.jobs import schedules

    user, name = user_name(), meant.name
    check_name(name)
    with opened_repository(meant.target) as repo:
        try:
            schedules.remove(repo, name, by=user)
        except NotFound:
            whole = schedules.schedule_named(repo, name)  # says that there is none, or several
            raise Refused(
                "schedule_unknown",
                f"there is no schedule {name!r} in {repo.store.address}, and what is removed has "
                f"to be named in full: `stado schedule rm {whole}`",
            ) from None
    Shown(
        lambda: {"schedule": name, "removed": True},
        [name],
        ["the schedule is removed; its jobs stay as they are"],
    ).show(as_json=as_json)
