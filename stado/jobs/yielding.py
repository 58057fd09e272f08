"""Asks a running job to make room: its supervisor stops it, saves what it has, and puts it back.

Only a flag is set. A job that may not be put back ignores it, and so does one that has ended.
"""

from __future__ import annotations

from stado.core import keys
from stado.core.records import Asks
from stado.errors import Conflict
from stado.jobs.repository import Repository


def ask_to_yield(
    repo: Repository, job_id: str, epoch: int, *, by: str, note: str, evict: bool = False
) -> Asks:
    """Of this epoch alone. `evict`: also where the job is protected, for its host is closed. A read
    and a write; the supervisor meets it at its next check-in."""
    key = keys.asks(job_id, epoch)
    for _ in repo.rounds():
        found = repo.find_asks(job_id, epoch)
        asked = found.value if found is not None else Asks(nonce="")
        if asked.give_way and asked.evict >= evict:
            return asked
        asked = asked.evolve(
            give_way=True,
            give_way_by=by,
            give_way_at=repo.now(),
            give_way_note=note,
            evict=asked.evict or evict,
            nonce=repo.entropy.token(),
        )
        if found is None:
            if repo.create(key, asked) is not None:
                return asked
            continue
        try:
            repo.store.replace(key, asked.encode(), found.version)
            return asked
        except Conflict:
            continue
    raise Conflict(key, "others keep changing it: try again")
