"""Jobs that wait for others to end: told by whoever settles such an end, once each.

What a queued job waits for is in its record, and changes there alone, by a replace of the version
that was read. The names below `index/after/` only lead from a job to those that wait for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from stado.core import keys, moves
from stado.core.records import Awaited, Record
from stado.core.states import Opening, State
from stado.errors import Conflict, NotFound
from stado.jobs.repository import PARALLEL_REQUESTS, Repository, Stored
from stado.storage.port import walk

_DEPENDENTS_MAX = 200_000
"""Of one job: names that a settler lists."""


def announce_dependents(repo: Repository, records: Iterable[Record]) -> None:
    """Before queue records that wait for other jobs are written: marks those, and leads from them
    to these. A write for each, and one for each job that is waited for."""
    pairs = [(one.job_id, record.id) for record in records for one in record.awaits]
    if not pairs:
        return
    marks = [(keys.awaited(parent), b"") for parent in dict.fromkeys(one for one, _ in pairs)]
    repo.store.create_many(marks)
    repo.store.create_many([(keys.after(parent, child), b"") for parent, child in pairs])


def look_for_ends(repo: Repository, records: Iterable[Record]) -> None:
    """After such records were written: whoever settled an end before has not seen them. Three reads
    for each job that is waited for."""
    waiting = [record for record in records if record.awaits]
    parents = list(dict.fromkeys(one.job_id for record in waiting for one in record.awaits))
    ends = repo.tasks.map(lambda one: find_ended(repo, one), parents, limit=PARALLEL_REQUESTS)
    ended = {one.job_id: one for one in ends if one is not None}
    for record in waiting:
        for awaited in record.awaits:
            if awaited.job_id in ended:
                tell_end(repo, record.id, ended[awaited.job_id])


def tell_dependents(repo: Repository, final: Record) -> None:
    """A job has ended: those that wait for it learn how. One read; where something waited for it, a
    listing, and for each that does a read, two writes, two deletes.

    A crash on the way leaves what was not told to the next settler."""
    try:
        repo.store.head(keys.awaited(final.id))
    except NotFound:
        return
    end = moves.ended_as(final)
    folder = keys.after_folder(final.id)
    for entry in itertools.islice(walk(repo.store, folder), _DEPENDENTS_MAX):
        tell_end(repo, entry.key.removeprefix(folder), end)
        repo.store.delete(entry.key, None)


def tell_end(repo: Repository, child_id: str, end: Awaited) -> None:
    """Lets a queued job go on, or dooms it, by how a job has ended that it waits for; nothing where
    it does not, or no more."""
    for _ in repo.rounds():
        found = repo.find_record(State.QUEUED, child_id)
        if found is None:
            return
        changed = moves.told_of(found.value, end, nonce=repo.entropy.letters(8))
        if changed is None or replace_queued(repo, found, changed):
            return
    raise Conflict(keys.record(State.QUEUED, child_id), "others keep changing it: try again")


def replace_queued(repo: Repository, found: Stored[Record], changed: Record) -> bool:
    """Writes another queue record of the same epoch in the place of the one that was read; False
    when that has changed. The new entry comes before it and the old one goes after it: a crash
    leaves an entry that the record does not compute to, which repair deletes."""
    repo.create_entry(changed)
    key = keys.record(State.QUEUED, changed.id)
    try:
        repo.store.replace(key, changed.encode(), found.version)
    except Conflict:
        repo.delete_entry(changed)
        return False
    repo.delete_entry(found.value)
    return True


def find_ended(repo: Repository, job_id: str) -> Awaited | None:
    """How a job has ended; None while it has not, or goes on. Its cells say so, also those of one
    that was deleted. A listing and up to two reads."""
    cells = repo.cells(job_id)
    epoch = cells.highest
    if epoch and not cells.begun(epoch):
        if repo.open_cell(job_id, epoch).kind is not Opening.DELETE:
            return None
        epoch -= 1
    end = repo.find_end(job_id, epoch) if epoch else None
    if end is None or end.ending.verdict.state is None or not end.record.state.terminal:
        return None
    return moves.ended_as(end.record)
