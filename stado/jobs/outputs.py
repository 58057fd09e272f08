"""What a job leaves: files below its epoch's own keys, committed by one manifest."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from stado.core import keys
from stado.core.output_paths import RECORDINGS_FOLDER, OutputPattern, is_recording
from stado.core.records import LogAccount, Manifest, OutputFile
from stado.core.states import State
from stado.errors import Refused, StoreError
from stado.jobs.folders import walk_files
from stado.jobs.repository import Repository

SMALL_TRANSFERS = 16
LARGE_TRANSFERS = 3
LARGE_BYTES = 4 * 1024 * 1024
"""From here on a file is transferred in pieces at once (`stado.storage`), each of which takes
memory and a connection."""

RECORDINGS_DROPPED = "recordings of a cancelled job are dropped"
_NAME_BYTES_MAX = 255
_PATH_BYTES_MAX = 4095
"""What Linux takes (NAME_MAX; PATH_MAX without its last zero)."""


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """What a folder holds: regular files to take, and what is left out and why."""

    files: list[str]
    skipped: list[str]
    unreadable: list[str] = field(default_factory=list)
    """Those of the skipped that cannot be looked at."""


def local_files(folder: Path) -> LocalFiles:
    """The regular files below a folder, as relative paths in order. Links are not followed: a
    link could name anything on the host. What vanishes meanwhile was never there; what cannot be
    looked at is left out."""
    files: list[str] = []
    skipped: list[str] = []
    unreadable: list[str] = []

    def leave_out(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            name = Path(error.filename).relative_to(folder).as_posix()
            unreadable.append(f"{_as_text(name)}: it cannot be read: {error.strerror}")

    for path, mode in walk_files(folder, leave_out):
        name = path.relative_to(folder).as_posix()
        if not _is_text(name):
            skipped.append(f"{_as_text(name)}: its name is not UTF-8")
        elif stat.S_ISREG(mode):
            files.append(name)
        else:
            skipped.append(f"{name}: not a regular file")
    return LocalFiles(sorted(files), sorted([*skipped, *unreadable]), sorted(unreadable))


def missing_outputs(folder: Path, patterns: Sequence[str]) -> list[str]:
    """Those of the patterns that name no file which could be delivered, each with what is there
    instead."""
    if not patterns:
        return []
    found = local_files(folder)
    readable = [path for path in found.files if os.access(folder / path, os.R_OK)]
    missing = []
    for pattern in map(OutputPattern, patterns):
        if not any(map(pattern.matches, readable)):
            skipped = (line for line in found.skipped if pattern.matches(line.partition(": ")[0]))
            why = next(skipped, None)
            missing.append(f"{pattern.text!r}" + (f" ({why})" if why else ""))
    return missing


class OutputPublisher:
    """One epoch's output, published in as many calls as the store makes necessary: what a call
    has uploaded, the next one does not upload again unless the file has changed since."""

    def __init__(self, repo: Repository, *, job_id: str, epoch: int, folder: Path) -> None:
        self._repo = repo
        self._job_id = job_id
        self._epoch = epoch
        self._folder = folder
        self._uploaded: dict[tuple[str, int, int], OutputFile] = {}
        """By path, size and mtime in ns."""
        self._store_failed = False

    def publish(
        self, *, partial: bool, log: LogAccount | None = None, recordings: bool = True
    ) -> Manifest | None:
        """Uploads what the folder holds, then commits it by the manifest; None when it is empty
        and nothing of the log was dropped either. Without `recordings` these are left out.

        A file that cannot be read is left out and named: it is the user's, and the rest is
        wanted. An error of the store is raised, and the call may be repeated. A crash between
        leaves files without a manifest: nobody sees them."""
        found = local_files(self._folder)
        if not recordings:
            found = _without_recordings(found)
        if not found.files and not found.skipped and (log is None or not log.dropped):
            return None
        self._store_failed = False
        taken = self._take_all(found.files)
        manifest = Manifest(
            job_id=self._job_id,
            epoch=self._epoch,
            partial=partial,
            files=[file for file in taken if isinstance(file, OutputFile)],
            skipped=sorted([*found.skipped, *(why for why in taken if isinstance(why, str))]),
            log=log,
        )
        key = keys.output_manifest(self._job_id, self._epoch)
        self._repo.store.put(key, manifest.encode())
        return manifest

    def _take_all(self, paths: list[str]) -> list[OutputFile | str]:
        """In the order of the paths."""
        sizes = {path: _size_of(self._folder / path) for path in paths}
        small = [path for path in paths if sizes[path] < LARGE_BYTES]
        large = [path for path in paths if sizes[path] >= LARGE_BYTES]
        tasks = self._repo.tasks
        taken = dict(zip(small, tasks.map(self._take, small, limit=SMALL_TRANSFERS), strict=True))
        taken |= zip(large, tasks.map(self._take, large, limit=LARGE_TRANSFERS), strict=True)
        return [taken[path] for path in paths]

    def _take(self, path: str) -> OutputFile | str:
        """The uploaded file, or why it is left out. Once the store has failed, which ends the
        call, nothing more is begun: each upload would wait for it as long."""
        if self._store_failed:
            return f"{path}: not begun"
        try:
            return self._upload(path)
        except OSError as error:
            return f"{path}: it cannot be read: {error.strerror or error}"
        except StoreError:
            self._store_failed = True
            raise

    def _upload(self, path: str) -> OutputFile:
        status = (self._folder / path).stat()
        state = (path, status.st_size, status.st_mtime_ns)
        if state not in self._uploaded:
            key = keys.output_file(self._job_id, self._epoch, path)
            digest = self._repo.store.upload(key, self._folder / path)
            self._uploaded[state] = OutputFile(
                path=path, key=key, size=digest.size, sha256=digest.sha256
            )
        return self._uploaded[state]


def publish(
    repo: Repository, *, job_id: str, epoch: int, folder: Path, partial: bool
) -> Manifest | None:
    """In one call, for whom a failure is the end of it."""
    publisher = OutputPublisher(repo, job_id=job_id, epoch=epoch, folder=folder)
    return publisher.publish(partial=partial)


def find_manifest(repo: Repository, job_id: str, epoch: int) -> Manifest | None:
    found = repo.find(Manifest, keys.output_manifest(job_id, epoch))
    return found.value if found else None


def newest_manifest(repo: Repository, job_id: str, *, up_to_epoch: int) -> Manifest | None:
    """The newest epoch's that left files; one that tells of its log alone does not hide them."""
    newest = None
    for epoch in range(up_to_epoch, 0, -1):
        manifest = find_manifest(repo, job_id, epoch)
        if manifest is not None and (manifest.files or manifest.skipped):
            return manifest
        newest = newest or manifest
    return newest


def find_present_manifest(
    repo: Repository, job_id: str, epoch: int, state: State
) -> Manifest | None:
    """What a job left, as people are shown it: of one that has completed in its last epoch alone,
    for what an earlier one left is of a try that failed; of one that was cancelled without
    recordings, also where an earlier epoch had delivered some."""
    if state is State.COMPLETED:
        own = find_manifest(repo, job_id, epoch)
        return own if own is not None and not own.partial else None
    manifest = newest_manifest(repo, job_id, up_to_epoch=epoch)
    if manifest is None or state is not State.CANCELLED:
        return manifest
    kept = [file for file in manifest.files if not is_recording(file.path)]
    return manifest.evolve(files=kept)


def safe_targets(folder: Path, paths: Sequence[str]) -> dict[str, Path]:
    """Where each path of a manifest goes. Raises `Refused` as `safe_target` does, and when two of
    them cannot both be there."""
    targets = {path: safe_target(folder, path) for path in paths}
    places = set(targets.values())
    if len(places) < len(paths):
        raise Refused("manifest_paths_clash", "the manifest names a file twice: refused")
    for path, target in targets.items():
        if any(parent in places for parent in target.parents):
            raise Refused(
                "manifest_paths_clash", f"the manifest names {path!r} below another file: refused"
            )
    return targets


def safe_target(folder: Path, path: str) -> Path:
    """Where a manifest's path goes. Manifests come from the bucket: a path that leaves the
    folder is refused, and so is one that only another system could hold. Raises `Refused`."""
    pure = PurePosixPath(path)
    parts = pure.parts
    if not parts or pure.is_absolute() or ".." in parts or "\0" in path:
        raise Refused("manifest_path_unsafe", f"the manifest names {path!r}: refused")
    target = folder.joinpath(*parts)
    _check_length(target, path)
    for parent in [target, *target.parents]:
        if parent == folder:
            break
        if parent.is_symlink():
            raise Refused(
                "manifest_path_unsafe", f"{parent} is a link: refused to write through it"
            )
    return target


def _check_length(target: Path, path: str) -> None:
    name_bytes = max(len(os.fsencode(part)) for part in target.parts)
    if name_bytes > _NAME_BYTES_MAX or len(os.fsencode(target)) > _PATH_BYTES_MAX:
        raise Refused(
            "manifest_path_too_long",
            f"no file system here can hold {path!r}: a name has at most {_NAME_BYTES_MAX} bytes, "
            f"a path {_PATH_BYTES_MAX}; read it from the store, under the key in its manifest",
        )


def _without_recordings(found: LocalFiles) -> LocalFiles:
    """How many there were is told, not which."""
    files = [path for path in found.files if not is_recording(path)]
    skipped = [line for line in found.skipped if not is_recording(line)]
    dropped = len(found.files) - len(files)
    if dropped:
        skipped.append(f"{RECORDINGS_FOLDER}/: {dropped} of its files: {RECORDINGS_DROPPED}")
    return LocalFiles(files, sorted(skipped))


def left_out(skipped: Iterable[str]) -> list[str]:
    """Of what a manifest says that it lacks, what somebody may miss."""
    return [line for line in skipped if not line.endswith(RECORDINGS_DROPPED)]


def _size_of(path: Path) -> int:
    """0 for what is gone by now: whoever takes it finds out."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _as_text(name: str) -> str:
    return name.encode("utf-8", "replace").decode()


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
