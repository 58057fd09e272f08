"""`stado cost …`: what jobs cost, should cost, and might save."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from stado.cli import options
from stado.cli.context import json_option, opened_repository
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.core.costs import Catalog
    from stado.jobs.costs import Seen

_LIMIT_DEFAULT = 20
_LIMIT_MAX = 250
_GROUPINGS = ("target", "model", "user", "group", "batch", "job", "schedule", "host", "day")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What all of these commands are told: of which store, of when, of whom, by which prices."""

    target: Target
    since: timedelta | datetime | None
    user: str | None
    prices: str | None

    @property
    def by_default(self) -> bool:
        """Whether nobody said from when on."""
        return self.since is None

    def begin(self, now: datetime) -> datetime:
        """From when on, by the clock of the store."""
        return options.moment_meant(self.since, now)

    def catalog(self) -> Catalog:
        """Raises `Refused` for a file of prices that cannot be meant."""
        from stado.price_files import read_catalog

        return read_catalog(self.prices)

    def see(self) -> tuple[Seen, Catalog]:
        from stado.jobs.costs import see_uses

        catalog = self.catalog()
        with opened_repository(self.target) as repo:
            return see_uses(repo, self.begin(repo.now()), user=self.user), catalog


def _about_cost(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that all of them have; the command gets them as `asked`, and `as_json`."""

    @click.option(
        "--since",
        callback=options.moment,
        metavar="WHEN",
        help="From then on: 90m, 7d, 2h30m ago, or an instant of RFC 3339. [default: 30d]",
    )
    @click.option(
        "--user",
        callback=options.plain_text,
        metavar="USER",
        help="Of one user's jobs.  [default: everybody's]",
    )
    @click.option(
        "--prices",
        envvar="STADO_PRICES",
        metavar="FILE",
        help="Prices (TOML) where no host stated one. [env: STADO_PRICES; default: those that "
        "come with stado]",
    )
    @json_option
    @target_options
    @functools.wraps(command)
    def with_asked(
        *,
        target: Target,
        since: timedelta | datetime | None,
        user: str | None,
        prices: str | None,
        **others: Any,
    ) -> Any:
        return command(asked=_Asked(target, since, user, prices), **others)

    return with_asked


_limit_option = click.option(
    "--limit",
    type=click.IntRange(1, _LIMIT_MAX),
    default=_LIMIT_DEFAULT,
    metavar="N",
    help=f"So many rows at most; --json has all.  [default: {_LIMIT_DEFAULT}]",
)


@click.command()
@click.option(
    "--by",
    type=click.Choice(_GROUPINGS),
    default="target",
    help="What a row is for: target is what it ran on.  [default: target]",
)
@_limit_option
@_about_cost
def report(*, by: str, limit: int, asked: _Asked, as_json: bool) -> None:
    """Show what jobs cost: the time that their commands ran, times the price of what they ran on.

    A JOB is what each completed job cost, failed and lost attempts included. What has no price is
    told beside, and is in no sum. What jobs asked of a bucket is STORE, and not in COST.

    \b
      stado cost report
      stado cost report --by model --since 7d
      stado cost report --by day --json
    """
    from stado.cli import cost_views
    from stado.jobs.costs import tally_of

    seen, catalog = asked.see()
    tally = tally_of(seen, by, catalog)
    cost_views.report(tally, seen, catalog, by=by, limit=limit, by_default=asked.by_default).show(
        as_json=as_json
    )


@click.command()
@click.argument("file", metavar="FILE")
@click.option(
    "--model", required=True, callback=options.plain_text, metavar="MODEL", help="What they train."
)
@_about_cost
def estimate(*, file: str, model: str, asked: _Asked, as_json: bool) -> None:
    """Project what the commands of FILE (as of `submit --batch`; `-`: standard input) would cost.

    By what completed jobs of the same model cost, all of their attempts included: the median, and
    what a tenth of them stayed below and went beyond. Refused where no run of the model tells.

    \b
      stado cost estimate commands.txt --model resnet
    """
    from stado.cli import cost_advice
    from stado.cli.which_jobs import read_batch_file
    from stado.core.costs import estimates_for, observed
    from stado.core.spec import parse_batch

    jobs = len(parse_batch(read_batch_file(file), file))
    seen, catalog = asked.see()
    found = estimates_for(observed(seen.ended, catalog), model=model, jobs=jobs)
    cost_advice.estimates(found, seen, catalog, model=model, jobs=jobs).show(as_json=as_json)


@click.command()
@_limit_option
@_about_cost
def allocation(*, limit: int, asked: _Asked, as_json: bool) -> None:
    """Show which part of the cost each user bears, and what hosts cost that do nothing.

    Idle is what the hosts that work now and state a price would cost in 24 hours, beyond what
    their jobs of the last 24 hours bore.
    """
    from stado.cli import cost_views
    from stado.jobs.costs import see_allocation, tally_of

    catalog = asked.catalog()
    with opened_repository(asked.target) as repo:
        seen, idle = see_allocation(repo, asked.begin(repo.now()), user=asked.user)
    tally = tally_of(seen, "user", catalog)
    cost_views.allocation(
        tally, idle, seen, catalog, limit=limit, by_default=asked.by_default
    ).show(as_json=as_json)


@click.command()
@_about_cost
def forecast(*, asked: _Asked, as_json: bool) -> None:
    """Show what this month should cost in the end.

    What it has cost so far, and for each day that is left the mean of the last seven whole days, in
    UTC. Nothing else is assumed.
    """
    from stado.cli import cost_advice
    from stado.jobs.costs import see_month

    if asked.since is not None:
        raise click.UsageError("a forecast looks at this month and the last seven days: no --since")
    catalog = asked.catalog()
    with opened_repository(asked.target) as repo:
        seen, told = see_month(repo, catalog, user=asked.user)
    cost_advice.forecast(told, seen, catalog).show(as_json=as_json)


@click.command()
@_limit_option
@_about_cost
def anomalies(*, limit: int, asked: _Asked, as_json: bool) -> None:
    """Show jobs that cost more than three times the median of their model on their target.

    With all of their attempts, of models of which at least five jobs completed there.
    """
    from stado.cli import cost_advice
    from stado.core import costs

    seen, catalog = asked.see()
    found = costs.anomalies(seen.ended, catalog)
    cost_advice.anomalies(found, seen, catalog, limit=limit).show(as_json=as_json)


@click.command()
@_limit_option
@_about_cost
def savings(*, limit: int, asked: _Asked, as_json: bool) -> None:
    """Show what would have been saved, had each model run on its cheapest target alone.

    By the median cost of a job there, of targets on which at least three jobs of the model
    completed.
    """
    from stado.cli import cost_advice
    from stado.core import costs

    seen, catalog = asked.see()
    found = costs.savings(seen.ended, catalog)
    cost_advice.savings(found, seen, catalog, limit=limit).show(as_json=as_json)
