"""`stado job show`, `watch` and `rerun`."""

from __future__ import annotations

from collections import ChainMap
from typing import TYPE_CHECKING

import click

from stado.cli import options
from stado.cli.context import json_option, opened_repository, user_name
from stado.cli.log_options import Begin, LogView, begin_options, log_view_options
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.cli.selectors import Selection
    from stado.core.records import Expired, Record
    from stado.core.states import State
    from stado.errors import Refused
    from stado.jobs.fitting import Wait
    from stado.jobs.repository import Repository
    from stado.jobs.submit import Submission


@click.command()
@click.argument("job", metavar="[ID]", required=False)
@click.option(
    "--section",
    "sections",
    callback=options.sections,
    metavar="NAME[,NAME…]",
    help=f"Instead of the story: {', '.join(options.SECTIONS)}.",
)
@json_option
@target_options
def show(*, job: str | None, sections: tuple[str, ...], as_json: bool, target: Target) -> None:
    """Tell the story of a job: its epochs, who held them, how each ended. `stado job status`
    is the same.

    ID is a job id, a part of one, a run id, or `last`. Without it your newest job is meant, and
    named first.
    """
    if sections:
        _show_sections(target, job or "last", sections, as_json=as_json)
        return
    from stado.cli import render
    from stado.cli.pipeline import steps_hints
    from stado.cli.selectors import named_or_newest
    from stado.cli.stories import LABEL_WIDTH, story_fields, story_lines
    from stado.core.states import State
    from stado.jobs.changes import retryable
    from stado.jobs.expired import gone_of, gone_sentence
    from stado.jobs.status import story

    with opened_repository(target) as repo:
        told = story(repo, named_or_newest(repo, job, user=user_name(), command="stado job show"))
        queued = told.record.state is State.QUEUED
        wait = _wait(repo, told.record) if queued else None
        again = retryable(repo, told.record)
        gone = gone_of(repo, told.record)
        if as_json:
            fields = story_fields(told, wait, again)
            render.print_json({**fields, "gone": [_gone_fields(one) for one in gone]})
            return
        for line in story_lines(told, wait, again, repo.now()):
            render.print_wrapped(line, indent=LABEL_WIDTH)
        for one in gone:
            line = f"{'gone':<{LABEL_WIDTH}}{gone_sentence(one)}"
            render.print_wrapped(line, indent=LABEL_WIDTH)
        for hint in steps_hints(repo, told.record):
            render.print_wrapped(f"{'steps':<{LABEL_WIDTH}}{hint}", indent=LABEL_WIDTH)


def _gone_fields(gone: Expired) -> dict[str, str | None]:
    from stado.cli.render import instant_text

    at = instant_text(gone.at)
    return {"kind": gone.kind.value, "at": at, "by": gone.by, "rule": gone.rule}


def _wait(repo: Repository, record: Record) -> Wait:
    from stado.jobs.waiting import why_queued

    return why_queued(repo, record.spec, record.id, user=record.submitter)


def _show_sections(target: Target, job: str, sections: tuple[str, ...], *, as_json: bool) -> None:
    if as_json and "logs" in sections:
        raise click.UsageError("A log is bytes and has no JSON: leave out --json, or the logs.")
    from stado.cli import render
    from stado.cli.sections import print_section, section_fields
    from stado.cli.selectors import select_even_deleted, select_job

    select = select_even_deleted if sections == ("events",) else select_job
    with opened_repository(target) as repo:
        job_id = select(repo, job, user=user_name(), command="stado job show")
        if as_json:
            fields = [section_fields(repo, job_id, name) for name in sections]
            render.print_json({"job_id": job_id, **ChainMap(*fields)})
            return
        for name in sections:
            if len(sections) > 1:
                render.print_line(f"--- {name}")
            print_section(repo, job_id, name)


@click.command()
@click.argument("job", metavar="ID")
@click.option(
    "-f/ ",
    "--follow/--no-follow",
    help="Go on until the job has ended, and exit as it did.  [off]",
)
@begin_options(habit="at the beginning")
@log_view_options
@target_options
def watch(*, job: str, follow: bool, begin: Begin, view: LogView, target: Target) -> int:
    """Print the log of a job as far as it has come, byte by byte as the job wrote it; with
    --follow go on to its end.

    ID is a job id, a part of one, a run id, or `last`. `stado job logs` follows by itself, from
    2,000 lines before the end.
    """
    from stado.cli.logs import show_log

    command = "stado job watch --follow" if follow else "stado job watch"
    return show_log(target, job, command=command, follow=follow, lines=begin.lines, view=view)


@click.command()
@click.argument("job", metavar="ID")
@click.option(
    "--run-id",
    callback=options.plain_text,
    metavar="NAME",
    help="Name of the new run: repeating the rerun then answers the same job.",
)
@click.option(
    "--only",
    callback=options.ended_states,
    metavar="STATE[,STATE…]",
    help="Of a batch ID: its jobs that ended so, as one new batch (failed, timed_out, cancelled).",
)
@json_option
@target_options
def rerun(
    *, job: str, run_id: str | None, only: tuple[State, ...], as_json: bool, target: Target
) -> None:
    """Submit the exact spec of a job again, under a new id. The original stays as it is.

    \b
      stado job rerun JOB
      stado job rerun BATCH --only failed,timed_out
    """
    from stado.cli import render
    from stado.cli.submit import what_happens, why_it_waits
    from stado.jobs.sight import present_record

    with opened_repository(target) as repo:
        rerun_of, submission = _rerun(repo, job, run_id, only)
        told = submission.created and not as_json
        why = (
            why_it_waits(
                repo, present_record(repo, submission.job_ids[0]).spec, submission.job_ids[0]
            )
            if told
            else None
        )
    if as_json:
        fields = {
            "job_id": submission.base_id,
            "run_id": submission.run_id,
            "rerun_of": rerun_of,
            "created": submission.created,
        }
        render.print_json({**fields, "job_ids": submission.job_ids} if only else fields)
        return
    said = "submitted" if submission.created else "already submitted:"
    happens = "" if why is None else f"; {what_happens(why, several=len(submission.job_ids) > 1)}"
    for job_id in submission.job_ids:
        render.print_line(job_id)
    what = f"{render.plural(len(submission.job_ids), 'job')} as batch" if only else "job"
    run = f"(run {submission.run_id})"
    render.tell(f"{said} {what} {submission.base_id}, a rerun of {rerun_of} {run}{happens}")
    if why is not None and why.remedy is not None:
        render.tell(f"to do: {why.remedy}")
    next_ = "status" if only else "job watch"
    follow = "" if only else " --follow"
    render.tell(f"next: stado {next_} {submission.base_id}{follow}")


def _rerun(
    repo: Repository, named: str, run_id: str | None, only: tuple[State, ...]
) -> tuple[str, Submission]:
    """What is rerun, and as what."""
    from stado.cli.selectors import select
    from stado.jobs.changes import rerun as rerun_job
    from stado.jobs.changes import rerun_some

    user = user_name()
    selection = select(repo, named, user=user)
    if not only:
        if len(selection.job_ids) > 1:
            raise _several(named, selection)
        (job_id,) = selection.job_ids
        return job_id, rerun_job(repo, job_id, run_id=run_id, submitter=user)
    if not selection.batch:
        raise click.UsageError(f"--only is for batches, and {named!r} is one job: leave it out.")
    base_id = selection.base_id
    return base_id, rerun_some(repo, base_id, only, run_id=run_id, submitter=user)


def _several(named: str, selection: Selection) -> Refused:
    """Of a batch: which of its jobs?"""
    from stado.errors import Refused

    base_id = selection.base_id
    return Refused(
        "job_not_single",
        f"{named!r} names a batch of {len(selection.job_ids)} jobs: `stado job rerun {base_id} "
        "--only failed,timed_out` submits those that ended so as a new batch, `stado job rerun "
        f"{selection.job_ids[0]}` one of them",
    )
