"""Which host should run which of the queued jobs, so that the last of them ends early. Pure.

Longest first within a priority, each onto the host that ends it first: never far from the best
there is, and quick. Jobs that are equal in all that matters are looked at together, so that ten
thousand cost about as much as the kinds of them.

A plan is a hint. It is made of what agents said last and of when running jobs should end.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache

from stado.core.admission import Card, Offer, Reservation, admit, choose_cards
from stado.core.order import Needs, ReadyEntry
from stado.core.runtimes import RunTime, RunTimes, cost_of, hardware_of

KINDS_MAX = 400
"""Of jobs that are planned: the first in the order. Each is tried on each host."""

_LOOKS_MAX = 40_000
"""Kinds of jobs times hosts, in one plan."""

_ALIKE = 1.1
_NEVER = math.inf


class Unplanned(StrEnum):
    """Why a job has no place in the plan."""

    NO_RUN_TIME = "no_run_time"
    NO_HOST = "no_host"
    TOO_LATE = "too_late"
    NOT_PLANNED = "not_planned"
    """Too many kinds of jobs wait: the first ones are planned."""


@dataclass(frozen=True, slots=True)
class Running:
    """What a job has of its host until it ends."""

    held: Reservation
    ends_ms: int | None
    """On the store's clock; None where its run time is not known: then it never ends, here."""


@dataclass(frozen=True, slots=True)
class PlanHost:
    """A host with what is left there, and what will be once jobs end that run there."""

    name: str
    left: Offer
    whole: Offer
    """What there would be if nothing ran there."""
    running: tuple[Running, ...] = ()
    machine_type: str | None = None
    price_per_hour: float = 0.0
    """Dollars."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One job's place in the plan."""

    entry: ReadyEntry
    host: str
    begins_ms: int
    run_time: RunTime
    cost: float
    """Dollars."""

    @property
    def ends_ms(self) -> int:
        return self.begins_ms + 1000 * self.run_time.seconds


@dataclass(slots=True)
class Plan:
    """The whole of it."""

    placed: list[Placed] = field(default_factory=list)
    unplanned: dict[Unplanned, list[ReadyEntry]] = field(default_factory=lambda: defaultdict(list))

    @property
    def ends_ms(self) -> int | None:
        return max((one.ends_ms for one in self.placed), default=None)


def plan_jobs(
    entries: Iterable[ReadyEntry], hosts: Sequence[PlanHost], times: RunTimes, *, now_ms: int
) -> Plan:
    """`entries`: jobs that may be started now, in the order of the queue. A job whose run time is
    not known on any host has no place, whatever its priority."""
    plan = Plan()
    lines = [_Timeline(host, now_ms) for host in hosts]
    kinds = _kinds(_groups(entries, times, plan), lines, times, plan)
    for kind in sorted(kinds, key=lambda one: one.rank):
        _place(kind, plan)
    return plan


@dataclass(frozen=True, slots=True)
class _Chance:
    """A host that could run a kind of jobs, and for how long they would run there."""

    line: _Timeline
    run_time: RunTime


@dataclass(frozen=True, slots=True)
class _Kind:
    """Jobs that are equal in priority, in needs but the deadline, and so in run time."""

    priority: int
    shape: _Shape
    chances: list[_Chance]
    entries: list[ReadyEntry]

    @property
    def rank(self) -> tuple[int, int, int, str]:
        """Higher priorities, then longer ones first."""
        longest = max(chance.run_time.seconds for chance in self.chances)
        first = self.entries[0]
        return (-self.priority, -longest, first.queued_ms, first.job_id)


def _groups(
    entries: Iterable[ReadyEntry], times: RunTimes, plan: Plan
) -> dict[tuple[int, Needs], list[ReadyEntry]]:
    """By priority and needs, those that may have a run time; the others are noted in the plan."""
    groups: dict[tuple[int, Needs], list[ReadyEntry]] = defaultdict(list)
    for entry in entries:
        if times.may_know(entry.needs):
            groups[entry.priority, _alike(entry.needs)].append(entry)
        else:
            plan.unplanned[Unplanned.NO_RUN_TIME].append(entry)
    return groups


def _kinds(
    groups: dict[tuple[int, Needs], list[ReadyEntry]],
    lines: Sequence[_Timeline],
    times: RunTimes,
    plan: Plan,
) -> list[_Kind]:
    """Those that have a chance somewhere; what becomes of the others is noted in the plan. No more
    are tried than there is time for, which a turn's other work waits for."""
    kinds: list[_Kind] = []
    shapes: dict[Needs, _Shape] = {}
    budget = min(KINDS_MAX, max(1, _LOOKS_MAX // max(1, len(lines))))
    ordered = sorted(groups.items(), key=lambda item: item[1][0].rank)
    for (priority, needs), entries in ordered[:budget]:
        bare = replace(needs, runtime_seconds=None, model=None)
        shape = shapes.setdefault(bare, _Shape(bare))
        chances = _chances(needs, shape, lines, times)
        if chances:
            kinds.append(_Kind(priority, shape, chances, entries))
        else:
            is_stated = needs.runtime_seconds is not None
            why = Unplanned.NO_HOST if is_stated else Unplanned.NO_RUN_TIME
            plan.unplanned[why] += entries
    for _, entries in ordered[budget:]:
        plan.unplanned[Unplanned.NOT_PLANNED] += entries
    return kinds


@lru_cache(maxsize=8192)
def _alike(needs: Needs) -> Needs:
    """Equal for jobs that are planned alike: stated run times that differ by less than a tenth
    count as the longest of them."""
    seconds = needs.runtime_seconds
    if seconds is not None:
        seconds = math.ceil(_ALIKE ** math.ceil(math.log(seconds, _ALIKE)))
    return replace(needs, deadline_ms=None, job_type=None, runtime_seconds=seconds)


def _chances(
    needs: Needs, shape: _Shape, lines: Sequence[_Timeline], times: RunTimes
) -> list[_Chance]:
    return [
        _Chance(line, run_time)
        for line in lines
        if (hardware := line.ability(shape).hardware) is not None
        and (run_time := times.of_needs(needs, hardware)) is not None
    ]


def _place(kind: _Kind, plan: Plan) -> None:
    """Each job where it ends first; where that is equal, where it costs least."""
    looks = [_look(kind.shape, chance, number, 0) for number, chance in enumerate(kind.chances)]
    heap = [look for look in looks if look is not None]
    heapq.heapify(heap)
    for entry in sorted(kind.entries, key=_urgency):
        if not heap:
            plan.unplanned[Unplanned.NO_HOST].append(entry)
            continue
        *_, number, gap = heap[0]
        chance = kind.chances[number]
        placed = _placed(entry, chance, gap)
        deadline_ms = entry.needs.deadline_ms
        if deadline_ms is not None and placed.ends_ms > deadline_ms:
            plan.unplanned[Unplanned.TOO_LATE].append(entry)
            continue
        chance.line.take(kind.shape.needs, gap, placed.run_time.seconds)
        plan.placed.append(placed)
        again = _look(kind.shape, chance, number, gap.first)
        if again is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, again)


def _urgency(entry: ReadyEntry) -> tuple[float, int]:
    return (entry.needs.deadline_ms or _NEVER, -(entry.needs.runtime_seconds or 0))


def _placed(entry: ReadyEntry, chance: _Chance, gap: _Gap) -> Placed:
    stated = entry.needs.runtime_seconds
    run_time = chance.run_time if stated is None else RunTime(stated)
    return Placed(
        entry, chance.line.host.name, gap.begins_ms, run_time, _cost(run_time, chance.line.host)
    )


def _cost(run_time: RunTime, host: PlanHost) -> float:
    return cost_of(run_time, price_per_hour=host.price_per_hour, target=host.name)


def _look(
    shape: _Shape, chance: _Chance, number: int, first: int
) -> tuple[int, float, int, _Gap] | None:
    """The next place on a host: when a job ends there, what that costs, and where it is."""
    gap = chance.line.find(shape, chance.run_time.seconds, first)
    if gap is None:
        return None
    ends_ms = gap.begins_ms + 1000 * chance.run_time.seconds
    return (ends_ms, _cost(chance.run_time, chance.line.host), number, gap)


@dataclass(frozen=True, slots=True, order=True)
class _Gap:
    """Where a job fits: from which stretch on, before which one it ends, on which cards."""

    begins_ms: int
    first: int
    last: int
    cards: int


@dataclass(slots=True)
class _Stretch:
    """What is left of a host from one moment to the next at which something ends or begins."""

    begins_ms: int
    cpu: int
    memory: int
    disk: int
    jobs: int
    closed: bool
    whole: int
    """A bit for each card that can be given away as a whole."""
    open: int
    """A bit for each card of which a part can be given away."""
    free: list[int]
    """MiB, of each card."""

    def split(self, begins_ms: int) -> _Stretch:
        return replace(self, begins_ms=begins_ms, free=list(self.free))


@dataclass(frozen=True, slots=True, eq=False)
class _Shape:
    """What jobs need, however long they run: one object for equal needs."""

    needs: Needs


@dataclass(frozen=True, slots=True)
class _Ability:
    """What a host is to jobs of one shape."""

    hardware: str | None
    """That they would run on; None where they cannot run there."""
    cards: int
    """A bit for each card that is of the kind that they ask for."""


class _Timeline:
    """What is left of one host as time goes on."""

    def __init__(self, host: PlanHost, now_ms: int) -> None:
        self.host = host
        self._totals = [card.total_mib - card.others_mib for card in host.left.cards]
        self._places = {card.uuid: place for place, card in enumerate(host.left.cards)}
        self._stretches = [_first_stretch(host.left, now_ms)]
        self._room_from: dict[_Shape, int] = {}
        self._abilities: dict[_Shape, _Ability] = {}
        ending = [one for one in host.running if one.ends_ms is not None]
        lasting = [one.held for one in host.running if one.ends_ms is None]
        for one in sorted(ending, key=lambda one: one.ends_ms or 0):
            self._give_back(one.held, max(now_ms + 1, one.ends_ms or 0))
            ending_later = [
                other.held for other in ending if (other.ends_ms or 0) > (one.ends_ms or 0)
            ]
            self._free_cards(one.held, [*lasting, *ending_later])

    # --- what it could ever do ----------------------------------------------------------

    def ability(self, shape: _Shape) -> _Ability:
        found = self._abilities.get(shape)
        if found is None:
            found = self._abilities[shape] = self._ability(shape.needs)
        return found

    def _ability(self, needs: Needs) -> _Ability:
        whole = self.host.whole
        if admit(needs, whole, now_ms=0) is not None:
            return _Ability(hardware=None, cards=0)
        chosen = choose_cards(needs, whole.cards) or ()
        kinds = [card.kind for card in whole.cards if card.uuid in chosen]
        return _Ability(
            hardware_of(kinds, self.host.machine_type),
            _bits(self.host.left.cards, lambda card: card.is_called(needs.kind)),
        )

    # --- places -------------------------------------------------------------------------

    def find(self, shape: _Shape, seconds: int, first: int) -> _Gap | None:
        """The earliest gap from stretch `first` on."""
        needs, cards = shape.needs, self.ability(shape).cards
        stretches = self._stretches
        place = max(first, self._first_with_room(shape))
        self._room_from.pop(shape, None)
        while place < len(stretches):
            begins_ms = stretches[place].begins_ms
            ends_ms = begins_ms + 1000 * seconds
            left, last = cards, place
            while last < len(stretches) and (last == place or stretches[last].begins_ms < ends_ms):
                left = _left_for(needs, stretches[last], left)
                if left < 0:
                    break
                self._room_from.setdefault(shape, begins_ms)
                last += 1
            else:
                return _Gap(begins_ms, place, last, left)
            place = (last if left == _NO_ROOM else place) + 1
        return None

    def _first_with_room(self, shape: _Shape) -> int:
        """Where the search for such needs begins: what is taken is never given back, so that what
        had no room before has none now."""
        begins_ms = self._room_from.get(shape)
        if begins_ms is None:
            return 0
        return bisect.bisect_left(self._stretches, begins_ms, key=lambda one: one.begins_ms)

    def take(self, needs: Needs, gap: _Gap, seconds: int) -> None:
        """For no longer than the gap was looked for."""
        stretches = self._stretches
        ends_ms = gap.begins_ms + 1000 * seconds
        last = gap.last
        while stretches[last - 1].begins_ms >= ends_ms:
            last -= 1
        if last == len(stretches) or stretches[last].begins_ms != ends_ms:
            stretches.insert(last, stretches[last - 1].split(ends_ms))
        chosen = _chosen(needs, gap.cards, stretches[gap.first : last])
        for stretch in stretches[gap.first : last]:
            _take(needs, stretch, chosen)

    def _give_back(self, held: Reservation, ends_ms: int) -> None:
        last = self._stretches[-1]
        if last.begins_ms < ends_ms:
            last = last.split(ends_ms)
            self._stretches.append(last)
        needs = held.needs
        last.cpu += needs.cpu_milli
        last.memory += needs.memory_mib
        last.disk += needs.disk_mib
        last.jobs = max(0, last.jobs - 1)
        last.closed &= not needs.exclusive

    def _free_cards(self, held: Reservation, others: Iterable[Reservation]) -> None:
        """Cards on which nobody is left are whole again."""
        last = self._stretches[-1]
        used = {uuid for other in others for uuid in other.cards}
        for uuid in held.cards:
            place = self._places.get(uuid)
            if place is None:
                continue
            if uuid not in used:
                last.free[place] = self._totals[place]
                last.whole |= 1 << place
                last.open |= 1 << place
            elif not held.needs.gpus:
                last.free[place] += held.needs.vram_mib


_NO_ROOM = -1
_NO_CARDS = -2


def _first_stretch(left: Offer, now_ms: int) -> _Stretch:
    return _Stretch(
        now_ms,
        left.cpu_milli,
        left.memory_mib,
        left.disk_mib or 0,
        left.jobs,
        left.closed,
        whole=_bits(left.cards, lambda card: card.whole),
        open=_bits(left.cards, lambda card: not card.closed),
        free=[card.free_mib for card in left.cards],
    )


def _bits(cards: Sequence[Card], wanted: Callable[[Card], bool]) -> int:
    return sum(1 << place for place, card in enumerate(cards) if wanted(card))


def _left_for(needs: Needs, stretch: _Stretch, cards: int) -> int:
    """The cards of these that will do in this stretch; less than 0 when the job has no room."""
    if (
        stretch.closed
        or needs.cpu_milli > stretch.cpu
        or needs.memory_mib > stretch.memory
        or needs.disk_mib > stretch.disk
        or (needs.exclusive and stretch.jobs)
    ):
        return _NO_ROOM
    if not needs.uses_cards:
        return 0
    cards &= stretch.whole if needs.gpus else stretch.open
    if needs.vram_mib:
        for place, free in enumerate(stretch.free):
            if free < needs.vram_mib:
                cards &= ~(1 << place)
    return cards if cards.bit_count() >= (needs.gpus or 1) else _NO_CARDS


def _chosen(needs: Needs, cards: int, stretches: Sequence[_Stretch]) -> list[int]:
    """Of those that will do; parts on the fullest card, so that whole ones stay whole."""
    if not needs.uses_cards:
        return []
    fit = [place for place in range(cards.bit_length()) if cards >> place & 1]
    fit.sort(key=lambda place: (stretches[0].whole >> place & 1, stretches[0].free[place]))
    return fit[: needs.gpus or 1]


def _take(needs: Needs, stretch: _Stretch, chosen: Iterable[int]) -> None:
    stretch.cpu -= needs.cpu_milli
    stretch.memory -= needs.memory_mib
    stretch.disk -= needs.disk_mib
    stretch.jobs += 1
    stretch.closed |= needs.exclusive
    for place in chosen:
        stretch.whole &= ~(1 << place)
        if needs.gpus:
            stretch.open &= ~(1 << place)
            stretch.free[place] = 0
        else:
            stretch.free[place] -= needs.vram_mib


def earliest_start(needs: Needs, host: PlanHost, *, seconds: int = 1, now_ms: int) -> int | None:
    """When a job could begin on this host if nothing else did: milliseconds on the store's clock.
    None where that hangs on a job whose run time is not known, or never comes."""
    line = _Timeline(host, now_ms)
    shape = _Shape(needs)
    if line.ability(shape).hardware is None:
        return None
    gap = line.find(shape, seconds, 0)
    return None if gap is None else gap.begins_ms
