"""Downloads of what a job left, into a folder of the user's.

A file gets its name when it has the size and the digest of the manifest, and not before; what is
already there and right is not fetched again, so that whoever was interrupted simply repeats the
command. What an earlier epoch left goes, and what somebody else put there is never replaced.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

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
)
from stado.jobs.download_folders import Digest, DownloadFolder, digest_at
from stado.jobs.folders import make_folder, remove_folder, walk_files
from stado.jobs.half_files import HalfFile
from stado.jobs.job_log import copy_log
from stado.jobs.outputs import (
    LARGE_BYTES,
    LARGE_TRANSFERS,
    SMALL_TRANSFERS,
    find_present_manifest,
    safe_targets,
)
from stado.jobs.repository import Repository

Item = TypeVar("Item")

_HASHES_AT_ONCE = 4
_RESUMED_AT_ONCE = 2
"""One is fetched while another one's digest is taken."""

_PIECES_AT_ONCE = 5
_NAMED_MAX = 3

RESUMED_BYTES = 32 * 1024 * 1024
"""From here on a file that was interrupted goes on where it was."""


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
    removed: int
    """How many files of an earlier epoch went, which the job does not have any more."""
    changed: list[Path]
    """Such files that somebody has changed: they stay."""


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
    a file in it that would be replaced and that no download put there as it is: then nothing is
    changed. So is one that another call fills just now. What an earlier epoch left there goes,
    unless it was changed. Raises `Refused`,
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
        self._wanted = wanted
        self._folder = DownloadFolder(folder, manifest, below=wanted.below)
        names = [file.path.removeprefix(wanted.below) for file in files]
        places = safe_targets(folder, names)
        self._targets = {file.path: places[name] for file, name in zip(files, names, strict=True)}
        self._token = repo.entropy.token()
        self._failed = False

    def run(self, epoch: int) -> Downloaded:
        """`epoch`: of the job, whose log may be of a later one than its files."""
        stale, changed = self._look_for_outdated()
        missing, foreign = self._look(set(stale))
        above = self._files_above_targets(set(stale))
        _refuse_foreign([*foreign, *above, *self._foreign_in_our_places(stale)])
        with self._folder.alone():
            return self._fill(epoch, missing, stale, changed)

    def _fill(
        self, epoch: int, missing: list[OutputFile], stale: list[Path], changed: list[Path]
    ) -> Downloaded:
        folder, manifest = self._folder, self._manifest
        self._put_partial(None if folder.log_has_other_name else folder.log_account)
        folder.remove(stale)
        _refuse_foreign([place for place in self._targets.values() if place.is_dir()])
        if not self._wanted.log:
            self._keep_log()
        self._fetch_all(missing)
        account = self._fetch_log(epoch) if self._wanted.log else folder.log_account
        self._put(folder.manifest, manifest.evolve(log=account))
        folder.remove_ours_of_then()
        remove_folder(folder.partial)
        return Downloaded(
            manifest.evolve(log=account) if self._wanted.log else manifest,
            self._files,
            fetched=len(missing),
            removed=len(stale),
            changed=changed,
        )

    def _look(self, stale: set[Path]) -> tuple[list[OutputFile], list[Path]]:
        """What has to be fetched, and in the way of which of it something lies that no download
        put there. A folder of what is stale goes with it."""
        if self._wanted.sight is not None:
            self._wanted.sight.begin(self._files)
        there = [file for file in self._files if self._targets[file.path].exists()]
        right = set()
        foreign = []
        for file, digest in self._digests(there, lambda file: self._targets[file.path]):
            place = self._targets[file.path]
            if digest == (file.size, file.sha256):
                right.add(file.path)
                self._tell_of(file)
            elif not (
                self._folder.put_there(file.path, digest)
                or self._folder.is_ours(place)
                or _holds_only(place, stale)
            ):
                foreign.append(place)
        return [file for file in self._files if file.path not in right], foreign

    def _files_above_targets(self, stale: set[Path]) -> list[Path]:
        """What stays, where a folder has to be."""
        targets = self._targets.values()
        folders = {place for target in targets for place in self._folder.above(target)}
        return sorted(
            place
            for place in folders - stale
            if not place.is_dir() and (place.exists() or place.is_symlink())
        )

    def _look_for_outdated(self) -> tuple[list[Path], list[Path]]:
        """What earlier downloads put there and the job does not have any more: what is as it was
        then, and what somebody has changed."""
        stale: list[Path] = []
        changed: list[Path] = []
        outdated = self._folder.outdated(but=set(self._targets.values()))
        for (path, place), digest in self._digests(outdated, lambda one: one[1]):
            if not self._folder.is_present(path, digest):
                (stale if self._folder.put_there(path, digest) else changed).append(place)
        return stale, changed

    def _foreign_in_our_places(self, stale: list[Path]) -> list[Path]:
        with_log = self._wanted.log or self._folder.log_has_other_name
        places = [self._folder.manifest, *([self._folder.log] if with_log else [])]
        return [
            place
            for place in places
            if place.exists() and not self._folder.is_ours(place) and place not in stale
        ]

    def _digests(
        self, items: list[Item], place_of: Callable[[Item], Path]
    ) -> Iterator[tuple[Item, Digest]]:
        found = self._repo.tasks.map(
            lambda item: digest_at(place_of(item)), items, limit=_HASHES_AT_ONCE
        )
        return zip(items, found, strict=True)

    def _fetch_all(self, files: list[OutputFile]) -> None:
        """The small ones first. One that is missing or damaged costs none of the others."""
        small = [file for file in files if file.size < LARGE_BYTES]
        large = [file for file in files if LARGE_BYTES <= file.size < RESUMED_BYTES]
        resumed = [file for file in files if file.size >= RESUMED_BYTES]
        damages = [
            *self._fetch_group(small, at_once=SMALL_TRANSFERS),
            *self._fetch_group(large, at_once=LARGE_TRANSFERS),
            *self._fetch_group(resumed, at_once=_RESUMED_AT_ONCE),
        ]
        if damages:
            raise damages[0]

    def _fetch_group(self, files: list[OutputFile], *, at_once: int) -> list[Conflict]:
        def fetch(file: OutputFile) -> Conflict | None:
            try:
                self._unless_failed(lambda: self._fetch(file))
            except Conflict as error:
                return error
            return None

        found = self._repo.tasks.map(fetch, files, limit=at_once)
        return [error for error in found if error is not None]

    def _unless_failed(self, work: Callable[[], None]) -> None:
        """Once the store or the disk has failed, which ends the call, nothing more is begun: each
        file would wait for it as long."""
        if self._failed:
            return
        try:
            work()
        except (Unavailable, Ambiguous, Denied, Misconfigured, OSError):
            self._failed = True
            raise

    def _fetch(self, file: OutputFile) -> None:
        name = hashlib.sha256(file.key.encode()).hexdigest()[:24]
        try:
            if file.size < RESUMED_BYTES:
                self._fetch_whole(file, self._folder.partial / f"{name}.{self._token}")
            elif not self._fetch_rest(file, self._folder.partial / f"{name}.{file.sha256[:24]}"):
                return
        except NotFound:
            why = f"{file.path} is missing, though the manifest names it"
            raise Conflict(file.key, why) from None
        self._tell_of(file)

    def _fetch_whole(self, file: OutputFile, temporary: Path) -> None:
        self._tell_coming(file, temporary)
        try:
            digest = self._repo.store.download(file.key, temporary)
            self._take(file, temporary, (digest.size, digest.sha256))
        finally:
            temporary.unlink(missing_ok=True)

    def _fetch_rest(self, file: OutputFile, temporary: Path) -> bool:
        """Of a large file what an earlier call has not brought; False when the call has failed
        elsewhere. What is there stays when the store or the disk fails."""
        size = self._repo.store.head(file.key).size
        if size != file.size:
            raise Conflict(file.key, f"{file.path} has {size} bytes; the manifest says {file.size}")
        half = HalfFile(temporary, file.size)
        self._tell_coming(file, temporary)
        found = self._fetch_pieces(file, half)
        if half.begun and found not in (None, (file.size, file.sha256)):
            half.begin_anew()  # what was noted was not there, after a power cut
            found = self._fetch_pieces(file, half)
        if found is None:
            return False
        if found != (file.size, file.sha256):
            half.remove()
        self._take(file, temporary, found)
        half.remove()
        return True

    def _fetch_pieces(self, file: OutputFile, half: HalfFile) -> Digest | None:
        """Of the whole; None when the call has failed elsewhere."""

        def fetch(number: int) -> None:
            start, length = half.place(number)
            data = self._repo.store.get_range(file.key, start, length)
            half.put(number, data)

        self._repo.tasks.map(
            lambda number: self._unless_failed(lambda: fetch(number)),
            half.missing,
            limit=_PIECES_AT_ONCE,
        )
        return None if self._failed else digest_at(half.path)

    def _take(self, file: OutputFile, temporary: Path, found: Digest) -> None:
        """Gives it its name, if it is what the manifest says."""
        size, sha256 = found
        if found != (file.size, file.sha256):
            raise Conflict(
                file.key,
                f"{file.path} has {size} bytes, SHA-256 {sha256}; "
                f"the manifest says {file.size}, {file.sha256}",
            )
        target = self._targets[file.path]
        make_folder(target.parent)
        os.replace(temporary, target)

    def _tell_coming(self, file: OutputFile, temporary: Path) -> None:
        if self._wanted.sight is not None:
            self._wanted.sight.fetch(file, temporary)

    def _tell_of(self, whole: OutputFile) -> None:
        if self._wanted.sight is not None:
            self._wanted.sight.have(whole)

    def _fetch_log(self, epoch: int) -> LogAccount:
        """A crash before the manifest is written leaves word that the log is ours."""
        temporary = self._folder.partial / f"log.{self._token}"
        with temporary.open("wb") as file:
            account = copy_log(self._repo, self._manifest.job_id, epoch, file)
        self._put_partial(account)
        os.replace(temporary, self._folder.log)
        return account

    def _keep_log(self) -> None:
        """The one of then, for no other is fetched. A crash leaves word before its name changes."""
        if self._folder.log_has_other_name:
            self._put_partial(self._folder.log_account)
            self._folder.rename_log()

    def _put_partial(self, account: LogAccount | None) -> None:
        name = f"{self._manifest.epoch}.json"
        self._put(self._folder.partial / name, self._manifest.evolve(log=account))

    def _put(self, path: Path, manifest: Manifest) -> None:
        temporary = self._folder.partial / f"manifest.{self._token}"
        temporary.write_bytes(manifest.encode())
        os.replace(temporary, path)


def _holds_only(place: Path, files: set[Path]) -> bool:
    """Whether it is a folder of nothing else."""
    if place.is_symlink() or not place.is_dir():
        return False
    unreadable: list[OSError] = []
    inside = {path for path, _ in walk_files(place, unreadable.append)}
    return inside <= files and not unreadable


def _refuse_foreign(foreign: list[Path]) -> None:
    if foreign:
        named = ", ".join(map(str, foreign[:_NAMED_MAX]))
        more = f" and {len(foreign) - _NAMED_MAX:,} more" if len(foreign) > _NAMED_MAX else ""
        raise Refused(
            "results_file_changed",
            f"{named}{more}: not as the job left it, and would be replaced: move it away, or name "
            "another folder",
        )
