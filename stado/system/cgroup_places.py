"""Where in a hierarchy the groups of commands can go, and where this process itself has to be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from stado.system.cgroup_mounts import MEMORY_V1, V2, Hierarchy
from stado.system.control_group import read_of_group, write_to_group

AGENT_GROUP = "stado-agent"
"""Where the agent goes when it has to leave its own group; never a command's."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where groups of commands are made in one hierarchy."""

    kind: str
    base: Path
    home: Path
    """The group that this process is in: `base`, or one below it."""
    limits_memory: bool

    def leave(self) -> None:
        """Moves this process back from a group of a command."""
        write_to_group(f"{self.home}/cgroup.procs", b"0")

    def leave_with_thread(self) -> None:
        """Moves the calling thread back (version 1)."""
        write_to_group(f"{self.home}/tasks", b"0")


def place_in(hierarchy: Hierarchy) -> Place:
    """Beside us where somebody started us in the group that is meant for the agent (systemd does
    so with `DelegateSubgroup=`), otherwise below us."""
    beside = hierarchy.kind == V2 and hierarchy.own.name == AGENT_GROUP
    return Place(
        hierarchy.kind,
        base=hierarchy.own.parent if beside else hierarchy.own,
        home=hierarchy.own,
        limits_memory=hierarchy.kind == MEMORY_V1,
    )


def with_memory(place: Place) -> Place:
    """The same place, with limits of memory if they can be had there (version 2).

    A group that has processes of its own has to keep its controllers to itself (cgroups(7), "no
    internal processes"). We don't move out of our way to hand them on: a service manager could
    start nobody in a group that hands them on, as long as our jobs are below it."""
    if "memory" not in _words(place.base / "cgroup.controllers"):
        return place
    handed_on = "memory" in _words(place.base / "cgroup.subtree_control")
    return replace(place, limits_memory=handed_on or _enable("memory", place.base))


def _enable(name: str, base: Path) -> bool:
    try:
        write_to_group(f"{base}/cgroup.subtree_control", f"+{name}".encode())
    except OSError:
        return False
    return True


def _words(path: Path) -> list[str]:
    return read_of_group(str(path)).decode().split()
