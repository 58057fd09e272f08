"""Cancels that are acknowledged while everything else is about to happen."""

from __future__ import annotations

from stado.core import keys
from stado.core.spec import Spec
from stado.core.states import State, Verdict
from stado.jobs.changes import Stopping, cancel
from stado.jobs.reaping import Reaper
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.observe import Operation
from stado.storage.port import Store
from tests.holes.staging import (
    STEPS_MAX,
    about_to_reap,
    lose_unsettled,
    slow_claimer,
    slow_reaper,
    steps_to_write,
)
from tests.jobs.actors import Actor
from tests.jobs.world import BOB, World, heal


def slow_canceller(world: World, job: str) -> Actor:
    def work(store: Store) -> Stopping:
        return cancel(world.repo_over(store), job, by="ada")

    return Actor(world.store, work)


def answer_of(canceller: Actor) -> Stopping:
    assert canceller.error is None
    assert isinstance(canceller.result, Stopping)
    return canceller.result


def assert_cancelled_for_good(world: World, job: str) -> None:
    assert heal(world, job) == []
    assert world.states(job) == {State.CANCELLED}


def test_a_cancel_that_slept_before_its_intent_asks_the_epoch_that_there_is(world: World) -> None:
    """H05: it had found epoch 1 queued. That epoch was lost in the gate, so that its claim cell
    is free; epoch 2 runs when the cancel wakes."""
    job = world.submit()
    canceller = slow_canceller(world, job)
    assert steps_to_write(canceller, keys.claim_cell(job, 1))
    slow_claimer(world, requests=2).kill()
    world.lose(Reaper(world.repo, by="coordinator"))
    second = world.start(BOB)
    canceller.finish()
    answer = answer_of(canceller)
    assert (answer.record.epoch, answer.asked is not None) == (2, True)
    assert world.states(job) == {State.RUNNING}
    assert world.record(State.RUNNING, job) == second.record
    assert world.names(keys.READY) == []
    asks = world.repo.find_asks(job, 2)
    assert asks is not None
    assert asks.value.cancel


def test_a_cancel_that_slept_before_its_intent_cancels_the_epoch_that_waits(world: World) -> None:
    """H05: epoch 2 is queued when it wakes."""
    job = world.submit()
    canceller = slow_canceller(world, job)
    assert steps_to_write(canceller, keys.claim_cell(job, 1))
    slow_claimer(world, requests=2).kill()
    world.lose(Reaper(world.repo, by="coordinator"))
    canceller.finish()
    assert answer_of(canceller).stopped_now
    assert_cancelled_for_good(world, job)


def test_a_cancel_acknowledged_while_a_reaper_gives_its_verdict_is_not_dropped() -> None:
    """H09: wherever the reaper is just then, be it past its look at what was asked."""
    acknowledged_amid = 0
    for steps in range(STEPS_MAX):
        world = World()
        job = world.submit()
        world.start()
        reaper = slow_reaper(world)
        goes_on = reaper.step(steps)
        if world.states(job) == {State.RUNNING}:
            acknowledged_amid += cancel(world.repo, job, by="ada").asked is not None
            reaper.finish()
            assert_cancelled_for_good(world, job)
        if not goes_on:
            break
    assert acknowledged_amid > 5


def test_a_flag_that_comes_after_the_verdict_is_not_acknowledged_for_that_epoch(
    world: World,
) -> None:
    """H09: the cancel found epoch 1 running, which is lost and settled before its flag lands."""
    job = world.submit()
    world.start()
    canceller = slow_canceller(world, job)
    assert steps_to_write(canceller, keys.asks(job, 1))
    world.lose(Reaper(world.repo, by="coordinator"))
    assert world.states(job) == {State.QUEUED}
    canceller.finish()
    assert answer_of(canceller).record.state is State.CANCELLED
    assert_cancelled_for_good(world, job)


def test_a_cancel_survives_that_the_job_was_lost_too_often_at_the_same_time(world: World) -> None:
    """H09: a flag that stood before the verdict counts, though the loss was the last allowed."""
    job = world.submit(spec=Spec(command="", max_lease_losses=0))
    world.start()
    reaper = slow_reaper(world)
    assert cancel(world.repo, job, by="ada").asked is not None
    reaper.finish()
    assert_cancelled_for_good(world, job)
    assert world.record(State.CANCELLED, job).epoch == 1


def test_a_reaper_that_cannot_read_what_was_asked_gives_no_verdict(world: World) -> None:
    """H09: what could not be read is not taken for nothing."""
    job = world.submit()
    world.start()
    judge = about_to_reap(world)
    assert cancel(world.repo, job, by="ada").asked is not None
    refused = Fault(FaultKind.UNAVAILABLE, Operation.GET, keys.asks(job, 1), times=3)
    store = FaultyStore(world.store, world.clock, ScriptedFaults(refused))
    judge._repo = world.repo_over(store)
    assert "cannot be judged" in judge.turn().deferred.get(job, "")
    assert world.repo.find_end(job, 1) is None
    assert_cancelled_for_good(world, job)


def test_nobody_starts_a_queued_job_whose_cancel_was_acknowledged() -> None:
    """H10: wherever in its claim an agent sleeps meanwhile."""
    for requests in range(1, 3):
        world = World()
        job = world.submit()
        slow = slow_claimer(world, requests=requests)
        assert cancel(world.repo, job, by="ada").stopped_now
        slow.finish()
        assert slow.error is None
        assert slow.result is None
        assert_cancelled_for_good(world, job)


def test_a_cancel_is_not_satisfied_with_the_queue_record_of_an_epoch_that_is_over(
    world: World,
) -> None:
    """H18: the claimer of epoch 1 died in the gate, the reaper after its verdict: the queue still
    shows epoch 1, the cells announce epoch 2."""
    job = world.submit()
    slow_claimer(world, requests=2).kill()
    lose_unsettled(world, job)
    assert world.record(State.QUEUED, job).epoch == 1
    assert world.find(job).record.epoch == 2
    assert cancel(world.repo, job, by="ada").stopped_now
    assert_cancelled_for_good(world, job)
    end = world.repo.find_end(job, 2)
    assert end is not None
    assert end.ending.verdict is Verdict.CANCELLED


def test_the_intent_of_a_dead_canceller_waits_for_no_seal_of_a_dead_claimer(world: World) -> None:
    """H22: the claimer died in the gate, the canceller after its intent."""
    job = world.submit()
    slow_claimer(world, requests=2).kill()
    canceller = slow_canceller(world, job)
    assert steps_to_write(canceller, keys.claim_cell(job, 1))
    canceller.step()
    canceller.kill()
    report = world.lose(Reaper(world.repo, by="coordinator"))
    assert report.reaped == []
    assert world.repo.find_heartbeat(job) is None
    assert world.states(job) == {State.CANCELLED}
