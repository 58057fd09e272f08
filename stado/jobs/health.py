"""Who works on a store, and what in it cannot be read: what a check-up looks at.

Nothing here decides or mends anything. Ages compare the store's own times with its clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from stado.core import keys
from stado.core.documents import Document, decode
from stado.core.ids import is_job_id
from stado.core.records import Capacity, CoordinatorLease, Record, RunRecord
from stado.core.states import State
from stado.errors import NotFound, Unreadable
from stado.jobs.queue_index import find_pause_mark
from stado.jobs.repository import PARALLEL_REQUESTS, Repository, Stored
from stado.storage.port import Entry

AGENTS_MAX = 1000
HELD_MAX = 100
"""Running records that are read to say what silent agents hold."""

_SILENT_BROADCASTS = 3
_LATE_BROADCASTS = 1.5


CLOSED = ("cordoned", "draining", "drained", "quarantined", "suspect")
"""Codes of what keeps a host from taking jobs that are words for its state, too."""


class AgentState(StrEnum):
    """What may be expected of an agent. Only one that works takes jobs."""

    WORKING = "working"
    DRAINING = "draining"
    HINDERED = "hindered"
    STALE = "stale"
    """It is late by three reports: it may be gone, and its host too."""
    STOPPED = "stopped"


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

    @property
    def late(self) -> bool:
        """Whether it should have been heard since, though it is not given up yet."""
        return self.alive and self.age_seconds > _LATE_BROADCASTS * self.capacity.broadcast_seconds

    @property
    def silent(self) -> bool:
        """Whether its last report says too little of what it runs now."""
        return self.late or self.state is AgentState.STALE

    @property
    def skew_seconds(self) -> float:
        """How far its host's clock was ahead of the store's at the last report."""
        if self.capacity.host_at is None:
            return 0.0
        return (self.capacity.host_at - self.capacity.at).total_seconds()

    @property
    def word(self) -> str:
        """Its state; of one that an operator has closed, or that has closed itself, which."""
        hindrance = self.capacity.hindrance
        if self.state is AgentState.HINDERED and hindrance is not None:
            return hindrance.code if hindrance.code in CLOSED else self.state.value
        return self.state.value

    @property
    def state(self) -> AgentState:
        if self.capacity.stopped:
            return AgentState.STOPPED
        if not self.alive:
            return AgentState.STALE
        if self.capacity.draining:
            return AgentState.DRAINING
        return AgentState.WORKING if self.capacity.hindrance is None else AgentState.HINDERED


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
    return Fleet(repo).look()


def find_agent(repo: Repository, consumer: str) -> AgentSight | None:
    """One agent, by its name: two requests. None: it has not reported, or long ago. Raises
    `Unreadable`."""
    key, now = keys.capacity(consumer), repo.now()
    found = repo.find(Capacity, key)
    if found is None:
        return None
    try:
        return AgentSight(found.value, _age_seconds(repo.store.head(key), now))
    except NotFound:
        return None


class Fleet:
    """The agents, for whoever looks again and again: a report that has not changed is not read a
    second time."""

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._known: dict[str, Stored[Capacity]] = {}
        self.unreadable: list[Unreadable] = []
        """Reports that the last look had to leave out."""

    def look(self) -> list[AgentSight]:
        """One listing and a read for each report that is new, of at most 1,000."""
        now = self._repo.now()
        entries = self._repo.store.list(keys.CAPACITY, limit=AGENTS_MAX)
        looks = self._repo.tasks.map(self._read, entries, limit=PARALLEL_REQUESTS)
        self.unreadable = [found for found in looks if isinstance(found, Unreadable)]
        self._known = {
            entry.key: found
            for entry, found in zip(entries, looks, strict=True)
            if isinstance(found, Stored)
        }
        return [
            AgentSight(self._known[entry.key].value, _age_seconds(entry, now))
            for entry in entries
            if entry.key in self._known
        ]

    def _read(self, entry: Entry) -> Stored[Capacity] | Unreadable | None:
        known = self._known.get(entry.key)
        if known is not None and known.version == entry.version:
            return known
        try:
            return self._repo.find(Capacity, entry.key)
        except Unreadable as error:
            return error


class Holdings:
    """Which jobs run under whose name, by the running records: what an agent that is not heard
    cannot tell itself. A record that has not changed is not read a second time."""

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._known: dict[str, Stored[Record]] = {}

    def look(self, sights: Sequence[AgentSight]) -> dict[str, list[str]]:
        """Job ids by consumer, of agents that are late or stale: nothing is asked where there is
        none. One listing and a read for each record that is new, of the newest 100."""
        silent = {one.capacity.consumer for one in sights if one.silent}
        return self.under(silent) if silent else {}

    def under(self, consumers: set[str]) -> dict[str, list[str]]:
        """The same, of these agents, whatever they say themselves."""
        entries = self._repo.store.list(keys.prefix(State.RUNNING), limit=HELD_MAX)
        looks = self._repo.tasks.map(self._read, entries, limit=PARALLEL_REQUESTS)
        self._known = {
            entry.key: found for entry, found in zip(entries, looks, strict=True) if found
        }
        held: dict[str, list[str]] = {consumer: [] for consumer in consumers}
        for found in self._known.values():
            holder = found.value.holder
            if holder is not None and holder.consumer in held:
                held[holder.consumer].append(found.value.id)
        return held

    def _read(self, entry: Entry) -> Stored[Record] | None:
        known = self._known.get(entry.key)
        if known is not None and known.version == entry.version:
            return known
        try:
            return self._repo.find(Record, entry.key)
        except Unreadable:
            return None


def _age_seconds(entry: Entry, now: datetime) -> float:
    return max(0.0, (now - entry.modified_at).total_seconds())


def find_coordinator(repo: Repository) -> CoordinatorSight | None:
    """None when none has ever worked here. Raises `Unreadable`."""
    try:
        entry = repo.store.head(keys.COORDINATOR_LEASE)
        lease = repo.read(CoordinatorLease, keys.COORDINATOR_LEASE).value
    except NotFound:
        return None
    return CoordinatorSight(lease, _age_seconds(entry, repo.now()))


def read_folders(repo: Repository, *, limit: int) -> dict[str, Reading]:
    """Reads the first `limit` documents of each folder of records, runs and agents (of records
    and agents' folders that is the newest, or all)."""
    return {folder: _read_folder(repo, folder, kind, limit) for folder, kind in _kinds().items()}


@dataclass(frozen=True, slots=True)
class Pause:
    """That the whole queue is held back."""

    by: str
    age_seconds: float


def find_pause(repo: Repository) -> Pause | None:
    """None while the queue goes on. One listing, and a read while it is paused."""
    mark = find_pause_mark(repo)
    if mark is None:
        return None
    try:
        by = repo.store.get(mark.key).data.decode(errors="replace")
    except NotFound:
        return None  # the mark of who resumed it is there now
    return Pause(by, _age_seconds(mark, repo.now()))


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
