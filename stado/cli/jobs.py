"""`stado jobs`, which is also `stado job ls`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from stado.cli.context import opened_repository, user_name
from stado.cli.list_options import ListAsked, extent_notes, list_options, stopped_short_note
from stado.target import Target, target_options

if TYPE_CHECKING:
    from datetime import datetime

    from stado.cli.screen import Frame
    from stado.jobs.fitting import Wait
    from stado.jobs.listings import Listing
    from stado.jobs.repository import Repository


@dataclass(frozen=True, slots=True)
class _Look:
    """The list at a moment, and why what is queued in it waits."""

    listing: Listing
    waits: Mapping[str, Wait]
    alive: bool
    """Whether an agent is there; not looked at while nothing waits."""
    at: datetime


@click.command()
@click.option("--org", is_flag=True, help="Everybody's jobs, not yours alone.")
@list_options
@target_options
def jobs(*, org: bool, asked: ListAsked, target: Target) -> None:
    """List the jobs that you submitted, the newest first; a pipeline is one row.

    TYPE, STEPS, POLICY, REASON and others are there when some job has one. Jobs that are looked
    for (--status, --type, --tag) have a row each, steps too. `stado status` shows what everybody's
    jobs and the hosts are up to.

    \b
      stado jobs
      stado jobs --status failed --all
      stado jobs --org --json
    """
    from stado.cli import render, views

    with opened_repository(target) as repo:
        looker = _Looker(repo, asked, org=org)
        if asked.watch:
            from stado.cli.screen import redraw

            redraw(lambda: _frame(looker.look(), asked, org=org), repo.clock)
        look = looker.look()
        listing = look.listing
        if asked.as_json:
            render.print_json(views.listing_fields(listing, look.waits, look.at))
            notes = extent_notes(listing, asked)
        else:
            for line in _table(look, asked):
                render.print_styled(line)
            notes = _notes(listing, asked, org=org)
        for note in notes:
            render.tell(note)


def _listing(repo: Repository, asked: ListAsked, *, org: bool) -> Listing:
    from stado.jobs.listings import newest, of_submissions
    from stado.jobs.ownership import bases_of

    limit, wanted, rolled = asked.rows_max, asked.wanted, asked.rolled
    if org:
        return newest(repo, limit=limit, wanted=wanted, rolled=rolled)
    bases = bases_of(repo, user_name())
    return of_submissions(repo, bases, limit=limit, wanted=wanted, rolled=rolled)


class _Looker:
    """Looks at the store, once or again and again."""

    def __init__(self, repo: Repository, asked: ListAsked, *, org: bool) -> None:
        from stado.jobs.health import Fleet

        self._repo, self._asked, self._org = repo, asked, org
        self._fleet = Fleet(repo)

    def look(self) -> _Look:
        """The list; where a job of it waits, a listing more and a read a host that has reported
        anew."""
        from stado.jobs.limit_sight import LimitSight
        from stado.jobs.waiting import waits_of

        repo, fleet = self._repo, self._fleet
        listing = _listing(repo, self._asked, org=self._org)
        queued, paused = listing.queued, listing.queue_paused
        seen = fleet.look() if queued and not paused else []
        unread = len(fleet.unreadable)
        limits = LimitSight(repo)
        waits = waits_of(queued, seen, repo.now_ms(), paused=paused, unread=unread, limits=limits)
        return _Look(listing, waits, any(host.alive for host in seen), repo.now())


def _frame(look: _Look, asked: ListAsked, *, org: bool) -> Frame:
    from stado.cli.render import wrapped
    from stado.cli.screen import Frame

    notes = [line for note in _notes(look.listing, asked, org=org) for line in wrapped(note)]
    return Frame(_table(look, asked), notes)


def _table(look: _Look, asked: ListAsked) -> list[str]:
    from stado.cli import render, views

    if not look.listing.rows:
        return []
    reasons = views.own_reasons(look.waits, alive=look.alive)
    columns, cells = views.listing_table(look.listing, reasons, look.at, steps=asked.steps)
    return render.clean_table_lines(columns, cells)


def _notes(listing: Listing, asked: ListAsked, *, org: bool) -> Iterator[str]:
    from stado.cli import views

    if not listing.rows:
        yield _nothing(asked, org=org)
    for row in listing.jobs:
        if row.problem:
            yield f"{row.job_id} cannot be read: {row.problem}"
    yield from views.trouble_lines(listing)
    yield from stopped_short_note(listing, asked)
    yield from extent_notes(listing, asked)


def _nothing(asked: ListAsked, *, org: bool) -> str:
    others = "" if org else "`--org` lists everybody's"
    whose = "" if org else " of yours"
    if asked.filtered:
        return f"there are no such jobs{whose}" + (f": {others}" if others else "")
    submit = "`stado submit --run-id NAME COMMAND` queues one"
    return f"there are no jobs{whose} yet: {submit}" + (f", {others}" if others else "")
