"""What is known of when a queued job could start, and of how long it will run: by run times that
were stated or measured. What is not known is said so, and is never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from stado.core.ids import milliseconds
from stado.core.makespan import earliest_start
from stado.core.order import needs_of, parse_entry
from stado.core.records import MILLISECONDS_MAX, Record
from stado.core.runtimes import RunTimes, takes_text
from stado.core.states import State
from stado.errors import Unreadable
from stado.jobs.assignments import held_by, plan_host, read_assignments
from stado.jobs.estimates import read_estimates
from stado.jobs.fitting import Cause, Gate, GateName, HostView
from stado.jobs.repository import PARALLEL_REQUESTS, Repository

RUNNING_READ_MAX = 200
"""Records of jobs that run on hosts without room; beyond them nothing is known."""

_SAME_DAY_MS = 20 * 3_600_000
"""For so long a time of day is enough to say when."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Of one queued job."""

    takes: str
    """A sentence: how long it runs, and who says so."""
    assigned_to: str | None = None
    """The host that a coordinator would give it to; None: all may take it."""
    starts_at: datetime | None = None
    starts: str | None = None
    """When a host should have room for it; None where it waits for something else."""


def forecast(
    repo: Repository,
    record: Record,
    hosts: Sequence[HostView],
    gates: Sequence[Gate],
    *,
    opens_at: Callable[[datetime], datetime | None],
) -> Forecast:
    """`opens_at`: from a moment to when the job may start from then on, by its windows.

    Two reads; where it waits for room alone one more for each job that runs on hosts that have
    none, of 200 at most."""
    times = RunTimes(read_estimates(repo))
    takes = takes_text(record.spec, times)
    known = Forecast(takes, assigned_to=_assigned_to(repo, record.id))
    closed = [gate.name for gate in gates if gate.wait is not None]
    if closed != [GateName.ROOM]:
        return known
    full = [view for view in hosts if view.cause is Cause.FULL]
    return _within_windows(_with_start(repo, known, record, full, times), opens_at, repo.now_ms())


def _within_windows(
    known: Forecast, opens_at: Callable[[datetime], datetime | None], now_ms: int
) -> Forecast:
    """Where no window is open when a host should have room, the job starts later."""
    if known.starts_at is None:
        return known
    at = opens_at(known.starts_at)
    if at == known.starts_at:
        return known
    if at is None:
        return replace(known, starts_at=None, starts="nobody can say: no window is open by then")
    starts = f"about {_moment(at, now_ms)}, when its next window opens: none is open earlier"
    return replace(known, starts_at=at, starts=starts)


def _moment(at: datetime, now_ms: int) -> str:
    day = "" if milliseconds(at) - now_ms < _SAME_DAY_MS else f"{at:%Y-%m-%d} "
    return f"{day}{at:%H:%M}Z"


def _assigned_to(repo: Repository, job_id: str) -> str | None:
    """By what has not expired."""
    found = read_assignments(repo)
    if found is None or found.expires_at <= repo.now():
        return None
    for host in found.hosts:
        entries = (parse_entry(job.entry) for job in host.jobs)
        if any(entry is not None and entry.job_id == job_id for entry in entries):
            return host.consumer
    return None


def _with_start(
    repo: Repository, known: Forecast, record: Record, full: Sequence[HostView], times: RunTimes
) -> Forecast:
    held = held_by(_running_on(repo, full))
    needs, now_ms = replace(needs_of(record.spec), deadline_ms=None), repo.now_ms()
    starts: list[tuple[int, str]] = []
    for view in full:
        name = view.capacity.consumer
        host = plan_host(view.sight, held[name], times)
        at_ms = earliest_start(needs, host, now_ms=now_ms)
        if at_ms is not None and at_ms <= MILLISECONDS_MAX:  # by whatever a record says
            starts.append((at_ms, name))
    if not starts:
        why = "the run time of what runs there is not known"
        return replace(known, starts=f"nobody can say when a host has room: {why}")
    at_ms, name = min(starts)
    if at_ms <= now_ms + 1000:
        late = "what runs there should have ended by now"
        return replace(known, starts=f"nobody can say when {name} has room: {late}")
    at = datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    return replace(known, starts_at=at, starts=f"about {_moment(at, now_ms)}, when {name} has room")


def _running_on(repo: Repository, full: Iterable[HostView]) -> list[Record]:
    job_ids = [job.job_id for view in full for job in view.capacity.jobs][:RUNNING_READ_MAX]

    def read(job_id: str) -> Record | None:
        try:
            found = repo.find_record(State.RUNNING, job_id)
        except Unreadable:
            return None
        return None if found is None else found.value

    found = repo.tasks.map(read, job_ids, limit=PARALLEL_REQUESTS)
    return [record for record in found if record is not None]


def with_forecast(gates: Sequence[Gate], known: Forecast) -> list[Gate]:
    """The same gates, of which the one of the room says when it should open, if that is known."""
    if known.starts_at is None:
        return list(gates)
    return [
        gate
        if gate.name is not GateName.ROOM or gate.wait is None
        else replace(gate, wait=replace(gate.wait, until=known.starts))
        for gate in gates
    ]
