"""What a job leaves: files below its epoch's own keys, committed by one manifest.

A download is checked against the manifest's sizes and digests before it gets its name.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from stado.core import keys
from stado.core.documents import parse
from stado.core.records import LogAccount, Manifest, OutputFile
from stado.errors import (
    Ambiguous,
    Conflict,
    Denied,
    Misconfigured,
    NotFound,
    Refused,
    StoreError,
    Unavailable,
    Unreadable,
)
from stado.jobs.folders import make_folder, remove_folder, walk_files
from stado.jobs.job_log import copy_log
from stado.jobs.repository import Repository

_PARALLEL_TRANSFERS = 4
_NAME_BYTES_MAX = 255
_PATH_BYTES_MAX = 4095
"""What Linux takes (NAME_MAX; PATH_MAX without its last zero)."""

MANIFEST_NAME = "manifest.json"
LOG_NAME = "log.txt"
_OWN_MANIFEST = re.compile(rf"(stado\.)*{re.escape(MANIFEST_NAME)}")


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """What a folder holds: regular files to take, and what is left out and why."""

    files: list[str]
    skipped: list[str]


def local_files(folder: Path) -> LocalFiles:
    """The regular files below a folder, as relative paths in order. Links are not followed: a
    link could name anything on the host. What vanishes meanwhile was never there; what cannot be
    looked at is left out."""
    files: list[str] = []
    skipped: list[str] = []

    def leave_out(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            name = Path(error.filename).relative_to(folder).as_posix()
            skipped.append(f"{_as_text(name)}: it cannot be read: {error.strerror}")

    for path, mode in walk_files(folder, leave_out):
        name = path.relative_to(folder).as_posix()
        if not _is_text(name):
            skipped.append(f"{_as_text(name)}: its name is not UTF-8")
        elif stat.S_ISREG(mode):
            files.append(name)
        else:
            skipped.append(f"{name}: not a regular file")
    return LocalFiles(sorted(files), sorted(skipped))


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

    def publish(self, *, partial: bool, log: LogAccount | None = None) -> Manifest | None:
        """Uploads what the folder holds, then commits it by the manifest; None when it is empty
        and nothing of the log was dropped either.

        A file that cannot be read is left out and named: it is the user's, and the rest is
        wanted. An error of the store is raised, and the call may be repeated. A crash between
        leaves files without a manifest: nobody sees them."""
        found = local_files(self._folder)
        if not found.files and not found.skipped and (log is None or not log.dropped):
            return None
        self._store_failed = False
        taken = self._repo.tasks.map(self._take, found.files, limit=_PARALLEL_TRANSFERS)
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


def download(
    repo: Repository, *, job_id: str, epoch: int, folder: Path, partial: bool = False
) -> Manifest:
    """Fetches the files, the log and the manifest of a job into a folder. What the manifest says
    of the log is what is in that log. `partial` is for a job that left no manifest: whether it
    did not succeed.

    The folder is made; one that holds anything but an earlier download of this job is refused,
    and nothing is changed. Each file gets its name only when its digest is right. Raises
    `Refused`, `Conflict` (a file is not what the manifest says). A crash leaves a folder
    `.stado-<token>` in there, which anybody may remove."""
    manifest = newest_manifest(repo, job_id, up_to_epoch=epoch)
    if manifest is None:
        manifest = Manifest(job_id=job_id, epoch=epoch, partial=partial, files=[])
    check_folder(folder, job_id)
    targets = safe_targets(folder, [file.path for file in manifest.files])
    make_folder(folder)
    with _temporary_folder(repo, folder) as temporary:
        own = temporary / "own"
        own.write_bytes(manifest.encode())
        os.replace(own, folder / _own_name(MANIFEST_NAME, manifest))

        _fetch_files(repo, manifest.files, temporary, targets)
        account = _fetch_log(repo, job_id, epoch, own)
        os.replace(own, folder / _own_name(LOG_NAME, manifest))
        manifest = manifest.evolve(log=account)
        own.write_bytes(manifest.encode())
        os.replace(own, folder / _own_name(MANIFEST_NAME, manifest))
    return manifest


def check_folder(folder: Path, job_id: str) -> None:
    """Raises `Refused` unless the folder is absent, empty, or an earlier download of the job."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise Refused("results_not_a_folder", f"{folder} is a file: name a folder")
    names = sorted(os.listdir(folder))
    if names and not _holds_download_of(folder, job_id):
        raise Refused(
            "results_folder_not_empty",
            f"{folder} holds other files ({names[0]!r}, {len(names)} in all): "
            "name a new or an empty folder",
        )


def _holds_download_of(folder: Path, job_id: str) -> bool:
    for name in filter(_OWN_MANIFEST.fullmatch, os.listdir(folder)):
        try:
            manifest = parse(Manifest, name, (folder / name).read_bytes())
        except (OSError, Unreadable):
            continue
        if manifest.job_id == job_id:
            return True
    return False


def _own_name(name: str, manifest: Manifest) -> str:
    """Our own files step aside for a job's output of the same name."""
    taken = {PurePosixPath(file.path).parts[0] for file in manifest.files}
    while name in taken:
        name = f"stado.{name}"
    return name


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


@contextmanager
def _temporary_folder(repo: Repository, folder: Path) -> Iterator[Path]:
    """A place for half files, under names that no output can have and every system can hold."""
    temporary = folder / f".stado-{repo.entropy.token()}"
    temporary.mkdir()
    try:
        yield temporary
    finally:
        remove_folder(temporary)


def _fetch_files(
    repo: Repository, files: list[OutputFile], temporary: Path, targets: dict[str, Path]
) -> None:
    """Once the store or the disk has failed, which ends the call, nothing more is begun: each
    file would wait for it as long. A file that is missing or damaged costs none of the others."""
    failed = False

    def fetch(numbered: tuple[int, OutputFile]) -> None:
        nonlocal failed
        number, file = numbered
        if failed:
            return
        try:
            _fetch(repo, file, temporary / str(number), targets[file.path])
        except (Unavailable, Ambiguous, Denied, Misconfigured, OSError):
            failed = True
            raise

    repo.tasks.map(fetch, enumerate(files), limit=_PARALLEL_TRANSFERS)


def _fetch(repo: Repository, file: OutputFile, temporary: Path, target: Path) -> None:
    try:
        digest = repo.store.download(file.key, temporary)
    except NotFound:
        raise Conflict(file.key, f"{file.path} is missing, though the manifest names it") from None
    if (digest.size, digest.sha256) != (file.size, file.sha256):
        raise Conflict(
            file.key,
            f"{file.path} has {digest.size} bytes, SHA-256 {digest.sha256}; "
            f"the manifest says {file.size}, {file.sha256}",
        )
    make_folder(target.parent)
    os.replace(temporary, target)


def _fetch_log(repo: Repository, job_id: str, epoch: int, target: Path) -> LogAccount:
    with target.open("wb") as file:
        return copy_log(repo, job_id, epoch, file)


def _as_text(name: str) -> str:
    return name.encode("utf-8", "replace").decode()


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return "\n" not in name
