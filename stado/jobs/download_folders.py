"""A folder of the user's that downloads of a job fill: which of its files they put there, and which
are somebody's own. What is somebody's own is never replaced and never removed.

Our own files, the manifest and the log, step aside for files of the job that have their names:
`log.txt` is the job's then, and `stado.log.txt` ours.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from stado.core.documents import parse
from stado.core.records import LogAccount, Manifest
from stado.errors import Refused, Unreadable
from stado.jobs.folders import folder_for
from stado.jobs.outputs import safe_target

MANIFEST_NAME = "manifest.json"
LOG_NAME = "log.txt"
PARTIAL_NAME = ".stado-partial"
"""A folder beside the files while a download is not whole: half files, and the manifests by which
a later one knows what it may replace."""

Digest = tuple[int, str]
"""Size and SHA-256."""

_OWN_MANIFEST = re.compile(rf"(stado\.)*{re.escape(MANIFEST_NAME)}")
_OWN_PARTIAL = re.compile(rf"(stado)*{re.escape(PARTIAL_NAME)}")
_LOCK_NAME = "lock"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_HASH_BYTES = 1024 * 1024


class OwnNames(NamedTuple):
    """What our files are called beside those of a manifest."""

    manifest: str
    log: str
    partial: str


class DownloadFolder:
    """A folder as earlier downloads of a job left it, for one of what a manifest names, or of what
    it names `below` a folder."""

    def __init__(self, path: Path, manifest: Manifest, *, below: str = "") -> None:
        """Raises `Refused` for a folder that holds anything but a download of the job."""
        check_folder(path, manifest.job_id)
        self._path = path
        self._below = below
        self._taken = _names_taken(manifest, below)
        names = _own_names(self._taken)
        self.manifest = path / names.manifest
        self.log = path / names.log
        self.partial = safe_target(path, names.partial)
        self._present = _digests([manifest])
        earlier = [one for one in _manifests_in(path) if one.job_id == manifest.job_id]
        self._earlier = _digests(earlier)
        self._manifests: set[Path] = set()
        self._logs: dict[Path, LogAccount] = {}
        """Places of our own files that earlier downloads wrote."""
        for one in earlier:
            self._note_ours(one)
        self._log_there = self._find_log()

    def put_there(self, path: str, found: Digest) -> bool:
        """Whether an earlier download gave this content to a path."""
        return found in self._earlier.get(path, ())

    def is_present(self, path: str, found: Digest) -> bool:
        """Whether the job has a path, with this content."""
        return found in self._present.get(path, ())

    def is_ours(self, place: Path) -> bool:
        """Whether it is a manifest or a log that an earlier download wrote."""
        return place in self._manifests or place in self._logs

    @property
    def log_has_other_name(self) -> bool:
        """Whether the log that is there has the name of then."""
        return self._log_there not in (None, self.log)

    @property
    def log_account(self) -> LogAccount | None:
        """Of the log that is there."""
        return self._logs[self._log_there] if self._log_there is not None else None

    def rename_log(self) -> None:
        """To what it is called now."""
        if self._log_there is not None and self.log_has_other_name:
            os.replace(self._log_there, self.log)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Makes the folder, and holds its lock, which ends with its holder: two that fill it would
        take each other's half files. Raises `Refused` when another holds it, `OSError`."""
        with folder_for(self.partial):
            descriptor = os.open(self.partial / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            try:
                self._check_alone(descriptor)
                try:
                    yield
                finally:
                    if _is_linked(descriptor):
                        (self.partial / _LOCK_NAME).unlink()
            finally:
                os.close(descriptor)

    def _check_alone(self, descriptor: int) -> None:
        if not _try_lock(descriptor):
            raise Refused(
                "results_folder_busy",
                f"another download fills {self._path} just now: wait for its end, or name another "
                "folder",
            )

    def outdated(self, *, but: Collection[Path]) -> list[tuple[str, Path]]:
        """Files by their paths that may be of an earlier epoch; `but` not those in these places."""
        found = []
        kept = set(_identities(but))
        for path, digests in self._earlier.items():
            if not path.startswith(self._below) or digests == self._present.get(path):
                continue
            with suppress(Refused):
                place = safe_target(self._path, path.removeprefix(self._below))
                if place in but or not place.is_file() or place.is_symlink():
                    continue
                if kept.isdisjoint(_identities([place])):  # a disk may not tell `A` from `a`
                    found.append((path, place))
        return found

    def above(self, place: Path) -> Sequence[Path]:
        """The folders that it is in, below this one."""
        return place.parents[: len(place.relative_to(self._path).parts) - 1]

    def remove(self, stale: Sequence[Path]) -> None:
        """With folders that are empty then. A crash between leaves some, which the next download
        removes."""
        for place in stale:
            place.unlink(missing_ok=True)
            with suppress(OSError):
                for parent in self.above(place):
                    parent.rmdir()

    def remove_ours_of_then(self) -> None:
        """Where our own files have other names now. Until the new ones are there, the manifest of
        then says what may be replaced."""
        for place in (self._manifests | self._logs.keys()) - {self.manifest, self.log}:
            if place.name not in self._taken:
                place.unlink(missing_ok=True)

    def _note_ours(self, earlier: Manifest) -> None:
        """In the folder a manifest tells of a log when there is one beside it."""
        names = _own_names(_names_taken(earlier, self._below))
        self._manifests.add(self._path / names.manifest)
        if earlier.log is not None:
            self._logs[self._path / names.log] = earlier.log

    def _find_log(self) -> Path | None:
        there = [place for place in self._logs if place.is_file()]
        return self.log if self.log in there else next(iter(there), None)


def check_folder(folder: Path, job_id: str) -> None:
    """Raises `Refused` unless the folder is absent, empty, or a download of the job."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise Refused("results_not_a_folder", f"{folder} is a file: name a folder")
    names = sorted(os.listdir(folder))
    if names and not any(one.job_id == job_id for one in _manifests_in(folder)):
        raise Refused(
            "results_folder_not_empty",
            f"{folder} holds other files ({names[0]!r}, {len(names)} in all): "
            "name a new or an empty folder",
        )


def digest_at(path: Path) -> Digest:
    """Of a regular file; of anything else one that nothing has."""
    if not path.is_file():
        return (-1, "")
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_HASH_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


def _try_lock(descriptor: int) -> bool:
    """False also when its holder has removed it meanwhile. A disk that has no locks goes
    without."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return _is_linked(descriptor)


def _is_linked(descriptor: int) -> bool:
    return os.fstat(descriptor).st_nlink > 0


def _identities(places: Iterable[Path]) -> Iterator[tuple[int, int]]:
    """Of those that are there."""
    for place in places:
        with suppress(OSError):
            found = place.stat()
            yield found.st_dev, found.st_ino


def _digests(manifests: Sequence[Manifest]) -> dict[str, set[Digest]]:
    """By path."""
    found: dict[str, set[Digest]] = {}
    for manifest in manifests:
        for file in manifest.files:
            found.setdefault(file.path, set()).add((file.size, file.sha256))
    return found


def _names_taken(manifest: Manifest, below: str) -> set[str]:
    """At the top of the folder, also by files that were not wanted."""
    paths = (file.path for file in manifest.files if file.path.startswith(below))
    return {name for path in paths for name in PurePosixPath(path.removeprefix(below)).parts[:1]}


def _own_names(taken: set[str]) -> OwnNames:
    return OwnNames(
        manifest=_own_name(MANIFEST_NAME, "stado.", taken),
        log=_own_name(LOG_NAME, "stado.", taken),
        partial=_own_name(PARTIAL_NAME, "stado", taken),
    )


def _own_name(name: str, prefix: str, taken: set[str]) -> str:
    while name in taken:
        name = prefix + name
    return name


def _manifests_in(folder: Path) -> Iterator[Manifest]:
    """Those that downloads left, whole ones and others."""
    for name in sorted(os.listdir(folder)) if folder.is_dir() else []:
        path = folder / name
        if _OWN_MANIFEST.fullmatch(name):
            yield from _read(path)
        elif _OWN_PARTIAL.fullmatch(name) and path.is_dir():
            for inner in sorted(path.glob("*.json")):
                yield from _read(inner)


def _read(path: Path) -> Iterator[Manifest]:
    try:
        yield parse(Manifest, path.name, path.read_bytes())
    except (OSError, Unreadable):
        return
