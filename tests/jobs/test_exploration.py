"""One job; two agents, a canceller and a reaper. Whoever of them is stopped at whichever request,
for ever or for a while, the rules hold at every step, and everything ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from stado.core import keys
from stado.core.documents import decode
from stado.core.records import Heartbeat, Phase
from stado.core.states import State
from stado.errors import NotFound, StadoError
from stado.jobs.changes import cancel
from stado.jobs.claim import Claimant
from stado.jobs.finding import find_job
from stado.jobs.life import LifeSigns
from stado.jobs.reaping import Reaper
from stado.jobs.repository import Repository
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.observe import WRITES, CountingStore, Operation
from stado.storage.port import Store
from tests.jobs.actors import Actor, Crash, GuardedStore, mortal
from tests.jobs.fakes import FakeClock, FakeEntropy
from tests.jobs.world import ALICE, BOB, LEASE, TICK, World, claim_head, end, heal

_IN_CELLS = {Operation.CREATE, Operation.GET, Operation.LIST}


@dataclass
class Scene:
    """The world with one queued job, and what its actors did, in order."""

    world: World = field(default_factory=World)
    starts: list[int] = field(default_factory=list)
    acknowledged_at: int | None = None
    """The last epoch that may still be started after a cancel; None before one."""

    def __post_init__(self) -> None:
        self.job = self.world.submit()
        self._seal: Heartbeat | None = None
        self.store = GuardedStore(self.world.store, after=self.check)

    # --- the actors ---------------------------------------------------------------------

    def run_agent(self, store: Store, claimant: Claimant) -> None:
        repo = self.world.repo_over(store)
        claimed = claim_head(repo, claimant)
        if claimed is None:
            return
        signs = LifeSigns(repo, claimed.record)
        if not signs.beat(Phase.PREPARING, None):
            return
        self.start(claimed.record.epoch)
        signs.beat(Phase.RUNNING, repo.now())
        end(repo, claimed)

    def run_alice(self, store: Store) -> None:
        self.run_agent(store, ALICE)

    def run_bob(self, store: Store) -> None:
        self.run_agent(store, BOB)

    def run_canceller(self, store: Store) -> None:
        answer = cancel(self.world.repo_over(store), self.job, by="ada")
        running = answer.record.state is State.RUNNING
        self.acknowledged_at = answer.record.epoch if running else 0

    def run_reaper(self, store: Store) -> None:
        reaper = Reaper(self.world.repo_over(store), by="coordinator")
        for _ in range(int(LEASE / TICK) + 2):
            reaper.turn()
            self.world.clock.sleep(TICK)

    # --- the rules ----------------------------------------------------------------------

    def start(self, epoch: int) -> None:
        assert epoch not in self.starts, "an epoch was started twice"
        assert self.acknowledged_at is None or epoch <= self.acknowledged_at, (
            "a job was started after its cancel was acknowledged"
        )
        self.starts.append(epoch)

    def check(self, operation: Operation, key: str) -> None:
        """After each request: cells are only made, a seal stays, and the job can be found."""
        if key.startswith(keys.cells(self.job)):
            assert operation in _IN_CELLS
        if operation not in WRITES:
            return
        if key == keys.heartbeat(self.job):
            self._check_seal()
        assert self.found_in_a_copy(), "the job could not be found"

    def _check_seal(self) -> None:
        try:
            blob = self.world.store.get(keys.heartbeat(self.job))
        except NotFound:
            return
        beat = decode(Heartbeat, keys.heartbeat(self.job), blob.data)
        if self._seal is not None:
            assert beat == self._seal or beat.epoch > self._seal.epoch, "a beat replaced a seal"
        self._seal = beat if beat.sealed else None

    def found_in_a_copy(self) -> bool:
        """A reader finishes what it meets; so as not to disturb, it looks at a copy."""
        world = self.world
        repo = Repository(
            world.store.copy(),
            world.deployment,
            clock=FakeClock(),
            entropy=FakeEntropy(),
            tasks=world.tasks,
        )
        return find_job(repo, self.job) is not None

    def conclude(self) -> None:
        """Faults are over: everything must come to rest, and by the rules."""
        for _, epoch in heal(self.world, self.job):
            self.start(epoch)
        (state,) = self.world.states(self.job)
        assert state in (State.COMPLETED, State.CANCELLED)
        assert state is State.CANCELLED or self.starts
        cells = self.world.repo.cells(self.job)
        assert cells.ends == set(range(1, max(cells.ends) + 1))
        assert cells.claims <= cells.ends


ACTORS = ("alice", "bob", "canceller", "reaper")
STOPPED = ("alice", "canceller", "reaper")
"""Without Bob, who does what Alice does."""

REQUESTS_MAX = 200


def work_of(scene: Scene, name: str) -> Callable[[Store], None]:
    works: dict[str, Callable[[Store], None]] = {
        "alice": scene.run_alice,
        "bob": scene.run_bob,
        "canceller": scene.run_canceller,
        "reaper": scene.run_reaper,
    }
    return works[name]


def run(scene: Scene, names: Sequence[str]) -> None:
    for name in names:
        work_of(scene, name)(scene.store)


def orders(stopped: str) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Who acts before the one that is stopped, and who after."""
    others = [name for name in ACTORS if name != stopped]
    return [
        (order[:before], order[before:])
        for before in range(3)
        for order in itertools.permutations(others)
        if "alice" not in order or order.index("alice") < order.index("bob")
    ]


def crash_before(scene: Scene, name: str, at: int) -> bool:
    return crash(scene, name, at, applied=False)


def crash_after(scene: Scene, name: str, at: int) -> bool:
    return crash(scene, name, at, applied=True)


def crash(scene: Scene, name: str, at: int, *, applied: bool) -> bool:
    try:
        work_of(scene, name)(mortal(scene.store, at=at, applied=applied))
    except Crash:
        return True
    return False


def lose_answer(scene: Scene, name: str, at: int) -> bool:
    return fail(scene, name, at, FaultKind.LOST_ANSWER) is not None


def lose_request(scene: Scene, name: str, at: int) -> bool:
    return fail(scene, name, at, FaultKind.LOST_REQUEST) is not None


def fail(scene: Scene, name: str, at: int, kind: FaultKind) -> FaultyStore | None:
    """None when the actor made fewer requests."""
    plan = ScriptedFaults(Fault(kind, skip=at))
    store = FaultyStore(scene.store, scene.world.clock, plan)
    try:
        work_of(scene, name)(store)
    except StadoError:
        return store
    return store if plan.used_up else None


@pytest.mark.parametrize("stopped", STOPPED)
@pytest.mark.parametrize(
    "stop",
    [crash_before, crash_after, lose_answer, lose_request],
    ids=["crash before", "crash after", "answer lost", "request lost"],
)
def test_whoever_is_stopped_at_any_request_everything_ends_by_the_rules(
    stopped: str, stop: Callable[[Scene, str, int], bool]
) -> None:
    tried = 0
    for before, after in orders(stopped):
        for at in range(REQUESTS_MAX):
            scene = Scene()
            run(scene, before)
            if not stop(scene, stopped, at):
                break
            run(scene, after)
            scene.conclude()
            tried += 1
    assert tried > 50


@pytest.mark.parametrize("stopped", STOPPED)
def test_a_write_that_lands_when_the_world_has_moved_on_does_no_harm(stopped: str) -> None:
    for (before, after), landing in itertools.product(orders(stopped), range(3)):
        for at in range(REQUESTS_MAX):
            scene = Scene()
            run(scene, before)
            store = fail(scene, stopped, at, FaultKind.LATE)
            if store is None:
                break
            if not store.late_writes:
                continue
            run(scene, after[:landing])
            store.land_late_writes()
            run(scene, after[landing:])
            scene.conclude()


@pytest.mark.parametrize("stalled", STOPPED)
def test_an_actor_that_stalls_at_any_request_wakes_to_no_harm(stalled: str) -> None:
    for before, meanwhile in orders(stalled):
        for steps in range(REQUESTS_MAX):
            scene = Scene()
            run(scene, before)
            actor = Actor(scene.store, work_of(scene, stalled))
            goes_on = actor.step(steps)
            run(scene, meanwhile)
            actor.finish()
            assert_no_surprise(actor)
            scene.conclude()
            if not goes_on:
                break


@pytest.mark.parametrize(
    ("first", "second"), [*itertools.permutations(STOPPED, 2), ("alice", "bob")]
)
def test_two_actors_that_stall_at_any_write_wake_to_no_harm(first: str, second: str) -> None:
    others = [name for name in ACTORS if name not in (first, second)]
    for one_at, other_at, made in itertools.product(range(8), range(8), (False, True)):
        for meanwhile, second_wakes_first in itertools.product((others, others[::-1]), (0, 1)):
            scene = Scene()
            one = Actor(scene.store, work_of(scene, first))
            if not one.step_to_write(one_at, made=made):
                one.finish()
                break
            other = Actor(scene.store, work_of(scene, second))
            other.step_to_write(other_at, made=made)
            run(scene, meanwhile)
            for actor in (other, one) if second_wakes_first else (one, other):
                actor.finish()
                assert_no_surprise(actor)
            scene.conclude()


def assert_no_surprise(actor: Actor) -> None:
    """Stores that answer give no reason for an error."""
    if actor.error is not None:
        raise actor.error


def test_a_lone_run_of_each_actor_is_short() -> None:
    """The bound of the loops above is never met."""
    for name in ACTORS:
        scene = Scene()
        counting = CountingStore(scene.store, scene.world.tasks)
        work_of(scene, name)(counting)
        assert counting.snapshot().of() < REQUESTS_MAX / 2
