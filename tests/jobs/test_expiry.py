"""Queued jobs whose time is up: ended by whoever meets them, in one way, once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stado.core import keys
from stado.core.order import entry_key
from stado.core.records import Ending, Intent, Phase
from stado.core.spec import Spec
from stado.core.states import Reason, State, Verdict
from stado.jobs.changes import cancel, pause_queue, rerun
from stado.jobs.claim import claim
from stado.jobs.expiry import expire_entry, expire_if_over
from stado.jobs.life import LifeSigns
from stado.jobs.queue_index import Repair
from stado.jobs.reaping import Reaper
from stado.storage.observe import CountingStore
from tests.jobs.actors import Actor, Crash, mortal
from tests.jobs.world import ALICE, BOB, LEASE, World, entry_of, give_back, heal


def due(world: World, *, seconds: float = 60) -> str:
    """A job with a deadline that has just passed."""
    deadline = world.repo.now() + timedelta(seconds=seconds)
    job = world.submit(spec=Spec(command="", deadline_at=deadline))
    world.clock.sleep(seconds)
    return job


def limited(world: World, *, seconds: int = 600) -> str:
    return world.submit(spec=Spec(command="", timeout_seconds=seconds))


def ending_of(world: World, job: str) -> Ending:
    """Of a job that rests as timed out and left nothing in the queue."""
    assert world.states(job) == {State.TIMED_OUT}
    assert not world.names(keys.READY)
    found = world.record(State.TIMED_OUT, job).ending
    assert found is not None
    assert found.verdict is Verdict.TIMED_OUT
    return found


def test_repair_ends_a_job_whose_deadline_passed_in_the_queue(world: World) -> None:
    """R136, R72, T16: it ends as timed_out, and does not stay queued for ever."""
    job, other = due(world), world.submit()
    report = Repair(world.repo, by="coordinator").turn()
    assert report.expired == 1
    assert world.states(other) == {State.QUEUED}
    cancel(world.repo, other, by="ada")
    ending = ending_of(world, job)
    assert (ending.reason, ending.by) == (Reason.DEADLINE_PASSED, "coordinator")
    assert ending.detail == "its deadline has passed; it was in the queue"
    assert (ending.started_at, world.record(State.TIMED_OUT, job).starts) == (None, 0)


def test_a_job_that_has_time_is_left_alone(world: World) -> None:
    deadline = world.repo.now() + timedelta(seconds=60)
    job = world.submit(spec=Spec(command="", deadline_at=deadline))
    world.clock.sleep(59.9)
    assert not Repair(world.repo).turn().changed
    assert not expire_if_over(world.repo, world.record(State.QUEUED, job), by="x")
    world.clock.sleep(0.1)
    assert Repair(world.repo).turn().expired == 1


def test_who_would_claim_it_ends_it(world: World) -> None:
    job = due(world)
    assert world.claim() is None
    assert ending_of(world, job).by == ALICE.consumer


def test_repair_ends_it_also_where_its_entry_is_lost_or_wrong(world: World) -> None:
    job = due(world)
    record = world.record(State.QUEUED, job)
    world.repo.delete_entry(record)
    wrong = record.evolve(nonce="other")
    world.store.create(entry_key(wrong), b"")
    Repair(world.repo).turn()
    Repair(world.repo).turn()
    ending_of(world, job)


def test_a_paused_queue_stops_no_clock(world: World) -> None:
    job = due(world)
    pause_queue(world.repo, by="ada")
    Repair(world.repo).turn()
    assert world.states(job) == {State.TIMED_OUT}


def test_an_entry_that_lies_ends_nothing(world: World) -> None:
    job = world.submit()
    record = world.record(State.QUEUED, job)
    early = record.evolve(spec=record.spec.evolve(deadline_at=world.repo.now()))
    expire_entry(world.repo, entry_of(early), by="x")
    assert world.states(job) == {State.QUEUED}


def test_the_time_limit_goes_on_while_a_lost_job_waits(world: World) -> None:
    """R93: of the first claim; the next host has what is left, and the queue ends it after."""
    job = limited(world)
    world.start()
    world.clock.sleep(100)
    give_back(world, job)
    world.clock.sleep(499)
    assert not Repair(world.repo).turn().changed
    world.clock.sleep(1)
    Repair(world.repo).turn()
    ending = ending_of(world, job)
    assert ending.reason is Reason.ORG_RUNTIME_LIMIT_EXCEEDED
    assert world.record(State.TIMED_OUT, job).starts == 1


def test_a_silent_holder_whose_deadline_has_passed_is_not_queued_again(world: World) -> None:
    deadline = world.repo.now() + timedelta(seconds=60)
    job = world.submit(spec=Spec(command="", deadline_at=deadline))
    world.start()
    world.lose(Reaper(world.repo, by="coordinator"))
    assert ending_of(world, job).reason is Reason.DEADLINE_PASSED


def test_a_rerun_has_all_of_its_time_and_the_same_deadline(world: World) -> None:
    deadline = world.repo.now() + timedelta(seconds=1000)
    job = world.submit(spec=Spec(command="", timeout_seconds=10, deadline_at=deadline))
    world.start()
    world.lose(Reaper(world.repo, by="coordinator"))
    again = rerun(world.repo, job, run_id="again", submitter="ada").base_id
    record = world.record(State.QUEUED, again)
    assert (record.picked_up_at, record.spec.timeout_seconds) == (None, 10)
    assert record.spec.deadline_at == deadline
    assert not Repair(world.repo).turn().changed


def test_a_silent_holder_whose_time_is_up_is_not_queued_again(world: World) -> None:
    """R95, T15: the backstop; a hung job cannot run for ever, whatever became of its supervisor."""
    job = limited(world, seconds=10)
    claimed = world.start()
    report = world.lose(Reaper(world.repo, by="coordinator"))
    assert report.reaped == [job]
    ending = ending_of(world, job)
    assert ending.reason is Reason.ORG_RUNTIME_LIMIT_EXCEEDED
    assert ending.started_at is not None
    assert world.record(State.TIMED_OUT, job).lease_losses == 0
    assert not LifeSigns(world.repo, claimed.record).beat(Phase.RUNNING, None)


def test_a_living_holder_is_left_its_epoch_after_its_time(world: World) -> None:
    """It may be killing what does not end: nobody takes a job from who gives signs of life."""
    job = limited(world, seconds=10)
    signs = LifeSigns(world.repo, world.start().record)
    reaper, repair = Reaper(world.repo, by="coordinator"), Repair(world.repo)
    for _ in range(20):
        assert signs.beat(Phase.STOPPING, world.repo.now())
        reaper.turn()
        repair.turn()
        world.clock.sleep(LEASE / 4)
    assert world.states(job) == {State.RUNNING}


def test_a_cancel_goes_before_a_limit_in_a_lost_epoch(world: World) -> None:
    job = limited(world, seconds=10)
    world.start()
    cancel(world.repo, job, by="ada")
    world.lose(Reaper(world.repo, by="coordinator"))
    assert world.states(job) == {State.CANCELLED}


def test_a_cancel_that_came_too_late_tells_how_it_ended(world: World) -> None:
    job = due(world)
    record = world.record(State.QUEUED, job)
    slow = Actor(world.store, lambda store: cancel(world.repo_over(store), job, by="ada"))
    slow.step(2)
    assert expire_if_over(world.repo, record, by="coordinator")
    slow.finish()
    assert slow.error is None
    assert slow.result.record.state is State.TIMED_OUT  # type: ignore[attr-defined]
    ending_of(world, job)


def test_a_cancel_that_came_first_stays(world: World) -> None:
    job = due(world)
    record = world.record(State.QUEUED, job)
    cancel(world.repo, job, by="ada")
    assert expire_if_over(world.repo, record, by="coordinator")
    assert world.states(job) == {State.CANCELLED}


@pytest.mark.parametrize("at", range(12))
@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
def test_who_ends_it_may_die_anywhere_and_others_finish(
    world: World, at: int, applied: bool
) -> None:
    """With the same ending, whoever does."""
    job = due(world)
    entry = world.entries()[0]
    try:
        expire_entry(world.repo_over(mortal(world.store, at=at, applied=applied)), entry, by="dead")
    except Crash:
        world.clock.sleep(5)
    intent = world.repo.cells(job).claims
    assert heal(world, job) == []
    ending = ending_of(world, job)
    assert ending.by == ("dead" if intent else "repair")
    claim_cell = world.repo.claim_cell(job, 1)
    assert (claim_cell.intent, claim_cell.at) == (Intent.EXPIRE, ending.ended_at)


@pytest.mark.parametrize("stopped_after", range(1, 8))
def test_who_claims_while_another_ends_it_gets_nothing_or_all(
    world: World, stopped_after: int
) -> None:
    """The claimer had looked at its clock just before."""
    deadline = world.repo.now() + timedelta(seconds=60)
    job = world.submit(spec=Spec(command="", deadline_at=deadline))
    entry = world.entries()[0]
    slow = Actor(world.store, lambda store: claim(world.repo_over(store), entry, BOB))
    slow.step(stopped_after)
    world.clock.sleep(60)
    expire_entry(world.repo, entry, by="coordinator")
    slow.finish()
    assert slow.error is None
    if slow.result is None:
        ending_of(world, job)
    else:
        assert world.find(job).state is State.RUNNING


def test_an_expire_makes_3_writes_and_2_deletes(world: World) -> None:
    job = due(world)
    counting = CountingStore(world.store, world.tasks)
    expire_entry(world.repo_over(counting), entry_of(world.record(State.QUEUED, job)), by="x")
    asked = counting.snapshot()
    assert (asked.writes, asked.reads, asked.deletes) == (3, 7, 2)
