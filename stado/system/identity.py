"""Which process a pid means: read from /proc, or through psutil where there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from stado.ports import ProcessIdentity

_HAS_PROC = os.path.exists("/proc/self/stat")


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """A process in the kernel's table; a zombie is still in it."""

    identity: ProcessIdentity
    parent: int
    group: int
    session: int
    state: str
    """One letter, see proc(5)."""
    zombie: bool
    """Dead, but for its entry in the table."""


def find_process(pid: int) -> ProcessStatus | None:
    return _find_in_proc(pid) if _HAS_PROC else _find_by_psutil(pid)


def all_processes() -> Iterator[ProcessStatus]:
    """Costs about 10 µs a process of the host: not for a normal path."""
    for pid in _all_pids():
        found = find_process(pid)
        if found is not None:
            yield found


def _find_in_proc(pid: int) -> ProcessStatus | None:
    # proc(5): the second field is the command in parentheses and may hold anything, so fields
    # are counted from the last ")": state is the 3rd, ppid the 4th, pgrp the 5th, session the
    # 6th, num_threads the 20th, starttime the 22nd.
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(descriptor, 4096)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None  # Gone, or hidden (`hidepid`), as what is another account's may be.
    fields = text[text.rindex(b")") + 2 :].split()
    state = fields[0].decode()
    return ProcessStatus(
        ProcessIdentity(pid=pid, started=int(fields[19])),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        state=state,
        # With further threads, it is only the first one of them that has ended.
        zombie=state == "X" or (state == "Z" and int(fields[17]) <= 1),
    )


def _find_by_psutil(pid: int) -> ProcessStatus | None:
    import psutil

    try:
        process = psutil.Process(pid)
        zombie = process.status() == psutil.STATUS_ZOMBIE
        return ProcessStatus(
            ProcessIdentity(pid, started=round(process.create_time() * 1_000_000)),
            parent=process.ppid(),
            group=os.getpgid(pid),
            session=os.getsid(pid),
            state="Z" if zombie else "S",
            zombie=zombie,
        )
    except (psutil.NoSuchProcess, ProcessLookupError):
        return None


def _all_pids() -> list[int]:
    if _HAS_PROC:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    import psutil

    pids: list[int] = psutil.pids()
    return pids
