"""`stado cost …`: what jobs cost, should cost, and might save."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from stado.cli import options
from stado.cli.context import json_option, opened_repository
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.core.costs import Catalog
    from stado.jobs.costs import Seen

_SINCE_DEFAULT = timedelta(days=30)
_LIMIT_DEFAULT = 20
_LIMIT_MAX = 250
_GROUPINGS = ("target", "model", "user", "batch", "job", "schedule", "host", "day")


def _common(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that all of them have."""
    for option in (
        target_options,
        json_option,
        click.option(
            "--prices",
            envvar="STADO_PRICES",
            metavar="FILE",
            help="Prices (TOML) where no host stated one. [env: STADO_PRICES; default: those that "
            "come with stado]",
        ),
        click.option(
            "--user",
            callback=options.plain_text,
            metavar="USER",
            help="Of one user's jobs.  [default: everybody's]",
        ),
        click.option(
            "--since",
            callback=options.moment,
            metavar="WHEN",
            help="From then on: 90m, 7d, 2h30m ago, or an instant of RFC 3339. [default: 30d]",
        ),
    ):
        function = option(function)
    return function


_limit_option = click.option(
    "--limit",
    type=click.IntRange(1, _LIMIT_MAX),
    default=_LIMIT_DEFAULT,
    metavar="N",
    help=f"So many rows at most; --json has all.  [default: {_LIMIT_DEFAULT}]",
)


def _see(
    target: Target,
    since: timedelta | datetime | None,
    user: str | None,
    prices: str | None,
) -> tuple[Seen, Catalog]:
    from stado.cli.price_files import read_catalog
    from stado.jobs.costs import see_uses

    catalog = read_catalog(prices)
    with opened_repository(target) as repo:
        return see_uses(repo, _begin(repo.now(), since), user=user), catalog


def _begin(now: datetime, since: timedelta | datetime | None) -> datetime:
    if isinstance(since, datetime):
        return max(since, now - options.AGO_MAX)
    return now - (_SINCE_DEFAULT if since is None else since)


def _show(lines: Iterable[str], notes: Iterable[str]) -> None:
    from stado.cli import render

    for line in lines:
        render.print_styled(line)
    for note in notes:
        render.tell(note)


@click.command()
@click.option(
    "--by",
    type=click.Choice(_GROUPINGS),
    default="target",
    help="What a row is for: target is what it ran on.  [default: target]",
)
@_limit_option
@_common
def report(
    *,
    by: str,
    limit: int,
    since: timedelta | datetime | None,
    user: str | None,
    prices: str | None,
    as_json: bool,
    target: Target,
) -> None:
    """Show what jobs cost: the time that their commands ran, times the price of what they ran on.

    A JOB is what each completed job cost, failed and lost attempts included. What has no price is
    told beside, and is in no sum.

    \b
      stado cost report
      stado cost report --by model --since 7d
      stado cost report --by day --json
    """
    from stado.cli import cost_views, render
    from stado.jobs.costs import tally_of

    seen, catalog = _see(target, since, user, prices)
    tally = tally_of(seen, by, catalog)
    if as_json:
        render.print_json(cost_views.report_fields(tally, seen, by=by, catalog=catalog, limit=None))
        return
    notes = [
        *cost_views.more_text(len(tally.groups), limit),
        *cost_views.notes(tally.total(), seen, catalog, by_default=since is None),
    ]
    _show(cost_views.report_lines(tally, by=by, limit=limit), notes)


@click.command()
@click.argument("file", metavar="FILE")
@click.option(
    "--model", required=True, callback=options.plain_text, metavar="MODEL", help="What they train."
)
@_common
def estimate(
    *,
    file: str,
    model: str,
    since: timedelta | datetime | None,
    user: str | None,
    prices: str | None,
    as_json: bool,
    target: Target,
) -> None:
    """Project what the commands of FILE (as of `submit --batch`; `-`: standard input) would cost.

    By what completed jobs of the same model cost, all of their attempts included: the median, and
    what a tenth of them stayed below and went beyond. Refused where no run of the model tells.

    \b
      stado cost estimate commands.txt --model resnet
    """
    from stado.cli import cost_views, render
    from stado.cli.which_jobs import read_batch_file
    from stado.core.costs import estimates_for, observed
    from stado.core.spec import parse_batch

    jobs = len(parse_batch(read_batch_file(file), file))
    seen, catalog = _see(target, since, user, prices)
    found = estimates_for(observed(seen.ended, catalog), model=model, jobs=jobs)
    if as_json:
        render.print_json(
            {
                **cost_views.about_fields(seen, catalog),
                "model": model,
                "jobs": jobs,
                "targets": [
                    {
                        "target": one.observed.target,
                        "cost_usd": cost_views.rounded(one.dollars),
                        "low_usd": cost_views.rounded(one.low),
                        "high_usd": cost_views.rounded(one.high),
                        "cost_usd_per_job": cost_views.rounded(one.observed.median),
                        "hours_per_job": round(one.observed.hours, 4),
                        "observed_jobs": len(one.observed.dollars),
                    }
                    for one in found
                ],
            }
        )
        return
    rows = [
        [
            one.observed.target,
            cost_views.dollars(one.dollars),
            f"{cost_views.dollars(one.low)} to {cost_views.dollars(one.high)}",
            cost_views.dollars(one.observed.median),
            render.duration(one.observed.hours * 3600),
            f"{len(one.observed.dollars):,}",
        ]
        for one in found
    ]
    titles = ("TARGET", "COST", "SPREAD", "A JOB", "TIME A JOB", "OBSERVED")
    notes = [f"{render.plural(jobs, 'job')} of {model}; the spread has eight of ten observed jobs"]
    if min(len(one.observed.dollars) for one in found) < 5:
        notes.append("fewer than five observed jobs tell little of a spread")
    _show(cost_views.table(titles, rows), [*notes, *cost_views.trouble_notes(seen)])


@click.command()
@_limit_option
@_common
def allocation(
    *,
    limit: int,
    since: timedelta | datetime | None,
    user: str | None,
    prices: str | None,
    as_json: bool,
    target: Target,
) -> None:
    """Show which part of the cost each user bears, and what hosts cost that do nothing.

    Idle is what the hosts that work now and state a price cost in the last 24 hours beyond what
    their jobs bore.
    """
    from stado.cli import cost_views, render
    from stado.cli.price_files import read_catalog
    from stado.jobs.costs import see_idle, see_uses, tally_of

    catalog = read_catalog(prices)
    with opened_repository(target) as repo:
        begin = min(_begin(repo.now(), since), repo.now() - timedelta(days=1))
        seen = see_uses(repo, begin, user=user)
        idle = see_idle(repo, seen if user is None else see_uses(repo, begin))
    tally = tally_of(seen, "user", catalog)
    whole = tally.total().dollars
    groups = cost_views.ordered(tally, "user")
    if as_json:
        render.print_json(
            {
                **cost_views.about_fields(seen, catalog),
                "total": cost_views.sum_fields(tally.total()),
                "users": [
                    {
                        "user": name,
                        "share": round(one.dollars / whole, 6) if whole else None,
                        **cost_views.sum_fields(one),
                    }
                    for name, one in groups
                ],
                "hosts": [
                    {
                        "worker": one.consumer,
                        "price_per_hour": one.price_per_hour,
                        "last_day_usd": cost_views.rounded(one.day_dollars),
                        "idle_usd": cost_views.rounded(one.idle),
                    }
                    for one in idle.hosts
                ],
                "hosts_unpriced": idle.unpriced,
            }
        )
        return
    rows = [
        [
            str(name),
            cost_views.dollars(one.known),
            f"{100 * one.dollars / whole:.1f} %" if whole else "-",
            f"{one.unpriced_epochs:,}",
        ]
        for name, one in groups[:limit]
    ]
    lines = (
        list(cost_views.table(("USER", "COST", "PART", "UNPRICED EPOCHS"), rows)) if rows else []
    )
    if idle.hosts:
        lines += ["", *_idle_lines(idle.hosts)]
    notes = [*cost_views.more_text(len(groups), limit)]
    if idle.unpriced:
        notes.append(f"{render.plural(idle.unpriced, 'host')} at work without a price")
    by_default = since is None
    _show(lines, [*notes, *cost_views.notes(tally.total(), seen, catalog, by_default=by_default)])


def _idle_lines(hosts: Iterable[Any]) -> list[str]:
    from stado.cli import cost_views

    rows = [
        [
            one.consumer,
            f"${one.price_per_hour:g}",
            cost_views.dollars(one.day_dollars),
            cost_views.dollars(one.idle),
        ]
        for one in sorted(hosts, key=lambda each: -each.idle)
    ]
    return list(cost_views.table(("HOST", "AN HOUR", "LAST DAY", "OF IT IDLE"), rows))


@click.command()
@_common
def forecast(
    *,
    since: timedelta | datetime | None,
    user: str | None,
    prices: str | None,
    as_json: bool,
    target: Target,
) -> None:
    """Show what this month should cost in the end.

    What it has cost so far, and for each day that is left the mean of the last seven whole days, in
    UTC. Nothing else is assumed.
    """
    from stado.cli import cost_views, render
    from stado.cli.price_files import read_catalog
    from stado.core.costs import Days, forecast
    from stado.core.ids import milliseconds
    from stado.jobs.costs import see_uses

    if since is not None:
        raise click.UsageError("a forecast looks at this month and the last seven days: no --since")
    catalog = read_catalog(prices)
    with opened_repository(target) as repo:
        now = repo.now()
        month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        seen = see_uses(repo, min(month, now - timedelta(days=8)), user=user)
    end = (month + timedelta(days=32)).replace(day=1)
    days = Days(catalog)
    for use, _ in seen.uses:
        days.add(use)
    told = forecast(days, now_ms=milliseconds(now), month_end_ms=milliseconds(end))
    if as_json:
        render.print_json(
            {
                **cost_views.about_fields(seen, catalog),
                "month": told.month,
                "spent_usd": cost_views.rounded(told.spent),
                "per_day_usd": cost_views.rounded(told.per_day),
                "days_left": round(told.days_left, 3),
                "cost_usd": cost_views.rounded(told.dollars),
                "unpriced_epochs": told.unpriced_epochs,
            }
        )
        return
    line = (
        f"{told.month}: {cost_views.dollars(told.dollars)}, of which "
        f"{cost_views.dollars(told.spent)} are spent and {told.days_left:.1f} days at "
        f"{cost_views.dollars(told.per_day)} are to come"
    )
    notes = list(cost_views.trouble_notes(seen))
    if told.unpriced_epochs:
        notes.insert(0, f"{render.plural(told.unpriced_epochs, 'epoch')} of it without a price")
    _show([line], notes)


@click.command()
@_limit_option
@_common
def anomalies(
    *,
    limit: int,
    since: timedelta | datetime | None,
    user: str | None,
    prices: str | None,
    as_json: bool,
    target: Target,
) -> None:
    """Show jobs that cost more than three times the median of their model on their target.

    With all of their attempts, of models of which at least five jobs completed there.
    """
    from stado.cli import cost_views, render
    from stado.core import costs

    seen, catalog = _see(target, since, user, prices)
    found = costs.anomalies(seen.ended, catalog)
    fields = [
        {
            "job_id": one.job_id,
            "model": one.model,
            "target": one.target,
            "cost_usd": cost_views.rounded(one.dollars),
            "median_usd": cost_views.rounded(one.median),
        }
        for one in found
    ]
    rows = [
        [
            one.job_id,
            cost_views.dollars(one.dollars),
            cost_views.dollars(one.median),
            one.model,
            one.target,
        ]
        for one in found[:limit]
    ]
    if as_json:
        render.print_json({**cost_views.about_fields(seen, catalog), "anomalies": fields})
    else:
        titles = ("JOB", "COST", "MEDIAN", "-MODEL", "-TARGET")
        _show_found(seen, titles, rows, len(found), limit, nothing="no job stands out")


@click.command()
@_limit_option
@_common
def savings(
    *,
    limit: int,
    since: timedelta | datetime | None,
    user: str | None,
    prices: str | None,
    as_json: bool,
    target: Target,
) -> None:
    """Show what would have been saved, had each model run on its cheapest target alone.

    By the median cost of a job there, of targets on which at least three jobs of the model
    completed.
    """
    from stado.cli import cost_views, render
    from stado.core import costs

    seen, catalog = _see(target, since, user, prices)
    found = costs.savings(seen.ended, catalog)
    fields = [
        {
            "model": one.model,
            "target": one.target,
            "cheapest": one.cheapest,
            "jobs": one.jobs,
            "saving_usd": cost_views.rounded(one.dollars),
        }
        for one in found
    ]
    rows = [
        [one.model, cost_views.dollars(one.dollars), f"{one.jobs:,}", one.target, one.cheapest]
        for one in found[:limit]
    ]
    if as_json:
        render.print_json({**cost_views.about_fields(seen, catalog), "savings": fields})
    else:
        titles = ("MODEL", "SAVED", "JOBS", "-RAN ON", "-CHEAPEST ON")
        _show_found(seen, titles, rows, len(found), limit, nothing="nothing to save is known")


def _show_found(
    seen: Seen,
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    count: int,
    limit: int,
    *,
    nothing: str,
) -> None:
    """A table of what was found, up to `limit` of `count`, or that it is `nothing`."""
    from stado.cli import cost_views

    lines = list(cost_views.table(titles, rows)) if rows else [nothing]
    _show(lines, [*cost_views.more_text(count, limit), *cost_views.trouble_notes(seen)])
