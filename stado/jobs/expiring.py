"""What an ended job left goes for its age, while the job stays: its log, its output, its
checkpoints.

First a mark, then the objects, then another mark that all of it has gone. Whoever would use an
output writes so first and looks for the mark then; here the mark comes first, and who uses it is
asked then. So one of the two sees the other, and a mark is never taken back.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from stado.core import keys
from stado.core.records import Checkpoint, Expired, Manifest, Record
from stado.core.retention import Keeps
from stado.core.states import Leftover, State
from stado.errors import NotFound, Refused
from stado.jobs.artifacts import uses_of
from stado.jobs.deletion import check_pipeline_over, delete_all
from stado.jobs.policy_seals import saves_named
from stado.jobs.repository import Cells, Repository
from stado.jobs.taking import is_taken_along
from stado.storage.port import walk

_OBJECTS_MAX = 2_000_000
"""Of one kind of one job; what lies behind them stays."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What there is of one kind: objects in the order in which they go, and their bytes."""

    objects: list[str]
    size: int


def keeps_outputs(repo: Repository, job_id: str) -> Keeps | None:
    """What needs a job's output: two listings, and what those ask that find something."""
    if uses_of(repo, job_id):
        return Keeps.PUBLISHED
    return Keeps.TAKEN_ALONG if is_taken_along(repo, job_id) else None


def keeps_for_pipeline(repo: Repository, record: Record) -> Keeps | None:
    """Whether its pipeline is not over. To be asked once nobody takes its output along who has not
    completed (`keeps_outputs`): a step that had failed can have completed since, and then either
    the next one is there, with a name of its own, or the pipeline is seen to go on."""
    try:
        check_pipeline_over(repo, record)
    except Refused:
        return Keeps.PIPELINE
    return None


def keeps_checkpoints(record: Record) -> Keeps | None:
    """From `completed` nothing leads back to the queue. Any other end may be retried, and whoever
    does that needs the newest save."""
    return None if record.state is State.COMPLETED else Keeps.MAY_BE_RETRIED


def holding_of(repo: Repository, record: Record, cells: Cells, kind: Leftover) -> Holding:
    """What would go, of epochs up to the record's. A listing (a page each 1,000 objects); of
    output a read for each epoch, of checkpoints one for each policy and each save that it names.
    Raises `Unreadable` where it cannot be told what belongs to it, or has to stay."""
    if kind is Leftover.LOG:
        return _log(repo, record)
    if kind is Leftover.OUTPUTS:
        return _outputs(repo, record, cells)
    return _checkpoints(repo, record)


def expire(
    repo: Repository, record: Record, kind: Leftover, holding: Holding, *, rule: str, by: str
) -> Keeps | None:
    """Lets go what was found there; or what keeps it, found after the mark was made: then nothing
    went.

    Writes the mark, deletes the objects, writes that they have gone, deletes the first mark. A
    crash between leaves a mark, by which readers know; the same call goes on."""
    mark = _mark(repo, record, kind, rule=rule, by=by)
    repo.create(mark.own_key(), mark)
    if kind is Leftover.OUTPUTS:
        keeps = keeps_outputs(repo, record.id) or keeps_for_pipeline(repo, record)
        if keeps is not None:
            return keeps
    delete_all(repo, holding.objects)
    gone = mark.evolve(gone=True, objects=len(holding.objects), bytes=holding.size)
    repo.create(gone.own_key(), gone)
    repo.store.delete(mark.own_key(), None)
    return None


def is_begun(repo: Repository, record: Record, kind: Leftover) -> bool:
    """Whether somebody lets it go just now, or has died over it. A request."""
    try:
        repo.store.head(keys.expiring(kind.value, record.id, record.epoch))
    except NotFound:
        return False
    return True


def note_nothing(repo: Repository, record: Record, kind: Leftover, *, rule: str, by: str) -> None:
    """Of a job that left nothing of this kind: nobody has to look again."""
    gone = _mark(repo, record, kind, rule=rule, by=by).evolve(gone=True, left=False)
    repo.create(gone.own_key(), gone)


def _mark(repo: Repository, record: Record, kind: Leftover, *, rule: str, by: str) -> Expired:
    """That it is about to go."""
    return Expired(
        job_id=record.id,
        epoch=record.epoch,
        kind=kind,
        at=repo.now(),
        by=by,
        rule=rule,
        gone=False,
    )


def _log(repo: Repository, record: Record) -> Holding:
    objects, size = [], 0
    for entry in itertools.islice(walk(repo.store, keys.log_folder(record.id)), _OBJECTS_MAX):
        epoch = keys.epoch_of_log(entry.key)
        if epoch is not None and epoch <= record.epoch:
            objects.append(entry.key)
            size += entry.size
    return Holding(objects, size)


def _outputs(repo: Repository, record: Record, cells: Cells) -> Holding:
    """The files before the manifests that name them: who was interrupted finds them again."""
    files, manifests, size = [], [], 0
    for epoch in sorted(epoch for epoch in cells.ends if epoch <= record.epoch):
        key = keys.output_manifest(record.id, epoch)
        found = repo.find(Manifest, key)
        if found is not None:
            files += [file.key for file in found.value.files]
            manifests.append(key)
            size += sum(file.size for file in found.value.files)
    return Holding([*files, *manifests], size)


def _checkpoints(repo: Repository, record: Record) -> Holding:
    """Manifests before their parts, so that no save is seen that is not whole. What policies name
    stays."""
    staying: set[str] = set()
    if record.spec.makes_policy:
        for manifest in saves_named(repo, record.id, revisions=record.policy_revision):
            found = repo.find(Checkpoint, manifest)
            files = found.value.files if found is not None else []
            staying |= {manifest, *(part for file in files for part in file.parts)}
    folder = walk(repo.store, keys.checkpoints_folder(record.id))
    sizes = {
        entry.key: entry.size
        for entry in itertools.islice(folder, _OBJECTS_MAX)
        if entry.key not in staying and _is_up_to(entry.key, record.epoch)
    }
    objects = sorted(sizes, key=lambda key: keys.parse_checkpoint_manifest(key) is None)
    return Holding(objects, sum(sizes.values()))


def _is_up_to(key: str, epoch: int) -> bool:
    saved = keys.epoch_of_save(key)
    return saved is not None and saved <= epoch
