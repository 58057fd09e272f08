"""What has become of a pipeline: its root, its steps, one word for all of it; and stopping it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from stado.core import pipelines
from stado.core.pipelines import Held, PipelineState
from stado.core.records import Record, RunRecord
from stado.core.spec import Step
from stado.core.states import State
from stado.errors import Refused
from stado.jobs.dependents import find_ended
from stado.jobs.finding import find_job
from stado.jobs.pipelines import find_step, held_after, launch_following
from stado.jobs.repository import Repository
from stado.jobs.sight import present_record
from stado.jobs.submit import finish_submission


@dataclass(frozen=True, slots=True)
class StepSight:
    """A step that was declared."""

    number: int
    step: Step
    job_id: str | None
    """None as long as it was not launched, and where the job is deleted."""
    state: State | None
    held: Held | None = None
    """Why it is not launched, though its turn has come."""
    epoch: int = 0
    """That its state is of; 0 as long as there is none."""


@dataclass(frozen=True, slots=True)
class PipelineSight:
    """A pipeline at the moment when it was looked at."""

    root: Record
    steps: list[StepSight]

    @property
    def state(self) -> PipelineState:
        return pipelines.roll_up(
            self.root.state,
            [step.state for step in self.steps],
            parallel=self.root.spec.then_parallel,
            held=self.held,
        )

    @property
    def held(self) -> dict[int, Held]:
        """The numbers of the steps that are not launched, though their turn has come."""
        return {step.number: step.held for step in self.steps if step.held is not None}

    @property
    def skipped(self) -> set[int]:
        """The numbers of the steps that will not be started as things are."""
        return set(pipelines.skipped([step.state for step in self.steps], self.state))

    @property
    def done(self) -> int:
        return sum(step.state is State.COMPLETED for step in self.steps)


def look(repo: Repository, job_id: str) -> PipelineSight:
    """The pipeline that a job is a part of. Three requests a job of it. Raises `NotFound`, and
    `Refused` (`no_pipeline`, and `root_deleted`: its steps are jobs of their own then)."""
    record = present_record(repo, job_id)
    if record.spec.step_of is not None:
        record = _root_of(repo, record, record.spec.step_of.root)
    if not record.spec.then:
        raise Refused("no_pipeline", f"job {record.id} is no part of a pipeline")
    return PipelineSight(record, list(steps_of(repo, record)))


def _root_of(repo: Repository, step: Record, root: str) -> Record:
    found = find_job(repo, root)
    if found is None:
        raise Refused(
            "root_deleted",
            f"job {root}, from which the pipeline of job {step.id} began, was deleted: what is "
            "left of it are jobs of their own",
        )
    return found.record


def stop_pipeline(
    repo: Repository, job_id: str, stop: Callable[[list[str]], None]
) -> PipelineSight:
    """Has whatever of it is live stopped, by `stop`, which is given the ids of jobs once each; and
    what it is. What was about to be queued is queued for that, so that nobody does it later."""
    asked: set[str] = set()
    seen = look(repo, job_id)
    for _ in range(len(seen.steps) + 2):
        if not seen.state.is_over and _bring_about(repo, seen):
            seen = look(repo, seen.root.id)
        new = [one for one in live_jobs(seen) if one not in asked]
        if not new:
            break
        stop(new)
        asked.update(new)
        seen = look(repo, seen.root.id)
    return seen


def _bring_about(repo: Repository, seen: PipelineSight) -> bool:
    """Queues what is about to be, whoever is at it; whether there was such a thing."""
    begun = [one for one in seen.steps if one.state is State.QUEUED and one.job_id is None]
    for one in begun:
        stored = repo.find_run(pipelines.step_run_id(seen.root.id, one.number))
        if stored is not None:
            finish_submission(repo, stored)
    before = _last_completed(seen)
    if before is None:
        return bool(begun)
    launch_following(repo, present_record(repo, before), though_cancelled=True)
    return True


def _last_completed(seen: PipelineSight) -> str | None:
    """The job that the next step follows, which was not launched yet; None: there is none."""
    if seen.root.state is not State.COMPLETED:
        return None
    first = next((one.number for one in seen.steps if one.state is None), None)
    if first is None or first in seen.held:
        return None
    if first == 1 or seen.root.spec.then_parallel:
        return seen.root.id
    before = seen.steps[first - 2]
    return before.job_id if before.state is State.COMPLETED else None


def live_jobs(seen: PipelineSight) -> list[str]:
    """Those of its jobs that have not ended."""
    states = {seen.root.id: seen.root.state}
    states |= {step.job_id: step.state for step in seen.steps if step.job_id and step.state}
    return [job_id for job_id, state in states.items() if not state.terminal]


def steps_of(repo: Repository, root: Record) -> Iterator[StepSight]:
    """A read for each that is not launched, four requests for each other, and two more for one
    whose turn has come."""
    before: tuple[str, int] | None = None
    if root.state is State.COMPLETED:
        before = root.id, root.epoch
    for number, step in enumerate(root.spec.then, 1):
        run, held = find_step(repo, root.id, number)
        seen = StepSight(number, step, None, None, held)
        if run is not None:
            seen = _launched(repo, seen, run)
        elif held is None and before is not None:
            seen = replace(seen, held=held_after(repo, *before))
        yield seen
        if not root.spec.then_parallel:
            completed = run is not None and seen.state is State.COMPLETED
            before = (run.base_id, seen.epoch) if run is not None and completed else None


def _launched(repo: Repository, seen: StepSight, run: RunRecord) -> StepSight:
    """One whose job is not there yet is about to be: the sweep finishes what its launcher began.
    How one that was deleted had ended its cells say."""
    found = find_job(repo, run.base_id)
    if found is not None:
        record = found.record
        return replace(seen, job_id=record.id, state=record.state, epoch=record.epoch)
    ended = find_ended(repo, run.base_id)
    if ended is not None:
        return replace(seen, state=ended.state, epoch=ended.epoch)
    return replace(seen, state=State.CANCELLED if run.deleted else State.QUEUED)
