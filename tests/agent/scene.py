"""One job on one host, beside whatever else a test lets happen to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stado.core import keys
from stado.core.documents import decode
from stado.core.records import Ending, Heartbeat, LateResult, Record
from stado.core.settings import DeploymentSettings
from stado.core.spec import Spec
from stado.jobs.claim import ANY_PLACE, Claimed, Place
from stado.jobs.life import seal_epoch
from stado.jobs.reaping import Reaper
from stado.ports import Engine, ProcessIdentity
from stado.storage.faults import Fault, FaultKind, FaultPlan, FaultyStore
from stado.storage.meter import RequestMeter
from stado.storage.observe import Operation
from stado.storage.port import Store
from stado_agent.host import LOG_LIMIT_DEFAULT, Host
from stado_agent.job_run import JobRun
from stado_agent.secrets import Secrets, SecretSettings
from stado_agent.workspace import HostFolder, SupervisorNote
from tests.agent.fakes import FakeProcess, FakeProcesses, Script, TurnClock, TurnTasks
from tests.jobs.actors import GuardedStore
from tests.jobs.world import ALICE, BOB, TICK, World, give_back, heal, stored_log

IN_CELLS = {Operation.CREATE, Operation.GET, Operation.LIST}


@dataclass(frozen=True)
class Request:
    """What was asked of the store, and when."""

    operation: Operation
    key: str
    at: float


class Scene:
    """The world, a host in it that belongs to Alice, and a queued job."""

    def __init__(self, folder: Path, spec: Spec | None = None, *, command: str = "train") -> None:
        self.clock = TurnClock()
        self.world = World(clock=self.clock, tasks=TurnTasks(self.clock))
        self.processes = FakeProcesses(self.clock)
        self.folder = HostFolder(folder, ALICE.consumer)
        self.folder.make()
        self.job = self.world.submit(command, spec=spec)
        self.entry = self.world.entries()[0]
        self.log_limit = LOG_LIMIT_DEFAULT
        self.environment = {"PATH": "/bin"}
        self.secrets = Secrets(SecretSettings())
        self.engine: Engine | None = None
        self.rules = DeploymentSettings()
        """Of the deployment, as the agent knows them at the claim."""
        self.max_run_seconds: int | None = None
        self.requests: list[Request] = []
        """Of the supervisors on this host."""

        self.meter: RequestMeter | None = None
        """Counts them, where a test asks for it: each as a write."""

    # --- doing --------------------------------------------------------------------------

    def script(self, script: Script, command: str = "train") -> None:
        self.processes.scripts[command] = script

    def claim(self, place: Place = ANY_PLACE) -> Claimed:
        return self.world.claimed_of(self.job, self.rules, place)

    def lose_epoch_one(self) -> None:
        """Somebody had the job and died: epoch 2 is queued."""
        self.world.start(BOB)
        self.world.lose(Reaper(self.world.repo, by="coordinator"))
        self.entry = self.world.entries()[0]

    def run(
        self,
        claimed: Claimed,
        *,
        faults: FaultPlan | None = None,
        before: Callable[[Operation, str], None] | None = None,
    ) -> FakeProcess:
        """A supervisor with this epoch, to its end."""
        store = self.store(faults, before)

        def work() -> None:
            self.folder.write_note(self._note())
            self.job_run(claimed, store).run()

        return self.processes.run(work)

    def _note(self) -> SupervisorNote:
        name = self.folder.workspace(self.job, self.entry.epoch).root.name
        return SupervisorNote(
            supervisor=self.processes.own_identity(),
            job_id=self.job,
            epoch=self.entry.epoch,
            needs=self.entry.needs,
            workspace=name,
        )

    def job_run(self, claimed: Claimed, store: Store) -> JobRun:
        """In the process that calls it."""
        repo = self.world.repo_over(store)
        repo.meter = self.meter
        return JobRun(repo, self.host(), claimed, self.entry, rules=self.rules)

    def host(self) -> Host:
        identity: ProcessIdentity = self.processes.own_identity()
        return Host(
            self.processes,
            self.folder,
            ALICE,
            self.environment,
            identity,
            log_limit=self.log_limit,
            secrets=self.secrets,
            engine=self.engine,
            max_run_seconds=self.max_run_seconds,
        )

    def store(
        self,
        faults: FaultPlan | None = None,
        before: Callable[[Operation, str], None] | None = None,
    ) -> Store:
        """The store as the supervisors of this host see it."""

        def note(operation: Operation, key: str) -> None:
            self.requests.append(Request(operation, key, self.clock.monotonic()))
            if self.meter is not None:
                self.meter.send(dear=1)
            assert not key.startswith(keys.cells(self.job)) or operation in IN_CELLS
            if before is not None:
                before(operation, key)

        inner: Store = self.world.store
        if faults is not None:
            inner = FaultyStore(inner, self.clock, faults)
        return GuardedStore(inner, before=note)

    # --- what happens meanwhile ---------------------------------------------------------

    def seal(self) -> None:
        """A reaper seals the running epoch, and dies."""
        record = self.world.find(self.job).record
        last = self.world.repo.find_heartbeat(self.job)
        assert seal_epoch(self.world.repo, record, last, by="coordinator")

    def give_back(self) -> None:
        """A reaper seals the running epoch and declares it lost."""
        give_back(self.world, self.job)

    def give_to_bob(self) -> None:
        """The epoch is declared lost, and another agent has the next one."""
        self.give_back()
        self.world.start(BOB)

    def watch(self, *, seconds: float) -> None:
        """A reaper looks at everything each tick."""
        reaper = Reaper(self.world.repo, by="coordinator")
        for tick in range(int(seconds / TICK)):
            self.clock.at(self.clock.monotonic() + tick * TICK, reaper.turn)

    # --- looking ------------------------------------------------------------------------

    def heal(self) -> list[int]:
        """The epochs that somebody else had to run before all was well."""
        return [epoch for _, epoch in heal(self.world, self.job)]

    @property
    def final(self) -> Record:
        """The job at rest, which is in one prefix."""
        (state,) = self.world.states(self.job)
        assert state.at_rest
        assert not self.world.names(keys.READY)
        return self.world.record(state, self.job)

    @property
    def ending(self) -> Ending:
        ending = self.final.ending
        assert ending is not None
        return ending

    @property
    def commands(self) -> list[str]:
        """Those that were started on this host, in order."""
        return [execution.text for execution in self.processes.executions]

    @property
    def environments(self) -> list[Mapping[str, str]]:
        """What these found in their environments."""
        return [execution.environment for execution in self.processes.executions]

    def ending_of(self, epoch: int) -> Ending:
        cell = self.world.repo.find_end(self.job, epoch)
        assert cell is not None
        return cell.ending

    def log(self, epoch: int) -> bytes:
        return stored_log(self.world.repo, self.job, epoch)

    def heartbeat(self) -> Heartbeat:
        found = self.world.repo.find_heartbeat(self.job)
        assert found is not None
        return found.value

    def late(self, epoch: int) -> LateResult | None:
        key = keys.late(self.job, epoch)
        if not self.world.has(key):
            return None
        return decode(LateResult, key, self.world.store.get(key).data)

    def output(self, epoch: int, path: str) -> bytes:
        return self.world.store.get(keys.output_file(self.job, epoch, path)).data


class FaultAt:
    """Request number `at` (from 0) meets a fault, and with `seconds` all that follow for so
    long."""

    def __init__(
        self, clock: TurnClock, kind: FaultKind, *, at: int, seconds: float | None = None
    ) -> None:
        self._clock = clock
        self._fault = Fault(kind)
        self._left = at
        self._seconds = seconds
        self._until: float | None = None
        self.met: tuple[Operation, str] | None = None

    def next(self, operation: Operation, key: str) -> Fault | None:
        if self._until is not None:
            return self._fault if self._clock.monotonic() < self._until else None
        self._left -= 1
        if self._left >= 0:
            return None
        self.met = (operation, key)
        self._until = self._clock.monotonic() + (self._seconds or 0.0)
        return self._fault


class DeathAt:
    """At request number `at` (from 0), before it is made: the process is killed, or something
    that nobody foresaw is raised."""

    def __init__(
        self, processes: FakeProcesses, *, at: int, error: Exception | None = None
    ) -> None:
        self._processes = processes
        self._left = at
        self._error = error
        self.met: tuple[Operation, str] | None = None

    def __call__(self, operation: Operation, key: str) -> None:
        self._left -= 1
        if self._left != -1:
            return
        self.met = (operation, key)
        if self._error is not None:
            raise self._error
        self._processes.kill_self()


class Trouble:
    """Some requests meet a fault for as long as a test likes."""

    def __init__(self, kind: FaultKind, matches: Callable[[Operation, str], bool]) -> None:
        self._fault = Fault(kind)
        self._matches = matches
        self.on = True

    def next(self, operation: Operation, key: str) -> Fault | None:
        return self._fault if self.on and self._matches(operation, key) else None
