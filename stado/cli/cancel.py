"""`stado cancel`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import click

from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.cli.selectors import Selection
    from stado.core.records import Record
    from stado.jobs.changes import Cancellation
    from stado.jobs.reaping import Reaper
    from stado.jobs.repository import Repository

_SINGLE_TURNS_MAX = 20
"""So many silent jobs are looked at one by one; for more, one look at everything costs less."""


@click.command()
@click.argument("job", metavar="ID")
@click.option("--no-wait", is_flag=True, help="Do not wait for a running job to have stopped.")
@json_option
@target_options
def cancel(*, job: str, no_wait: bool, as_json: bool, target: Target) -> int:
    """Cancel a job, or every job of a batch: a queued one at once, a running one at its worker's
    next check-in.

    The request is durable as soon as it is made: Ctrl-C stops the waiting, not the cancel. A
    worker that is silent for a whole lease is not waited for any longer.
    """
    from stado.cli.selectors import select

    user = user_name()
    with opened_repository(target) as repo:
        selection = select(repo, job, user=user)
        answers = _cancel_all(repo, selection, user)
        records = {answer.record.id: answer.record for answer in answers}
        asked = [answer.record.id for answer in answers if answer.asked is not None]
        if asked:
            with _cancel_staying(selection):
                _tell_asked(
                    asked, records, beat_seconds=repo.deployment.beat_seconds, no_wait=no_wait
                )
                if not no_wait:
                    records |= _wait(repo, asked, user)
        return _answer(answers, records, no_wait=no_wait, as_json=as_json)


def _cancel_all(repo: Repository, selection: Selection, user: str) -> list[Cancellation]:
    """A submission that was interrupted is finished first: nothing of it shall start later."""
    from stado.jobs.changes import cancel as cancel_job
    from stado.jobs.repository import PARALLEL_REQUESTS
    from stado.jobs.submit import finish_submission

    if selection.run is not None and not selection.run.value.complete:
        finish_submission(repo, selection.run, fresh=False)
    return repo.tasks.map(
        lambda job_id: cancel_job(repo, job_id, by=user),
        selection.job_ids,
        limit=PARALLEL_REQUESTS,
    )


def _cancel_staying(selection: Selection) -> AbstractContextManager[None]:
    from stado.cli.failures import going_on

    return going_on(
        f"no longer waiting; the cancel stays. Look again: stado status {selection.base_id}"
    )


def _wait(repo: Repository, asked: list[str], user: str) -> dict[str, Record]:
    """The jobs once they are at rest."""
    from stado.cli.following import Pace, present_record
    from stado.jobs.reaping import Reaper
    from stado.jobs.repository import PARALLEL_REQUESTS

    reaper, pace = Reaper(repo, by=user), Pace(repo.clock)
    ended: dict[str, Record] = {}
    waiting = asked
    while True:
        looks = repo.tasks.map(
            lambda job_id: present_record(repo, job_id), waiting, limit=PARALLEL_REQUESTS
        )
        ended |= {record.id: record for record in looks if record.state.at_rest}
        waiting = [job_id for job_id in waiting if job_id not in ended]
        if not waiting:
            return ended
        _reap_silent(reaper, waiting)
        pace.pause()


def _reap_silent(reaper: Reaper, job_ids: list[str]) -> None:
    if len(job_ids) > _SINGLE_TURNS_MAX:
        reaper.turn()
        return
    for job_id in job_ids:
        reaper.turn_for(job_id)


def _tell_asked(
    asked: list[str], records: dict[str, Record], *, beat_seconds: float, no_wait: bool
) -> None:
    from stado.cli import render, views

    holders = [records[job_id].holder for job_id in asked]
    workers = sorted({holder.consumer for holder in holders if holder is not None})
    whom = workers[0] if len(workers) == 1 else f"{len(workers)} workers"
    told = f"asked {whom} to stop {views.jobs_text(len(asked))}, within {beat_seconds:g} s"
    render.tell(told if no_wait else f"{told}; waiting (Ctrl-C stops the waiting, not the cancel)")


def _answer(
    answers: list[Cancellation], records: dict[str, Record], *, no_wait: bool, as_json: bool
) -> int:
    from stado.cli import exits, render, views
    from stado.core.states import State

    open_ones = [answer for answer in answers if answer.cancelled_now or answer.asked is not None]
    if as_json:
        render.print_json({"jobs": [_fields(answer, records) for answer in answers]})
    else:
        for answer in answers:
            record = records[answer.record.id]
            if answer in open_ones:
                render.print_line(f"{record.id}  {record.state.value}")
            if answer not in open_ones and record.state is State.CANCELLED:
                render.tell(f"stado: job {record.id} was cancelled already")
            elif answer not in open_ones or record.state not in (State.CANCELLED, State.RUNNING):
                render.tell(f"stado: not cancelled: {views.outcome_text(record)}")
    done = (State.CANCELLED, State.RUNNING, State.QUEUED) if no_wait else (State.CANCELLED,)
    all_done = all(records[answer.record.id].state in done for answer in open_ones)
    return exits.OK if open_ones and all_done else exits.FAILED


def _fields(answer: Cancellation, records: dict[str, Record]) -> dict[str, Any]:
    from stado.cli.views import job_fields

    record = records[answer.record.id]
    return {
        **job_fields(record),
        "cancelled_now": answer.cancelled_now,
        "cancel_asked": answer.asked is not None,
    }
