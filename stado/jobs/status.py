"""What people look at: the newest jobs, one submission, one job's story.

Nothing here decides anything. An object that cannot be read costs its own row, never the list.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from stado.core import ids, keys
from stado.core.records import ClaimCell, EndCell, Heartbeat, LateResult, Record
from stado.core.states import State, projection_rank
from stado.errors import Ambiguous, NotFound, Unreadable
from stado.jobs.finding import find_job
from stado.jobs.repository import PARALLEL_REQUESTS, Repository
from stado.storage.port import LIST_LIMIT_MAX

SEARCH_PAGES_MAX = 20
"""Listing pages of each prefix that a search by substring looks through."""


@dataclass(frozen=True, slots=True)
class Row:
    """A job in a list. `record` is None when it cannot be read; `problem` says why."""

    job_id: str
    state: State
    record: Record | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of jobs, newest first."""

    rows: list[Row]
    more: bool
    """Whether there are more jobs than rows."""
    queue_paused: bool
    search_cut: bool = False
    """Whether a search gave up before it had seen every job."""


@dataclass(frozen=True, slots=True)
class _Page:
    """Keys of one prefix; `cut` when a search gave up before the end of it."""

    keys: list[str]
    cut: bool = False


@dataclass(slots=True)
class _Names:
    """Which states the prefixes show for each job id."""

    states: dict[str, list[State]] = field(default_factory=dict)
    cut: bool = False

    def add(self, state: State, page: _Page) -> None:
        self.cut |= page.cut
        for key in page.keys:
            self.states.setdefault(keys.job_of_record(key), []).append(state)


def newest(repo: Repository, *, limit: int) -> Listing:
    """The newest jobs. Requests: 8 listings and one read a row, whatever the history."""
    names, paused = _list_all(repo, lambda state: _head_of(repo, state, "", limit + 1))
    return _rows(repo, names, limit, paused)


def matching(repo: Repository, pattern: str, *, limit: int) -> Listing:
    """The newest jobs whose id (or batch id) contains `pattern`."""
    if ids.BASE_PATTERN.match(pattern):
        names, paused = _list_all(repo, lambda state: _head_of(repo, state, pattern, limit + 1))
    else:
        names, paused = _list_all(repo, lambda state: _search(repo, state, pattern, limit + 1))
    return _rows(repo, names, limit, paused)


def states_of(repo: Repository, base_id: str) -> dict[str, State]:
    """The state of each job of a submission. Seven listings (a page for each 1,000 jobs).

    A job that moves between two listings may be missing: look again."""
    names, _ = _list_all(
        repo, lambda state: _Page([e.key for e in repo.walk_records(state, beginning=base_id)])
    )
    return {job_id: _shown(states) for job_id, states in names.states.items()}


def count_states(states: dict[str, State]) -> dict[State, int]:
    return dict(Counter(states.values()))


def _list_all(repo: Repository, list_state: Callable[[State], _Page]) -> tuple[_Names, bool]:
    """The names under every prefix, and whether the queue is paused."""
    names = _Names()

    def look(state: State | None) -> _Page:
        if state is None:
            return _Page([entry.key for entry in repo.store.list(keys.READY, limit=1)])
        return list_state(state)

    looks: list[State | None] = [*State, None]
    pages = repo.tasks.map(look, looks, limit=len(looks))
    for state, page in zip(State, pages, strict=False):
        names.add(state, page)
    return names, keys.QUEUE_PAUSED in pages[-1].keys


def _head_of(repo: Repository, state: State, start: str, limit: int) -> _Page:
    page_size = min(limit, LIST_LIMIT_MAX)
    entries = repo.walk_records(state, beginning=start, page_size=page_size)
    return _Page([entry.key for entry in itertools.islice(entries, page_size)])


def _search(repo: Repository, state: State, pattern: str, limit: int) -> _Page:
    """The first keys whose job id contains the pattern."""
    found: list[str] = []
    for seen, entry in enumerate(repo.walk_records(state)):
        if seen >= SEARCH_PAGES_MAX * LIST_LIMIT_MAX:
            return _Page(found, cut=True)
        if pattern in keys.job_of_record(entry.key):
            found.append(entry.key)
        if len(found) == limit:
            break
    return _Page(found)


def _rows(repo: Repository, names: _Names, limit: int, paused: bool) -> Listing:
    chosen = sorted(names.states)[:limit]
    rows = repo.tasks.map(
        lambda job_id: _row(repo, job_id, names.states[job_id]), chosen, limit=PARALLEL_REQUESTS
    )
    return Listing(
        rows=[row for row in rows if row is not None],
        more=len(names.states) > limit,
        queue_paused=paused,
        search_cut=names.cut,
    )


def _row(repo: Repository, job_id: str, states: list[State]) -> Row | None:
    try:
        if len(states) == 1:
            stored = repo.find_record(states[0], job_id)
            if stored is not None:
                return Row(job_id, states[0], stored.value)
        found = find_job(repo, job_id)
    except (Unreadable, Ambiguous) as error:
        return Row(job_id, _shown(states), None, str(error))
    return Row(job_id, found.state, found.record) if found is not None else None


def _shown(states: list[State]) -> State:
    return max(states, key=projection_rank)


# --- one job ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EpochStory:
    """What became of one epoch."""

    epoch: int
    claim: ClaimCell | None
    end: EndCell | None
    late: LateResult | None


@dataclass(frozen=True, slots=True)
class Story:
    """Everything that the store tells of one job."""

    record: Record
    heartbeat: Heartbeat | None
    """Of the present epoch, while it runs."""
    cancel_asked_by: str | None
    epochs: list[EpochStory]


def story(repo: Repository, job_id: str) -> Story:
    """Raises `NotFound` for an unknown job, `Unreadable`."""
    found = find_job(repo, job_id)
    if found is None:
        raise NotFound(job_id, "there is no such job")
    record = found.record
    epochs = sorted(found.cells.claims | found.cells.ends | {record.epoch})
    heartbeat = repo.find_heartbeat(job_id) if record.state is State.RUNNING else None
    asks = repo.find_asks(job_id, record.epoch) if record.state is State.RUNNING else None
    return Story(
        record=record,
        heartbeat=heartbeat.value
        if heartbeat is not None and heartbeat.value.epoch == record.epoch
        else None,
        cancel_asked_by=asks.value.cancel_by if asks is not None else None,
        epochs=repo.tasks.map(
            lambda epoch: _epoch_story(repo, job_id, epoch), epochs, limit=PARALLEL_REQUESTS
        ),
    )


def _epoch_story(repo: Repository, job_id: str, epoch: int) -> EpochStory:
    claim = repo.find(ClaimCell, keys.claim_cell(job_id, epoch))
    end = repo.find_end(job_id, epoch)
    late = repo.find(LateResult, keys.late(job_id, epoch)) if end is not None else None
    return EpochStory(
        epoch=epoch,
        claim=claim.value if claim else None,
        end=end,
        late=late.value if late else None,
    )


@dataclass(frozen=True, slots=True)
class Matches:
    """Job ids, newest first; `cut` when there may be more that were not looked at or are left
    out."""

    job_ids: list[str]
    cut: bool


def near_matches(repo: Repository, text: str, *, limit: int) -> Matches:
    """The jobs whose ids contain `text`: what a part of an id, or an unknown one, may mean."""
    names, _ = _list_all(repo, lambda state: _search(repo, state, text.lower(), limit + 1))
    return Matches(sorted(names.states)[:limit], names.cut or len(names.states) > limit)


def newest_base_of(repo: Repository, user: str) -> str | None:
    """The base id of a user's newest submission: they sort newest first. One listing."""
    newest = repo.store.list(keys.by_user_folder(user), limit=1)
    return newest[0].key.rpartition("/")[2] if newest else None


def some_run_ids(repo: Repository) -> set[str]:
    """The first thousand run ids: what an unknown name may have meant. One listing."""
    return {keys.job_of_record(entry.key) for entry in repo.store.list(keys.RUNS)}
