"""A job's command: a process group that can be waited for, signalled, and checked for remains.

The leader's exit code is taken as soon as it is known. From then on the kernel may give its pid
to somebody else once the whole group is gone, so each signal asks first whose pid it is.
"""

from __future__ import annotations

import os
import select
import subprocess

from stado.ports import Command, ProcessIdentity
from stado.system.identity import find_process, group_has_living
from stado.system.waiting import open_exit_watch, wait_ready

_LOG_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_LOG_MODE = 0o644


class LiveJobProcess:
    """A command that was started by this process, which alone may wait for it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._identity = _identity_of_own_child(process.pid)
        self._exit_watch: int | None = None
        self._group_gone = False

    @property
    def identity(self) -> ProcessIdentity:
        return self._identity

    def wait(self, timeout_seconds: float) -> int | None:
        code = self._process.poll()
        if code is None and timeout_seconds > 0:
            code = self._wait_for_exit(timeout_seconds)
        if code is not None:
            self._close_exit_watch()
        return code

    def signal_group(self, signal_number: int) -> bool:
        if not self._may_have_group():
            return False
        try:
            os.killpg(self._identity.pid, signal_number)
        except ProcessLookupError:
            self._group_gone = True
            return False
        except PermissionError:
            return self.group_alive()
        return True

    def group_alive(self) -> bool:
        if self.wait(0) is None:
            return True
        if not self._may_have_group():
            return False
        self._group_gone = not group_has_living(self._identity.pid)
        return not self._group_gone

    def _may_have_group(self) -> bool:
        """False once the group is known to be gone, for ever."""
        if self.wait(0) is not None and not self._group_gone:
            # The pid of a group's leader is not given away while the group has a member.
            self._group_gone = find_process(self._identity.pid) is not None
        return not self._group_gone

    def _wait_for_exit(self, timeout_seconds: float) -> int | None:
        if self._exit_watch is None:
            self._exit_watch = open_exit_watch(self._process.pid)
        if self._exit_watch is not None:
            wait_ready(self._exit_watch, select.POLLIN, timeout_seconds)
            return self._process.poll()
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return None

    def _close_exit_watch(self) -> None:
        if self._exit_watch is not None:
            os.close(self._exit_watch)
            self._exit_watch = None


def start_command(command: Command) -> LiveJobProcess:
    """Raises `OSError` when the log, the folder or the program cannot be used.

    No `preexec_fn` and no change of user: only then does Python start it by vfork, whose cost
    does not grow with the memory of this process."""
    log = os.open(command.log_path, _LOG_FLAGS, _LOG_MODE)
    try:
        process = subprocess.Popen(
            list(command.argv),
            cwd=command.folder,
            env=dict(command.environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
        )
    finally:
        os.close(log)
    return LiveJobProcess(process)


def _identity_of_own_child(pid: int) -> ProcessIdentity:
    found = find_process(pid)
    if found is None:
        raise ChildProcessError(f"process {pid} was taken by somebody else's wait")
    return found.identity
