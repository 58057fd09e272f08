"""What this host offers by way of control groups, and the enclosure of a command made of them.

What a process starts is born in the groups that its starting thread is in. A supervisor stays in
a group of its own; another process moves into the enclosure, starts the command, and moves back.
At no moment could the command fork outside, and no further program has to be executed.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from stado.ports import Containment, ProcessIdentity
from stado.system.cgroup_mounts import FREEZER_V1, MEMORY_V1, V2, Hierarchy, find_hierarchies
from stado.system.cgroup_places import AGENT_GROUP, Place, place_in, with_memory
from stado.system.control_group import ControlGroup
from stado.system.enclosure import Enclosure
from stado.system.identity import find_process
from stado.system.standing_group import (
    StandingGroup,
    find_owner,
    go_back,
    group_folder,
    make_and_enter,
    moving,
    standing_group,
)

_logger = logging.getLogger(__name__)

CGROUP_V2 = "cgroup-v2"
CGROUP_V1 = "cgroup-v1"
PROCESS_TREE = "process-tree"
WATCHDOG = "watchdog"

_NAME_PREFIX = "stado-"


_numbers = itertools.count(1)
"""For the names of groups of this process and of its forks."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """The places that were tried out and work; perhaps one place is both. If they are two, that of
    memory is one of version 1."""

    container: Place | None
    memory: Place | None


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

    def containment(self) -> Containment:
        """Also removes what supervisors have left that were killed."""
        with moving:
            offer = self._tried_out()
        self._sweep()
        return Containment(
            contains_by=PROCESS_TREE if offer.container is None else _version(offer.container),
            limits_memory_by=WATCHDOG if offer.memory is None else _version(offer.memory),
        )

    @contextmanager
    def enclosing(self, *, limits_memory: bool) -> Iterator[Enclosure]:
        """What is started inside of `with` is in the enclosure. Where a group cannot be made,
        the enclosure goes without it.

        Raises `OSError` when this process cannot move back from where it was for a moment. It is
        in the enclosure itself then, and whatever was started has to be ended."""
        ways_back: list[Callable[[], None]] = []
        with moving:
            enclosure = self._enter(limits_memory, ways_back)
            try:
                yield enclosure
            except BaseException:
                _go(ways_back)
                enclosure.remove()
                raise
            _go(ways_back)

    def groups_of(self, supervisor: ProcessIdentity) -> list[ControlGroup]:
        """As far as they are where this process makes its own."""
        return [group for owner, group in self._all_owned() if owner == supervisor]

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
        group = self._new_group(place)
        try:
            make_and_enter(group.folder, group.join)
            go_back(place)
            if place.kind == MEMORY_V1:
                group.join_with_thread()
                place.leave_with_thread()
            return not group.populated()
        except OSError as error:
            _logger.debug("event=no_cgroup kind=%s base=%s error=%s", place.kind, place.base, error)
            return False
        finally:
            group.remove()

    def _sweep(self) -> None:
        for owner, group in self._all_owned():
            found = find_process(owner.pid)
            if (found is None or found.identity != owner) and not group.populated():
                group.remove()

    def _all_owned(self) -> Iterator[tuple[ProcessIdentity, ControlGroup]]:
        if self._offer is None:
            return
        for place in {self._offer.container, self._offer.memory}:
            for folder in place.base.glob(f"{_NAME_PREFIX}*/") if place else ():
                owner = find_owner(folder)
                if owner is not None:
                    yield owner, self._group(folder)

    def _enter(self, limits_memory: bool, ways_back: list[Callable[[], None]]) -> Enclosure:
        offer = self._tried_out()
        memory = offer.memory if limits_memory else None
        if offer.container is None:
            return Enclosure()
        if memory == offer.container:
            group = self._visit(offer.container, ways_back)
            return Enclosure(container=group, memory=group)
        counting = self._visit_with_thread(memory, ways_back) if memory else None
        standing = standing_group(offer.container)
        folder = _take(standing) if standing else None
        if folder is not None:
            return Enclosure(self._group(folder), counting, standing)
        return Enclosure(self._visit(offer.container, ways_back) or counting, counting)

    def _visit(self, place: Place, ways_back: list[Callable[[], None]]) -> ControlGroup | None:
        group = self._new_group(place)
        if not _entered(group, group.join):
            return None
        ways_back.append(lambda: go_back(place))
        return group

    def _visit_with_thread(
        self, place: Place, ways_back: list[Callable[[], None]]
    ) -> ControlGroup | None:
        group = self._new_group(place)
        if not _entered(group, group.join_with_thread):
            return None
        ways_back.append(place.leave_with_thread)
        return group

    def _new_group(self, place: Place) -> ControlGroup:
        return self._group(group_folder(place, suffix=f"-{next(_numbers)}"))

    def _group(self, folder: Path) -> ControlGroup:
        return ControlGroup(folder, kill_file=self._kill_file)


def _entered(group: ControlGroup, enter: Callable[[], None]) -> bool:
    try:
        make_and_enter(group.folder, enter)
    except OSError as error:
        _logger.warning("event=no_enclosure folder=%s error=%s", group.folder, error)
        with suppress(OSError):
            group.folder.rmdir()
        return False
    return True


def _take(standing: StandingGroup) -> Path | None:
    try:
        return standing.take()
    except OSError as error:
        _logger.warning("event=no_standing_group error=%s", error)
        return None


def _go(ways: Sequence[Callable[[], None]]) -> None:
    refused = []
    for way in ways:
        try:
            way()
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
