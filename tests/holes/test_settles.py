"""Settling, by whoever comes, in whichever order, however late."""

from __future__ import annotations

import contextlib

from stado.core import keys
from stado.core.order import entry_key
from stado.core.states import State, Verdict
from stado.errors import StoreError
from stado.jobs.claim import claim
from stado.jobs.endings import settle
from stado.jobs.reaping import Reaper
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.observe import Operation
from tests.holes.staging import lose_unsettled, slow_claimer
from tests.jobs.actors import Actor, GuardedStore
from tests.jobs.world import ALICE, BOB, World, heal


def late_delete(world: World, key: str) -> FaultyStore:
    plan = ScriptedFaults(Fault(FaultKind.LATE, Operation.DELETE, key))
    return FaultyStore(world.store, world.clock, plan)


def test_a_late_delete_of_a_queue_record_spares_that_of_the_next_epoch(world: World) -> None:
    """H07: the claimer's delete had no answer; it lands when epoch 2 is queued."""
    job = world.submit()
    (entry,) = world.entries()
    store = late_delete(world, keys.record(State.QUEUED, job))
    assert claim(world.repo_over(store), entry, ALICE) is not None
    world.lose(Reaper(world.repo, by="coordinator"))
    second = world.record(State.QUEUED, job)
    assert store.late_writes == 1
    store.land_late_writes()
    assert world.record(State.QUEUED, job) == second
    assert entry_key(second) in world.names(keys.READY)
    assert heal(world, job) == [(job, 2)]


def test_a_late_delete_of_a_running_record_spares_that_of_the_next_epoch(world: World) -> None:
    """H07: a settler's delete had no answer; it lands when epoch 2 runs."""
    job = world.submit()
    world.start()
    lose_unsettled(world, job)
    store = late_delete(world, keys.record(State.RUNNING, job))
    with contextlib.suppress(StoreError):
        settle(world.repo_over(store), job, 1)
    settle(world.repo, job, 1)
    second = world.start(BOB)
    assert store.late_writes == 1
    store.land_late_writes()
    assert world.record(State.RUNNING, job) == second.record


def test_a_settler_that_slept_before_its_last_step_spares_the_running_record_of_the_next_epoch(
    world: World,
) -> None:
    """H07: it looks again at what it deletes."""
    job = world.submit()
    world.start()
    lose_unsettled(world, job)
    slow = Actor(world.store, lambda store: settle(world.repo_over(store), job, 1))
    while world.states(job) != {State.RUNNING, State.QUEUED}:
        assert slow.step()
    settle(world.repo, job, 1)
    second = world.start(BOB)
    slow.finish()
    assert slow.error is None
    assert world.states(job) == {State.RUNNING}
    assert world.record(State.RUNNING, job) == second.record


def test_some_prefix_shows_the_job_at_every_step_of_a_settler(world: World) -> None:
    """H04: the claimer had passed the gate, was declared lost, and has removed the queue record
    since: its own running record is the only one."""
    job = world.submit()
    slow = slow_claimer(world, requests=2)
    lose_unsettled(world, job)
    slow.finish()
    assert world.states(job) == {State.RUNNING}
    seen: list[set[State]] = []
    watched = GuardedStore(world.store, after=lambda *_: seen.append(world.states(job)))
    settle(world.repo_over(watched), job, 1)
    assert all(seen)
    assert seen[-1] == {State.QUEUED}
    assert heal(world, job) == [(job, 2)]


def test_a_holder_writes_the_record_at_rest_before_it_removes_the_running_one(
    world: World,
) -> None:
    """H04: at the normal end."""
    job = world.submit()
    claimed = world.start()
    seen: list[set[State]] = []
    world.repo = world.repo_over(
        GuardedStore(world.store, after=lambda *_: seen.append(world.states(job)))
    )
    world.end(claimed)
    assert all(seen)
    assert seen[-1] == {State.COMPLETED}


def test_a_settler_that_slept_does_not_queue_an_epoch_that_runs(world: World) -> None:
    """H06: a reader, say, that has just seen the verdict of epoch 1 settles it once more."""
    job = world.submit()
    world.start()
    world.lose(Reaper(world.repo, by="coordinator"))
    second = world.start(BOB)
    settle(world.repo, job, 1)
    assert world.states(job) == {State.RUNNING}
    assert world.names(keys.READY) == []
    world.end(second)
    settle(world.repo, job, 1)
    assert world.states(job) == {State.COMPLETED}


def test_a_verdict_that_was_given_is_changed_by_nobody(world: World) -> None:
    """H21: whoever comes second reads the first one, and acts on that."""
    job = world.submit()
    claimed = world.start()
    lose_unsettled(world, job)
    first = world.repo.find_end(job, 1)
    assert world.end(claimed, Verdict.COMPLETED) != claimed.record
    assert world.repo.find_end(job, 1) == first
    assert world.states(job) == {State.QUEUED}
