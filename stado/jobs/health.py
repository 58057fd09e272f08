"""Who works on a store, and what in it cannot be read: what a check-up looks at.

Nothing here decides or mends anything. Ages compare the store's own times with its clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stado.core import keys
from stado.core.documents import Document, decode
from stado.core.ids import is_job_id
from stado.core.records import Capacity, CoordinatorLease, Record, RunRecord
from stado.core.states import State
from stado.errors import NotFound, Unreadable
from stado.jobs.repository import PARALLEL_REQUESTS, Repository
from stado.storage.port import Entry

AGENTS_MAX = 1000
_SILENT_BROADCASTS = 3


@dataclass(frozen=True, slots=True)
class AgentSight:
    """An agent as its last report shows it."""

    capacity: Capacity
    age_seconds: float
    """Since its last report."""

    @property
    def alive(self) -> bool:
        """Whether it may still be there: it has not left, and is not late by three reports."""
        silent_seconds = _SILENT_BROADCASTS * self.capacity.broadcast_seconds
        return not self.capacity.stopped and self.age_seconds <= silent_seconds


@dataclass(frozen=True, slots=True)
class CoordinatorSight:
    """The coordinator that acts, or acted last."""

    lease: CoordinatorLease
    age_seconds: float

    @property
    def alive(self) -> bool:
        return not self.lease.released and self.age_seconds <= self.lease.lease_seconds


@dataclass(frozen=True, slots=True)
class Reading:
    """What came of reading a folder's documents."""

    unreadable: list[Unreadable]
    cut: bool
    """Whether the folder holds more than were read."""


def agents(repo: Repository) -> list[AgentSight]:
    """One listing and a read an agent, at most 1,000. Unreadable reports are left out."""
    now = repo.now()

    def look(entry: Entry) -> AgentSight | None:
        try:
            found = repo.find(Capacity, entry.key)
        except Unreadable:
            return None
        age_seconds = (now - entry.modified_at).total_seconds()
        return AgentSight(found.value, max(0.0, age_seconds)) if found is not None else None

    entries = repo.store.list(keys.CAPACITY, limit=AGENTS_MAX)
    sights = repo.tasks.map(look, entries, limit=PARALLEL_REQUESTS)
    return [sight for sight in sights if sight is not None]


def find_coordinator(repo: Repository) -> CoordinatorSight | None:
    """None when none has ever worked here. Raises `Unreadable`."""
    try:
        entry = repo.store.head(keys.COORDINATOR_LEASE)
        lease = repo.read(CoordinatorLease, keys.COORDINATOR_LEASE).value
    except NotFound:
        return None
    return CoordinatorSight(lease, max(0.0, (repo.now() - entry.modified_at).total_seconds()))


def read_folders(repo: Repository, *, limit: int) -> dict[str, Reading]:
    """Reads the first `limit` documents of each folder of records, runs and agents (of records
    and agents' folders that is the newest, or all)."""
    return {folder: _read_folder(repo, folder, kind, limit) for folder, kind in _kinds().items()}


def queue_paused(repo: Repository) -> bool:
    return any(entry.key == keys.QUEUE_PAUSED for entry in repo.store.list(keys.READY, limit=1))


def _kinds() -> Mapping[str, type[Document]]:
    records: dict[str, type[Document]] = {keys.prefix(state): Record for state in State}
    return records | {keys.RUNS: RunRecord, keys.CAPACITY: Capacity}


def _read_folder(repo: Repository, folder: str, kind: type[Document], limit: int) -> Reading:
    def look(entry: Entry) -> Unreadable | None:
        if kind is Record and not is_job_id(keys.job_of_record(entry.key)):
            return Unreadable(entry.key, "its name is no job's: remove it")
        try:
            decode(kind, entry.key, repo.store.get(entry.key).data)
        except NotFound:
            return None
        except Unreadable as error:
            return error
        return None

    entries = repo.store.list(folder, limit=limit)
    looks = repo.tasks.map(look, entries, limit=PARALLEL_REQUESTS)
    return Reading([found for found in looks if found is not None], cut=len(entries) == limit)
