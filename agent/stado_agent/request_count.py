"""What a supervisor has asked of the store for the job in its hands."""

from __future__ import annotations

from stado.core.records import StoreRequests
from stado.storage.port import Billed, Meter

_AFTER_THE_COUNT = 3
"""Writes of an ordinary end that come after it: the verdict that has it, the use, the record at
rest."""


class RequestCount:
    """From the moment on in which it is made, which is before the claim. `meter`: of this process;
    None: nobody counts, and nothing is known."""

    def __init__(self, meter: Meter | None) -> None:
        self._meter = meter
        self._since = None if meter is None else meter.reading()
        self._told: Billed | None = None
        """The reading of what was told in this epoch."""

    def told(self) -> StoreRequests | None:
        """For a verdict, with what an ordinary end takes after it. The same however often it is
        asked for in an epoch: a verdict that is given again has to be the same."""
        if self._meter is None or self._since is None:
            return None
        if self._told is None:
            self._told = self._meter.reading()
        asked = self._told.since(self._since)
        return StoreRequests(
            dear=asked.dear + (_AFTER_THE_COUNT if any(asked) else 0),
            cheap=asked.cheap,
            received_bytes=asked.received_bytes,
            sent_bytes=asked.sent_bytes,
        )

    def begin_epoch(self, *, told: bool) -> None:
        """Another one was adopted. `told`: the verdict on the one before has what was asked until
        then; else it belongs to the new one, for nobody has told it."""
        if told and self._told is not None:
            self._since = self._told
        self._told = None
