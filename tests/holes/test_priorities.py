"""Priorities that change while the job moves: it is never lost, and keeps what was acknowledged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stado.core import keys
from stado.core.order import entry_key
from stado.core.records import Record
from stado.core.states import State, Verdict
from stado.errors import Refused
from stado.jobs.changes import cancel, pause, resume
from stado.jobs.claim import Claimed, claim
from stado.jobs.priority import NotQueued, Receipt, set_priority
from stado.jobs.queue_index import Repair, read_page
from stado.jobs.reaping import Reaper
from tests.holes.staging import slow_claimer, steps_to_write
from tests.jobs.actors import Actor, Crash, mortal
from tests.jobs.world import BOB, World, entry_of

STEPS = 9
"""Requests of a change, at most."""


def changer(world: World, job: str, priority: int = 5, *, by: str = "ada") -> Actor:
    return Actor(
        world.store, lambda store: set_priority(world.repo_over(store), job, priority, by=by)
    )


def acknowledged(actor: Actor) -> bool:
    assert isinstance(actor.error, Refused | None)
    return isinstance(actor.result, Receipt)


def about_to_replace(world: World, job: str) -> Actor:
    slow = changer(world, job)
    assert steps_to_write(slow, keys.record(State.QUEUED, job))
    return slow


def lost(world: World, job: str) -> Record:
    """The next epoch of a job whose holder is not heard of again."""
    world.lose(Reaper(world.repo, by="coordinator"))
    return world.find(job).record


# --- one entry ----------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", range(STEPS))
def test_of_two_who_change_a_priority_at_once_one_entry_is_left(world: World, steps: int) -> None:
    """T2, R143, H37: up, and down again; the slower one finishes last."""
    job = world.submit()
    up = changer(world, job)
    up.step(steps)
    set_priority(world.repo, job, 3, by="bob")
    set_priority(world.repo, job, 0, by="bob")
    up.finish()
    assert acknowledged(up)
    record = world.record(State.QUEUED, job)
    assert entry_key(record) in world.names(keys.READY)
    Repair(world.repo).turn()
    assert world.names(keys.READY) == [entry_key(record)]
    assert claim(world.repo, entry_of(record), BOB) is not None


@pytest.mark.parametrize("steps", range(STEPS))
def test_an_agent_that_meets_a_change_at_any_step_leaves_the_way_to_the_job(
    world: World, steps: int
) -> None:
    """R148, R149, H37: it claims the job, or mends what it finds, and an entry leads to the job as
    long as that waits."""
    job = world.submit()
    slow = changer(world, job)
    slow.step(steps)
    claimed = claim(world.repo, read_page(world.repo).entries[0], BOB)
    slow.finish()
    if claimed is not None:
        assert world.states(job) == {State.RUNNING}
    else:
        record = world.record(State.QUEUED, job)
        assert record.priority == 5
        assert entry_key(record) in world.names(keys.READY)


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("at", range(STEPS))
def test_whoever_changes_a_priority_may_die_at_any_request(
    world: World, at: int, applied: bool
) -> None:
    """R143, H37: an entry leads to the job, and whoever asks again is told what it has become."""
    job = world.submit()
    try:
        set_priority(world.repo_over(mortal(world.store, at=at, applied=applied)), job, 5, by="a")
    except Crash:
        pass
    else:
        assert at >= STEPS - 2
    assert {entry.job_id for entry in world.entries()} == {job}
    assert set_priority(world.repo, job, 5, by="ada").record.priority == 5
    assert world.claimed_of(job).record.priority == 5


# --- what was acknowledged ----------------------------------------------------------------------


@pytest.mark.parametrize("ask", [pause, cancel])
def test_a_priority_acknowledged_just_before_a_pause_is_kept(
    world: World, ask: Callable[..., object]
) -> None:
    """H38: whoever pauses or cancels has read the record before."""
    job = world.submit()
    asker = Actor(world.store, lambda store: ask(world.repo_over(store), job, by="bob"))
    assert steps_to_write(asker, keys.claim_cell(job, 1))
    set_priority(world.repo, job, 5, by="ada")
    asker.finish()
    assert asker.error is None
    assert world.find(job).record.priority == 5
    if ask is pause:
        assert resume(world.repo, job, by="ada").record.priority == 5


def test_a_priority_that_a_claimer_took_over_outlives_it(world: World) -> None:
    """R145, H38: neither the job nor its priority is lost with the host."""
    job = world.submit()
    claimer = slow_claimer(world, requests=1)
    set_priority(world.repo, job, 5, by="ada")
    claimer.finish()
    assert isinstance(claimer.result, Claimed)
    assert claimer.result.record.priority == 5
    assert world.record(State.RUNNING, job) == claimer.result.record
    assert world.states(job) == {State.RUNNING}
    assert (lost(world, job).epoch, world.find(job).record.priority) == (2, 5)


def test_a_holder_that_took_a_priority_over_settles_its_own_end(world: World) -> None:
    """H38: it knows the running record that it has written again."""
    job = world.submit()
    claimer = slow_claimer(world, requests=1)
    set_priority(world.repo, job, 5, by="ada")
    claimer.finish()
    assert isinstance(claimer.result, Claimed)
    assert world.end(claimer.result, Verdict.COMPLETED).priority == 5
    assert world.states(job) == {State.COMPLETED}


@pytest.mark.parametrize("requests", [2, 3, 4, 5])
def test_a_priority_that_a_claimer_died_over_is_kept(world: World, requests: int) -> None:
    """H38: behind the gate, behind its cell, or before it could take it over."""
    job = world.submit()
    claimer = slow_claimer(world, requests=1)
    set_priority(world.repo, job, 5, by="ada")
    claimer.step(requests - 1)
    claimer.kill()
    assert (lost(world, job).epoch, world.find(job).record.priority) == (2, 5)


def test_repair_leaves_a_priority_that_the_claim_does_not_know(world: World) -> None:
    """R148, H38: the claimer died behind its cell. No entry leads to the job meanwhile."""
    job = world.submit()
    claimer = slow_claimer(world, requests=1)
    set_priority(world.repo, job, 5, by="ada")
    claimer.step(2)
    claimer.kill()
    repair = Repair(world.repo)
    assert not any(repair.turn().changed for _ in range(2))
    assert world.names(keys.READY) == []
    assert (lost(world, job).epoch, world.find(job).record.priority) == (2, 5)
    assert world.states(job) == {State.QUEUED}


def test_a_queue_record_that_lands_late_takes_no_priority_back(world: World) -> None:
    """H38: its submitter was slow, and the job has been claimed."""
    job = world.submit()
    first = world.record(State.QUEUED, job)
    set_priority(world.repo, job, 5, by="ada")
    world.claimed_of(job)
    world.store.create(first.own_key(), first.encode())
    assert (lost(world, job).epoch, world.find(job).record.priority) == (2, 5)
    assert world.states(job) == {State.QUEUED}


# --- too late -----------------------------------------------------------------------------------


def claim_it(world: World, job: str) -> Claimed:
    """Who meets a wrong entry first mends it."""
    claimed = world.claim() or world.claim()
    assert claimed is not None
    return claimed


def complete_it(world: World, job: str) -> None:
    world.end(claim_it(world, job))


def pause_it(world: World, job: str) -> None:
    pause(world.repo, job, by="bob")


def cancel_it(world: World, job: str) -> None:
    cancel(world.repo, job, by="bob")


@pytest.mark.parametrize("steps", range(STEPS))
@pytest.mark.parametrize("move", [claim_it, complete_it, pause_it, cancel_it])
def test_no_change_of_a_priority_resurrects_a_job(
    world: World, move: Callable[[World, str], object], steps: int
) -> None:
    """R145, H39: at any of its requests the job leaves the queue."""
    job = world.submit()
    slow = changer(world, job)
    slow.step(steps)
    move(world, job)
    moved = world.states(job)
    slow.finish()
    if not acknowledged(slow):
        assert isinstance(slow.error, NotQueued)
        assert slow.error.record.state in moved
    assert world.states(job) == moved
    Repair(world.repo).turn()
    assert world.names(keys.READY) == []


def test_a_change_that_comes_after_a_claim_is_not_acknowledged(world: World) -> None:
    """R145, H39: although its record was replaced; the claimer takes it over all the same."""
    job = world.submit()
    slow = about_to_replace(world, job)
    claimer = slow_claimer(world, requests=3)
    slow.finish()
    assert isinstance(slow.error, NotQueued)
    assert slow.error.record.state is State.RUNNING
    assert "may have the new priority should it come back" in slow.error.text
    claimer.finish()
    assert isinstance(claimer.result, Claimed)
    assert claimer.result.record.priority == 5
    assert world.states(job) == {State.RUNNING}
