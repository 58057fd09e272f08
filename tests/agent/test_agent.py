"""The agent: what it lets in, whom it gives it to, and what it does about supervisors that die."""

from __future__ import annotations

import errno
import itertools
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.documents import decode
from stado.core.moves import Loss
from stado.core.records import Capacity
from stado.core.spec import Spec
from stado.core.states import Reason, State, Verdict
from stado.errors import AcceleratorsUnknown, NotFound
from stado.jobs.claim import Claimant
from stado.jobs.endings import ending_of_lost, give_verdict, settle
from stado.jobs.life import seal_epoch
from stado.ports import Accelerator, AcceleratorProcess, Engine, ProcessIdentity
from stado.storage.faults import FaultKind, FaultyStore
from stado.storage.observe import Operation
from stado.storage.port import Store
from stado_agent.agent import Agent, AgentSettings, HostPorts, LeaveAtOnce
from stado_agent.budget import Limits
from stado_agent.this_host import WhatItIs
from stado_agent.workspace import HostFolder, SupervisorNote
from tests.agent.fakes import (
    GIB,
    FakeHardware,
    FakeProcess,
    FakeProcesses,
    Script,
    TurnClock,
    TurnTasks,
)
from tests.agent.scene import DeathAt, Trouble
from tests.jobs.actors import GuardedStore
from tests.jobs.world import BOB, LEASE, World, give_back, heal, stored_log

NAME = "local@host-a"
STEPS_MAX = 5000


class Host:
    """A host with an agent on it, and a queue."""

    def __init__(self, folder: Path, *, cpu: float = 4.0, engine: Engine | None = None) -> None:
        self.engine = engine
        self.clock = TurnClock()
        self.world = World(clock=self.clock, tasks=TurnTasks(self.clock))
        self.processes = FakeProcesses(self.clock)
        self.hardware = FakeHardware(cpu=cpu)
        self.folder = HostFolder(folder, NAME)
        self.folder.make()
        self.trouble = Trouble(FaultKind.UNAVAILABLE, lambda *_: True)
        self.trouble.on = False
        self.salvage_trouble = Trouble(FaultKind.UNAVAILABLE, lambda _, key: "/log/" in key)
        self.salvage_trouble.on = False
        self.supervisors_trouble = Trouble(FaultKind.UNAVAILABLE, lambda *_: True)
        self.supervisors_trouble.on = False
        self.settings_trouble = Trouble(FaultKind.UNAVAILABLE, lambda _, key: key == keys.SETTINGS)
        self.settings_trouble.on = False
        own_orders = keys.host_orders(NAME)
        self.orders_trouble = Trouble(FaultKind.UNAVAILABLE, lambda _, key: key == own_orders)
        self.orders_trouble.on = False
        self.on_key: Callable[[Operation, str], object] = lambda *_: None
        """Before each request of the agent."""

        self.on_listing: Callable[[], object] = lambda: None
        """After the agent has listed the queue."""

        self.on_request: Callable[[], object] = lambda: None
        """Before each request of the agent."""

        self._failure: Exception | None = None

        self.agent = self.new_agent()

    def new_agent(
        self,
        *,
        limits: Limits | None = None,
        max_run_seconds: int | None = None,
        labels: tuple[str, ...] = (),
        before: Callable[[Operation, str], None] | None = None,
    ) -> Agent:
        listed: Store = GuardedStore(self.world.store, after=self._after)
        faulty: Store = FaultyStore(listed, self.clock, self.trouble)
        noted: Store = GuardedStore(faulty, before=self._note_key)
        troubled: Store = FaultyStore(noted, self.clock, self.settings_trouble)
        unheard: Store = FaultyStore(troubled, self.clock, self.orders_trouble)
        own: Store = GuardedStore(unheard, before=lambda *_: self.on_request())
        failing: Store = GuardedStore(self.world.store, before=self._fail_if_asked)
        guarded: Store = GuardedStore(failing, before=before)
        theirs: Store = FaultyStore(
            FaultyStore(guarded, self.clock, self.salvage_trouble),
            self.clock,
            self.supervisors_trouble,
        )
        return Agent(
            self.world.repo_over(own),
            self.world.repo_over(theirs),
            settings=AgentSettings(
                NAME,
                2.0,
                limits or Limits(),
                max_run_seconds=max_run_seconds,
                what=WhatItIs(labels=labels),
                version="1.0",
            ),
            host=HostPorts(
                self.folder,
                self.processes,
                self.hardware,
                {"PATH": "/bin"},
                engine=self.engine,
            ),
        )

    def _note_key(self, operation: Operation, key: str) -> None:
        self.on_key(operation, key)

    def _after(self, operation: Operation, key: str) -> None:
        if operation is Operation.LIST and key == keys.READY:
            self.on_listing()

    def _fail_if_asked(self, _operation: Operation, key: str) -> None:
        if self._failure is not None and key.endswith("/heartbeat"):
            failure, self._failure = self._failure, None
            raise failure

    # --- doing --------------------------------------------------------------------------

    def fail_supervisors(self, error: Exception) -> None:
        """The next beat of one of them ends it."""
        self._failure = error

    def submit(self, *commands: str, **spec: object) -> list[str]:
        """The ids, in the order of the queue."""
        before = {entry.job_id for entry in self.world.entries()}
        self.world.submit(*commands, spec=Spec(command="", **spec))  # type: ignore[arg-type]
        return [e.job_id for e in self.world.entries() if e.job_id not in before]

    def script(self, seconds: float, command: str = "true") -> None:
        self.processes.scripts[command] = Script(seconds=seconds)

    def step_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(STEPS_MAX):
            if condition():
                return
            self.agent.step()
        raise AssertionError("it never came so far")

    def step_until_at_rest(self, job_id: str) -> None:
        self.step_until(lambda: self.at_rest(job_id))

    def step_for(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        self.step_until(lambda: self.clock.monotonic() >= end)

    def step_to_start(self, count: int = 1) -> None:
        self.step_until(lambda: len(self.processes.executions) >= count)

    # --- looking ------------------------------------------------------------------------

    def capacity(self) -> Capacity:
        key = keys.capacity(NAME)
        return decode(Capacity, key, self.world.store.get(key).data)

    @property
    def hindrance(self) -> str | None:
        """The code of what keeps the agent from claiming, by its last report."""
        found = self.capacity().hindrance if self.world.has(keys.capacity(NAME)) else None
        return found.code if found is not None else None

    def running(self) -> int:
        return sum(bool(one.process.living()) for one in self.processes.executions)

    def living(self) -> list[FakeProcess]:
        return [process for process in self.processes.forked if process.exit_code is None]

    def at_rest(self, job_id: str) -> bool:
        states = self.world.states(job_id)
        return len(states) == 1 and all(state.at_rest for state in states)


def after_steps(count: int) -> Callable[[], bool]:
    """So many steps, and then the second signal."""
    steps = itertools.count(1)

    def drain_asked() -> bool:
        if next(steps) > count:
            raise LeaveAtOnce
        return False

    return drain_asked


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


# --- letting in -----------------------------------------------------------------------------


def test_the_head_of_the_queue_goes_to_a_new_supervisor_and_then_to_the_idle_one(
    host: Host,
) -> None:
    host.script(10)
    first, second = host.submit("true", "true", cpu=4)
    host.step_until(lambda: host.at_rest(first) and host.at_rest(second))
    assert len(host.processes.forked) == 1
    begun = [one.at for one in host.processes.executions]
    assert begun[1] - begun[0] < 15
    for job in (first, second):
        holder = host.world.record(State.COMPLETED, job).holder
        assert holder is not None
        assert (holder.consumer, holder.host) == (NAME, "host-a")


def test_never_more_is_let_in_than_there_is(host: Host) -> None:
    host.script(10)
    jobs = host.submit(*["true"] * 12, cpu=1.5)
    most = []

    def done() -> bool:
        most.append(host.running())
        return all(host.at_rest(job) for job in jobs)

    host.step_until(done)
    assert max(most) == 2
    assert len(host.processes.forked) == 2
    assert len(host.processes.executions) == 12


def test_jobs_run_beside_each_other_and_idle_supervisors_leave_after_a_while(host: Host) -> None:
    host.script(10)
    jobs = host.submit(*["true"] * 4)
    host.step_to_start(4)
    assert len(host.processes.forked) == 4
    host.step_until(lambda: all(host.at_rest(job) for job in jobs))
    host.step_for(70)
    assert host.living() == []
    assert {process.exit_code for process in host.processes.forked} == {0}
    assert all(process.polled for process in host.processes.forked)


def test_who_misses_a_job_gets_another(host: Host) -> None:
    """The agent's page of the queue is a moment old when another agent is faster."""
    first, second = host.submit("true", "true", cpu=4)
    host.processes.before_fork = lambda: _start_once(host.world)
    host.step_until(lambda: host.at_rest(second))
    assert host.world.states(first) == {State.RUNNING}
    assert len(host.processes.executions) == 1
    assert list(host.folder.notes()) == []


def _start_once(world: World) -> None:
    if not world.names(keys.prefix(State.RUNNING)):
        world.start(BOB)


def test_nothing_is_taken_that_does_not_fit(host: Host) -> None:
    (job,) = host.submit("true", cpu=64)
    host.step_for(30)
    assert host.world.states(job) == {State.QUEUED}
    assert host.processes.forked == []


# --- supervisors that die -------------------------------------------------------------------


def test_the_epoch_of_a_supervisor_that_died_is_ended_at_once_and_the_agent_rests(
    host: Host,
) -> None:
    host.script(100)
    (job,) = host.submit("true")
    host.step_to_start()
    (supervisor,) = host.living()
    (first,) = host.processes.executions
    host.step_for(5)
    died_at = host.clock.monotonic()
    supervisor.kill()
    host.step_until(lambda: host.world.has(keys.end_cell(job, 1)))
    assert host.clock.monotonic() - died_at < 1
    ending = host.world.repo.find_end(job, 1)
    assert ending is not None
    assert (ending.ending.verdict, ending.ending.reason) == (
        Verdict.LOST,
        Reason.SUPERVISOR_DIED,
    )
    assert ending.ending.started_at is not None
    assert first.process.exit_code == -signal.SIGKILL
    assert list(host.folder.notes()) == []
    host.step_until(lambda: not list((host.folder.root / "jobs").iterdir()))
    host.step_to_start(2)
    assert host.processes.executions[1].at - died_at >= 2
    host.step_until(lambda: host.at_rest(job))
    final = host.world.record(State.COMPLETED, job)
    assert (final.epoch, final.starts) == (2, 2)


def test_a_supervisor_that_dies_at_any_request_costs_no_rule(tmp_path: Path) -> None:
    at = 0
    while True:
        host = Host(tmp_path / str(at))
        host.script(20)
        death = DeathAt(host.processes, at=at)
        host.agent = host.new_agent(before=death)
        (job,) = host.submit("true")
        host.step_until_at_rest(job)
        if death.met is None:
            break
        assert heal(host.world, job) == [], death.met
        final = host.world.record(State.COMPLETED, job)
        assert len(host.processes.executions) <= final.starts, death.met
        assert host.running() == 0
        at += 1
    assert at > 10


def test_a_store_that_is_away_is_told_of_a_death_once_it_is_back(host: Host) -> None:
    """What ran is ended at once; a reaper may be faster with the epoch."""
    host.script(50)
    (job,) = host.submit("true")
    host.step_to_start()
    host.trouble.on = True
    host.living()[0].kill()
    host.step_for(10)
    assert host.running() == 0
    assert host.world.states(job) == {State.RUNNING}
    host.trouble.on = False
    host.step_until(lambda: host.at_rest(job))
    ending = host.world.repo.find_end(job, 1)
    assert ending is not None
    assert ending.ending.reason is Reason.SUPERVISOR_DIED


def test_an_idle_supervisor_that_died_is_replaced(host: Host) -> None:
    host.script(5)
    (first,) = host.submit("true")
    host.step_until(lambda: host.at_rest(first))
    host.step_for(3)
    (idle,) = host.living()
    (second,) = host.submit("true")
    idle.kill()
    host.step_until(lambda: host.at_rest(second))
    assert len(host.processes.executions) == 2
    assert idle.polled


def test_a_supervisor_that_dies_just_before_it_gets_a_job_leaves_nothing_behind(
    host: Host,
) -> None:
    """Its channel is found closed at the hand-over; the job goes to another one."""
    host.script(5)
    (first,) = host.submit("true")
    host.step_until(lambda: host.at_rest(first))
    host.step_for(3)
    (idle,) = host.living()
    host.on_listing = lambda: idle.kill() if host.world.entries() else None
    (second,) = host.submit("true")
    host.step_until(lambda: host.at_rest(second))
    assert idle.polled
    assert idle.channel.closed  # type: ignore[attr-defined]


def test_a_hung_supervisor_is_killed_and_one_that_gives_signs_is_not(host: Host) -> None:
    host.script(3 * LEASE)
    hung, healthy = host.submit("true", "true", cpu=2)
    host.step_to_start(2)
    first, second = host.living()
    by_job = {note.job_id: note.supervisor for note in host.folder.notes()}
    if by_job[hung] != first.identity:
        first, second = second, first
    first.frozen = True
    touch_regularly(host, second)
    host.step_until(lambda: host.world.has(keys.end_cell(hung, 1)))
    assert 2 * LEASE <= host.clock.monotonic() < 2 * LEASE + 3 * LEASE / 8
    assert first.exit_code == -signal.SIGKILL
    assert second.exit_code is None
    host.step_until(lambda: host.at_rest(healthy))
    assert host.world.record(State.COMPLETED, healthy).epoch == 1


def touch_regularly(host: Host, supervisor: FakeProcess) -> None:
    """Real files have the real time, which hardly moves here."""
    note = host.folder.root / "supervisors" / f"{supervisor.identity.pid}.json"
    begin = host.clock.monotonic()

    def touch(number: int) -> None:
        if note.exists():
            os.utime(note, (number, number))

    for number in range(1, 40):
        host.clock.at(begin + number * 15, partial(touch, number))


# --- an agent after another -----------------------------------------------------------------


def test_living_supervisors_of_an_earlier_agent_are_counted_and_the_dead_looked_after(
    host: Host,
) -> None:
    host.script(60)
    dead, living = host.submit("true", "true", cpu=2)
    host.step_to_start(2)
    by_job = {note.job_id: note.supervisor for note in host.folder.notes()}
    for process in host.living():
        process.channel.close()  # the agent is gone
        if process.identity == by_job[dead]:
            process.kill()
    third, _ = host.submit("true", "true", cpu=2)
    host.agent = host.new_agent()
    host.agent.run(after_steps(8))
    end = host.world.repo.find_end(dead, 1)
    assert end is not None
    assert end.ending.reason is Reason.SUPERVISOR_DIED
    assert host.running() == 2
    assert host.world.states(third) == {State.QUEUED}
    host.step_until(lambda: host.at_rest(living))
    assert host.world.record(State.COMPLETED, living).epoch == 1
    assert host.world.record(State.COMPLETED, living).starts == 1


@pytest.mark.parametrize("another", [False, True])
def test_a_job_that_ends_its_agent_with_its_supervisor_has_completed(
    host: Host, another: bool
) -> None:
    """R192: the next agent finds it so; the one that had claimed it has not ended."""
    host.script(60)
    (job,) = host.submit("true", terminates_agent=True)
    host.step_to_start()
    (supervisor,) = host.living()
    host.step_for(30)
    supervisor.kill()
    if another:
        supervisor.channel.close()
        host.agent = host.new_agent()
        host.agent.run(after_steps(8))
    host.step_until(lambda: host.world.has(keys.end_cell(job, 1)))
    end = host.world.repo.find_end(job, 1)
    assert end is not None
    expected = Reason.AGENT_TERMINATED_AS_DECLARED if another else Reason.SUPERVISOR_DIED
    assert end.ending.reason is expected
    assert host.running() == 0


def test_a_supervisor_that_outlived_its_agent_ends_no_agent_when_it_dies(host: Host) -> None:
    """R192: an agent was started anew, as for an update, and later the supervisor was killed."""
    host.script(3000)
    (job,) = host.submit("true", terminates_agent=True)
    host.step_to_start()
    (supervisor,) = host.living()
    supervisor.channel.close()
    host.agent = host.new_agent()
    host.agent.take_back()
    host.step_for(60)
    supervisor.kill()
    host.step_until(lambda: host.world.has(keys.end_cell(job, 1)))
    end = host.world.repo.find_end(job, 1)
    assert end is not None
    assert end.ending.reason is Reason.SUPERVISOR_DIED


def test_a_hung_supervisor_of_an_earlier_agent_is_killed(host: Host) -> None:
    host.script(3 * LEASE)
    (job,) = host.submit("true")
    host.step_to_start()
    (hung,) = host.living()
    hung.frozen = True
    hung.channel.close()
    host.agent = host.new_agent()
    begin = host.clock.monotonic()
    host.agent.run(after_steps(2))
    host.step_until(lambda: host.world.has(keys.end_cell(job, 1)))
    host.step_until(lambda: hung.exit_code is not None)
    assert 2 * LEASE <= host.clock.monotonic() - begin < 2 * LEASE + 40
    assert hung.exit_code == -signal.SIGKILL
    assert host.processes.executions[0].process.exit_code == -signal.SIGKILL


def test_the_epoch_that_a_supervisor_had_adopted_is_ended_when_it_dies(host: Host) -> None:
    host.script(100)
    (job,) = host.submit("true", cpu=4)
    host.step_to_start()
    declare_lost(host.world, job)
    host.step_until(lambda: host.world.has(keys.claim_cell(job, 2)))
    host.step_for(5)
    host.living()[0].kill()
    host.step_until(lambda: host.world.has(keys.end_cell(job, 2)))
    end = host.world.repo.find_end(job, 2)
    assert end is not None
    assert end.ending.reason is Reason.SUPERVISOR_DIED


def declare_lost(world: World, job: str) -> None:
    """A reaper seals the present epoch and gives it back."""
    record = world.find(job).record
    assert seal_epoch(world.repo, record, world.repo.find_heartbeat(job), by="x")
    loss = Loss(
        started_at=None,
        heard_at=None,
        by="x",
        reason=Reason.LEASE_EXPIRED,
        detail="lost",
    )
    give_verdict(world.repo, record, ending_of_lost(world.repo, record, loss))
    settle(world.repo, job, record.epoch)


def test_an_epoch_that_somebody_else_has_by_now_is_not_ended(host: Host) -> None:
    host.script(60)
    (job,) = host.submit("true")
    host.step_to_start()
    (supervisor,) = host.living()
    supervisor.frozen = True
    declare_lost(host.world, job)
    host.world.start(BOB)
    supervisor.kill()
    host.step_for(20)
    assert host.world.states(job) == {State.RUNNING}
    assert host.world.repo.cells(job).ends == {1}


def test_an_agent_of_the_same_name_on_another_host_is_left_alone(host: Host) -> None:
    """Two hosts were given one name, and one folder, by mistake."""
    (job,) = host.submit("true")
    entry = host.world.entries()[0]
    host.world.start(Claimant(NAME, "another", "host-b"))
    gone = ProcessIdentity(99, 99)
    host.folder.write_note(SupervisorNote(gone, job, 1, entry.needs, f"{job}.1"))
    host.agent.run(after_steps(3))
    assert host.world.states(job) == {State.RUNNING}
    assert host.world.repo.cells(job).ends == set()


def test_a_supervisor_of_the_agent_before_that_wakes_up_late_is_counted(host: Host) -> None:
    """It was frozen when this agent began, had no job then, and took up its last order when it
    woke. What it has is given to nobody else, and what it leaves when it dies is seen to."""
    host.agent.take_back()
    host.processes.fork(lambda _: host.clock.sleep(1e6))
    (stranger,) = host.processes.forked
    (job,) = host.submit("true", cpu=3, not_before=host.world.repo.now() + timedelta(days=1))
    needs = host.world.entries()[0].needs
    host.folder.write_note(SupervisorNote(stranger.identity, job, 1, needs, f"{job}.1"))
    host.step_for(LEASE / 8 + 2)
    assert host.capacity().cpu_free == 1
    assert [report.job_id for report in host.capacity().jobs] == [job]
    stranger.kill()
    host.step_for(LEASE / 8 + 2)
    assert host.capacity().cpu_free == 4
    assert list(host.folder.notes()) == []


# --- what others see, and the end -----------------------------------------------------------


def test_a_broadcast_tells_what_there_is_and_what_runs(host: Host) -> None:
    host.script(60)
    (job,) = host.submit("true", cpu=3, memory_gb=2)
    host.agent.step()
    first = host.capacity()
    assert (first.consumer, first.host, first.version) == (NAME, "host-a", "1.0")
    assert (first.cpu_total, first.memory_total_gb, first.disk_free_gb) == (4, 16, 100)
    assert (first.draining, first.stopped, first.jobs) == (False, False, [])
    host.step_for(LEASE / 8 + 2)
    second = host.capacity()
    assert second.counter > first.counter
    assert second.incarnation == first.incarnation
    assert (second.cpu_free, second.memory_free_gb) == (1, 14)
    (report,) = second.jobs
    assert (report.job_id, report.epoch) == (job, 1)
    assert report.signs > 0


def test_a_broadcast_tells_of_accelerators_and_who_uses_them(host: Host) -> None:
    """R179: each by its id; of what a job uses whose it is, of what others use which pids."""
    host.script(60)
    (job,) = host.submit("true")
    host.step_to_start()
    pid = host.processes.forked[0].commands[0].identity.pid
    host.hardware.devices = [
        Accelerator(
            uuid="GPU-0",
            kind="a100-sxm4-80gb",
            index=0,
            vram_total_mib=81_920,
            vram_used_mib=30_000,
            vram_free_mib=51_000,
            processes=(AcceleratorProcess(pid, 10_000), AcceleratorProcess(7, 20_000)),
        )
    ]
    host.step_for(LEASE / 8 + 2)
    (card,) = host.capacity().accelerators
    assert (card.uuid, card.jobs, card.other_pids) == ("GPU-0", [job], [7])
    assert card.vram_used_by_others_mib == 20_000
    assert host.capacity().disk_total_gb == 100
    assert host.capacity().disk_reserve_gb == 1
    host.hardware.devices_error = AcceleratorsUnknown("the driver does not answer")
    host.step_for(LEASE / 8 + 2)
    assert host.capacity().accelerators == []
    assert host.capacity().accelerators_unknown == "the driver does not answer"


def test_what_begins_and_ends_here_is_told_soon(host: Host) -> None:
    """`hosts` and `job why` go by it. A quiet agent says no more than once a beat."""
    beat = LEASE / 8
    host.script(30)
    host.step_for(2 * beat)
    quiet = host.capacity().counter
    (job,) = host.submit("true", cpu=4)
    host.step_to_start()
    host.step_for(beat / 4 + 1.5)
    assert (host.capacity().cpu_free, len(host.capacity().jobs)) == (0, 1)
    host.step_until(lambda: host.at_rest(job))
    host.step_for(beat / 4 + 1.5)
    assert (host.capacity().cpu_free, len(host.capacity().jobs)) == (4, 0)
    told = host.capacity().counter
    assert told <= quiet + 6
    host.step_for(4 * beat)
    assert host.capacity().counter <= told + 5


def test_limits_are_what_is_broadcast(host: Host) -> None:
    host.agent = host.new_agent(limits=Limits(cpu=2, memory_gb=3))
    host.agent.step()
    assert (host.capacity().cpu_total, host.capacity().memory_total_gb) == (2, 3)


def test_a_draining_agent_takes_nothing_and_leaves_when_all_has_ended(host: Host) -> None:
    host.script(30)
    (job,) = host.submit("true")
    host.step_to_start()
    (later,) = host.submit("true")
    host.agent.drain()
    host.agent.step()
    assert host.capacity().draining
    host.agent.run(lambda: False)
    assert host.at_rest(job)
    assert host.world.states(later) == {State.QUEUED}
    assert (host.capacity().stopped, host.capacity().draining) == (True, True)
    host.clock.sleep(1)
    assert host.living() == []


def test_an_agent_that_leaves_at_once_leaves_the_job_to_its_supervisor(host: Host) -> None:
    host.script(30)
    (job,) = host.submit("true")
    host.step_to_start()
    host.agent.run(after_steps(0))
    assert host.capacity().stopped
    host.clock.sleep(60)
    assert host.at_rest(job)


def test_a_store_that_is_away_ends_neither_the_agent_nor_what_runs(host: Host) -> None:
    host.script(30)
    first, second = host.submit("true", "true", cpu=4)
    host.step_to_start()
    host.trouble.on = True
    host.step_for(60)
    assert host.at_rest(first)
    assert host.world.states(second) == {State.QUEUED}
    host.trouble.on = False
    host.step_until(lambda: host.at_rest(second))


def test_a_farewell_that_the_store_does_not_take_is_no_error(host: Host) -> None:
    host.trouble.on = True
    host.agent.drain()
    host.agent.run(lambda: False)
    with pytest.raises(NotFound):
        host.capacity()


def test_a_host_that_fails_for_a_while_ends_no_agent(host: Host) -> None:
    """It cannot fork, or does not tell what room it has: what waits is tried again."""
    host.script(5)
    (job,) = host.submit("true")
    host.processes.fork_error = BlockingIOError(11, "Resource temporarily unavailable")
    host.step_for(20)
    host.hardware.disk_error = PermissionError(13, "Permission denied")
    host.step_for(20)
    assert host.world.states(job) == {State.QUEUED}
    host.processes.fork_error = None
    host.step_for(20)
    hindrance = host.capacity().hindrance
    assert hindrance is not None
    assert (hindrance.code, "Permission denied" in hindrance.detail) == ("host_unable", True)
    host.hardware.disk_error = None
    host.step_until(lambda: host.at_rest(job))
    host.step_for(20)
    assert host.capacity().hindrance is None


def test_what_a_host_refuses_when_a_supervisor_died_ends_no_agent(
    host: Host,
) -> None:
    """Its note cannot be removed: the epoch is ended all the same, and the agent goes on."""
    host.script(50)
    (job,) = host.submit("true")
    host.step_to_start()
    (supervisor,) = host.living()
    supervisor.kill()
    note = host.folder.root / "supervisors" / f"{supervisor.identity.pid}.json"
    note.unlink()
    note.mkdir()
    host.step_until(lambda: host.at_rest(job))
    assert host.world.record(State.COMPLETED, job).epoch == 2


# --- a host that cannot start anything ---------------------------------------------------------


def test_a_full_disk_stops_the_claiming_and_nothing_else(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    """A57's kind: the reason is published, what runs goes on, one warning is logged; and it is
    over when there is room again, with some to spare."""
    host.script(100)
    first, second = host.submit("true", "true", cpu=4)
    host.step_to_start()
    host.hardware.disk_free = GIB // 2
    with caplog.at_level("WARNING"):
        host.step_until(lambda: host.at_rest(first))
        host.step_for(60)
    assert host.world.states(second) == {State.QUEUED}
    hindrance = host.capacity().hindrance
    assert hindrance is not None
    assert hindrance.code == "disk_full"
    assert "512 MiB free" in hindrance.detail
    assert "--disk-reserve-gb" in hindrance.detail
    assert len([one for one in caplog.records if "claims_nothing" in one.getMessage()]) == 1
    host.hardware.disk_free = round(1.05 * GIB)
    host.step_for(30)
    assert host.world.states(second) == {State.QUEUED}
    host.hardware.disk_free = 2 * GIB
    host.step_until(lambda: host.at_rest(second))
    host.step_for(LEASE / 8 + 1)
    assert host.capacity().hindrance is None


def test_a_host_that_cannot_start_jobs_tries_one_now_and_then(host: Host) -> None:
    """It does not draw the queue through itself; the jobs lose nothing."""
    refusal = OSError(errno.ENOMEM, "Cannot allocate memory")
    host.processes.scripts["true"] = Script(refused=refusal)
    jobs = host.submit(*["true"] * 20)
    host.step_until(lambda: host.hindrance == "host_unable")
    hindrance = host.capacity().hindrance
    assert hindrance is not None
    assert "Cannot allocate memory" in hindrance.detail
    host.step_for(600)
    tried = sum(len(host.world.repo.cells(job).ends) for job in jobs)
    assert 4 <= tried <= 4 + 8
    host.script(5)
    host.step_until(lambda: all(host.at_rest(job) for job in jobs))
    for job in jobs:
        record = host.world.record(State.COMPLETED, job)
        assert (record.starts, record.lease_losses) == (1, 0)


# --- what dead supervisors left -----------------------------------------------------------------


def test_what_a_dead_supervisor_left_of_a_log_is_brought_to_the_store(host: Host) -> None:
    """A48: also when the store was away when it died, and another agent has to do it."""
    host.script(1000)
    (job,) = host.submit("true")
    host.step_to_start()
    host.step_for(5)
    host.processes.executions[0].process.print(b"unsent\n")
    (supervisor,) = host.living()
    supervisor.channel.close()
    supervisor.kill()
    host.salvage_trouble.on = True
    before: list[bytes] = []

    def mend() -> None:
        before.append(stored_log(host.world.repo, job, 1))
        host.salvage_trouble.on = False

    host.clock.at(host.clock.monotonic() + 70, mend)
    host.agent = host.new_agent()
    host.agent.run(after_steps(200))
    assert before == [b"begun\n"]
    assert stored_log(host.world.repo, job, 1) == b"begun\nunsent\n"
    in_use = {note.workspace for note in host.folder.notes()}
    assert {path.name for path in (host.folder.root / "jobs").iterdir()} == in_use


def test_a_note_from_before_the_host_was_started_again_names_nobody_who_lives(
    host: Host,
) -> None:
    """Its pid and start may be another process's by now: the epoch is given back at once."""
    host.script(1000)
    (job,) = host.submit("true")
    host.step_to_start()
    (supervisor,) = host.living()
    supervisor.channel.close()
    host.hardware.boot = "boot-2"
    host.agent = host.new_agent()
    host.agent.run(after_steps(2))
    end = host.world.repo.find_end(job, 1)
    assert end is not None
    assert end.ending.reason is Reason.SUPERVISOR_DIED


def test_what_held_a_command_together_is_ended_with_its_supervisor(host: Host) -> None:
    """A21: what left the session of a dead supervisor is still in there."""
    host.script(1000)
    host.submit("true")
    host.step_to_start()
    host.step_for(1)
    (note,) = host.folder.notes()
    (supervisor,) = host.living()
    supervisor.kill()
    host.step_until(lambda: bool(host.processes.ended_enclosures))
    assert host.processes.ended_enclosures == [Path(folder) for folder in note.enclosure]


def test_a_job_that_a_supervisor_here_has_in_hand_is_left_to_it(host: Host) -> None:
    """A66: it was declared lost while its supervisor could not reach the store. Nobody else on
    this host begins it again, and its own supervisor carries it on."""
    host.script(300)
    (job,) = host.submit("true")
    host.step_to_start()
    host.step_for(5)
    host.supervisors_trouble.on = True
    give_back(host.world, job)
    host.step_for(60)
    assert host.world.states(job) == {State.QUEUED}
    host.supervisors_trouble.on = False
    host.step_until(lambda: host.at_rest(job))
    record = host.world.record(State.COMPLETED, job)
    assert (record.epoch, record.starts) == (2, 1)
    assert len(host.processes.executions) == 1
