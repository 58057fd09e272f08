"""What each host is to one job, by what its agent said last: the gates of the workers.

The same predicate as on the host (`stado.core.admission`), asked in the order in which its answers
matter to people: what is missing altogether before what is only taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum

from stado.core.admission import admit, cards_asked
from stado.core.envelope import PROVIDER_DEFAULT, Spot
from stado.core.offers import disk_for_jobs_gb, facts_of, offer_left, offer_whole, price_milli
from stado.core.order import Needs
from stado.core.records import Capacity
from stado.core.spec import Spec
from stado.jobs.health import AgentSight, AgentState

_NEAR_MAX = 2
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
    certain: bool = True
    """False: what is told of the start is likely, by what workers reported, and no more."""
    hindered: bool = False
    """Whether workers that are hindered would take the job: what mends them lets it start."""


class GateName(StrEnum):
    """What a queued job has to pass, in this order."""

    QUEUE = "queue"
    DEADLINE = "deadline"
    JOBS = "jobs"
    TIME = "time"
    PLACE = "place"
    QUOTA = "quota"
    BUDGET = "budget"
    WINDOW = "window"
    WORKERS = "workers"
    IMAGE = "image"
    HOST = "host"
    PRICE = "price"
    SIZE = "size"
    READY = "ready"
    ROOM = "room"


@dataclass(frozen=True, slots=True)
class Gate:
    """What stands between a job and its start. `wait` is there when it is closed."""

    name: GateName
    text: str
    wait: Wait | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """What a job asks for: as the queue's index has it, and in the submitter's words where they
    are known."""

    needs: Needs
    spec: Spec | None = None
    job_id: str | None = None


class Cause(StrEnum):
    """Why a host does not take a job now."""

    STOPPED = "stopped"
    STALE = "stale"
    NO_IMAGES = "runs_no_images"
    ANOTHER = "another_host"
    """It is not what the job asks for: by its name, its owner's labels, its provider."""
    TOO_DEAR = "too_dear"
    TOO_SMALL = "too_small"
    DRAINING = "draining"
    HINDERED = "hindered"
    FULL = "full"
    KEPT = "keeps_room"
    """What is free there is kept for another job, that waited for it in vain."""
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


def views(needs: Needs, seen: Sequence[AgentSight], *, job_id: str | None = None) -> list[HostView]:
    """What each agent is to a job with these needs."""
    return [HostView(sight, _cause(needs, sight, job_id)) for sight in seen]


def _cause(needs: Needs, sight: AgentSight, job_id: str | None) -> Cause:
    """A deadline is a gate of its own."""
    state, capacity = sight.state, sight.capacity
    if state in (AgentState.STOPPED, AgentState.STALE):
        return Cause(state.value)
    if needs.image and capacity.runs_images_by is None:
        return Cause.NO_IMAGES
    timeless, whole = replace(needs, deadline_ms=None), offer_whole(capacity)
    refusal = admit(timeless, whole, now_ms=0)
    if refusal is not None:
        if not needs.facts <= whole.facts:
            return Cause.ANOTHER
        return Cause.TOO_DEAR if refusal.code == "over_cost_cap" else Cause.TOO_SMALL
    if state is not AgentState.WORKING:
        return Cause(state.value)
    if admit(timeless, offer_left(capacity), now_ms=0) is not None:
        return Cause.FULL
    return Cause.NONE if capacity.keeps_room_for in (None, job_id) else Cause.KEPT


def causes_text(hosts: Sequence[HostView]) -> str:
    """`3 hosts: 1 draining, 1 disk full, 1 too small`; `1 host: disk full`."""
    causes = {_cause_words(cause): count for cause, count in count_causes(hosts).items()}
    if len(hosts) == 1:
        return f"1 host: {', '.join(causes)}"
    return f"{len(hosts)} hosts: {', '.join(f'{count} {cause}' for cause, count in causes.items())}"


def _cause_words(cause: str) -> str:
    return "of another kind" if cause == Cause.ANOTHER.value else cause.replace("_", " ")


def count_causes(hosts: Sequence[HostView]) -> dict[str, int]:
    """By cause, the most frequent first."""
    return dict(Counter(str(view.cause_code) for view in hosts).most_common())


# --- the gates ----------------------------------------------------------------------------


def worker_gates(demand: Demand, hosts: Sequence[HostView], unread: int) -> Iterator[Gate]:
    """In order, those that mean something for this job. `unread`: reports of agents that could
    not be read."""
    needs = demand.needs
    present = [view for view in hosts if view.sight.alive]
    yield _presence_gate(hosts, present, unread)
    if needs.image:
        able = [view for view in present if view.cause is not Cause.NO_IMAGES]
        yield _image_gate(present, able)
        present = able
    if needs.facts:
        right = [view for view in present if view.cause is not Cause.ANOTHER]
        yield _host_gate(demand, hosts, present, right)
        present = right
    if needs.price_milli is not None:
        cheap = [view for view in present if view.cause is not Cause.TOO_DEAR]
        yield _price_gate(needs, present, cheap)
        present = cheap
    large = [view for view in present if view.cause is not Cause.TOO_SMALL]
    yield _size_gate(needs, present, large)
    ready = [view for view in large if view.cause in (Cause.FULL, Cause.KEPT, Cause.NONE)]
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


def _host_gate(
    demand: Demand,
    hosts: Sequence[HostView],
    present: Sequence[HostView],
    right: Sequence[HostView],
) -> Gate:
    asked = _host_asked(demand.spec)
    text = f"it asks for {asked}; of that kind: {len(right) or 'none'} of {len(present)}"
    if right:
        return Gate(GateName.HOST, text)
    return Gate(GateName.HOST, text, _wrong_hosts(demand.spec, asked, hosts, present))


def _host_asked(spec: Spec | None) -> str:
    if spec is None:
        return "another kind of host"
    words = [
        None if spec.pinned_host is None else f"worker {spec.pinned_host}",
        f"a machine of {spec.provider}" if spec.pin_provider else None,
        {Spot.NEVER: "no spot machine", Spot.REQUIRE: "a spot machine"}.get(spec.spot),
        None if spec.machine_type is None else f"a {spec.machine_type}",
        *(f"label {label}" for label in spec.labels),
    ]
    return ", ".join(word for word in words if word)


def _wrong_hosts(
    spec: Spec | None, asked: str, hosts: Sequence[HostView], present: Sequence[HostView]
) -> Wait:
    """The first of what it asks for that nobody has, and what would help."""
    if spec is not None and spec.pinned_host is not None:
        there = [view for view in present if view.capacity.consumer == spec.pinned_host]
        if not there:
            return _pinned_away(spec.pinned_host, hosts)
    fenced = spec is not None and spec.pin_provider and spec.provider is not None
    if spec is not None and fenced and not _some_has(present, f"provider:{spec.provider}"):
        return _fenced(spec)
    text = f"it asks for {asked}, and no worker at work is that"
    return Wait(
        "no_eligible_worker",
        text,
        "start such a worker, or submit it without that",
        f"when there is one: {text}",
    )


def _some_has(present: Sequence[HostView], fact: str) -> bool:
    return any(fact in facts_of(view.capacity) for view in present)


def _pinned_away(name: str, hosts: Sequence[HostView]) -> Wait:
    known = [view for view in hosts if view.capacity.consumer == name]
    state = f"is {known[0].cause_code}" if known else "was never seen"
    text = f"it is pinned to worker {name}, which {state}"
    near = [] if known else _near(name, [view.capacity for view in hosts])
    meant = f" (did you mean {' or '.join(near)}?)" if near else ""
    remedy = f"start {name}, or submit it without --pinned-host{meant}"
    return Wait("pinned_host_absent", text, remedy, f"when {name} is at work: {text}")


def _near(name: str, capacities: Sequence[Capacity]) -> list[str]:
    """Workers whose names are alike, or on a host of that name."""
    on_host = [
        one.consumer for one in capacities if name in (one.host, one.consumer.partition("@")[2])
    ]
    names = [one.consumer for one in capacities]
    return on_host[:_NEAR_MAX] or get_close_matches(name, names, n=_NEAR_MAX)


def _fenced(spec: Spec) -> Wait:
    """Nothing rents machines: a job that is fenced to somebody else's waits for one that is
    there."""
    text = f"it runs on machines of {spec.provider} alone, and none of them is at work"
    until = f"when one of {spec.provider} is at work"
    if spec.boot_disk_gb is None and spec.provider != PROVIDER_DEFAULT:
        return Wait(
            "boot_disk_not_stated",
            f"{text}; none is ever rented for it: it states no boot disk",
            "submit it with --boot-disk-gb, or with --any-provider",
            until,
        )
    unrented = "" if spec.provider == PROVIDER_DEFAULT else "; nothing rents any yet"
    remedy = "submit it with --any-provider, or start one"
    return Wait("provider_fenced", f"{text}{unrented}", remedy, until)


def _price_gate(needs: Needs, present: Sequence[HostView], cheap: Sequence[HostView]) -> Gate:
    cap = f"${(needs.price_milli or 0) / 1000:g} an hour"
    text = f"it may cost {cap}; so cheap: {len(cheap) or 'none'} of {len(present)}"
    if cheap:
        return Gate(GateName.PRICE, text)
    least = min(price_milli(view.capacity) for view in present)
    why = f"it may cost {cap}, and the cheapest worker at work costs ${least / 1000:g}"
    wait = Wait(
        "over_cost_cap",
        why,
        "submit it with a higher --max-cost-per-hour, or start a cheaper worker",
        f"when there is a cheaper one: {why}",
    )
    return Gate(GateName.PRICE, text, wait)


def _size_gate(needs: Needs, present: Sequence[HostView], large: Sequence[HostView]) -> Gate:
    needed = _needed(needs)
    if large:
        return Gate(GateName.SIZE, f"it needs {needed}; so large: {len(large)} of {len(present)}")
    text = (
        f"it needs {needed}, and no worker is so large: of {len(present)} at work "
        f"{_largest(needs, [view.capacity for view in present])}"
    )
    wait = Wait(
        "no_eligible_worker",
        text,
        "start a larger worker, or submit it with less",
        f"when there is a larger worker: {text}",
    )
    return Gate(GateName.SIZE, f"it needs {needed}; so large: none of {len(present)}", wait)


def _largest(needs: Needs, capacities: Sequence[Capacity]) -> str:
    cores = max(one.cpu_total for one in capacities)
    memory = max(one.memory_total_gb for one in capacities)
    said = [f"the largest has {_cores(cores)}, the largest memory is {memory:.1f} GiB"]
    if needs.disk_mib:
        disk = max(map(disk_for_jobs_gb, capacities))
        said.append(f"the largest disk {disk:.1f} GiB for jobs")
    if needs.uses_cards:
        said.append(_largest_cards(needs, capacities))
    return ", ".join(said)


def _largest_cards(needs: Needs, capacities: Sequence[Capacity]) -> str:
    called = [
        [card for card in offer_whole(one).cards if card.is_called(needs.kind)]
        for one in capacities
    ]
    most = max(map(len, called))
    if not most:
        return "none has such a card" if needs.kind is not None else "none has a card"
    memory = max(card.total_mib for cards in called for card in cards)
    cards = f"{most} such card{'' if most == 1 else 's'}"
    return f"{cards} at most on one, the largest card of {memory / 1024:.1f} GiB"


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
        listed(hindered) if hindered else "start another: `stado up`, or `stado agent run`",
        f"when a worker takes jobs again: {text}",
        hindered=bool(hindered),
    )
    return Gate(GateName.READY, f"taking jobs: none of {len(large)}", wait)


def _room_gate(needs: Needs, ready: Sequence[HostView]) -> Gate:
    free = [view for view in ready if view.cause is Cause.NONE]
    if free:
        names = listed([view.capacity.consumer for view in free])
        return Gate(GateName.ROOM, f"room for it: {names}")
    if len(ready) == 1:
        text = _busy_text(needs, ready[0])
    else:
        names = listed([_busy(view.capacity) for view in ready])
        text = f"all {len(ready)} workers that could run it are busy: {names}"
    wait = Wait(_room_code(needs, ready), text, until=f"when a worker has room: {text}")
    return Gate(GateName.ROOM, f"room for it: none of {len(ready)}", wait)


def _room_code(needs: Needs, ready: Sequence[HostView]) -> str:
    """What keeps it from all of them, if it is the same."""
    codes = {_refused_now(needs, view)[0] for view in ready}
    return codes.pop() if len(codes) == 1 else "waiting_capacity"


def _refused_now(needs: Needs, view: HostView) -> tuple[str, str]:
    timeless = replace(needs, deadline_ms=None)
    refusal = admit(timeless, offer_left(view.capacity), now_ms=0)
    return ("waiting_capacity", "") if refusal is None else (refusal.code, refusal.text)


def _busy_text(needs: Needs, view: HostView) -> str:
    capacity, seconds = view.capacity, round(view.sight.age_seconds)
    if view.cause is Cause.KEPT:
        return f"{capacity.consumer} keeps its room for job {capacity.keeps_room_for}"
    as_of = f", by its report of {seconds} s ago" if seconds else ""
    left = offer_left(capacity)
    if needs.cpu_milli > left.cpu_milli or needs.memory_mib > left.memory_mib:
        why = f"it needs {_sizes(needs)}, and {_left(capacity)} are free"
    else:
        why = f"it {_refused_now(needs, view)[1]}"
    return f"{_busy(capacity)}{as_of}: {why}"


def _workers(count: int, is_: str, are: str) -> str:
    return f"1 worker {is_}" if count == 1 else f"{count:,} workers {are}"


def _busy(capacity: Capacity) -> str:
    count = len(capacity.jobs)
    return f"{capacity.consumer} is busy with {count} job{'' if count == 1 else 's'}"


def _needed(needs: Needs) -> str:
    words = [_sizes(needs)]
    if needs.disk_mib:
        words.append(f"{needs.disk_mib / 1024:g} GiB of disk")
    if needs.uses_cards:
        words.append(cards_asked(needs))
    return ", ".join(words)


def _sizes(needs: Needs) -> str:
    return f"{_cores(needs.cpu_milli / 1000)} and {needs.memory_mib / 1024:g} GiB"


def _left(capacity: Capacity) -> str:
    return f"{_cores(max(0.0, capacity.cpu_free))} and {max(0.0, capacity.memory_free_gb):.1f} GiB"


def _cores(count: float) -> str:
    return f"{count:g} core{'' if count == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """`a, b, c and 2 more`."""
    shown = ", ".join(names[:_NAMED_MAX])
    more = len(names) - _NAMED_MAX
    return f"{shown} and {more:,} more" if more > 0 else shown
