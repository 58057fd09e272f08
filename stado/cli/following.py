"""Waiting until jobs are at rest, with patience that tells people of a store that is away."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from stado.cli import render
from stado.core.states import State
from stado.jobs import sight
from stado.jobs.sight import WHOLE_LOOK_SECONDS, Pace, present_record
from stado.jobs.status import states_of

if TYPE_CHECKING:
    from stado.jobs.repository import Repository
    from stado.ports import Clock


class Patience(sight.Patience):
    """Says on stderr what it waits for."""

    def __init__(self, clock: Clock, *, meanwhile: str) -> None:
        super().__init__(clock, meanwhile=meanwhile, tell=render.tell)


def wait_all_at_rest(
    repo: Repository,
    job_ids: list[str],
    base_id: str,
    show: Callable[[dict[str, State]], None],
) -> dict[str, State]:
    """The states of a submission's jobs once all are at rest; `show` gets each look.

    A job that moves between two listings is missing from a look: it is shown as it was. One that
    is missing for long is looked at by itself. Raises `Refused` when it is gone."""
    wanted = set(job_ids)
    known: dict[str, State] = {}
    seen_at = dict.fromkeys(job_ids, repo.clock.monotonic())
    pace = Pace(repo.clock)
    patience = Patience(repo.clock, meanwhile="what was submitted goes on")
    while True:
        looked = patience.call(lambda: states_of(repo, base_id))
        seen = {job: state for job, state in looked.items() if job in wanted}
        now = repo.clock.monotonic()
        seen_at.update(dict.fromkeys(seen, now))
        for job in [job for job, at in seen_at.items() if now - at >= WHOLE_LOOK_SECONDS]:
            if job not in known or not known[job].at_rest:
                seen[job] = patience.call(partial(present_record, repo, job)).state
            seen_at[job] = now
        if known | seen != known:
            pace.quicken()
        known |= seen
        show(known)
        if len(known) == len(wanted) and all(state.at_rest for state in known.values()):
            return known
        pace.pause()
