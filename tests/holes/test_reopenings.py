"""Jobs that are paused, resumed, retried and deleted while everything else is about to happen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import Ending, Phase
from stado.core.states import Opening, State, Verdict
from stado.errors import NotFound, Refused
from stado.jobs.changes import Reopening, Stopping, cancel, pause, resume, retry
from stado.jobs.deletion import delete
from stado.jobs.endings import give_verdict, open_epoch, settle
from stado.jobs.finding import find_job, was_deleted
from stado.jobs.life import LifeSigns
from stado.jobs.outputs import publish as leave
from stado.jobs.queue_index import Repair
from stado.jobs.reaping import Reaper
from stado.jobs.rest_walk import RestWalk
from stado.jobs.upkeep import Passes
from tests.holes.staging import STEPS_MAX, slow_claimer, slow_reaper, steps_to_write
from tests.jobs.actors import Actor, Crash, mortal
from tests.jobs.world import BOB, LEASE, TICK, World, end, heal


def failed_job(world: World) -> str:
    job = world.submit()
    world.end(world.start(), Verdict.FAILED)
    return job


def paused_job(world: World) -> str:
    job = world.submit()
    assert pause(world.repo, job, by="ada").stopped_now
    return job


def act(world: World, move: Callable[..., object], job: str) -> Actor:
    return Actor(world.store, lambda store: move(world.repo_over(store), job, by="bea"))


def refusal(call: Callable[[], object]) -> str | None:
    """The code of what was said; None: it was done."""
    try:
        call()
    except Refused as error:
        return error.code
    return None


def die_at(world: World, move: Callable[..., object], job: str, at: int, *, applied: bool) -> bool:
    """Whether it made so many requests."""
    repo = world.repo_over(mortal(world.store, at=at, applied=applied))
    try:
        move(repo, job, by="bea")
    except Crash:
        return True
    return False


# --- a pause ----------------------------------------------------------------------------------


def test_a_pause_acknowledged_while_a_reaper_gives_its_verdict_is_not_dropped() -> None:
    """H28: wherever the reaper is just then, be it past its look at what was asked."""
    acknowledged_amid = 0
    for steps in range(STEPS_MAX):
        world = World()
        job = world.submit()
        world.start()
        reaper = slow_reaper(world)
        goes_on = reaper.step(steps)
        if world.states(job) == {State.RUNNING}:
            acknowledged_amid += pause(world.repo, job, by="ada").asked is not None
            reaper.finish()
            assert heal(world, job) == []
            assert world.states(job) == {State.PAUSED}
        if not goes_on:
            break
    assert acknowledged_amid > 5


def test_a_pause_survives_that_the_job_was_lost_too_often_at_the_same_time(world: World) -> None:
    """H28"""
    job = world.submit()
    for _ in range(3):
        world.start()
        world.lose(Reaper(world.repo, by="coordinator"))
    world.start()
    reaper = slow_reaper(world)
    assert pause(world.repo, job, by="ada").asked is not None
    reaper.finish()
    assert world.states(job) == {State.PAUSED}


def test_a_cancel_acknowledged_just_before_a_pause_takes_effect_is_not_dropped(
    world: World,
) -> None:
    """H29: the holder has seen the pause alone, and gives that verdict."""
    job = world.submit()
    claimed = world.start()
    pause(world.repo, job, by="ada")
    assert cancel(world.repo, job, by="bea").asked is not None
    world.end(claimed, Verdict.PAUSED)
    assert world.states(job) == {State.CANCELLED}
    assert heal(world, job) == []
    assert world.record(State.CANCELLED, job).ending.by == "bea"  # type: ignore[union-attr]


def test_a_cancel_that_meets_a_resume_at_any_step_is_not_dropped() -> None:
    """H29: whoever of the two opens the epoch, an acknowledged cancel is the end."""
    for steps in range(STEPS_MAX):
        world = World()
        job = paused_job(world)
        resumer = act(world, resume, job)
        goes_on = resumer.step(steps)
        answer = cancel(world.repo, job, by="ada")
        assert answer.record.state is State.CANCELLED
        resumer.finish()
        assert isinstance(resumer.error, Refused) or isinstance(resumer.result, Reopening)
        assert heal(world, job) == []
        assert world.states(job) == {State.CANCELLED}
        if not goes_on:
            return
    raise AssertionError("a resume does not end")


def test_a_resume_that_meets_a_cancel_at_any_step_starts_nothing() -> None:
    """H29: the same, with the canceller asleep."""
    for steps in range(STEPS_MAX):
        world = World()
        job = paused_job(world)
        canceller = act(world, cancel, job)
        goes_on = canceller.step(steps)
        said = refusal(lambda world=world, job=job: resume(world.repo, job, by="ada"))
        assert said in (None, "job_not_paused")
        canceller.finish()
        assert isinstance(canceller.result, Stopping)
        assert heal(world, job) == []
        assert world.states(job) == {State.CANCELLED}
        if not goes_on:
            return
    raise AssertionError("a cancel does not end")


# --- a retry ----------------------------------------------------------------------------------


def test_a_slow_writer_of_a_record_at_rest_leaves_none_behind_a_retry(world: World) -> None:
    """H30: a settler of epoch 1 wakes before its write, and by then epoch 2 is queued."""
    job = world.submit()
    claimed = world.start()
    pause_key = keys.record(State.FAILED, job)
    world.end(claimed, Verdict.FAILED)
    world.store.delete(pause_key, None)
    slow = Actor(world.store, lambda store: settle(world.repo_over(store), job, 1))
    assert steps_to_write(slow, pause_key)
    settle(world.repo, job, 1)
    retry(world.repo, job, by="ada")
    assert world.states(job) == {State.QUEUED}
    slow.finish()
    assert world.states(job) == {State.QUEUED}
    assert heal(world, job) == [(job, 2)]


def test_a_record_at_rest_that_lands_long_after_a_retry_is_found(world: World) -> None:
    """H30: the job has completed since; nothing looks for that record any more."""
    job = failed_job(world)
    late = world.store.get(keys.record(State.FAILED, job)).data
    retry(world.repo, job, by="ada")
    world.end(world.start())
    world.store.create(keys.record(State.FAILED, job), late)
    assert world.states(job) == {State.FAILED, State.COMPLETED}
    assert RestWalk(world.repo, page_size=1).turn() == [job]
    assert world.states(job) == {State.COMPLETED}
    assert RestWalk(world.repo).turn() == []


def test_a_record_at_rest_that_lands_while_a_retry_runs_goes_with_its_end(world: World) -> None:
    """H30"""
    job = failed_job(world)
    late = world.store.get(keys.record(State.FAILED, job)).data
    retry(world.repo, job, by="ada")
    claimed = world.start()
    world.store.create(keys.record(State.FAILED, job), late)
    world.end(claimed)
    assert world.states(job) == {State.COMPLETED}


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize(("make", "move"), [(failed_job, retry), (paused_job, resume)])
def test_whoever_takes_a_job_out_of_its_rest_may_die_at_any_request(
    make: Callable[[World], str], move: Callable[..., Reopening], applied: bool
) -> None:
    """H31: once the open cell stands, anybody goes on; the same command again is always good."""
    for at in range(STEPS_MAX):
        world = World()
        job = make(world)
        if not die_at(world, move, job, at, applied=applied):
            assert at > 3
            return
        said = refusal(lambda world=world, job=job: move(world.repo, job, by="ada"))
        assert said in (None, "retry_already_queued", "job_not_paused")
        assert world.find(job).state is State.QUEUED
        assert heal(world, job) == [(job, 2)]
    raise AssertionError("it does not end")


def test_repair_goes_on_for_an_opener_that_died(world: World) -> None:
    """H31: the open cell stands, and nobody asks for the job."""
    job = failed_job(world)
    open_epoch(world.repo, world.record(State.FAILED, job), Opening.RETRY, by="ada")
    assert world.states(job) == {State.FAILED}
    Repair(world.repo).turn()
    assert world.states(job) == {State.QUEUED}
    assert heal(world, job) == [(job, 2)]


def test_the_entry_of_an_opener_that_died_before_its_cell_is_gone_after_a_lease(
    world: World,
) -> None:
    """H31: nobody waits for it; should it wake up after all, its record gets another entry."""
    job = failed_job(world)
    opener = act(world, retry, job)
    assert steps_to_write(opener, keys.open_cell(job, 2))
    repair = Repair(world.repo)
    for _ in range(int(LEASE / TICK)):
        repair.turn()
        assert len(world.names(keys.READY)) == 1
        world.clock.sleep(TICK)
    repair.turn()
    assert world.names(keys.READY) == []
    assert world.states(job) == {State.FAILED}
    opener.finish()
    assert heal(world, job) == [(job, 2)]


def test_an_acknowledged_cancel_holds_though_opener_and_canceller_die(world: World) -> None:
    """H32: the opener after its cell, the canceller after its intent: what is left leads to the
    end that was asked for, and to no start."""
    for at in range(STEPS_MAX):
        world = World()
        job = failed_job(world)
        open_epoch(world.repo, world.record(State.FAILED, job), Opening.RETRY, by="ada")
        died = die_at(world, cancel, job, at, applied=True)
        intended = world.has(keys.claim_cell(job, 2))
        assert heal(world, job) == ([] if intended else [(job, 2)])
        if not died:
            assert intended
            return
    raise AssertionError("it does not end")


def test_of_two_retriers_each_is_told_the_same() -> None:
    """H35"""
    for steps in range(STEPS_MAX):
        world = World()
        job = failed_job(world)
        first = act(world, retry, job)
        goes_on = first.step(steps)
        opened = world.has(keys.open_cell(job, 2))
        said = refusal(lambda world=world, job=job: retry(world.repo, job, by="ada"))
        assert said == ("retry_already_queued" if opened else None)
        first.finish()
        assert isinstance(first.result, Reopening) or isinstance(first.error, Refused)
        assert len(world.names(keys.READY)) == 1
        assert world.record(State.QUEUED, job).manual_retries == 1
        if not goes_on:
            return


def test_a_job_that_runs_again_is_seen_nowhere_else_though_its_retrier_died(world: World) -> None:
    """H31: the retrier dies before it removes the record at rest; who claims the job does."""
    job = failed_job(world)
    retrier = act(world, retry, job)
    assert steps_to_write(retrier, keys.record(State.FAILED, job))
    retrier.kill()
    assert world.states(job) == {State.FAILED, State.QUEUED}
    world.start()
    assert world.states(job) == {State.RUNNING}


# --- a delete ---------------------------------------------------------------------------------


def test_a_seal_outlives_a_job_that_is_deleted(world: World) -> None:
    """H33: a claimer that slept through loss, cancel and delete starts nothing."""
    job = world.submit()
    claimer = slow_claimer(world, requests=3)
    world.lose(Reaper(world.repo, by="coordinator"))
    cancel(world.repo, job, by="ada")
    delete(world.repo, job, by="ada")
    assert world.has(keys.heartbeat(job))
    claimer.finish()
    claimed = claimer.result
    assert claimed is not None
    assert not LifeSigns(world.repo, claimed.record).beat(Phase.RUNNING, None)  # type: ignore[attr-defined]
    assert find_job(world.repo, job) is None
    assert was_deleted(world.repo, job)


@pytest.mark.parametrize("applied", [False, True])
def test_whoever_deletes_may_die_at_any_request(applied: bool) -> None:
    """H33: the same command goes on; until then listings may show the job, and nobody runs it."""
    for at in range(STEPS_MAX):
        world = World()
        job = failed_job(world)
        died = die_at(world, delete, job, at, applied=applied)
        if not was_deleted(world.repo, job):
            assert world.find(job).state is State.FAILED
        delete(world.repo, job, by="ada")
        assert world.states(job) == set()
        assert find_job(world.repo, job) is None
        assert world.claim(BOB) is None
        if not died:
            assert at > 8
            return
    raise AssertionError("it does not end")


def test_of_a_retry_and_a_delete_one_wins() -> None:
    """H35"""
    for steps in range(STEPS_MAX):
        world = World()
        job = failed_job(world)
        deleter = act(world, delete, job)
        goes_on = deleter.step(steps)
        try:
            retry(world.repo, job, by="ada")
            retried = True
        except NotFound:
            retried = False
        deleter.finish()
        if retried:
            assert isinstance(deleter.error, Refused)
            assert heal(world, job) == [(job, 2)]
        else:
            assert deleter.error is None
            assert world.states(job) == set()
            assert world.claim(BOB) is None
        if not goes_on:
            return
    raise AssertionError("a delete does not end")


def tidied(world: World) -> None:
    """Everybody who mends has had many turns."""
    passes = Passes(world.repo, by="coordinator")
    for _ in range(60):
        passes.tick()
        world.clock.sleep(TICK)


def test_a_deleted_job_does_not_come_back_with_what_its_holder_left(world: World) -> None:
    """H36: the holder died between the record at rest and the running one."""
    job = world.submit()
    claimed = world.start()
    holder = Actor(world.store, lambda store: end(world.repo_over(store), claimed, Verdict.FAILED))
    assert steps_to_write(holder, keys.record(State.RUNNING, job))
    holder.kill()
    assert world.states(job) == {State.FAILED, State.RUNNING}
    delete(world.repo, job, by="ada")
    tidied(world)
    assert world.states(job) == set()


def test_a_deleted_job_does_not_come_back_by_a_slow_settler(world: World) -> None:
    """H36"""
    job = world.submit()
    give_verdict(world.repo, world.start().record, ending(world))
    slow = Actor(world.store, lambda store: settle(world.repo_over(store), job, 1))
    assert steps_to_write(slow, keys.record(State.FAILED, job))
    settle(world.repo, job, 1)
    delete(world.repo, job, by="ada")
    slow.finish()
    assert world.states(job) == set()


def test_a_deleted_job_does_not_come_back_by_its_slow_holder(world: World) -> None:
    """H36: which looks for nothing after it has written the record at rest."""
    job = world.submit()
    claimed = world.start()
    holder = Actor(world.store, lambda store: end(world.repo_over(store), claimed, Verdict.FAILED))
    assert steps_to_write(holder, keys.record(State.FAILED, job))
    assert world.find(job).state is State.FAILED
    delete(world.repo, job, by="ada")
    holder.finish()
    assert world.states(job) == {State.FAILED}
    tidied(world)
    assert world.states(job) == set()


def test_a_deleted_job_does_not_come_back_by_a_reader(world: World) -> None:
    """H36: it puts the running record back that it missed while the job ended."""
    job = world.submit()
    claimed = world.start()
    running = world.store.get(keys.record(State.RUNNING, job)).data
    world.end(claimed, Verdict.COMPLETED)
    delete(world.repo, job, by="ada")
    world.store.create(keys.record(State.RUNNING, job), running)
    tidied(world)
    assert world.states(job) == set()


def test_no_record_of_an_earlier_rest_outlives_a_delete(world: World) -> None:
    """H36"""
    job = failed_job(world)
    late = world.store.get(keys.record(State.FAILED, job)).data
    retry(world.repo, job, by="ada")
    world.end(world.start())
    world.store.create(keys.record(State.FAILED, job), late)
    delete(world.repo, job, by="ada")
    assert world.states(job) == set()


@pytest.mark.parametrize("applied", [False, True])
def test_a_delete_that_died_at_any_request_leaves_no_output_when_it_goes_on(
    applied: bool, tmp_path: Path
) -> None:
    """H33"""
    (tmp_path / "a").write_text("one")
    (tmp_path / "b").write_text("other")
    for at in range(STEPS_MAX):
        world = World()
        job = world.submit()
        claimed = world.start()
        leave(world.repo, job_id=job, epoch=1, folder=tmp_path, partial=False)
        world.end(claimed)
        died = die_at(world, delete, job, at, applied=applied)
        delete(world.repo, job, by="ada")
        left = [path for path in ("a", "b") if world.has(keys.output_file(job, 1, path))]
        assert (left, world.has(keys.output_manifest(job, 1))) == ([], False)
        if not died:
            return
    raise AssertionError("it does not end")


def ending(world: World) -> Ending:
    return Ending(verdict=Verdict.FAILED, ended_at=world.clock.now(), by="coordinator")
