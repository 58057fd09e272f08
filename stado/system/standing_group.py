"""The control group that a supervisor stays in, together with its command.

A process that moves from one group to another waits for the whole kernel, milliseconds at times.
So a supervisor moves once; its commands are born where it is, and it leaves only so as to kill
what else is in there. No other process stays in such a group: whatever it starts beside commands
would be taken for a part of them.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from stado.ports import ProcessIdentity
from stado.system.cgroup_places import Place
from stado.system.control_group import ControlGroup
from stado.system.descendants import adopts_orphans
from stado.system.identity import find_process

moving = threading.RLock()
"""For who moves this process, or starts something where it has moved to."""

_NAME = re.compile(r"stado-(\d+)-(\d+)(-.+)?")
_JOINS_MAX = 5

_standing: dict[Place, StandingGroup] = {}
"""Of this process, one a hierarchy."""


class StandingGroup:
    def __init__(self, place: Place) -> None:
        self._place = place
        self._folder = group_folder(place)
        self._inside = False
        self._taken = False

    def take(self) -> Path | None:
        """The folder, with this process inside, for one command until it is given back. None when
        another command has it. Raises `OSError` when the kernel refuses."""
        if self._taken:
            return None
        if not self._inside:
            make_and_enter(self._folder, lambda: ControlGroup(self._folder).join())
            self._inside = True
        self._taken = True
        return self._folder

    def give_back(self) -> bool:
        """False when something in it still lives: the group is of no more use then, since this
        would be taken for a part of the next command."""
        self._taken = bool(ControlGroup(self._folder).pids() - {os.getpid()})
        return not self._taken

    def enter_again(self) -> None:
        """After a visit to another group. Raises `OSError` when the kernel refuses."""
        if self._inside:
            ControlGroup(self._folder).join()
        else:
            self._place.leave()

    def leave(self) -> None:
        """Raises `OSError` when the kernel refuses. The next `take` enters again."""
        with moving:
            if self._inside:
                self._place.leave()
                self._inside = False

    def remove(self) -> None:
        with suppress(OSError):
            self.leave()
        group = ControlGroup(self._folder)
        if not group.populated():
            group.remove()


def group_folder(place: Place, *, suffix: str = "") -> Path:
    """Of a group of this process: no other process ever has the same."""
    found = find_process(os.getpid())
    started = found.identity.started if found else 0
    return place.base / f"stado-{os.getpid()}-{started}{suffix}"


def find_owner(folder: Path) -> ProcessIdentity | None:
    """The process that has made a group, by its name. None: it is no such group."""
    parts = _NAME.fullmatch(folder.name)
    return ProcessIdentity(int(parts[1]), int(parts[2])) if parts else None


def make_and_enter(folder: Path, enter: Callable[[], None]) -> None:
    """Somebody who sweeps up after the dead may remove an empty group before we are in it."""
    for _ in range(_JOINS_MAX):
        with suppress(FileExistsError):
            folder.mkdir()
        try:
            return enter()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                raise
    raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))


def standing_group(place: Place) -> StandingGroup | None:
    """None for a process that is no supervisor."""
    if not adopts_orphans():
        return None
    if place not in _standing:
        _standing[place] = StandingGroup(place)
    return _standing[place]


def go_back(place: Place) -> None:
    """Where this process was before it visited another group. Raises `OSError` when the kernel
    refuses."""
    standing = _standing.get(place)
    if standing is None:
        place.leave()
    else:
        standing.enter_again()


def leave_standing_groups() -> None:
    """Before a fork, whose copy would be born in them. Raises `OSError` when the kernel refuses."""
    for standing in _standing.values():
        standing.leave()


def remove_standing_groups() -> None:
    """At the end of this process, as far as nothing else lives in them."""
    for standing in _standing.values():
        standing.remove()


def forget_standing_groups() -> None:
    """In a forked copy: they are its parent's."""
    _standing.clear()
