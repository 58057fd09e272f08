"""Reapers and those that they judge."""

from __future__ import annotations

from stado.core import keys
from stado.core.records import Phase
from stado.core.spec import Spec
from stado.core.states import State
from stado.jobs.claim import Claimed
from stado.jobs.finding import find_job
from stado.jobs.life import LifeSigns, seal_epoch
from stado.jobs.reaping import Reaper
from stado.storage.observe import Operation
from stado.storage.port import Store
from tests.holes.staging import STEPS_MAX, lose_unsettled, slow_claimer, slow_reaper
from tests.jobs.actors import Actor, GuardedStore
from tests.jobs.world import BOB, World, heal


def test_a_worker_that_beats_just_before_the_seal_keeps_its_epoch() -> None:
    """H11: it had been silent for a lease until then."""
    sealed_from = None
    for steps in range(STEPS_MAX):
        world = World()
        job = world.submit()
        signs = LifeSigns(world.repo, world.start().record)
        signs.beat(Phase.RUNNING, world.clock.now())
        reaper = slow_reaper(world)
        goes_on = reaper.step(steps)
        accepted = signs.beat(Phase.RUNNING, world.clock.now())
        reaper.finish()
        assert accepted is (world.repo.find_end(job, 1) is None)
        if not accepted and sealed_from is None:
            sealed_from = steps
        if not goes_on:
            break
    assert sealed_from is not None
    assert sealed_from > 4


def test_no_beat_replaces_a_seal(world: World) -> None:
    """H12: not one that was under way when the seal came, and none after it."""
    job = world.submit()
    record = world.start().record
    signs = LifeSigns(world.repo, record)
    signs.beat(Phase.RUNNING, world.clock.now())

    def beat(store: Store) -> bool:
        signs._repo = world.repo_over(store)
        return signs.beat(Phase.RUNNING, world.clock.now())

    beating = Actor(world.store, beat)
    seal = seal_epoch(world.repo, record, world.repo.find_heartbeat(job), by="coordinator")
    beating.finish()
    assert beating.result is False
    signs._repo = world.repo
    assert not signs.beat(Phase.RUNNING, world.clock.now())
    found = world.repo.find_heartbeat(job)
    assert found is not None
    assert found.value == seal


def test_a_reaper_and_a_claimer_that_woke_up_settle_one_queue_record_together() -> None:
    """H15: the claimer sleeps in the gate and removes "its" queue record when the reaper has just
    put the next epoch's there."""
    for steps in range(STEPS_MAX):
        for requests in range(1, 6):
            world = World()
            job = world.submit()
            claimer = slow_claimer(world, requests=2)
            reaper = slow_reaper(world)
            goes_on = reaper.step(steps)
            claimer.step(requests)
            reaper.finish()
            claimer.finish()
            assert reaper.error is None
            assert claimer.error is None
            if world.repo.find_end(job, 1) is not None:
                assert world.record(State.QUEUED, job).epoch == 2
                assert 2 in {entry.epoch for entry in world.entries()}
        if not goes_on:
            break


def test_a_job_that_moves_backwards_is_found_at_every_step_of_the_finder() -> None:
    """H16: it is given back while somebody looks for it prefix by prefix."""
    for steps in range(12):
        world = World()
        job = world.submit()
        world.start()
        finder = Actor(world.store, lambda store, w=world, j=job: find_job(w.repo_over(store), j))  # type: ignore[misc]
        finder.step(steps)
        world.lose(Reaper(world.repo, by="coordinator"))
        finder.finish()
        assert finder.error is None
        assert finder.result is not None


def test_a_job_that_is_claimed_is_found_at_every_step_of_the_finder() -> None:
    """H16: its queue record goes between a look at its cells and one at the queue."""
    for steps in range(12):
        world = World()
        job = world.submit()
        finder = Actor(world.store, lambda store, w=world, j=job: find_job(w.repo_over(store), j))  # type: ignore[misc]
        finder.step(steps)
        world.start()
        finder.finish()
        assert finder.error is None
        assert finder.result is not None


def test_a_seal_outlives_its_job_and_a_claimer_that_slept_through_it_starts_nothing(
    world: World,
) -> None:
    """H17: the job is at rest when the claimer wakes in the gate, and its first beat is a
    create."""
    job = world.submit(spec=Spec(command="", max_lease_losses=0))
    slow = slow_claimer(world, requests=2)
    world.lose(Reaper(world.repo, by="coordinator"))
    assert world.states(job) == {State.FAILED}
    slow.finish()
    late = slow.result
    assert isinstance(late, Claimed)
    assert not LifeSigns(world.repo, late.record).beat(Phase.RUNNING, world.clock.now())
    assert heal(world, job) == []


def test_nobody_deletes_a_heartbeat(world: World) -> None:
    """H17: through a whole life, with a loss in it, and the repairs after it."""
    deleted: list[str] = []

    def note(operation: Operation, key: str) -> None:
        if operation is Operation.DELETE:
            deleted.append(key)

    world.repo = world.repo_over(GuardedStore(world.store, before=note))
    job = world.submit()
    world.start()
    lose_unsettled(world, job)
    world.lose(Reaper(world.repo, by="coordinator"), turns=3)
    world.end(world.start(BOB))
    assert heal(world, job) == []
    assert keys.record(State.RUNNING, job) in deleted
    assert keys.heartbeat(job) not in deleted


def test_what_may_have_run_is_counted_though_its_worker_was_never_heard_again(
    world: World,
) -> None:
    """H20: the seal keeps what the last beat had announced."""
    job = world.submit()
    world.start()
    world.lose(Reaper(world.repo, by="coordinator"))
    assert world.record(State.QUEUED, job).starts == 1
