"""A day at a GPU cluster, replayed: `python -m tests.bench.day [--quick]`.

The decisions are those that agents ship with (which entry of the queue next, whether it fits, on
which cards, for whom room is kept, who makes room), with their own waits; what jobs do, claims and
time are played. Beside it the same jobs are run first come, first served: the head of the queue
waits for room, and all others behind it.
"""

from __future__ import annotations

import heapq
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from stado.core import keys
from stado.core.admission import Card, Offer, Reservation, choose_cards
from stado.core.moves import first_record
from stado.core.order import ReadyEntry, entry_name
from stado.core.records import Proof, Record, RunRecord
from stado.core.spec import Spec, make_request
from stado.core.yields import Running
from stado.jobs.deployments import make_deployment
from stado.jobs.repository import Repository
from stado.storage.memory import MemoryStore
from stado_agent.budget import Budget, DiskLeft, Limits
from stado_agent.guidance import Guidance
from stado_agent.making_room import HostNow, RoomMaker, RoomWaits
from stado_agent.supply import Supply
from tests.bench.day_jobs import CARDS_PER_HOST, DAY_SECONDS, HOSTS, DayJob, draw_day
from tests.jobs.fakes import START, FakeClock, FakeEntropy, InlineTasks

_POLL_SECONDS = 20.0
_BEAT_SECONDS = 30.0
"""Between looks for jobs that find no room, where something runs that may yield; agents look twice
as often, and wait as long."""

_BEATS_BETWEEN_LOOKS = 4
"""Where nothing that runs may yield."""

_STOP_SECONDS = 30.0
"""From the moment at which a job is asked to make room until its cards are free."""

_CARD_MIB = 80 * 1024
_CPU_PER_CARD = 4.0
_MEMORY_GB_PER_CARD = 32.0
_LOADS = (0.9, 1.2)
_SEEDS = (7, 8, 9)
"""Of days: which large job is started when decides over the waits of many."""


# --- what both ways have in common --------------------------------------------------------


class Timeline:
    """What is to happen, in order of time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, moment: float, happening: Callable[[], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._order), happening))

    def run(self, until: Callable[[], bool]) -> None:
        while self._events and not until():
            self.now, _, happening = heapq.heappop(self._events)
            happening()


@dataclass
class Tally:
    """What came of a day."""

    jobs: Sequence[DayJob]
    cards: int
    ended_at: dict[int, float] = field(default_factory=dict)
    """By the job's number."""
    busy: float = 0.0
    """Card-seconds between midnight and midnight, lost ones among them."""
    lost: float = 0.0
    """Card-seconds of work that was done again."""
    yields: int = 0

    def note_run(self, cards: int, since: float, until: float) -> None:
        self.busy += cards * max(0.0, min(until, DAY_SECONDS) - min(since, DAY_SECONDS))

    @property
    def use(self) -> float:
        """Percent of the cards that jobs had in the day."""
        return 100 * self.busy / (self.cards * DAY_SECONDS)

    def waits(self, cards: int | None = None, *, urgent: bool | None = None) -> list[float]:
        """Minutes that jobs spent otherwise than getting on, from submission to end."""
        return [
            (self.ended_at[job.number] - job.submitted_at - job.seconds) / 60
            for job in self.jobs
            if cards in (None, job.cards) and urgent in (None, job.priority > 0)
        ]


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of them lies; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


# --- first come, first served -------------------------------------------------------------


def play_fifo(jobs: Sequence[DayJob], hosts: int) -> Tally:
    """The fullest host with enough free cards gets the head of the queue."""
    tally = Tally(jobs, hosts * CARDS_PER_HOST)
    timeline, queue = Timeline(), list[DayJob]()
    free = [CARDS_PER_HOST] * hosts

    def start_what_fits() -> None:
        while queue:
            able = [host for host in range(hosts) if free[host] >= queue[0].cards]
            if not able:
                return
            job, host = queue.pop(0), min(able, key=lambda one: free[one])
            free[host] -= job.cards
            timeline.at(timeline.now + job.seconds, lambda job=job, host=host: end(job, host))  # type: ignore[misc]

    def end(job: DayJob, host: int) -> None:
        free[host] += job.cards
        tally.ended_at[job.number] = timeline.now
        tally.note_run(job.cards, timeline.now - job.seconds, timeline.now)
        start_what_fits()

    def come(job: DayJob) -> None:
        queue.append(job)
        start_what_fits()

    for job in jobs:
        timeline.at(job.submitted_at, lambda job=job: come(job))  # type: ignore[misc]
    timeline.run(lambda: len(tally.ended_at) == len(jobs))
    return tally


# --- as agents decide ---------------------------------------------------------------------


@dataclass
class _Life:
    """A job on its way."""

    job: DayJob
    record: Record
    done: float = 0.0
    """Seconds of work that are saved."""
    started_at: float | None = None

    @property
    def needs_seconds(self) -> float:
        return self.job.seconds - self.done

    def saved_by(self, now: float) -> float:
        """Seconds of work that it could go on from."""
        assert self.started_at is not None  # it runs
        worked = self.done + now - self.started_at
        return max(self.done, worked // self.job.save_seconds * self.job.save_seconds)

    def would_lose(self, now: float) -> float:
        assert self.started_at is not None  # it runs
        return self.done + now - self.started_at - self.saved_by(now)


class _Machine:
    """The hardware below a budget: nothing of it is used by others."""

    def cpu_count(self) -> float:
        return _CPU_PER_CARD * CARDS_PER_HOST

    def memory_total_bytes(self) -> int:
        return round(_MEMORY_GB_PER_CARD * CARDS_PER_HOST) * 1024**3

    def memory_available_bytes(self) -> int:
        return self.memory_total_bytes()


class _Host:
    """The deciding half of an agent, as it ships, above cards that are played."""

    def __init__(self, day: StadoDay, name: str) -> None:
        self._day = day
        self.name = name
        repo = day.repo
        self._cards = tuple(
            Card(f"{name}-{n}", "a100-sxm4-80gb", _CARD_MIB, _CARD_MIB)
            for n in range(CARDS_PER_HOST)
        )
        self._budget = Budget(
            _Machine(),  # type: ignore[arg-type]
            Limits(),
            cards=lambda: self._cards,
            disk=lambda: DiskLeft(1 << 20, 1 << 20),
        )
        guidance = Guidance(repo, consumer=name, incarnation="1")
        self._supply = Supply(repo, guidance, poll_seconds=_POLL_SECONDS)
        self._room = RoomMaker(
            repo,
            consumer=name,
            incarnation="1",
            is_for_us=lambda entry: entry.job_id in day.queued,
            waits=RoomWaits(),
        )
        self.held: dict[str, Reservation] = {}
        self._awake_at = -1.0

    def wake(self, seconds: float = 0.0) -> None:
        """Has it look at the queue then, if it would not do so before."""
        moment = self._day.timeline.now + seconds
        if self._awake_at > self._day.timeline.now and self._awake_at <= moment:
            return
        self._awake_at = moment
        self._day.timeline.at(moment, lambda: self._step(moment))

    def hurry(self) -> None:
        """Something has ended here."""
        self._supply.hurry()
        self.wake()

    def _step(self, moment: float) -> None:
        if moment == self._awake_at and self._day.goes_on:
            self._day.set_clock()
            self._take_what_fits()
            if not self._full:
                self.wake(max(1.0, self._supply.seconds_to_wait()))

    @property
    def _full(self) -> bool:
        """Then it waits until something ends: each job wants a card."""
        return sum(len(held.cards) for held in self.held.values()) == CARDS_PER_HOST

    def _take_what_fits(self) -> None:
        while not self._full:
            offer = self._budget.offer(list(self.held.values()))
            kept_from = self._room.kept_from(offer, self.held.keys())
            entry = self._supply.next_fitting(offer, skip=kept_from)
            if entry is None:
                return
            if entry.name not in self._day.ready:  # another host was faster
                self._supply.missed(None)
                continue
            left = self._room.open_to(entry, offer, self.held.keys())
            cards = choose_cards(entry.needs, left.cards)
            assert cards is not None  # it fits
            self.held[entry.job_id] = Reservation(entry.needs, cards)
            self._day.start(entry, self)

    def make_room(self, beat: int) -> None:
        """As long as somebody waits."""
        hurry = self._room.kept_for is not None or any(map(self._day.may_yield, self.held))
        if (self.held or self._room.kept_for) and (hurry or beat % _BEATS_BETWEEN_LOOKS == 0):
            waiting = self._supply.waiting(skip=lambda one: one.job_id in self.held)
            self._room.turn(waiting, self._now())

    def _now(self) -> HostNow:
        reserved, day = list(self.held.values()), self._day

        def without(gone: Sequence[Running]) -> Offer:
            ids = {one.job_id for one in gone}
            left = [held for job_id, held in self.held.items() if job_id not in ids]
            return self._budget.beside(left, of=reserved)

        running = [day.running(job_id, held) for job_id, held in self.held.items()]
        return HostNow(
            left=self._budget.offer(reserved),
            whole=self._budget.beside([], of=reserved),
            running=running,
            without=without,
        )


class StadoDay:
    """One day, decided by the agents of its hosts."""

    def __init__(self, jobs: Sequence[DayJob], hosts: int) -> None:
        self.tally = Tally(jobs, hosts * CARDS_PER_HOST)
        self.timeline = Timeline()
        self._clock = FakeClock()
        self._store = MemoryStore(self._clock, InlineTasks())
        entropy = FakeEntropy(1)
        proof = Proof(create_if_absent=True, compare_and_swap=True, conditional_delete=True)
        deployment, _ = make_deployment(self._store, entropy=entropy, proof=proof, by="bench")
        self.repo = Repository(
            self._store, deployment, clock=self._clock, entropy=entropy, tasks=InlineTasks()
        )
        self.queued: dict[str, _Life] = {}
        self.ready: set[str] = set()
        """Names of their entries."""
        self._lives: dict[str, _Life] = {}
        self._stopping: set[str] = set()
        self._beats = 0
        self._hosts = [_Host(self, f"host-{number:02d}") for number in range(hosts)]
        for job in jobs:
            self.timeline.at(job.submitted_at, lambda job=job: self._come(job))  # type: ignore[misc]
        self.timeline.at(0.0, self._beat)

    @property
    def goes_on(self) -> bool:
        return len(self.tally.ended_at) < len(self.tally.jobs)

    def play(self) -> Tally:
        for host in self._hosts:
            host.wake()
        self.timeline.run(lambda: not self.goes_on)
        return self.tally

    def set_clock(self) -> None:
        self._clock.sleep(max(0.0, self.timeline.now - self._clock.monotonic()))

    # --- what happens ---------------------------------------------------------------------

    def _come(self, job: DayJob) -> None:
        life = _Life(job, _record_of(job))
        self._lives[life.record.id] = life
        self._queue(life)

    def _queue(self, life: _Life) -> None:
        name = entry_name(life.record)
        self.queued[life.record.id] = life
        self.ready.add(name)
        self._store.create(keys.ready(name), b"")

    def start(self, entry: ReadyEntry, host: _Host) -> None:
        life = self.queued.pop(entry.job_id)
        self.ready.remove(entry.name)
        self._store.delete(keys.ready(entry.name), None)
        life.started_at = self.timeline.now
        epoch = life.record.epoch
        self.timeline.at(
            self.timeline.now + life.needs_seconds, lambda: self._end(life, host, epoch)
        )

    def _end(self, life: _Life, host: _Host, epoch: int) -> None:
        if life.record.epoch == epoch and life.started_at is not None:
            self._leave(life, host)
            self.tally.ended_at[life.job.number] = self.timeline.now

    def _leave(self, life: _Life, host: _Host) -> None:
        assert life.started_at is not None  # it runs
        self.tally.note_run(life.job.cards, life.started_at, self.timeline.now)
        life.started_at = None
        del host.held[life.record.id]
        host.hurry()

    def _beat(self) -> None:
        if not self.goes_on:
            return
        self.set_clock()
        for host in self._hosts if self.queued else ():
            host.make_room(self._beats)
            self._heed(host)
        self._beats += 1
        self.timeline.at(self.timeline.now + _BEAT_SECONDS, self._beat)

    def _heed(self, host: _Host) -> None:
        """Jobs that were asked to make room stop and are saved."""
        for job_id in list(host.held):
            life = self._lives[job_id]
            if not life.record.yields_left or job_id in self._stopping:
                continue
            asks = self.repo.find_asks(job_id, life.record.epoch)
            if asks is not None and asks.value.give_way:
                self._stopping.add(job_id)
                epoch = life.record.epoch
                self.timeline.at(
                    self.timeline.now + _STOP_SECONDS,
                    lambda life=life, epoch=epoch: self._put_back(life, host, epoch),  # type: ignore[misc]
                )

    def _put_back(self, life: _Life, host: _Host, epoch: int) -> None:
        self._stopping.discard(life.record.id)
        if life.record.epoch != epoch or life.started_at is None:
            return  # it has ended by itself
        now = self.timeline.now
        self.tally.yields += 1
        self.tally.lost += life.job.cards * life.would_lose(now)
        life.done = life.saved_by(now)
        self._leave(life, host)
        life.record = life.record.evolve(epoch=epoch + 1, yields=life.record.yields + 1)
        self._queue(life)

    def may_yield(self, job_id: str) -> bool:
        return self._lives[job_id].record.yields_left > 0

    def running(self, job_id: str, held: Reservation) -> Running:
        life = self._lives[job_id]
        return Running(
            job_id=job_id,
            epoch=life.record.epoch,
            priority=life.record.priority,
            held=held,
            yields_left=life.record.yields_left,
            lost_seconds=life.would_lose(self.timeline.now),
        )


def _record_of(job: DayJob) -> Record:
    spec = Spec(
        command="true",
        gpus=job.cards,
        cpu=_CPU_PER_CARD * job.cards,
        memory_gb=_MEMORY_GB_PER_CARD * job.cards,
        priority=job.priority,
        yieldable=job.yields > 0,
        max_yields=job.yields or None,
    )
    request = make_request(["true"], spec, batch=False)
    letters = "".join(chr(ord("a") + int(digit)) for digit in f"{job.number:016d}")
    run = RunRecord(
        run_id=f"run-{job.number}",
        digest=request.digest(),
        request=request,
        base_id=letters,
        count=1,
        submitter="bench",
        submitted_at=START + timedelta(seconds=job.submitted_at),
        token=letters,
    )
    return first_record(run, job_id=letters, spec=spec)


# --- the table ----------------------------------------------------------------------------

_ROWS: tuple[tuple[str, Callable[[Tally], float]], ...] = (
    ("cards in use, %", lambda day: day.use),
    ("wait, mean, min", lambda day: statistics.fmean(day.waits())),
    ("wait, median, min", lambda day: statistics.median(day.waits())),
    ("wait, p95, min", lambda day: percentile(day.waits(), 0.95)),
    ("wait of 1-card jobs, mean, min", lambda day: statistics.fmean(day.waits(1))),
    ("wait of 8-card jobs, mean, min", lambda day: statistics.fmean(day.waits(8))),
    ("wait of 8-card jobs, longest, min", lambda day: max(day.waits(8))),
    ("wait of urgent jobs, mean, min", lambda day: statistics.fmean(day.waits(urgent=True))),
    ("wait of the others, mean, min", lambda day: statistics.fmean(day.waits(urgent=False))),
    ("yields", lambda day: float(day.yields)),
    ("card-hours lost by yields", lambda day: day.lost / 3600),
)


def replay(load: float, *, jobs: int = 1_800, hosts: int = HOSTS, seed: int) -> tuple[Tally, Tally]:
    """First come, first served, and as agents decide."""
    drawn = draw_day(seed, jobs=jobs, load=load, hosts=hosts)
    return play_fifo(drawn, hosts), StadoDay(drawn, hosts).play()


def table(days: Mapping[float, Sequence[tuple[Tally, Tally]]]) -> str:
    """In Markdown: a column for each load and way, each figure the mean of some days."""
    heads = [f"load {load:g}, {way}" for load in days for way in ("FIFO", "stado")]
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    ways = [[pair[way] for pair in pairs] for pairs in days.values() for way in (0, 1)]
    for name, figure in _ROWS:
        values = [statistics.fmean(map(figure, tallies)) for tallies in ways]
        shown = [f"{value:,.1f}".removesuffix(".0") for value in values]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> int:
    began = time.monotonic()
    seeds: Sequence[int] = _SEEDS
    size: dict[str, int] = {}
    if "--quick" in sys.argv:
        seeds, size = _SEEDS[:1], {"jobs": 240, "hosts": 2}
    days = {load: [replay(load, seed=seed, **size) for seed in seeds] for load in _LOADS}
    fifo, _ = days[_LOADS[0]][0]
    what = f"{len(fifo.jobs):,} jobs, {fifo.cards} cards, 24 hours; mean of {len(seeds)} days"
    sys.stdout.write(f"{what}\n\n{table(days)}\n\n{time.monotonic() - began:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
