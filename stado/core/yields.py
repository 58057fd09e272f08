"""Which running jobs make room for a more urgent one: those that may, that lose the least by it,
and no more of them than it takes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stado.core.admission import Reservation


@dataclass(frozen=True, slots=True)
class Running:
    """A job on a host, and what it would cost to put it back."""

    job_id: str
    epoch: int
    priority: int
    held: Reservation
    yields_left: int
    lost_seconds: float
    """Of work: since it was started, or saved last."""


def choose_victims(
    priority: int,
    running: Sequence[Running],
    fits_without: Callable[[Sequence[Running]], bool],
) -> list[Running]:
    """The jobs that make room for one of this priority; none when all of them together would not,
    for then it would be in vain. `fits_without`: whether it would have room without these."""
    able = [one for one in running if one.yields_left > 0 and one.priority < priority]
    able.sort(key=lambda one: (one.lost_seconds, one.job_id))
    chosen = _enough_of(able, fits_without)
    for one in reversed(list(chosen)):
        without = [other for other in chosen if other is not one]
        if fits_without(without):
            chosen = without
    return chosen


def _enough_of(
    able: Sequence[Running], fits_without: Callable[[Sequence[Running]], bool]
) -> list[Running]:
    for count in range(1, len(able) + 1):
        if fits_without(able[:count]):
            return list(able[:count])
    return []
