from __future__ import annotations

import pytest

from stado.core import keys
from stado.core.records import Ending, Holder, Intent, Phase, Record
from stado.core.spec import Spec
from stado.core.states import Reason, State, Verdict
from stado.errors import Ambiguous, NotFound
from stado.jobs.asking import ask
from stado.jobs.changes import Stopping, cancel, pause, pause_queue, rerun, resume_queue
from stado.jobs.claim import claim
from stado.jobs.endings import claim_for_intent, give_verdict, settle, settle_own
from stado.jobs.life import LifeSigns
from stado.jobs.listings import newest
from stado.jobs.queue_index import read_page
from stado.jobs.reaping import Reaper
from stado.jobs.repository import Repository
from stado.jobs.status import story
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.observe import CountingStore, Operation
from tests.jobs.actors import Actor, Crash, GuardedStore, mortal
from tests.jobs.world import ALICE, BOB, World, heal


def send_cancel(world: World, job: str) -> Stopping:
    return cancel(world.repo, job, by="ada")


def test_a_queued_job_is_cancelled_at_once(world: World) -> None:
    """R86, T17"""
    job = world.submit()
    answer = send_cancel(world, job)
    assert answer.stopped_now
    assert answer.record.state is State.CANCELLED
    assert answer.record.ending is not None
    assert answer.record.ending.reason is Reason.CANCELLED_BY_USER
    assert answer.record.ending.by == "ada"
    assert world.states(job) == {State.CANCELLED}
    assert world.names(keys.READY) == []
    assert world.claim() is None


def test_cancelling_a_queued_job_makes_3_writes_and_2_deletes_besides_finding_it(
    world: World,
) -> None:
    job = world.submit()
    counting = CountingStore(world.store, world.tasks)
    cancel(world.repo_over(counting), job, by="ada")
    asked = counting.snapshot()
    assert (asked.writes, asked.deletes) == (3, 2)


def test_a_running_job_is_asked_to_stop_and_the_holder_sees_it_at_its_check_in(
    world: World,
) -> None:
    job = world.submit()
    claimed = world.start()
    signs = LifeSigns(world.repo, claimed.record)
    assert signs.asked() is None
    answer = send_cancel(world, job)
    assert (answer.stopped_now, answer.record.state) == (False, State.RUNNING)
    asked = signs.asked()
    assert asked is not None
    assert asked == answer.asked
    assert signs.asked() == asked
    assert (asked.cancel, asked.cancel_by) == (True, "ada")
    assert send_cancel(world, job).asked == asked
    life = story(world.repo, job).life
    assert life is not None
    assert life.cancel_asked_by == "ada"


@pytest.mark.parametrize("verdict", [Verdict.COMPLETED, Verdict.FAILED])
def test_a_job_that_ended_keeps_its_outcome(world: World, verdict: Verdict) -> None:
    job = world.submit()
    claimed = world.start()
    send_cancel(world, job)
    world.end(claimed, verdict)
    answer = send_cancel(world, job)
    assert (answer.stopped_now, answer.record.state) == (False, State(verdict.value))


def test_an_unknown_job_cannot_be_cancelled_or_run_again(world: World) -> None:
    with pytest.raises(NotFound):
        send_cancel(world, "a" * 16)
    with pytest.raises(NotFound):
        rerun(world.repo, "a" * 16, run_id=None, submitter="ada")


def test_a_cancel_is_remembered_though_the_worker_is_lost(world: World) -> None:
    job = world.submit()
    world.start()
    send_cancel(world, job)
    world.lose(Reaper(world.repo, by="coordinator"))
    assert world.states(job) == {State.CANCELLED}
    assert world.names(keys.READY) == []
    assert heal(world, job) == []


def test_a_cancel_is_remembered_though_the_verdict_was_lost(world: World) -> None:
    """Whoever gave the verdict had read what was asked before the cancel came."""
    job = world.submit()
    claimed = world.start()
    send_cancel(world, job)
    give_verdict(world.repo, claimed.record, lost(world))
    settle(world.repo, job, 1)
    assert world.find(job).state is State.CANCELLED
    assert world.names(keys.READY) == []
    assert heal(world, job) == []


def test_a_cancel_goes_over_to_the_next_epoch_with_all_that_was_asked(world: World) -> None:
    """Somebody else has that epoch by then: it is asked what the one before was asked."""
    job = world.submit()
    claimed = world.start()
    give_verdict(world.repo, claimed.record, lost(world))
    settle(world.repo, job, 1)
    world.claimed_of(job)
    ask(world.repo, job, 1, Intent.CANCEL, by="ada", note="too dear", terminate=True)
    settle(world.repo, job, 1)
    asked = world.repo.find_asks(job, 2)
    assert asked is not None
    assert (asked.value.cancel, asked.value.terminate) == (True, True)
    assert asked.value.cancel_note == "too dear"


def test_a_holder_that_gives_its_epoch_back_does_not_drop_a_cancel(world: World) -> None:
    job = world.submit()
    claimed = world.start()
    send_cancel(world, job)
    cell, ours = give_verdict(world.repo, claimed.record, lost(world))
    assert ours
    settle_own(world.repo, cell, claimed.running_version)
    assert world.states(job) == {State.CANCELLED}
    assert heal(world, job) == []


def test_a_holder_that_gives_its_epoch_back_queues_the_next_with_its_entry(world: World) -> None:
    job = world.submit()
    claimed = world.start()
    cell, _ = give_verdict(world.repo, claimed.record, lost(world))
    settle_own(world.repo, cell, claimed.running_version)
    assert world.states(job) == {State.QUEUED}
    assert [entry.epoch for entry in world.entries()] == [2]


def test_a_canceller_that_loses_its_epoch_to_a_reaper_goes_on_at_the_next(world: World) -> None:
    """The claimer died in the gate; its epoch is declared lost between the canceller's intent and
    the verdict that the intent names."""
    for stopped_after in range(1, 12):
        world = World()
        job = world.submit()
        (entry,) = world.entries()
        with pytest.raises(Crash):
            claim(world.repo_over(mortal(world.store, at=1, applied=True)), entry, ALICE)
        slow = stalled_cancel(world, job, stopped_after)
        world.lose(Reaper(world.repo, by="coordinator"))
        slow.finish()
        assert isinstance(slow.result, Stopping)
        assert slow.result.record.state is State.CANCELLED
        assert world.find(job).state is State.CANCELLED
        assert heal(world, job) == []


def test_a_reaper_finishes_the_intent_of_a_dead_canceller(world: World) -> None:
    """An intent has no process: it needs no seal, and nobody waits a lease for it."""
    job = world.submit()
    record = world.record(State.QUEUED, job)
    holder = Holder(
        token="t",
        consumer="alice",
        incarnation="alice-1",
        host="host-a",
        claimed_at=world.clock.now(),
        lease_seconds=120.0,
    )
    ghost = record.evolve(state=State.RUNNING, holder=holder)
    world.store.create(keys.record(State.RUNNING, job), ghost.encode())
    assert claim_for_intent(world.repo, record, intent=Intent.CANCEL, by="ada")
    world.lose(Reaper(world.repo, by="coordinator"))
    assert world.states(job) == {State.CANCELLED}


@pytest.mark.parametrize("paused_before", [False, True])
def test_what_ends_by_our_request_while_we_ask_was_stopped_by_us(
    world: World, paused_before: bool
) -> None:
    """And not before: whoever else tells the outcome first, it is what this call has done. One
    that is to be paused too comes to rest in between, and its holder goes on to cancel it."""
    job = world.submit()
    claimed = world.start()
    if paused_before:
        pause(world.repo, job, by="ada")

    def meet_it(operation: Operation, key: str) -> None:
        if (operation, key) in writes_of_asks and not world.repo.find_end(job, 1):
            world.end(claimed, Verdict.PAUSED if paused_before else Verdict.CANCELLED)

    asks = keys.asks(job, 1)
    writes_of_asks = {(Operation.CREATE, asks), (Operation.REPLACE, asks)}
    answer = cancel(world.repo_over(GuardedStore(world.store, after=meet_it)), job, by="ada")
    assert (answer.record.state, answer.stopped_now) == (State.CANCELLED, True)
    assert not send_cancel(world, job).stopped_now


def test_what_ends_by_our_request_was_stopped_by_us_though_the_clock_is_set_back(
    world: World,
) -> None:
    job = world.submit()
    claimed = world.start()

    def meet_it(operation: Operation, key: str) -> None:
        if (operation, key) == (Operation.GET, asks) and not set_back:
            set_back.append(True)
            world.clock.suspend(-60)
        if (operation, key) == (Operation.CREATE, asks):
            world.end(claimed, Verdict.CANCELLED)

    asks = keys.asks(job, 1)
    set_back: list[bool] = []
    answer = cancel(world.repo_over(GuardedStore(world.store, after=meet_it)), job, by="ada")
    assert (answer.record.state, answer.stopped_now) == (State.CANCELLED, True)
    assert set_back


def test_what_another_has_asked_for_was_not_stopped_by_us(world: World) -> None:
    job = world.submit()
    claimed = world.start()
    cancel(world.repo, job, by="bob")

    def meet_it(operation: Operation, key: str) -> None:
        if (operation, key) == (Operation.GET, keys.asks(job, 1)) and not ended:
            ended.append(world.end(claimed, Verdict.CANCELLED))

    ended: list[Record] = []
    answer = cancel(world.repo_over(GuardedStore(world.store, after=meet_it)), job, by="ada")
    assert (answer.record.state, answer.stopped_now) == (State.CANCELLED, False)
    assert ended


@pytest.mark.parametrize("at", range(14))
@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("running", [False, True], ids=["queued", "running"])
def test_a_canceller_may_die_anywhere_and_another_cancel_finishes(
    at: int, applied: bool, running: bool
) -> None:
    world = World()
    job = world.submit()
    claimed = world.start() if running else None
    try:
        cancel(world.repo_over(mortal(world.store, at=at, applied=applied)), job, by="ada")
    except Crash:
        send_cancel(world, job)
    if claimed is None:
        assert world.find(job).state is State.CANCELLED
        assert heal(world, job) == []
        return
    asked = LifeSigns(world.repo, claimed.record).asked()
    assert asked is not None
    assert asked.cancel


@pytest.mark.parametrize("stopped_after", range(1, 12))
def test_a_cancel_that_stalls_while_a_claim_goes_through_asks_the_holder(
    stopped_after: int,
) -> None:
    world = World()
    job = world.submit()
    slow = stalled_cancel(world, job, stopped_after)
    claimed = world.claim(BOB)
    began = claimed is not None and LifeSigns(world.repo, claimed.record).beat(
        Phase.PREPARING, None
    )
    slow.finish()
    answer = slow.result
    assert isinstance(answer, Stopping)
    if began:
        assert answer.asked is not None
        assert not answer.stopped_now
    else:
        assert answer.stopped_now or answer.record.state is State.CANCELLED
        assert world.claim() is None


def test_a_flag_that_was_written_without_an_answer_counts(world: World) -> None:
    job = world.submit()
    claimed = world.start()
    fault = Fault(FaultKind.LOST_ANSWER, key_prefix=f"status/{job}/asks", operation=None, skip=1)
    store = FaultyStore(world.store, world.clock, ScriptedFaults(fault))
    with pytest.raises(Exception, match="injected"):
        cancel(world.repo_over(store), job, by="ada")
    assert LifeSigns(world.repo, claimed.record).asked() is not None


# --- rerun --------------------------------------------------------------------------------


def in_state(world: World, state: State) -> str:
    spec = Spec(command="", cpu=2.0, priority=7, environment={"A": "b"}, verify="test -e x")
    job = world.submit("make it", spec=spec)
    if state is State.CANCELLED:
        send_cancel(world, job)
    elif state is not State.QUEUED:
        claimed = world.start()
        if state.at_rest:
            world.end(claimed, Verdict(state.value))
    return job


@pytest.mark.parametrize("state", [state for state in State if state is not State.PAUSED])
def test_any_job_is_run_again_under_a_new_id_and_stays_as_it_was(
    world: World, state: State
) -> None:
    """R207, T30"""
    job = in_state(world, state)
    before = world.record(state, job)
    world.clock.sleep(60)
    again = rerun(world.repo, job, run_id=None, submitter="bea")
    assert again.created
    assert again.base_id != job
    record = world.record(State.QUEUED, again.base_id)
    assert record.spec == before.spec
    assert (record.rerun_of, record.submitter, record.epoch) == (job, "bea", 1)
    assert record.priority == before.priority
    assert world.states(job) == {state}
    assert world.record(state, job) == before


def test_a_rerun_keeps_the_run_time_that_was_stated(world: World) -> None:
    """R163"""
    spec = Spec(command="", runtime_seconds_estimate=7200)
    again = rerun(world.repo, world.submit(spec=spec), run_id=None, submitter="ada")
    record = world.record(State.QUEUED, again.base_id)
    assert record.spec.runtime_seconds_estimate == 7200


def test_a_rerun_carries_the_declaration_that_it_ends_its_agent(world: World) -> None:
    """R194"""
    spec = Spec(command="", terminates_agent=True)
    again = rerun(world.repo, world.submit(spec=spec), run_id=None, submitter="ada")
    assert world.record(State.QUEUED, again.base_id).spec.terminates_agent


def test_a_rerun_with_a_run_id_happens_once(world: World) -> None:
    """R207, R130"""
    job = in_state(world, State.FAILED)
    first = rerun(world.repo, job, run_id="again", submitter="ada")
    assert rerun(world.repo, job, run_id="again", submitter="ada").job_ids == first.job_ids
    assert rerun(world.repo, job, run_id=None, submitter="ada").job_ids != first.job_ids


def test_a_member_of_a_batch_is_run_again_alone(world: World) -> None:
    """R207"""
    base = world.submit("echo 1", "echo 2")
    again = rerun(world.repo, f"{base}-2", run_id=None, submitter="ada")
    record = world.record(State.QUEUED, again.base_id)
    assert (record.spec.command, record.batch) == ("echo 2", False)


# --- the queue as a whole -------------------------------------------------------------------


def test_a_paused_queue_shows_in_the_page_that_an_agent_reads_anyway(world: World) -> None:
    """R209"""
    world.submit()
    pause_queue(world.repo, by="ada")
    counting = CountingStore(world.store, world.tasks)
    page = read_page(world.repo_over(counting))
    assert page.paused
    assert len(page.entries) == 1
    assert counting.snapshot().of() == counting.snapshot().of(Operation.LIST) == 1
    assert newest(world.repo, limit=5).queue_paused
    resume_queue(world.repo, by="ada")
    assert not read_page(world.repo).paused
    assert not newest(world.repo, limit=5).queue_paused


def test_pausing_twice_and_resuming_twice_is_no_error(world: World) -> None:
    """R209"""
    for _ in range(2):
        pause_queue(world.repo, by="ada")
    for _ in range(2):
        resume_queue(world.repo, by="ada")
    assert read_page(world.repo).entries == []


@pytest.mark.parametrize("paused", [True, False])
def test_what_lands_late_does_not_undo_what_was_said_since(world: World, paused: bool) -> None:
    """R209"""
    late = FaultyStore(
        world.store, world.clock, ScriptedFaults(Fault(FaultKind.LATE, Operation.CREATE))
    )
    with pytest.raises(Ambiguous):
        say(world.repo_over(late), paused=paused)
    world.clock.sleep(1)
    say(world.repo, paused=not paused)
    late.land_late_writes()
    assert read_page(world.repo).paused is not paused
    say(world.repo, paused=paused)
    assert read_page(world.repo).paused is paused
    assert len(world.names(keys.QUEUE_MARKS)) == 1


def say(repo: Repository, *, paused: bool) -> None:
    if paused:
        pause_queue(repo, by="ada")
    else:
        resume_queue(repo, by="ada")


def test_who_follows_a_clock_that_is_behind_still_has_the_last_word(world: World) -> None:
    """R209"""
    world.store.create(keys.queue_mark(world.repo.now_ms() + 60_000, paused=True), b"bob")
    resume_queue(world.repo, by="ada")
    assert not read_page(world.repo).paused


def test_names_that_are_no_marks_pause_nothing(world: World) -> None:
    for name in ("paused", "!-paused", "12-paused", "000000000000000-paused-x"):
        world.store.create(keys.QUEUE_MARKS + name, b"")
    assert not read_page(world.repo).paused
    pause_queue(world.repo, by="ada")
    assert read_page(world.repo).paused
    assert len(world.names(keys.QUEUE_MARKS)) == 5  # nor are they ours to delete


def lost(world: World) -> Ending:
    return Ending(
        verdict=Verdict.LOST,
        reason=Reason.SUPERVISOR_DIED,
        ended_at=world.clock.now(),
        by="alice",
    )


def stalled_cancel(world: World, job: str, requests: int) -> Actor:
    slow = Actor(world.store, lambda store: cancel(world.repo_over(store), job, by="ada"))
    slow.step(requests)
    return slow
