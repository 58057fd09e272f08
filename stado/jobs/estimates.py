"""How long jobs ran, kept by a coordinator in one document: from the names that whoever settles an
ended epoch writes in `usage/`, which sort by its end. No record of a job is read for it.

Only derived: where two coordinators write at once one of them looks again, and a document that is
gone or spoilt is made anew from the last week.
"""

from __future__ import annotations

from collections.abc import Iterator

from stado.core import keys
from stado.core.hints import Estimates
from stado.core.runtimes import RunTimes, with_uses
from stado.core.usage import DAY_MS, Use, day_of, parse_use
from stado.jobs.derived import Derived, find_derived
from stado.jobs.repository import Repository
from stado.storage.port import LIST_LIMIT_MAX

PAGES_AT_A_TURN = 10
"""Listing pages: 10,000 ended epochs; what is left, the next turn reads."""

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

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._document = Derived(repo, Estimates, keys.ESTIMATES)
        self._read_to_ms = 0
        self._due_at = float("-inf")
        self.times = RunTimes()
        """What is known after the last turn."""

    def turn_when_due(self) -> None:
        """Once a minute: a listing, of two days around midnight, and as many more as there is to
        read, up to ten a turn; a write when something was measured."""
        now = self._repo.clock.monotonic()
        if now >= self._due_at:
            behind = self._turn()
            self._due_at = now if behind else now + _SECONDS_BETWEEN_LOOKS

    def _turn(self) -> bool:
        """Whether there is more to read at once."""
        known, now_ms = self._document.get(), self._repo.now_ms()
        read_to_ms = max(self._read_to_ms, 0 if known is None else known.read_to_ms)
        from_ms = min(max(read_to_ms, now_ms - _BACK_MS), now_ms) - _AGAIN_MS
        uses, upto_ms, behind = self._read(max(0, from_ms), now_ms)
        self._note(known, uses, from_ms, upto_ms)
        return behind

    def _read(self, from_ms: int, now_ms: int) -> tuple[list[Use], int, bool]:
        """What has ended since, up to when, and whether there is more."""
        uses: list[Use] = []
        for pages, use in self._names(from_ms, now_ms):
            if use is not None:
                uses.append(use)
            if pages >= PAGES_AT_A_TURN and uses and uses[-1].ended_ms - _AGAIN_MS > from_ms:
                return uses, uses[-1].ended_ms, True
        return uses, now_ms, False

    def _names(self, from_ms: int, now_ms: int) -> Iterator[tuple[int, Use | None]]:
        """Each use, with how many whole pages were read before it. Names of a day sort by the
        end."""
        pages = 0
        for number in range(from_ms // DAY_MS, (now_ms + _AGAIN_MS) // DAY_MS + 1):
            day = day_of(number * DAY_MS)
            after = keys.usage(day, f"{from_ms:013d}")
            while True:
                listed = self._repo.store.list(
                    keys.usage_folder(day), start_after=after, limit=LIST_LIMIT_MAX
                )
                for entry in listed:
                    use = parse_use(entry.key.rpartition("/")[2])
                    is_of_it = use is not None and day_of(use.ended_ms) == day
                    yield pages, use if is_of_it else None
                if len(listed) < LIST_LIMIT_MAX:
                    break
                after, pages = listed[-1].key, pages + 1

    def _note(
        self, known: Estimates | None, uses: list[Use], from_ms: int, read_to_ms: int
    ) -> None:
        before = [] if known is None else known.measured
        measured = with_uses(before, uses, from_ms=from_ms)
        self._read_to_ms = read_to_ms
        place_ms = known.read_to_ms if known is not None else 0 if uses else read_to_ms
        if measured != before or read_to_ms - place_ms >= _REMEMBER_PLACE_MS:
            known = Estimates(
                counter=1 if known is None else known.counter + 1,
                at=self._repo.now(),
                read_to_ms=read_to_ms,
                measured=measured,
            )
            if not self._document.write(known):
                self._read_to_ms = 0
        self.times = RunTimes(known)
