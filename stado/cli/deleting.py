"""`stado job delete`: a job that has ended goes, with what it left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stado.cli import options
from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.cli.answers import Answers
    from stado.cli.selectors import Selection
    from stado.jobs.deletion import Deletion
    from stado.jobs.repository import Repository


@click.command()
@click.argument("job", metavar="ID")
@options.reason_option
@click.option("--yes", is_flag=True, help="Ask nothing.")
@json_option
@target_options
def delete(*, job: str, note: str | None, yes: bool, as_json: bool, target: Target) -> int:
    """Delete a job that has ended, or every job of a batch, for ever: its log, its output, its
    checkpoints, and its place in lists. Its run id stays taken.

    What an artifact names keeps its job from being deleted; saves that its policies name stay.

    ID is a job or batch id, a part of one, a run id, or `last`. Unless it is the whole id of one
    job it is asked first. Interrupted, the same command goes on.
    """
    from stado.cli import exits
    from stado.cli.answers import each_of
    from stado.jobs.deletion import delete as delete_job

    user = user_name()
    with opened_repository(target) as repo:
        selection = _selection(repo, job, user)
        if not (yes or _named_exactly(selection, job) or _may_go_on(repo, selection)):
            return exits.FAILED
        answers = each_of(
            repo, selection, lambda job_id: delete_job(repo, job_id, by=user, note=note)
        )
    return _tell(answers, as_json=as_json)


def _selection(repo: Repository, text: str, user: str) -> Selection:
    """Also one whose deletion was begun and is not finished."""
    from stado.cli.selectors import Selection, select
    from stado.core.ids import is_job_id
    from stado.errors import Refused
    from stado.jobs.deletion import is_unfinished

    try:
        return select(repo, text, user=user)
    except Refused as error:
        job_id = text.strip().lower()
        begun = error.code == "job_deleted" and is_job_id(job_id)
        if not begun or not is_unfinished(repo, job_id):
            raise
        return Selection(text, [job_id], batch=False)


def _named_exactly(selection: Selection, text: str) -> bool:
    return not selection.batch and selection.job_ids == [text.strip().lower()]


def _may_go_on(repo: Repository, selection: Selection) -> bool:
    from stado.cli.stopping import confirmed, described

    what = f"{described(repo, selection)}, with all that it left{_with_steps(repo, selection)}"
    return confirmed("delete", what, done="deleted")


def _with_steps(repo: Repository, selection: Selection) -> str:
    """Of a single job that is the root of a pipeline: what becomes of the rest of it."""
    from stado.cli.render import plural
    from stado.jobs.pipeline_sight import steps_of
    from stado.jobs.sight import present_record

    if selection.batch:
        return ""
    steps = steps_of(repo, present_record(repo, selection.job_ids[0]))
    count = sum(one.job_id is not None for one in steps)
    if not count:
        return ""
    remain = "remains and takes its" if count == 1 else "remain and take their"
    return f" ({plural(count, 'step')} of it {remain} input from it)"


def _tell(answers: Answers[Deletion], *, as_json: bool) -> int:
    from stado.cli import exits, render

    if as_json:
        told = [
            {"job_id": one.job_id, "objects": one.objects, "policies_stay": one.policies_stay}
            for one in answers.done.values()
        ]
        render.print_json({"deleted": told, "refused": answers.refused_fields()})
    else:
        for job_id in answers.done:
            render.print_line(f"{job_id}  deleted")
        answers.tell_refused("deleted")
        if answers.done:
            render.tell(_summary(answers))
    return exits.FAILED if answers.refused else exits.OK


def _summary(answers: Answers[Deletion]) -> str:
    """`deleted 2 jobs, and 17 objects that they left; 1 was not`."""
    from stado.cli import render, views

    done = list(answers.done.values())
    objects = render.plural(sum(one.objects for one in done), "object")
    whose = "it" if len(done) == 1 else "they"
    told = f"deleted {views.jobs_text(len(done))}, and {objects} that {whose} left"
    if any(one.policies_stay for one in done):
        told += "; saves that policies name stay"
    return told + answers.refused_text()
