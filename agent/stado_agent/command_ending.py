"""Ending a command and whatever it started, for good: nothing that a job started outlives it."""

from __future__ import annotations

import logging
import signal

from stado.ports import Clock, JobProcess, Processes

log = logging.getLogger(__name__)

_LEFTOVER_GRACE_SECONDS = 1.0
_LOOK_SECONDS = 0.02
_KILL_ROUNDS_MAX = 60
_KILL_ROUND_SECONDS = 0.5


class CommandEnding:
    """Of one command: its process group, and what left the group."""

    def __init__(
        self, clock: Clock, processes: Processes, command: JobProcess, job_id: str
    ) -> None:
        self._clock = clock
        self._processes = processes
        self._command = command
        self._job_id = job_id

    def stop(self, *, grace_seconds: float) -> bool:
        """TERM, a grace, KILL, and then until nothing of it lives. False when something cannot
        be killed, which is logged by name."""
        if not self._lives():
            return True
        self._signal(signal.SIGTERM)
        if self._ends_within(grace_seconds):
            return True
        for _ in range(_KILL_ROUNDS_MAX):
            self._signal(signal.SIGKILL)
            if self._ends_within(_KILL_ROUND_SECONDS):
                return True
        leader = self._command.identity
        left = [process.pid for process in self._processes.leftovers(leader)]
        log.error(
            "event=unkillable job=%s process_group=%d processes=%s", self._job_id, leader.pid, left
        )
        return False

    def end_leftovers(self) -> None:
        """Ends, once, what a command that has exited left running."""
        if not self._lives():
            return
        log.info(
            "%s: ended the processes its job left running in process group %d",
            self._job_id,
            self._command.identity.pid,
        )
        self.stop(grace_seconds=_LEFTOVER_GRACE_SECONDS)

    def _lives(self) -> bool:
        """The group is asked first, which also takes its leader's exit code."""
        group_lives = self._command.group_alive()
        return group_lives or bool(self._processes.leftovers(self._command.identity))

    def _signal(self, number: int) -> None:
        self._command.signal_group(number)
        for process in self._processes.leftovers(self._command.identity):
            self._processes.signal(process, number)

    def _ends_within(self, seconds: float) -> bool:
        deadline = self._clock.monotonic() + seconds
        while self._lives():
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return False
            if self._command.wait(min(_LOOK_SECONDS, left)) is not None:
                self._clock.sleep(min(_LOOK_SECONDS, left))
        return True
