"""Jobs that wait for others to end: told by whoever settles such an end, once each.

What a queued job waits for is in its record, and changes there alone, by a replace of the version
that was read. The names below `index/after/` only lead from a job to those that wait for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from stado.core import keys, moves
from stado.core.ids import is_job_id
from stado.core.records import Awaited, Record
from stado.core.states import Opening, State
from stado.errors import Conflict, NotFound, Unreadable
from stado.jobs.repository import PARALLEL_REQUESTS, Repository, Stored
from stado.storage.port import walk

_DEPENDENTS_MAX = 2_000_000
"""Of one job: names that a settler lists. Repair tells those behind them."""

_BULK = 100
"""Jobs that are told at a time."""


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
    """After such records were written: whoever settled an end before has not seen them. A listing
    and up to two reads for each job that is waited for, and what `tell_end` needs."""
    waiting = [record for record in records if record.awaits]
    parents = list(dict.fromkeys(one.job_id for record in waiting for one in record.awaits))
    ended = _find_ends(repo, parents)
    told = [record for record in waiting if any(one.job_id in ended for one in record.awaits)]
    repo.tasks.map(lambda one: _tell_ends(repo, one, ended), told, limit=PARALLEL_REQUESTS)


def look_again(repo: Repository, record: Record) -> None:
    """For a pass that meets a job which waits: whether one of the others has ended, drawn by
    chance. Nobody may have told it, where somebody died or a name was lost. As `look_for_ends`."""
    waits = record.awaits
    if waits:
        drawn = waits[int(repo.entropy.uniform(0, len(waits)))].job_id
        _tell_ends(repo, record, _find_ends(repo, [drawn]))


def tell_dependents(repo: Repository, job_id: str) -> None:
    """A job has ended: those that wait for it learn how, unless somebody has taken it out of that
    rest. One read; where something waited for it, a listing, for each hundred a look for its end,
    and for each a read, two writes, two deletes.

    A crash on the way leaves what was not told to the next settler. One whose record cannot be
    read keeps its name, and no other from being told."""
    try:
        repo.store.head(keys.awaited(job_id))
    except NotFound:
        return
    names = itertools.islice(walk(repo.store, keys.after_folder(job_id)), _DEPENDENTS_MAX)
    children = (entry.key.rpartition("/")[2] for entry in names)
    known = (child for child in children if is_job_id(child))
    while bulk := list(itertools.islice(known, _BULK)):
        if not _tell_bulk(repo, job_id, bulk):
            return


def _tell_bulk(repo: Repository, job_id: str, children: list[str]) -> bool:
    """False where the job has not ended, or goes on. Its end is looked up after it was read what
    waits for it: so all of these waited for it when it had ended so."""
    read = repo.tasks.map(
        lambda child: _read_waiting(repo, child), children, limit=PARALLEL_REQUESTS
    )
    end = _find_readable_end(repo, job_id)
    if end is None:
        return False
    waiting = [one for one in read if one is not None]
    repo.tasks.map(lambda one: _tell_one(repo, *one, end), waiting, limit=PARALLEL_REQUESTS)
    return True


def _read_waiting(repo: Repository, child_id: str) -> tuple[str, Stored[Record] | None] | None:
    """None where it cannot be read. Without a record its submitter will look, or it is past
    waiting."""
    try:
        return child_id, repo.find_record(State.QUEUED, child_id)
    except Unreadable as error:
        repo.tell_unreadable(error)
        return None


def _tell_one(repo: Repository, child_id: str, found: Stored[Record] | None, end: Awaited) -> None:
    try:
        if found is not None:
            tell_end(repo, found, end)
    except Unreadable as error:
        repo.tell_unreadable(error)
        return
    repo.store.delete(keys.after(end.job_id, child_id), None)


def _tell_ends(repo: Repository, waiting: Record, ended: Mapping[str, Awaited]) -> None:
    """The record was there before the ends were looked up."""
    for end in (ended[one.job_id] for one in waiting.awaits if one.job_id in ended):
        read = _read_waiting(repo, waiting.id)
        found = read[1] if read is not None else None
        if found is None or found.value.epoch != waiting.epoch:
            return
        tell_end(repo, found, end)


def tell_end(repo: Repository, found: Stored[Record], end: Awaited) -> None:
    """Lets a queued job go on, or dooms it, by how a job has ended that it waits for; nothing where
    it does not, or no more. `found`: as it was read before the end was looked up. Of a later epoch
    it is not known that it waited while the other job was at rest so: that one looks itself."""
    job_id, epoch = found.value.id, found.value.epoch
    for _ in repo.rounds():
        changed = moves.told_of(found.value, end, nonce=repo.entropy.letters(8))
        if changed is None or replace_queued(repo, found, changed):
            return
        current = repo.find_record(State.QUEUED, job_id)
        if current is None or current.value.epoch != epoch:
            return
        found = current
    raise Conflict(keys.record(State.QUEUED, job_id), "others keep changing it: try again")


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


def _find_ends(repo: Repository, job_ids: list[str]) -> dict[str, Awaited]:
    ends = repo.tasks.map(
        lambda one: _find_readable_end(repo, one), job_ids, limit=PARALLEL_REQUESTS
    )
    return {one.job_id: one for one in ends if one is not None}


def _find_readable_end(repo: Repository, job_id: str) -> Awaited | None:
    """A job whose end cannot be read is waited for."""
    try:
        return find_ended(repo, job_id)
    except Unreadable as error:
        repo.tell_unreadable(error)
        return None
