"""`stado jobs`, which is also `stado job ls`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from stado.cli import options
from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options

if TYPE_CHECKING:
    from collections.abc import Collection

    from stado.core.states import State
    from stado.jobs.repository import Repository
    from stado.jobs.status import Listing

_ALL_MAX = 10_000
"""What `--all` lists: a history has no end."""


@click.command()
@click.option("--org", is_flag=True, help="Everybody's jobs, not yours alone.")
@options.listed
@click.option("--all", "show_all", is_flag=True, help=f"Up to {_ALL_MAX:,} of them.")
@json_option
@target_options
def jobs(
    *,
    org: bool,
    states: Collection[State],
    limit: int,
    show_all: bool,
    as_json: bool,
    target: Target,
) -> None:
    """List the jobs that you submitted, the newest first.

    TYPE and POLICY are there when some job has one: a policy that it made, or the checkpoint that
    it started from. `stado status` shows what everybody's jobs and the hosts are up to.

    \b
      stado jobs
      stado jobs --state failed --all
      stado jobs --org --json
    """
    from stado.cli import render, views

    with opened_repository(target) as repo:
        listing = _listing(repo, org=org, limit=_ALL_MAX if show_all else limit, states=states)
        if as_json:
            render.print_json(views.listing_fields(listing, {}))
            return
        if listing.rows:
            columns, cells = views.listing_table(listing, {}, repo.now())
            for line in render.clean_table_lines(columns, cells):
                render.print_styled(line)
        for note in _notes(listing, org=org, show_all=show_all):
            render.tell(note)


def _listing(repo: Repository, *, org: bool, limit: int, states: Collection[State]) -> Listing:
    from stado.jobs.ownership import bases_of
    from stado.jobs.status import newest, of_submissions

    if org:
        return newest(repo, limit=limit, states=states)
    return of_submissions(repo, bases_of(repo, user_name()), limit=limit, states=states)


def _notes(listing: Listing, *, org: bool, show_all: bool) -> Iterator[str]:
    from stado.cli import views

    if not listing.rows:
        yield "there are no such jobs" + ("" if org else " of yours: `--org` lists everybody's")
    for row in listing.rows:
        if row.problem:
            yield f"{row.job_id} cannot be read: {row.problem}"
    yield from views.trouble_lines(listing)
    if listing.more:
        further = "" if show_all else " (--limit N, --all)"
        yield f"there are more: these are the first {len(listing.rows):,}{further}"
