"""Pipelines: a job, the root, and the steps that are started once it has completed. Pure.

Each step is an ordinary job with its own id and a run of its own, whose id follows from the root's;
what is still to come after it stands in its spec.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from stado.core import ids
from stado.core.inputs import NAME_PATTERN
from stado.core.records import Record, RunRecord
from stado.core.spec import Input, Spec, StartFrom, Step, StepOf
from stado.core.states import JobType, Kind, State
from stado.errors import Refused

ROOT_NAME = "root"
"""Of the folder in which steps find what the root left."""

PIPELINE_PREFIX = "pipeline_"


class PipelineState(StrEnum):
    """What a pipeline as a whole is said to be."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    """The root has completed, and a step that was declared did not, and is not under way."""
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_over(self) -> bool:
        """Whether nothing of it happens until somebody asks for it."""
        return self not in (PipelineState.QUEUED, PipelineState.RUNNING, PipelineState.PAUSED)


class Held(StrEnum):
    """Why a step is not launched, though what it follows has completed."""

    RUN_ID_TAKEN = "run_id_taken"
    """Another run has the id under which it would be."""
    CANCELLED = "cancelled"
    """A cancel was asked of the job before, which completed all the same."""
    DELETED = "deleted"
    """The job before is."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A step that is to be queued."""

    number: int
    """1, 2, 3 … in the order in which they were declared."""
    step: Step
    then: list[Step]
    """What is to follow it."""


def parse_step(text: str) -> Step:
    """`NAME=COMMAND`. A name that is a type of jobs makes the step one of it. Raises `Refused`."""
    name, equals, command = text.partition("=")
    if not NAME_PATTERN.fullmatch(name) or not equals:
        raise Refused(
            "step_invalid",
            f"step {text!r} must be NAME=COMMAND, such as eval='python eval.py'; the name of "
            "letters, digits and . _ -",
        )
    types = {kind.value: kind for kind in JobType}
    return Step(name=name, command=command, type=types.get(name, JobType.JOB))


def root_of(record: Record) -> str:
    """The job id of the root; the job's own where it is one."""
    return record.id if record.spec.step_of is None else record.spec.step_of.root


def pipeline_root(record: Record) -> str | None:
    """The job id of the root; None for a job that is no part of a pipeline."""
    return root_of(record) if record.spec.then or record.spec.step_of else None


def pipeline_id(record: Record) -> str | None:
    """For people; None for a job that is no part of one."""
    root = pipeline_root(record)
    return None if root is None else f"{PIPELINE_PREFIX}{root}"


def step_run_id(root: str, number: int) -> str:
    """Whoever launches a step does so under this run id, which makes it happen once."""
    return f"{root}.{number}"


def is_of_step(run: RunRecord, root: str, number: int) -> bool:
    """Whether a run is that of a step, and not another's that was submitted under its id."""
    step_of = run.request.shared.step_of
    is_named = step_of is not None and (step_of.root, step_of.number) == (root, number)
    return is_named and not run.request.batch


def root_of_step(record: Record) -> str | None:
    """The job that a step's pipeline began with; None for another job, also for one that says that
    it is a step and was not launched as that."""
    step_of = record.spec.step_of
    if step_of is None or record.run_id != step_run_id(step_of.root, step_of.number):
        return None
    return step_of.root


def check_not_of_step(run_id: str) -> None:
    """Raises `Refused` for a run id under which the step of some pipeline may be launched."""
    if _STEP_RUN_PATTERN.fullmatch(run_id):
        raise Refused(
            "run_id_reserved",
            f"run id {run_id!r} cannot be used: steps of pipelines have run ids of this form, the "
            "id of a job and a number. Use another run id.",
        )


def launches(record: Record) -> list[Launch]:
    """The steps that a job's completion lets start: the next one, or all of them at once."""
    spec = record.spec
    number = 0 if spec.step_of is None else spec.step_of.number
    if spec.then_parallel:
        return [Launch(number + k, step, []) for k, step in enumerate(spec.then, 1)]
    return [Launch(number + 1, spec.then[0], spec.then[1:])] if spec.then else []


def step_spec(
    record: Record, launch: Launch, *, left: Input | None, start_from: StartFrom | None
) -> Spec:
    """The job that a step is: with the code, variables and secrets of the one before, its priority
    and its deadline. It takes along what that one left, and the ones before it (`left` is named by
    the step that left it), and starts from the root's policy. What else the job before stated was
    its own."""
    before, step = record.spec, launch.step
    inherited = before.inputs if before.step_of is not None else []
    inputs = [*inherited, left] if left is not None else inherited
    return Spec(
        command=step.command,
        type=step.type,
        cpu=before.then_cpu,
        memory_gb=before.then_memory_gb,
        gpus=before.then_gpus,
        gpu_type=before.gpu_type if before.then_gpus else None,
        machine_type=before.machine_type,
        labels=before.labels,
        pinned_host=before.pinned_host,
        provider=before.provider,
        pin_provider=before.pin_provider,
        spot=before.spot,
        max_cost_per_hour=before.max_cost_per_hour,
        group=before.group,
        host_dir=before.host_dir,
        snapshot=before.snapshot,
        repo=before.repo,
        image=before.image,
        environment=before.environment,
        secrets=before.secrets,
        strict_shell=before.strict_shell,
        priority=record.priority,
        tags=before.tags,
        deadline_at=before.deadline_at,
        max_lease_losses=before.max_lease_losses,
        inputs=sorted(inputs, key=lambda one: one.name),
        start_from=start_from if before.step_of is None else before.start_from,
        notify=before.notify,
        then=launch.then,
        then_cpu=before.then_cpu,
        then_memory_gb=before.then_memory_gb,
        then_gpus=before.then_gpus,
        step_of=StepOf(root=root_of(record), number=launch.number, name=step.name),
    )


def name_left_by(record: Record) -> str:
    """Of the folder in which the steps after a job find what it left."""
    return ROOT_NAME if record.spec.step_of is None else record.spec.step_of.name


def wanted_save(spec: Spec) -> tuple[Kind, ...]:
    """Which save of the root's policy its steps start from, the first that there is."""
    return (Kind.LATEST,) if spec.then_from is Kind.LATEST else (Kind.BEST, Kind.LATEST)


def roll_up(
    root: State, steps: Sequence[State | None], *, parallel: bool, held: Collection[int] = ()
) -> PipelineState:
    """One word for all of it. `steps`: None for one that was not launched. `held`: numbers of those
    that will not be. While the root has not completed it is the root's word: nothing else can have
    happened."""
    if root is not State.COMPLETED:
        return _OF_ROOT[root]
    if State.RUNNING in steps:
        return PipelineState.RUNNING
    waits = State.QUEUED in steps or State.PAUSED in steps
    if waits or is_to_come(steps, parallel=parallel, held=held):
        return PipelineState.QUEUED
    if all(state is State.COMPLETED for state in steps):
        return PipelineState.SUCCEEDED
    return PipelineState.PARTIAL


def skipped(steps: Sequence[State | None], state: PipelineState) -> Iterator[int]:
    """The numbers of the steps that will not be started as things are."""
    if not state.is_over:
        return
    yield from (number for number, one in enumerate(steps, 1) if one is None)


def is_to_come(
    steps: Sequence[State | None], *, parallel: bool, held: Collection[int] = ()
) -> bool:
    """Whether a step that was not seen is about to be launched, the root having completed: all that
    it follows has completed."""
    unseen = (number for number, state in enumerate(steps, 1) if state is None)
    if parallel:
        return any(number not in held for number in unseen)
    first = next(unseen, None)
    if first is None or first in held:
        return False
    return all(state is State.COMPLETED for state in steps[: first - 1])


_STEP_RUN_PATTERN = re.compile(rf"{ids.JOB_PATTERN.pattern}\.[0-9]+")

_OF_ROOT = {
    State.QUEUED: PipelineState.QUEUED,
    State.RUNNING: PipelineState.RUNNING,
    State.PAUSED: PipelineState.PAUSED,
    State.FAILED: PipelineState.FAILED,
    State.TIMED_OUT: PipelineState.FAILED,
    State.CANCELLED: PipelineState.STOPPED,
}
