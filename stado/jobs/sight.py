"""Looking at a job again and again: at a pace that slows down, and with patience for a store that
is away."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from stado.core.records import Record
from stado.errors import Ambiguous, Misconfigured, Refused, StoreError, Unavailable
from stado.jobs.finding import find_job, has_moved, was_deleted
from stado.jobs.repository import Repository
from stado.ports import Clock

Result = TypeVar("Result")

_PAUSE_SECONDS_MIN = 0.2
_PAUSE_SECONDS_MAX = 2.0
_GROWTH = 1.3

_WAITS_SECONDS = (1, 2, 4, 8, 15)
"""Before each further try to reach a store that did not answer."""

WHOLE_LOOK_SECONDS = 60.0
"""After so long a job is looked at as a whole, whatever the quick look says."""


class Pace:
    """Pauses between looks: short while things change, longer while nothing does."""

    def __init__(
        self,
        clock: Clock,
        *,
        seconds_min: float = _PAUSE_SECONDS_MIN,
        seconds_max: float = _PAUSE_SECONDS_MAX,
        growth: float = _GROWTH,
    ) -> None:
        self._clock = clock
        self._seconds_min = seconds_min
        self._seconds_max = seconds_max
        self._growth = growth
        self._seconds = _PAUSE_SECONDS_MIN  # at first, for much ends at once

    def quicken(self) -> None:
        self._seconds = self._seconds_min

    def pause(self, *, seconds_max: float = math.inf) -> None:
        """`seconds_max`: no longer than this, whatever the pace."""
        self._clock.sleep(min(self._seconds, seconds_max))
        self._seconds = min(self._seconds * self._growth, self._seconds_max)


class Patience:
    """Tries again where a store that has answered before does not: so many times, and says so.

    What was tried has to go on where it was: it is simply called again."""

    def __init__(self, clock: Clock, *, meanwhile: str, tell: Callable[[str], None]) -> None:
        """`meanwhile`: what goes on without us, for people; `tell`: says a sentence to them."""
        self._clock = clock
        self._meanwhile = meanwhile
        self._tell = tell

    def call(self, work: Callable[[], Result]) -> Result:
        """Raises `Unavailable` or `Ambiguous` when the store was away all the time."""
        for seconds in _WAITS_SECONDS:
            try:
                return work()
            except (Unavailable, Ambiguous, Misconfigured) as error:
                self._tell(
                    f"stado: the store does not answer ({error}): trying again in {seconds} s; "
                    f"{self._meanwhile}"
                )
                self._clock.sleep(seconds)
        return self._last_try(work)

    def _last_try(self, work: Callable[[], Result]) -> Result:
        """A directory that is gone looks like a wrong address; we know that it was right."""
        try:
            return work()
        except Misconfigured as error:
            raise _away(Unavailable("", str(error)), self._meanwhile) from error
        except (Unavailable, Ambiguous) as error:
            raise _away(error, self._meanwhile) from None


class JobSight:
    """One job, looked at again and again: a request a look, and a whole look when it has moved,
    or after a minute."""

    def __init__(self, repo: Repository, record: Record) -> None:
        self._repo = repo
        self._looked_at = repo.clock.monotonic()
        self.record = record

    def look(self) -> Record:
        """The job as it is now. Raises `Refused` when it is gone."""
        now = self._repo.clock.monotonic()
        overdue = now - self._looked_at >= WHOLE_LOOK_SECONDS
        if overdue or has_moved(self._repo, self.record):
            self.record = present_record(self._repo, self.record.id)
            self._looked_at = now
        return self.record


def find_present(repo: Repository, job_id: str) -> Record | None:
    """The job as it is now; None when it is gone."""
    found = find_job(repo, job_id)
    return None if found is None else found.record


def present_record(repo: Repository, job_id: str) -> Record:
    """The job as it is now. Raises `Refused` when it is gone."""
    found = find_job(repo, job_id)
    if found is None and was_deleted(repo, job_id):
        raise Refused("job_deleted", f"job {job_id} was deleted")
    if found is None:
        raise Refused("job_unknown", f"there is no job {job_id!r} any more")
    return found.record


def _away(error: StoreError, meanwhile: str) -> StoreError:
    error.add_note(f"It was tried {len(_WAITS_SECONDS) + 1} times; {meanwhile} as far as is known.")
    return error
