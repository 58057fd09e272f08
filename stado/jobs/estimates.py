"""How long jobs ran, kept by a coordinator in one document: from what ended epochs used, as names
and segments of the ledger tell it. No record of a job is read for it.

Only derived: where two coordinators write at once one of them looks again, and a document that is
gone or spoilt is made anew from the last week.
"""

from __future__ import annotations

import math

from stado.core import keys
from stado.core.hints import Estimates
from stado.core.runtimes import RunTimes, with_uses
from stado.core.usage import DAY_MS, Use
from stado.jobs.derived import Derived, find_derived
from stado.jobs.ledger import Ledger, read_uses
from stado.jobs.repository import Repository

SEGMENTS_AT_A_TURN = 2
"""Beside those that reach back behind its beginning; what is left, the next turn reads."""

NAMES_AT_A_TURN = 10_000

_BACK_MS = 7 * DAY_MS
"""How far back it begins where nothing is known."""

_AGAIN_MS = 600_000
"""So much of what was read is read again: names come late by their settler's delay, and clocks
differ. What is settled later than that after its end is not counted."""

_SECONDS_BETWEEN_LOOKS = 60.0
_REMEMBER_PLACE_MS = 3_600_000
"""How often the place is written where nothing new was found: the next coordinator begins there."""


def read_estimates(repo: Repository) -> Estimates | None:
    """None: nothing was measured. One read."""
    return find_derived(repo, Estimates, keys.ESTIMATES)


class Measuring:
    """A coordinator's pass. Keep it between ticks: it remembers what it has read."""

    def __init__(self, repo: Repository, ledger: Ledger | None = None) -> None:
        self._repo = repo
        self._ledger = ledger or Ledger(repo)
        self._document = Derived(repo, Estimates, keys.ESTIMATES)
        self._read_to_ms = 0
        """The place: it never falls."""
        self._left_from_ms: int | None = None
        """Where a look goes on that has not come to its end; None: the next one is a new one."""
        self._due_at = float("-inf")
        self.times = RunTimes()
        """What is known after the last turn."""

    def turn_when_due(self) -> None:
        """Once a minute: a listing (a page each 1,000 names that no segment has), the index, and a
        few segments where they are new; a write when something was measured."""
        now = self._repo.clock.monotonic()
        if now >= self._due_at:
            behind = self._turn()
            self._due_at = now if behind else now + _SECONDS_BETWEEN_LOOKS

    def _turn(self) -> bool:
        """Whether there is more to read at once."""
        known, now_ms = self._document.get(), self._repo.now_ms()
        self._read_to_ms = max(self._read_to_ms, 0 if known is None else known.read_to_ms)
        from_ms = self._left_from_ms
        if from_ms is None:  # only here: a look that began anew at each turn might never end
            from_ms = min(max(self._read_to_ms, now_ms - _BACK_MS), now_ms) - _AGAIN_MS
        from_ms = max(0, from_ms)
        uses, self._left_from_ms = self._read(from_ms)
        self._note(known, uses, from_ms, now_ms)
        return self._left_from_ms is not None

    def _read(self, from_ms: int) -> tuple[list[Use], int | None]:
        """What has ended since, and from when on there is more."""
        found = read_uses(
            self._ledger,
            self._repo,
            from_ms=from_ms,
            segments_max=SEGMENTS_AT_A_TURN,
            names_max=NAMES_AT_A_TURN,
        )
        upto_ms = found.left_from_ms
        if upto_ms is not None:  # so much in one millisecond: enough of it for a median
            upto_ms = max(upto_ms, from_ms + 1)
        until_ms = math.inf if upto_ms is None else upto_ms
        return [use for use in found.uses() if from_ms <= use.ended_ms < until_ms], upto_ms

    def _note(self, known: Estimates | None, uses: list[Use], from_ms: int, now_ms: int) -> None:
        upto_ms = self._left_from_ms
        before = [] if known is None else known.measured
        until_ms = math.inf if upto_ms is None else upto_ms
        measured = with_uses(before, uses, from_ms=from_ms, until_ms=until_ms)
        reached_ms = now_ms if upto_ms is None else min(upto_ms, now_ms)
        self._read_to_ms = max(self._read_to_ms, reached_ms)
        read_to_ms = self._read_to_ms
        place_ms = known.read_to_ms if known is not None else 0 if uses else read_to_ms
        if measured != before or read_to_ms - place_ms >= _REMEMBER_PLACE_MS:
            known = Estimates(
                counter=1 if known is None else known.counter + 1,
                at=self._repo.now(),
                read_to_ms=read_to_ms,
                measured=measured,
            )
            if not self._document.write(known):  # what it said before is not in what stands
                self._read_to_ms, self._left_from_ms = 0, None
        self.times = RunTimes(known)
