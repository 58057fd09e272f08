"""Why a queued job has not started: the gates in order, and what would open the first closed one.

Nothing here decides: the same predicate lets jobs in (`stado.core.admission`), on what the agents
last said of themselves.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from stado.core.admission import Offer, admit
from stado.core.durations import duration_text
from stado.core.ids import milliseconds
from stado.core.order import Needs, entry_name, needs_of, needs_of_record
from stado.core.records import Awaited, Capacity, Record
from stado.core.spec import After, Spec
from stado.core.states import AfterWhen, State
from stado.jobs.finding import find_job
from stado.jobs.health import AgentSight, AgentState, Fleet
from stado.jobs.queue_index import Page, read_page
from stado.jobs.repository import Repository

_NAMED_MAX = 3
"""Workers, or hindrances, that a sentence names before it says how many more there are."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a job waits. `code` as in `Refusal`; `remedy` None: it needs none but time."""

    code: str
    text: str
    remedy: str | None = None
    until: str | None = None
    """What the job starts upon: `when a worker has room`. None: it never does."""
    hindered: bool = False
    """Whether workers that are hindered would take the job: what mends them lets it start."""


class GateName(StrEnum):
    """What a queued job has to pass, in this order."""

    QUEUE = "queue"
    DEADLINE = "deadline"
    JOBS = "jobs"
    TIME = "time"
    PLACE = "place"
    WORKERS = "workers"
    IMAGE = "image"
    SIZE = "size"
    READY = "ready"
    ROOM = "room"


@dataclass(frozen=True, slots=True)
class Gate:
    """What stands between a job and its start. `wait` is there when it is closed."""

    name: GateName
    text: str
    wait: Wait | None = None


class Cause(StrEnum):
    """Why a host does not take a job now."""

    STOPPED = "stopped"
    STALE = "stale"
    NO_IMAGES = "runs_no_images"
    TOO_SMALL = "too_small"
    DRAINING = "draining"
    HINDERED = "hindered"
    FULL = "full"
    NONE = "has_room"


@dataclass(frozen=True, slots=True)
class HostView:
    """An agent, and what it is to one job."""

    sight: AgentSight
    cause: Cause

    @property
    def capacity(self) -> Capacity:
        return self.sight.capacity

    @property
    def cause_code(self) -> str:
        """The cause; of a hindered agent the code of what hinders it."""
        hindrance = self.capacity.hindrance
        return (
            self.cause if hindrance is None or self.cause is not Cause.HINDERED else hindrance.code
        )


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


def why_queued(repo: Repository, spec: Spec, job_id: str | None = None) -> Wait:
    """Of a queued job with this spec; with its id, jobs that wait before it are seen, too. Two
    listings and a read an agent."""
    page = read_page(repo)
    if page.paused:
        return PAUSED
    fleet = Fleet(repo)
    needs = needs_of(spec)
    hosts = views(needs, fleet.look())
    now_ms = milliseconds(repo.now())
    entry = next((entry for entry in page.entries if entry.job_id == job_id), None)
    if entry is not None and entry.waits:
        return _wait_for_jobs(spec.after)
    if entry is not None and spec.after and entry.doomed:
        return _DOOMED
    gates = [
        *_time_gate(entry.due_ms if entry is not None else None, now_ms),
        *_needs_gates(needs, hosts, now_ms, len(fleet.unreadable)),
    ]
    ahead = _startable_ahead(page, entry.name, hosts, now_ms) if entry is not None else None
    return _first_closed(gates, hosts, ahead)


def why_not_let_in(needs: Needs, seen: Sequence[AgentSight], now_ms: int, *, unread: int) -> Wait:
    """What keeps a job with these needs from starting while the queue is open. `unread`: reports
    of agents that could not be read."""
    hosts = views(needs, seen)
    return _first_closed(_needs_gates(needs, hosts, now_ms, unread), hosts, None)


def waits_of(
    records: Iterable[Record], seen: Sequence[AgentSight], now_ms: int, *, paused: bool, unread: int
) -> dict[str, Wait]:
    """What keeps each of these queued jobs from starting, by what is known: their records, and the
    reports of agents. `paused`: the queue is."""
    return {
        record.id: PAUSED if paused else _wait_of(record, seen, now_ms, unread)
        for record in records
    }


def _wait_of(record: Record, seen: Sequence[AgentSight], now_ms: int, unread: int) -> Wait:
    if record.doomed_by is not None:
        return _doom(record.doomed_by)
    if record.awaits:
        return _wait_for_jobs(record.awaits)
    closed = next((gate.wait for gate in _time_gate(record.due_ms, now_ms) if gate.wait), None)
    return closed or why_not_let_in(needs_of_record(record), seen, now_ms, unread=unread)


def explain(repo: Repository, record: Record) -> Explanation:
    """Of a queued job. Two listings (a thousand names of the queue) and a read an agent."""
    needs = needs_of_record(record)
    page = read_page(repo)
    fleet = Fleet(repo)
    hosts = views(needs, fleet.look())
    ahead = _ahead(page, entry_name(record))
    now_ms = milliseconds(repo.now())
    if record.doomed_by is not None:
        wait = _doom(record.doomed_by)
        return Explanation(wait, [Gate(GateName.JOBS, wait.text, wait)], hosts, ahead)
    deadline, *rest = _needs_gates(needs, hosts, now_ms, len(fleet.unreadable))
    place = [_PLACE_MISSING] if ahead is None else []
    others = [*_jobs_gate(repo, record), *_time_gate(record.due_ms, now_ms)]
    gates = [_queue_gate(page.paused), deadline, *place, *others, *rest]
    startable = _startable_ahead(page, entry_name(record), hosts, now_ms)
    return Explanation(_first_closed(gates, hosts, startable), gates, hosts, ahead)


def hopeless(repo: Repository) -> dict[Wait, list[str]]:
    """Of the head of the queue (a thousand jobs), those that no worker which is there will start
    as things are: why, to their ids. Two listings and a read an agent."""
    fleet = Fleet(repo)
    seen, now_ms = fleet.look(), milliseconds(repo.now())
    unread = len(fleet.unreadable)
    found: dict[Wait, list[str]] = {}
    if not any(sight.alive for sight in seen):
        return found
    waits: dict[Needs, Wait] = {}
    for entry in read_page(repo).entries:
        if entry.doomed:  # it is ended by whoever meets it, and no worker is missing
            continue
        if entry.needs not in waits:
            waits[entry.needs] = why_not_let_in(entry.needs, seen, now_ms, unread=unread)
        wait = waits[entry.needs]
        if wait.code in ("deadline_passed", "no_eligible_worker"):
            found.setdefault(wait, []).append(entry.job_id)
    return found


def views(needs: Needs, seen: Sequence[AgentSight]) -> list[HostView]:
    """What each agent is to a job with these needs."""
    return [HostView(sight, _cause(needs, sight)) for sight in seen]


def causes_text(hosts: Sequence[HostView]) -> str:
    """`3 hosts: 1 draining, 1 disk full, 1 too small`; `1 host: disk full`."""
    causes = {cause.replace("_", " "): count for cause, count in count_causes(hosts).items()}
    if len(hosts) == 1:
        return f"1 host: {', '.join(causes)}"
    return f"{len(hosts)} hosts: {', '.join(f'{count} {cause}' for cause, count in causes.items())}"


def count_causes(hosts: Sequence[HostView]) -> dict[str, int]:
    """By cause, the most frequent first."""
    return dict(Counter(str(view.cause_code) for view in hosts).most_common())


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
        return Wait(STARTING, text, until=f"in a moment: {room}")
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
    text = f"it waits for {_listed(hows)}"
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


def _time_gate(due_ms: int | None, now_ms: int) -> Iterator[Gate]:
    """Of a job that failed and is tried again after a while."""
    if due_ms is None:
        return
    if now_ms >= due_ms:
        yield Gate(GateName.TIME, "it has waited long enough to be tried again")
        return
    left = duration_text(math.ceil((due_ms - now_ms) / 1000))
    text = f"it failed, and is tried again in {left}"
    wait = Wait(RETRY_COOLDOWN, text, until=f"in {left}: it failed, and is tried again then")
    yield Gate(GateName.TIME, text, wait)


def _needs_gates(needs: Needs, hosts: Sequence[HostView], now_ms: int, unread: int) -> list[Gate]:
    """The deadline's gate, then those of the workers up to the first that is closed."""
    gates = [_deadline_gate(needs, now_ms)]
    for gate in _worker_gates(needs, hosts, unread):
        gates.append(gate)
        if gate.wait is not None:
            break
    return gates


def _deadline_gate(needs: Needs, now_ms: int) -> Gate:
    offer = Offer(needs.cpu_milli, needs.memory_mib, images=needs.image)
    refusal = admit(needs, offer, now_ms=now_ms)
    if refusal is None:
        stated = needs.deadline_ms is not None
        return Gate(
            GateName.DEADLINE, "its deadline has not passed" if stated else "it has no deadline"
        )
    wait = Wait(refusal.code, refusal.text, "submit it again with more time")
    return Gate(GateName.DEADLINE, "its deadline has passed", wait)


def _worker_gates(needs: Needs, hosts: Sequence[HostView], unread: int) -> Iterator[Gate]:
    present = [view for view in hosts if view.sight.alive]
    yield _presence_gate(hosts, present, unread)
    if needs.image:
        able = [view for view in present if view.cause is not Cause.NO_IMAGES]
        yield _image_gate(present, able)
        present = able
    large = [view for view in present if view.cause is not Cause.TOO_SMALL]
    yield _size_gate(needs, present, large)
    ready = [view for view in large if view.cause in (Cause.FULL, Cause.NONE)]
    yield _ready_gate(hosts, large, ready)
    yield _room_gate(needs, ready)


def _presence_gate(hosts: Sequence[HostView], present: Sequence[HostView], unread: int) -> Gate:
    if present:
        return Gate(GateName.WORKERS, f"{_workers(len(present), 'is', 'are')} there")
    if unread:
        return _unread_gate(unread)
    wait = Wait(
        "no_eligible_worker",
        f"no worker is at work now ({causes_text(hosts)})" if hosts else "no worker is at work",
        "`stado up` here, or `stado agent run` on a host, starts one",
        "when a worker is at work",
    )
    return Gate(GateName.WORKERS, "no worker is there", wait)


def _unread_gate(unread: int) -> Gate:
    """Who wrote them may take the job: an agent of a newer version may say more than is known."""
    reports = "report of a worker" if unread == 1 else "reports of workers"
    text = f"no worker is seen at work, but {unread:,} {reports} cannot be read"
    remedy = "`stado doctor` names what is wrong"
    wait = Wait("no_eligible_worker", text, remedy, "when a worker is at work")
    return Gate(GateName.WORKERS, text, wait)


def _image_gate(present: Sequence[HostView], able: Sequence[HostView]) -> Gate:
    text = f"it runs in an image; with a container engine: {len(able) or 'none'} of {len(present)}"
    if able:
        return Gate(GateName.IMAGE, text)
    engineless = "it runs in an image, and no worker that is at work has a container engine"
    wait = Wait(
        "no_eligible_worker",
        engineless,
        "start a worker where `docker info` answers, or submit it without --image",
        f"when there is one: {engineless}",
    )
    return Gate(GateName.IMAGE, text, wait)


def _size_gate(needs: Needs, present: Sequence[HostView], large: Sequence[HostView]) -> Gate:
    needed = _needed(needs)
    if large:
        return Gate(GateName.SIZE, f"it needs {needed}; so large: {len(large)} of {len(present)}")
    capacities = [view.capacity for view in present]
    cores = max(one.cpu_total for one in capacities)
    memory = max(one.memory_total_gb for one in capacities)
    text = (
        f"it needs {needed}, and no worker is so large: of {len(present)} at work the largest "
        f"has {_cores(cores)}, the largest memory is {memory:.1f} GiB"
    )
    wait = Wait(
        "no_eligible_worker",
        text,
        "start a larger worker, or submit it with less",
        f"when there is a larger worker: {text}",
    )
    return Gate(GateName.SIZE, f"it needs {needed}; so large: none of {len(present)}", wait)


def _ready_gate(
    hosts: Sequence[HostView], large: Sequence[HostView], ready: Sequence[HostView]
) -> Gate:
    if ready:
        return Gate(GateName.READY, f"taking jobs: {len(ready)} of {len(large)}")
    hindered = [
        f"{view.capacity.consumer}: {view.capacity.hindrance.detail}"
        for view in large
        if view.cause is Cause.HINDERED and view.capacity.hindrance is not None
    ]
    text = f"no worker that is large enough takes jobs now ({causes_text(hosts)})"
    wait = Wait(
        "no_eligible_worker",
        text,
        _listed(hindered) if hindered else "start another: `stado up`, or `stado agent run`",
        f"when a worker takes jobs again: {text}",
        hindered=bool(hindered),
    )
    return Gate(GateName.READY, f"taking jobs: none of {len(large)}", wait)


def _room_gate(needs: Needs, ready: Sequence[HostView]) -> Gate:
    free = [view for view in ready if view.cause is Cause.NONE]
    if free:
        names = _listed([view.capacity.consumer for view in free])
        return Gate(GateName.ROOM, f"room for it: {names}")
    if len(ready) == 1:
        capacity = ready[0].capacity
        seconds = round(ready[0].sight.age_seconds)
        as_of = f", by its report of {seconds} s ago" if seconds else ""
        text = (
            f"{_busy(capacity)}{as_of}: it needs {_needed(needs)}, and {_left(capacity)} are free"
        )
    else:
        names = _listed([_busy(view.capacity) for view in ready])
        text = f"all {len(ready)} workers that could run it are busy: {names}"
    wait = Wait("waiting_capacity", text, until=f"when a worker has room: {text}")
    return Gate(GateName.ROOM, f"room for it: none of {len(ready)}", wait)


def _cause(needs: Needs, sight: AgentSight) -> Cause:
    state, capacity = sight.state, sight.capacity
    if state in (AgentState.STOPPED, AgentState.STALE):
        return Cause(state.value)
    if needs.image and capacity.runs_images_by is None:
        return Cause.NO_IMAGES
    if not _fits(needs, capacity.cpu_total, capacity.memory_total_gb):
        return Cause.TOO_SMALL
    if state is not AgentState.WORKING:
        return Cause(state.value)
    fits_now = _fits(needs, capacity.cpu_free, capacity.memory_free_gb)
    return Cause.NONE if fits_now else Cause.FULL


def _fits(needs: Needs, cores: float, memory_gb: float) -> bool:
    """A deadline is a gate of its own, and so is an image."""
    offer = Offer(round(cores * 1000), round(memory_gb * 1024))
    sizes = Needs(needs.cpu_milli, needs.memory_mib)
    return admit(sizes, offer, now_ms=0) is None


def _ahead(page: Page, name: str) -> Ahead | None:
    names = [entry.name for entry in page.entries]
    place = bisect.bisect_left(names, name)
    if place < len(names) and names[place] == name:
        return Ahead(place, at_least=False)
    if place == len(names) and page.next_after is not None:
        return Ahead(place, at_least=True)
    return None


def _startable_ahead(page: Page, name: str, hosts: Sequence[HostView], now_ms: int) -> Ahead | None:
    """Those of them that could be started before it: some worker that is there is for them."""
    ahead = _ahead(page, name)
    if ahead is None:
        return None
    seen = [view.sight for view in hosts]
    able: dict[Needs, bool] = {}
    count = 0
    for entry in page.entries[: ahead.count]:
        if entry.needs not in able:
            causes = {view.cause for view in views(entry.needs, seen)}
            able[entry.needs] = bool(causes & {Cause.FULL, Cause.NONE})
        count += entry.is_due(now_ms) and able[entry.needs]
    return replace(ahead, count=count)


def _workers(count: int, is_: str, are: str) -> str:
    return f"1 worker {is_}" if count == 1 else f"{count:,} workers {are}"


def _busy(capacity: Capacity) -> str:
    count = len(capacity.jobs)
    return f"{capacity.consumer} is busy with {count} job{'' if count == 1 else 's'}"


def _needed(needs: Needs) -> str:
    return f"{_cores(needs.cpu_milli / 1000)} and {needs.memory_mib / 1024:g} GiB"


def _left(capacity: Capacity) -> str:
    return f"{_cores(max(0.0, capacity.cpu_free))} and {max(0.0, capacity.memory_free_gb):.1f} GiB"


def _cores(count: float) -> str:
    return f"{count:g} core{'' if count == 1 else 's'}"


def _listed(names: Sequence[str]) -> str:
    """`a, b, c and 2 more`."""
    shown = ", ".join(names[:_NAMED_MAX])
    more = len(names) - _NAMED_MAX
    return f"{shown} and {more:,} more" if more > 0 else shown
