"""`stado job show`, `watch` and `rerun`."""

from __future__ import annotations

from collections import ChainMap
from typing import TYPE_CHECKING

import click

from stado.cli import options
from stado.cli.context import json_option, opened_repository, user_name
from stado.cli.log_options import LogView, log_view_options
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.core.records import Record
    from stado.jobs.fitting import Wait
    from stado.jobs.repository import Repository


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
    from stado.jobs.status import story

    with opened_repository(target) as repo:
        told = story(repo, named_or_newest(repo, job, user=user_name(), command="stado job show"))
        queued = told.record.state is State.QUEUED
        wait = _wait(repo, told.record) if queued else None
        again = retryable(repo, told.record)
        if as_json:
            render.print_json(story_fields(told, wait, again))
            return
        for line in story_lines(told, wait, again, repo.now()):
            render.print_wrapped(line, indent=LABEL_WIDTH)
        for hint in steps_hints(repo, told.record):
            render.print_wrapped(f"{'steps':<{LABEL_WIDTH}}{hint}", indent=LABEL_WIDTH)


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
    "--follow/--no-follow", help="Go on until the job has ended, and exit as it did.  [off]"
)
@click.option(
    "--tail", "lines", type=click.IntRange(min=0), metavar="N", help="The last N lines; 0: none."
)
@log_view_options
@target_options
def watch(*, job: str, follow: bool, lines: int | None, view: LogView, target: Target) -> int:
    """Print the log of a job's newest epoch, byte by byte as the job wrote it, from its beginning.

    ID is a job id, a part of one, a run id, or `last`. `stado job logs` follows by itself, from
    2,000 lines before the end. Here `--tail 0` is nothing; there `-n 0` is everything.
    """
    from stado.cli.logs import show_log

    command = "stado job watch --follow" if follow else "stado job watch"
    return show_log(target, job, command=command, follow=follow, lines=lines, view=view)


@click.command()
@click.argument("job", metavar="ID")
@click.option(
    "--run-id",
    callback=options.plain_text,
    metavar="NAME",
    help="Name of the new run: repeating the rerun then answers the same job.",
)
@json_option
@target_options
def rerun(*, job: str, run_id: str | None, as_json: bool, target: Target) -> None:
    """Submit the exact spec of a job again, under a new id. The original stays as it is."""
    from stado.cli import render
    from stado.cli.submit import what_happens, why_it_waits
    from stado.jobs.changes import rerun as rerun_job
    from stado.jobs.sight import present_record

    with opened_repository(target) as repo:
        job_id = _selected(repo, job, "stado job rerun")
        submission = rerun_job(repo, job_id, run_id=run_id, submitter=user_name())
        told = submission.created and not as_json
        why = (
            why_it_waits(repo, present_record(repo, job_id).spec, submission.base_id)
            if told
            else None
        )
    if as_json:
        render.print_json(
            {
                "job_id": submission.base_id,
                "run_id": submission.run_id,
                "rerun_of": job_id,
                "created": submission.created,
            }
        )
        return
    said = "submitted" if submission.created else "already submitted:"
    happens = "" if why is None else f"; {what_happens(why)}"
    render.print_line(submission.base_id)
    render.tell(
        f"{said} job {submission.base_id}, a rerun of {job_id} (run {submission.run_id}){happens}"
    )
    if why is not None and why.remedy is not None:
        render.tell(f"to do: {why.remedy}")
    render.tell(f"next: stado job watch {submission.base_id} --follow")


def _selected(repo: Repository, text: str, command: str) -> str:
    from stado.cli.selectors import select_job

    return select_job(repo, text, user=user_name(), command=command)
