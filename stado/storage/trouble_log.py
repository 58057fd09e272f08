"""Trouble with a store in the log of a program that runs on and on: a line an outage, not one a
request."""

from __future__ import annotations

import logging

from stado.ports import Clock
from stado.storage.trouble import TroubleSight

LASTING_SECONDS = 1.0
"""What costs less is no outage."""

AGAIN_SECONDS = 60.0
"""An outage that goes on is told again after so long."""

log = logging.getLogger(__name__)


class TroubleLog:
    """For `StoreTrouble`, which calls it under its lock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told_at: float | None = None
        self._told = TroubleSight(0, 0, 0.0, None, 0.0, 0.0)
        """Up to where all is logged, or was too little to be."""

    def __call__(self, sight: TroubleSight) -> None:
        now = self._clock.monotonic()
        if self._told_at is not None and now - self._told_at < AGAIN_SECONDS:
            return
        if sight.lost_seconds - self._told.lost_seconds < LASTING_SECONDS or sight.present is None:
            return
        throttled = sight.throttled - self._told.throttled
        failed = sight.failed - self._told.failed
        log.warning(
            "event=%s requests=%d next_seconds=%.1f error=%r",
            "store_throttling" if sight.present.throttled else "store_unavailable",
            throttled if sight.present.throttled else failed,
            sight.next_seconds,
            sight.present.error,
        )
        self._told_at, self._told = now, sight
