"""A copy of what a job left, in another place: files first, then the manifest that says that it is
whole. Nothing of the job hangs on it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stado.core import keys
from stado.core.records import Manifest, OutputCopy, OutputFile
from stado.errors import Conflict, StoreError
from stado.jobs.outputs import LARGE_BYTES, LARGE_TRANSFERS, SMALL_TRANSFERS
from stado.ports import Tasks
from stado.storage.port import Store


def copy_output(
    store: Store,
    tasks: Tasks,
    manifest: Manifest,
    folder: Path,
    *,
    below: str = "",
    go_on: Callable[[], bool] = lambda: True,
) -> OutputCopy:
    """Uploads the manifest's files, which are in `folder`, to a store, below the key `below`. Each
    file is tried once, and nothing more begins once one has failed, or `go_on` says no.

    Raises what the store raises, `OSError`, and `Conflict` when a file is not what the manifest
    says. A crash, as any failure, leaves files without a manifest."""
    copy = _Copy(store, manifest, folder, below, go_on)
    small = [file for file in manifest.files if file.size < LARGE_BYTES]
    large = [file for file in manifest.files if file.size >= LARGE_BYTES]
    copied = [
        *tasks.map(copy.take, small, limit=SMALL_TRANSFERS),
        *tasks.map(copy.take, large, limit=LARGE_TRANSFERS),
    ]
    whole = OutputCopy(
        job_id=manifest.job_id,
        epoch=manifest.epoch,
        partial=manifest.partial,
        files=sorted(copied, key=lambda file: file.path),
        skipped=manifest.skipped,
    )
    store.put(below + keys.copied_manifest(manifest.job_id), whole.encode())
    return whole


class GivenUp(Exception):
    """It was told not to go on."""


class _Copy:
    def __init__(
        self,
        store: Store,
        manifest: Manifest,
        folder: Path,
        below: str,
        go_on: Callable[[], bool],
    ) -> None:
        self._store = store
        self._job_id = manifest.job_id
        self._folder = folder
        self._below = below
        self._go_on = go_on
        self._failed = False

    def take(self, file: OutputFile) -> OutputFile:
        if self._failed or not self._go_on():
            raise GivenUp
        key = keys.copied_file(self._job_id, file.path)
        try:
            digest = self._store.upload(self._below + key, self._folder / file.path)
        except (StoreError, OSError):
            self._failed = True
            raise
        if (digest.size, digest.sha256) != (file.size, file.sha256):
            raise Conflict(file.path, "it has changed since it was delivered")
        return file.evolve(key=key)
