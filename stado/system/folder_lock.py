"""One process of a kind a folder: a lock that ends with the process that holds it.

A record lock, which a fork does not inherit: supervisors that outlive their agent must not keep
the next one out.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from stado.errors import Refused


class FolderLock:
    """Entered, it tells whether the lock is ours."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> bool:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # POSIX leaves open which
            return False
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)
        return True

    def holder(self) -> str:
        """The pid of who has it, as text; "" when it has not said so yet."""
        return os.pread(self._descriptor, 20, 0).decode("ascii", "replace")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)


def check_agent_may_start(consumer: str, lock: FolderLock, *, ours: bool) -> None:
    """Raises `Refused` where another agent of this name has the lock, with what ends that one: it
    may wait for its jobs, since it was told to leave, or its `stado up` was killed."""
    if ours:
        return
    holder = lock.holder()
    raise Refused(
        "agent_running",
        f"an agent named {consumer} runs on this host already (process {holder}). `kill {holder}` "
        f"ends it once its jobs have ended; a second `kill {holder}` does not wait for them, and "
        "ends it within five seconds. Neither ends a job: the next agent here takes over what "
        "runs. (One whose `stado up` was killed has been told once already.) Or give this one "
        "another --consumer-id",
    )
