"""Whose jobs are whose, and what runs are called: for people who name jobs in few letters."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from stado.core import ids, keys
from stado.core.states import State
from stado.jobs.repository import Repository
from stado.jobs.status import SEARCH_PAGES_MAX, Matches
from stado.storage.port import LIST_LIMIT_MAX, Entry, walk

_SEARCHED_MAX = SEARCH_PAGES_MAX * LIST_LIMIT_MAX
_RUN_IDS_MAX = 200
_NAMES_LISTED = 10


def bases_of(repo: Repository, user: str) -> Iterator[str]:
    """The base ids of a user's submissions, newest first: a page of a listing when one is
    needed."""
    entries = walk(repo.store, keys.by_user_folder(user))
    return _bases(itertools.islice(entries, _SEARCHED_MAX))


def newest_bases_of(repo: Repository, user: str) -> Iterator[str]:
    """The base ids of a user's newest submissions, the newest first. One listing for the first of
    them, unless somebody put many other names there."""
    entries = walk(repo.store, keys.by_user_folder(user), page_size=_NAMES_LISTED)
    return _bases(itertools.islice(entries, _SEARCHED_MAX))


def live_jobs_of(repo: Repository, user: str) -> dict[str, State]:
    """A user's jobs that have not ended, newest first.

    What runs is listed twice, for a job that is claimed between two listings would be in neither,
    and what is queued after what is paused, for one that is resumed.
    Requests: a page for each 1,000 jobs in there, and for each 1,000 of the user's submissions
    since the oldest of them."""
    states: dict[str, State] = {}
    for state in (State.RUNNING, State.PAUSED, State.QUEUED, State.RUNNING, State.PAUSED):
        for entry in repo.walk_records(state):
            states[keys.job_of_record(entry.key)] = state
    return _of_user(repo, user, states)


def ended_jobs_of(repo: Repository, user: str) -> Matches:
    """A user's jobs that have ended, newest first; `cut` where some state has more jobs than a
    search looks at."""
    over = [state for state in State if state.terminal]
    found = repo.tasks.map(lambda state: _job_ids_in(repo, state), over, limit=len(over))
    states = {job_id: state for state, ids_ in zip(over, found, strict=True) for job_id in ids_}
    own = _of_user(repo, user, states)
    return Matches(list(own), cut=any(len(ids_) > _SEARCHED_MAX for ids_ in found), states=own)


def some_run_ids(repo: Repository, *, beginning: str = "") -> set[str]:
    """Some hundred run ids, and those that begin so: what an unknown name may have meant. Two
    listings."""
    found = repo.store.list(keys.RUNS, limit=_RUN_IDS_MAX)
    if keys.component(beginning) == beginning:  # as a name in the folder begins
        found += repo.store.list(keys.RUNS + beginning, limit=_RUN_IDS_MAX)
    return {keys.job_of_record(entry.key) for entry in found}


def _bases(entries: Iterable[Entry]) -> Iterator[str]:
    names = (entry.key.rpartition("/")[2] for entry in entries)
    return filter(ids.BASE_PATTERN.fullmatch, names)


def _job_ids_in(repo: Repository, state: State) -> list[str]:
    entries = itertools.islice(repo.walk_records(state), _SEARCHED_MAX + 1)
    return [keys.job_of_record(entry.key) for entry in entries]


def _of_user(repo: Repository, user: str, states: dict[str, State]) -> dict[str, State]:
    """Those of the user's own submissions, newest first."""
    bases = {ids.base_of(job_id) for job_id in states}
    if not bases:
        return {}
    own = set()
    first, last = keys.by_user(user, min(bases)), keys.by_user(user, max(bases))
    for entry in walk(repo.store, keys.by_user_folder(user), start_after=first[:-1]):
        if entry.key > last:
            break
        own.add(entry.key.rpartition("/")[2])
    return {job_id: states[job_id] for job_id in sorted(states) if ids.base_of(job_id) in own}
