"""Why a queued job has not started: the gates in order, and what would open the first closed one.

Nothing here decides: the same predicate lets jobs in (`stado.core.admission`), on what the agents
last said of themselves.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from stado.core.admission import too_late
from stado.core.durations import duration_text
from stado.core.ids import milliseconds
from stado.core.order import Needs, entry_name, needs_of, needs_of_record
from stado.core.records import Awaited, Record
from stado.core.spec import After, Spec
from stado.core.states import AfterWhen, State
from stado.jobs.budget_sight import WAITING_BUDGET
from stado.jobs.finding import find_job
from stado.jobs.fitting import (
    Cause,
    Demand,
    Gate,
    GateName,
    HostView,
    Wait,
    listed,
    views,
    worker_gates,
)
from stado.jobs.forecast import Forecast, forecast, with_forecast
from stado.jobs.health import AgentSight, Fleet
from stado.jobs.limit_sight import LimitSight
from stado.jobs.queue_index import Page, read_page
from stado.jobs.repository import Repository
from stado.jobs.window_sight import WAITING_WINDOW


@dataclass(frozen=True, slots=True)
class Ahead:
    """How many jobs stand before one in the order of the queue."""

    count: int
    at_least: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that there is to say of a job's wait."""

    wait: Wait
    gates: list[Gate]
    """In order. What a closed one makes meaningless is left out."""
    hosts: list[HostView]
    ahead: Ahead | None
    """None when the job has no place in the order (its gate says so)."""
    forecast: Forecast | None = None
    """None where nobody will run it."""
    settings_changed_at: datetime | None = None
    """When what the deployment decides was changed last, as workers may not know yet."""


def why_queued(
    repo: Repository,
    spec: Spec,
    job_id: str | None = None,
    *,
    user: str | None = None,
    limits: LimitSight | None = None,
) -> Wait:
    """Of a queued job with this spec; with its id, jobs that wait before it are seen, too; with who
    submitted it, the limit of that user. Two listings and a read an agent, a read of the settings,
    and a listing for each limit that the job falls under."""
    page = read_page(repo)
    if page.paused:
        return PAUSED
    fleet = Fleet(repo)
    demand = Demand(needs_of(spec), spec, job_id)
    hosts = views(demand.needs, fleet.look(), job_id=job_id)
    now_ms = milliseconds(repo.now())
    entry = next((entry for entry in page.entries if entry.job_id == job_id), None)
    if entry is not None and entry.waits:
        return _wait_for_jobs(spec.after)
    if entry is not None and spec.after and entry.doomed:
        return _DOOMED
    limits = limits or LimitSight(repo)
    limit = limits.wait_of(spec, user=user, job_id=job_id)
    gates = [
        *_time_gate(entry.due_ms if entry is not None else None, now_ms, spec),
        *_needs_gates(demand, hosts, now_ms, len(fleet.unreadable), limit),
    ]
    held_up = limits.held_up(repo.now())
    ahead = (
        _startable_ahead(page, entry.name, hosts, now_ms, held_up) if entry is not None else None
    )
    return _first_closed(gates, hosts, ahead)


def why_not_let_in(demand: Demand, seen: Sequence[AgentSight], now_ms: int, *, unread: int) -> Wait:
    """What keeps a job that asks for this from starting while the queue is open. `unread`: reports
    of agents that could not be read."""
    hosts = views(demand.needs, seen, job_id=demand.job_id)
    return _first_closed(_needs_gates(demand, hosts, now_ms, unread), hosts, None)


def waits_of(
    records: Iterable[Record],
    seen: Sequence[AgentSight],
    now_ms: int,
    *,
    paused: bool,
    unread: int,
    limits: LimitSight,
) -> dict[str, Wait]:
    """What keeps each of these queued jobs from starting, by what is known: their records, the
    reports of agents, and the limits that they fall under (a read, and a listing a limit).
    `paused`: the queue is."""
    return {
        record.id: PAUSED if paused else _wait_of(record, seen, now_ms, unread, limits)
        for record in records
    }


def _wait_of(
    record: Record, seen: Sequence[AgentSight], now_ms: int, unread: int, limits: LimitSight
) -> Wait:
    if record.doomed_by is not None:
        return _doom(record.doomed_by)
    if record.awaits:
        return _wait_for_jobs(record.awaits)
    timed = _time_gate(record.due_ms, now_ms, record.spec)
    closed = next((gate.wait for gate in timed if gate.wait), None)
    if closed is not None:
        return closed
    demand = _demand_of(record)
    hosts = views(demand.needs, seen, job_id=demand.job_id)
    limit = limits.wait_of(record.spec, user=record.submitter, job_id=record.id)
    gates = _needs_gates(demand, hosts, now_ms, unread, limit)
    return _first_closed(gates, hosts, None)


def _demand_of(record: Record) -> Demand:
    return Demand(needs_of_record(record), record.spec, record.id)


def explain(repo: Repository, record: Record) -> Explanation:
    """Of a queued job. Two listings (a thousand names of the queue) and a read an agent, a read of
    the settings, a listing for each limit that the job falls under, and what its forecast costs."""
    demand = _demand_of(record)
    page = read_page(repo)
    fleet = Fleet(repo)
    hosts = views(demand.needs, fleet.look(), job_id=demand.job_id)
    ahead = _ahead(page, entry_name(record))
    now_ms = milliseconds(repo.now())
    if record.doomed_by is not None:
        wait = _doom(record.doomed_by)
        return Explanation(wait, [Gate(GateName.JOBS, wait.text, wait)], hosts, ahead)
    deadline, *rest = _needs_gates(demand, hosts, now_ms, len(fleet.unreadable))
    place = [_PLACE_MISSING] if ahead is None else []
    others = [*_jobs_gate(repo, record), *_time_gate(record.due_ms, now_ms, record.spec)]
    sight = LimitSight(repo)
    limits = list(sight.gates(record))
    gates = [_queue_gate(page.paused), deadline, *place, *others, *limits, *rest]
    known = forecast(
        repo,
        record,
        hosts,
        gates,
        opens_at=lambda at: sight.opens_at(record.spec, record.submitter, at),
    )
    gates = with_forecast(gates, known)
    held_up = sight.held_up(repo.now())
    startable = _startable_ahead(page, entry_name(record), hosts, now_ms, held_up)
    wait = _first_closed(gates, hosts, startable)
    changed_at = sight.settings.changed_at
    return Explanation(wait, gates, hosts, ahead, known, changed_at)


def hopeless(repo: Repository) -> dict[Wait, list[str]]:
    """Of the head of the queue (a thousand jobs), those that no worker which is there will start
    as things are: why, to their ids. Two listings, a read of the settings and one an agent."""
    fleet = Fleet(repo)
    seen, now_ms = fleet.look(), milliseconds(repo.now())
    unread = len(fleet.unreadable)
    found: dict[Wait, list[str]] = {}
    if not any(sight.alive for sight in seen):
        return found
    waits: dict[Needs, Wait] = {}
    limits = LimitSight(repo)
    for entry in read_page(repo).entries:
        if entry.doomed:  # it is ended by whoever meets it, and no worker is missing
            continue
        if entry.needs not in waits:
            let_in = why_not_let_in(Demand(entry.needs), seen, now_ms, unread=unread)
            waits[entry.needs] = limits.too_many_cards(entry.needs) or let_in
        wait = waits[entry.needs]
        if wait.until is None or wait.code in HOPELESS:
            found.setdefault(wait, []).append(entry.job_id)
    return found


# --- the gates ----------------------------------------------------------------------------

PAUSED = Wait(
    "queue_paused",
    "the queue is paused",
    "`stado queue resume` lets it go on",
    "when the queue is resumed",
)
_PLACE_MISSING = Gate(
    GateName.PLACE,
    "it has no place in the order of the queue",
    Wait(
        "place_missing",
        "it has no place in the order of the queue yet",
        "a coordinator gives it one with its next look: `stado up`, or `stado coordinator run`",
        "when its place in the queue is repaired",
    ),
)
_WAITS_FOR_JOBS = Wait(
    "waiting_for_jobs",
    "it waits for other jobs to end",
    until="when the jobs it waits for have ended",
)
_DOOMED = Wait(
    "upstream_failed",
    "it will not run: a job that it was to follow did not end as it had to",
)
STARTING = "starting"
NOT_BEFORE = "not_before"
HOPELESS = (
    "no_eligible_worker",
    "pinned_host_absent",
    "provider_fenced",
    "boot_disk_not_stated",
    "over_cost_cap",
)
"""Of what no worker that is there will start, as things are."""
RETRY_COOLDOWN = "retry_cooldown"


def _first_closed(gates: Sequence[Gate], hosts: Sequence[HostView], ahead: Ahead | None) -> Wait:
    closed = next((gate.wait for gate in gates if gate.wait is not None), None)
    return _starting(hosts, ahead) if closed is None else closed


def _starting(hosts: Sequence[HostView], ahead: Ahead | None) -> Wait:
    """No more is promised than was reported: what an agent last said may be over."""
    free = [view.sight for view in hosts if view.cause is Cause.NONE]
    sight = min(free, key=lambda one: one.age_seconds)
    name, seconds = sight.capacity.consumer, round(sight.age_seconds)
    if sight.late:
        unheard = f"was not heard for {seconds} s"
        text = f"{name} had room for it, but {unheard}: it starts once a worker is heard"
        until = f"once a worker is heard: {name} had room, but {unheard}"
        return Wait(STARTING, text, until=until)
    room = f"{name} has room{f', by its report of {seconds} s ago' if seconds else ''}"
    if ahead is None or not ahead.count:
        text = f"{room}: it should start in a moment"
        return Wait(STARTING, text, until=f"in a moment: {room}", certain=False)
    jobs = "1 job is" if ahead.count == 1 else f"{ahead.count:,} jobs are"
    before = f"{'at least ' if ahead.at_least else ''}{jobs} ahead in the queue"
    return Wait(STARTING, f"{room}, but {before}", until=f"in turn: {before}")


def _queue_gate(paused: bool) -> Gate:
    if paused:
        return Gate(GateName.QUEUE, PAUSED.text, PAUSED)
    return Gate(GateName.QUEUE, "the queue is open")


def _jobs_gate(repo: Repository, record: Record) -> Iterator[Gate]:
    """Of a job that waits for others to end. A listing and two reads for each that it names."""
    if not record.spec.after:
        return
    waits = record.awaits
    if not waits:
        yield Gate(GateName.JOBS, "the jobs that it waited for have ended")
        return
    states = [_state_word(repo, one.job_id) for one in waits]
    names = [f"job {one.job_id} ({state})" for one, state in zip(waits, states, strict=True)]
    hows = [f"{name} to {_ENDS_AS[one.when]}" for name, one in zip(names, waits, strict=True)]
    text = f"it waits for {listed(hows)}"
    paused = [one.job_id for one, state in zip(waits, states, strict=True) if state == _PAUSED]
    remedy = f"`stado job resume {paused[0]}` lets that job go on" if paused else None
    yield Gate(GateName.JOBS, text, replace(_WAITS_FOR_JOBS, text=text, remedy=remedy))


_PAUSED = State.PAUSED.value
_ENDS_AS = {AfterWhen.OK: "complete", AfterWhen.ANY: "end", AfterWhen.FAIL: "fail"}


def _state_word(repo: Repository, job_id: str) -> str:
    found = find_job(repo, job_id)
    return "deleted" if found is None else found.state.value


def _wait_for_jobs(after: Sequence[After]) -> Wait:
    if len(after) != 1:
        return _WAITS_FOR_JOBS
    text = f"it waits for job {after[0].job_id} to {_ENDS_AS[after[0].when]}"
    return replace(_WAITS_FOR_JOBS, text=text)


def _doom(end: Awaited) -> Wait:
    why = f"job {end.job_id}, which it was to follow, ended as {end.state}"
    return replace(_DOOMED, text=f"it will not run: {why}")


def _time_gate(due_ms: int | None, now_ms: int, spec: Spec) -> Iterator[Gate]:
    """Of a job that is to start later, or failed and is tried again after a while."""
    if due_ms is None:
        return
    as_stated = spec.not_before is not None and due_ms == milliseconds(spec.not_before)
    if now_ms >= due_ms:
        been = "its time has come" if as_stated else "it has waited long enough to be tried again"
        yield Gate(GateName.TIME, been)
        return
    if as_stated:
        moment = f"{spec.not_before:%Y-%m-%d %H:%M:%S}Z"
        text = f"it is not to start before {moment}"
        yield Gate(GateName.TIME, text, Wait(NOT_BEFORE, text, until=f"at {moment}, as was asked"))
        return
    left = duration_text(math.ceil((due_ms - now_ms) / 1000))
    text = f"it failed, and is tried again in {left}"
    wait = Wait(RETRY_COOLDOWN, text, until=f"in {left}: it failed, and is tried again then")
    yield Gate(GateName.TIME, text, wait)


def _needs_gates(
    demand: Demand,
    hosts: Sequence[HostView],
    now_ms: int,
    unread: int,
    limit: Wait | None = None,
) -> list[Gate]:
    """The deadline's gate, that of a limit that is full, a budget that is spent or a window that is
    closed, then those of the workers up to the first that is closed."""
    gates = [_deadline_gate(demand.needs, now_ms)]
    if limit is not None:
        name = _GATES.get(limit.code, GateName.QUOTA)
        gates.append(Gate(name, limit.text, limit))
    for gate in worker_gates(demand, hosts, unread):
        gates.append(gate)
        if gate.wait is not None:
            break
    return gates


_GATES = {WAITING_WINDOW: GateName.WINDOW, WAITING_BUDGET: GateName.BUDGET}


def _deadline_gate(needs: Needs, now_ms: int) -> Gate:
    refusal = too_late(needs, now_ms)
    if refusal is None:
        stated = needs.deadline_ms is not None
        return Gate(
            GateName.DEADLINE, "its deadline has not passed" if stated else "it has no deadline"
        )
    wait = Wait(refusal.code, refusal.text, "submit it again with more time")
    return Gate(GateName.DEADLINE, "its deadline has passed", wait)


def _ahead(page: Page, name: str) -> Ahead | None:
    names = [entry.name for entry in page.entries]
    place = bisect.bisect_left(names, name)
    if place < len(names) and names[place] == name:
        return Ahead(place, at_least=False)
    if place == len(names) and page.next_after is not None:
        return Ahead(place, at_least=True)
    return None


def _startable_ahead(
    page: Page,
    name: str,
    hosts: Sequence[HostView],
    now_ms: int,
    held_up: Callable[[Needs], bool],
) -> Ahead | None:
    """Those of them that could be started before it: some worker that is there is for them, and the
    deployment lets them start now, as far as their entries show."""
    ahead = _ahead(page, name)
    if ahead is None:
        return None
    seen = [view.sight for view in hosts]
    able: dict[Needs, bool] = {}
    count = 0
    for entry in page.entries[: ahead.count]:
        if entry.needs not in able:
            causes = {view.cause for view in views(entry.needs, seen)}
            for_some = bool(causes & {Cause.FULL, Cause.KEPT, Cause.NONE})
            able[entry.needs] = for_some and not held_up(entry.needs)
        count += entry.is_due(now_ms) and able[entry.needs]
    return replace(ahead, count=count)
