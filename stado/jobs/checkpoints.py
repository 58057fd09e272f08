"""Checkpoints: what a job needs to go on elsewhere. Parts of at most 64 MB, uploaded one by one
so that a long upload shows as new names, then committed by a manifest. What is uploaded is a
snapshot, so that a job may go on replacing its files meanwhile.

The newest committed checkpoint of any earlier epoch is what a later one starts from.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from stado.core import keys
from stado.core.records import Checkpoint, CheckpointFile
from stado.errors import Ambiguous, Conflict, StoreError
from stado.jobs.folders import make_folder, remove_folder
from stado.jobs.outputs import local_files, safe_targets
from stado.jobs.repository import PARALLEL_REQUESTS, Repository
from stado.storage.port import walk

log = logging.getLogger(__name__)

PART_BYTES_MAX = 64 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024

FileState = tuple[str, int, int]
"""Path, size, mtime in ns."""

Fingerprint = tuple[FileState, ...]
"""The state of each file: what tells a changed folder from the same one."""


def fingerprint(folder: Path) -> Fingerprint:
    """The state of a folder; files that vanish meanwhile, or cannot be looked at, are left out."""
    found = []
    for path in local_files(folder).files:
        try:
            status = (folder / path).stat()
        except OSError:
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
    between: Callable[[], None] | None = None,
) -> Checkpoint | None:
    """Uploads a folder, as it is now, as a checkpoint. None, with nothing committed, when a file
    was written in place before it was uploaded, or cannot be read.

    `between` is called after each part; what it raises ends the save. Then, and after any failure
    but a manifest without an answer, the parts are deleted as far as the store goes along. A
    crash leaves parts without a manifest, which nobody reads."""
    snapshot = folder.with_name(f"{folder.name}.saving")
    names = (keys.checkpoint_part(job_id, epoch, sequence, number) for number in itertools.count())
    upload = _Upload(repo, names, part_bytes=part_bytes, between=between)
    try:
        files = [upload.save(snapshot, state) for state in _take_snapshot(folder, snapshot)]
        at = repo.now()
    except _NotWhole as error:
        log.info("event=checkpoint_dropped job=%s epoch=%d why=%r", job_id, epoch, str(error))
        upload.take_back()
        return None
    except BaseException:
        upload.take_back()
        raise
    finally:
        remove_folder(snapshot)
    checkpoint = Checkpoint(job_id=job_id, epoch=epoch, sequence=sequence, at=at, files=files)
    _commit(repo, checkpoint, upload)
    return checkpoint


def newest_manifests(repo: Repository, job_id: str, *, limit: int) -> list[str]:
    """The keys of the job's newest committed checkpoints, the newest first."""
    names = (entry.key for entry in walk(repo.store, keys.checkpoints_folder(job_id)))
    committed = (name for name in names if keys.parse_checkpoint_manifest(name) is not None)
    return list(reversed(deque(committed, maxlen=limit)))


def restore(
    repo: Repository,
    manifest_key: str,
    folder: Path,
    *,
    between: Callable[[], None] | None = None,
) -> Checkpoint:
    """Makes a folder hold a checkpoint's files and nothing else. Raises `Unreadable`, `NotFound`,
    `Conflict` when a file is not what the manifest says, `Refused` when a path leaves the
    folder, and what `between` raises, which is called after each part."""
    checkpoint = repo.read(Checkpoint, manifest_key).value
    remove_folder(folder)
    make_folder(folder.parent)
    folder.mkdir()
    targets = safe_targets(folder, [file.path for file in checkpoint.files])
    for file in checkpoint.files:
        target = targets[file.path]
        make_folder(target.parent)
        digest = hashlib.sha256()
        with target.open("wb") as output:
            for data in _stream(repo, file.parts, folder.with_name(f"{folder.name}.part"), between):
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


def _stream(
    repo: Repository, parts: list[str], temporary: Path, between: Callable[[], None] | None
) -> Iterator[bytes]:
    """The content of the parts, a megabyte at a time: a part is downloaded, which takes what time
    it takes, and never held in memory."""
    for part in parts:
        try:
            size = repo.store.download(part, temporary).size
            with temporary.open("rb") as file:
                for _ in range(0, size, _CHUNK_BYTES):
                    yield file.read(_CHUNK_BYTES)
        finally:
            temporary.unlink(missing_ok=True)
        if between is not None:
            between()


class _NotWhole(Exception):
    """What was taken of the folder is not what was there at any one time."""


def _take_snapshot(folder: Path, snapshot: Path) -> Fingerprint:
    """Gives the files of a folder second names in `snapshot`, and says what they hold. What is
    replaced in the folder from then on stays as it was in the snapshot. Raises `_NotWhole`."""
    remove_folder(snapshot)
    before = fingerprint(folder)
    try:
        for path, _, _ in before:
            make_folder((snapshot / path).parent)
            _link_or_copy(folder / path, snapshot / path)
    except OSError as error:
        raise _NotWhole(str(error)) from error
    taken = fingerprint(snapshot)
    if fingerprint(folder) != before:
        raise _NotWhole("the folder changed while a snapshot of it was taken")
    return taken


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except (FileNotFoundError, FileExistsError):
        raise  # copying over what is there could write into a file of the job
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target, follow_symlinks=False)


class _Upload:
    """The parts of one save, put one by one, and deleted when it comes to nothing."""

    def __init__(
        self,
        repo: Repository,
        names: Iterator[str],
        *,
        part_bytes: int,
        between: Callable[[], None] | None,
    ) -> None:
        self._repo = repo
        self._names = names
        self._part_bytes = part_bytes
        self._between = between
        self._begun: list[str] = []

    def save(self, folder: Path, state: FileState) -> CheckpointFile:
        """Raises `_NotWhole` when the file is not, or no longer, in this state."""
        path, size, _ = state
        digest = hashlib.sha256()
        parts = []
        for data in _read(folder / path, size, self._part_bytes):
            parts.append(self._put(data))
            digest.update(data)
        _check_unchanged(folder, state)
        return CheckpointFile(path=path, size=size, sha256=digest.hexdigest(), parts=parts)

    def take_back(self) -> None:
        """Best effort: parts that stay only take room. A store that is away is not asked again
        for each of them."""
        for key in self._begun:
            try:
                self._repo.store.delete(key, None)
            except StoreError as error:
                log.warning("event=checkpoint_parts_left key=%s error=%r", key, str(error))
                return

    def _put(self, data: bytes) -> str:
        key = next(self._names)
        self._begun.append(key)
        self._repo.store.put(key, data)
        if self._between is not None:
            self._between()
        return key


def _read(path: Path, size: int, piece_bytes: int) -> Iterator[bytes]:
    """No more than `size`, for a file can grow as fast as it is read. Only errors of the file
    itself become `_NotWhole`, none of whoever takes the pieces."""
    try:
        with path.open("rb") as file:
            for begin in range(0, size, piece_bytes):
                yield file.read(min(piece_bytes, size - begin))
    except OSError as error:
        raise _NotWhole(str(error)) from error


def _check_unchanged(folder: Path, state: FileState) -> None:
    path, size, mtime_ns = state
    status = (folder / path).stat()
    if (status.st_size, status.st_mtime_ns) != (size, mtime_ns):
        raise _NotWhole(f"{path} was written in place while it was uploaded")


def _commit(repo: Repository, checkpoint: Checkpoint, upload: _Upload) -> None:
    key = keys.checkpoint_manifest(checkpoint.job_id, checkpoint.epoch, checkpoint.sequence)
    try:
        repo.store.put(key, checkpoint.encode())
    except Ambiguous:
        raise  # it may be there, and then its parts must be
    except StoreError:
        upload.take_back()
        raise
