from __future__ import annotations

import pytest

from stado.core import keys, moves
from stado.core.order import entry_key
from stado.core.records import Ending, Phase
from stado.core.states import State, Verdict
from stado.errors import StoreError
from stado.jobs.claim import Claimed
from stado.jobs.endings import give_verdict, project, settle
from stado.jobs.life import LifeSigns
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.observe import CountingStore
from tests.jobs.actors import Actor, Crash, mortal
from tests.jobs.world import ALICE, BOB, World, end, heal


def ending(world: World, verdict: Verdict) -> Ending:
    now = world.clock.now()
    retry_at = now if verdict is Verdict.RETRYING else None
    return Ending(verdict=verdict, started_at=now, ended_at=now, retry_at=retry_at, by="alice")


def test_end_and_settle_make_2_writes_and_1_delete(world: World) -> None:
    """And a look whether something waits for it."""
    world.submit()
    claimed = world.start()
    counting = CountingStore(world.store, world.tasks)
    end(world.repo_over(counting), claimed)
    asked = counting.snapshot()
    assert (asked.writes, asked.deletes, asked.lists, asked.reads) == (2, 1, 0, 1)


@pytest.mark.parametrize("verdict", list(Verdict))
def test_settling_is_idempotent(world: World, verdict: Verdict) -> None:
    """R177"""
    job = world.submit()
    claimed = world.start()
    give_verdict(world.repo, claimed.record, ending(world, verdict))
    seen = []
    for _ in range(3):
        assert settle(world.repo, job, 1) is not None
        seen.append((world.states(job), world.names(keys.READY), world.find(job).record))
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][0] == {verdict.state or State.QUEUED}


def test_settling_an_epoch_without_a_verdict_does_nothing(world: World) -> None:
    job = world.submit()
    assert settle(world.repo, job, 1) is None
    world.start()
    assert settle(world.repo, job, 1) is None
    assert world.states(job) == {State.RUNNING}


@pytest.mark.parametrize("verdict", list(Verdict))
@pytest.mark.parametrize("at", range(12))
@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
def test_settling_goes_on_from_any_point_at_which_a_settler_died(
    verdict: Verdict, at: int, applied: bool
) -> None:
    """R177: the job is found all the time, and in one prefix in the end."""
    world = World()
    job = world.submit()
    claimed = world.start()
    give_verdict(world.repo, claimed.record, ending(world, verdict))
    try:
        settle(world.repo_over(mortal(world.store, at=at, applied=applied)), job, 1)
    except Crash:
        assert world.states(job)
    settle(world.repo, job, 1)
    assert world.states(job) == {verdict.state or State.QUEUED}
    if verdict.state is None:
        assert world.names(keys.READY) == [entry_key(world.record(State.QUEUED, job))]


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST])
def test_a_verdict_given_again_after_a_lost_answer_is_still_ours(
    world: World, kind: FaultKind
) -> None:
    job = world.submit()
    claimed = world.start()
    store = FaultyStore(
        world.store, world.clock, ScriptedFaults(Fault(kind, key_prefix=keys.cells(job)))
    )
    verdict = ending(world, Verdict.COMPLETED)
    with pytest.raises(StoreError):
        give_verdict(world.repo_over(store), claimed.record, verdict)
    _, ours = give_verdict(world.repo, claimed.record, verdict)
    assert ours


def test_the_first_verdict_stands(world: World) -> None:
    """R65, R66"""
    job = world.submit()
    claimed = world.start()
    first, ours = give_verdict(world.repo, claimed.record, ending(world, Verdict.COMPLETED))
    assert ours
    second, ours = give_verdict(world.repo, claimed.record, ending(world, Verdict.LOST))
    assert not ours
    assert second == first
    settle(world.repo, job, 1)
    assert world.states(job) == {State.COMPLETED}


def test_a_holder_whose_running_record_was_put_back_by_a_reader_settles_all_the_same(
    world: World,
) -> None:
    job = world.submit()
    claimed = world.start()
    world.store.delete(keys.record(State.RUNNING, job), None)
    assert world.find(job).state is State.RUNNING
    world.end(claimed)
    assert world.states(job) == {State.COMPLETED}


def test_a_lost_epoch_keeps_its_place_and_its_old_entry_goes(world: World) -> None:
    """The claimer died in the gate: its queue record still stood, and is replaced."""
    job = world.submit()
    record = world.record(State.QUEUED, job)
    give_verdict(world.repo, record, ending(world, Verdict.LOST))
    settle(world.repo, job, 1)
    following = world.record(State.QUEUED, job)
    assert (following.epoch, following.queued_ms) == (2, record.queued_ms)
    assert world.names(keys.READY) == [entry_key(following)]


def test_a_settler_that_wakes_after_the_next_epoch_has_ended_changes_nothing_for_long() -> None:
    """It had found the next epoch not yet begun; what it writes is mended."""
    for stopped_after in range(1, 8):
        world = World()
        job = world.submit()
        claimed = world.start(ALICE)
        give_verdict(world.repo, claimed.record, ending(world, Verdict.LOST))
        slow = stalled_settler(world, job, stopped_after)
        settle(world.repo, job, 1)
        world.end(world.start(BOB))
        slow.finish()
        assert slow.error is None
        assert world.find(job).state is State.COMPLETED
        assert heal(world, job) == []


def stalled_settler(world: World, job: str, requests: int) -> Actor:
    slow = Actor(world.store, lambda store: settle(world.repo_over(store), job, 1))
    slow.step(requests)
    return slow


def test_a_record_at_rest_that_cannot_be_seen_yet_is_no_error(world: World) -> None:
    """A16: nothing runs again, and nobody sees a traceback."""
    job = world.submit()
    claimed = world.start()
    fault = Fault(FaultKind.STALE_READ, key_prefix="completed/", seconds=5.0)
    repo = world.repo_over(FaultyStore(world.store, world.clock, ScriptedFaults(fault)))
    end(repo, claimed)
    world_repo, world.repo = world.repo, repo
    assert world.find(job).state is State.COMPLETED
    world.repo = world_repo
    assert world.claim() is None
    assert heal(world, job) == []


@pytest.mark.parametrize("prefix", ["claim", "end"])
def test_a_cell_that_cannot_be_seen_yet_is_waited_for(world: World, prefix: str) -> None:
    """A16"""
    job = world.submit()
    key = keys.claim_cell(job, 1) if prefix == "claim" else keys.end_cell(job, 1)
    fault = Fault(FaultKind.STALE_READ, key_prefix=key, seconds=5.0)
    world.repo = world.repo_over(FaultyStore(world.store, world.clock, ScriptedFaults(fault)))
    claimed: Claimed = world.start()
    if prefix == "claim":
        assert world.find(job).state is State.RUNNING
        return
    give_verdict(world.repo, claimed.record, ending(world, Verdict.COMPLETED))
    cell, ours = give_verdict(world.repo, claimed.record, ending(world, Verdict.FAILED))
    assert (cell.ending.verdict, ours) == (Verdict.COMPLETED, False)
    assert LifeSigns(world.repo, claimed.record).beat(Phase.STOPPING, None)


def test_a_slow_settler_does_not_replace_the_record_of_a_later_epoch(world: World) -> None:
    """H06: what it is about to write is of epoch 2, and epoch 3 is queued."""
    job = world.submit()
    for _ in range(2):
        world.end(world.start(), Verdict.LOST)
    first = world.repo.find_end(job, 1)
    assert first is not None
    assert world.record(State.QUEUED, job).epoch == 3
    assert not project(world.repo, moves.after(first))
    assert world.record(State.QUEUED, job).epoch == 3
    settle(world.repo, job, 1)
    assert [entry.epoch for entry in world.entries()] == [3]
