"""A job's log on stdout: bytes as they were written; what happens to the job goes to stderr.

One engine for `stado job watch`, `stado job logs` and `stado logs`, which differ in where they
begin and whether they go on.
"""

from __future__ import annotations

import codecs
from functools import partial
from typing import TYPE_CHECKING

from stado.cli import exits, render, views
from stado.cli.failures import going_on
from stado.cli.following import Patience, pause_text
from stado.cli.log_lines import LogLines
from stado.cli.log_options import ALL_AS_IT_IS, LogView
from stado.cli.outcomes import outcome_line
from stado.cli.wait_reasons import WaitReasons
from stado.core.states import Leftover, State
from stado.errors import Unreadable
from stado.jobs.expired import check_there, going_text
from stado.jobs.followers import FollowerNote
from stado.jobs.job_log import EpochBegins, JobLog, LogPiece
from stado.jobs.logs import Gap
from stado.jobs.sight import JobSight, Pace, present_record
from stado.jobs.waiting import why_queued

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stado.core.records import Record
    from stado.jobs.fitting import Wait
    from stado.jobs.repository import Repository

_BUSY_PAUSE_SECONDS = 1.0
"""A log is shipped no more often."""

_PAUSE_SECONDS_MAX = 3.0
_PAUSE_GROWTH = 1.15


def print_log(
    repo: Repository, job_id: str, *, lines: int | None, view: LogView = ALL_AS_IT_IS
) -> None:
    """What there is now (of it the last `lines`), of all epochs."""
    record = present_record(repo, job_id)
    since = view.begins_at(repo.now())
    log = JobLog(repo, job_id, up_to_epoch=record.epoch, lines=lines, since=since)
    _tell_expired(repo, record, log)
    printer = _Printer(log, view)
    came = printer.print_up_to(record.epoch, complete=record.state.at_rest)
    printer.end_line()
    render.tell(_present(repo, record) + _rest_of_it(record, log_found=log.found or came))


def follow_log(
    repo: Repository, job_id: str, *, lines: int | None, view: LogView = ALL_AS_IT_IS
) -> int:
    """Prints what comes until the job has ended; the exit code that tells how it did. A pause is
    told, and waited through.

    Begins with the logs that there are, or before there is any. The log of an epoch is complete
    before its verdict: after the job was seen at rest, one more look gives the rest."""
    with going_on(
        f"no longer watching; job {job_id} goes on",
        f"look again: `stado job watch {job_id} --follow`",
        f"stop it: `stado cancel {job_id}`",
    ):
        patience = Patience(repo.clock, meanwhile=f"job {job_id} goes on")
        first = patience.call(lambda: present_record(repo, job_id))
        sight = JobSight(repo, first)
        since = view.begins_at(patience.call(repo.now))
        log = patience.call(
            lambda: JobLog(repo, job_id, up_to_epoch=first.epoch, lines=lines, since=since)
        )
        patience.call(lambda: _tell_expired(repo, first, log))
        return _Following(repo, sight, _Printer(log, view), patience).to_the_end()


def _tell_expired(repo: Repository, record: Record, log: JobLog) -> None:
    """That the log has gone (`Refused`), or was to go, and may not be whole."""
    if not log.found:
        check_there(repo, record, Leftover.LOG)
        return
    going = going_text(repo, record, Leftover.LOG)
    if going is not None:
        render.tell(f"stado: {going}")


class _Following:
    """From the first look at a job to its end."""

    def __init__(
        self, repo: Repository, sight: JobSight, printer: _Printer, patience: Patience
    ) -> None:
        self._repo = repo
        self._sight = sight
        self._printer = printer
        self._patience = patience
        self._told: State | None = None
        self._reasons = WaitReasons(repo, patience)
        self._pause_told: int | None = None
        """The epoch whose pause was told last."""
        self._note = FollowerNote(repo, sight.record.id)

    def to_the_end(self) -> int:
        pace = Pace(
            self._repo.clock,
            seconds_min=_BUSY_PAUSE_SECONDS,
            seconds_max=_PAUSE_SECONDS_MAX,
            growth=_PAUSE_GROWTH,
        )
        while True:
            record = self._sight.record
            self._patience.call(partial(self._printer.print_before, record.epoch))
            self._tell_wait(record)
            if record.state is State.RUNNING:
                self._note.renew_when_due()
            came = self._may_print(record) and self._print(record)
            if record.state.terminal:
                self._printer.end_line()
                render.tell(outcome_line(record))
                return exits.of_job(record)
            self._tell_pause(record)
            if came:
                pace.quicken()
            pace.pause()
            if self._patience.call(self._sight.look) != record:
                pace.quicken()

    def _may_print(self, record: Record) -> bool:
        """The log of a paused epoch is complete: it is read once."""
        return record.state is not State.QUEUED and record.epoch != self._pause_told

    def _tell_pause(self, record: Record) -> None:
        if record.state is State.PAUSED and record.epoch != self._pause_told:
            self._pause_told = record.epoch
            self._printer.end_line()
            render.tell(self._patience.call(lambda: pause_text(self._repo, record)))

    def _print(self, record: Record) -> bool:
        complete = record.state.at_rest
        return self._patience.call(
            lambda: self._printer.print_up_to(record.epoch, complete=complete)
        )

    def _tell_wait(self, record: Record) -> None:
        """That it is queued and why, and when that changes; and once that it has come to run."""
        if record.state is self._told:
            self._reasons.look([record.id] if record.state is State.QUEUED else [])
            return
        waited = self._told is State.QUEUED
        if record.state is State.QUEUED:
            wait = self._patience.call(lambda: _why_queued(self._repo, record))
            self._reasons.note(wait.code)
            render.tell(_queued_text(record, wait))
        elif waited and record.state is State.RUNNING:
            render.tell(self._patience.call(lambda: _present(self._repo, record)))
        self._told = record.state


class _Printer:
    """A log on stdout. Each call goes on where the last one was, be it that it raised."""

    def __init__(self, log: JobLog, view: LogView) -> None:
        self._log = log
        self._output = _Output()
        self._lines = LogLines(
            self._output.write,
            pattern=view.pattern,
            find_time=log.find_time if view.timestamps else None,
        )

    def print_before(self, epoch: int) -> None:
        """What is left of the epochs before."""
        self._print(self._log.read_before(epoch))

    def print_up_to(self, epoch: int, *, complete: bool) -> bool:
        """Prints what has come; whether anything had. `complete`: more will not come."""
        return self._print(self._log.read_up_to(epoch, complete=complete))

    def end_line(self) -> None:
        self._lines.end_line()
        self._output.end_line()

    def _print(self, pieces: Iterable[LogPiece]) -> bool:
        found = False
        for piece in pieces:
            found = True
            if isinstance(piece, bytes):
                self._lines.take(piece, self._log.offset - len(piece))
            else:
                self.end_line()
                render.tell(_told(piece))
        return found


def _told(piece: Gap | EpochBegins) -> str:
    if isinstance(piece, EpochBegins):
        return piece.text
    return f"stado: {piece.text}" + ("" if piece.at_end or piece.damaged else " (its limit)")


class _Output:
    """A program gets the bytes; a terminal gets text, with a mark for what is none."""

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoder = decoder(errors="replace") if render.stdout_is_terminal() else None
        self._line_open = False

    def write(self, data: bytes) -> None:
        self._line_open = not data.endswith(b"\n")
        render.print_bytes(self._decoder.decode(data).encode() if self._decoder else data)

    def end_line(self) -> None:
        """On a terminal half a character at the end is shown as a mark, and what comes next
        begins a line."""
        if self._decoder is not None:
            rest = self._decoder.decode(b"", final=True)
            render.print_bytes((rest + ("\n" if self._line_open else "")).encode())
            self._line_open = False


def _rest_of_it(record: Record, *, log_found: bool) -> str:
    if not log_found and record.state.at_rest:
        return "; there is no log"
    if not log_found:
        return "; there is no log yet: --follow waits for it"
    return "; --follow goes on printing" if record.state is State.RUNNING else ""


def _present(repo: Repository, record: Record) -> str:
    if record.state is State.QUEUED:
        return _queued_text(record, _why_queued(repo, record))
    if record.state is State.RUNNING:
        worker = record.holder.consumer if record.holder else "a worker"
        return f"job {record.id} runs on {worker}{_progress(repo, record)}"
    if record.state is State.PAUSED:
        return pause_text(repo, record)
    return outcome_line(record)


def _why_queued(repo: Repository, record: Record) -> Wait:
    return why_queued(repo, record.spec, record.id, user=record.submitter)


def _queued_text(record: Record, wait: Wait) -> str:
    return f"job {record.id} is queued: {views.wait_text(wait)}"


def _progress(repo: Repository, record: Record) -> str:
    """`, 42%: round 3 of 7`. One read; a heartbeat that cannot be read keeps no log back."""
    try:
        beat = repo.find_heartbeat(record.id)
    except Unreadable:
        return ""
    if beat is None or beat.value.epoch != record.epoch or beat.value.progress is None:
        return ""
    return f", {views.progress_text(beat.value.progress)}"
