"""Ending a command and whatever it started, for good: nothing that a job started outlives it."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from math import inf

from stado.ports import Clock, JobProcess, Processes, Resistance

log = logging.getLogger(__name__)

_LEFTOVER_GRACE_SECONDS = 1.0
_LOOK_SECONDS = 0.02
_KILL_ROUND_SECONDS = 0.5
_KILL_ROUND_SECONDS_MAX = 5.0
_ROUNDS_BEFORE_TROUBLE = 3
_NAMED_MAX = 5


class CommandEnding:
    """Of one command, with its group, its enclosure, and what left both.

    `tell` hears what does not end, each time it is tried again, and None once all has ended."""

    def __init__(
        self,
        clock: Clock,
        processes: Processes,
        command: JobProcess,
        *,
        job_id: str,
        tell: Callable[[str | None], None],
    ) -> None:
        self._clock = clock
        self._processes = processes
        self._command = command
        self._job_id = job_id
        self._tell = tell

    def stop(self, *, grace_seconds: float, patience_seconds: float = inf) -> bool:
        """TERM, a grace, KILL, until nothing of it lives, however long that takes: what is stuck
        in the kernel, or belongs to somebody else, keeps it waiting. False: it lives, and our
        patience is over."""
        if not self._command.living():
            return True
        if grace_seconds > 0:
            self._command.signal_all(signal.SIGTERM)
            if self._ends_within(grace_seconds):
                return True
        return self._kill(patience_seconds)

    def end_leftovers(self, *, patience_seconds: float) -> bool:
        """Ends, once, what a command that has exited left running. False as above."""
        if not self._command.living():
            return True
        log.info(
            "%s: ended the processes its job left running in process group %d",
            self._job_id,
            self._command.identity.pid,
        )
        return self.stop(grace_seconds=_LEFTOVER_GRACE_SECONDS, patience_seconds=patience_seconds)

    def _kill(self, patience_seconds: float) -> bool:
        give_up_at = self._clock.monotonic() + patience_seconds
        pause, rounds = _KILL_ROUND_SECONDS, 0
        while True:
            rounds += 1
            resisting = self._command.signal_all(signal.SIGKILL)
            if self._ends_within(pause):
                break
            if rounds >= _ROUNDS_BEFORE_TROUBLE:
                self._report(rounds, resisting)
                pause = min(pause * 1.5, _KILL_ROUND_SECONDS_MAX)
            if self._clock.monotonic() > give_up_at:
                return False
        if rounds > _ROUNDS_BEFORE_TROUBLE:
            log.info("event=killed_at_last job=%s rounds=%d", self._job_id, rounds)
            self._tell(None)
        return True

    def _report(self, rounds: int, resisting: list[Resistance]) -> None:
        errors = {one.process: one.error for one in resisting}
        living = self._command.living()
        named = [
            self._processes.describe(process)
            + (f": {errors[process]}" if process in errors else "")
            for process in living[:_NAMED_MAX]
        ]
        more = f" and {len(living) - _NAMED_MAX} more" if len(living) > _NAMED_MAX else ""
        sentence = f"killed {rounds} times and still alive: {', '.join(named)}{more}"
        if rounds == _ROUNDS_BEFORE_TROUBLE:
            log.error("event=unkillable job=%s processes=%r", self._job_id, sentence)
        self._tell(sentence)

    def _ends_within(self, seconds: float) -> bool:
        deadline = self._clock.monotonic() + seconds
        while self._command.living():
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return False
            if self._command.wait(min(_LOOK_SECONDS, left)) is not None:
                self._clock.sleep(min(_LOOK_SECONDS, left))
        return True
