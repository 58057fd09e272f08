"""The control groups of one command: one that holds its processes together, one that counts and
limits their memory. Often they are the same group, and a host may offer neither.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stado.ports import ProcessIdentity
from stado.system.control_group import ControlGroup, Kill
from stado.system.identity import find_process
from stado.system.standing_group import StandingGroup

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Enclosure:
    container: ControlGroup | None = None
    memory: ControlGroup | None = None
    """Its limit is up to who watches the memory."""
    standing: StandingGroup | None = None
    """Whose group `container` is, if this process stays in it."""

    @property
    def folders(self) -> list[Path]:
        return [group.folder for group in self._groups()]

    def members(self) -> set[ProcessIdentity]:
        """The living ones, without ourselves. Cheap when there are none."""
        if self.container is None:
            return set()
        found = (find_process(pid) for pid in self.container.pids() - {os.getpid()})
        return {status.identity for status in found if status and not status.zombie}

    def kill(self, kill: Kill) -> bool:
        """True when the kernel killed all of it at one stroke."""
        if self.container is None:
            return False
        if self.standing is not None:
            with suppress(OSError):  # Then each is killed one by one.
                self.standing.leave()
        return self.container.kill(kill)

    def remove(self) -> None:
        for group in self._groups():
            stays = self.standing if group is self.container else None
            if not (stays.give_back() if stays else group.remove()):
                _logger.warning("event=enclosure_left folder=%s", group.folder)

    def _groups(self) -> list[ControlGroup]:
        both = (self.container, self.memory)
        return list(dict.fromkeys(group for group in both if group is not None))
