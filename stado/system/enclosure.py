"""The control groups of one command: one that holds its processes together, one that counts and
limits their memory. Often they are the same group, and a host may offer neither.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from stado.ports import ProcessIdentity
from stado.system.control_group import ControlGroup, Kill
from stado.system.identity import find_process

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Enclosure:
    container: ControlGroup | None = None
    memory: ControlGroup | None = None
    """Its limit is up to who watches the memory."""

    @property
    def folders(self) -> list[Path]:
        groups = (self.container, self.memory)
        return list(dict.fromkeys(group.folder for group in groups if group))

    def members(self) -> set[ProcessIdentity]:
        """The living ones. Cheap when there are none."""
        if self.container is None or not self.container.populated():
            return set()
        found = (find_process(pid) for pid in self.container.pids())
        return {status.identity for status in found if status and not status.zombie}

    def kill(self, kill: Kill) -> bool:
        """True when the kernel killed all of it at one stroke."""
        return self.container is not None and self.container.kill(kill)

    def remove(self) -> None:
        for group in {self.container, self.memory} - {None}:
            if group is not None and not group.remove():
                _logger.warning("event=enclosure_left folder=%s", group.folder)
