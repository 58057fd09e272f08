"""A snapshot, from the store into the folder that a command will run in."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from stado.core.spec import Snapshot
from stado.core.trees import shown
from stado.jobs import snapshots
from stado.jobs.archives import UnsafeArchive, unpack
from stado.jobs.folders import remove_folder
from stado.jobs.repository import Repository
from stado.storage.port import Fetch
from stado_agent.host_cache import HostCache

log = logging.getLogger(__name__)

_ARCHIVE = "tree.tar.gz"


class SnapshotFetch:
    """`insist` repeats a step of the store's until it is taken; `heed` is called again and again,
    and ends everything by what it raises."""

    def __init__(
        self,
        repo: Repository,
        cache: HostCache,
        *,
        fetch: Fetch,
        insist: Callable[[Callable[[], None]], None],
        heed: Callable[[], None],
    ) -> None:
        self._repo = repo
        self._cache = cache
        self._fetch = fetch
        self._insist = insist
        self._heed = heed

    def bring(self, snapshot: Snapshot, folder: Path) -> None:
        """Makes an empty folder hold the tree. Raises `Refused` (`snapshot_missing`), `Conflict`,
        `Unreadable`, `UnsafeArchive`, `OSError` of this host.

        An archive of this host that is not what it should be, or cannot be read, is fetched
        anew."""
        own = folder.with_name(f"{folder.name}.{_ARCHIVE}")
        try:
            was_here = self._get(snapshot, own, anew=False)
            try:
                self._unpack(snapshot, own, folder)
            except (UnsafeArchive, OSError) as error:
                if not was_here or not _is_damage(error):
                    raise
                _note_damage(error)
                self._get(snapshot, own, anew=True)
                self._unpack(snapshot, own, folder)
        finally:
            own.unlink(missing_ok=True)

    def _get(self, snapshot: Snapshot, own: Path, *, anew: bool) -> bool:
        """The archive as `own`, which nobody else removes; whether this host had it."""
        own.unlink(missing_ok=True)
        with self._cache.entry(snapshot.digest, self._heed) as entry:
            archive = entry / _ARCHIVE
            is_here = archive.exists() and not anew and _take_kept(archive, own)
            if not is_here:
                self._download(snapshot, entry, archive)
                _link_or_copy(archive, own)
            return is_here

    def _download(self, snapshot: Snapshot, entry: Path, archive: Path) -> None:
        """It gets its name when it is whole."""
        partial = entry / f"{_ARCHIVE}.partial"

        def download() -> None:
            snapshots.download(self._repo, snapshot.digest, partial, self._fetch)

        self._insist(download)
        os.replace(partial, archive)

    def _unpack(self, snapshot: Snapshot, archive: Path, folder: Path) -> None:
        _empty(folder)
        unpacked = unpack(
            archive,
            folder,
            files_max=snapshot.files,
            bytes_max=snapshot.bytes,
            between=self._heed,
        )
        if unpacked.digest != snapshot.digest:
            raise UnsafeArchive(f"it holds another tree, {shown(unpacked.digest)}")


def _take_kept(archive: Path, own: Path) -> bool:
    """Whether it could be read."""
    try:
        _link_or_copy(archive, own)
    except OSError as error:
        if not _is_damage(error):
            raise
        _note_damage(error)
        return False
    return True


def _is_damage(error: UnsafeArchive | OSError) -> bool:
    """Of the archive: a full disk, say, is none."""
    return isinstance(error, UnsafeArchive) or error.errno == errno.EIO


def _note_damage(error: UnsafeArchive | OSError) -> None:
    log.warning("event=kept_snapshot_damaged error=%r", str(error))


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copyfile(source, target)


def _empty(folder: Path) -> None:
    if any(folder.iterdir()):
        remove_folder(folder)
        folder.mkdir(mode=0o700)
