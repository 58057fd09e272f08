"""Lists of jobs: the newest submission first, of a batch what matters most.

A list reads as many records as it shows at most: those of the newest jobs at rest it finds in one
object, where a coordinator keeps them. Steps of a pipeline
were submitted after the job that it began with and therefore come before it; where a list has one
row for all of them they are kept until that job is met.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from stado.core import ids, keys
from stado.core.phases import JobPhase, phase_of
from stado.core.pipelines import root_of_step
from stado.core.records import Record
from stado.core.states import JobType, State
from stado.jobs.pipeline_sight import PipelineSight, steps_of
from stado.jobs.queue_index import queue_paused
from stado.jobs.repository import PARALLEL_REQUESTS, Repository
from stado.jobs.rest_rows import RestRows
from stado.jobs.status import (
    COUNTED_MAX,
    Names,
    Page,
    Row,
    Steps,
    head_of,
    list_all,
    row_of,
    search,
    shown_state,
)

LOOKED_AT_MAX = 10_000
"""Jobs that a list reads at most: a history has no end."""

_READ_BY_THEMSELVES_MAX = 2
"""Jobs at rest; of more the object is read that has the newest of them together."""

_FIRST_OF_A_BATCH = (State.RUNNING, State.FAILED, State.TIMED_OUT, State.QUEUED)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which jobs belong in a list. Nothing stated: all."""

    states: Collection[State] = ()
    phases: Collection[JobPhase] = ()
    """Of jobs that run; besides those that are in one of the states."""
    types: Collection[JobType] = ()
    tags: Collection[str] = ()
    """A job has to have each of them."""
    workloads: bool = False
    """Only jobs that were started as sessions of a kind of workload."""

    @property
    def by_record(self) -> bool:
        """Whether one has to read a job to know."""
        return bool(self.types or self.tags or self.phases or self.workloads)

    @property
    def prefixes(self) -> set[State]:
        """Where they are; empty: anywhere."""
        return {*self.states, *((State.RUNNING,) if self.phases else ())}

    def accepts(self, row: Row) -> bool:
        if self.prefixes and row.state not in self.states and _phase(row) not in self.phases:
            return False
        if row.record is None:
            return not (self.types or self.tags or self.workloads)
        spec = row.record.spec
        if self.workloads and spec.workload_kind is None:
            return False
        return (not self.types or spec.type in self.types) and set(self.tags) <= set(spec.tags)


ALL_JOBS = Wanted()


def _phase(row: Row) -> JobPhase | None:
    if row.record is None:
        return None
    beat = row.life.heartbeat if row.life is not None else None
    started_at = beat.started_at if beat is not None else None
    return phase_of(row.record, heard=beat is not None, started_at=started_at)


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of jobs: the newest submission first, of a batch what runs first."""

    rows: list[Row]
    more: bool
    """Whether there are more jobs than are in the rows."""
    queue_paused: bool
    total: int
    """Jobs that would be in it without a limit, as far as they were counted."""
    total_at_least: bool
    """Whether there may be more of them."""
    search_cut: bool = False
    """Whether it gave up before it had seen every job."""
    counts: dict[State, int] = field(default_factory=dict)
    """Jobs by state, at most `COUNTED_MAX` of each; empty for a search."""

    @property
    def queued(self) -> list[Record]:
        """The records of those that wait."""
        records = [row.record for row in self.jobs if row.state is State.QUEUED]
        return [record for record in records if record is not None]

    @property
    def jobs(self) -> list[Row]:
        """A row for each job, steps below the row of their pipeline."""
        return [
            job
            for row in self.rows
            for job in (row, *(row.steps.rows if row.steps is not None else ()))
        ]


def newest(
    repo: Repository,
    *,
    limit: int,
    wanted: Wanted = ALL_JOBS,
    rolled: bool = False,
    without: Collection[str] = (),
) -> Listing:
    """The newest jobs. `rolled`: one row a pipeline. Requests: 8 listings, a read for the newest
    jobs at rest together, one for each job in the list that is not among them, and two more if it
    runs, whatever the history; more listings beyond a thousand rows.
    With `wanted.by_record` a read for each job that is looked at; those that are known not to be
    wanted can be named (`without`)."""
    deep = LOOKED_AT_MAX if wanted.by_record else max(COUNTED_MAX, limit + 1)
    names, paused = list_all(repo, lambda state: head_of(repo, state, "", deep))
    counted = Counter(shown_state(found) for found in names.states.values())
    counts = {state: min(count, COUNTED_MAX) for state, count in counted.items()}
    chosen = names.only(wanted.prefixes)
    order = [job_id for job_id in _in_order(chosen) if job_id not in without]
    # Beyond so many the jobs of a prefix whose listing was cut would be missing between others.
    reliable = order[:deep] if chosen.full else order
    gathered = _gather(repo, reliable, _named(repo, chosen), limit, wanted, rolled)
    return _listing(gathered, len(order), paused, cut=bool(chosen.full), counts=counts)


def matching(
    repo: Repository, pattern: str, *, limit: int, wanted: Wanted = ALL_JOBS, rolled: bool = False
) -> Listing:
    """The newest jobs whose id (or batch id) contains `pattern`. `rolled`: as of `newest`."""
    submission = ids.BASE_PATTERN.match(pattern) is not None
    most = LOOKED_AT_MAX if wanted.by_record else max(COUNTED_MAX * submission, limit + 1)
    look = head_of if submission else search
    names, paused = list_all(repo, lambda state: look(repo, state, pattern, most))
    chosen = names.only(wanted.prefixes)
    order = _in_order(chosen)
    gathered = _gather(repo, order, _named(repo, chosen), limit, wanted, rolled)
    listing = _listing(gathered, len(order), paused, cut=bool(chosen.full))
    return replace(listing, search_cut=listing.search_cut or names.cut)


def of_submissions(
    repo: Repository,
    bases: Iterable[str],
    *,
    limit: int,
    wanted: Wanted = ALL_JOBS,
    rolled: bool = False,
) -> Listing:
    """The jobs of these submissions in their order. `rolled`: as of `newest`. Requests: some two a
    job; ten for a batch, and one or two for each of its jobs that are in the list."""
    filtered = wanted.by_record or bool(wanted.states)
    deep = LOOKED_AT_MAX if filtered else max(COUNTED_MAX, limit + 1)
    looked_at = list(itertools.islice(bases, deep))
    most = LOOKED_AT_MAX if wanted.by_record else limit + 1

    def read(some: Sequence[str]) -> _Read:
        return _read_submissions(repo, some, wanted.prefixes, most)

    gathered = _gather(repo, looked_at, read, limit, wanted, rolled)
    known = gathered.found + gathered.unread + (0 if filtered else gathered.left)
    cut = bool(gathered.left) or len(looked_at) == deep
    return _listing(gathered, known, queue_paused(repo), cut=cut)


# --- reading until there is enough --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Read:
    """Rows, and how many jobs that belong between them were not read."""

    rows: list[Row]
    unread: int = 0


@dataclass(frozen=True, slots=True)
class _Gathered:
    """What came of going through names, of which `left` were not looked at."""

    rows: list[Row]
    more: bool
    left: int
    found: int
    """Jobs that belong in the list, of those that were read."""
    unread: int
    by_record: bool


def _gather(
    repo: Repository,
    names: Sequence[str],
    read: Callable[[Sequence[str]], _Read],
    limit: int,
    wanted: Wanted,
    rolled: bool,
) -> _Gathered:
    """Goes through names until there are as many rows as are wanted."""
    rows: list[Row] = []
    steps: dict[str, list[Row]] = {}
    looked = unread = found = 0
    while looked < len(names) and len(rows) < limit:
        missing = limit - len(rows)
        count = missing if not looked else max(missing, PARALLEL_REQUESTS)
        got = read(names[looked : looked + count])
        looked, unread = min(looked + count, len(names)), unread + got.unread
        accepted = [row for row in got.rows if wanted.accepts(row)]
        found += len(accepted)
        for row in accepted:
            root = _root_of(row) if rolled else None
            rows.append(row) if root is None else steps.setdefault(root, []).append(row)
    left = len(names) - looked
    if rolled:
        rows = _with_steps(repo, rows, limit, steps, all_seen=not left)
    more = bool(left) or len(rows) > limit
    return _Gathered(rows[:limit], more, left, found, unread, wanted.by_record)


def _listing(
    gathered: _Gathered,
    known: int,
    paused: bool,
    *,
    cut: bool,
    counts: dict[State, int] | None = None,
) -> Listing:
    """`known`: jobs that belong in it by their names; `cut`: there may be others."""
    total = gathered.found if gathered.by_record else known
    open_end = cut or (gathered.by_record and gathered.left > 0)
    return Listing(
        rows=gathered.rows,
        more=gathered.more or gathered.unread > 0 or cut,
        queue_paused=paused,
        total=total,
        total_at_least=open_end,
        counts=counts or {},
    )


def _named(repo: Repository, names: Names) -> Callable[[Sequence[str]], _Read]:
    kept = RestRows(repo)

    def read(job_ids: Sequence[str]) -> _Read:
        at_rest = [job_id for job_id in job_ids if _has_ended(names.states[job_id])]
        known: dict[str, Row] = {}
        if len(at_rest) > _READ_BY_THEMSELVES_MAX:
            found = {job_id: _kept_row(kept, names, job_id) for job_id in at_rest}
            known = {job_id: row for job_id, row in found.items() if row is not None}
        others = [job_id for job_id in job_ids if job_id not in known]
        rows = repo.tasks.map(
            lambda job_id: row_of(repo, job_id, names.states[job_id]),
            others,
            limit=PARALLEL_REQUESTS,
        )
        read = dict(zip(others, rows, strict=True)) | known
        return _Read([row for job_id in job_ids if (row := read[job_id]) is not None])

    return read


def _has_ended(states: list[State]) -> bool:
    return len(states) == 1 and states[0].terminal


def _kept_row(kept: RestRows, names: Names, job_id: str) -> Row | None:
    """None: it has to be read by itself."""
    (state,) = names.states[job_id]
    key = keys.record(state, job_id)
    ended = kept.find(key, names.versions.get(key))
    return None if ended is None else Row(job_id, state, ended.record, seal=ended.seal)


def _read_submissions(
    repo: Repository, bases: Sequence[str], states: Collection[State], most: int
) -> _Read:
    alone = repo.tasks.map(lambda base: row_of(repo, base, []), bases, limit=PARALLEL_REQUESTS)
    reads = [
        _Read([row]) if row is not None else _read_batch(repo, base, states, most)
        for base, row in zip(bases, alone, strict=True)
    ]
    rows = [row for read in reads for row in read.rows]
    return _Read(rows, sum(read.unread for read in reads))


def _read_batch(repo: Repository, base: str, states: Collection[State], most: int) -> _Read:
    found, _ = list_all(
        repo, lambda state: Page([e.key for e in repo.walk_records(state, beginning=base)])
    )
    names = found.only(states)
    order = _in_order(names)
    read = _named(repo, names)(order[:most])
    return _Read(read.rows, len(order[most:]))


def _in_order(names: Names) -> list[str]:
    return sorted(names.states, key=lambda job_id: _place(job_id, names.states[job_id]))


def _place(job_id: str, states: list[State]) -> tuple[str, int, str]:
    """The newest submission first; of a batch what matters most, which must not be beyond the
    limit: what runs, what went wrong, what waits, then the rest."""
    state = shown_state(states)
    known = state in _FIRST_OF_A_BATCH
    rank = _FIRST_OF_A_BATCH.index(state) if known else len(_FIRST_OF_A_BATCH)
    return ids.base_of(job_id), rank, job_id


# --- pipelines ----------------------------------------------------------------------------


def _root_of(row: Row) -> str | None:
    """Of a step: the job that its pipeline began with."""
    return root_of_step(row.record) if row.record is not None else None


def _with_steps(
    repo: Repository,
    rows: list[Row],
    limit: int,
    steps: dict[str, list[Row]],
    *,
    all_seen: bool,
) -> list[Row]:
    """The rows, of which those of pipelines have their steps. A step whose root is not in a list
    that has all jobs has a row of its own."""
    shown = [_rolled_up(row, steps.pop(row.job_id, [])) for row in rows[:limit]]
    unclear = [row for row in shown if _misses_a_step(row)]
    looked_up = repo.tasks.map(lambda row: _looked_up(repo, row), unclear, limit=PARALLEL_REQUESTS)
    clear = {row.job_id: row for row in looked_up}
    told = [clear.get(row.job_id, row) for row in shown] + rows[limit:]
    alone = [row for some in steps.values() for row in some] if all_seen else []
    return sorted([*told, *alone], key=lambda row: ids.base_of(row.job_id)) if alone else told


def _rolled_up(row: Row, found: list[Row]) -> Row:
    record = row.record
    if record is None or not record.spec.then or record.spec.step_of is not None:
        return row
    rows = {_number_of(step): step for step in found}
    states = [
        rows[number].state if number in rows else None
        for number in range(1, len(record.spec.then) + 1)
    ]
    ordered = [rows[number] for number in sorted(rows)]
    return replace(row, steps=Steps(record.state, states, ordered, record.spec.then_parallel))


def _misses_a_step(row: Row) -> bool:
    """Whether one should be there and was not met: it was submitted by a clock that is behind, has
    been deleted, or is not among what is listed."""
    return row.steps is not None and row.steps.is_to_come


def _looked_up(repo: Repository, row: Row) -> Row:
    """The steps by their runs: some five requests each."""
    assert row.record is not None  # it told of steps
    seen = PipelineSight(row.record, list(steps_of(repo, row.record)))
    rows = [row_of(repo, one.job_id, []) for one in seen.steps if one.job_id is not None]
    found = [step for step in rows if step is not None]
    states = [one.state for one in seen.steps]
    steps = Steps(
        row.record.state, states, found, row.record.spec.then_parallel, frozenset(seen.held)
    )
    return replace(row, steps=steps)


def _number_of(row: Row) -> int:
    assert row.record is not None  # it told that it is a step
    assert row.record.spec.step_of is not None
    return row.record.spec.step_of.number
