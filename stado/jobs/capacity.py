"""What agents say of themselves."""

from __future__ import annotations

from dataclasses import dataclass

from stado.core import keys
from stado.core.records import Capacity
from stado.errors import NotFound, Unreadable
from stado.jobs.repository import PARALLEL_REQUESTS, Repository
from stado.storage.port import Entry, walk


@dataclass(frozen=True, slots=True)
class AgentSeen:
    """An agent's last broadcast. `capacity` is None when it cannot be read; `problem` says why."""

    key: str
    capacity: Capacity | None
    age_seconds: float
    problem: str | None = None

    @property
    def stale(self) -> bool:
        """Whether it has missed several broadcasts, without having said farewell."""
        if self.capacity is None:
            return True
        return self.age_seconds > 4 * self.capacity.broadcast_seconds


def write_capacity(repo: Repository, capacity: Capacity) -> None:
    """One write; an agent is the only writer of its key."""
    repo.store.put(keys.capacity(capacity.consumer), capacity.encode())


def list_agents(repo: Repository) -> list[AgentSeen]:
    """Every agent that has ever broadcast. One listing and a read each."""
    entries = list(walk(repo.store, keys.CAPACITY))
    seen = repo.tasks.map(lambda entry: _see(repo, entry), entries, limit=PARALLEL_REQUESTS)
    return [one for one in seen if one is not None]


def _see(repo: Repository, entry: Entry) -> AgentSeen | None:
    age = max(0.0, (repo.now() - entry.modified_at).total_seconds())
    try:
        return AgentSeen(entry.key, repo.read(Capacity, entry.key).value, age)
    except NotFound:
        return None
    except Unreadable as error:
        return AgentSeen(entry.key, None, age, error.why)
