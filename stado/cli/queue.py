"""`stado queue pause` and `resume`."""

from __future__ import annotations

import click

from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options


@click.command()
@json_option
@target_options
def pause(*, as_json: bool, target: Target) -> None:
    """Let no job start until the queue is resumed; what runs goes on."""
    from stado.jobs.changes import pause_queue

    user = user_name()
    with opened_repository(target) as repo:
        pause_queue(repo, by=user)
    _answer(paused=True, as_json=as_json)


@click.command()
@json_option
@target_options
def resume(*, as_json: bool, target: Target) -> None:
    """Let jobs start again."""
    from stado.jobs.changes import resume_queue

    user = user_name()
    with opened_repository(target) as repo:
        resume_queue(repo, by=user)
    _answer(paused=False, as_json=as_json)


def _answer(*, paused: bool, as_json: bool) -> None:
    from stado.cli import render

    if as_json:
        render.print_json({"queue_paused": paused})
    elif paused:
        render.tell(
            "the queue is paused: no job starts until `stado queue resume`; what runs goes on"
        )
    else:
        render.tell("the queue goes on: jobs start again")
