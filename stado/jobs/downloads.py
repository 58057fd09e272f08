"""Downloads of what a job left, into a folder of the user's.

A file gets its name when it has the size and the digest of the manifest, and not before; what is
already there and right is not fetched again, so that whoever was interrupted simply repeats the
command. What somebody else put there is never replaced.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from stado.core.documents import parse
from stado.core.output_paths import OutputPattern
from stado.core.records import LogAccount, Manifest, OutputFile
from stado.core.states import State
from stado.errors import (
    Ambiguous,
    Conflict,
    Denied,
    Misconfigured,
    NotFound,
    Refused,
    Unavailable,
    Unreadable,
)
from stado.jobs.folders import make_folder, remove_folder
from stado.jobs.job_log import copy_log
from stado.jobs.outputs import (
    LARGE_BYTES,
    LARGE_TRANSFERS,
    SMALL_TRANSFERS,
    find_present_manifest,
    safe_target,
    safe_targets,
)
from stado.jobs.repository import Repository

MANIFEST_NAME = "manifest.json"
LOG_NAME = "log.txt"
PARTIAL_NAME = ".stado-partial"
"""A folder beside the files while a download is not whole: half files, and the manifests by which
a later one knows what it may replace."""

_OWN_MANIFEST = re.compile(rf"(stado\.)*{re.escape(MANIFEST_NAME)}")
_OWN_PARTIAL = re.compile(rf"(stado)*{re.escape(PARTIAL_NAME)}")
_HASH_BYTES = 1024 * 1024
_HASHES_AT_ONCE = 4
_NAMED_MAX = 3


class Sight(Protocol):
    """Who looks on."""

    def begin(self, files: Sequence[OutputFile]) -> None:
        """What a job has, before anything of it is fetched."""
        ...

    def fetch(self, file: OutputFile, temporary: Path) -> None:
        """Its bytes come into this file from now on."""
        ...

    def have(self, file: OutputFile) -> None:
        """It is there, whole."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which of a job's files, and under which names."""

    only: Sequence[str] = ()
    """Patterns of paths; none: all, and the log."""
    below: str = ""
    """A folder of the output whose content goes right into the user's folder."""
    sight: Sight | None = None

    @property
    def log(self) -> bool:
        return not self.only and not self.below

    def files(self, manifest: Manifest) -> list[OutputFile]:
        patterns = list(map(OutputPattern, self.only))
        return [
            file
            for file in manifest.files
            if file.path.startswith(self.below)
            and (not patterns or any(pattern.matches(file.path) for pattern in patterns))
        ]


ALL = Wanted()


@dataclass(frozen=True, slots=True)
class Downloaded:
    """What is in the folder now. `manifest` is the job's, `files` those that were wanted."""

    manifest: Manifest
    files: list[OutputFile]
    fetched: int
    """How many of them were not there before."""


def download(
    repo: Repository,
    *,
    job_id: str,
    epoch: int,
    folder: Path,
    state: State = State.COMPLETED,
    wanted: Wanted = ALL,
) -> Downloaded:
    """Makes a folder hold the files, the log and the manifest of a job, or what is wanted of it.
    What the manifest there says of the log is what is in that log. Of a cancelled job recordings
    are passed over.

    The folder is made; one that holds anything but a download of this job is refused, and so is
    a file in it that no download put there as it is: then nothing is changed. Raises `Refused`,
    `Conflict` (a file is not what the manifest says), what the store raises, `OSError`. A crash
    leaves whole files, and a folder of half ones, with which the next call goes on."""
    manifest = find_present_manifest(repo, job_id, epoch, state)
    if manifest is None:
        partial = state is not State.COMPLETED
        manifest = Manifest(job_id=job_id, epoch=epoch, partial=partial, files=[])
    files = wanted.files(manifest)
    if not files and not wanted.log:
        raise Refused("output_unknown", f"job {job_id} left no such file")
    return _Download(repo, manifest, files, folder, wanted).run(epoch)


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


class _Download:
    """One job's, into one folder."""

    def __init__(
        self,
        repo: Repository,
        manifest: Manifest,
        files: list[OutputFile],
        folder: Path,
        wanted: Wanted,
    ) -> None:
        self._repo = repo
        self._manifest = manifest
        self._files = files
        self._folder = folder
        self._wanted = wanted
        names = [file.path.removeprefix(wanted.below) for file in files]
        check_folder(folder, manifest.job_id)
        places = safe_targets(folder, names)
        self._targets = {file.path: places[name] for file, name in zip(files, names, strict=True)}
        self._taken = {
            PurePosixPath(file.path.removeprefix(wanted.below)).parts[0]
            for file in manifest.files
            if file.path.startswith(wanted.below)
        }
        """Also by what is not wanted now: it may be there from another time."""
        self._partial = safe_target(folder, _own_name(PARTIAL_NAME, "stado", self._taken))
        self._token = repo.entropy.token()
        self._failed = False

    def run(self, epoch: int) -> Downloaded:
        """`epoch`: of the job, whose log may be of a later one than its files."""
        missing = self._missing()
        make_folder(self._partial)
        self._put(self._partial / f"{self._manifest.epoch}.json", self._manifest)
        self._fetch_all(missing)
        manifest = self._manifest
        if self._wanted.log:
            manifest = manifest.evolve(log=self._fetch_log(epoch))
        self._put(self._folder / self._own_name(MANIFEST_NAME), manifest)
        remove_folder(self._partial)
        return Downloaded(manifest, self._files, len(missing))

    def _missing(self) -> list[OutputFile]:
        """What has to be fetched. Raises `Refused` when something else has its name."""
        sight = self._wanted.sight
        if sight is not None:
            sight.begin(self._files)
        earlier = list(_manifests_in(self._folder)) if self._folder.is_dir() else []
        digests = _digests_of(earlier, self._manifest.job_id)
        there = [file for file in self._files if self._targets[file.path].exists()]
        found = self._repo.tasks.map(
            lambda file: _digest(self._targets[file.path]), there, limit=_HASHES_AT_ONCE
        )
        right = set()
        foreign = []
        for file, digest in zip(there, found, strict=True):
            if digest == (file.size, file.sha256):
                right.add(file.path)
                self._tell_of(file)
            elif digest not in digests.get(file.path, ()):
                foreign.append(str(self._targets[file.path]))
        _refuse_foreign(foreign)
        return [file for file in self._files if file.path not in right]

    def _fetch_all(self, files: list[OutputFile]) -> None:
        small = [file for file in files if file.size < LARGE_BYTES]
        large = [file for file in files if file.size >= LARGE_BYTES]
        self._repo.tasks.map(self._fetch_unless_failed, small, limit=SMALL_TRANSFERS)
        self._repo.tasks.map(self._fetch_unless_failed, large, limit=LARGE_TRANSFERS)

    def _fetch_unless_failed(self, file: OutputFile) -> None:
        """Once the store or the disk has failed, which ends the call, nothing more is begun: each
        file would wait for it as long. One that is missing or damaged costs none of the others."""
        if self._failed:
            return
        try:
            self._fetch(file)
        except (Unavailable, Ambiguous, Denied, Misconfigured, OSError):
            self._failed = True
            raise

    def _fetch(self, file: OutputFile) -> None:
        name = hashlib.sha256(file.key.encode()).hexdigest()[:24]
        temporary = self._partial / f"{name}.{self._token}"
        if self._wanted.sight is not None:
            self._wanted.sight.fetch(file, temporary)
        try:
            digest = self._repo.store.download(file.key, temporary)
            if (digest.size, digest.sha256) != (file.size, file.sha256):
                raise Conflict(
                    file.key,
                    f"{file.path} has {digest.size} bytes, SHA-256 {digest.sha256}; "
                    f"the manifest says {file.size}, {file.sha256}",
                )
            target = self._targets[file.path]
            make_folder(target.parent)
            os.replace(temporary, target)
        except NotFound:
            why = f"{file.path} is missing, though the manifest names it"
            raise Conflict(file.key, why) from None
        finally:
            temporary.unlink(missing_ok=True)
        self._tell_of(file)

    def _tell_of(self, whole: OutputFile) -> None:
        if self._wanted.sight is not None:
            self._wanted.sight.have(whole)

    def _fetch_log(self, epoch: int) -> LogAccount:
        temporary = self._partial / f"log.{self._token}"
        with temporary.open("wb") as file:
            account = copy_log(self._repo, self._manifest.job_id, epoch, file)
        os.replace(temporary, self._folder / self._own_name(LOG_NAME))
        return account

    def _put(self, path: Path, manifest: Manifest) -> None:
        temporary = self._partial / f"manifest.{self._token}"
        temporary.write_bytes(manifest.encode())
        os.replace(temporary, path)

    def _own_name(self, name: str) -> str:
        return _own_name(name, "stado.", self._taken)


def _own_name(name: str, prefix: str, taken: set[str]) -> str:
    """Our own files step aside for a job's output of the same name."""
    while name in taken:
        name = prefix + name
    return name


def _manifests_in(folder: Path) -> Iterator[Manifest]:
    """Those that downloads left, whole ones and others."""
    for name in sorted(os.listdir(folder)):
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


def _digests_of(manifests: Sequence[Manifest], job_id: str) -> dict[str, set[tuple[int, str]]]:
    """By path, what downloads of the job may have put there."""
    found: dict[str, set[tuple[int, str]]] = {}
    for manifest in manifests:
        if manifest.job_id == job_id:
            for file in manifest.files:
                found.setdefault(file.path, set()).add((file.size, file.sha256))
    return found


def _digest(path: Path) -> tuple[int, str]:
    """Of a regular file; of anything else one that nothing has."""
    if not path.is_file():
        return (-1, "")
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_HASH_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


def _refuse_foreign(foreign: list[str]) -> None:
    if foreign:
        named = ", ".join(foreign[:_NAMED_MAX])
        more = f" and {len(foreign) - _NAMED_MAX:,} more" if len(foreign) > _NAMED_MAX else ""
        raise Refused(
            "results_file_changed",
            f"{named}{more}: not as the job left it, and would be replaced: move it away, or name "
            "another folder",
        )
