"""Whether this host can take another job: its disk, and how the last starts went.

A host that cannot start a job takes none, and says why: it must not draw the whole queue through
itself. What runs there goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from stado.core.records import Hindrance
from stado.ports import Clock, Hardware
from stado.sizes import in_words
from stado_agent.budget import DiskLeft

log = logging.getLogger(__name__)

_GIB = 1024**3
_MIB = 1024**2
_RESERVE_BYTES_MAX = 1 * _GIB
_RESERVE_SHARE = 0.05
"""Of the disk: what is kept free by default, 1 GiB at most."""
_RECOVERY_FACTOR = 1.1
"""So much more than the reserve must be free again: no flapping at the edge."""
_REST_SECONDS_MIN = 5.0
_REST_SECONDS_MAX = 300.0


class HostHealth:
    """Asked before anything is claimed. `now` gives the instant for people. `make_room` gives up
    what nobody needs on a disk that is full, and says whether that was anything."""

    def __init__(
        self,
        clock: Clock,
        hardware: Hardware,
        folder: Path,
        *,
        now: Callable[[], datetime],
        disk_reserve_bytes: int | None,
        make_room: Callable[[], bool] = lambda: False,
    ) -> None:
        self._clock = clock
        self._hardware = hardware
        self._folder = folder
        self._now = now
        self._disk_reserve_bytes = disk_reserve_bytes
        self._make_room = make_room
        self._hindrance: Hindrance | None = None
        self._rest_seconds = _REST_SECONDS_MIN
        self._resting_until = float("-inf")
        self.on_probation = False
        """Since a job could not be started here, and until one is: one at a time is tried."""

    def hindrance(self) -> Hindrance | None:
        """Looks again."""
        if self._clock.monotonic() >= self._resting_until:
            try:
                self._look_at_disk()
            except OSError as error:
                why = error.strerror or str(error)
                self._begin("host_unable", f"{self._folder} cannot be looked at: {why}")
        return self._hindrance

    def disk_free_gb(self) -> float:
        """GiB; 0 when the disk cannot be asked."""
        try:
            return round(self._hardware.disk_free_bytes(self._folder) / _GIB, 3)
        except OSError:
            return 0.0

    def disk_left(self) -> DiskLeft | None:
        """None when the disk cannot be asked."""
        try:
            reserve = self._reserve_bytes()
            total = self._hardware.disk_total_bytes(self._folder)
            free = self._hardware.disk_free_bytes(self._folder)
        except OSError:
            return None
        return DiskLeft(
            total_mib=max(0, total - reserve) // _MIB, free_mib=max(0, free - reserve) // _MIB
        )

    def disk_total_gb(self) -> float | None:
        """GiB; None when the disk cannot be asked."""
        try:
            return round(self._hardware.disk_total_bytes(self._folder) / _GIB, 3)
        except OSError:
            return None

    def disk_reserve_gb(self) -> float:
        """GiB that jobs must leave free; 0 when the disk cannot be asked."""
        try:
            return round(self._reserve_bytes() / _GIB, 3)
        except OSError:
            return 0.0

    def note_unable(self, why: str) -> None:
        """A job could not be started here: none is taken for a while, a longer one each time."""
        self._begin("host_unable", f"it could not start a job: {why}; it tries again now and then")
        self.on_probation = True
        if self._clock.monotonic() < self._resting_until:
            return  # Several that were begun together: one trouble, one rest.
        self._resting_until = self._clock.monotonic() + self._rest_seconds
        self._rest_seconds = min(2 * self._rest_seconds, _REST_SECONDS_MAX)

    def note_started(self) -> None:
        """A job has been started here."""
        self._rest_seconds = _REST_SECONDS_MIN
        self.on_probation = False

    def _look_at_disk(self) -> None:
        reserve = self._reserve_bytes()
        full = self._hindrance is not None and self._hindrance.code == "disk_full"
        free = self._hardware.disk_free_bytes(self._folder)
        if free < reserve and self._make_room():
            free = self._hardware.disk_free_bytes(self._folder)
        if free < reserve * (_RECOVERY_FACTOR if full else 1.0):
            self._begin(
                "disk_full",
                f"its disk has {in_words(free)} free at {self._folder} and keeps "
                f"{in_words(reserve)}: free some, or start it with another --disk-reserve-gb",
            )
        elif self._hindrance is not None:
            log.info("event=hindrance_over code=%s", self._hindrance.code)
            self._hindrance = None

    def _reserve_bytes(self) -> int:
        if self._disk_reserve_bytes is not None:
            return self._disk_reserve_bytes
        total = self._hardware.disk_total_bytes(self._folder)
        return min(_RESERVE_BYTES_MAX, round(total * _RESERVE_SHARE))

    def _begin(self, code: str, detail: str) -> None:
        """One warning each time it begins."""
        since = self._now()
        if self._hindrance is not None and self._hindrance.code == code:
            since = self._hindrance.since
        else:
            log.warning("event=claims_nothing code=%s detail=%r", code, detail)
        self._hindrance = Hindrance(code=code, detail=detail, since=since)
