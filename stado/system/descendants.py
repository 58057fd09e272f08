"""The processes that this one is left with: its children, and, where the kernel lets it adopt
orphans, whatever its children started and left behind, in whatever group or session.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress

from stado.ports import ProcessIdentity
from stado.system.identity import find_process

_PR_SET_CHILD_SUBREAPER = 36
_TASKS = "/proc/self/task"
_HAS_CHILDREN_FILE = os.path.exists(f"{_TASKS}/{os.getpid()}/children")


def adopt_orphans() -> bool:
    """Makes this process the parent of its descendants whose parents have died (Linux). False
    where the kernel knows no such thing."""
    try:
        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def living_children(besides: ProcessIdentity) -> list[ProcessIdentity]:
    """Our living children but this one, whose exit code somebody else takes. Zombies among the
    others are waited for, so that they don't pile up."""
    living = []
    for pid in _children():
        if pid == besides.pid:
            continue
        found = find_process(pid)
        if found is not None and not found.zombie:
            living.append(found.identity)
        else:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
    return living


def _children() -> Iterator[int]:
    if not _HAS_CHILDREN_FILE:
        import psutil

        yield from (child.pid for child in psutil.Process().children())
        return
    for task in os.listdir(_TASKS):
        with suppress(FileNotFoundError, ProcessLookupError):
            descriptor = os.open(f"{_TASKS}/{task}/children", os.O_RDONLY | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                yield from (int(pid) for pid in file.read().split())
