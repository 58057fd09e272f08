from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from stado.core import keys
from stado.core.order import entry_key
from stado.core.records import RunRecord
from stado.core.spec import Request, Spec, make_request
from stado.core.states import State
from stado.errors import Ambiguous, Refused, StoreError
from stado.jobs.listings import matching
from stado.jobs.repository import Repository
from stado.jobs.submit import Submission, SubmissionSweep, submit
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.observe import CountingStore, Operation
from tests.jobs.actors import Actor, Crash, mortal
from tests.jobs.world import ALICE, LEASE, World, heal

BATCH = make_request(["echo 1", "echo 2", "echo 3"], Spec(command=""), batch=True)
SINGLE = make_request(["true"], Spec(command=""), batch=False)


def send(repo: Repository, request: Request = SINGLE) -> Submission:
    return submit(repo, run_id="nightly", request=request, submitter="ada")


def test_a_job_enters_the_queue_with_its_index_entry_and_its_user(world: World) -> None:
    """R131, T1"""
    sent = send(world.repo)
    assert sent.created
    assert sent.job_ids == [sent.base_id]
    record = world.record(State.QUEUED, sent.base_id)
    assert (record.epoch, record.state, record.run_id) == (1, State.QUEUED, "nightly")
    assert world.names(keys.READY) == [entry_key(record)]
    assert world.names(keys.by_user_folder("ada")) == [keys.by_user("ada", sent.base_id)]
    run = world.repo.find_run("nightly")
    assert run is not None
    assert run.value.complete


def test_the_same_submit_sent_twice_answers_the_same_jobs(world: World) -> None:
    """R130, A18"""
    first, second = send(world.repo, BATCH), send(world.repo, BATCH)
    assert second.job_ids == first.job_ids
    assert (first.created, second.created) == (True, False)
    assert len(world.names("queue/")) == len(world.names(keys.READY)) == 3


def test_fifty_submits_at_once_make_one_submission(world: World) -> None:
    """R129, R130, A18"""
    answers: list[Submission] = []
    threads = [
        threading.Thread(target=lambda: answers.append(send(world.repo, BATCH))) for _ in range(50)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 50
    assert len({tuple(answer.job_ids) for answer in answers}) == 1
    assert [answer.created for answer in answers].count(True) == 1
    assert world.names("queue/") == [f"queue/{job_id}.json" for job_id in answers[0].job_ids]
    assert len(world.names(keys.READY)) == 3
    assert len(world.names(keys.RUNS)) == 1


def test_another_request_under_the_same_run_id_is_refused_and_names_the_field(
    world: World,
) -> None:
    """R130, A18"""
    send(world.repo)
    other = make_request(["false"], Spec(command="", cpu=2.0), batch=False)
    with pytest.raises(Refused, match="run id nightly belongs to another request") as caught:
        send(world.repo, other)
    assert caught.value.code == "run_id_conflict"
    assert "command: 'true' was submitted, now 'false'" in caught.value.text
    assert "cpu: nothing was submitted, now 2.0" in caught.value.text
    assert len(world.names("queue/")) == 1


def test_a_repeated_submit_does_not_queue_a_job_again_that_has_run(world: World) -> None:
    """R130"""
    sent = send(world.repo)
    world.end(world.start())
    assert send(world.repo).job_ids == sent.job_ids
    assert world.states(sent.base_id) == {State.COMPLETED}
    assert world.names(keys.READY) == []


def test_jobs_of_a_batch_share_a_batch_id_by_which_they_are_found(world: World) -> None:
    """R169, R170"""
    sent = send(world.repo, BATCH)
    world.submit("unrelated")
    records = [world.record(State.QUEUED, job_id) for job_id in sent.job_ids]
    assert {record.batch_id for record in records} == {sent.base_id}
    assert [record.spec.command for record in records] == BATCH.commands
    found = matching(world.repo, sent.base_id[3:], limit=10)
    assert [row.job_id for row in found.rows] == sent.job_ids
    assert [row.job_id for row in matching(world.repo, sent.job_ids[1], limit=10).rows] == (
        sent.job_ids[1:2]
    )


def test_submit_makes_two_writes_a_job_and_three_a_submission(world: World) -> None:
    counting = CountingStore(world.store, world.tasks)
    send(world.repo_over(counting), BATCH)
    asked = counting.snapshot()
    assert asked.writes == 2 * 3 + 3
    assert (asked.reads, asked.lists, asked.deletes) == (0, 0, 0)


def calls_of_a_submit() -> int:
    world = World()
    counting = CountingStore(world.store, world.tasks)
    send(world.repo_over(counting))
    return counting.snapshot().of()


def dying(applied: bool) -> Callable[[World, int], None]:
    def die(world: World, at: int) -> None:
        with pytest.raises(Crash):
            send(world.repo_over(mortal(world.store, at=at, applied=applied)), BATCH)

    return die


def failing(kind: FaultKind) -> Callable[[World, int], None]:
    def fail(world: World, at: int) -> None:
        store = FaultyStore(world.store, world.clock, ScriptedFaults(Fault(kind, skip=at)))
        with pytest.raises(StoreError):
            send(world.repo_over(store), BATCH)

    return fail


def test_a_submit_that_is_finished_by_another_leaves_what_has_run(world: World) -> None:
    """R130: all is queued, and has run, when the run is found to be not complete."""
    with pytest.raises(Crash):
        send(world.repo_over(mortal(world.store, at=calls_of_a_submit() - 1, applied=False)), BATCH)
    while (claimed := world.claim()) is not None:
        world.end(claimed)
    sent = send(world.repo, BATCH)
    assert world.names("queue/") == world.names(keys.READY) == []
    assert {world.find(job_id).state for job_id in sent.job_ids} == {State.COMPLETED}


@pytest.mark.parametrize("at", range(calls_of_a_submit()))
@pytest.mark.parametrize(
    "interrupt",
    [
        dying(applied=False),
        dying(applied=True),
        failing(FaultKind.LOST_ANSWER),
        failing(FaultKind.LOST_REQUEST),
    ],
    ids=["crash before", "crash after", "answer lost", "request lost"],
)
@pytest.mark.parametrize("agent_came", [False, True], ids=["at once", "after an agent"])
def test_a_submit_that_was_interrupted_anywhere_is_finished_by_repeating_it(
    interrupt: Callable[[World, int], None], at: int, agent_came: bool
) -> None:
    """R129, R130"""
    world = World()
    interrupt(world, at)
    started = []
    if agent_came and (early := world.claim()) is not None:
        started.append(world.end(early).id)
    sent = send(world.repo, BATCH)
    assert len(sent.job_ids) == 3
    again = send(world.repo, BATCH)
    assert again.job_ids == sent.job_ids
    while (claimed := world.claim()) is not None:
        started.append(world.end(claimed).id)
    assert sorted(started) == sent.job_ids
    heal(world, sent.job_ids[0])


@pytest.mark.parametrize("at", range(calls_of_a_submit()))
def test_a_submit_that_was_never_repeated_is_finished_by_the_sweep(at: int) -> None:
    """R130"""
    world = World()
    with pytest.raises(Crash):
        send(world.repo_over(mortal(world.store, at=at, applied=True)), BATCH)
    sweep = SubmissionSweep(world.repo)
    assert sweep.turn() == []
    world.clock.sleep(LEASE)
    sweep.turn()
    assert len(world.names("queue/")) == len(world.names(keys.READY)) == 3


@pytest.mark.parametrize("run_id", [".hidden", "..", "x" * 100])
def test_a_run_id_whose_key_is_a_hash_is_swept_like_any_other(world: World, run_id: str) -> None:
    """R129"""
    with pytest.raises(Crash):
        submit(
            world.repo_over(mortal(world.store, at=0, applied=True)),
            run_id=run_id,
            request=SINGLE,
            submitter="ada",
        )
    world.clock.sleep(LEASE)
    assert SubmissionSweep(world.repo).turn() == [run_id]
    assert len(world.names("queue/")) == 1


def test_an_unreadable_run_does_not_keep_the_sweep_from_the_others(world: World) -> None:
    """A19"""
    world.store.put(keys.run("broken"), b"\xff")
    with pytest.raises(Crash):
        send(world.repo_over(mortal(world.store, at=1, applied=False)))
    world.clock.sleep(LEASE)
    assert SubmissionSweep(world.repo).turn() == ["nightly"]


@pytest.mark.parametrize("stopped_after", range(1, calls_of_a_submit()))
def test_a_submitter_that_wakes_after_its_jobs_have_run_queues_nothing_again(
    stopped_after: int,
) -> None:
    """R130: the late queue record is of an epoch that is over."""
    world = World()
    slow = Actor(world.store, lambda store: send(world.repo_over(store), BATCH))
    slow.step(stopped_after)
    sent = send(world.repo, BATCH)
    while (claimed := world.claim()) is not None:
        world.end(claimed)
    slow.finish()
    assert slow.error is None
    for job_id in sent.job_ids:
        assert world.find(job_id).state is State.COMPLETED
        assert heal(world, job_id) == []


def test_a_run_record_that_cannot_be_seen_yet_is_waited_for(world: World) -> None:
    """A16"""
    fault = Fault(FaultKind.STALE_READ, key_prefix=keys.RUNS, seconds=5.0)
    repo = world.repo_over(FaultyStore(world.store, world.clock, ScriptedFaults(fault)))
    assert send(repo).job_ids == send(repo).job_ids


def test_an_unclear_answer_is_no_success(world: World) -> None:
    fault = Fault(FaultKind.LATE, key_prefix=keys.RUNS)
    store = FaultyStore(world.store, world.clock, ScriptedFaults(fault))
    with pytest.raises(Ambiguous):
        send(world.repo_over(store))
    assert world.repo.find(RunRecord, keys.run("nightly")) is None
    first = send(world.repo)
    store.land_late_writes()
    assert send(world.repo).job_ids == first.job_ids
    assert world.start(ALICE).record.id == first.base_id


def test_a_run_that_the_store_refuses_costs_the_sweep_no_other(world: World) -> None:
    for run_id in ("a", "b"):
        with pytest.raises(Crash):
            submit(
                world.repo_over(mortal(world.store, at=1, applied=False)),
                run_id=run_id,
                request=SINGLE,
                submitter="ada",
            )
    world.clock.sleep(LEASE)
    denied = ScriptedFaults(Fault(FaultKind.DENIED, Operation.GET, keys.run("a"), times=99))
    sweep = SubmissionSweep(world.repo_over(FaultyStore(world.store, world.clock, denied)))
    assert sweep.turn() == ["b"]


def dead_submit(world: World, run_id: str, commands: int = 1) -> None:
    """A submitter who died right after it created the run record."""
    request = make_request(["true"] * commands, Spec(command=""), batch=True)
    with pytest.raises(Crash):
        submit(
            world.repo_over(mortal(world.store, at=1, applied=False)),
            run_id=run_id,
            request=request,
            submitter="ada",
        )


def test_a_large_submission_is_finished_in_several_turns(world: World) -> None:
    """An agent does nothing else meanwhile."""
    dead_submit(world, "large", 350)
    dead_submit(world, "small")
    world.clock.sleep(LEASE)
    pace = Fault(FaultKind.DELAY, Operation.CREATE_MANY, "queue/", seconds=1.0, times=999)
    slow = FaultyStore(world.store, world.clock, ScriptedFaults(pace))
    counting = CountingStore(slow, world.tasks)
    sweep = SubmissionSweep(world.repo_over(counting), turn_seconds=2.0)
    assert sweep.turn() == []
    assert len(world.names("queue/")) == 200
    before = counting.snapshot()
    assert sweep.turn() == ["large"]
    assert counting.since(before).of(Operation.LIST, kind="status/*/cells") < 2 * 150 + 10
    assert sweep.turn() == ["small"]
    assert len(world.names("queue/")) == len(world.names(keys.READY)) == 351


def test_a_submission_that_fails_slowly_does_not_keep_the_sweep_from_the_rest(
    world: World,
) -> None:
    dead_submit(world, "bad", 150)
    dead_submit(world, "good")
    world.clock.sleep(LEASE)
    bad = world.repo.find_run("bad")
    assert bad is not None
    key = keys.record(State.QUEUED, f"{bad.value.base_id}-101")
    faults = [
        Fault(FaultKind.DELAY, Operation.CREATE_MANY, keys.READY, seconds=5.0, times=999),
        Fault(FaultKind.DENIED, Operation.CREATE_MANY, key, times=999),
    ]
    store = FaultyStore(world.store, world.clock, ScriptedFaults(*faults))
    sweep = SubmissionSweep(world.repo_over(store), turn_seconds=2.0)
    assert ["good"] in [sweep.turn() for _ in range(5)]


def test_a_sweep_that_has_one_turn_begins_anywhere(world: World) -> None:
    """Else those that run once would all look at the first few runs."""
    for number in range(9):
        world.submit(run_id=f"a-{number}")
    dead_submit(world, "late")
    world.clock.sleep(LEASE)
    sweeps = [SubmissionSweep(world.repo, slice_size=2, once=True) for _ in range(30)]
    assert ["late"] in [sweep.turn() for sweep in sweeps]
