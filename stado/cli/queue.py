"""`stado queue pause`, `drain` and `resume`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from stado.cli import options
from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.jobs.draining import DrainLook
    from stado.jobs.repository import Repository

_NAMED = 5


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
@click.option(
    "--timeout",
    "timeout_seconds",
    callback=options.duration,
    metavar="DURATION",
    help="Wait no longer than this: 90, 30m, 2h.  [default: until nothing runs]",
)
@json_option
@target_options
def drain(*, timeout_seconds: int | None, as_json: bool, target: Target) -> int:
    """Pause the queue and wait until nothing runs any more. What runs is not stopped; that is what
    `stado cancel` and `stado job pause` do.

    The queue stays paused whatever becomes of the waiting: `stado queue resume` lets it go on.
    Exits with 0 once nothing runs, with 1 when something still does after --timeout, or when
    somebody resumes the queue meanwhile.
    """
    from stado.cli import exits, render
    from stado.cli.failures import going_on
    from stado.jobs.draining import begin_drain

    user = user_name()
    with opened_repository(target) as repo:
        begin_drain(repo, by=user)
        with going_on(
            "no longer waiting; the queue stays paused, and what runs goes on",
            "look again: `stado status`, or `stado queue drain`",
            "let the queue go on: `stado queue resume`",
        ):
            look, waited_seconds = _wait_until_drained(repo, timeout_seconds)
    if as_json:
        render.print_json(_drain_fields(look, waited_seconds))
    if look.drained:
        render.tell("nothing runs, and nothing starts until `stado queue resume`")
    elif not look.paused:
        render.tell("stado: somebody let the queue go on meanwhile: it is not drained")
    else:
        render.tell(f"stado: after {waited_seconds:.0f} s {_still(look)}; the queue stays paused")
    return exits.OK if look.drained else exits.FAILED


def _wait_until_drained(repo: Repository, timeout_seconds: int | None) -> tuple[DrainLook, float]:
    """The last look, and how long it took. What still runs is told whenever that changes."""
    from stado.cli import render
    from stado.cli.following import Patience
    from stado.jobs.draining import Drain
    from stado.jobs.sight import Pace

    drain, pace, began = Drain(repo), Pace(repo.clock), repo.clock.monotonic()
    patience = Patience(repo.clock, meanwhile="the queue stays paused")
    told: list[str] | None = None
    while True:
        look = patience.call(drain.look)
        waited_seconds = repo.clock.monotonic() - began
        left = math.inf if timeout_seconds is None else timeout_seconds - waited_seconds
        if look.drained or not look.paused or left <= 0:
            return look, waited_seconds
        if look.running != told:
            render.tell(f"the queue is paused; {_still(look)}")
            told = look.running
            pace.quicken()
        pace.pause(seconds_max=left)


def _still(look: DrainLook) -> str:
    """`3 jobs run: a on alice, b on bob and 1 more`."""
    count = len(look.running)
    if not count:
        return "nothing runs, and for some seconds a worker may start what it read before"
    named = look.running[:_NAMED]
    words = [f"{job_id}{_where(look, job_id)}" for job_id in named]
    more = f" and {count - len(named):,} more" if count > len(named) else ""
    return f"{count:,} job{' runs' if count == 1 else 's run'}: {', '.join(words)}{more}"


def _where(look: DrainLook, job_id: str) -> str:
    record = look.named.get(job_id)
    return "" if record is None or record.holder is None else f" on {record.holder.consumer}"


def _drain_fields(look: DrainLook, waited_seconds: float) -> dict[str, Any]:
    return {
        "drained": look.drained,
        "queue_paused": look.paused,
        "running": look.running,
        "waited_seconds": round(waited_seconds, 3),
    }


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
