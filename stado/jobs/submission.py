"""What a submission writes, in parts: for who submits, who finishes what a submitter began, and who
launches the next step of a pipeline.
"""

from __future__ import annotations

from stado.core import ids, keys, moves
from stado.core.order import entry_key
from stado.core.records import Record, RunRecord
from stado.core.spec import Request
from stado.core.states import State
from stado.errors import Conflict, Exists, NotFound
from stado.jobs.dependents import announce_dependents, look_for_ends
from stado.jobs.repository import Repository, Stored

CHUNK = 1000
"""Jobs that are written in one bulk: what an interruption can leave half done."""


def job_ids_of(run: RunRecord) -> list[str]:
    return ids.job_ids(run.base_id, count=run.count, batch=run.request.batch)


def run_record_of(
    repo: Repository, run_id: str, request: Request, submitter: str, rerun_of: str | None
) -> tuple[Stored[RunRecord], bool]:
    """The run's record, and whether we created it."""
    now = repo.now()
    run = RunRecord(
        run_id=run_id,
        token=repo.entropy.token(),
        digest=request.digest(),
        request=request,
        base_id=ids.new_base(now, repo.entropy.letters(ids.random_letters_needed())),
        count=len(request.commands),
        submitted_at=now,
        submitter=submitter,
        rerun_of=rerun_of,
    )
    try:
        return Stored(run, repo.store.create(keys.run(run_id), run.encode())), True
    except Exists:
        return repo.read_taken(RunRecord, keys.run(run_id)), False


def announce(repo: Repository, run: RunRecord) -> None:
    repo.store.put(keys.by_user(run.submitter, run.base_id), b"")


def first_records(run: RunRecord) -> list[Record]:
    return [
        moves.first_record(run, job_id=job_id, spec=spec)
        for job_id, spec in zip(job_ids_of(run), run.request.specs(), strict=True)
    ]


def queue(repo: Repository, records: list[Record]) -> None:
    """What waits for other jobs is announced before; who calls this looks for their ends then."""
    announce_dependents(repo, records)
    repo.store.create_many([(entry_key(record), b"") for record in records])
    repo.store.create_many(
        [(keys.record(State.QUEUED, record.id), record.encode()) for record in records]
    )


def mark_complete(repo: Repository, stored: Stored[RunRecord]) -> None:
    """Somebody may note meanwhile that a job of it was deleted."""
    key = keys.run(stored.value.run_id)
    for _ in repo.rounds():
        complete = stored.value.evolve(complete=True)
        try:
            repo.store.replace(key, complete.encode(), stored.version)
            return
        except (Conflict, NotFound):
            current = repo.find_run(complete.run_id)
            if current is None:
                raise
            if current.value.complete:
                return
            stored = current
    raise Conflict(key, "others keep changing it: try again")


def finish_begun(repo: Repository, stored: Stored[RunRecord]) -> None:
    """Writes what is missing of a run whose writer is gone, then marks it complete. A crash leaves
    what the sweep finishes.

    `submit` has the same for who may look for jobs (`finding`), which settles what it finds; who
    settles comes here."""
    run = stored.value
    announce(repo, run)
    records = first_records(run)
    for start in range(0, len(records), CHUNK):
        chunk = records[start : start + CHUNK]
        queue(repo, [record for record in chunk if not _was_queued(repo, record.id)])
        look_for_ends(repo, chunk)
    mark_complete(repo, stored)


def _was_queued(repo: Repository, job_id: str) -> bool:
    """Whether a job was ever written: it has a cell, or waits for its first claim. Asked twice for
    the cell, since it may be claimed in between."""
    if repo.cells(job_id).highest:
        return True
    if repo.find_record(State.QUEUED, job_id) is not None:
        return True
    return bool(repo.cells(job_id).highest)


def write_jobs(repo: Repository, stored: Stored[RunRecord]) -> None:
    """All jobs of a run whose record we have just created, so that none of them can exist yet; then
    marks it complete."""
    run = stored.value
    announce(repo, run)
    records = first_records(run)
    for start in range(0, len(records), CHUNK):
        chunk = records[start : start + CHUNK]
        queue(repo, chunk)
        look_for_ends(repo, chunk)
    mark_complete(repo, stored)
