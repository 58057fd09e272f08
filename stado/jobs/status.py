"""What people look at: the newest jobs, one submission, one job's story.

Nothing here decides anything. An object that cannot be read costs its own row, never the list.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from stado.core import ids, keys
from stado.core.records import (
    Checkpoint,
    ClaimCell,
    EndCell,
    Heartbeat,
    LateResult,
    OpenCell,
    PolicySeal,
    Record,
)
from stado.core.states import State, Verdict, projection_rank
from stado.errors import Ambiguous, Denied, NotFound, Unreadable
from stado.jobs.checkpoints import newest_manifests
from stado.jobs.finding import find_job, was_deleted
from stado.jobs.policy_seals import find_seal
from stado.jobs.queue_index import queue_paused
from stado.jobs.repository import PARALLEL_REQUESTS, Cells, Repository
from stado.storage.port import LIST_LIMIT_MAX

SEARCH_PAGES_MAX = 20
"""Listing pages of each prefix that a search by substring looks through."""

COUNTED_MAX = LIST_LIMIT_MAX
"""Jobs of each state that a list counts."""


@dataclass(frozen=True, slots=True)
class Life:
    """What is known of an epoch that runs."""

    heartbeat: Heartbeat | None
    """None until the holder's first beat."""
    cancel_asked_by: str | None = None
    cancel_asked_at: datetime | None = None
    cancel_grace_seconds: float = 0.0
    """How long a cancelled command has between TERM and KILL."""
    pause_asked_by: str | None = None
    """Also where a cancel, which goes before, was asked for besides."""
    pause_asked_at: datetime | None = None
    note: str | None = None
    """Why, in the words of who asked for what it will come to."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Who had a job paused, when, and why."""

    by: str
    at: datetime
    note: str | None


def pause_of(repo: Repository, record: Record) -> Pause | None:
    """Of a job that is paused. One read."""
    ending = record.ending
    if record.state is not State.PAUSED or ending is None:
        return None
    asks = repo.find_asks(record.id, record.epoch)
    if asks is None or not asks.value.pause:
        return Pause(ending.by, ending.ended_at, ending.detail)
    asked = asks.value
    return Pause(asked.pause_by or ending.by, asked.pause_at or ending.ended_at, asked.pause_note)


@dataclass(frozen=True, slots=True)
class Row:
    """A job in a list. `record` is None when it cannot be read; `problem` says why."""

    job_id: str
    state: State
    record: Record | None
    problem: str | None = None
    life: Life | None = None
    """Of a job that runs."""
    seal: PolicySeal | None = None
    """What a train job made that has ended."""
    pause: Pause | None = None
    """Of one that is paused."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of jobs: the newest submission first, of a batch what runs first."""

    rows: list[Row]
    more: bool
    """Whether there are more jobs than rows."""
    queue_paused: bool
    search_cut: bool = False
    """Whether a search gave up before it had seen every job."""
    counts: dict[State, int] = field(default_factory=dict)
    """Jobs by state, at most `COUNTED_MAX` of each; empty for a search."""


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

    def only(self, wanted: Collection[State]) -> _Names:
        """Those that show one of these states; all when none is named."""
        if not wanted:
            return self
        kept = {job: states for job, states in self.states.items() if _shown(states) in wanted}
        return _Names(kept, self.cut)


def newest(repo: Repository, *, limit: int, states: Collection[State] = ()) -> Listing:
    """The newest jobs, of these states if any are named. Requests: 8 listings, a read a row and
    two more a row that runs, whatever the history; seven more listings at the largest limit."""
    looked_at = max(COUNTED_MAX, limit + 1)
    names, paused = _list_all(repo, lambda state: _head_of(repo, state, "", looked_at))
    counted = Counter(_shown(found) for found in names.states.values())
    counts = {state: min(count, COUNTED_MAX) for state, count in counted.items()}
    return _rows(repo, names.only(states), limit, paused, counts)


def matching(
    repo: Repository, pattern: str, *, limit: int, states: Collection[State] = ()
) -> Listing:
    """The newest jobs whose id (or batch id) contains `pattern`, of these states if any are
    named."""
    if ids.BASE_PATTERN.match(pattern):
        names, paused = _list_all(repo, lambda state: _head_of(repo, state, pattern, limit + 1))
    else:
        names, paused = _list_all(repo, lambda state: _search(repo, state, pattern, limit + 1))
    return _rows(repo, names.only(states), limit, paused, {})


def of_submissions(
    repo: Repository, bases: Iterable[str], *, limit: int, states: Collection[State] = ()
) -> Listing:
    """The jobs of these submissions in their order, of these states if any are named. Requests:
    some two a job; ten for a batch, and one or two for each of its jobs that are in the list."""
    rows: list[Row] = []
    remaining = iter(bases)
    while len(rows) <= limit and (chunk := list(itertools.islice(remaining, PARALLEL_REQUESTS))):
        alone = repo.tasks.map(lambda base: _row(repo, base, []), chunk, limit=PARALLEL_REQUESTS)
        for base, row in zip(chunk, alone, strict=True):
            found = [row] if row is not None else _rows_of_batch(repo, base, limit + 1)
            rows += [one for one in found if not states or one.state in states]
    return Listing(rows[:limit], more=len(rows) > limit, queue_paused=queue_paused(repo))


def _rows_of_batch(repo: Repository, base: str, limit: int) -> list[Row]:
    names, _ = _list_all(
        repo, lambda state: _Page([e.key for e in repo.walk_records(state, beginning=base)])
    )
    return _rows(repo, names, limit, paused=False, counts={}).rows


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
    paused = False

    def look(state: State | None) -> _Page:
        nonlocal paused
        if state is not None:
            return list_state(state)
        paused = queue_paused(repo)
        return _Page([])

    looks: list[State | None] = [*State, None]
    pages = repo.tasks.map(look, looks, limit=len(looks))
    for state, page in zip(State, pages, strict=False):
        names.add(state, page)
    return names, paused


def _head_of(repo: Repository, state: State, start: str, limit: int) -> _Page:
    page_size = min(limit, LIST_LIMIT_MAX)
    entries = repo.walk_records(state, beginning=start, page_size=page_size)
    return _Page([entry.key for entry in itertools.islice(entries, limit)])


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


def _rows(
    repo: Repository, names: _Names, limit: int, paused: bool, counts: dict[State, int]
) -> Listing:
    chosen = sorted(names.states, key=lambda job: _place(job, names.states[job]))[:limit]
    rows = repo.tasks.map(
        lambda job_id: _row(repo, job_id, names.states[job_id]), chosen, limit=PARALLEL_REQUESTS
    )
    return Listing(
        rows=[row for row in rows if row is not None],
        more=len(names.states) > limit,
        queue_paused=paused,
        search_cut=names.cut,
        counts=counts,
    )


def _row(repo: Repository, job_id: str, states: list[State]) -> Row | None:
    try:
        record = _record_of(repo, job_id, states)
        if record is None:
            return None
        life = life_of(repo, record) if record.state is State.RUNNING else None
        pause = pause_of(repo, record)
    except (Unreadable, Ambiguous) as error:
        return Row(job_id, _shown(states), None, str(error))
    return Row(job_id, record.state, record, life=life, seal=_seal_of(repo, record), pause=pause)


def _seal_of(repo: Repository, record: Record) -> PolicySeal | None:
    """One read for a train job at rest. One that cannot be read costs no row."""
    if not record.spec.makes_policy or not record.state.terminal:
        return None
    try:
        return find_seal(repo, record.id, record.policy_revision)
    except Unreadable as error:
        repo.tell_unreadable(error)
        return None


def _record_of(repo: Repository, job_id: str, states: list[State]) -> Record | None:
    if len(states) == 1:
        stored = repo.find_record(states[0], job_id)
        if stored is not None:
            return stored.value
    found = find_job(repo, job_id)
    return found.record if found is not None else None


_FIRST_OF_A_BATCH = (State.RUNNING, State.FAILED, State.TIMED_OUT, State.QUEUED)


def _place(job_id: str, states: list[State]) -> tuple[str, int, str]:
    """The newest submission first; of a batch what matters most, which must not be beyond the
    limit: what runs, what went wrong, what waits, then the rest."""
    state = _shown(states)
    known = state in _FIRST_OF_A_BATCH
    rank = _FIRST_OF_A_BATCH.index(state) if known else len(_FIRST_OF_A_BATCH)
    return ids.base_of(job_id), rank, job_id


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
    cancel_asked_by: str | None = None
    """Of one that was cancelled while it ran."""
    pause_asked_by: str | None = None
    """Of one that was paused while it ran."""
    note: str | None = None
    """Why, in the words of who asked for that."""
    opening: OpenCell | None = None
    """By which it follows an epoch that ended at rest."""


@dataclass(frozen=True, slots=True)
class Story:
    """Everything that the store tells of one job."""

    record: Record
    life: Life | None
    """Of the present epoch, while it runs."""
    epochs: list[EpochStory]
    checkpoint: Checkpoint | None = None
    """The newest that can be read by who asks."""
    seal: PolicySeal | None = None
    """What a train job made that has ended."""
    pause: Pause | None = None
    """Of one that is paused."""


def story(repo: Repository, job_id: str) -> Story:
    """Raises `NotFound` for an unknown job, `Unreadable`."""
    found = find_job(repo, job_id)
    if found is None:
        deleted = was_deleted(repo, job_id)
        raise NotFound(job_id, "the job was deleted" if deleted else "there is no such job")
    record = found.record
    epochs = sorted(found.cells.claims | found.cells.ends | found.cells.opens | {record.epoch})
    return Story(
        record=record,
        life=life_of(repo, record) if record.state is State.RUNNING else None,
        epochs=repo.tasks.map(
            lambda epoch: _epoch_story(repo, found.cells, job_id, epoch),
            epochs,
            limit=PARALLEL_REQUESTS,
        ),
        checkpoint=_newest_checkpoint(repo, job_id),
        seal=_seal_of(repo, record),
        pause=pause_of(repo, record),
    )


def _newest_checkpoint(repo: Repository, job_id: str) -> Checkpoint | None:
    """A listing, and a read where there is one."""
    try:
        for key in newest_manifests(repo, job_id, limit=1):
            found = repo.find(Checkpoint, key)
            return found.value if found is not None else None
    except Unreadable as error:
        repo.tell_unreadable(error)
    except Denied:
        return None
    return None


def life_of(repo: Repository, record: Record) -> Life:
    """Of a job that runs. Two reads."""
    return _with_asks(repo, record, _own_heartbeat(repo, record))


def _own_heartbeat(repo: Repository, record: Record) -> Heartbeat | None:
    """The heartbeat, if it is one of the record's epoch. One read."""
    found = repo.find_heartbeat(record.id)
    return found.value if found is not None and found.value.epoch == record.epoch else None


def _with_asks(repo: Repository, record: Record, heartbeat: Heartbeat | None) -> Life:
    asks = repo.find_asks(record.id, record.epoch)
    if asks is None:
        return Life(heartbeat)
    asked = asks.value
    return Life(
        heartbeat,
        cancel_asked_by=asked.cancel_by if asked.cancel else None,
        cancel_asked_at=asked.cancel_at,
        cancel_grace_seconds=repo.deployment.cancel_grace_seconds,
        pause_asked_by=asked.pause_by if asked.pause else None,
        pause_asked_at=asked.pause_at,
        note=asked.note,
    )


def _epoch_story(repo: Repository, cells: Cells, job_id: str, epoch: int) -> EpochStory:
    claim = repo.find(ClaimCell, keys.claim_cell(job_id, epoch))
    end = repo.find_end(job_id, epoch)
    late = repo.find(LateResult, keys.late(job_id, epoch)) if end is not None else None
    verdict = end.ending.verdict if end is not None else None
    stopped = verdict in (Verdict.CANCELLED, Verdict.PAUSED)
    asks = repo.find_asks(job_id, epoch) if stopped else None
    asked = asks.value if asks is not None else None
    return EpochStory(
        epoch=epoch,
        claim=claim.value if claim else None,
        end=end,
        late=late.value if late else None,
        cancel_asked_by=asked.cancel_by if asked and verdict is Verdict.CANCELLED else None,
        pause_asked_by=asked.pause_by if asked and verdict is Verdict.PAUSED else None,
        note=asked.note if asked else None,
        opening=repo.open_cell(job_id, epoch) if epoch in cells.opens else None,
    )


@dataclass(frozen=True, slots=True)
class Matches:
    """Job ids, newest first; `cut` when there may be more that were not looked at or are left
    out."""

    job_ids: list[str]
    cut: bool
    states: dict[str, State] = field(default_factory=dict)


def near_matches(repo: Repository, text: str, *, limit: int) -> Matches:
    """The jobs whose ids contain `text`: what a part of an id, or an unknown one, may mean."""
    names, _ = _list_all(repo, lambda state: _search(repo, state, text.lower(), limit + 1))
    chosen = sorted(names.states)[:limit]
    states = {job_id: _shown(names.states[job_id]) for job_id in chosen}
    return Matches(chosen, names.cut or len(names.states) > limit, states)
