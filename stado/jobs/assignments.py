"""Which host should get which job: a coordinator's pass, and what others read of it.

A hint, and nothing rests on it. Without a coordinator there is none, one that is too old counts as
none, and every job can be claimed by every host that it fits.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from stado.core import keys
from stado.core.admission import Reservation
from stado.core.documents import COUNT_MAX
from stado.core.hints import (
    ASSIGNED_MAX,
    SKIPPED_MAX,
    Assignment,
    Assignments,
    HostPlan,
    Skipped,
)
from stado.core.ids import milliseconds
from stado.core.makespan import Placed, Plan, PlanHost, Running, Unplanned, plan_jobs
from stado.core.offers import offer_left, offer_whole
from stado.core.order import ReadyEntry, job_type_of, model_code, needs_of
from stado.core.records import MILLISECONDS_MAX, Capacity, Record
from stado.core.runtimes import RunTimes, no_run_time_text
from stado.core.states import State
from stado.errors import Unreadable
from stado.jobs.derived import Derived, find_derived
from stado.jobs.estimates import Measuring
from stado.jobs.health import AgentSight, AgentState, Fleet
from stado.jobs.limit_sight import LimitSight
from stado.jobs.queue_index import read_page
from stado.jobs.repository import PARALLEL_REQUESTS, Repository, Stored
from stado.storage.port import Entry

log = logging.getLogger(__name__)

PAGES_MAX = 20
"""Of the queue, that are planned: 20,000 jobs."""

RUNNING_MAX = 5_000
"""Jobs that run whose ends are worked out."""

MODELS_READ_MAX = 50
"""Records that one turn reads to name the models of skipped jobs."""

HOLD_TICKS = 2
"""So long from when a job was assigned first others leave it to its host, which may be gone."""

_VALID_TICKS = 4


def read_assignments(repo: Repository) -> Assignments | None:
    """None: there are none. One read. They may have expired."""
    return find_derived(repo, Assignments, keys.ASSIGNMENTS)


class RunningJobs:
    """What runs, and until when, for whoever looks again and again: a record that has not changed
    is not read a second time."""

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._known: dict[str, Stored[Record]] = {}
        self._unreadable: set[str] = set()
        self.left_out = 0
        """Of the last look: how many could not be read, and 1 where more run."""

    def look(self) -> list[Record]:
        """A listing (a page each 1,000), and a read for each record that is new, of the newest
        5,000. What cannot be read is left out."""
        entries: list[Entry] = []
        more = False
        self._unreadable.clear()
        for entry in self._repo.walk_records(State.RUNNING):
            if len(entries) == RUNNING_MAX:
                more = True
                break
            entries.append(entry)
        looks = self._repo.tasks.map(self._read, entries, limit=PARALLEL_REQUESTS)
        self._known = {entry.key: one for entry, one in zip(entries, looks, strict=True) if one}
        self.left_out = len(self._unreadable) + more
        return [one.value for one in self._known.values()]

    def _read(self, entry: Entry) -> Stored[Record] | None:
        known = self._known.get(entry.key)
        if known is not None and known.version == entry.version:
            return known
        try:
            return self._repo.find(Record, entry.key)
        except Unreadable as error:
            self._repo.tell_unreadable(error)
            self._unreadable.add(entry.key)
            return None


def plan_host(sight: AgentSight, records: Iterable[Record], times: RunTimes) -> PlanHost:
    """An agent's host, with what runs there by `records` and by its own report."""
    capacity = sight.capacity
    left = offer_left(capacity)
    reported = {(job.job_id, job.epoch) for job in capacity.jobs}
    running = []
    for record in records:
        one = _running(record, times)
        running.append(one)
        if (record.id, record.epoch) not in reported:  # claimed since
            left = left.less(one.held)
    return PlanHost(
        capacity.consumer,
        left,
        offer_whole(capacity),
        tuple(running),
        capacity.machine_type,
        capacity.price_per_hour or 0.0,
    )


def _running(record: Record, times: RunTimes) -> Running:
    """It ends one run time after it was claimed: what its preparation takes is not known."""
    holder = record.holder
    assert holder is not None  # a running record has one
    held = Reservation(needs_of(record.spec), tuple(holder.cards))
    run_time = times.of(record.spec, holder.hardware or "")
    if run_time is None:
        return Running(held, None)
    return Running(held, milliseconds(holder.claimed_at) + 1000 * run_time.seconds)


def held_by(records: Iterable[Record]) -> dict[str, list[Record]]:
    """What runs, by who has it."""
    held: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.holder is not None:
            held[record.holder.consumer].append(record)
    return held


@dataclass(frozen=True, slots=True)
class AssignReport:
    """What one turn did."""

    assigned: int
    skipped: int
    written: bool


class Assigner:
    """Keep it between ticks: it remembers what it has read and written."""

    def __init__(self, repo: Repository, *, by: str) -> None:
        self._repo = repo
        self._by = by
        self._measuring = Measuring(repo)
        self._document = Derived(repo, Assignments, keys.ASSIGNMENTS)
        self._fleet = Fleet(repo)
        self._running = RunningJobs(repo)
        self._models: dict[str, str] = {}
        """By their codes, as records named them."""

    def turn(self) -> AssignReport:
        """Plans all that can be started now, and writes what came of it if that is news.

        Requests: a listing of the queue (a page each 1,000, 20 at most). Where the run time of some
        job is known: the settings are read, the agents and what runs are listed, and what is new of
        both is read."""
        self._measuring.turn_when_due()
        times, now_ms = self._measuring.times, self._repo.now_ms()
        entries = self._startable(now_ms)
        sights: list[AgentSight] = []
        hosts: list[PlanHost] = []
        if any(times.may_know(entry.needs) for entry in entries):
            held_up = LimitSight(self._repo).held_up(self._repo.now())
            entries = [entry for entry in entries if not held_up(entry.needs)]
            sights = [one for one in self._fleet.look() if one.state is AgentState.WORKING]
            held = held_by(self._running.look())
            hosts = [plan_host(one, held[one.capacity.consumer], times) for one in sights]
        plan = plan_jobs(entries, hosts, times, now_ms=now_ms)
        return self._note(plan, [one.capacity for one in sights], now_ms)

    def _startable(self, now_ms: int) -> list[ReadyEntry]:
        """The queue in its order, without what waits for something else or is over. Nothing, while
        it is paused."""
        entries: list[ReadyEntry] = []
        after = ""
        for _ in range(PAGES_MAX):
            page = read_page(self._repo, start_after=after)
            if page.paused:
                return []
            entries += page.entries
            if page.next_after is None:
                break
            after = page.next_after
        return [one for one in _one_each(entries) if one.is_due(now_ms) and not one.is_over(now_ms)]

    def _note(self, plan: Plan, capacities: Sequence[Capacity], now_ms: int) -> AssignReport:
        before = self._document.get()
        hosts = _host_plans(plan, capacities, _since(before), now_ms)
        skipped = self._skipped(plan)
        report_of = (sum(len(one.jobs) for one in hosts), sum(one.count for one in skipped))
        if not self._is_news(before, hosts, skipped):
            return AssignReport(*report_of, written=False)
        now = self._repo.now()
        document = Assignments(
            counter=1 if before is None else min(before.counter + 1, COUNT_MAX),
            at=now,
            expires_at=now + timedelta(seconds=_VALID_TICKS * self._tick_seconds),
            by=self._by,
            hosts=hosts,
            planned=len(plan.placed),
            ends_ms=None if plan.ends_ms is None else min(plan.ends_ms, MILLISECONDS_MAX),
            skipped=skipped,
        )
        return AssignReport(*report_of, written=self._document.write(document))

    @property
    def _tick_seconds(self) -> float:
        return self._repo.deployment.tick_seconds

    def _is_news(
        self, before: Assignments | None, hosts: list[HostPlan], skipped: list[Skipped]
    ) -> bool:
        """Whether others would do something else by it, or what they have is about to expire."""
        if before is None:
            return bool(hosts or skipped)
        if _told(before.hosts) != _told(hosts) or before.skipped != skipped:
            return True
        left = before.expires_at - self._repo.now()
        return bool(hosts) and left.total_seconds() < _VALID_TICKS / 2 * self._tick_seconds

    def _skipped(self, plan: Plan) -> list[Skipped]:
        groups: dict[tuple[Unplanned, str | None, str | None], list[ReadyEntry]] = defaultdict(list)
        for why, entries in plan.unplanned.items():
            for entry in entries:
                groups[why, entry.needs.model, entry.needs.job_type].append(entry)
        self._learn_models(groups.values())
        found = [
            Skipped(
                code=why.value,
                text=_TEXTS[why],
                model=None if code is None else self._model_of(code),
                job_type=job_type_of(job_type),
                count=len(entries),
                example=entries[0].job_id,
            )
            for (why, code, job_type), entries in groups.items()
        ]
        return sorted(found, key=lambda one: (-one.count, one.code, one.example))[:SKIPPED_MAX]

    def _model_of(self, code: str) -> str:
        return self._models.get(code) or self._measuring.times.model_of(code) or f"#{code}"

    def _learn_models(self, groups: Iterable[list[ReadyEntry]]) -> None:
        """An entry's name has a code of its model only: one record of each is read, once."""
        examples = {
            code: entries[0].job_id
            for entries in groups
            if (code := entries[0].needs.model) is not None and code not in self._models
        }
        for code, job_id in list(examples.items())[:MODELS_READ_MAX]:
            try:
                found = self._repo.find_record(State.QUEUED, job_id)
            except Unreadable:
                continue
            model = None if found is None else found.value.spec.model
            if model is not None and model_code(model) == code:
                self._models[code] = model


_TEXTS = {
    Unplanned.NO_RUN_TIME: no_run_time_text("any host that could run it"),
    Unplanned.NO_HOST: "no host at work could run it, as far as is known",
    Unplanned.TOO_LATE: "it would end after its deadline on every host",
    Unplanned.NOT_PLANNED: "too many kinds of jobs wait: those ahead of it are planned",
}


def _one_each(entries: Sequence[ReadyEntry]) -> list[ReadyEntry]:
    """Of a job with several entries that of the latest epoch: which one its record computes to,
    only the record says."""
    latest: dict[str, ReadyEntry] = {}
    for entry in entries:
        known = latest.get(entry.job_id)
        if known is None or entry.epoch > known.epoch:
            latest[entry.job_id] = entry
    return [entry for entry in entries if latest[entry.job_id] is entry]


def _since(before: Assignments | None) -> dict[str, int]:
    """When each entry was assigned first, of those that have been ever since."""
    if before is None:
        return {}
    return {job.entry: job.since_ms for host in before.hosts for job in host.jobs}


def _host_plans(
    plan: Plan, capacities: Sequence[Capacity], since: dict[str, int], now_ms: int
) -> list[HostPlan]:
    """Those that begin first, as many as the document holds, and no later than it can say."""
    soon = [one for one in plan.placed if one.begins_ms <= MILLISECONDS_MAX]
    first = sorted(soon, key=lambda one: one.begins_ms)[:ASSIGNED_MAX]
    by_host: dict[str, list[Placed]] = defaultdict(list)
    for one in first:
        by_host[one.host].append(one)
    return [
        HostPlan(
            consumer=capacity.consumer,
            incarnation=capacity.incarnation,
            counter=capacity.counter,
            jobs=[
                Assignment(
                    entry=one.entry.name,
                    since_ms=min(since.get(one.entry.name, now_ms), now_ms),
                    seconds=one.run_time.seconds,
                    begins_ms=one.begins_ms,
                )
                for one in by_host[capacity.consumer]
            ],
        )
        for capacity in capacities
        if by_host[capacity.consumer]
    ]


def _told(hosts: Iterable[HostPlan]) -> dict[str, tuple[str, list[str]]]:
    """What agents go by."""
    return {one.consumer: (one.incarnation, sorted(job.entry for job in one.jobs)) for one in hosts}
