"""What others used of a host when none of our jobs ran there last: kept in the agent's folder,
since an agent that begins while jobs run cannot see it.

Without it a job that has not used yet what it reserved would look like room for another.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress

from stado_agent.workspace import HostFolder

log = logging.getLogger(__name__)

_STEP_MIB = 256
"""Smaller changes are not written down."""


class IdleUse:
    """Of one agent, in MiB by resource. What an earlier boot wrote says nothing: no job of it
    lives, so that the host is idle when its agent begins. `boot_id` None: not known."""

    def __init__(self, folder: HostFolder, boot_id: str | None) -> None:
        self._folder = folder
        self._boot_id = boot_id
        self._known: dict[str, int] = {}
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            fields = json.loads(folder.read_idle_use())
            if boot_id is not None and fields["boot_id"] == boot_id:
                self._known = {str(name): int(mib) for name, mib in fields["mib"].items()}

    def last(self, resource: str) -> int:
        """0 where nobody knows."""
        return self._known.get(resource, 0)

    def note(self, resource: str, mib: int) -> None:
        """A host that does not take it costs nothing but this knowledge."""
        known = self._known.get(resource)
        if known is not None and abs(known - mib) < _STEP_MIB:
            return
        self._known[resource] = mib
        try:
            fields = {"boot_id": self._boot_id, "mib": self._known}
            self._folder.write_idle_use(json.dumps(fields).encode())
        except OSError as error:
            log.warning("event=idle_use_not_kept error=%r", str(error))
