"""The processes of one job, one at a time: each ends by itself or is stopped, with all that it
started, and only then the next begins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from stado.jobs.repository import Repository
from stado.ports import Command, JobProcess, ProcessIdentity
from stado_agent.command_ending import CommandEnding
from stado_agent.host import Host

log = logging.getLogger(__name__)

_OUTPUT_SECONDS = 5.0
"""For what a command printed last, once nothing of it lives."""

_LEFTOVERS_SECONDS_MAX = 60.0
"""After a command has ended by itself, its outcome waits no longer for what it left running and
what cannot be killed. The place on this host is not given away before that is gone."""


class JobCommands:
    """`tell` hears what does not end; `on_enclosure` is called when what holds a command together
    is another one than before."""

    def __init__(
        self,
        repo: Repository,
        host: Host,
        *,
        job_id: str,
        tell: Callable[[str | None], None],
        on_enclosure: Callable[[], None],
    ) -> None:
        self._repo = repo
        self._host = host
        self._job_id = job_id
        self._tell = tell
        self._on_enclosure = on_enclosure
        self._current: JobProcess | None = None
        self._undead: list[JobProcess] = []
        """Commands that have ended, and left what could not be killed."""
        self._when_closed: dict[ProcessIdentity, Callable[[], None]] = {}

    @property
    def current(self) -> JobProcess | None:
        """The one that was started and has neither been ended nor stopped."""
        return self._current

    def start(
        self,
        command: Command,
        *,
        by: Callable[[Command], JobProcess] | None = None,
        when_closed: Callable[[], None] | None = None,
    ) -> JobProcess:
        """`by`: what starts it; the host unless stated. `when_closed` is called once nothing more
        of its output comes. Raises `OSError`."""
        process = (by or self._host.processes.start)(command)
        self._current = process
        if when_closed is not None:
            self._when_closed[process.identity] = when_closed
        if list(process.enclosure) != self._host.enclosure:
            self._host.enclosure[:] = process.enclosure
            self._on_enclosure()
        return process

    def end(self, process: JobProcess) -> None:
        """One that has ended by itself, with whatever it left running."""
        if self._ending_of(process).end_leftovers(patience_seconds=_LEFTOVERS_SECONDS_MAX):
            self._close(process)
        else:
            self._undead.append(process)
        self._current = None

    def stop(self, *, grace_seconds: float | None = None) -> None:
        """Returns when nothing of the current one lives any more. The deployment's grace unless it
        is stated."""
        if self._current is None:
            return
        if grace_seconds is None:
            grace_seconds = self._repo.deployment.cancel_grace_seconds
        self._ending_of(self._current).stop(grace_seconds=grace_seconds)
        self._close(self._current)
        self._current = None

    def stop_all(self) -> None:
        """Also what earlier commands left: its place on this host is not given away before."""
        self.stop()
        for process in self._undead:
            self._ending_of(process).stop(grace_seconds=0)
            self._close(process)

    def wake(self) -> None:
        """Whoever waits for the command shall look what has come."""
        process = self._current
        if process is not None:
            process.wake()

    def _close(self, process: JobProcess) -> None:
        if not process.close(_OUTPUT_SECONDS):
            log.warning("event=output_cut_off job=%s", self._job_id)
        when_closed = self._when_closed.pop(process.identity, None)
        if when_closed is not None:
            when_closed()

    def _ending_of(self, process: JobProcess) -> CommandEnding:
        return CommandEnding(
            self._repo.clock,
            self._host.processes,
            process,
            job_id=self._job_id,
            tell=self._tell,
        )
