"""The steps of a pipeline are launched once each, whoever settles and whoever dies over it."""

from __future__ import annotations

import contextlib
import hashlib
from datetime import timedelta
from pathlib import Path

import pytest

from stado.core import keys, moves, pipelines
from stado.core.events import EventKind
from stado.core.pipelines import Held, PipelineState
from stado.core.records import Ending, Record
from stado.core.spec import Spec, Step, StepOf, make_request
from stado.core.states import JobType, Opening, State, Verdict
from stado.errors import Refused
from stado.jobs import outputs, submission
from stado.jobs.changes import Stopping, cancel, rerun, retry, retryable
from stado.jobs.deletion import delete
from stado.jobs.endings import give_verdict, open_epoch, project, settle
from stado.jobs.events import events_of
from stado.jobs.listings import newest
from stado.jobs.notices import find_pipeline_end
from stado.jobs.pipeline_sight import look, stop_pipeline
from stado.jobs.queue_index import Repair
from tests.jobs.actors import Crash, mortal
from tests.jobs.world import LEASE, World, end, heal

THEN = [Step(name="export", command="./export"), Step(name="eval", command="./eval")]


def submitted(world: World, **stated: object) -> str:
    return world.submit("./train", spec=Spec(command="", then=THEN, **stated))  # type: ignore[arg-type]


def cancelled(world: World, root: str) -> list[Stopping]:
    """What was answered for each job of a pipeline that is cancelled."""
    answers: list[Stopping] = []
    stop_pipeline(
        world.repo,
        root,
        lambda job_ids: answers.extend(cancel(world.repo, one, by="ada") for one in job_ids),
    )
    return answers


def at_rest(world: World, root: str) -> Record:
    """Its holder died once its record at rest was written."""
    claimed = world.start()
    assert claimed.record.id == root
    cell, _ = give_verdict(world.repo, claimed.record, completed(world))
    final = moves.after(cell)
    project(world.repo, final)
    return final


def completed(world: World) -> Ending:
    now = world.clock.now()
    return Ending(verdict=Verdict.COMPLETED, exit_code=0, started_at=now, ended_at=now, by="alice")


def run_next(world: World, verdict: Verdict = Verdict.COMPLETED) -> Record:
    """Whatever is at the head of the queue, to its end."""
    return world.end(world.start(), verdict)


def run_leaving(world: World, folder: Path) -> None:
    """As `run_next`, of a job that leaves a file."""
    claimed = world.start()
    (folder / "model").write_bytes(b"weights")
    job_id = claimed.record.id
    outputs.OutputPublisher(world.repo, job_id=job_id, epoch=1, folder=folder).publish(
        partial=False
    )
    world.end(claimed)


def step(world: World, root: str, number: int) -> Record:
    """Of one that waits."""
    run = world.repo.find_run(pipelines.step_run_id(root, number))
    assert run is not None
    assert run.value.complete
    return world.find(run.value.base_id).record


def test_each_step_is_queued_once_the_one_before_has_completed(world: World) -> None:
    """R9, R57, R60: ordinary jobs, in the name of who submitted the root."""
    root = submitted(world, priority=5)
    run_next(world)
    export = step(world, root, 1)
    assert (export.state, export.submitter, export.priority) == (State.QUEUED, "ada", 5)
    assert (export.spec.command, [one.name for one in export.spec.then]) == ("./export", ["eval"])
    assert world.repo.find_run(pipelines.step_run_id(root, 2)) is None
    run_next(world)
    assert step(world, root, 2).spec.command == "./eval"
    run_next(world)
    assert world.names(keys.READY) == []
    assert look(world.repo, root).state is PipelineState.SUCCEEDED


def test_parallel_steps_are_queued_together(world: World) -> None:
    root = submitted(world, then_parallel=True)
    run_next(world)
    assert {step(world, root, number).state for number in (1, 2)} == {State.QUEUED}
    run_next(world, Verdict.FAILED)
    run_next(world)
    assert look(world.repo, root).state is PipelineState.PARTIAL


@pytest.mark.parametrize("verdict", [Verdict.FAILED, Verdict.CANCELLED, Verdict.TIMED_OUT])
def test_nothing_follows_what_did_not_complete(world: World, verdict: Verdict) -> None:
    """R9, R62"""
    root = submitted(world)
    run_next(world, verdict)
    assert world.names(keys.READY) == []
    seen = look(world.repo, root)
    assert seen.state in (PipelineState.FAILED, PipelineState.STOPPED)
    assert seen.skipped == {1, 2}


@pytest.mark.parametrize("at", range(14))
@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
def test_a_step_is_launched_once_though_the_holder_dies_at_any_request(
    at: int, applied: bool
) -> None:
    """R9: the root has completed, and its next step is queued, once."""
    world = World()
    root = submitted(world)
    claimed = world.start()
    with contextlib.suppress(Crash):
        end(world.repo_over(mortal(world.store, at=at, applied=applied)), claimed)
    if world.repo.find_end(root, 1) is None:
        return  # it died before its verdict
    heal_until_queued(world, root)
    assert world.states(root) == {State.COMPLETED}
    assert step(world, root, 1).state is State.QUEUED
    assert len(world.names(keys.READY)) == 1


@pytest.mark.parametrize("at", range(14))
@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
def test_who_settles_a_lease_later_finishes_what_a_dead_launcher_began(
    at: int, applied: bool
) -> None:
    """R9: without a sweep."""
    world = World()
    root = submitted(world)
    claimed = world.start()
    with contextlib.suppress(Crash):
        end(world.repo_over(mortal(world.store, at=at, applied=applied)), claimed)
    if world.repo.find_end(root, 1) is None:
        return  # it died before its verdict
    world.clock.sleep(2 * LEASE)
    settle(world.repo, root, 1)
    assert step(world, root, 1).state is State.QUEUED
    assert len(world.names(keys.READY)) == 1
    run = world.repo.find_run(f"{root}.1")
    assert run is not None
    assert run.value.complete


def test_who_settles_sooner_leaves_a_step_to_its_launcher(world: World) -> None:
    """Who may be slow, and write its job at any moment."""
    root = submitted(world)
    end(world.repo, world.start())
    stored = world.repo.find_run(f"{root}.1")
    (queued, entry) = (*world.store.list("queue/"), *world.store.list(keys.READY))
    assert stored is not None
    world.store.replace(
        keys.run(f"{root}.1"), stored.value.evolve(complete=False).encode(), stored.version
    )
    for one in (queued, entry):
        world.store.delete(one.key, None)
    settle(world.repo, root, 1)
    assert world.names("queue/") == []
    world.clock.sleep(LEASE + 1)
    settle(world.repo, root, 1)
    assert len(world.names("queue/")) == 1


def test_who_settles_a_lease_later_queues_no_step_again_that_has_begun(world: World) -> None:
    """Its launcher died once the job was queued; the job was claimed, and runs."""
    root = submitted(world)
    claimed = world.start()
    end(world.repo, claimed)
    stored = world.repo.find_run(f"{root}.1")
    assert stored is not None
    world.store.replace(
        keys.run(f"{root}.1"), stored.value.evolve(complete=False).encode(), stored.version
    )
    world.start()
    world.clock.sleep(2 * LEASE)
    settle(world.repo, root, 1)
    assert step(world, root, 1).state is State.RUNNING
    assert world.names(keys.READY) == world.names("queue/") == []


def heal_until_queued(world: World, root: str) -> None:
    """A coordinator's passes, until all is done that can be done without a worker."""
    from stado.jobs.upkeep import Passes

    passes = Passes(world.repo, by="coordinator")
    for _ in range(30):
        passes.tick()
        world.clock.sleep(world.repo.deployment.tick_seconds)


def test_settling_again_launches_nothing_twice(world: World) -> None:
    root = submitted(world)
    run_next(world)
    heal(world, step(world, root, 1).id)
    for _ in range(3):
        settle(world.repo, root, 1)
    assert world.names("runs/") == [
        keys.run("run-1"),
        keys.run(f"{root}.1"),
        keys.run(f"{root}.2"),
    ]


def test_what_a_job_left_is_taken_along_by_those_after_it(world: World, tmp_path: Path) -> None:
    """Pinned by the digest of its manifest."""
    root = submitted(world)
    run_leaving(world, tmp_path)
    (pinned,) = step(world, root, 1).spec.inputs
    manifest = world.store.get(keys.output_manifest(root, 1)).data
    assert (pinned.name, pinned.source) == ("root", keys.output_manifest(root, 1))
    assert pinned.sha256 == hashlib.sha256(manifest).hexdigest()
    run_next(world)
    assert step(world, root, 2).spec.inputs == [pinned]  # the export left nothing


def test_a_failed_step_leaves_a_partial_pipeline_and_its_retry_goes_on(world: World) -> None:
    """R61, R63"""
    root = submitted(world)
    run_next(world)
    export = run_next(world, Verdict.FAILED)
    seen = look(world.repo, export.id)
    assert (seen.root.id, seen.state, seen.skipped) == (root, PipelineState.PARTIAL, {2})
    retry(world.repo, export.id, by="ada")
    assert look(world.repo, root).state is PipelineState.QUEUED
    run_next(world)
    run_next(world)
    assert look(world.repo, root).state is PipelineState.SUCCEEDED


def test_a_step_has_the_deadline_of_its_root_and_is_ended_at_it_in_the_queue(
    world: World,
) -> None:
    """R61, R136: its time in the queue counts, and that of the root before."""
    deadline = world.clock.now() + timedelta(seconds=100)
    root = submitted(world, deadline_at=deadline, timeout_seconds=90)
    claimed = world.start()
    world.clock.sleep(80)
    world.end(claimed)
    export = step(world, root, 1)
    assert (export.spec.deadline_at, export.spec.timeout_seconds) == (deadline, None)
    world.clock.sleep(21)
    Repair(world.repo).turn()
    assert world.states(export.id) == {State.TIMED_OUT}
    assert look(world.repo, root).state is PipelineState.PARTIAL


def test_a_root_that_is_retried_launches_its_steps_then(world: World) -> None:
    root = submitted(world)
    run_next(world, Verdict.FAILED)
    retry(world.repo, root, by="ada")
    run_next(world)
    assert step(world, root, 1).state is State.QUEUED


def test_a_cancelled_pipeline_starts_nothing_more(world: World) -> None:
    root = submitted(world)
    run_next(world)
    (answer,) = cancelled(world, root)
    assert (answer.record.id, answer.record.state) == (step_id(world, root, 1), State.CANCELLED)
    assert world.names(keys.READY) == []
    assert look(world.repo, root).state is PipelineState.PARTIAL


def test_a_cancel_between_a_jobs_rest_and_the_launch_of_what_follows_stops_that_too(
    world: World,
) -> None:
    root = submitted(world)
    at_rest(world, root)
    (answer,) = cancelled(world, root)
    assert (answer.record.id, answer.record.state) == (step_id(world, root, 1), State.CANCELLED)
    heal_until_queued(world, root)
    assert world.names(keys.READY) == []
    assert look(world.repo, root).state is PipelineState.PARTIAL


def test_a_cancel_while_a_step_is_launched_stops_it(world: World) -> None:
    """Its launcher died once it had made the run."""
    root = submitted(world)
    final = at_rest(world, root)
    (launch,) = pipelines.launches(final)
    spec = pipelines.step_spec(final, launch, left=None, start_from=None)
    request = make_request([spec.command], spec, batch=False)
    submission.run_record_of(world.repo, f"{root}.1", request, "ada", None)
    (answer,) = cancelled(world, root)
    assert (answer.record.id, answer.record.state) == (step_id(world, root, 1), State.CANCELLED)
    heal_until_queued(world, root)
    assert world.names(keys.READY) == []


@pytest.mark.parametrize("whole", [True, False], ids=["pipeline", "root"])
def test_nothing_follows_a_root_that_was_to_be_cancelled_and_completes_all_the_same(
    world: World, whole: bool
) -> None:
    root = submitted(world)
    claimed = world.start()
    if whole:
        assert len(cancelled(world, root)) == 1
    else:
        cancel(world.repo, root, by="ada")
    world.end(claimed)
    heal_until_queued(world, root)
    seen = look(world.repo, root)
    assert (seen.root.state, seen.state) == (State.COMPLETED, PipelineState.PARTIAL)
    assert (seen.skipped, seen.held) == ({1, 2}, {1: Held.CANCELLED})
    assert world.names(keys.READY) == []
    assert cancelled(world, root) == []
    assert rolled(world, root) == (PipelineState.PARTIAL, 0)


def rolled(world: World, root: str) -> tuple[PipelineState, int]:
    """As a list has it."""
    listing = newest(world.repo, limit=20, rolled=True)
    (steps,) = (row.steps for row in listing.rows if row.job_id == root)
    assert steps is not None
    return steps.state, steps.done


def test_a_parallel_step_whose_launcher_died_is_to_come_though_another_has_failed() -> None:
    """A job of it is not deleted, and nobody is told that it is over."""
    world = World()
    root = submitted(world, then_parallel=True, notify=["team:pipeline"])
    final = at_rest(world, root)
    spec = pipelines.step_spec(final, pipelines.launches(final)[0], left=None, start_from=None)
    request = make_request([spec.command], spec, batch=False)
    stored, _ = submission.run_record_of(world.repo, f"{root}.1", request, "ada", None)
    submission.write_jobs(world.repo, stored)
    run_next(world, Verdict.FAILED)
    assert look(world.repo, root).state is PipelineState.QUEUED
    assert rolled(world, root) == (PipelineState.QUEUED, 0)
    assert world.names(keys.NOTICES) == []
    with pytest.raises(Refused, match="eval"):
        delete(world.repo, root, by="ada")
    heal_until_queued(world, root)
    run_next(world)
    assert look(world.repo, root).state is PipelineState.PARTIAL
    assert len(world.names(keys.NOTICES)) == 1


@pytest.mark.parametrize("commands", [["a"], ["a", "b"]], ids=["job", "batch"])
def test_a_run_that_has_the_id_of_a_step_holds_the_pipeline_up_and_nothing_else(
    world: World, commands: list[str]
) -> None:
    """Whoever may write can put one there."""
    root = submitted(world, notify=["team:pipeline"])
    claimed = world.start()
    put_run(world, f"{root}.1", *commands)
    world.end(claimed)
    for _ in commands:
        run_next(world)
    seen = look(world.repo, root)
    assert (seen.state, seen.held) == (PipelineState.PARTIAL, {1: Held.RUN_ID_TAKEN})
    assert rolled(world, root) == (PipelineState.PARTIAL, 0)
    assert world.names(keys.NOTICES) == [keys.notice(root, 1, "pipeline", "team")]
    assert [
        one for one in events_of(world.repo, root).events if one.kind is EventKind.STEP_LAUNCHED
    ] == []
    assert cancelled(world, root) == []
    delete(world.repo, root, by="ada")


def put_run(world: World, run_id: str, *commands: str) -> None:
    """By somebody who asks nobody whether that may be its id."""
    request = make_request([*commands], Spec(command=""), batch=len(commands) > 1)
    stored, _ = submission.run_record_of(world.repo, run_id, request, "eve", None)
    submission.write_jobs(world.repo, stored)


def test_who_settles_says_once_that_a_step_cannot_be_launched(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    root = submitted(world)
    put_run(world, f"{root}.1", "a")
    world.end(world.claimed_of(root))
    (told,) = [one for one in caplog.messages if "event=step_not_launched" in one]
    assert f"run id {root}.1 is another run's" in told


def test_a_job_that_only_says_that_it_is_a_step_is_a_job_by_itself(world: World) -> None:
    root = submitted(world)
    run_next(world)
    run_next(world, Verdict.FAILED)
    said = StepOf(root=root, number=1, name="export")
    fake = world.submit("true", spec=Spec(command="", step_of=said))
    world.end(world.claimed_of(fake))
    assert rolled(world, root) == (PipelineState.PARTIAL, 0)
    rows = newest(world.repo, limit=20, rolled=True).rows
    assert {row.job_id for row in rows} == {root, fake}


@pytest.mark.parametrize("cut", [False, True], ids=["deleted", "interrupted"])
def test_a_completed_step_that_was_deleted_has_completed(world: World, cut: bool) -> None:
    root = submitted(world)
    for _ in range(3):
        run_next(world)
    export = step_id(world, root, 1)
    if cut:
        open_epoch(world.repo, world.record(State.COMPLETED, export), Opening.DELETE, by="ada")
    else:
        delete(world.repo, export, by="ada")
    seen = look(world.repo, root)
    assert (seen.state, seen.done) == (PipelineState.SUCCEEDED, 2)
    assert rolled(world, root) == (PipelineState.SUCCEEDED, 2)
    over = find_pipeline_end(world.repo, root)
    assert over is not None
    assert over.state is PipelineState.SUCCEEDED


def test_nothing_follows_a_step_that_was_deleted(world: World) -> None:
    root = submitted(world)
    run_next(world)
    claimed = world.start()
    cancel(world.repo, claimed.record.id, by="ada")
    world.end(claimed)
    delete(world.repo, claimed.record.id, by="ada")
    seen = look(world.repo, root)
    assert (seen.state, seen.held) == (PipelineState.PARTIAL, {2: Held.DELETED})


def test_a_cancelled_root_is_a_stopped_pipeline(world: World) -> None:
    root = submitted(world)
    cancel(world.repo, root, by="ada")
    assert look(world.repo, root).state is PipelineState.STOPPED
    assert cancelled(world, root) == []


def step_id(world: World, root: str, number: int) -> str:
    run = world.repo.find_run(pipelines.step_run_id(root, number))
    assert run is not None
    return run.value.base_id


def test_a_rerun_of_a_step_is_that_job_alone(world: World) -> None:
    """R207"""
    root = submitted(world)
    run_next(world)
    export = run_next(world)
    again = rerun(world.repo, export.id, run_id=None, submitter="ada")
    spec = world.find(again.base_id).record.spec
    assert (spec.command, spec.step_of, spec.then) == ("./export", None, [])
    assert step(world, root, 2).state is State.QUEUED


def test_a_root_whose_steps_live_is_not_deleted(world: World) -> None:
    root = submitted(world)
    run_next(world)
    with pytest.raises(Refused, match="export") as refused:
        delete(world.repo, root, by="ada")
    assert refused.value.code == "still_live"
    cancelled(world, root)
    delete(world.repo, root, by="ada")


def test_a_step_starts_from_the_roots_policy(world: World) -> None:
    """Where nothing was saved there is none to start from."""
    root = submitted(world, type=JobType.TRAIN)
    run_next(world)
    assert step(world, root, 1).spec.start_from is None


def test_a_job_by_itself_is_no_pipeline(world: World) -> None:
    with pytest.raises(Refused, match="no part of a pipeline"):
        look(world.repo, world.submit())


def test_a_step_outlives_its_deleted_root_as_a_job_of_its_own(world: World) -> None:
    """R9: it is refused by name what it cannot have any more, and can be deleted."""
    root = submitted(world)
    run_next(world)
    failed = run_next(world, Verdict.FAILED)
    delete(world.repo, root, by="ada")
    with pytest.raises(Refused) as refused:
        look(world.repo, failed.id)
    assert refused.value.code == "root_deleted"
    retry(world.repo, failed.id, by="ada")  # the root left nothing that it would take along
    cancel(world.repo, failed.id, by="ada")
    delete(world.repo, failed.id, by="ada")
    assert world.states(failed.id) == set()


def test_a_step_whose_input_was_deleted_is_not_run_again(world: World, tmp_path: Path) -> None:
    root = submitted(world)
    run_leaving(world, tmp_path)
    failed = run_next(world, Verdict.FAILED)
    assert [one.name for one in failed.spec.inputs] == ["root"]
    assert retryable(world.repo, failed).allowed
    delete(world.repo, root, by="ada")
    assert retryable(world.repo, failed).allowed is False
    for again in (
        lambda: retry(world.repo, failed.id, by="ada"),
        lambda: rerun(world.repo, failed.id, run_id=None, submitter="ada"),
    ):
        with pytest.raises(Refused, match="submit the pipeline anew") as refused:
            again()
        assert refused.value.code == "input_missing"
