"""The processes of a chaos run, known by a variable that all of them inherit."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import psutil

RUN_VARIABLE = "CHAOS_RUN"
HOST_VARIABLE = "CHAOS_HOST"
_JOB_VARIABLE = "STADO_JOB_ID"


@dataclass(frozen=True)
class Marked:
    """A living process of a run."""

    process: psutil.Process
    environment: Mapping[str, str]

    @property
    def pid(self) -> int:
        pid: int = self.process.pid
        return pid

    @property
    def host(self) -> str:
        return self.environment.get(HOST_VARIABLE, "")

    @property
    def job_id(self) -> str | None:
        """Of what a job's command started; None of agents, supervisors, coordinators."""
        return self.environment.get(_JOB_VARIABLE)

    def send(self, number: signal.Signals) -> bool:
        """Whether it was there: a pid that was given away is left alone."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.process.send_signal(number)
            return True
        return False

    def __str__(self) -> str:
        with contextlib.suppress(psutil.Error):
            words = " ".join(self.process.cmdline())
            return f"pid {self.pid} ({self.process.status()}): {words[:160]}"
        return f"pid {self.pid}"


def marked(run: str, *, host: str | None = None) -> list[Marked]:
    """What lives of a run, or of one host of it; zombies do not."""
    found = (_of_run(process, run) for process in psutil.process_iter())
    return [one for one in found if one is not None and host in (None, one.host)]


def _of_run(process: psutil.Process, run: str) -> Marked | None:
    try:
        environment = process.environ()
        if environment.get(RUN_VARIABLE) != run or process.pid == os.getpid():
            return None
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
    except (psutil.Error, OSError):
        return None
    return Marked(process, environment)


def kill_all(run: str) -> None:
    """Of a run that is over."""
    for one in marked(run):
        one.send(signal.SIGKILL)


def supervisors(agent: str, found: list[Marked]) -> list[Marked]:
    """Of an agent's host: they lead sessions, and are not the agent, whose parent is ours."""
    return [
        one
        for one in found
        if one.host == agent and one.job_id is None and not _is_child_of_ours(one.process)
    ]


def leaders(supervisor: Marked, found: list[Marked]) -> Iterator[Marked]:
    """Of the commands that a supervisor runs."""
    for one in found:
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if one.job_id is not None and one.process.ppid() == supervisor.pid:
                yield one


def _is_child_of_ours(process: psutil.Process) -> bool:
    try:
        parent: int = process.ppid()
    except psutil.Error:
        return True
    return parent == os.getpid()
