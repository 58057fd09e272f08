"""`stado status`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.cli.selectors import Selection
    from stado.core.states import State
    from stado.jobs.repository import Repository
    from stado.jobs.status import Listing

_LIMIT_DEFAULT = 20
_LIMIT_MAX = 1000


@click.command()
@click.argument("filter_text", metavar="[FILTER]", required=False)
@click.option(
    "--limit",
    type=click.IntRange(1, _LIMIT_MAX),
    default=_LIMIT_DEFAULT,
    show_default=True,
    help="How many jobs to show.",
)
@json_option
@target_options
def status(*, filter_text: str | None, limit: int, as_json: bool, target: Target) -> None:
    """List the newest jobs, whoever submitted them.

    FILTER is a part of a job or batch id, a run id, or `last`: your newest submission.
    """
    with opened_repository(target) as repo:
        selection = _selection(repo, filter_text)
        listing = _listing(repo, filter_text, selection, limit)
        states = _states(repo, selection)
        if as_json:
            _print_json(listing, selection, states)
        else:
            _print_text(repo, listing, selection, states, filter_text=filter_text)


def _selection(repo: Repository, filter_text: str | None) -> Selection | None:
    if not filter_text:
        return None
    from stado.cli.selectors import find_selection

    return find_selection(repo, filter_text, user=user_name())


def _listing(
    repo: Repository, filter_text: str | None, selection: Selection | None, limit: int
) -> Listing:
    from stado.jobs.status import matching, newest

    if selection is not None:
        single = len(selection.job_ids) == 1
        return matching(repo, selection.job_ids[0] if single else selection.base_id, limit=limit)
    if filter_text:
        return matching(repo, filter_text.lower(), limit=limit)
    return newest(repo, limit=limit)


def _states(repo: Repository, selection: Selection | None) -> dict[str, State]:
    """Of every job of a batch, also of those beyond the limit."""
    if selection is None or not selection.batch:
        return {}
    from stado.jobs.status import states_of

    found = states_of(repo, selection.base_id)
    return {job_id: state for job_id, state in found.items() if job_id in selection.job_ids}


def _print_json(listing: Listing, selection: Selection | None, states: dict[str, State]) -> None:
    from stado.cli import render, views
    from stado.jobs.status import count_states

    fields = views.listing_fields(listing)
    if states and selection is not None:
        fields["batch"] = {
            "batch_id": selection.base_id,
            "count": len(selection.job_ids),
            "states": {state.value: count for state, count in count_states(states).items()},
        }
    render.print_json(fields)


def _print_text(
    repo: Repository,
    listing: Listing,
    selection: Selection | None,
    states: dict[str, State],
    *,
    filter_text: str | None,
) -> None:
    from stado.cli import render, views

    if listing.rows:
        render.print_table(*views.listing_table(listing, repo.now()))
    else:
        render.tell(_nothing(filter_text))
    if states and selection is not None:
        render.print_line()
        render.print_line(f"batch {selection.base_id}: {views.jobs_text(len(states))}")
        for line in views.count_lines(states.values()):
            render.print_line(line)
    for note in _notes(listing):
        render.tell(note)


def _nothing(filter_text: str | None) -> str:
    if filter_text:
        return f"no job or batch id holds {filter_text!r}, and no run is named so"
    return "there are no jobs yet: `stado submit --run-id NAME COMMAND` queues one"


def _notes(listing: Listing) -> list[str]:
    notes = [f"{row.job_id} cannot be read: {row.problem}" for row in listing.rows if row.problem]
    if listing.more:
        notes.append(f"there are more: these are the first {len(listing.rows)} (--limit N)")
    if listing.search_cut:
        notes.append("only the newest jobs were searched: type the beginning of an id")
    if listing.queue_paused:
        notes.append("the queue is paused, no job starts: `stado queue resume` lets it go on")
    return notes
