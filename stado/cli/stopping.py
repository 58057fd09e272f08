"""Stopping jobs, for ever or for a while: what waits at once, what runs when its worker answers,
or has been silent for a whole lease. `stado cancel` and `stado job pause`."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import click

from stado.core.states import JobType, State

if TYPE_CHECKING:
    from stado.cli.selectors import Selection
    from stado.core.records import Deployment, Heartbeat, Record
    from stado.jobs.changes import Stopping
    from stado.jobs.repository import Repository, Stored

_SINGLE_TURNS_MAX = 20
"""So many silent jobs are looked at one by one; for more, one look at everything costs less."""

_TOLD_MAX = 8
"""Jobs that had ended before and are told one by one."""

NAMED_MAX = 3
"""Jobs that a question names."""

_COMMAND_MAX = 60

_BEATS_MISSED = 1.5
"""A holder that did not check in for so many beats is told to be silent."""

_SILENCE_TOLD_SECONDS = 30.0
"""How often it is told that a worker is still silent."""


class StopJob(Protocol):
    """`changes.cancel` or `changes.pause`."""

    def __call__(self, repo: Repository, job_id: str, *, by: str, note: str | None) -> Stopping: ...


@dataclass(frozen=True, slots=True)
class Manner:
    """How jobs are to be stopped, and how that is told."""

    verb: str
    """`cancel`"""
    state: State
    """Where they are then; also the word for it."""
    command: str
    """What is typed for it."""
    stop: StopJob

    def is_over(self, state: State) -> bool:
        """Whether there is nothing more to wait for: a cancel goes on where a pause was met."""
        return state.terminal or state is self.state

    @property
    def done(self) -> str:
        return self.state.value


@dataclass(frozen=True, slots=True)
class Wish:
    """Who asks for it, and why; and whether the answer of workers is waited for."""

    by: str
    note: str | None
    wait: bool
    as_json: bool


# --- asking -------------------------------------------------------------------------------


def confirmed(verb: str, what: str, *, done: str) -> bool:
    """Whether a person says yes. Raises `Refused` where nobody can answer."""
    from stado.cli import render
    from stado.errors import Refused

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused(
            "not_confirmed", f"this would {verb} {what}: say --yes where nobody can be asked"
        )
    question = render.clean(f"{verb.capitalize()} {what}?")
    answered = click.confirm(question, default=False, err=True)
    if not answered:
        render.tell(f"nothing was {done}")
    return answered


def described(repo: Repository, selection: Selection) -> str:
    """``train job zzz (run x, running: `python train.py`)``, `batch zzz (run x: 2 queued)`."""
    from stado.cli import views
    from stado.jobs.sight import present_record

    record = present_record(repo, selection.job_ids[0])
    if selection.batch:
        counts = views.count_text(states_in(repo, selection).values())
        return f"batch {selection.base_id} (run {record.run_id}: {counts})"
    command = record.spec.command
    if len(command) > _COMMAND_MAX:
        command = f"{command[: _COMMAND_MAX - 1]}…"
    of_type = "" if record.spec.type is JobType.JOB else f"{record.spec.type.value} "
    return f"{of_type}job {record.id} (run {record.run_id}, {record.state.value}: `{command}`)"


def states_in(repo: Repository, selection: Selection) -> dict[str, Any]:
    from stado.jobs.status import states_of

    found, wanted = states_of(repo, selection.base_id), set(selection.job_ids)
    return {job_id: state for job_id, state in found.items() if job_id in wanted}


# --- doing it -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stopped:
    """What came of asking, and of waiting where that was wished."""

    answers: list[Stopping]
    records: dict[str, Record]
    seconds: float

    def __add__(self, later: Stopped) -> Stopped:
        return Stopped(
            self.answers + later.answers,
            self.records | later.records,
            self.seconds + later.seconds,
        )


def stop_jobs(repo: Repository, selection: Selection, manner: Manner, wish: Wish) -> int:
    """Asks, waits where that is wished, tells; the exit code: 0 when all are as was asked."""
    stopped = stop(repo, selection, manner, wish)
    code = tell_stopped(stopped, manner, wish)
    tell_steps(repo, stopped)
    return code


def tell_steps(repo: Repository, stopped: Stopped) -> None:
    """Of a root that was named alone and had completed: what helps with the rest of it."""
    from stado.cli import render
    from stado.cli.pipeline import steps_hints

    if len(stopped.answers) == 1 and not _was_open(stopped.answers[0]):
        for hint in steps_hints(repo, stopped.answers[0].record):
            render.tell(hint)


def stop(repo: Repository, selection: Selection, manner: Manner, wish: Wish) -> Stopped:
    """Asks, and waits where that is wished."""
    began = repo.clock.monotonic()
    answers = _stop_all(repo, selection, manner, wish)
    records = {answer.record.id: answer.record for answer in answers}
    asked = [answer.record.id for answer in answers if answer.asked is not None]
    if asked:
        with _request_staying(selection, manner):
            _tell_asked(asked, records, repo.deployment, manner, wait=wish.wait)
            _tell_reasons_lost(answers, manner, wish)
            if wish.wait:
                records |= _wait(repo, [records[job_id] for job_id in asked], manner, wish.by)
    return Stopped(answers, records, repo.clock.monotonic() - began)


def _stop_all(repo: Repository, selection: Selection, manner: Manner, wish: Wish) -> list[Stopping]:
    """A submission that was interrupted is finished first: nothing of it shall start later."""
    from stado.jobs.repository import PARALLEL_REQUESTS
    from stado.jobs.submit import finish_submission

    if selection.unfinished is not None:
        finish_submission(repo, selection.unfinished)
    return repo.tasks.map(
        lambda job_id: manner.stop(repo, job_id, by=wish.by, note=wish.note),
        selection.job_ids,
        limit=PARALLEL_REQUESTS,
    )


def _request_staying(selection: Selection, manner: Manner) -> AbstractContextManager[None]:
    from stado.cli.failures import going_on
    from stado.cli.selectors import ALL

    look = "stado status" + ("" if selection.text == ALL else f" {selection.base_id}")
    return going_on(
        f"no longer waiting; the {manner.verb} stays",
        f"look again: `{look}`",
        f"wait again: `{manner.command} {selection.text}`",
    )


def _wait(repo: Repository, asked: list[Record], manner: Manner, user: str) -> dict[str, Record]:
    """The jobs once they are at rest."""
    from stado.cli.following import Patience
    from stado.jobs.sight import Pace

    patience = Patience(repo.clock, meanwhile=f"the {manner.verb} stays")
    pace = Pace(repo.clock)
    waiting = _Waiting(repo, asked, manner, user)
    while not patience.call(waiting.turn):
        pace.pause()
    return waiting.records


class _Waiting:
    """For jobs whose holders were asked to stop them."""

    def __init__(self, repo: Repository, asked: list[Record], manner: Manner, user: str) -> None:
        from stado.jobs.reaping import Reaper
        from stado.jobs.sight import JobSight

        self._repo = repo
        self._manner = manner
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

        over = self._manner.is_over
        waiting = [sight for sight in self._sights if not over(sight.record.state)]
        looks = self._repo.tasks.map(JobSight.look, waiting, limit=PARALLEL_REQUESTS)
        still = [record for record in looks if not over(record.state)]
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
    asked: list[str],
    records: dict[str, Record],
    deployment: Deployment,
    manner: Manner,
    *,
    wait: bool,
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
    waiting = f"; waiting (Ctrl-C stops the waiting, not the {manner.verb})"
    render.tell(f"{told}{waiting if wait else ''}")


def _tell_reasons_lost(answers: list[Stopping], manner: Manner, wish: Wish) -> None:
    """Who asked first is kept, with what they said."""
    from stado.cli import render
    from stado.cli.stories import moment_text

    if wish.note is None:
        return
    lost = [one for one in answers if one.asked is not None and one.asked.note != wish.note]
    for answer in lost[:_TOLD_MAX]:
        assert answer.asked is not None
        at = answer.asked.at
        when = f" at {moment_text(at)}" if at is not None else ""
        what = "asked" if answer.asked.intent == manner.verb else "asked to be cancelled"
        render.tell(
            f"stado: job {answer.record.id} was {what} already by {answer.asked.by}{when}; the "
            "reason is not kept"
        )


def tell_stopped(stopped: Stopped, manner: Manner, wish: Wish) -> int:
    """The exit code: 0 when all that had not ended are as was asked."""
    from stado.cli import exits, render

    answers, records = stopped.answers, stopped.records
    open_ones = [answer for answer in answers if _was_open(answer)]
    others = [answer for answer in answers if not _was_open(answer)]
    ended = [records[answer.record.id] for answer in open_ones]
    if wish.as_json:
        render.print_json({"jobs": [_fields(answer, records, manner) for answer in answers]})
    else:
        for record in ended:
            render.print_line(f"{record.id}  {record.state.value}")
        _tell_not_stopped(ended, others, manner)
        if ended:
            render.tell(_summary(ended, len(others), manner, stopped.seconds))
            _tell_unanswered(ended)
    done = (manner.state,) if wish.wait else (manner.state, State.RUNNING, State.QUEUED)
    return exits.OK if ended and all(record.state in done for record in ended) else exits.FAILED


def _tell_unanswered(ended: list[Record]) -> None:
    """That a job is stopped does not say that its command has ended."""
    from stado.cli import render
    from stado.cli.selectors import listed
    from stado.jobs.endings import was_unanswered

    silent = [
        record.id for record in ended if record.ending is not None and was_unanswered(record.ending)
    ]
    if silent:
        render.tell(
            f"stado: the worker of {listed(silent, count=NAMED_MAX)} was silent: the command may "
            "run there until that worker is heard again, and then it is stopped"
        )


def _was_open(answer: Stopping) -> bool:
    return answer.stopped_now or answer.asked is not None


def _tell_not_stopped(ended: list[Record], others: list[Stopping], manner: Manner) -> None:
    """Of those that had ended before only the first few: the summary counts them."""
    from stado.cli import render
    from stado.cli.outcomes import outcome_line

    for record in ended:
        if record.state not in (manner.state, State.RUNNING, State.QUEUED):
            render.tell(f"stado: not {manner.done}: {outcome_line(record)}")
    for answer in others[:_TOLD_MAX]:
        record = answer.record
        if record.state is manner.state:
            render.tell(f"stado: job {record.id} was {manner.done} already")
        else:
            render.tell(f"stado: not {manner.done}: {outcome_line(record)}")
    if len(others) > _TOLD_MAX:
        render.tell(f"stado: and {len(others) - _TOLD_MAX} more had ended before")


def _summary(ended: list[Record], had_ended: int, manner: Manner, seconds: float) -> str:
    """`cancelled 3 jobs in 4.2 s; 1 had ended before`."""
    from stado.cli import views
    from stado.cli.outcomes import elapsed_text

    stopped = sum(record.state is manner.state for record in ended)
    open_still = sum(not record.state.at_rest for record in ended)
    otherwise = len(ended) - stopped - open_still
    parts = []
    if stopped or not open_still:
        parts.append(f"{manner.done} {views.jobs_text(stopped)} in {elapsed_text(seconds)}")
    if open_still:
        parts.append(f"{open_still if parts else views.jobs_text(open_still)} will be stopped")
    if otherwise:
        parts.append(f"{otherwise} ended otherwise meanwhile")
    if had_ended:
        parts.append(f"{had_ended} had ended before")
    return "; ".join(parts)


def _fields(answer: Stopping, records: dict[str, Record], manner: Manner) -> dict[str, Any]:
    from stado.cli.views import job_fields

    record = records[answer.record.id]
    return {
        **job_fields(record),
        f"{manner.done}_now": answer.stopped_now,
        f"{manner.verb}_asked": answer.asked is not None,
    }
