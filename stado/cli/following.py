"""Waiting until jobs have ended, with patience that tells people of a store that is away."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from stado.cli import render
from stado.cli.wait_reasons import WaitReasons
from stado.core.states import State
from stado.jobs import sight
from stado.jobs.job_log import EpochBegins
from stado.jobs.sight import WHOLE_LOOK_SECONDS, Pace, present_record
from stado.jobs.status import pause_of, states_of

if TYPE_CHECKING:
    from stado.core.records import Record
    from stado.jobs.repository import Repository
    from stado.ports import Clock


_PAUSES_TOLD_MAX = 3
_AGAIN = (State.RUNNING, State.QUEUED)


class Patience(sight.Patience):
    """Says on stderr what it waits for."""

    def __init__(self, clock: Clock, *, meanwhile: str) -> None:
        super().__init__(clock, meanwhile=meanwhile, tell=render.tell)


def pause_text(repo: Repository, record: Record) -> str:
    """`job x was paused by ada ("lunch"): `stado job resume x` lets it go on`, of one that is."""
    pause = pause_of(repo, record)
    by = "" if pause is None else f" by {pause.by}"
    note = "" if pause is None or pause.note is None else f' ("{pause.note}")'
    return f"job {record.id} was paused{by}{note}: `stado job resume {record.id}` lets it go on"


def wait_all_ended(
    repo: Repository,
    job_ids: list[str],
    base_id: str,
    show: Callable[[dict[str, State]], None],
    *,
    reason_told: str | None = None,
) -> dict[str, State]:
    """The states of a submission's jobs once all have ended; `show` gets each look. Why they are
    queued is told when it changes; `reason_told`: the code of what was told already.

    A job that moves between two listings is missing from a look: it is shown as it was. One that
    is missing for long is looked at by itself. Raises `Refused` when it is gone."""
    wanted = set(job_ids)
    known: dict[str, State] = {}
    told = set[str]()
    seen_at = dict.fromkeys(job_ids, repo.clock.monotonic())
    pace = Pace(repo.clock)
    patience = Patience(repo.clock, meanwhile="what was submitted goes on")
    reasons = WaitReasons(repo, patience, told=reason_told)
    while True:
        looked = patience.call(lambda: states_of(repo, base_id))
        seen = {job: state for job, state in looked.items() if job in wanted}
        now = repo.clock.monotonic()
        seen_at.update(dict.fromkeys(seen, now))
        for job in [job for job, at in seen_at.items() if now - at >= WHOLE_LOOK_SECONDS]:
            if job not in known or not known[job].terminal:
                seen[job] = patience.call(partial(present_record, repo, job)).state
            seen_at[job] = now
        if known | seen != known:
            pace.quicken()
            _tell_again(repo, known, seen, patience)
        known |= seen
        _tell_paused(repo, known, told, patience)
        show(known)
        if len(known) == len(wanted) and all(state.terminal for state in known.values()):
            return known
        reasons.look([job for job, state in known.items() if state is State.QUEUED])
        pace.pause()


def _tell_again(
    repo: Repository, known: dict[str, State], seen: dict[str, State], patience: Patience
) -> None:
    """Those that ran and are queued, of many the first few only: how that epoch ended."""
    again = [job for job, state in seen.items() if (known.get(job), state) == _AGAIN]
    for job in again[:_PAUSES_TOLD_MAX]:
        record = patience.call(partial(present_record, repo, job))
        if record.epoch > 1 and not record.state.terminal:
            render.tell(EpochBegins(job, record.epoch, record.ending).text)


def _tell_paused(
    repo: Repository, known: dict[str, State], told: set[str], patience: Patience
) -> None:
    """Once for each job, and of many the first few only: it is waited on for them."""
    told &= {job for job, state in known.items() if state is State.PAUSED}
    for job in [job for job, state in known.items() if state is State.PAUSED and job not in told]:
        told.add(job)
        if len(told) > _PAUSES_TOLD_MAX:
            continue
        record = patience.call(partial(present_record, repo, job))
        if record.state is State.PAUSED:
            render.tell(patience.call(partial(pause_text, repo, record)))
