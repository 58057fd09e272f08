"""What agents say of themselves. Who reads it: `reaping` as a witness, `health` for people."""

from __future__ import annotations

from stado.core import keys
from stado.core.records import Capacity
from stado.jobs.repository import Repository


def write_capacity(repo: Repository, capacity: Capacity) -> None:
    """One write; an agent is the only writer of its key."""
    repo.store.put(keys.capacity(capacity.consumer), capacity.encode())
