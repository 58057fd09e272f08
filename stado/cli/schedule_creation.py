"""`stado schedule create`: what is submitted, and when."""

from __future__ import annotations

from collections.abc import Iterator
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

_WHEN = ("cron", "zone", "overlap_policy", "missed", "start_at", "end_at")
"""What is no part of the jobs."""


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
    from stado.cli import schedule_views
    from stado.cli.remarks import remarks_on
    from stado.cli.shown import Shown
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
        remarks = list(remarks_on(repo, made.schedule.request.shared))
    said = "schedule" if made.created else "there already: schedule"
    due = schedule_views.when_text(made.schedule, zone, now)
    Shown(
        lambda: {**schedule_views.schedule_fields(made.schedule, None), "created": made.created},
        [made.schedule.name],
        [
            f"{said} {made.schedule.name}: {due}",
            *_notes_of_instants(made.schedule),
            *(f"note: {remark}" for remark in remarks),
            f"next: stado schedule next {made.schedule.name}",
        ],
    ).show(as_json=as_json)


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


def _notes_of_instants(schedule: Schedule) -> Iterator[str]:
    """They are the same for each of its jobs."""
    if schedule.request.shared.deadline_at is not None:
        yield (
            "each of its jobs is ended at --deadline-at: state --end-at as well, so that none is "
            "submitted after it; --timeout counts for each job by itself"
        )
