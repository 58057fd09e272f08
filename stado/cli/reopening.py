"""`stado job pause`, `resume`, `retry`: a job taken out of its course, and brought back into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import click

from stado.cli import options
from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.cli.answers import Answers
    from stado.cli.selectors import Selection
    from stado.jobs.changes import Reopening
    from stado.jobs.repository import Repository


@click.command()
@click.argument("job", metavar="ID")
@options.reason_option
@click.option("--no-wait", is_flag=True, help="Do not wait for a running job to have stopped.")
@json_option
@target_options
def pause(*, job: str, note: str | None, no_wait: bool, as_json: bool, target: Target) -> int:
    """Pause a job, or every job of a batch: a queued one at once, a running one at its worker's
    next check-in, which stops it and saves its checkpoint. It holds nothing then, and waits for
    `stado job resume`.

    ID is a job or batch id, a part of one, a run id, or `last`. The request is durable as soon as
    it is made: Ctrl-C stops the waiting, not the pause.
    """
    from stado.cli import exits, render
    from stado.cli.selectors import select
    from stado.cli.stopping import Manner, Wish, stop, tell_steps, tell_stopped
    from stado.core.states import State
    from stado.jobs import changes

    manner = Manner(verb="pause", state=State.PAUSED, command="stado job pause", stop=changes.pause)
    wish = Wish(by=user_name(), note=note, wait=not no_wait, as_json=as_json)
    with opened_repository(target) as repo:
        selection = select(repo, job, user=wish.by)
        stopped = stop(repo, selection, manner, wish)
        code = tell_stopped(stopped, manner, wish)
        tell_steps(repo, stopped)
    if code == exits.OK:
        held = all(record.state is State.PAUSED for record in stopped.records.values())
        when = "" if held else ", once it is paused"
        render.tell(f"next{when}: stado job resume {_name_of(selection)}")
    return code


@click.command()
@click.argument("job", metavar="ID")
@options.reason_option
@json_option
@target_options
def resume(*, job: str, note: str | None, as_json: bool, target: Target) -> int:
    """Queue a paused job again, or every paused job of a batch: it goes on from its newest
    checkpoint, on whichever host takes it.

    ID is a job or batch id, a part of one, a run id, or `last`.
    """
    from stado.jobs import changes

    return _reopen(target, job, Way("resumed", changes.resume), note=note, as_json=as_json)


@click.command()
@click.argument("job", metavar="ID")
@options.reason_option
@json_option
@target_options
def retry(*, job: str, note: str | None, as_json: bool, target: Target) -> int:
    """Queue a job again that failed, was cancelled or timed out, under its own id, or every such
    job of a batch: it goes on from its newest checkpoint. `stado job rerun` makes a new job
    instead.

    ID is a job or batch id, a part of one, a run id, or `last`.
    """
    from stado.jobs import changes

    return _reopen(target, job, Way("retried", changes.retry), note=note, as_json=as_json)


class ReopenJob(Protocol):
    """`changes.resume` or `changes.retry`."""

    def __call__(
        self, repo: Repository, job_id: str, *, by: str, note: str | None
    ) -> Reopening: ...


@dataclass(frozen=True, slots=True)
class Way:
    """Back into the queue, and the word for having gone it."""

    done: str
    reopen: ReopenJob


def _reopen(target: Target, text: str, way: Way, *, note: str | None, as_json: bool) -> int:
    from stado.cli.answers import each_of
    from stado.cli.pipeline import steps_hints
    from stado.cli.selectors import select
    from stado.errors import Refused
    from stado.jobs.sight import present_record

    user = user_name()
    with opened_repository(target) as repo:
        selection = select(repo, text, user=user)
        try:
            answers = each_of(
                repo, selection, lambda job_id: way.reopen(repo, job_id, by=user, note=note)
            )
        except Refused as error:  # of a job that was named alone
            if error.code == "completed_is_final":
                record = present_record(repo, selection.job_ids[0])
                for hint in steps_hints(repo, record):
                    error.add_note(f"- {hint}")
            raise
    return _tell_reopened(selection, answers, way, as_json=as_json)


def _tell_reopened(
    selection: Selection, answers: Answers[Reopening], way: Way, *, as_json: bool
) -> int:
    from stado.cli import exits, render
    from stado.cli.views import job_fields

    done = answers.done
    if as_json:
        told = [
            {**job_fields(answer.record), f"{way.done}_now": answer.opened_now}
            for answer in done.values()
        ]
        render.print_json({"jobs": told, "refused": answers.refused_fields()})
    else:
        for answer in done.values():
            render.print_line(f"{answer.record.id}  {answer.record.state.value}")
        answers.tell_refused(way.done)
        if done:
            render.tell(_summary(answers, way))
    if done:
        render.tell(f"next: {_next(selection)}")
    return exits.FAILED if answers.refused else exits.OK


def _summary(answers: Answers[Reopening], way: Way) -> str:
    """`retried 2 jobs: queued again as of now; 1 was not`."""
    from stado.cli import views

    told = f"{way.done} {views.jobs_text(len(answers.done))}: queued again as of now"
    single = len(answers.done) == 1 and not answers.refused
    if single:
        (answer,) = answers.done.values()
        told += "" if answer.opened_now else " (somebody did so just before)"
        told += f", epoch {answer.record.epoch}"
    return told + answers.refused_text()


def _next(selection: Selection) -> str:
    if selection.batch:
        return f"stado status {selection.base_id} --watch"
    return f"stado job watch {selection.job_ids[0]} --follow"


def _name_of(selection: Selection) -> str:
    return selection.base_id if selection.batch else selection.job_ids[0]
