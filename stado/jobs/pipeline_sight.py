"""What has become of a pipeline: its root, its steps, one word for all of it; and stopping it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stado.core import pipelines
from stado.core.pipelines import PipelineState
from stado.core.records import Record, RunRecord
from stado.core.spec import Step
from stado.core.states import State
from stado.errors import Refused
from stado.jobs.changes import Stopping, cancel
from stado.jobs.finding import find_job
from stado.jobs.repository import Repository
from stado.jobs.sight import present_record
from stado.jobs.submission import job_ids_of


@dataclass(frozen=True, slots=True)
class StepSight:
    """A step that was declared."""

    number: int
    step: Step
    job_id: str | None
    """None as long as it was not launched, and where the job is deleted."""
    state: State | None


@dataclass(frozen=True, slots=True)
class PipelineSight:
    """A pipeline at the moment when it was looked at."""

    root: Record
    steps: list[StepSight]

    @property
    def state(self) -> PipelineState:
        return pipelines.roll_up(self.root.state, [step.state for step in self.steps])

    @property
    def skipped(self) -> set[int]:
        """The numbers of the steps that will not be started as things are."""
        return set(pipelines.skipped([step.state for step in self.steps], self.root.state))

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


def cancel_pipeline(
    repo: Repository, job_id: str, *, by: str, note: str | None = None
) -> list[Stopping]:
    """Cancels whatever of it is live, or is launched meanwhile; what was not launched by then will
    not be. Each answer is one of `cancel`."""
    root = look(repo, job_id).root
    answers = [] if root.state.terminal else [cancel(repo, root.id, by=by, note=note)]
    for _ in range(len(root.spec.then) + 1):
        asked = {answer.record.id for answer in answers}
        new = [one for one in live_jobs(look(repo, root.id)) if one not in asked]
        if not new:
            break
        answers += [cancel(repo, one, by=by, note=note) for one in new]
    return answers


def live_jobs(seen: PipelineSight) -> list[str]:
    """Those of its jobs that have not ended."""
    states = {seen.root.id: seen.root.state}
    states |= {step.job_id: step.state for step in seen.steps if step.job_id and step.state}
    return [job_id for job_id, state in states.items() if not state.terminal]


def steps_of(repo: Repository, root: Record) -> Iterator[StepSight]:
    for number, step in enumerate(root.spec.then, 1):
        run = repo.find_run(pipelines.step_run_id(root.id, number))
        if run is None:
            yield StepSight(number, step, None, None)
        else:
            yield _launched(repo, number, step, run.value)


def _launched(repo: Repository, number: int, step: Step, run: RunRecord) -> StepSight:
    """One whose job is not there yet is about to be: the sweep finishes what its launcher began.
    What was deleted had ended, and nobody knows how any more."""
    (job_id,) = job_ids_of(run)
    found = find_job(repo, job_id)
    if found is not None:
        return StepSight(number, step, job_id, found.state)
    return StepSight(number, step, None, State.CANCELLED if run.deleted else State.QUEUED)
