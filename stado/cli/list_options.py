"""The options of what lists jobs, `jobs` and `status`: which jobs, how many, how pipelines look;
and what is told below a list of how much of it there is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from stado.cli import options

if TYPE_CHECKING:
    from collections.abc import Collection

    from stado.core.phases import JobPhase
    from stado.core.states import JobType, State
    from stado.jobs.listings import Listing, Wanted

ROWS_DEFAULT = 20
LIMIT_MAX = 250
ALL_MAX = 10_000
"""As `stado.jobs.listings` reads at most."""


class ListAsked(NamedTuple):
    """What somebody wants to see."""

    standings: Collection[State | JobPhase] = ()
    types: Collection[JobType] = ()
    tags: Collection[str] = ()
    limit: int | None = None
    show_all: bool = False
    steps: bool = False
    """A row for each step, below the row of its pipeline."""
    flat: bool = False
    """A row for each job, and none for pipelines."""
    watch: bool = False
    as_json: bool = False

    @property
    def filtered(self) -> bool:
        return bool(self.standings or self.types or self.tags)

    @property
    def rolled(self) -> bool:
        """Whether a pipeline is one row. Of jobs that are looked for each has its own."""
        return not (self.flat or self.as_json or self.filtered)

    @property
    def rows_max(self) -> int:
        if self.show_all or (self.as_json and self.limit is None):
            return ALL_MAX
        return self.limit or ROWS_DEFAULT

    @property
    def wanted(self) -> Wanted:
        from stado.core.states import State
        from stado.jobs.listings import Wanted

        return Wanted(
            states=[one for one in self.standings if isinstance(one, State)],
            phases=[one for one in self.standings if not isinstance(one, State)],
            types=self.types,
            tags=self.tags,
        )


def list_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds them; the command gets them as `asked`."""

    @click.option(
        "--status",
        "--state",
        "standings",
        callback=options.standings,
        multiple=True,
        shell_complete=options.known_states,
        metavar="STATUS",
        help="Only jobs in this state (repeatable): queued, running, paused, completed, failed, "
        "cancelled, timed_out.",
    )
    @click.option(
        "--type",
        "types",
        callback=options.job_types,
        multiple=True,
        shell_complete=options.known_job_types,
        metavar="TYPE",
        help="Only jobs of this type (repeatable).",
    )
    @click.option(
        "--tag",
        "tags",
        callback=options.tags,
        multiple=True,
        metavar="TAG",
        help="Only jobs that have this tag (repeatable: all of them).",
    )
    @click.option(
        "--limit",
        type=click.IntRange(1, LIMIT_MAX),
        metavar="N",
        help=f"How many rows to show.  [default: {ROWS_DEFAULT}; with --json: all]",
    )
    @click.option("--all", "show_all", is_flag=True, help=f"Up to {ALL_MAX:,} of them.")
    @click.option("--steps", is_flag=True, help="Steps of pipelines too, below their pipeline.")
    @click.option("--flat", is_flag=True, help="One row a job, whatever pipeline it is part of.")
    @click.option("--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document, one job each.")
    @functools.wraps(command)
    def with_asked(**stated: Any) -> Any:
        asked = ListAsked(**{name: stated.pop(name) for name in ListAsked._fields})
        if asked.steps and asked.flat:
            raise click.UsageError("--steps and --flat are two ways to show the same jobs.")
        if asked.watch:
            from stado.cli.screen import check_screen

            check_screen(as_json=asked.as_json)
        return command(asked=asked, **stated)

    return with_asked


def extent_notes(listing: Listing, asked: ListAsked) -> Iterator[str]:
    """How much of all there is was shown, and what shows more of it; nothing below all of it."""
    from stado.cli.render import plural

    if listing.more:
        rows, jobs = len(listing.rows), len(listing.jobs)
        shown = f"{jobs:,}" if rows == jobs else f"{plural(rows, 'row')} for {jobs:,}"
        if listing.total > jobs:
            known = f"of {listing.total:,}{'+' if listing.total_at_least else ''} jobs"
        else:
            known = f"job{'' if jobs == 1 else 's'}, and there may be more"
        yield f"showing {shown} {known}{_further(asked)}"
    if listing.search_cut:
        yield "only the newest jobs were searched: type the beginning of an id"


def stopped_short_note(listing: Listing, asked: ListAsked) -> Iterator[str]:
    """How many pipelines did not come to their end though they began well."""
    from stado.cli.render import plural
    from stado.core.pipelines import PipelineState

    partial = [
        row.job_id
        for row in listing.rows
        if row.steps is not None and row.steps.state is PipelineState.PARTIAL
    ]
    if partial:
        look = f"`stado pipeline show {partial[0]}`" + ("" if asked.steps else ", or --steps")
        yield f"{plural(len(partial), 'submission')} stopped short: {look}"


def _further(asked: ListAsked) -> str:
    """The options that would show more than now."""
    if asked.rows_max >= ALL_MAX:
        return ""
    if asked.as_json:
        return ": without --limit all of them"
    more = "--all" if asked.rows_max >= LIMIT_MAX else "--limit N, --all"
    return f": {more}"
