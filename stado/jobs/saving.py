"""Checkpoints on their way to the store: the folder as it is at one moment, what of it is new in
parts of at most 64 MB, then the manifest that commits them.

What is uploaded is a snapshot, so that a job may go on replacing its files meanwhile. Parts go up
one by one, so that a long upload shows as new names and takes bounded memory; what the job has
saved before is named again instead.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stado.core import keys, sidecar
from stado.core.moves import clip
from stado.core.records import Checkpoint, CheckpointFile, SaveRef
from stado.core.sidecar import CheckpointMeta, Sidecar
from stado.errors import Ambiguous, StoreError, Unreadable
from stado.jobs.checkpoints import PART_BYTES_MAX, ref_of
from stado.jobs.folders import make_folder, remove_folder
from stado.jobs.outputs import local_files
from stado.jobs.repository import Repository

log = logging.getLogger(__name__)

_MIB = 1024 * 1024
_PACED_PART_SECONDS = 4.0
_PACE_LOOK_SECONDS = 0.5

_UNREADABLE = (errno.EACCES, errno.EPERM, errno.EIO, errno.ENAMETOOLONG)

FileState = tuple[str, int, int]
"""Path, size, mtime in ns."""

Fingerprint = tuple[FileState, ...]
"""The state of each file: what tells a changed folder from the same one."""


@dataclass(frozen=True, slots=True)
class FolderSight:
    """A folder as it was seen."""

    states: Fingerprint = ()
    left_out: tuple[str, ...] = ()
    """What is no regular file, links above all, each with why."""
    unreadable: tuple[str, ...] = ()
    """What cannot be looked at, each with why: what is in it is not known."""


def look_at(folder: Path) -> FolderSight:
    """Files that vanish meanwhile were never there."""
    found = local_files(folder)
    states = []
    for path in found.files:
        try:
            status = (folder / path).stat()
        except OSError:
            continue
        states.append((path, status.st_size, status.st_mtime_ns))
    left_out = set(found.skipped).difference(found.unreadable)
    return FolderSight(tuple(states), tuple(sorted(left_out)), tuple(found.unreadable))


def fingerprint(folder: Path) -> Fingerprint:
    """The state of what can be looked at."""
    return look_at(folder).states


@dataclass(frozen=True, slots=True)
class Save:
    """A committed checkpoint of this job."""

    checkpoint: Checkpoint
    ref: SaveRef
    states: Fingerprint = ()
    """What its files look like on this host; empty where they are not here."""


@dataclass(frozen=True, slots=True)
class Past:
    """What came before a save: it decides what is new."""

    kept: Sequence[Save] = ()
    """The saves that stay in the store at least until the next one is committed; the newest
    last."""
    states: Fingerprint = ()
    """Of the folder when it was last saved, or restored."""
    best: SaveRef | None = None
    seen: Fingerprint | None = None
    """Of the folder as it was seen to stand still; None: nobody looked."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a host uploads. `between` is called after each part, and while it waits; what it raises
    ends the save."""

    part_bytes: int = PART_BYTES_MAX
    bytes_per_second: float | None = None
    between: Callable[[], None] | None = None

    @property
    def paced_part_bytes(self) -> int:
        """Small enough that one part does not fill the line for long: a power of two, so that the
        same host cuts files in the same places each time."""
        if self.bytes_per_second is None:
            return self.part_bytes
        wanted = max(_MIB, int(self.bytes_per_second * _PACED_PART_SECONDS))
        return min(self.part_bytes, 1 << (wanted.bit_length() - 1))


def save(
    repo: Repository,
    *,
    job_id: str,
    epoch: int,
    sequence: int,
    folder: Path,
    past: Past = Past(),
    manner: Manner = Manner(),
) -> Save:
    """Uploads a folder, as it is now, as a checkpoint. Raises `NotWhole`, with nothing committed,
    when a file was written in place before it was uploaded, when the folder is not as it was seen
    to stand still, or (`NotReadable`) when something in it cannot be read.

    After any failure but a manifest without an answer, the new parts are deleted as far as the
    store goes along. A crash leaves parts without a manifest, which nobody reads."""
    snapshot = folder.with_name(f"{folder.name}.saving")
    names = (keys.checkpoint_part(job_id, epoch, sequence, number) for number in itertools.count())
    upload = _Upload(repo, names, past, manner)
    try:
        states = _take_snapshot(folder, snapshot, past.seen)
        files = [upload.save(snapshot, state) for state in states]
        meta, invalid = _meta_of(snapshot, states, files, past)
        at = repo.now()
    except BaseException:
        upload.take_back()
        raise
    finally:
        remove_folder(snapshot)
    if invalid is not None:
        log.warning("event=checkpoint_meta_invalid job=%s epoch=%d why=%r", job_id, epoch, invalid)
    checkpoint = Checkpoint(
        job_id=job_id,
        epoch=epoch,
        sequence=sequence,
        at=at,
        files=files,
        meta=meta,
        meta_invalid=invalid,
        best=_other_best(meta, past.best),
    )
    return Save(checkpoint, _commit(repo, checkpoint, upload), states)


def _other_best(meta: CheckpointMeta | None, best: SaveRef | None) -> SaveRef | None:
    """The best save so far, unless that is the new one."""
    is_best = meta is not None and meta.is_better_than(best.meta if best is not None else None)
    return None if is_best else best


class NotWhole(Exception):
    """What was taken of the folder is not what was there at any one time, or nothing could be."""


class NotReadable(NotWhole):
    """Something in it cannot be read, and the next save would fare no better."""


def _take_snapshot(folder: Path, snapshot: Path, seen: Fingerprint | None) -> Fingerprint:
    """Gives the files of a folder second names in `snapshot`, and says what they hold. What is
    replaced in the folder from then on stays as it was in the snapshot. Raises `NotWhole`, also
    for what cannot be read: before anything is uploaded."""
    remove_folder(snapshot)
    before = look_at(folder)
    if before.unreadable:
        raise NotReadable(before.unreadable[0])
    if seen is not None and before.states != seen:
        raise NotWhole("the folder changed after it had stood still")
    for path, _, _ in before.states:
        _take_file(folder, snapshot, path)
    taken = fingerprint(snapshot)
    if fingerprint(folder) != before.states:
        raise NotWhole("the folder changed while a snapshot of it was taken")
    return taken


def _take_file(folder: Path, snapshot: Path, path: str) -> None:
    try:
        make_folder((snapshot / path).parent)
        _link_or_copy(folder / path, snapshot / path)
    except FileNotFoundError:
        raise NotWhole(f"{path} was removed while a snapshot of it was taken") from None
    except OSError as error:
        if error.errno in _UNREADABLE:
            raise _not_readable(path, error) from error
        raise NotWhole(f"no snapshot could be made: {error.strerror or error}") from error
    if not os.access(snapshot / path, os.R_OK, effective_ids=True):
        raise _not_readable(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def _not_readable(path: str, error: OSError) -> NotReadable:
    return NotReadable(f"{path}: it cannot be read: {error.strerror or error}")


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except (FileNotFoundError, FileExistsError):
        raise  # copying over what is there could write into a file of the job
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target, follow_symlinks=False)


class _Upload:
    """The parts of one save: what is new is put, one by one, and deleted when the save comes to
    nothing."""

    def __init__(self, repo: Repository, names: Iterator[str], past: Past, manner: Manner) -> None:
        self._repo = repo
        self._names = names
        self._manner = manner
        self._begun: list[str] = []
        self._unchanged = _unchanged_files(past.kept)
        self._known = {
            digest: part
            for kept in past.kept
            for file in kept.checkpoint.files
            for digest, part in zip(file.digests, file.parts, strict=False)
        }
        """Parts that stay in the store, by the digest of what they hold."""

    def save(self, folder: Path, state: FileState) -> CheckpointFile:
        """Raises `NotWhole` when the file is not, or no longer, in this state."""
        if state in self._unchanged:
            return self._unchanged[state]
        path, size, _ = state
        whole = hashlib.sha256()
        parts, digests = [], []
        for data in _read(folder, path, size, self._manner.paced_part_bytes):
            whole.update(data)
            digests.append(hashlib.sha256(data).hexdigest())
            parts.append(self._part(digests[-1], data))
        _check_unchanged(folder, state)
        return CheckpointFile(
            path=path, size=size, sha256=whole.hexdigest(), parts=parts, digests=digests
        )

    def take_back(self) -> None:
        """Best effort: parts that stay only take room. A store that is away is not asked again
        for each of them."""
        for key in self._begun:
            try:
                self._repo.store.delete(key, None)
            except StoreError as error:
                log.warning("event=checkpoint_parts_left key=%s error=%r", key, str(error))
                return

    def _part(self, digest: str, data: bytes) -> str:
        """The key of a part with this content."""
        if digest not in self._known:
            self._known[digest] = self._put(data)
        elif self._manner.between is not None:
            self._manner.between()
        return self._known[digest]

    def _put(self, data: bytes) -> str:
        key = next(self._names)
        self._begun.append(key)
        begun = self._repo.clock.monotonic()
        self._repo.store.put(key, data)
        if self._manner.between is not None:
            self._manner.between()
        if self._manner.bytes_per_second is not None:
            self._wait_until(begun + len(data) / self._manner.bytes_per_second)
        return key

    def _wait_until(self, due: float) -> None:
        clock = self._repo.clock
        while (left := due - clock.monotonic()) > 0:
            clock.sleep(min(left, _PACE_LOOK_SECONDS))
            if self._manner.between is not None:
                self._manner.between()


def _unchanged_files(kept: Sequence[Save]) -> dict[FileState, CheckpointFile]:
    """What the last save has of each file that was in this state then."""
    if not kept:
        return {}
    files = {file.path: file for file in kept[-1].checkpoint.files}
    return {state: files[state[0]] for state in kept[-1].states if state[0] in files}


def _read(folder: Path, path: str, size: int, piece_bytes: int) -> Iterator[bytes]:
    """No more than `size`, for a file can grow as fast as it is read. Only errors of the file
    itself become `NotReadable`, none of whoever takes the pieces."""
    try:
        with (folder / path).open("rb") as file:
            for begin in range(0, size, piece_bytes):
                yield file.read(min(piece_bytes, size - begin))
    except OSError as error:
        raise _not_readable(path, error) from error


def _check_unchanged(folder: Path, state: FileState) -> None:
    path, size, mtime_ns = state
    status = (folder / path).stat()
    if (status.st_size, status.st_mtime_ns) != (size, mtime_ns):
        raise NotWhole(f"{path} was written in place while it was uploaded")


def _meta_of(
    snapshot: Path, states: Fingerprint, files: Sequence[CheckpointFile], past: Past
) -> tuple[CheckpointMeta | None, str | None]:
    """What the sidecar says of this save; why it is not believed. One that was there before
    speaks for an earlier save."""
    state = next((state for state in states if state[0] == sidecar.NAME), None)
    if state is None or state in past.states:
        return None, None
    if state[1] > sidecar.BYTES_MAX:
        return None, f"it has {state[1]} bytes, and at most {sidecar.BYTES_MAX} are read"
    content = {file.path: file.sha256 for file in files}
    try:
        data = (snapshot / sidecar.NAME).read_bytes()
        if hashlib.sha256(data).hexdigest() != content[sidecar.NAME]:
            raise NotWhole(f"{sidecar.NAME} was written in place while it was read")
        said = sidecar.parse_sidecar(data)
    except OSError as error:
        raise _not_readable(sidecar.NAME, error) from error
    except Unreadable as error:
        return None, clip(error.why)
    return _believed(said, content)


def _believed(said: Sidecar, content: dict[str, str]) -> tuple[CheckpointMeta | None, str | None]:
    """A sidecar that came with other files than it speaks of belongs to another save."""
    for path, digest in said.files.items():
        if path not in content:
            return None, "it speaks of a file that is not there"
        if content[path] != digest:
            return None, clip(f"it speaks of a file {path!r} with another content")
    return said.meta, None


def _commit(repo: Repository, checkpoint: Checkpoint, upload: _Upload) -> SaveRef:
    data = checkpoint.encode()
    try:
        repo.store.put(checkpoint.own_key(), data)
    except Ambiguous:
        raise  # it may be there, and then its parts must be
    except StoreError:
        upload.take_back()
        raise
    return ref_of(checkpoint, data)
