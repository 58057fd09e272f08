"""What agents say of themselves. Who reads it: `reaping` as a witness, `health` for people."""

from __future__ import annotations

from stado.core import keys
from stado.core.records import Capacity
from stado.errors import Unreadable
from stado.jobs.repository import Repository


def write_capacity(repo: Repository, capacity: Capacity) -> None:
    """One write; an agent is the only writer of its key."""
    repo.store.put(keys.capacity(capacity.consumer), capacity.encode())


def find_capacity(repo: Repository, consumer: str) -> Capacity | None:
    """An agent's newest report; None where there is none, or none that can be read."""
    try:
        found = repo.find(Capacity, keys.capacity(consumer))
    except Unreadable as error:
        repo.tell_unreadable(error)
        return None
    return found.value if found is not None else None
