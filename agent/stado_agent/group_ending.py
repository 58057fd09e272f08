"""Ending a process group, for good: nothing that a job started outlives it."""

from __future__ import annotations

import logging
import signal

from stado.ports import Clock, JobProcess

log = logging.getLogger(__name__)

_LEFTOVER_GRACE_SECONDS = 1.0
_LOOK_SECONDS = 0.02
_KILL_ROUNDS_MAX = 60
_KILL_ROUND_SECONDS = 0.5


def stop_group(clock: Clock, process: JobProcess, job_id: str, *, grace_seconds: float) -> bool:
    """TERM, a grace, KILL, and then until nothing of the group lives. False when something in it
    cannot be killed, which is logged."""
    if not process.signal_group(signal.SIGTERM):
        return True
    if _ends(clock, process, grace_seconds):
        return True
    for _ in range(_KILL_ROUNDS_MAX):
        process.signal_group(signal.SIGKILL)
        if _ends(clock, process, _KILL_ROUND_SECONDS):
            return True
    log.error("event=unkillable job=%s process_group=%d", job_id, process.identity.pid)
    return False


def end_leftovers(clock: Clock, process: JobProcess, job_id: str) -> None:
    """Ends, once, what a command that has exited left running in its process group."""
    if not process.group_alive():
        return
    log.info(
        "%s: ended the processes its job left running in process group %d",
        job_id,
        process.identity.pid,
    )
    stop_group(clock, process, job_id, grace_seconds=_LEFTOVER_GRACE_SECONDS)


def _ends(clock: Clock, process: JobProcess, within_seconds: float) -> bool:
    """Whether the group has ended before the time is over."""
    deadline = clock.monotonic() + within_seconds
    while process.group_alive():
        left = deadline - clock.monotonic()
        if left <= 0:
            return False
        if process.wait(min(_LOOK_SECONDS, left)) is not None:
            clock.sleep(min(_LOOK_SECONDS, left))
    return True
