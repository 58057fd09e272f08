"""Claimers that sleep, meet themselves, or come too late."""

from __future__ import annotations

import pytest

from stado.core import keys
from stado.core.order import entry_key
from stado.core.records import Phase
from stado.core.states import State
from stado.errors import Ambiguous
from stado.jobs.claim import Claimed, claim
from stado.jobs.life import LifeSigns
from stado.jobs.reaping import Reaper
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from tests.holes.staging import slow_claimer
from tests.jobs.world import ALICE, BOB, World, heal


def test_the_queue_record_of_the_next_epoch_is_neither_a_claim_nor_removed(world: World) -> None:
    """H01: a claimer sleeps in the gate and is declared lost. It wakes when its queue record has
    been replaced."""
    job = world.submit()
    slow = slow_claimer(world, requests=2)
    world.lose(Reaper(world.repo, by="coordinator"))
    second = world.record(State.QUEUED, job)
    slow.finish()
    assert second.epoch == 2
    assert world.record(State.QUEUED, job) == second
    assert entry_key(second) in world.names(keys.READY)
    late = slow.result
    assert isinstance(late, Claimed)
    assert not LifeSigns(world.repo, late.record).beat(Phase.RUNNING, world.clock.now())
    assert heal(world, job) == [(job, 2)]


def test_a_claimer_that_slept_while_the_job_ended_elsewhere_gets_nothing(world: World) -> None:
    """H02: it had read the queue record; the gate is open again when it wakes."""
    job = world.submit()
    slow = slow_claimer(world, requests=1)
    world.end(world.start(BOB))
    slow.finish()
    assert slow.error is None
    assert slow.result is None
    assert world.states(job) == {State.COMPLETED}
    assert world.names(keys.READY) == []


def test_a_claimer_that_comes_second_leaves_the_running_record_of_the_first(world: World) -> None:
    """H02: it had read the queue record; the job runs elsewhere when it wakes."""
    job = world.submit()
    slow = slow_claimer(world, requests=1)
    first = world.start(BOB)
    slow.finish()
    assert slow.result is None
    assert world.record(State.RUNNING, job) == first.record
    assert world.repo.claim_cell(job, 1).token == first.token


def test_a_claimer_does_not_take_an_earlier_attempt_of_its_own_for_this_one(world: World) -> None:
    """H13: the first attempt has passed the gate and had no answer to its cell, which may still
    land."""
    job = world.submit()
    (entry,) = world.entries()
    late_cell = ScriptedFaults(Fault(FaultKind.LATE, key_prefix=keys.cells(job)))
    store = FaultyStore(world.store, world.clock, late_cell)
    with pytest.raises(Ambiguous):
        claim(world.repo_over(store), entry, ALICE)
    ghost = world.record(State.RUNNING, job)
    assert claim(world.repo, entry, ALICE) is None
    store.land_late_writes()
    assert ghost.holder is not None
    assert world.repo.claim_cell(job, 1).token == ghost.holder.token
    assert heal(world, job) == [(job, 2)]
