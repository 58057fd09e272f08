"""A job's log on stdout: bytes as they were written; what happens to the job goes to stderr."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

from stado.cli import exits, render, views
from stado.cli.failures import going_on
from stado.cli.following import Pace, present_record
from stado.core.states import State
from stado.jobs.logs import LogReader, epochs_with_log
from stado.jobs.waiting import why_queued

if TYPE_CHECKING:
    from stado.core.records import Record
    from stado.jobs.repository import Repository

_PAUSE_SECONDS_MAX = 1.0


class _Output:
    """A program gets the bytes; a terminal gets text, with a mark for what is none."""

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoder = decoder(errors="replace") if render.stdout_is_terminal() else None
        self._line_open = False

    def write(self, data: bytes) -> None:
        self._line_open = not data.endswith(b"\n")
        render.print_bytes(self._decoder.decode(data).encode() if self._decoder else data)

    def end(self) -> None:
        """On a terminal half a character at the end of a log is shown as a mark, and what comes
        next begins a line."""
        if self._decoder is not None:
            rest = self._decoder.decode(b"", final=True)
            render.print_bytes((rest + ("\n" if self._line_open else "")).encode())
            self._line_open = False


def print_log(repo: Repository, job_id: str) -> None:
    """What there is now, of the newest epoch that has a log."""
    record = present_record(repo, job_id)
    epochs = [epoch for epoch in epochs_with_log(repo, job_id) if epoch <= record.epoch]
    if not epochs:
        yet = "" if record.state.at_rest else " yet"
        render.tell(f"{_present(repo, record)}; there is no log{yet}")
        return
    if epochs[-1] < record.epoch:
        render.tell(f"{_present(repo, record)}; this is the log of epoch {epochs[-1]}")
    _Printer(repo, job_id, epochs[-1]).end()
    if record.state is State.RUNNING:
        render.tell(f"{_present(repo, record)}; --follow goes on printing")


def follow_log(repo: Repository, job_id: str) -> int:
    """Prints what comes until the job is at rest; the exit code that tells how it ended.

    The log of an epoch is complete before its verdict: after the job was seen at rest, one more
    look gives the rest."""
    with going_on(
        f"no longer watching; job {job_id} goes on. Look again: stado job watch {job_id} "
        f"--follow; stop it: stado cancel {job_id}"
    ):
        record = present_record(repo, job_id)
        printer = _Printer(repo, job_id, record.epoch)
        pace = Pace(repo.clock, seconds_max=_PAUSE_SECONDS_MAX)
        told: State | None = None
        while True:
            if record.epoch != printer.epoch:
                printer = _next_epoch(repo, printer, record)
            if record.state is State.QUEUED and told is not State.QUEUED:
                render.tell(_present(repo, record))
            told = record.state
            if printer.drain():
                pace.quicken()
            if record.state.at_rest:
                printer.end()
                render.tell(views.outcome_text(record))
                return exits.of_job(record)
            pace.pause()
            record = present_record(repo, job_id)


class _Printer:
    """One epoch's log on stdout."""

    def __init__(self, repo: Repository, job_id: str, epoch: int) -> None:
        self.epoch = epoch
        self._reader = LogReader(repo, job_id, epoch)
        self._output = _Output()

    def drain(self) -> bool:
        """Prints what has come; whether anything had."""
        found = False
        for data in self._reader.read_new():
            self._output.write(data)
            found = True
        return found

    def end(self) -> None:
        self.drain()
        self._output.end()


def _next_epoch(repo: Repository, printer: _Printer, record: Record) -> _Printer:
    """The rest of the old epoch's log, then the new one's, announced."""
    printer.end()
    ending = repo.find_end(record.id, record.epoch - 1)
    why = f": epoch {record.epoch - 1} {views.ending_text(ending.ending)}" if ending else ""
    render.tell(f"epoch {record.epoch} of job {record.id} begins{why}")
    return _Printer(repo, record.id, record.epoch)


def _present(repo: Repository, record: Record) -> str:
    if record.state is State.QUEUED:
        return f"job {record.id} is queued: {views.wait_text(why_queued(repo, record.spec))}"
    if record.state is State.RUNNING:
        worker = record.holder.consumer if record.holder else "a worker"
        return f"job {record.id} runs on {worker}"
    return views.outcome_text(record)
