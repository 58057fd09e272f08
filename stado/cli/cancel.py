"""`stado cancel`."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import click

from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.cli.selectors import Selection
    from stado.core.records import Deployment, Heartbeat, Record
    from stado.jobs.changes import Stopping
    from stado.jobs.repository import Repository, Stored

_SINGLE_TURNS_MAX = 20
"""So many silent jobs are looked at one by one; for more, one look at everything costs less."""

_TOLD_MAX = 8
"""Jobs that had ended before and are told one by one."""

_NAMED_MAX = 3
"""Jobs that the question names."""

_COMMAND_MAX = 60

_BEATS_MISSED = 1.5
"""A holder that did not check in for so many beats is told to be silent."""

_SILENCE_TOLD_SECONDS = 30.0
"""How often it is told that a worker is still silent."""


@click.command()
@click.argument("job", metavar="[ID]", required=False)
@click.option("--no-wait", is_flag=True, help="Do not wait for a running job to have stopped.")
@click.option("--yes", is_flag=True, help="Ask nothing.")
@json_option
@target_options
def cancel(*, job: str | None, no_wait: bool, yes: bool, as_json: bool, target: Target) -> int:
    """Cancel a job, or every job of a batch: a queued one at once, a running one at its worker's
    next check-in.

    ID is a job or batch id, a part of one, a run id, `last`, or `all`: every job of yours that is
    queued or runs. Without ID it is your newest submission. It is asked first in these two cases.

    The request is durable as soon as it is made: Ctrl-C stops the waiting, not the cancel. A
    worker that is silent for a whole lease is not waited for any longer.
    """
    from stado.cli import exits

    user = user_name()
    with opened_repository(target) as repo:
        selection = _selection(repo, job, user)
        if _nothing_to_do(repo, selection, asks=job is None, as_json=as_json):
            return exits.FAILED if selection.job_ids else exits.OK
        if not (yes or _may_go_on(repo, selection, unnamed=job is None)):
            return exits.FAILED
        return _cancel(repo, selection, user, no_wait=no_wait, as_json=as_json)


# --- which --------------------------------------------------------------------------------


def _selection(repo: Repository, text: str | None, user: str) -> Selection:
    from stado.cli.selectors import LAST, means_all, select, select_live

    if text is not None and means_all(text):
        return select_live(repo, user=user)
    return select(repo, text if text is not None else LAST, user=user)


def _nothing_to_do(repo: Repository, selection: Selection, *, asks: bool, as_json: bool) -> bool:
    """Whether what was not named by its id is at rest already: then there is nothing to ask."""
    from stado.cli import render
    from stado.cli.selectors import ALL

    if selection.text == ALL and not selection.job_ids:
        if as_json:
            render.print_json({"jobs": []})
        render.tell(f"no job of {user_name()} is queued or runs: there is nothing to cancel")
        return True
    if not asks or selection.unfinished is not None:
        return False
    if any(not state.at_rest for state in _states(repo, selection).values()):
        return False
    render.tell(f"stado: your newest, {_described(repo, selection)}, has ended: not cancelled")
    return True


def _may_go_on(repo: Repository, selection: Selection, *, unnamed: bool) -> bool:
    """What was named by its id is never asked about. Raises `Refused` where nobody can answer."""
    from stado.cli import render
    from stado.cli.selectors import ALL, listed
    from stado.errors import Refused

    if selection.text == ALL:
        count = len(selection.job_ids)
        what = f"{'all ' if count > 1 else ''}{render.plural(count, 'job')} of yours"
        what += f" ({listed(selection.job_ids, count=_NAMED_MAX)})"
    elif unnamed:
        what = f"your newest, {_described(repo, selection)}"
    else:
        return True
    if not _somebody_is_there():
        raise Refused(
            "not_confirmed", f"this would cancel {what}: say --yes where nobody can be asked"
        )
    answered = click.confirm(render.clean(f"Cancel {what}?"), default=False, err=True)
    if not answered:
        render.tell("nothing was cancelled")
    return answered


def _described(repo: Repository, selection: Selection) -> str:
    """``job zzz (run x, running: `python train.py`)``, `batch zzz (run x: 2 queued, 1 running)`."""
    from stado.cli import views
    from stado.jobs.sight import present_record

    record = present_record(repo, selection.job_ids[0])
    if selection.batch:
        counts = views.count_text(_states(repo, selection).values())
        return f"batch {selection.base_id} (run {record.run_id}: {counts})"
    command = record.spec.command
    if len(command) > _COMMAND_MAX:
        command = f"{command[: _COMMAND_MAX - 1]}…"
    return f"job {record.id} (run {record.run_id}, {record.state.value}: `{command}`)"


def _states(repo: Repository, selection: Selection) -> dict[str, Any]:
    from stado.jobs.status import states_of

    found, wanted = states_of(repo, selection.base_id), set(selection.job_ids)
    return {job_id: state for job_id, state in found.items() if job_id in wanted}


def _somebody_is_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


# --- doing it -----------------------------------------------------------------------------


def _cancel(
    repo: Repository, selection: Selection, user: str, *, no_wait: bool, as_json: bool
) -> int:
    began = repo.clock.monotonic()
    answers = _cancel_all(repo, selection, user)
    records = {answer.record.id: answer.record for answer in answers}
    asked = [answer.record.id for answer in answers if answer.asked is not None]
    if asked:
        with _cancel_staying(selection):
            _tell_asked(asked, records, repo.deployment, no_wait=no_wait)
            if not no_wait:
                records |= _wait(repo, [records[job_id] for job_id in asked], user)
    seconds = repo.clock.monotonic() - began
    return _answer(answers, records, seconds=seconds, no_wait=no_wait, as_json=as_json)


def _cancel_all(repo: Repository, selection: Selection, user: str) -> list[Stopping]:
    """A submission that was interrupted is finished first: nothing of it shall start later."""
    from stado.jobs.changes import cancel as cancel_job
    from stado.jobs.repository import PARALLEL_REQUESTS
    from stado.jobs.submit import finish_submission

    if selection.unfinished is not None:
        finish_submission(repo, selection.unfinished, fresh=False)
    return repo.tasks.map(
        lambda job_id: cancel_job(repo, job_id, by=user),
        selection.job_ids,
        limit=PARALLEL_REQUESTS,
    )


def _cancel_staying(selection: Selection) -> AbstractContextManager[None]:
    from stado.cli.failures import going_on
    from stado.cli.selectors import ALL

    look = "stado status" + ("" if selection.text == ALL else f" {selection.base_id}")
    return going_on(
        "no longer waiting; the cancel stays",
        f"look again: `{look}`",
        f"wait again: `stado cancel {selection.text}`",
    )


def _wait(repo: Repository, asked: list[Record], user: str) -> dict[str, Record]:
    """The jobs once they are at rest."""
    from stado.cli.following import Patience
    from stado.jobs.sight import Pace

    patience = Patience(repo.clock, meanwhile="the cancel stays")
    pace = Pace(repo.clock)
    waiting = _Waiting(repo, asked, user)
    while not patience.call(waiting.turn):
        pace.pause()
    return waiting.records


class _Waiting:
    """For jobs whose holders were asked to stop them."""

    def __init__(self, repo: Repository, asked: list[Record], user: str) -> None:
        from stado.jobs.reaping import Reaper
        from stado.jobs.sight import JobSight

        self._repo = repo
        self._reaper = Reaper(repo, by=user)
        self._sights = [JobSight(repo, record) for record in asked]
        self._told: dict[str, str] = {}
        self._heard: dict[str, tuple[object, float]] = {}
        """What each job's holder said last, and when that was first seen."""
        self._silence_told: dict[str, float] = {}
        """By job, for how long its holder had been silent then."""

    @property
    def records(self) -> dict[str, Record]:
        return {sight.record.id: sight.record for sight in self._sights}

    def turn(self) -> bool:
        """One look; whether all are at rest. Ends what is silent for a whole lease."""
        from stado.jobs.repository import PARALLEL_REQUESTS
        from stado.jobs.sight import JobSight

        waiting = [sight for sight in self._sights if not sight.record.state.at_rest]
        looks = self._repo.tasks.map(JobSight.look, waiting, limit=PARALLEL_REQUESTS)
        still = [record for record in looks if not record.state.at_rest]
        if still:
            self._reap_silent([record.id for record in still])
            self._tell_trouble(still[:_SINGLE_TURNS_MAX])
        return not still

    def _reap_silent(self, job_ids: list[str]) -> None:
        if len(job_ids) > _SINGLE_TURNS_MAX:
            self._reaper.turn()
            return
        for job_id in job_ids:
            self._reaper.turn_for(job_id)

    def _tell_trouble(self, waiting: list[Record]) -> None:
        """What keeps a holder from stopping its job, once each time that it changes."""
        from stado.cli import render
        from stado.jobs.repository import PARALLEL_REQUESTS

        found = self._repo.tasks.map(self._beat, waiting, limit=PARALLEL_REQUESTS)
        for record, beat in zip(waiting, found, strict=True):
            self._tell_silence(record, beat)
            trouble = beat.value.trouble if beat is not None else None
            if trouble is not None and trouble != self._told.get(record.id):
                render.tell(f"stado: job {record.id} is not stopped yet: {trouble}")
                self._told[record.id] = trouble

    def _beat(self, record: Record) -> Stored[Heartbeat] | None:
        beat = self._repo.find_heartbeat(record.id)
        if beat is None or beat.value.sealed or beat.value.epoch != record.epoch:
            return None
        return beat

    def _tell_silence(self, record: Record, beat: Stored[Heartbeat] | None) -> None:
        """Once the promised check-in is over, and again while it lasts. As the reaper does, it
        goes by what we watched, not by clocks of others."""
        from stado.cli import render

        now = self._repo.clock.monotonic()
        said = (record.epoch, beat.version if beat is not None else None)
        if self._heard.get(record.id, (None, 0.0))[0] != said:
            self._heard[record.id] = (said, now)
            self._silence_told.pop(record.id, None)
        silent = now - self._heard[record.id][1]
        told = self._silence_told.get(record.id)
        due = (
            _BEATS_MISSED * self._repo.deployment.beat_seconds
            if told is None
            else told + _SILENCE_TOLD_SECONDS
        )
        if record.holder is None or silent < due:
            return
        self._silence_told[record.id] = silent
        left = max(0.0, record.holder.lease_seconds - silent)
        render.tell(
            f"stado: job {record.id}: {record.holder.consumer} has not been heard for "
            f"{silent:.0f} s; unless it is, the wait ends in {left:.0f} s"
        )


# --- telling it ---------------------------------------------------------------------------


def _tell_asked(
    asked: list[str], records: dict[str, Record], deployment: Deployment, *, no_wait: bool
) -> None:
    from stado.cli import render, views

    holders = [records[job_id].holder for job_id in asked]
    workers = sorted({holder.consumer for holder in holders if holder is not None})
    whom = workers[0] if len(workers) == 1 else f"{len(workers)} workers"
    told = (
        f"asked {whom} to stop {views.jobs_text(len(asked))}: TERM within "
        f"{deployment.tick_seconds:g} s, KILL {deployment.cancel_grace_seconds:g} s later if that "
        "is not enough"
    )
    render.tell(told if no_wait else f"{told}; waiting (Ctrl-C stops the waiting, not the cancel)")


def _answer(
    answers: list[Stopping],
    records: dict[str, Record],
    *,
    seconds: float,
    no_wait: bool,
    as_json: bool,
) -> int:
    from stado.cli import exits, render
    from stado.core.states import State

    open_ones = [answer for answer in answers if _was_open(answer)]
    others = [answer for answer in answers if not _was_open(answer)]
    ended = [records[answer.record.id] for answer in open_ones]
    if as_json:
        render.print_json({"jobs": [_fields(answer, records) for answer in answers]})
    else:
        for record in ended:
            render.print_line(f"{record.id}  {record.state.value}")
        _tell_not_cancelled(ended, others)
        if ended:
            render.tell(_summary(ended, len(others), seconds))
            _tell_unanswered(ended)
    done = (State.CANCELLED, State.RUNNING, State.QUEUED) if no_wait else (State.CANCELLED,)
    return exits.OK if ended and all(record.state in done for record in ended) else exits.FAILED


def _tell_unanswered(ended: list[Record]) -> None:
    """That a job is cancelled does not say that its command has ended."""
    from stado.cli import render
    from stado.cli.selectors import listed
    from stado.jobs.endings import was_unanswered

    silent = [
        record.id for record in ended if record.ending is not None and was_unanswered(record.ending)
    ]
    if silent:
        render.tell(
            f"stado: the worker of {listed(silent, count=_NAMED_MAX)} was silent: the command may "
            "run there until that worker is heard again, and then it is stopped"
        )


def _was_open(answer: Stopping) -> bool:
    return answer.stopped_now or answer.asked is not None


def _tell_not_cancelled(ended: list[Record], others: list[Stopping]) -> None:
    """Of those that had ended before only the first few: the summary counts them."""
    from stado.cli import render
    from stado.cli.outcomes import outcome_line
    from stado.core.states import State

    for record in ended:
        if record.state not in (State.CANCELLED, State.RUNNING):
            render.tell(f"stado: not cancelled: {outcome_line(record)}")
    for answer in others[:_TOLD_MAX]:
        record = answer.record
        if record.state is State.CANCELLED:
            render.tell(f"stado: job {record.id} was cancelled already")
        else:
            render.tell(f"stado: not cancelled: {outcome_line(record)}")
    if len(others) > _TOLD_MAX:
        render.tell(f"stado: and {len(others) - _TOLD_MAX} more had ended before")


def _summary(ended: list[Record], had_ended: int, seconds: float) -> str:
    """`cancelled 3 jobs in 4.2 s; 1 had ended before`."""
    from stado.cli import views
    from stado.cli.outcomes import elapsed_text
    from stado.core.states import State

    cancelled = sum(record.state is State.CANCELLED for record in ended)
    open_still = sum(not record.state.at_rest for record in ended)
    otherwise = len(ended) - cancelled - open_still
    parts = []
    if cancelled or not open_still:
        parts.append(f"cancelled {views.jobs_text(cancelled)} in {elapsed_text(seconds)}")
    if open_still:
        parts.append(f"{open_still if parts else views.jobs_text(open_still)} will be stopped")
    if otherwise:
        parts.append(f"{otherwise} ended otherwise meanwhile")
    if had_ended:
        parts.append(f"{had_ended} had ended before")
    return "; ".join(parts)


def _fields(answer: Stopping, records: dict[str, Record]) -> dict[str, Any]:
    from stado.cli.views import job_fields

    record = records[answer.record.id]
    return {
        **job_fields(record),
        "cancelled_now": answer.stopped_now,
        "cancel_asked": answer.asked is not None,
    }
