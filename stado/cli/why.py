"""`stado job why`: what holds a job, in one line, and then everything that was looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.core.records import Record
    from stado.jobs.repository import Repository
    from stado.jobs.status import Life
    from stado.jobs.waiting import Explanation


@click.command()
@click.argument("job", metavar="[ID]", required=False)
@json_option
@target_options
def why(*, job: str | None, as_json: bool, target: Target) -> None:
    """Say why a job waits, what it is doing, or how it ended.

    ID is a job id, a part of one, a run id, or `last`. Without it your newest job is meant, and
    named first. What a queued job has to pass is shown in order; the first closed gate is the
    answer. Of a batch its reasons are counted.
    """
    from stado.cli.batch_waits import batch_fields, look_at_batch, print_batch
    from stado.cli.explanations import explanation_fields, print_explanation, print_field
    from stado.cli.pipeline import steps_hints
    from stado.cli.render import print_json, tell
    from stado.cli.selectors import LAST, select

    with opened_repository(target) as repo:
        selection = select(repo, LAST if job is None else job, user=user_name())
        if len(selection.job_ids) > 1:
            batch = look_at_batch(repo, selection)
            if as_json:
                print_json(batch_fields(batch))
            else:
                print_batch(batch)
            return
        (job_id,) = selection.job_ids
        if job is None:
            tell(f"job {job_id}, your newest")
        record, seen = explained(repo, job_id)
        if as_json:
            print_json(explanation_fields(record, seen, repo.now()))
        else:
            print_explanation(record, seen, repo.now())
            for hint in steps_hints(repo, record):
                print_field("steps", hint)


def explained(repo: Repository, job_id: str) -> tuple[Record, Explanation | Life | None]:
    """The job, and what there is to know of its wait or of its run. One that moved while we
    looked is looked at again: a queued job must have a place in the queue."""
    from stado.core.states import State
    from stado.jobs.sight import present_record
    from stado.jobs.status import life_of
    from stado.jobs.waiting import explain

    record = present_record(repo, job_id)
    if record.state is State.QUEUED:
        explanation = explain(repo, record)
        if explanation.ahead is not None:
            return record, explanation
        again = present_record(repo, job_id)
        if again == record:
            return record, explanation
        record = again
    if record.state is State.QUEUED:
        return record, explain(repo, record)
    return record, life_of(repo, record) if record.state is State.RUNNING else None
