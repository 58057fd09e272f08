"""Checkpoints in the store: what a job needs to go on elsewhere, found, restored, swept.

A checkpoint is what its manifest names: parts that were uploaded one by one, some of them for an
earlier save of the same job. The newest committed one of any epoch is what a later epoch starts
from. (`saving` puts them there.)
"""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from stado.core import keys
from stado.core.documents import decode
from stado.core.records import Checkpoint, CheckpointFile, SaveRef
from stado.errors import Conflict
from stado.jobs.folders import make_folder, remove_folder
from stado.jobs.outputs import safe_targets
from stado.jobs.repository import PARALLEL_REQUESTS, Repository
from stado.storage.port import Fetch, FileDigest, walk

log = logging.getLogger(__name__)

PART_BYTES_MAX = 64 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
_SWEEP_NAMES_MAX = 200_000


def newest_manifests(repo: Repository, job_id: str, *, limit: int) -> list[str]:
    """The keys of the job's newest committed checkpoints, the newest first."""
    names = (entry.key for entry in walk(repo.store, keys.checkpoints_folder(job_id)))
    committed = (name for name in names if keys.parse_checkpoint_manifest(name) is not None)
    return list(reversed(deque(committed, maxlen=limit)))


def ref_of(checkpoint: Checkpoint, data: bytes) -> SaveRef:
    """`data`: its manifest, as it is stored."""
    return SaveRef(
        manifest=checkpoint.own_key(),
        sha256=hashlib.sha256(data).hexdigest(),
        at=checkpoint.at,
        size=checkpoint.size,
        meta=checkpoint.meta,
    )


def read_manifest(repo: Repository, key: str) -> tuple[Checkpoint, SaveRef]:
    """Raises `NotFound`, `Unreadable`."""
    data = repo.store.get(key).data
    checkpoint = decode(Checkpoint, key, data)
    return checkpoint, ref_of(checkpoint, data)


def best_as_of(checkpoint: Checkpoint, ref: SaveRef) -> SaveRef | None:
    """The best save of the job when this one was committed; None when nothing was measured."""
    if checkpoint.best is not None:
        return checkpoint.best
    return ref if ref.meta is not None and ref.meta.value is not None else None


def restore(
    repo: Repository,
    manifest_key: str,
    folder: Path,
    *,
    sha256: str | None = None,
    between: Callable[[], None] | None = None,
    fetch: Fetch | None = None,
) -> tuple[Checkpoint, SaveRef]:
    """Makes a folder hold a checkpoint's files and nothing else. `sha256`: of the manifest, where
    it was pinned. Raises `Unreadable`, `NotFound`, `Conflict` when the manifest or a file is not
    what was promised, `Refused` when a path leaves the folder, and what `between` raises, which
    is called after each part. `fetch` brings each of them."""
    checkpoint, ref = read_manifest(repo, manifest_key)
    if sha256 not in (None, ref.sha256):
        raise Conflict(manifest_key, f"it has SHA-256 {ref.sha256} and {sha256} was promised")
    remove_folder(folder)
    make_folder(folder.parent)
    folder.mkdir()
    targets = safe_targets(folder, [file.path for file in checkpoint.files])
    for file in checkpoint.files:
        target = targets[file.path]
        make_folder(target.parent)
        digest = hashlib.sha256()
        temporary = folder.with_name(f"{folder.name}.part")
        with target.open("wb") as output:
            for data in _stream(file, temporary, fetch or _fetch_from(repo), between):
                digest.update(data)
                output.write(data)
        if digest.hexdigest() != file.sha256:
            raise Conflict(
                file.path, "the checkpoint's file does not have the digest of its manifest"
            )
    return checkpoint, ref


def sweep(repo: Repository, keep: Sequence[Checkpoint], *, also: Sequence[Checkpoint] = ()) -> None:
    """Deletes what the job saved before the newest of these, and neither they nor `also` name:
    manifests first, so that nobody starts from a checkpoint that is half gone, then parts, also
    those that a crash left without a manifest.

    To be called only by who knows that no settler can still take an older save (PROTOCOL.md,
    "Checkpoints"). A crash on the way leaves parts that the next sweep finds."""
    newest = max((checkpoint.epoch, checkpoint.sequence) for checkpoint in keep)
    saves = (*keep, *also)
    staying = {checkpoint.own_key() for checkpoint in saves}
    staying |= {part for checkpoint in saves for file in checkpoint.files for part in file.parts}
    job_id = keep[0].job_id
    manifests: list[str] = []
    parts: list[str] = []
    names = walk(repo.store, keys.checkpoints_folder(job_id))
    for entry in itertools.islice(names, _SWEEP_NAMES_MAX):
        manifest = keys.parse_checkpoint_manifest(entry.key)
        saved = manifest or keys.parse_checkpoint_part(entry.key, job_id)
        if saved is not None and saved <= newest and entry.key not in staying:
            (parts if manifest is None else manifests).append(entry.key)
    for gone in (manifests, parts):
        repo.tasks.map(lambda key: repo.store.delete(key, None), gone, limit=PARALLEL_REQUESTS)


def _fetch_from(repo: Repository) -> Fetch:
    def fetch(key: str, path: Path, _: int) -> FileDigest:
        return repo.store.download(key, path)

    return fetch


def _stream(
    file: CheckpointFile, temporary: Path, fetch: Fetch, between: Callable[[], None] | None
) -> Iterator[bytes]:
    """The content of the parts, a megabyte at a time: a part is downloaded, which takes what time
    it takes, and never held in memory."""
    for part in file.parts:
        try:
            size = fetch(part, temporary, min(file.size, PART_BYTES_MAX)).size
            with temporary.open("rb") as part_file:
                for _ in range(0, size, _CHUNK_BYTES):
                    yield part_file.read(_CHUNK_BYTES)
        finally:
            temporary.unlink(missing_ok=True)
        if between is not None:
            between()
