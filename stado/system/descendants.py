"""The processes of this process's commands, as far as the process table shows them: a process
group, and, where the kernel lets this process adopt orphans, whatever descends from it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection
from contextlib import suppress

from stado.ports import ProcessIdentity
from stado.system.identity import ProcessStatus, all_processes

_PR_SET_CHILD_SUBREAPER = 36
_SCANS_MAX = 5

_adopters: set[int] = set()
"""This process's pid if it adopts orphans, and those of forebears: a copy does not adopt."""


def adopt_orphans() -> bool:
    """Makes this process the parent of its descendants whose parents have died (Linux). False
    where the kernel knows no such thing."""
    try:
        if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            return False
    except (OSError, AttributeError):
        return False
    _adopters.add(os.getpid())
    return True


def adopts_orphans() -> bool:
    """Whether this process is a supervisor: what it is left with is its command's."""
    return os.getpid() in _adopters


def has_orphans() -> bool:
    """Whether this process adopts orphans and has a child at all, a zombie or a command's leader
    too: a question of a microsecond."""
    if not adopts_orphans():
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def find_relatives(
    group: int | None, *, leader: int, leaders: Collection[int]
) -> set[ProcessIdentity]:
    """All living processes of a group, and all that descend from this process if it adopts
    orphans: other than the leaders of other commands and what descends from those.

    Reads the whole process table, since a process can be found by nothing less once it has left
    its group. Zombies that we are left with are waited for, so that they don't pile up; but no
    `leaders`, the own one included: its exit code is for who waits for the command."""
    spared = set(leaders) - {leader}
    for _ in range(_SCANS_MAX):
        table = list(all_processes())
        descendants = _descendants(table, spared) if adopts_orphans() else []
        found = {one.identity for one in table if one.group == group and not one.zombie}
        found.update(one.identity for one in descendants if not one.zombie)
        _wait_for_zombies([one for one in descendants if one.identity.pid not in leaders])
        # While the table is read, a process may move from a parent that dies to us, unseen.
        if found or not has_orphans():
            return found
    return set()


def _descendants(table: list[ProcessStatus], spared: set[int]) -> list[ProcessStatus]:
    children: dict[int, list[ProcessStatus]] = {}
    for one in table:
        children.setdefault(one.parent, []).append(one)
    found: list[ProcessStatus] = []
    parents = [os.getpid()]
    while parents:
        born = [one for one in children.get(parents.pop(), ()) if one.identity.pid not in spared]
        found += born
        parents += [one.identity.pid for one in born]
    return found


def _wait_for_zombies(descendants: list[ProcessStatus]) -> None:
    for one in descendants:
        if one.zombie and one.parent == os.getpid():
            with suppress(ChildProcessError):
                os.waitpid(one.identity.pid, os.WNOHANG)
