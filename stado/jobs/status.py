"""What people look at: the row of a job in a list (`listings`), one submission, one job's story.

Nothing here decides anything. An object that cannot be read costs its own row, never the list.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import datetime

from stado.core import keys
from stado.core.pipelines import PipelineState, is_to_come, roll_up
from stado.core.records import (
    Checkpoint,
    ClaimCell,
    EndCell,
    Heartbeat,
    LateResult,
    LogAccount,
    OpenCell,
    PolicySeal,
    Record,
)
from stado.core.runtimes import RunTimes, takes_text
from stado.core.states import State, Verdict, projection_rank
from stado.errors import Ambiguous, Denied, NotFound, Unreadable
from stado.jobs.checkpoints import newest_manifests
from stado.jobs.estimates import read_estimates
from stado.jobs.finding import find_job, was_deleted
from stado.jobs.logs import find_log_account
from stado.jobs.policy_seals import find_seal
from stado.jobs.queue_index import queue_paused
from stado.jobs.repository import PARALLEL_REQUESTS, Cells, Repository
from stado.storage.port import LIST_LIMIT_MAX, Entry, Version

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
    terminate_asked: bool = False
    """Whether its machine is to be given back, too."""
    yield_asked_by: str | None = None
    """To be put back into the queue, for another job or since its host is closed."""
    yield_asked_at: datetime | None = None
    yield_note: str | None = None
    evict: bool = False
    """Whether it has to, whatever it says of yields."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Who had a job paused, when, and why."""

    by: str
    at: datetime
    note: str | None


def pause_of(repo: Repository, record: Record) -> Pause | None:
    """Of a job that is paused. One read; another of one that was queued then."""
    ending = record.ending
    if record.state is not State.PAUSED or ending is None:
        return None
    asks = repo.find_asks(record.id, record.epoch)
    if asks is None or not asks.value.pause:
        claim = repo.find(ClaimCell, keys.claim_cell(record.id, record.epoch))
        note = claim.value.note if claim is not None else None
        return Pause(ending.by, ending.ended_at, note)
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
    steps: Steps | None = None
    """Of a pipeline, in a list that has a row for it and not for each of its jobs."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a pipeline in a list, with the row of the job that it began with."""

    root: State
    states: list[State | None]
    """In the order in which they were declared; None: not launched."""
    rows: list[Row]
    """Of those whose jobs are there, in the same order."""
    parallel: bool
    held: frozenset[int] = frozenset()
    """The numbers of those that are not launched, though their turn has come."""

    @property
    def state(self) -> PipelineState:
        return roll_up(self.root, self.states, parallel=self.parallel, held=self.held)

    @property
    def is_to_come(self) -> bool:
        """Whether one should be there and is not."""
        return self.root is State.COMPLETED and is_to_come(
            self.states, parallel=self.parallel, held=self.held
        )

    @property
    def done(self) -> int:
        return sum(state is State.COMPLETED for state in self.states)


@dataclass(frozen=True, slots=True)
class Page:
    """Keys of one prefix."""

    keys: list[str]
    cut: bool = False
    """Whether a search gave up before it had seen all of them."""
    full: bool = False
    """Whether it has as many as were asked for: there may be more."""
    versions: dict[str, Version] = field(default_factory=dict)
    """By key, where the listing told them."""


@dataclass(slots=True)
class Names:
    """Which states the prefixes show for each job id."""

    states: dict[str, list[State]] = field(default_factory=dict)
    cut: bool = False
    """Whether some page is."""
    full: set[State] = field(default_factory=set)
    """Of which states there may be more."""
    versions: dict[str, Version] = field(default_factory=dict)
    """Of records, by key."""

    def add(self, state: State, page: Page) -> None:
        self.cut |= page.cut
        self.full |= {state} if page.full else set()
        self.versions |= page.versions
        for key in page.keys:
            self.states.setdefault(keys.job_of_record(key), []).append(state)

    def only(self, wanted: Collection[State]) -> Names:
        """Those that show one of these states; all when none is named."""
        if not wanted:
            return self
        kept = {job: states for job, states in self.states.items() if shown_state(states) in wanted}
        return Names(kept, self.cut, self.full & set(wanted), self.versions)


def states_of(repo: Repository, base_id: str) -> dict[str, State]:
    """The state of each job of a submission. Seven listings (a page for each 1,000 jobs).

    A job that moves between two listings may be missing: look again."""
    names, _ = list_all(
        repo, lambda state: Page([e.key for e in repo.walk_records(state, beginning=base_id)])
    )
    return {job_id: shown_state(states) for job_id, states in names.states.items()}


def count_states(states: dict[str, State]) -> dict[State, int]:
    return dict(Counter(states.values()))


def list_all(repo: Repository, list_state: Callable[[State], Page]) -> tuple[Names, bool]:
    """The names under every prefix, and whether the queue is paused."""
    names = Names()
    paused = False

    def look(state: State | None) -> Page:
        nonlocal paused
        if state is not None:
            return list_state(state)
        paused = queue_paused(repo)
        return Page([])

    looks: list[State | None] = [*State, None]
    pages = repo.tasks.map(look, looks, limit=len(looks))
    for state, page in zip(State, pages, strict=False):
        names.add(state, page)
    return names, paused


def head_of(repo: Repository, state: State, start: str, limit: int) -> Page:
    page_size = min(limit, LIST_LIMIT_MAX)
    entries = repo.walk_records(state, beginning=start, page_size=page_size)
    return _page(list(itertools.islice(entries, limit)), full_at=limit)


def _page(entries: list[Entry], *, full_at: int) -> Page:
    return Page(
        [entry.key for entry in entries],
        full=len(entries) == full_at,
        versions={entry.key: entry.version for entry in entries},
    )


def search(repo: Repository, state: State, pattern: str, limit: int) -> Page:
    """The first keys whose job id contains the pattern."""
    found: list[Entry] = []
    for seen, entry in enumerate(repo.walk_records(state)):
        if seen >= SEARCH_PAGES_MAX * LIST_LIMIT_MAX:
            return replace(_page(found, full_at=limit), full=False, cut=True)
        if pattern in keys.job_of_record(entry.key):
            found.append(entry)
        if len(found) == limit:
            break
    return _page(found, full_at=limit)


def row_of(repo: Repository, job_id: str, states: list[State]) -> Row | None:
    try:
        record = _record_of(repo, job_id, states)
        if record is None:
            return None
        life = life_of(repo, record) if record.state is State.RUNNING else None
        pause = pause_of(repo, record)
    except (Unreadable, Ambiguous) as error:
        return Row(job_id, shown_state(states), None, str(error))
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


def shown_state(states: list[State]) -> State:
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
    terminate_asked: bool = False
    """Whether its machine was to be given back, too."""
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
    run_time: str | None = None
    """A sentence, of one that names a model: how long runs of it took."""
    log: LogAccount | None = None
    """What became of what its last epoch printed, once it is at rest."""


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
        run_time=_run_time_of(repo, record),
        log=_log_of(repo, record),
    )


def _log_of(repo: Repository, record: Record) -> LogAccount | None:
    """One read for a job at rest whose command was started."""
    if not record.state.at_rest or record.ending is None or record.ending.started_at is None:
        return None
    return find_log_account(repo, record.id, record.epoch)


def _run_time_of(repo: Repository, record: Record) -> str | None:
    """One read for a job that names a model."""
    if record.spec.model is None:
        return None
    return takes_text(record.spec, RunTimes(read_estimates(repo)))


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
        terminate_asked=asked.terminate,
        yield_asked_by=asked.give_way_by if asked.give_way else None,
        yield_asked_at=asked.give_way_at,
        yield_note=asked.give_way_note,
        evict=asked.evict,
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
        terminate_asked=asked is not None and asked.terminate,
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
    names, _ = list_all(repo, lambda state: search(repo, state, text.lower(), limit + 1))
    chosen = sorted(names.states)[:limit]
    states = {job_id: shown_state(names.states[job_id]) for job_id in chosen}
    return Matches(chosen, names.cut or len(names.states) > limit, states)
