"""A job's log on stdout: bytes as they were written; what happens to the job goes to stderr.

One engine for `stado job watch`, `stado job logs` and `stado logs`, which differ in where they
begin and whether they go on.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

from stado.cli import exits, render, views
from stado.cli.failures import going_on
from stado.cli.following import JobSight, Pace, Patience, present_record
from stado.cli.outcomes import outcome_line
from stado.core.states import State
from stado.jobs.logs import Gap, LogReader, Piece, epochs_with_log
from stado.jobs.waiting import why_queued

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stado.core.records import Record
    from stado.jobs.repository import Repository

_BUSY_PAUSE_SECONDS = 1.0
"""A log is shipped no more often."""

_PAUSE_SECONDS_MAX = 3.0
_PAUSE_GROWTH = 1.15


def print_log(repo: Repository, job_id: str, *, lines: int | None) -> None:
    """What there is now (of it the last `lines`), of the newest epoch that has a log."""
    record = present_record(repo, job_id)
    epoch = _newest_log(repo, record)
    if epoch is not None:
        if epoch < record.epoch:
            render.tell(f"this is the log of epoch {epoch}")
        printer = _Printer(repo, job_id, epoch, lines=lines)
        printer.end(complete=record.state.at_rest or epoch < record.epoch)
    render.tell(_present(repo, record) + _rest_of_it(record, log_found=epoch is not None))


def follow_log(repo: Repository, job_id: str, *, lines: int | None) -> int:
    """Prints what comes until the job is at rest; the exit code that tells how it ended.

    Begins with the newest epoch that has a log, or before there is any. The log of an epoch is
    complete before its verdict: after the job was seen at rest, one more look gives the rest."""
    with going_on(
        f"no longer watching; job {job_id} goes on",
        f"look again: `stado job watch {job_id} --follow`",
        f"stop it: `stado cancel {job_id}`",
    ):
        patience = Patience(repo.clock, meanwhile=f"job {job_id} goes on")
        first = patience.call(lambda: present_record(repo, job_id))
        sight = JobSight(repo, first)
        epoch = patience.call(lambda: _newest_log(repo, first)) or first.epoch
        if epoch < first.epoch:
            render.tell(f"this is the log of epoch {epoch}")
        printer = _Printer(repo, job_id, epoch, lines=lines)
        return _Following(repo, sight, printer, patience).to_the_end()


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

    def to_the_end(self) -> int:
        pace = Pace(
            self._repo.clock,
            seconds_min=_BUSY_PAUSE_SECONDS,
            seconds_max=_PAUSE_SECONDS_MAX,
            growth=_PAUSE_GROWTH,
        )
        while True:
            record = self._sight.record
            while self._printer.epoch < record.epoch:
                self._begin_next_epoch(record)
            self._tell_wait(record)
            if record.state.at_rest:
                self._patience.call(lambda: self._printer.end(complete=True))
                render.tell(outcome_line(record))
                return exits.of_job(record)
            if record.state is State.RUNNING and self._patience.call(self._printer.drain):
                pace.quicken()
            pace.pause()
            if self._patience.call(self._sight.look) != record:
                pace.quicken()

    def _begin_next_epoch(self, record: Record) -> None:
        """The rest of the old epoch's log, then the new one's, announced."""
        old = self._printer
        self._patience.call(lambda: old.end(complete=True))
        ending = self._patience.call(lambda: self._repo.find_end(record.id, old.epoch))
        why = f": epoch {old.epoch} {views.ending_text(ending.ending)}" if ending else ""
        render.tell(f"epoch {old.epoch + 1} of job {record.id} begins{why}")
        self._printer = _Printer(self._repo, record.id, old.epoch + 1)

    def _tell_wait(self, record: Record) -> None:
        """Once that it is queued and why, and once that it has come to run."""
        waited = self._told is State.QUEUED
        if record.state is not self._told and (
            record.state is State.QUEUED or (waited and record.state is State.RUNNING)
        ):
            render.tell(self._patience.call(lambda: _present(self._repo, record)))
        self._told = record.state


class _Printer:
    """One epoch's log on stdout. Each call goes on where the last one was, be it that it raised."""

    def __init__(
        self, repo: Repository, job_id: str, epoch: int, *, lines: int | None = None
    ) -> None:
        self.epoch = epoch
        self._reader = LogReader(repo, job_id, epoch)
        self._lines = lines
        self._output = _Output()

    def drain(self) -> bool:
        """Prints what has come; whether anything had."""
        self._skip()
        return self._print(self._reader.read_new())

    def end(self, *, complete: bool) -> None:
        """Prints what there is; `complete`: more will not come."""
        self._skip()
        if complete:
            self._print(self._reader.read_rest())
        else:
            self._print(self._reader.read_new())
        self._output.end_line()

    def _skip(self) -> None:
        if self._lines is not None:
            self._reader.skip_to_tail(self._lines)
            self._lines = None

    def _print(self, pieces: Iterable[Piece]) -> bool:
        found = False
        for piece in pieces:
            found = True
            if isinstance(piece, Gap):
                self._output.end_line()
                render.tell(f"stado: {piece.text}" + ("" if piece.at_end else " (its limit)"))
            else:
                self._output.write(piece)
        return found


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


def _newest_log(repo: Repository, record: Record) -> int | None:
    """The newest epoch up to the present one that left a log."""
    epochs = epochs_with_log(repo, record.id)
    return max((epoch for epoch in epochs if epoch <= record.epoch), default=None)


def _rest_of_it(record: Record, *, log_found: bool) -> str:
    if not log_found:
        return "; there is no log" + ("" if record.state.at_rest else " yet")
    return "; --follow goes on printing" if record.state is State.RUNNING else ""


def _present(repo: Repository, record: Record) -> str:
    if record.state is State.QUEUED:
        wait = why_queued(repo, record.spec, record.id)
        return f"job {record.id} is queued: {views.wait_text(wait)}"
    if record.state is State.RUNNING:
        worker = record.holder.consumer if record.holder else "a worker"
        return f"job {record.id} runs on {worker}"
    return outcome_line(record)
