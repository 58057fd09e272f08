"""`stado status`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import click

from stado.cli.context import opened_repository, user_name
from stado.cli.list_options import ListAsked, extent_notes, list_options, stopped_short_note
from stado.target import Target, target_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stado.cli.screen import Frame
    from stado.cli.selectors import Selection
    from stado.core.states import State
    from stado.errors import Unreadable
    from stado.jobs.fitting import Wait
    from stado.jobs.health import AgentSight
    from stado.jobs.listings import Listing
    from stado.jobs.repository import Repository


class _Asked(NamedTuple):
    """Which jobs are to be listed."""

    filter_text: str | None
    view: ListAsked


class _Look(NamedTuple):
    """What one look at the store showed."""

    listing: Listing
    selection: Selection | None
    batch_states: Mapping[str, State]
    """Of every job of a batch, also of those beyond the limit."""
    hosts: Sequence[AgentSight]
    unreadable: Sequence[Unreadable]
    """Reports of hosts."""
    waits: Mapping[str, Wait]
    """Of the queued jobs in the list."""


@click.command()
@click.argument("filter_text", metavar="[FILTER]", required=False)
@list_options
@target_options
def status(*, filter_text: str | None, asked: ListAsked, target: Target) -> None:
    """List the newest jobs, whoever submitted them, and what the hosts are up to.

    FILTER is a part of a job or batch id, a run id, or `last`: your newest submission. TIME is how
    long a job has been waiting, running, or had run. A pipeline is one row; jobs that are
    looked for (--status, --type, --tag) have a row each, steps too.

    \b
      stado status
      stado status last --watch
      stado status --status failed --limit 100
    """
    what = _Asked(filter_text, asked)
    with opened_repository(target) as repo:
        looker = _Looker(repo, what)
        if asked.watch:
            from stado.cli.screen import redraw

            redraw(lambda: _frame(repo, looker.look(), what), repo.clock)
        look = looker.look()
        if asked.as_json:
            _print_json(repo, look, asked)
        else:
            _print_text(repo, look, what)


class _Looker:
    """Looks at the store, once or again and again."""

    def __init__(self, repo: Repository, asked: _Asked) -> None:
        from stado.jobs.health import Fleet

        self._repo = repo
        self._asked = asked
        self._fleet = Fleet(repo)
        self._selection = _selection(repo, asked.filter_text)

    def look(self) -> _Look:
        """Nine listings, a read a row, two more a row that runs, and a read a host that has
        reported anew; for a batch seven listings more."""
        listing = _listing(self._repo, self._asked, self._selection)
        batch = _batch_states(self._repo, self._selection)
        hosts = self._fleet.look()
        unreadable = self._fleet.unreadable
        waits = _waits(self._repo, listing, hosts, unread=len(unreadable))
        return _Look(listing, self._selection, batch, hosts, unreadable, waits)


def _selection(repo: Repository, filter_text: str | None) -> Selection | None:
    if not filter_text:
        return None
    from stado.cli.selectors import find_selection

    return find_selection(repo, filter_text, user=user_name())


def _listing(repo: Repository, asked: _Asked, selection: Selection | None) -> Listing:
    from stado.jobs.listings import matching, newest

    limit, wanted = asked.view.rows_max, asked.view.wanted
    rolled = asked.view.rolled and (asked.view.steps or not _is_batch(selection))
    if selection is not None:
        single = len(selection.job_ids) == 1
        pattern = selection.job_ids[0] if single else selection.base_id
    elif asked.filter_text:
        pattern = asked.filter_text.lower()
    else:
        return newest(repo, limit=limit, wanted=wanted, rolled=rolled)
    return matching(repo, pattern, limit=limit, wanted=wanted, rolled=rolled)


def _is_batch(selection: Selection | None) -> bool:
    """Whose jobs are shown as such: steps of theirs are elsewhere, and each would have to be looked
    up."""
    return selection is not None and selection.batch


def _batch_states(repo: Repository, selection: Selection | None) -> dict[str, State]:
    if selection is None or not selection.batch:
        return {}
    from stado.jobs.status import states_of

    found, wanted = states_of(repo, selection.base_id), set(selection.job_ids)
    return {job_id: state for job_id, state in found.items() if job_id in wanted}


def _waits(
    repo: Repository, listing: Listing, hosts: Sequence[AgentSight], *, unread: int
) -> dict[str, Wait]:
    queued = listing.queued
    if not queued:
        return {}
    from stado.jobs.limit_sight import LimitSight
    from stado.jobs.waiting import waits_of

    now_ms, paused, limits = repo.now_ms(), listing.queue_paused, LimitSight(repo)
    return waits_of(queued, hosts, now_ms, paused=paused, unread=unread, limits=limits)


def _print_json(repo: Repository, look: _Look, asked: ListAsked) -> None:
    from collections import Counter

    from stado.cli import render, views
    from stado.jobs.status import count_states

    fields = views.listing_fields(look.listing, look.waits, repo.now())
    fields["hosts"] = {
        state.value: count for state, count in Counter(one.state for one in look.hosts).items()
    }
    if look.batch_states and look.selection is not None:
        counts = count_states(dict(look.batch_states))
        fields["batch"] = {
            "batch_id": look.selection.base_id,
            "count": len(look.selection.job_ids),
            "states": {state.value: count for state, count in counts.items()},
        }
    render.print_json(fields)
    for note in extent_notes(look.listing, asked):
        render.tell(note)


def _print_text(repo: Repository, look: _Look, asked: _Asked) -> None:
    from stado.cli import render

    for line in _table(repo, look, asked):
        render.print_styled(line)
    for line in _batch_lines(look):
        render.print_line(line)
    for note in _notes(look, asked):
        render.tell(note)


def _frame(repo: Repository, look: _Look, asked: _Asked) -> Frame:
    from stado.cli.render import wrapped
    from stado.cli.screen import Frame

    notes = [line for note in _notes(look, asked) for line in wrapped(note)]
    return Frame([*_table(repo, look, asked), *_batch_lines(look)], notes)


def _table(repo: Repository, look: _Look, asked: _Asked) -> list[str]:
    from stado.cli import render, views

    if not look.listing.rows:
        return []
    columns, cells = views.listing_table(
        look.listing,
        views.own_reasons(look.waits, alive=any(host.alive for host in look.hosts)),
        repo.now(),
        steps=asked.view.steps,
    )
    return render.clean_table_lines(columns, cells)


def _batch_lines(look: _Look) -> Iterator[str]:
    from stado.cli import views

    if look.batch_states and look.selection is not None:
        yield ""
        yield f"batch {look.selection.base_id}: {views.jobs_text(len(look.selection.job_ids))}"
        yield from views.count_lines(look.batch_states.values())


def _notes(look: _Look, asked: _Asked) -> Iterator[str]:
    from stado.cli import views
    from stado.jobs.status import COUNTED_MAX

    listing = look.listing
    if not listing.rows:
        yield _nothing(asked)
    for row in listing.jobs:
        if row.problem:
            yield f"{row.job_id} cannot be read: {row.problem}"
    yield from views.trouble_lines(listing)
    yield from stopped_short_note(listing, asked.view)
    if _is_batch(look.selection) and _hides_steps(listing):
        yield "steps follow these jobs: --steps looks them up"
    yield from extent_notes(listing, asked.view)
    if listing.counts:
        yield views.counts_line(listing.counts, counted_max=COUNTED_MAX)
    if listing.queue_paused:
        yield "the queue is paused, no job starts: `stado queue resume` lets it go on"
    yield from _hosts_note(look)


def _hides_steps(listing: Listing) -> bool:
    records = (row.record for row in listing.rows if row.steps is None)
    return any(record is not None and record.spec.then for record in records)


def _hosts_note(look: _Look) -> Iterator[str]:
    """Nobody needs to hear of hosts where there is nothing to run, and nothing runs."""
    from stado.cli.host_views import hosts_line, no_host_text, unreadable_text

    if any(host.alive for host in look.hosts):
        yield f"{hosts_line(look.hosts)}: `stado hosts`"
    elif look.waits or any(row.life is not None for row in look.listing.jobs):
        yield no_host_text(look.hosts)
    if look.unreadable:
        yield unreadable_text(look.unreadable)


def _nothing(asked: _Asked) -> str:
    if asked.view.filtered:
        which = f" that {asked.filter_text!r} names" if asked.filter_text else ""
        return f"no job{which} is {_filter_text(asked.view)}"
    if asked.filter_text:
        return f"no job or batch id holds {asked.filter_text!r}, and no run is named so"
    return "there are no jobs yet: `stado submit --run-id NAME COMMAND` queues one"


def _filter_text(asked: ListAsked) -> str:
    """`failed or cancelled, of type train, tagged nightly`."""
    parts = [
        " or ".join(one.value for one in asked.standings),
        asked.types and f"of type {' or '.join(kind.value for kind in asked.types)}",
        asked.tags and f"tagged {' and '.join(asked.tags)}",
    ]
    return ", ".join(str(part) for part in parts if part)
