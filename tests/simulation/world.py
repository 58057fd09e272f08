"""One run: a store, hosts, programs, people and what happens to them, watched by the checkers.

First faults go on, and safety is checked at every step. Then all is healed, and everything has to
come to rest within a bound.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TextIO

from stado.core import keys
from stado.core.documents import decode
from stado.core.ids import milliseconds
from stado.core.order import parse_entry
from stado.core.records import (
    Capacity,
    EndCell,
    HostOrders,
    HostRelease,
    OpenCell,
    Proof,
    Record,
    RunRecord,
)
from stado.core.schedules import Schedule
from stado.core.settings import DeploymentSettings
from stado.core.spec import Request
from stado.core.states import Opening, State
from stado.errors import NotFound
from stado.jobs.deployments import make_deployment
from stado.jobs.repository import Repository
from stado.storage.memory import MemoryStore
from stado.storage.observe import Operation
from stado.storage.port import walk
from stado.storage.retry import RetryingStore
from tests.simulation.checkers import CHECKERS
from tests.simulation.checkers.base import HOOKS, Change, Checker, Violation
from tests.simulation.commands import Script, SimCommand
from tests.simulation.hardware import HostPlan
from tests.simulation.kernel import Kernel, Strand
from tests.simulation.machine import HostClock, SimEntropy, SimMeter, SimTasks, TrueClock, Unlocked
from tests.simulation.mishaps import Mishaps
from tests.simulation.network import Bucket, Line
from tests.simulation.people import Answer, Person
from tests.simulation.placing import fits
from tests.simulation.plan import Plan
from tests.simulation.process import SimHost, SimProcess, consumer_on
from tests.simulation.programs import AgentService, CoordinatorService, Service
from tests.simulation.trace import Trace
from tests.simulation.weather import Fate, Storm, Weather

_MEMORY = Path("/dev/shm")
FOLDERS = _MEMORY if os.access(_MEMORY, os.W_OK) else None
"""Where hosts have theirs: in memory, where there is such a file system; None: as is usual."""

_LOOK_SECONDS = 5.0
_CLOCKS_APART = timedelta(seconds=30)
"""So far what agents carry on of the store's clock may be ahead of it."""

_CREATES_AT_A_TIME = 3


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    seed: int
    violation: Violation | None
    steps: int
    requests: int
    jobs: int
    healed_seconds: float
    """From the end of all faults until everything was at rest."""
    events: Counter[str]
    """What was done, and what went wrong: starts, verdicts, fates of requests, mishaps."""
    digest: str
    """Of the whole trace."""


class World:
    """Made by `run`, or by a scenario that has a plan and a weather of its own."""

    def __init__(
        self,
        seed: int,
        folder: Path,
        *,
        plan: Plan | None = None,
        weather: Weather | None = None,
        out: TextIO | None = None,
    ) -> None:
        self.kernel = Kernel(seed)
        self.folder = folder
        self.plan = plan if plan is not None else Plan.drawn(self.kernel)
        self.kernel.now = self.plan.begins_at
        self.trace = Trace(self.kernel, folder, out)
        self.violation: Violation | None = None
        self.healing = False
        self.scripts: dict[str, Script] = {}
        self.messages: list[tuple[str, bytes]] = []
        """What was heard on which channel, in order."""
        self.known_orders: list[tuple[str, Request]] = []
        self.known_jobs: list[str] = []
        """Those whose submission was acknowledged."""
        self.jobs_left = self.plan.jobs_max
        self.started: list[SimCommand] = []
        self.rooms_kept = 0
        """How often a host has begun to keep room for a job."""
        self._make_store(weather)
        self._make_hosts()
        self.listen(CHECKERS)
        self.services: list[Service] = [
            *(AgentService(self, host) for host in self.hosts),
            *(CoordinatorService(self, host) for host in self.coordinator_hosts),
        ]
        for service in self.services:
            service.start()
        pause = self.plan.safety / 40
        self.people = [Person(self, host, pause=pause) for host in self.laptops]
        self.mishaps = Mishaps(self)

    def listen(self, kinds: Iterable[type[Checker]]) -> None:
        """Has these checkers hear of what happens, and no others."""
        self.checkers = [kind(self, self._note_violation) for kind in kinds]
        self._listeners = {
            hook: [one for one in self.checkers if hook in _hooks_of(type(one))] for hook in HOOKS
        }

    def _make_store(self, weather: Weather | None) -> None:
        plan = self.plan
        self.store = MemoryStore(
            TrueClock(self.kernel),
            Unlocked(),
            versions_by_content=plan.versions_by_content,
            watcher=self._note_change,
        )
        self.bucket = Bucket(self.store)
        self.weather: Weather = weather or Storm(self.kernel, plan.rates)
        self.listen(())
        self.deployment, _ = make_deployment(
            self.store,
            entropy=SimEntropy(self.kernel),
            proof=Proof(
                create_if_absent=True,
                compare_and_swap=True,
                conditional_delete=plan.ways.deletes_by_version,
            ),
            lease_seconds=plan.lease,
            cancel_grace_seconds=plan.grace,
            by="operator",
        )
        self.settings = plan.settings
        if self.settings != DeploymentSettings():
            self.store.create(keys.SETTINGS, self.settings.encode())

    def _make_hosts(self) -> None:
        self.hosts = [
            self._host(f"host-{number}", plan) for number, plan in enumerate(self.plan.hosts, 1)
        ]
        self.coordinator_hosts = [
            self._host(f"control-{number}") for number in range(1, self.plan.coordinators + 1)
        ]
        self.laptops = [self._host(f"laptop-{number}") for number in range(1, self.plan.people + 1)]

    def _host(self, name: str, plan: HostPlan | None = None) -> SimHost:
        folder = self.folder / name
        folder.mkdir()
        plan = plan or HostPlan()
        return SimHost(
            self.kernel,
            name,
            folder,
            rate=plan.rate,
            skew_seconds=plan.skew_seconds,
            plan=plan,
            on_error=self._note_error,
        )

    @property
    def has_channels(self) -> bool:
        """Whether there is a coordinator that sends notices."""
        return bool(self.plan.told and self.coordinator_hosts)

    @property
    def all_hosts(self) -> list[SimHost]:
        return [*self.hosts, *self.coordinator_hosts, *self.laptops]

    # --- what its parts ask of it -------------------------------------------------------

    def open_repository(self, host: SimHost) -> Repository:
        """The deployment, by a store of the shape that the product puts together."""
        clock, entropy, tasks = HostClock(host), SimEntropy(self.kernel), SimTasks(self.kernel)
        line = Line(self.kernel, self.bucket, self.weather, self.plan.ways, self)
        store = RetryingStore(
            line,
            clock=clock,
            entropy=entropy,
            tasks=tasks,
            concurrent_creates=None if self.plan.ways.creates_at_once else _CREATES_AT_A_TIME,
        )
        return Repository(
            store,
            self.deployment,
            clock=clock,
            entropy=entropy,
            tasks=tasks,
            meter=SimMeter(self.kernel),
        )

    def shows(self, state: State, job_id: str) -> bool:
        """Whether the store has a record of the job in this state."""
        try:
            self.store.head(keys.record(state, job_id))
        except NotFound:
            return False
        return True

    def openings(self, job_id: str) -> list[OpenCell]:
        """What has taken the job out of its rest so far."""
        names = [entry.key for entry in walk(self.store, keys.cells(job_id))]
        return [
            decode(OpenCell, name, self.store.get(name).data)
            for name in names
            if name.endswith(".open.json")
        ]

    def script_of(self, command: str) -> Script:
        return self.scripts.get(command, Script(seconds=0.5))

    def tell_start(self, command: SimCommand) -> None:
        self.trace.note(command.host.name, f"start {command.job_id} epoch {command.epoch}")
        self.started.append(command)
        command.on_end = self._tell_end
        self._tell_checkers("on_start", command)

    def _tell_end(self, command: SimCommand) -> None:
        self.trace.note(
            command.host.name,
            f"end {command.job_id} epoch {command.epoch}: {command.exit_code}",
        )
        self._tell_checkers("on_command_end", command)

    def tell_answer(self, answer: Answer) -> None:
        if answer.what == "submitted":
            new = [job_id for job_id in answer.job_ids if job_id not in self.known_jobs]
            self.known_jobs.extend(new)
        self._tell_checkers("on_answer", answer)

    # --- what its parts tell it ---------------------------------------------------------

    def note_request(
        self, process: SimProcess, operation: Operation, key: str, fate: Fate, answer: str
    ) -> None:
        self.trace.note_request(process, operation, key, fate, answer)
        self._tell_checkers("on_request", process, operation, key)

    def _note_change(self, key: str, before: bytes | None, after: bytes | None) -> None:
        change = Change(self.kernel.now, self.bucket.author, key, before, after)
        if key.startswith(keys.ROOMS) and before is None:
            self.rooms_kept += 1
        self._tell_checkers("on_change", change)

    def _tell_checkers(self, hook: str, *told: object) -> None:
        """A checker is called in the midst of a request: its own error must neither pass for an
        answer of the store, nor for one of whoever asks."""
        for checker in self._listeners[hook]:
            try:
                getattr(checker, hook)(*told)
            except Exception as error:  # noqa: BLE001 - what it cannot read breaks its rule
                text = f"it cannot be judged: {error!r}"
                self._note_violation(Violation(checker.rule, self.kernel.now, text), error)

    def _note_error(self, process: SimProcess, strand: Strand, error: BaseException) -> None:
        text = f"{process.name} on {process.host.name}, in {strand.name}: {error!r}"
        self._note_violation(Violation("no part ends by an error", self.kernel.now, text), error)

    def _note_fault(self, text: str) -> None:
        """A pass outlives it where it is a fault of the program; here it is what we look for."""
        self._note_violation(Violation("no part ends by an error", self.kernel.now, text))

    def _note_violation(self, violation: Violation, error: BaseException | None = None) -> None:
        if self.violation is None:
            self.violation = violation
            self.error = error
            self.trace.note("checker", f"VIOLATION {violation}")
        self.kernel.halt()

    # --- the run ------------------------------------------------------------------------

    def run(self) -> None:
        """Both phases; `violation` is set afterwards if a rule was broken."""
        with self.trace.with_logs(self._note_fault):
            self.kernel.run_until(self.plan.safety)
            self.heal()
            self.come_to_rest()
            self.check_at_end()

    def check_at_end(self) -> None:
        if self.violation is None:
            self._tell_checkers("at_end")

    def heal(self) -> None:
        self.trace.note("world", "healed")
        self.healing = True
        self.healed_at = self.kernel.now
        if isinstance(self.weather, Storm):
            self.weather.active = False
        self.mishaps.stop()
        self.store.create(keys.queue_mark(self._store_ms(), paused=False), b"operator")
        for host in self.hosts:
            self._open(host)
        for person in self.people:
            person.finish()

    def _open(self, host: SimHost) -> None:
        """For good: whoever would still close it finds another version."""
        consumer, now = consumer_on(host), self.store.now()
        release = HostRelease(by="operator", at=now + _CLOCKS_APART)
        orders = HostOrders(
            consumer=consumer,
            release=release,
            nonce=f"healed{milliseconds(now)}",
            changed_at=now,
            changed_by="operator",
        )
        self.store.put(keys.host_orders(consumer), orders.encode())

    def _open_quarantined(self) -> None:
        """Jobs that fail at once may close a host in calm, too."""
        for host in self.hosts:
            key = keys.capacity(consumer_on(host))
            try:
                hindrance = decode(Capacity, key, self.store.get(key).data).hindrance
            except NotFound:
                continue
            if hindrance is not None and hindrance.code == "quarantined":
                self._open(host)

    def _store_ms(self) -> int:
        return milliseconds(self.store.now())

    def come_to_rest(self) -> None:
        bound = self.healed_at + self.bound_seconds
        while not self.kernel.halted:
            unrest = self.unrest()
            if unrest is None:
                return
            if self.kernel.now >= self.healed_at + self.plan.ways.late_max:
                self._tell_checkers("on_look")
            self._open_quarantined()
            if self.kernel.now >= bound:
                text = f"after {self.bound_seconds:.0f} s of calm {unrest}"
                self._note_violation(Violation("all comes to rest", self.kernel.now, text))
                return
            self.kernel.run_until(self.kernel.now + _LOOK_SECONDS)

    @property
    def bound_seconds(self) -> float:
        """Late writes land, the longest jobs run one after another on the smallest host, and each
        of some steps waits for a lease and for the pauses of who tries again. A run that was left
        half written is found by a walk over all of them, one in a minute where lines are slow."""
        scripts = self.scripts.values()
        work = sum(script.seconds * (script.failures + 1) for script in scripts)
        kept = min(600.0, 2 * self.plan.room_waits.keep_after_seconds) if self.plan.placed else 0.0
        walk = 60.0 * len(self.store.list(keys.RUNS))
        return self.plan.ways.late_max + 3 * work + 12 * self.plan.lease + 900.0 + kept + walk

    @property
    def patience_seconds(self) -> float:
        """That a job may stand first in the queue once all is calm: until what runs where it could
        run has ended, twice, as room may be kept there for another one at first; what went wrong
        before is tried again after ten minutes, too."""
        return 2 * (self.plan.room_waits.keep_after_seconds + self._longest) + 700.0

    @property
    def _longest(self) -> float:
        """Seconds that a job can run."""
        scripts = self.scripts.values()
        lasting = max((script.seconds * (script.failures + 1) for script in scripts), default=0.0)
        return lasting + self.plan.grace + 4 * self.plan.lease

    def unrest(self) -> str | None:
        """What is not at rest yet; None: nothing."""
        if any(person.busy for person in self.people):
            return "somebody has not got an answer yet"
        if self.kernel.now < self.healed_at + self.plan.ways.late_max:
            return "late writes may come"
        found = itertools.chain(self._unrest_in_store(), self._unrest_on_hosts())
        return next(found, None)

    def _is_of_held_up(self, key: str) -> bool:
        name = key.removeprefix(keys.READY)
        entry = parse_entry(name) if name != key else None
        return self.is_held_up(entry.job_id if entry else keys.job_of_record(key))

    def is_held_up(self, job_id: str) -> bool:
        """Whether it is queued and stays so: no host that is left could run it, or it waits, be it
        by way of others, for a job that somebody has paused or that is held up itself."""
        try:
            key = keys.record(State.QUEUED, job_id)
            record = decode(Record, key, self.store.get(key).data)
        except NotFound:
            return False
        left = [host.plan for host in self.hosts if not host.vanished]
        if record.spec.deadline_at is None and not any(fits(one, record.spec) for one in left):
            return True
        return any(
            self.shows(State.PAUSED, one.job_id) or self.is_held_up(one.job_id)
            for one in record.awaits
        )

    def _unrest_in_store(self) -> Iterator[str]:
        return itertools.chain(self._unrest_of_jobs(), self._unfinished())

    def _unrest_of_jobs(self) -> Iterator[str]:
        for prefix in (keys.READY, keys.prefix(State.QUEUED), keys.prefix(State.RUNNING)):
            for entry in walk(self.store, prefix):
                if entry.key.startswith(keys.QUEUE_MARKS) or self._is_of_held_up(entry.key):
                    continue
                yield f"there is {entry.key}"
        at_rest = [
            keys.job_of_record(entry.key)
            for state in State
            if state.at_rest
            for entry in walk(self.store, keys.prefix(state))
        ]
        for job_id, count in Counter(at_rest).items():
            if count > 1:
                yield f"{job_id} rests in {count} prefixes"
        for job_id in set(self.known_jobs) - set(at_rest):
            if not self.is_held_up(job_id) and not self._was_deleted(job_id):
                yield f"{job_id} rests nowhere"

    def _unfinished(self) -> Iterator[str]:
        now = self.store.now()
        for entry in walk(self.store, keys.RUNS):
            run = decode(RunRecord, entry.key, self.store.get(entry.key).data)
            if not run.complete:
                yield f"{entry.key} is not complete"
        for entry in walk(self.store, keys.SCHEDULES):
            schedule = decode(Schedule, entry.key, self.store.get(entry.key).data)
            if schedule.firing is not None:
                yield f"{entry.key} is firing"
            if schedule.paused is None and (schedule.next_at or now) < now:
                yield f"{entry.key} is due"
        for entry in walk(self.store, keys.QUOTA):
            if entry.size:
                yield f"{entry.key} is taken"
        if self.has_channels:
            yield from (f"{one.key} was not sent" for one in walk(self.store, keys.NOTICES))

    def _was_deleted(self, job_id: str) -> bool:
        return any(cell.kind is Opening.DELETE for cell in self.openings(job_id))

    def _unrest_on_hosts(self) -> Iterator[str]:
        for host in self.hosts:
            for command in host.commands:
                yield f"{command.job_id} runs on {host.name}"
        for service in self.services:
            if isinstance(service, AgentService) and not service.host.vanished:
                for note in service.folder.notes():
                    yield f"{service.host.name} has a supervisor with {note.job_id}"

    def outcome(self, seed: int) -> Outcome:
        return Outcome(
            seed=seed,
            violation=self.violation,
            steps=self.kernel.steps,
            requests=self.trace.requests,
            jobs=len(self.known_jobs),
            healed_seconds=self.kernel.now - self.healed_at,
            events=self._events(),
            digest=self.trace.digest,
        )

    def _events(self) -> Counter[str]:
        events: Counter[str] = Counter(start=len(self.started))
        events["message"] = len(self.messages)
        events["room kept"] = self.rooms_kept
        events.update({f"request {fate}": count for fate, count in self.trace.faults.items()})
        events.update({f"mishap {name}": count for name, count in self.mishaps.counts.items()})
        for job_id in self.known_jobs:
            for entry in walk(self.store, keys.cells(job_id)):
                if entry.key.endswith(".end.json"):
                    end = decode(EndCell, entry.key, self.store.get(entry.key).data)
                    events[f"verdict {end.ending.verdict}"] += 1
                    events[f"reason {end.ending.reason}"] += 1
                    events["run again"] += (end.ending.runs or 1) - 1
                    adopted = end.record.holder is not None and end.record.holder.adopted
                    events["adoption"] += adopted
        return events


def _hooks_of(kind: type[Checker]) -> set[str]:
    """What it listens to: of most things most checkers want to hear nothing."""
    return {hook for hook in HOOKS if getattr(kind, hook) is not getattr(Checker, hook)}


@contextmanager
def made_world(
    seed: int,
    *,
    plan: Plan | None = None,
    weather: Weather | None = None,
    out: TextIO | None = None,
) -> Iterator[World]:
    """A world that leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="stado-sim-", dir=FOLDERS) as folder:
        world = World(seed, Path(folder), plan=plan, weather=weather, out=out)
        try:
            yield world
        finally:
            world.kernel.close()


def run(seed: int, *, out: TextIO | None = None) -> Outcome:
    """A run of everything that the seed draws."""
    with made_world(seed, out=out) as world:
        world.run()
        return world.outcome(seed)
