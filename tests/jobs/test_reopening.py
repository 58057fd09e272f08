"""Pause, resume, retry and delete, one at a time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stado.core import keys
from stado.core.records import Intent
from stado.core.spec import Spec, make_request
from stado.core.states import JobType, Opening, Reason, State, Verdict
from stado.errors import NotFound, Refused, Unreadable
from stado.jobs.changes import cancel, pause, rerun, resume, retry
from stado.jobs.claim import claim
from stado.jobs.deletion import delete, is_unfinished
from stado.jobs.endings import claim_for_intent, open_epoch, settle
from stado.jobs.finding import find_job, is_known, was_deleted
from stado.jobs.life import LifeSigns
from stado.jobs.queue_index import Repair
from stado.jobs.reaping import Reaper
from stado.jobs.rest_walk import RestWalk
from stado.jobs.status import story
from stado.jobs.submit import SubmissionSweep, submit
from stado.storage.observe import CountingStore, Operation
from stado.storage.port import Store
from tests.jobs.actors import Actor
from tests.jobs.world import ALICE, LEASE, World, end, heal


def ended(world: World, verdict: Verdict = Verdict.FAILED, spec: Spec | None = None) -> str:
    job = world.submit(spec=spec)
    world.end(world.claimed_of(job), verdict)
    return job


def paused(world: World) -> str:
    job = world.submit()
    pause(world.repo, job, by="ada")
    return job


def code_of(error: pytest.ExceptionInfo[Refused]) -> str:
    return error.value.code


# --- pause ------------------------------------------------------------------------------------


def test_a_queued_job_is_paused_at_once(world: World) -> None:
    """R46, R48, T22"""
    job = world.submit()
    answer = pause(world.repo, job, by="ada", note="the cluster is needed")
    assert answer.stopped_now
    record = world.record(State.PAUSED, job)
    assert answer.record == record
    assert record.ending is not None
    assert (record.ending.verdict, record.ending.reason) == (Verdict.PAUSED, Reason.PAUSED_BY_USER)
    assert (record.ending.by, record.ending.detail) == (
        "ada",
        "paused while it was queued, by ada: the cluster is needed",
    )
    assert (record.pauses, record.starts) == (1, 0)
    assert world.states(job) == {State.PAUSED}
    assert world.names(keys.READY) == []
    assert world.claim() is None


def test_a_running_job_is_asked_to_pause(world: World) -> None:
    """R48: the holder sees it at its check-in."""
    job = world.submit()
    claimed = world.start()
    answer = pause(world.repo, job, by="ada", note="later")
    assert (answer.stopped_now, answer.record.state) == (False, State.RUNNING)
    asked = LifeSigns(world.repo, claimed.record).asked()
    assert asked == answer.asked
    assert asked is not None
    assert (asked.intent, asked.by, asked.note) == (Intent.PAUSE, "ada", "later")
    world.end(claimed, Verdict.PAUSED)
    assert world.states(job) == {State.PAUSED}
    assert world.record(State.PAUSED, job).starts == 1


def test_a_cancel_goes_before_a_pause_and_keeps_who_asked(world: World) -> None:
    job = world.submit()
    claimed = world.start()
    pause(world.repo, job, by="ada", note="later")
    cancel(world.repo, job, by="bea", note="never")
    asked = LifeSigns(world.repo, claimed.record).asked()
    assert asked is not None
    assert (asked.intent, asked.by, asked.note) == (Intent.CANCEL, "bea", "never")
    assert (asked.pause, asked.pause_by) == (True, "ada")


@pytest.mark.parametrize("verdict", [Verdict.COMPLETED, Verdict.FAILED, Verdict.CANCELLED])
def test_a_pause_of_what_has_ended_is_answered_with_the_outcome(
    world: World, verdict: Verdict
) -> None:
    job = ended(world, verdict)
    answer = pause(world.repo, job, by="ada")
    assert (answer.stopped_now, answer.asked, answer.record.state) == (
        False,
        None,
        State(verdict.value),
    )


def test_a_pause_whose_worker_is_gone_is_given_by_who_judges(world: World) -> None:
    job = world.submit()
    world.start()
    pause(world.repo, job, by="ada", note="later")
    world.lose(Reaper(world.repo, by="coordinator"))
    record = world.record(State.PAUSED, job)
    assert record.ending is not None
    assert record.ending.detail is not None
    assert record.ending.detail.startswith("paused while its worker did not answer: ")
    assert record.ending.detail.endswith(" (later)")
    assert record.lease_losses == 0


def test_an_unfinished_pause_is_finished_by_who_looks(world: World) -> None:
    job = world.submit()
    claim_for_intent(world.repo, world.record(State.QUEUED, job), intent=Intent.PAUSE, by="ada")
    assert world.find(job).state is State.PAUSED
    assert world.states(job) == {State.PAUSED}


# --- resume, and the cancel of a paused job -----------------------------------------------------


def test_a_paused_job_is_queued_as_of_now(world: World) -> None:
    """R16, R49, T23"""
    job = paused(world)
    before = world.record(State.PAUSED, job)
    world.clock.sleep(60)
    answer = resume(world.repo, job, by="bea", note="go")
    assert answer.opened_now
    record = world.record(State.QUEUED, job)
    assert world.states(job) == {State.QUEUED}
    assert (record.epoch, record.opened_from, record.manual_retries) == (2, State.PAUSED, 0)
    assert record.queued_ms == before.queued_ms + 60_000
    assert record.submitted_at == before.submitted_at
    assert [entry.epoch for entry in world.entries()] == [2]
    world.end(world.start())
    assert world.states(job) == {State.COMPLETED}
    opened = world.repo.open_cell(job, 2)
    assert (opened.kind, opened.by, opened.note) == (Opening.RESUME, "bea", "go")


def test_only_what_is_paused_is_resumed(world: World) -> None:
    job = world.submit()
    with pytest.raises(Refused, match="queued, and not paused") as error:
        resume(world.repo, job, by="ada")
    assert code_of(error) == "job_not_paused"


def test_a_paused_job_is_cancelled_without_being_queued(world: World) -> None:
    """T24"""
    job = paused(world)
    answer = cancel(world.repo, job, by="bea", note="not needed")
    assert answer.stopped_now
    assert answer.record.ending is not None
    assert (answer.record.ending.reason, answer.record.ending.by, answer.record.ending.detail) == (
        Reason.CANCELLED_BY_USER,
        "bea",
        "cancelled while it was paused, by bea: not needed",
    )
    assert world.states(job) == {State.CANCELLED}
    assert world.names(keys.READY) == []
    assert heal(world, job) == []
    again = cancel(world.repo, job, by="cy")
    assert (again.stopped_now, again.record) == (False, answer.record)


# --- retry --------------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", [Verdict.FAILED, Verdict.CANCELLED, Verdict.TIMED_OUT])
def test_what_has_ended_badly_is_retried_under_its_own_id(world: World, verdict: Verdict) -> None:
    """R17, R50, R66, T29: what has ended stays readable."""
    job = ended(world, verdict)
    before = world.record(State(verdict.value), job)
    world.clock.sleep(30)
    assert retry(world.repo, job, by="ada").opened_now
    record = world.record(State.QUEUED, job)
    assert (record.epoch, record.manual_retries, record.starts) == (2, 1, 1)
    assert record.queued_ms == before.queued_ms + 30_000
    assert world.states(job) == {State.QUEUED}
    end = world.repo.find_end(job, 1)
    assert end is not None
    assert end.record == before
    assert [told.epoch for told in story(world.repo, job).epochs] == [1, 2]


def test_a_retry_forgets_the_losses_before_it(world: World) -> None:
    job = world.submit(spec=Spec(command="", max_lease_losses=0))
    world.start()
    world.lose(Reaper(world.repo, by="coordinator"))
    assert world.record(State.FAILED, job).ending is not None
    retry(world.repo, job, by="ada")
    assert world.record(State.QUEUED, job).lease_losses == 0


@pytest.mark.parametrize(
    ("code", "make"),
    [
        ("completed_is_final", lambda world: ended(world, Verdict.COMPLETED)),
        ("terminal_is_final", lambda world: ended(world, spec=Spec(command="", final=True))),
        ("still_live", lambda world: world.submit()),
        ("still_live", paused),
    ],
)
def test_what_is_not_retried_says_why(world: World, code: str, make: object) -> None:
    """R50, R66, T32"""
    job = make(world)  # type: ignore[operator]
    before = world.states(job)
    with pytest.raises(Refused, match=job) as error:
        retry(world.repo, job, by="ada")
    assert code_of(error) == code
    assert world.states(job) == before


def test_a_second_retry_is_told_of_the_first(world: World) -> None:
    job = ended(world)
    retry(world.repo, job, by="ada")
    with pytest.raises(Refused) as error:
        retry(world.repo, job, by="bea")
    assert code_of(error) == "retry_already_queued"
    world.start()
    with pytest.raises(Refused) as error:
        retry(world.repo, job, by="bea")
    assert code_of(error) == "still_live"


def test_a_retry_makes_the_requests_of_the_protocol(world: World) -> None:
    job = ended(world)
    counting = CountingStore(world.store, world.tasks)
    retry(world.repo_over(counting), job, by="ada")
    asked = counting.snapshot()
    assert (asked.writes, asked.deletes) == (3, 1)
    finding_it = 3
    assert asked.of() == 3 + 1 + 1 + 1 + finding_it


def test_a_cancel_of_a_paused_job_makes_the_requests_of_the_protocol(world: World) -> None:
    job = paused(world)
    counting = CountingStore(world.store, world.tasks)
    cancel(world.repo_over(counting), job, by="ada")
    asked = counting.snapshot()
    finding_it = 3
    assert (asked.writes, asked.deletes) == (4, 2)
    assert asked.of() == 4 + 2 + 7 + finding_it


def test_who_looks_goes_on_for_an_opener_that_died(world: World) -> None:
    job = ended(world)
    open_epoch(world.repo, world.record(State.FAILED, job), Opening.RETRY, by="ada")
    assert world.find(job).state is State.QUEUED
    assert world.states(job) == {State.QUEUED}


# --- delete -------------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", [Verdict.COMPLETED, Verdict.FAILED, Verdict.CANCELLED])
def test_what_has_ended_is_deleted(world: World, verdict: Verdict) -> None:
    """T31: its cells and the last sign of its life stay."""
    job = world.submit()
    world.end(world.start(), verdict)
    world.store.put(keys.log_segment(job, 1, 0), b"line\n")
    assert delete(world.repo, job, by="ada").objects == 1
    assert world.states(job) == set()
    assert find_job(world.repo, job) is None
    assert was_deleted(world.repo, job)
    assert is_known(world.repo, job)
    assert world.names(keys.log_folder(job)) == []
    assert world.has(keys.heartbeat(job))
    assert world.repo.cells(job).opens == {2}
    for move in (cancel, pause, resume, retry):
        with pytest.raises(NotFound, match="was deleted"):
            move(world.repo, job, by="ada")
    with pytest.raises(NotFound, match="was deleted"):
        rerun(world.repo, job, run_id=None, submitter="ada")


def test_what_lives_is_not_deleted(world: World) -> None:
    job = world.submit()
    with pytest.raises(Refused, match="cancel it first") as error:
        delete(world.repo, job, by="ada")
    assert code_of(error) == "still_live"
    with pytest.raises(NotFound):
        delete(world.repo, "a" * 16, by="ada")


def test_a_run_id_whose_jobs_were_deleted_is_not_free(world: World) -> None:
    job = world.submit("x", "y", run_id="mine")
    for member in (f"{job}-1", f"{job}-2"):
        cancel(world.repo, member, by="ada")
    delete(world.repo, f"{job}-1", by="ada")
    assert world.submit("x", "y", run_id="mine") == job
    delete(world.repo, f"{job}-2", by="ada")
    with pytest.raises(Refused) as error:
        world.submit("x", "y", run_id="mine")
    assert code_of(error) == "job_deleted"


def test_a_sweep_does_not_bring_back_what_was_deleted(world: World) -> None:
    """Of a submission whose submitter died when all was queued, and of one that was finished."""
    request = make_request(["a", "b"], Spec(command=""), batch=True)

    def submitting(store: Store) -> object:
        return submit(world.repo_over(store), run_id="r", request=request, submitter="ada")

    submitter = Actor(world.store, submitting)
    submitter.step_to_write(4, made=False)
    submitter.kill()
    first = world.start()
    world.end(first)
    delete(world.repo, first.record.id, by="ada")
    sweep = SubmissionSweep(world.repo)
    for _ in range(3):
        world.clock.sleep(LEASE + 1)
        sweep.turn()
    run = world.repo.find_run("r")
    assert run is not None
    assert (run.value.complete, run.value.deleted) == (True, [1])
    assert world.states(first.record.id) == set()
    assert len(world.names(keys.READY)) == 1


def test_a_submitter_is_not_disturbed_by_the_deletion_of_its_first_job(world: World) -> None:
    request = make_request(["a", "b"], Spec(command=""), batch=True)

    def submitting(store: Store) -> object:
        return submit(world.repo_over(store), run_id="r", request=request, submitter="ada")

    submitter = Actor(world.store, submitting)
    submitter.step_to_write(4, made=False)
    first = world.start()
    world.end(first)
    delete(world.repo, first.record.id, by="bea")
    submitter.finish()
    assert submitter.error is None
    run = world.repo.find_run("r")
    assert run is not None
    assert (run.value.complete, run.value.deleted) == (True, [1])


def test_a_delete_is_answered_though_what_it_reads_is_damaged(world: World) -> None:
    """A policy that cannot be read may name any save: all of them stay. A run that cannot be read
    keeps its snapshot."""
    job = world.submit(spec=Spec(command="", type=JobType.TRAIN), run_id="r")
    claimed = world.start()
    world.store.put(keys.checkpoint_part(job, 1, 1, 0), b"weights")
    world.end(claimed, Verdict.FAILED)
    world.store.put(keys.policy(job), b"{")
    world.store.put(keys.run("r"), b"{")
    assert delete(world.repo, job, by="ada").policies_stay
    assert world.has(keys.checkpoint_part(job, 1, 1, 0))
    assert world.states(job) == set()


def test_more_retries_than_epochs_are_nonsense(world: World) -> None:
    """Somebody would look for a policy of each."""
    job = ended(world)
    key = keys.record(State.FAILED, job)
    world.store.put(key, world.record(State.FAILED, job).evolve(manual_retries=1).encode())
    with pytest.raises(Unreadable, match="retried 1 times by epoch 1"):
        world.repo.find_record(State.FAILED, job)


def test_a_walk_of_one_turn_begins_anywhere(world: World) -> None:
    old = ended(world)
    late = world.store.get(keys.record(State.FAILED, old)).data
    retry(world.repo, old, by="ada")
    world.end(world.start())
    world.store.create(keys.record(State.FAILED, old), late)
    world.clock.sleep(1000)
    for _ in range(3):
        ended(world)
    for _ in range(200):
        RestWalk(world.repo, page_size=1, once=True).turn()
    assert world.states(old) == {State.COMPLETED}


def test_an_entry_of_a_deleted_job_is_deleted(world: World) -> None:
    job = ended(world)
    record = world.record(State.FAILED, job)
    delete(world.repo, job, by="ada")
    world.repo.create_entry(record.evolve(state=State.QUEUED, epoch=2))
    Repair(world.repo).turn()
    assert world.names(keys.READY) == []


def test_an_entry_that_leads_to_a_deleted_job_starts_nothing(world: World) -> None:
    job = world.submit()
    (entry,) = world.entries()
    cancel(world.repo, job, by="ada")
    delete(world.repo, job, by="ada")
    assert claim(world.repo, entry, ALICE) is None


# --- and time -----------------------------------------------------------------------------------


def test_the_time_of_a_paused_job_stands_still(world: World) -> None:
    job = world.submit(spec=Spec(command="", timeout_seconds=3600))
    claimed = world.start()
    picked_up_at = claimed.record.picked_up_at
    assert picked_up_at is not None
    world.clock.sleep(100)
    pause(world.repo, job, by="ada")
    world.end(claimed, Verdict.PAUSED)
    world.clock.sleep(10_000)
    resume(world.repo, job, by="ada")
    record = world.record(State.QUEUED, job)
    assert record.picked_up_at == picked_up_at + timedelta(seconds=10_000)
    assert world.start().record.picked_up_at == record.picked_up_at


def test_a_retry_has_its_time_anew(world: World) -> None:
    job = world.submit(spec=Spec(command="", timeout_seconds=3600))
    world.end(world.start(), Verdict.TIMED_OUT)
    world.clock.sleep(10_000)
    retry(world.repo, job, by="ada")
    assert world.record(State.QUEUED, job).picked_up_at is None
    assert world.start().record.picked_up_at == world.clock.now()


def test_a_job_whose_deadline_has_passed_is_not_retried(world: World) -> None:
    deadline_at = world.clock.now() + timedelta(seconds=60)
    job = ended(world, spec=Spec(command="", deadline_at=deadline_at))
    world.clock.sleep(61)
    with pytest.raises(Refused, match="deadline of job") as error:
        retry(world.repo, job, by="ada")
    assert code_of(error) == "deadline_passed"


def test_a_pause_comes_too_late_for_a_job_whose_time_is_up(world: World) -> None:
    """Its worker is gone, too."""
    job = world.submit(spec=Spec(command="", timeout_seconds=60))
    world.start()
    pause(world.repo, job, by="ada")
    world.lose(Reaper(world.repo, by="coordinator"))
    assert world.states(job) == {State.TIMED_OUT}


def test_a_job_that_fails_again_rests_as_it_failed_last(world: World) -> None:
    """The record of the first time is still there, or there again; nobody may overwrite it."""
    job = ended(world)
    late = world.store.get(keys.record(State.FAILED, job)).data
    retry(world.repo, job, by="ada")
    claimed = world.start()
    world.store.create(keys.record(State.FAILED, job), late)
    counting = CountingStore(world.store, world.tasks)
    end(world.repo_over(counting), claimed, Verdict.FAILED)
    assert world.record(State.FAILED, job).epoch == 2
    assert counting.snapshot().of(Operation.REPLACE) == 0


def test_a_deletion_that_stopped_on_the_way_is_known_though_its_record_is_gone(
    world: World,
) -> None:
    """Somebody has settled the job meanwhile: only its whole id leads to it then."""
    job = ended(world)
    world.store.put(keys.log_segment(job, 1, 0), b"line\n")
    deleter = Actor(world.store, lambda store: delete(world.repo_over(store), job, by="ada"))
    while not world.has(keys.open_cell(job, 2)):
        deleter.step()
    deleter.kill()
    settle(world.repo, job, 1)
    assert world.states(job) == set()
    assert is_unfinished(world.repo, job)
    assert delete(world.repo, job, by="ada").objects == 1
    assert not is_unfinished(world.repo, job)
