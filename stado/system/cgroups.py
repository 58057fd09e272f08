"""What this host offers by way of control groups, and the enclosure of a command made of them.

A process joins a group by a write, and what it starts is born where it is. So this process
moves itself into the enclosure, starts the command, and moves back: at no moment could the
command fork outside, and no further program has to be executed.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from stado.ports import Containment
from stado.system.cgroup_mounts import FREEZER_V1, MEMORY_V1, V2, Hierarchy, find_hierarchies
from stado.system.cgroup_places import AGENT_GROUP, Place, place_in, with_memory
from stado.system.control_group import ControlGroup
from stado.system.enclosure import Enclosure

_logger = logging.getLogger(__name__)

CGROUP_V2 = "cgroup-v2"
CGROUP_V1 = "cgroup-v1"
PROCESS_TREE = "process-tree"
WATCHDOG = "watchdog"

_NAME_PREFIX = "stado-"


@dataclass(frozen=True, slots=True)
class _Offer:
    """The places that were tried out and work; perhaps one place is both."""

    container: Place | None
    memory: Place | None

    def places(self, *, limits_memory: bool) -> list[Place]:
        """In version 1 a second group costs as much again: only for who states a limit."""
        memory = self.memory if limits_memory else None
        return list(dict.fromkeys(place for place in (self.container, memory) if place))


class Cgroups:
    """Control groups of this host. What it found out, forked copies inherit."""

    def __init__(
        self, hierarchies: Sequence[Hierarchy] | None = None, *, kill_file: str = "cgroup.kill"
    ) -> None:
        """Uses all hierarchies that are mounted, unless some are stated; `()` is a host without
        any. `kill_file` is there on newer kernels only."""
        self._hierarchies = hierarchies
        self._kill_file = kill_file
        self._offer: _Offer | None = None
        self._moving = threading.Lock()

    def containment(self) -> Containment:
        with self._moving:
            offer = self._tried_out()
        return Containment(
            contains_by=PROCESS_TREE if offer.container is None else _version(offer.container),
            limits_memory_by=WATCHDOG if offer.memory is None else _version(offer.memory),
        )

    @contextmanager
    def enclosing(self, name: str, *, limits_memory: bool) -> Iterator[Enclosure]:
        """What is started inside of `with` is in the enclosure. Where a group cannot be made,
        the enclosure goes without it.

        Raises `OSError` when this process cannot move back. It is in the enclosure itself then,
        and whatever was started has to be ended."""
        with self._moving:
            joined = self._join_all(name, limits_memory=limits_memory)
            enclosure = _enclosure_of(joined, self._tried_out())
            try:
                yield enclosure
            except BaseException:
                _leave_all(joined)
                enclosure.remove()
                raise
            _leave_all(joined)

    def groups_at(self, folders: Sequence[Path]) -> list[ControlGroup]:
        """Of folders that were noted somewhere: those that are groups of commands."""
        tops = [hierarchy.top for hierarchy in self._found()]
        return [self._group(folder) for folder in folders if _is_of_command(folder, tops)]

    def _found(self) -> Sequence[Hierarchy]:
        if self._hierarchies is None:
            self._hierarchies = find_hierarchies()
        return self._hierarchies

    def _tried_out(self) -> _Offer:
        if self._offer is None:
            self._offer = self._try_out()
        return self._offer

    def _try_out(self) -> _Offer:
        places: dict[str, Place] = {}
        for hierarchy in self._found():
            place = place_in(hierarchy)
            if self._works(place):
                places[place.kind] = with_memory(place) if place.kind == V2 else place
        containers = [places[kind] for kind in (V2, FREEZER_V1, MEMORY_V1) if kind in places]
        limiting = [place for place in containers if place.limits_memory]
        return _Offer(next(iter(containers), None), next(iter(limiting), None))

    def _works(self, place: Place) -> bool:
        """Makes a group, joins and leaves it as for a command, and removes it."""
        group = self._group(place.base / f"{_NAME_PREFIX}trial-{os.getpid()}-{os.urandom(4).hex()}")
        try:
            group.folder.mkdir()
            group.join()
            place.leave()
            return not group.populated()
        except OSError as error:
            _logger.debug("event=no_cgroup kind=%s base=%s error=%s", place.kind, place.base, error)
            return False
        finally:
            group.remove()

    def _join_all(self, name: str, *, limits_memory: bool) -> dict[Place, ControlGroup]:
        joined = {}
        for place in self._tried_out().places(limits_memory=limits_memory):
            group = self._group(place.base / f"{_NAME_PREFIX}{name}")
            try:
                _make_anew(group)
                group.join()
            except OSError as error:
                _logger.warning("event=no_enclosure command=%s error=%s", name, error)
                with suppress(OSError):
                    group.folder.rmdir()
            else:
                joined[place] = group
        return joined

    def _group(self, folder: Path) -> ControlGroup:
        return ControlGroup(folder, kill_file=self._kill_file)


def _make_anew(group: ControlGroup) -> None:
    """A group of the same name may have been left by an agent that was killed. It is not taken
    over, for its counters are of another command; and not at all while something lives in it."""
    try:
        group.folder.mkdir()
    except FileExistsError:
        group.folder.rmdir()
        group.folder.mkdir()


def _enclosure_of(joined: dict[Place, ControlGroup], offer: _Offer) -> Enclosure:
    container = joined.get(offer.container) if offer.container else None
    memory = joined.get(offer.memory) if offer.memory else None
    return Enclosure(container or memory, memory)


def _leave_all(joined: dict[Place, ControlGroup]) -> None:
    refused = []
    for place in joined:
        try:
            place.leave()
        except OSError as error:
            refused.append(error)
    if refused:
        raise refused[0]


def _is_of_command(folder: Path, tops: Sequence[Path]) -> bool:
    """The folder's name comes from a file: it must not lead to anything but a group of ours."""
    return (
        folder.name.startswith(_NAME_PREFIX)
        and folder.name != AGENT_GROUP
        and any(folder.is_relative_to(top) for top in tops)
        and ".." not in folder.parts
        and folder.is_dir()
        and not folder.is_symlink()
    )


def _version(place: Place) -> str:
    return CGROUP_V2 if place.kind == V2 else CGROUP_V1
