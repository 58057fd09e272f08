"""Where in a hierarchy the groups of commands can go, and where this process itself has to be."""

from __future__ import annotations

import os
from contextlib import suppress
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
    """The same place, with limits of memory if they can be had there (version 2)."""
    home = enable_controller("memory", place)
    return place if home is None else replace(place, home=home, limits_memory=True)


def enable_controller(name: str, place: Place) -> Path | None:
    """Lets the groups made in a place have a controller. Returns the group in which this process
    is then, or None if it cannot be.

    A group that has processes of its own has to keep its controllers to itself (cgroups(7), "no
    internal processes"). If we are all that is in it, we move further down."""
    if name not in _words(place.base / "cgroup.controllers"):
        return None
    if name in _words(place.base / "cgroup.subtree_control") or _enable(name, place.base):
        return place.home
    if _words(place.base / "cgroup.procs") != [str(os.getpid())]:
        return None
    return _move_down(name, place)


def _move_down(name: str, place: Place) -> Path | None:
    lower = place.base / AGENT_GROUP
    try:
        lower.mkdir(exist_ok=True)
        write_to_group(f"{lower}/cgroup.procs", b"0")
    except OSError:
        return None
    if _enable(name, place.base):
        return lower
    with suppress(OSError):
        place.leave()
        lower.rmdir()
    return None


def _enable(name: str, base: Path) -> bool:
    try:
        write_to_group(f"{base}/cgroup.subtree_control", f"+{name}".encode())
    except OSError:
        return False
    return True


def _words(path: Path) -> list[str]:
    return read_of_group(str(path)).decode().split()
