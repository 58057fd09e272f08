"""`stado pipeline show`: a job and the steps that follow it, as one thing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stado.core.records import Record
    from stado.jobs.pipeline_sight import PipelineSight, StepSight
    from stado.jobs.repository import Repository

NOT_LAUNCHED = "to come"
SKIPPED = "skipped"


@click.command()
@click.argument("job", metavar="[ID]", required=False)
@json_option
@target_options
def show(*, job: str | None, as_json: bool, target: Target) -> None:
    """Tell what has become of a pipeline: one word for all of it, and each of its jobs.

    ID is `pipeline_…`, or any of its jobs: an id, a part of one, a run id. Without it your newest
    submission is meant.
    """
    from stado.cli import render
    from stado.cli.tables import Column
    from stado.cli.views import STATUS_STYLES
    from stado.jobs.pipeline_sight import look

    with opened_repository(target) as repo:
        seen = look(repo, root_named(repo, job))
    if as_json:
        render.print_json(pipeline_fields(seen))
        return
    columns = [
        Column("STEP", right=True),
        Column("NAME", width_max=20),
        Column("STATUS", styles={**STATUS_STYLES, SKIPPED: "magenta"}),
        Column("JOB"),
        Column("COMMAND"),
    ]
    rows = [["0", "root", seen.root.state.value, seen.root.id, seen.root.spec.command]]
    rows += [
        [str(one.number), one.step.name, step_word(seen, one), one.job_id or "", one.step.command]
        for one in seen.steps
    ]
    render.print_table(columns, rows)
    for note in held_notes(seen):
        render.tell(note)
    render.tell(summary(seen))


def held_notes(seen: PipelineSight) -> Iterator[str]:
    """Why steps are not launched, though their turn has come."""
    from stado.core.pipelines import Held, step_run_id

    for number, why in sorted(seen.held.items()):
        texts = {
            Held.RUN_ID_TAKEN: "another submission has its run id, "
            f"{step_run_id(seen.root.id, number)}",
            Held.CANCELLED: "a cancel was asked of the job before, which completed all the same",
            Held.DELETED: "the job before was deleted",
        }
        yield f"step {number} ({seen.steps[number - 1].step.name}) is not launched: {texts[why]}"


def root_named(repo: Repository, text: str | None) -> str:
    """The id of a job of the pipeline that somebody means."""
    from stado.cli.selectors import named_or_newest
    from stado.core.pipelines import PIPELINE_PREFIX

    if text is not None:
        text = text.strip().removeprefix(PIPELINE_PREFIX)
    return named_or_newest(repo, text, user=user_name(), command="stado pipeline show")


def step_word(seen: PipelineSight, one: StepSight) -> str:
    if one.state is not None:
        return one.state.value
    return SKIPPED if one.number in seen.skipped else NOT_LAUNCHED


def summary(seen: PipelineSight) -> str:
    """`pipeline_x is partial: 1 of 3 steps completed, 1 skipped`."""
    from stado.cli.render import plural
    from stado.core.pipelines import PIPELINE_PREFIX

    steps = f"{seen.done} of {plural(len(seen.steps), 'step')} completed"
    skipped = f", {len(seen.skipped)} skipped" if seen.skipped else ""
    return f"{PIPELINE_PREFIX}{seen.root.id} is {seen.state.value}: {steps}{skipped}"


def steps_hints(repo: Repository, record: Record) -> list[str]:
    """What helps who names a root that has completed, and means the rest of its pipeline."""
    from stado.cli.outcomes import ended_word
    from stado.core.pipelines import PIPELINE_PREFIX
    from stado.core.states import State
    from stado.jobs.pipeline_sight import live_jobs, look

    if record.state is not State.COMPLETED or not record.spec.then or record.spec.step_of:
        return []
    seen = look(repo, record.id)
    hints = [
        f"its step {one.step.name} {ended_word(one.state)}: `stado job retry {one.job_id}`"
        for one in seen.steps
        if one.job_id and one.state in (State.FAILED, State.TIMED_OUT, State.CANCELLED)
    ]
    if live_jobs(seen):
        pipeline = f"{PIPELINE_PREFIX}{record.id}"
        hints.append(f"`stado cancel {pipeline}` cancels those of its steps that have not ended")
    return hints


def pipeline_fields(seen: PipelineSight) -> dict[str, Any]:
    from stado.core.pipelines import PIPELINE_PREFIX

    return {
        "pipeline_id": f"{PIPELINE_PREFIX}{seen.root.id}",
        "state": seen.state.value,
        "root": {"job_id": seen.root.id, "status": seen.root.state.value},
        "done": seen.done,
        "steps": [
            {
                "step": one.number,
                "name": one.step.name,
                "job_id": one.job_id,
                "status": one.state.value if one.state is not None else None,
                "skipped": one.number in seen.skipped,
                "held": one.held.value if one.held is not None else None,
                "command": one.step.command,
                "type": one.step.type.value,
            }
            for one in seen.steps
        ],
    }
