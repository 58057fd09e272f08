"""Whose a process is that somebody names by its pid: which supervisor's job it belongs to.

Asked of a few pids now and then, so each is looked at by itself: its forebears and its session,
then the control groups that jobs are known to have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from stado.ports import Family, ProcessIdentity
from stado.system.control_group import ControlGroup
from stado.system.identity import ProcessStatus, find_process

_FOREBEARS_MAX = 100
_ID = re.compile(r"[0-9a-f]{12,64}")

GroupsOf = Callable[[Sequence[Path]], Sequence[ControlGroup]]
"""The groups of commands that noted folders are."""


def find_owners(
    pids: Iterable[int],
    families: Mapping[str, Family],
    groups_of: GroupsOf,
    *,
    proc: Path = Path("/proc"),
) -> dict[int, str]:
    """As `Processes.find_owners`."""
    by_leader = {family.supervisor.pid: name for name, family in families.items()}
    owners: dict[int, str] = {}
    for pid in set(pids):
        name = _by_descent(pid, families, by_leader)
        name = name or _by_group(pid, families, groups_of, _control_groups(proc, pid))
        if name is not None:
            owners[pid] = name
    return owners


def _by_descent(
    pid: int, families: Mapping[str, Family], by_leader: Mapping[int, str]
) -> str | None:
    for _ in range(_FOREBEARS_MAX):
        found = find_process(pid)
        if found is None:
            return None
        for leader in (found.identity.pid, found.session):
            name = by_leader.get(leader)
            if name is not None and _is_of(found, families[name].supervisor):
                return name
        pid = found.parent
    return None


def _is_of(found: ProcessStatus, supervisor: ProcessIdentity) -> bool:
    """A pid that is another process's by now says nothing. What a dead leader's session holds is
    younger than it was."""
    if found.identity.pid == supervisor.pid:
        return found.identity == supervisor
    leader = find_process(supervisor.pid)
    if leader is None:
        return found.identity.started >= supervisor.started
    return leader.identity == supervisor


def _by_group(
    pid: int, families: Mapping[str, Family], groups_of: GroupsOf, groups: str
) -> str | None:
    """Engines name the groups of a container by its id."""
    for name, family in families.items():
        if any(_ID.fullmatch(id_) and id_ in groups for id_ in family.containers):
            return name
        if any(pid in group.pids() for group in groups_of(family.enclosure)):
            return name
    return None


def _control_groups(proc: Path, pid: int) -> str:
    """A line for each hierarchy."""
    try:
        return (proc / str(pid) / "cgroup").read_text("utf-8", "replace")
    except OSError:
        return ""
