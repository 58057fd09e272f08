"""Waiting until nothing runs any more, while the queue is paused."""

from __future__ import annotations

from dataclasses import dataclass

from stado.core import keys
from stado.core.records import Record
from stado.core.states import State
from stado.errors import Unreadable
from stado.jobs.changes import pause_queue
from stado.jobs.queue_index import find_pause_mark
from stado.jobs.repository import PARALLEL_REQUESTS, Repository

NAMED_MAX = 20
"""Jobs whose records are read, so that people learn where they run."""

_SETTLE_SECONDS = 5.0
"""From the pause on, in which an agent may claim what it had read before it."""


@dataclass(frozen=True, slots=True)
class DrainLook:
    """`running`: ids of jobs; `named`: the records of some of them."""

    paused: bool
    """False: somebody let the queue go on."""
    running: list[str]
    named: dict[str, Record]
    settled: bool
    """Whether the queue has been paused for so long that no claim of before is under way, but for
    that of an agent that the store does not answer."""

    @property
    def drained(self) -> bool:
        return self.paused and self.settled and not self.running


def begin_drain(repo: Repository, *, by: str) -> None:
    """Pauses the queue, unless it is paused."""
    if find_pause_mark(repo) is None:
        pause_queue(repo, by=by)


class Drain:
    """Keep one for all looks: a record is read once."""

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._named: dict[str, Record] = {}

    def look(self) -> DrainLook:
        """A listing of the queue's head and one of what runs (a page each 1,000), and a read for
        each job that is new, of 20 at most."""
        mark, looked_at = find_pause_mark(self._repo), self._repo.now()
        walked = self._repo.walk_records(State.RUNNING)
        running = [keys.job_of_record(entry.key) for entry in walked]
        self._learn(running)
        age = None if mark is None else looked_at - mark.modified_at
        settled = age is not None and age.total_seconds() >= _SETTLE_SECONDS
        return DrainLook(mark is not None, running, dict(self._named), settled)

    def _learn(self, running: list[str]) -> None:
        self._named = {job_id: one for job_id, one in self._named.items() if job_id in running}
        new = [job_id for job_id in running if job_id not in self._named]
        room = NAMED_MAX - len(self._named)
        records = self._repo.tasks.map(self._find, new[: max(0, room)], limit=PARALLEL_REQUESTS)
        self._named |= {one.id: one for one in records if one is not None}

    def _find(self, job_id: str) -> Record | None:
        try:
            found = self._repo.find_record(State.RUNNING, job_id)
        except Unreadable:
            return None
        return None if found is None else found.value
