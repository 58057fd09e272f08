"""Checkpoints: what a job needs to go on elsewhere. Parts of at most 64 MB, uploaded one by one
so that a long upload shows as new names, then committed by a manifest.

The newest committed checkpoint of any earlier epoch is what a later one starts from.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from stado.core import keys
from stado.core.records import Checkpoint, CheckpointFile
from stado.errors import Conflict
from stado.jobs.outputs import local_files, safe_target
from stado.jobs.repository import PARALLEL_REQUESTS, Repository
from stado.storage.port import walk

PART_BYTES_MAX = 64 * 1024 * 1024

Fingerprint = tuple[tuple[str, int, int], ...]
"""(path, size, mtime in ns) of each file: what tells a changed folder from the same one."""


def fingerprint(folder: Path) -> Fingerprint:
    """The state of a folder; files that vanish meanwhile are left out."""
    found = []
    for path in local_files(folder).files:
        try:
            status = (folder / path).stat()
        except FileNotFoundError:
            continue
        found.append((path, status.st_size, status.st_mtime_ns))
    return tuple(found)


def save(
    repo: Repository,
    *,
    job_id: str,
    epoch: int,
    sequence: int,
    folder: Path,
    part_bytes: int = PART_BYTES_MAX,
) -> Checkpoint | None:
    """Uploads a folder as a checkpoint; None when it changed on the way, and then nothing is
    committed. A crash leaves parts without a manifest, which nobody reads."""
    before = fingerprint(folder)
    names = (keys.checkpoint_part(job_id, epoch, sequence, number) for number in itertools.count())
    files = []
    for path, _, _ in before:
        try:
            files.append(_save_file(repo, folder, path, names, part_bytes))
        except FileNotFoundError:
            return None
    if fingerprint(folder) != before:
        return None
    checkpoint = Checkpoint(
        job_id=job_id, epoch=epoch, sequence=sequence, at=repo.now(), files=files
    )
    repo.store.put(keys.checkpoint_manifest(job_id, epoch, sequence), checkpoint.encode())
    return checkpoint


def newest_manifests(repo: Repository, job_id: str, *, limit: int) -> list[str]:
    """The keys of the job's newest committed checkpoints, the newest first."""
    names = (entry.key for entry in walk(repo.store, keys.checkpoints_folder(job_id)))
    committed = (name for name in names if keys.parse_checkpoint_manifest(name) is not None)
    return list(reversed(deque(committed, maxlen=limit)))


def restore(repo: Repository, manifest_key: str, folder: Path) -> Checkpoint:
    """Makes a folder hold a checkpoint's files and nothing else. Raises `Unreadable`, `NotFound`,
    `Conflict` when a file is not what the manifest says, `Refused` when a path leaves the
    folder."""
    checkpoint = repo.read(Checkpoint, manifest_key).value
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in checkpoint.files:
        target = safe_target(folder, file.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with target.open("wb") as output:
            for part in file.parts:
                data = repo.store.get(part).data
                digest.update(data)
                output.write(data)
        if digest.hexdigest() != file.sha256:
            raise Conflict(
                file.path, "the checkpoint's file does not have the digest of its manifest"
            )
    return checkpoint


def delete(repo: Repository, checkpoint: Checkpoint) -> None:
    """The manifest goes first, so that nobody starts from a checkpoint that is half gone."""
    manifest = keys.checkpoint_manifest(checkpoint.job_id, checkpoint.epoch, checkpoint.sequence)
    repo.store.delete(manifest, None)
    parts = [part for file in checkpoint.files for part in file.parts]
    repo.tasks.map(lambda part: repo.store.delete(part, None), parts, limit=PARALLEL_REQUESTS)


def _save_file(
    repo: Repository, folder: Path, path: str, names: Iterator[str], part_bytes: int
) -> CheckpointFile:
    digest = hashlib.sha256()
    size = 0
    parts = []
    with (folder / path).open("rb") as file:
        while data := file.read(part_bytes):
            key = next(names)
            repo.store.put(key, data)
            parts.append(key)
            digest.update(data)
            size += len(data)
    return CheckpointFile(path=path, size=size, sha256=digest.hexdigest(), parts=parts)
