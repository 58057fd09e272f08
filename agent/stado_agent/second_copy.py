"""The copy of a job's output that somebody asked for elsewhere (`output_uri`), as far as it can be
had: tried once, for a limited time, and never a reason for a job to fail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from stado.core import keys
from stado.core.destinations import parse_destination
from stado.core.records import Manifest
from stado.errors import StadoError
from stado.jobs.output_copies import GivenUp, copy_output
from stado.jobs.repository import Repository
from stado.storage.port import OpenStore, Store

log = logging.getLogger(__name__)

COPY_SECONDS_MAX = 3600.0
_LOOK_SECONDS = 0.5


class SecondCopy:
    """One copy. It runs on a thread of its own, so that nobody waits for a store that does not
    answer for longer than it may take; a thread that is left behind begins nothing more."""

    def __init__(self, repo: Repository, open_store: OpenStore) -> None:
        self._repo = repo
        self._open_store = open_store
        self._failure: str | None = "it was not begun"
        self._stopped = repo.tasks.event()

    def make(
        self, uri: str, manifest: Manifest, folder: Path, *, heed: Callable[[], None]
    ) -> str | None:
        """Why there is none; None when there is. What `heed` raises, which is called again and
        again, ends it."""
        task = self._repo.tasks.start("copy", lambda: self._work(uri, manifest, folder))
        end = self._repo.clock.monotonic() + COPY_SECONDS_MAX
        try:
            while not task.join(_LOOK_SECONDS):
                heed()
                if self._repo.clock.monotonic() >= end:
                    return f"it was not done within {COPY_SECONDS_MAX / 60:.0f} minutes"
        finally:
            self._stopped.set()
        return self._failure

    def _work(self, uri: str, manifest: Manifest, folder: Path) -> None:
        try:
            self._copy(uri, manifest, folder)
            self._failure = None
        except (StadoError, OSError) as error:
            self._failure = str(error)
        except GivenUp:
            self._failure = "it was given up"
        except Exception as error:  # a thread's error would be lost, and so the copy in silence
            log.exception("event=copy_failed job=%s", manifest.job_id)
            self._failure = type(error).__name__

    def _copy(self, uri: str, manifest: Manifest, folder: Path) -> None:
        destination = parse_destination(uri)
        if destination.own:
            self._upload(self._repo.store, manifest, folder, keys.published(destination.place))
            return
        store = self._open_store(destination.place, to_write=True)
        try:
            self._upload(store, manifest, folder, "")
        finally:
            store.close()

    def _upload(self, store: Store, manifest: Manifest, folder: Path, below: str) -> None:
        def go_on() -> bool:
            return not self._stopped.is_set()

        copy_output(store, self._repo.tasks, manifest, folder, below=below, go_on=go_on)
