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
    group: int
    session: int
    zombie: bool


def find_process(pid: int) -> ProcessStatus | None:
    return _find_in_proc(pid) if _HAS_PROC else _find_by_psutil(pid)


def all_processes() -> Iterator[ProcessStatus]:
    """Costs about 10 µs a process of the host: not for a normal path."""
    for pid in _all_pids():
        found = find_process(pid)
        if found is not None:
            yield found


def group_has_living(group: int) -> bool:
    """Whether any process of the group, zombies apart, lives."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # Some of it lives, or all are zombies: not every kernel tells.
    return any(found.group == group and not found.zombie for found in all_processes())


def _find_in_proc(pid: int) -> ProcessStatus | None:
    # proc(5): the second field is the command in parentheses and may hold anything, so fields
    # are counted from the last ")": state is the 3rd, pgrp the 5th, session the 6th,
    # starttime the 22nd.
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        text = os.read(descriptor, 4096)
    except ProcessLookupError:
        return None
    finally:
        os.close(descriptor)
    fields = text[text.rindex(b")") + 2 :].split()
    identity = ProcessIdentity(pid=pid, started=int(fields[19]))
    return ProcessStatus(
        identity,
        group=int(fields[2]),
        session=int(fields[3]),
        zombie=fields[0] in (b"Z", b"X"),
    )


def _find_by_psutil(pid: int) -> ProcessStatus | None:
    import psutil

    try:
        process = psutil.Process(pid)
        started = round(process.create_time() * 1_000_000)
        zombie = process.status() == psutil.STATUS_ZOMBIE
        identity = ProcessIdentity(pid, started)
        return ProcessStatus(identity, os.getpgid(pid), os.getsid(pid), zombie)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return None


def _all_pids() -> list[int]:
    if _HAS_PROC:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    import psutil

    pids: list[int] = psutil.pids()
    return pids
