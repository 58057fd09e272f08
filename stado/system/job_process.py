"""A job's command with whatever it started: waited for, signalled, and checked for remains.

The leader's exit code is taken as soon as it is known. From then on the kernel may give its pid
to somebody else once the whole group is gone, so each signal asks first whose pid it is.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stado.ports import Command, ProcessIdentity, Resistance
from stado.system.cgroups import Cgroups
from stado.system.control_group import Kill
from stado.system.descendants import find_relatives, has_orphans
from stado.system.enclosure import Enclosure
from stado.system.identity import find_process
from stado.system.memory_watch import MemoryWatch
from stado.system.output_pump import OutputPump
from stado.system.waiting import Wakeup, open_exit_watch

_leaders: set[int] = set()
"""Of commands of this process, until their exit codes have been taken."""


class LiveJobProcess:
    """A command that was started by this process, which alone may wait for it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        enclosure: Enclosure,
        pump: OutputPump,
        memory: MemoryWatch,
        wakeup: Wakeup,
        kill: Kill,
    ) -> None:
        """Raises `OSError` when the process cannot be looked at."""
        self._process = process
        self._identity = _identity_of_own_child(process.pid)
        self._enclosure = enclosure
        self._pump = pump
        self._memory = memory
        self._kill = kill
        self._exit_watch: int | None = None
        self._wakeup = wakeup
        self._group_gone = False
        self._all_read: bool | None = None
        _leaders.add(process.pid)

    @property
    def identity(self) -> ProcessIdentity:
        return self._identity

    @property
    def enclosure(self) -> Sequence[Path]:
        return self._enclosure.folders

    def wait(self, timeout_seconds: float) -> int | None:
        code = self._process.poll()
        if code is None and timeout_seconds > 0:
            code = self._wait_for_exit(timeout_seconds)
        if code is not None:
            _leaders.discard(self._identity.pid)
            self._close_exit_watch()
        return code

    def wake(self) -> None:
        self._wakeup.set()

    def living(self) -> list[ProcessIdentity]:
        """Reads the whole process table only where something may live that no enclosure holds."""
        if self.wait(0) is None:
            members = self._enclosure.members()
            if self._identity in members:
                # What may have left the enclosure is looked for when the leader has ended.
                return _sorted(members)
        return self._find_all()

    def signal_all(self, signal_number: int) -> list[Resistance]:
        """What is in the enclosure or the group gets SIGKILL together, so that none can fork its
        way out; other signals reach each process once."""
        spared: set[ProcessIdentity] = set()
        if signal_number == signal.SIGKILL:
            members = self._enclosure.members()
            if members and self._enclosure.kill(self._kill):
                spared = members
            self._kill_group()
        resisting = [
            self._signal(process, signal_number)
            for process in self._find_all()
            if process not in spared
        ]
        return [one for one in resisting if one is not None]

    def memory_exceeded(self) -> str | None:
        return self._memory.look(self.living)

    def close(self, timeout_seconds: float) -> bool:
        if self._all_read is None:
            self._all_read = self._pump.finish(timeout_seconds)
            self._memory.look_last()
            self._enclosure.remove()
            self._close_exit_watch()
            self._wakeup.close()
        return self._all_read

    def _find_all(self) -> list[ProcessIdentity]:
        found = self._enclosure.members()
        group = self._identity.pid if self._has_group() else None
        if group is not None or has_orphans():
            found |= find_relatives(group, leader=self._identity.pid, leaders=_leaders)
        return _sorted(found)

    def _signal(self, process: ProcessIdentity, signal_number: int) -> Resistance | None:
        try:
            self._kill(process.pid, signal_number)
        except ProcessLookupError:
            return None
        except OSError as error:
            return Resistance(process, error.strerror or str(error))
        return None

    def _kill_group(self) -> None:
        if self._has_group():
            with suppress(OSError):
                self._kill(-self._identity.pid, signal.SIGKILL)

    def _has_group(self) -> bool:
        """Whether there may be a process in the group. Once it is gone, it is gone for ever."""
        if self.wait(0) is None:
            return True
        # The pid of a group's leader is not given away while the group has a member.
        if not self._group_gone:
            self._group_gone = find_process(self._identity.pid) is not None or not _exists(
                self._identity.pid
            )
        return not self._group_gone

    def _wait_for_exit(self, timeout_seconds: float) -> int | None:
        if self._exit_watch is None:
            self._exit_watch = open_exit_watch(self._process.pid)
        if self._exit_watch is not None:
            self._wakeup.wait(timeout_seconds, besides=self._exit_watch)
            return self._process.poll()
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return None

    def _close_exit_watch(self) -> None:
        if self._exit_watch is not None:
            os.close(self._exit_watch)
            self._exit_watch = None


def start_command(command: Command, *, cgroups: Cgroups, kill: Kill) -> LiveJobProcess:
    """Raises `OSError` when the folder or the program cannot be used, or when descriptors or
    threads have run out. Nothing of the command lives then."""
    pump = OutputPump(command.sink, command.name)
    wakeup = started = None
    try:
        wakeup = Wakeup()
        started = _start_enclosed(command, pump.writer, cgroups)
        process, enclosure = started
        pump.close_writer()
        pump.start()
        # Not before: for a moment this process was in the group, and the limit would have been its.
        memory = _watch_memory(command, enclosure)
        return LiveJobProcess(
            process, enclosure=enclosure, pump=pump, memory=memory, wakeup=wakeup, kill=kill
        )
    except BaseException:
        # First the descriptors: whatever is left to do may need some.
        pump.finish(0)
        if wakeup is not None:
            wakeup.close()
        if started is not None:
            _end(*started)
        raise


def _watch_memory(command: Command, enclosure: Enclosure) -> MemoryWatch:
    group = enclosure.memory.folder if enclosure.memory else None
    watch = MemoryWatch(limit_bytes=command.memory_bytes, group=group)
    watch.limit()
    return watch


def _start_enclosed(
    command: Command, output: int, cgroups: Cgroups
) -> tuple[subprocess.Popen[bytes], Enclosure]:
    started = None
    limits_memory = command.memory_bytes is not None
    try:
        with cgroups.enclosing(limits_memory=limits_memory) as enclosure:
            started = (_start(command, output), enclosure)
    except OSError:
        if started is not None:
            # We could not move back, and are in the enclosure with it.
            _end(*started)
        raise
    return started


def _end(process: subprocess.Popen[bytes], enclosure: Enclosure) -> None:
    with suppress(OSError):
        enclosure.kill(os.kill)
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    with suppress(OSError):
        enclosure.remove()


def _start(command: Command, output: int) -> subprocess.Popen[bytes]:
    """No `preexec_fn` and no change of user: only then does Python start it by vfork, whose cost
    does not grow with the memory of this process."""
    return subprocess.Popen(
        list(command.argv),
        cwd=command.folder,
        env=dict(command.environment),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        process_group=0,
    )


def _identity_of_own_child(pid: int) -> ProcessIdentity:
    found = find_process(pid)
    if found is None:
        raise ChildProcessError(f"process {pid} was taken by somebody else's wait")
    return found.identity


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # Some of it lives, or all are zombies: not every kernel tells.
    return True


def _sorted(processes: set[ProcessIdentity]) -> list[ProcessIdentity]:
    return sorted(processes, key=lambda process: process.pid)
