"""Deleting a job that has ended, with what it left. What marks it as deleted stays for ever: its
cells, and the last sign of its life, which may be a seal.

What is named for ever is left: the output that an artifact names, the saves that a policy names. (A
queued job that takes this one's output along without that fails then: `input_unavailable`.)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from stado.core import ids, keys
from stado.core.pipelines import PIPELINE_PREFIX
from stado.core.records import Checkpoint, Manifest, OpenCell, Record, RunRecord
from stado.core.retention import PARTS
from stado.core.states import Opening, State
from stado.errors import Conflict, NotFound, Refused, Unreadable
from stado.jobs import snapshots
from stado.jobs.artifacts import uses_of
from stado.jobs.dependents import tell_dependents
from stado.jobs.endings import open_epoch, remove_record
from stado.jobs.finding import find_job
from stado.jobs.pipeline_sight import look
from stado.jobs.policy_seals import saves_named
from stado.jobs.repository import PARALLEL_REQUESTS, Repository, Stored
from stado.jobs.taking import is_taken_along, leave_behind
from stado.storage.port import walk

_OBJECTS_MAX = 2_000_000
"""Names that one deletion lists in one folder."""

_BULK = 1000
_NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class Deletion:
    """The answer to a delete."""

    job_id: str
    objects: int
    """How many were deleted by this call."""
    policies_stay: bool
    """Whether saves of it stay, because policies name them."""


def delete(
    repo: Repository,
    job_id: str,
    *,
    by: str,
    note: str | None = None,
    epoch: int | None = None,
    spare_taken: bool = False,
) -> Deletion:
    """`epoch`: only where the job has come to rest in this one, and in no later one.
    `spare_taken`: the files of its output stay where somebody was about to take them along.

    Deletes a job at rest: what it left, its part in its run and in that run's snapshot, and its
    record, which is the last to go; interrupted anywhere, the same call goes on.

    Raises `NotFound`, and `Refused` (`still_live`, `output_published`) when it has to stay."""
    cell = _opening(repo, job_id, by=by, note=note, epoch=epoch)
    record = cell.record
    epochs = sorted(repo.cells(job_id).ends)
    deleted = 0
    if not (spare_taken and is_taken_along(repo, job_id)):
        deleted = _delete_outputs(repo, job_id, epochs)
    deleted += _delete_folder(repo, keys.log_folder(job_id))
    checkpoints, some_stay = _delete_checkpoints(repo, record)
    tell_dependents(repo, job_id)
    _delete_words(repo, record, epochs)
    _leave_run(repo, record)
    for state in State:
        if state.at_rest:
            remove_record(repo, state, job_id, below_epoch=record.epoch)
    return Deletion(job_id, deleted + checkpoints, policies_stay=some_stay)


def is_unfinished(repo: Repository, job_id: str) -> bool:
    """Of a job that was deleted: whether whoever did it stopped on the way. Its record can be gone
    by then, for others remove that too; the run is noted once all the rest has been done."""
    record = repo.open_cell(job_id, repo.cells(job_id).highest).record
    try:
        stored = repo.find_run(record.run_id)
        if stored is None:
            return False
        noted = ids.number_in(job_id, stored.value.base_id) in stored.value.deleted
        rests = any(repo.find_record(state, job_id) for state in State if state.at_rest)
    except Unreadable:
        return True  # to go on once more does no harm
    return not noted or rests


def _opening(
    repo: Repository, job_id: str, *, by: str, note: str | None, epoch: int | None
) -> OpenCell:
    """The cell that deletes it: ours, or that of somebody who has not finished."""
    found = find_job(repo, job_id)
    if found is None:
        cells = repo.cells(job_id)
        if not cells.highest:
            raise NotFound(job_id, "there is no such job")
        return repo.open_cell(job_id, cells.highest)
    record = found.record
    if not record.state.terminal:
        raise Refused(
            "still_live",
            f"job {job_id} is {record.state}: cancel it first (`stado cancel {job_id}`)",
        )
    if epoch is not None and record.epoch != epoch:
        raise Refused("still_live", f"job {job_id} has just been retried")
    check_pipeline_over(repo, record)
    _check_unpublished(repo, job_id)
    cell, _ = open_epoch(repo, record, Opening.DELETE, by=by, note=note)
    if cell.kind is not Opening.DELETE:
        raise Refused("still_live", f"job {job_id} has just been retried")
    return cell


def check_pipeline_over(repo: Repository, record: Record) -> None:
    """What a job left is taken along by the steps that follow it. One whose root is deleted has no
    others to wait for."""
    spec = record.spec
    if not spec.then and spec.step_of is None:
        return
    try:
        seen = look(repo, record.id)
    except Refused as error:
        if error.code != "root_deleted":
            raise
        return
    if not seen.state.is_over:
        live = [one.step.name for one in seen.steps if one.number not in seen.skipped]
        raise Refused(
            "still_live",
            f"job {record.id} stays: its pipeline is {seen.state} ({', '.join(live)}): `stado "
            f"cancel {PIPELINE_PREFIX}{seen.root.id}` cancels what is left of it",
        )


def _check_unpublished(repo: Repository, job_id: str) -> None:
    uses = uses_of(repo, job_id)
    if uses:
        named = ", ".join(f"{name}@{version}" for name, version in uses[:_NAMED_MAX])
        more = f" and {len(uses) - _NAMED_MAX} more" if len(uses) > _NAMED_MAX else ""
        raise Refused(
            "output_published",
            f"job {job_id} stays: its output is published as {named}{more}, and versions are for "
            "ever",
        )


def _delete_outputs(repo: Repository, job_id: str, epochs: Sequence[int]) -> int:
    """The files that the manifests name, then the manifests: until then the same call goes on.
    Nothing where somebody was about to publish them."""
    if uses_of(repo, job_id):
        return 0
    found = (_find_manifest(repo, job_id, epoch) for epoch in epochs)
    manifests = [manifest for manifest in found if manifest is not None]
    count = delete_all(repo, (file.key for manifest in manifests for file in manifest.files))
    names = (keys.output_manifest(job_id, manifest.epoch) for manifest in manifests)
    return count + delete_all(repo, names)


def _find_manifest(repo: Repository, job_id: str, epoch: int) -> Manifest | None:
    """One that cannot be read names nothing that could be deleted."""
    try:
        found = repo.find(Manifest, keys.output_manifest(job_id, epoch))
    except Unreadable as error:
        repo.tell_unreadable(error)
        return None
    return found.value if found is not None else None


def _delete_checkpoints(repo: Repository, record: Record) -> tuple[int, bool]:
    """How many objects of them, and whether some stay: those that its policies name, and all where
    it cannot be read what that is."""
    staying: set[str] = set()
    try:
        for manifest in _policy_saves(repo, record):
            found = repo.find(Checkpoint, manifest)
            files = found.value.files if found is not None else []
            staying |= {manifest, *(part for file in files for part in file.parts)}
    except Unreadable as error:
        repo.tell_unreadable(error)
        return 0, True
    return _delete_folder(repo, keys.checkpoints_folder(record.id), but=staying), bool(staying)


def _policy_saves(repo: Repository, record: Record) -> list[str]:
    if not record.spec.makes_policy:
        return []
    return saves_named(repo, record.id, revisions=record.policy_revision)


def _delete_words(repo: Repository, record: Record, epochs: Sequence[int]) -> None:
    """What was asked of it, and what its workers still had to say, where there is any; the names
    that led to it and from it; and the marks of what had gone before."""
    job_id = record.id
    for kind in PARTS:
        _delete_folder(repo, keys.expired_of(kind.value, job_id))
    names = [key(job_id, epoch) for epoch in epochs for key in (keys.asks, keys.late)]
    names += [keys.after(one.job_id, job_id) for one in record.spec.after]
    delete_all(repo, [keys.follow_note(job_id), keys.awaited(job_id), *names])


def _leave_run(repo: Repository, record: Record) -> None:
    """The run says which of its jobs are deleted; after the last one its snapshot, and outputs that
    it took along, are not named by it any more, and its user's list does not have it."""
    try:
        run = _note_in_run(repo, record)
    except Unreadable as error:
        repo.tell_unreadable(error)
        return
    if run is None or len(run.deleted) < run.count:
        return
    leave_behind(repo, run.request.shared.inputs, run.run_id)
    snapshot = record.spec.snapshot
    if snapshot is not None:
        snapshots.drop_reference(repo, snapshot.digest, run.run_id)
        snapshots.remove_unnamed(repo, snapshot.digest)
    repo.store.delete(keys.by_user(run.submitter, run.base_id), None)


def _note_in_run(repo: Repository, record: Record) -> RunRecord | None:
    for _ in repo.rounds():
        stored = repo.find_run(record.run_id)
        if stored is None:
            return None
        number = ids.number_in(record.id, stored.value.base_id)
        if number in stored.value.deleted:
            return stored.value
        noted = stored.value.evolve(deleted=sorted({*stored.value.deleted, number}))
        if _replaced(repo, stored, noted):
            return noted
    raise Conflict(keys.run(record.run_id), "others keep changing it: try again")


def _replaced(repo: Repository, stored: Stored[RunRecord], noted: RunRecord) -> bool:
    try:
        repo.store.replace(keys.run(noted.run_id), noted.encode(), stored.version)
    except Conflict:
        return False
    return True


def _delete_folder(repo: Repository, folder: str, *, but: Iterable[str] = ()) -> int:
    staying = set(but)
    names = (entry.key for entry in itertools.islice(walk(repo.store, folder), _OBJECTS_MAX))
    return delete_all(repo, (name for name in names if name not in staying))


def delete_all(repo: Repository, names: Iterable[str]) -> int:
    """A thousand names at a time, in their order; how many."""
    count = 0
    for bulk in _bulks(names):
        repo.tasks.map(lambda key: repo.store.delete(key, None), bulk, limit=PARALLEL_REQUESTS)
        count += len(bulk)
    return count


def _bulks(names: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(names)
    while bulk := list(itertools.islice(iterator, _BULK)):
        yield bulk
