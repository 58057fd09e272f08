"""Who may be declared dead. Pure: evidence in, a judgement out.

A judge that keeps running believes only what it watched itself: nothing changed for a whole
lease on its own monotonic clock. Any failed read starts the watch again.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class _Watch:
    evidence: Hashable
    since: float


class Vigil:
    """Watches subjects for change. Times are seconds on one monotonic clock."""

    def __init__(self) -> None:
        self._watches: dict[str, _Watch] = {}

    def look(self, subject: str, evidence: Hashable, at: float) -> float:
        """How long this evidence has been unchanged; 0 when it is new or has changed."""
        watch = self._watches.get(subject)
        if watch is None or watch.evidence != evidence:
            self._watches[subject] = _Watch(evidence, at)
            return 0.0
        return at - watch.since

    def is_news(self, subject: str, evidence: Hashable) -> bool:
        """Whether it has changed since a look that there was. The watch is left as it is."""
        watch = self._watches.get(subject)
        return watch is not None and watch.evidence != evidence

    def restart(self, subject: str) -> None:
        """Forget what was seen: the next look is the first."""
        self._watches.pop(subject, None)

    def renew_all(self, at: float) -> None:
        """Count all silence from now on, without taking that for a sign of life."""
        for watch in self._watches.values():
            watch.since = at

    def keep_only(self, subjects: set[str]) -> None:
        """Forget all others, which have ended."""
        for gone in self._watches.keys() - subjects:
            del self._watches[gone]


def mass_silence(silent_hosts: int, busy_hosts: int) -> bool:
    """Whether so many hosts fell silent at once that the watcher's own sight is in doubt:
    more than half of those that run something, and at least three."""
    return silent_hosts >= 3 and silent_hosts * 2 > busy_hosts
