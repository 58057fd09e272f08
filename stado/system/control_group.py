"""One control group: a folder of the kernel, with the processes in it and in groups below it.

A group may be removed by somebody else at any time; then it has no processes.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Kill = Callable[[int, int], None]
"""Like `os.kill`."""

_ABSENT = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP)
"""No such file in this group, the group is gone, or it is a part of a threaded one (whose
processes are listed further up)."""

_FREEZE_SECONDS_MAX = 0.5
_FREEZE_LOOK_SECONDS = 0.002
_REMOVAL_PAUSES_SECONDS = (0.0, 0.001, 0.005, 0.02, 0.1)
"""A group stays busy for a moment after the death of its last process."""


class ControlGroup:
    """A group of either version."""

    def __init__(self, folder: Path, *, kill_file: str = "cgroup.kill") -> None:
        self.folder = folder
        self._path = str(folder)
        self._kill_file = kill_file

    def join(self) -> None:
        """Moves this whole process in. Raises `OSError` when the kernel refuses."""
        write_to_group(f"{self._path}/cgroup.procs", b"0")

    def join_with_thread(self) -> None:
        """Moves the calling thread in, alone (version 1). What it starts is born here as a whole,
        and nobody waits, as they do for a process that moves. Raises `OSError`."""
        write_to_group(f"{self._path}/tasks", b"0")

    def populated(self) -> bool:
        """Whether a process lives in it or below."""
        events = read_of_group(f"{self._path}/cgroup.events")
        if events:
            return b"populated 1" in events
        return bool(self.pids())

    def pids(self) -> set[int]:
        # A process that our namespace does not show is listed as 0, which must never be
        # signalled: to kill(2) it means our own group.
        listed = {int(pid) for pid in read_of_group(f"{self._path}/cgroup.procs").split()}
        return (listed - {0}).union(*(group.pids() for group in self._groups_below()))

    def kill(self, kill: Kill) -> bool:
        """SIGKILL to all of it but this process. True when the kernel did that at one stroke;
        otherwise each was signalled while none could run, and some may have refused."""
        ours = os.getpid() in self.pids()
        if not ours and self._write(self._kill_file, b"1"):
            # The kernel's stroke passes by a process whose first thread has ended.
            self._kill_each(kill)
            return True
        if ours:
            self._kill_each(kill)
            return False
        with self._frozen():
            self._kill_each(kill)
        return False

    def remove(self) -> bool:
        """False when something in it still lives."""
        for pause in _REMOVAL_PAUSES_SECONDS:
            if self._removed():
                return True
            time.sleep(pause)
            for group in self._groups_below():
                group.remove()
        return self._removed()

    def _removed(self) -> bool:
        try:
            os.rmdir(self._path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def _kill_each(self, kill: Kill) -> None:
        for pid in self.pids() - {os.getpid()}:
            try:
                kill(pid, signal.SIGKILL)
            except OSError:
                continue  # Gone, or not ours to kill: whoever asks what lives will see.

    @contextmanager
    def _frozen(self) -> Iterator[None]:
        """So that nothing forks while the list of processes is worked off."""
        version_2 = self._write("cgroup.freeze", b"1")
        version_1 = not version_2 and self._write("freezer.state", b"FROZEN")
        try:
            if version_2:
                self._await("cgroup.events", b"frozen 1")
            elif version_1:
                self._await("freezer.state", b"FROZEN")
            yield
        finally:
            if version_2:
                self._write("cgroup.freeze", b"0")
            elif version_1:
                self._write("freezer.state", b"THAWED")

    def _await(self, name: str, wanted: bytes) -> None:
        """Gives up in silence: a process that is stuck in the kernel cannot be frozen."""
        deadline = time.monotonic() + _FREEZE_SECONDS_MAX
        while wanted not in read_of_group(f"{self._path}/{name}"):
            if time.monotonic() > deadline:
                return
            time.sleep(_FREEZE_LOOK_SECONDS)

    def _write(self, name: str, data: bytes) -> bool:
        try:
            write_to_group(f"{self._path}/{name}", data)
        except OSError:
            return False
        return True

    def _groups_below(self) -> list[ControlGroup]:
        try:
            # Each folder in a folder is a link to it; most groups have none.
            if os.stat(self._path).st_nlink <= 2:
                return []
            with os.scandir(self._path) as entries:
                paths = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError as error:
            if error.errno in _ABSENT:
                return []
            raise
        return [ControlGroup(Path(path), kill_file=self._kill_file) for path in paths]


def read_of_group(path: str) -> bytes:
    """ "" when the kernel has no such file there, or the group is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _ABSENT:
            return b""
        raise
    text = b""
    try:
        while piece := os.read(descriptor, 65_536):
            text += piece
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
    finally:
        os.close(descriptor)
    return text


def write_to_group(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
