"""Looking again and again until something has ended, at a pace that slows down."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stado.core.states import State
from stado.errors import Refused
from stado.jobs.finding import find_job
from stado.jobs.status import states_of

if TYPE_CHECKING:
    from stado.core.records import Record
    from stado.jobs.repository import Repository
    from stado.ports import Clock

_PAUSE_SECONDS_MIN = 0.2
_PAUSE_SECONDS_MAX = 2.0
_GROWTH = 1.3


class Pace:
    """Pauses between looks: short while things change, longer while nothing does."""

    def __init__(self, clock: Clock, *, seconds_max: float = _PAUSE_SECONDS_MAX) -> None:
        self._clock = clock
        self._seconds_max = seconds_max
        self._seconds = _PAUSE_SECONDS_MIN

    def quicken(self) -> None:
        self._seconds = _PAUSE_SECONDS_MIN

    def pause(self) -> None:
        self._clock.sleep(min(self._seconds, self._seconds_max))
        self._seconds = min(self._seconds * _GROWTH, _PAUSE_SECONDS_MAX)


def present_record(repo: Repository, job_id: str) -> Record:
    """The job as it is now. Raises `Refused` when it is gone."""
    found = find_job(repo, job_id)
    if found is None:
        raise Refused("job_unknown", f"there is no job {job_id!r} any more")
    return found.record


def wait_all_at_rest(
    repo: Repository,
    job_ids: list[str],
    base_id: str,
    show: Callable[[dict[str, State]], None],
) -> dict[str, State]:
    """The states of a submission's jobs once all are at rest; `show` gets each look.

    A job that moves between two listings is missing from a look: it is shown as it was."""
    wanted = set(job_ids)
    known: dict[str, State] = {}
    pace = Pace(repo.clock)
    while True:
        seen = {job: state for job, state in states_of(repo, base_id).items() if job in wanted}
        if known | seen != known:
            pace.quicken()
        known |= seen
        show(known)
        if len(known) == len(wanted) and all(state.at_rest for state in known.values()):
            return known
        pace.pause()
