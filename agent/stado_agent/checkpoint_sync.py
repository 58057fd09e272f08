"""Keeps a job's checkpoint folder in the store while the job runs.

A folder is uploaded when it has changed since the last time and then stood still for a beat, so
that a half-written checkpoint is not taken. Files that are replaced under the upload are committed
as they were; when one is written in place, nothing is. The last two stay in the store: one to start
from, and one more for when that one cannot be read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from stado.core.records import Checkpoint
from stado.errors import Conflict, NotFound, Refused, Unreadable
from stado.jobs import checkpoints
from stado.jobs.checkpoints import PART_BYTES_MAX, Fingerprint, fingerprint
from stado.jobs.repository import Repository

log = logging.getLogger(__name__)

_KEPT = 2


class CheckpointSync:
    """One job's checkpoint folder."""

    def __init__(self, repo: Repository, folder: Path, *, part_bytes: int = PART_BYTES_MAX) -> None:
        self._repo = repo
        self._folder = folder
        self._part_bytes = part_bytes
        self._sequence = 0
        self._kept: list[Checkpoint] = []
        self._saved: Fingerprint = ()
        self._seen: Fingerprint = ()
        self._due_at = repo.clock.monotonic() + repo.deployment.tick_seconds

    def restore_newest(self, job_id: str, *, between: Callable[[], None] | None = None) -> None:
        """Fills the folder, which need not be saved again then; leaves it empty for a job that
        has saved nothing. Raises what is wrong with the newest checkpoint when none can be read:
        `Unreadable`, `NotFound`, `Conflict`, `Refused`. `between` is called after each part, and
        ends it by raising anything else."""
        first_error: Exception | None = None
        for key in checkpoints.newest_manifests(self._repo, job_id, limit=_KEPT):
            try:
                checkpoints.restore(self._repo, key, self._folder, between=between)
                self._saved = fingerprint(self._folder)
                return
            except (Unreadable, NotFound, Conflict, Refused) as error:
                log.warning("event=checkpoint_unusable key=%s error=%r", key, str(error))
                first_error = first_error or error
        if first_error is not None:
            raise first_error

    def save_when_due(
        self, job_id: str, epoch: int, *, between: Callable[[], None] | None = None
    ) -> None:
        """`between` is called after each part; what it raises ends the save."""
        now = self._repo.clock.monotonic()
        if now < self._due_at:
            return
        self._due_at = now + self._repo.deployment.tick_seconds
        before, self._seen = self._seen, fingerprint(self._folder)
        if self._seen == before:
            self._save(job_id, epoch, between)

    def save_rest(
        self, job_id: str, epoch: int, *, between: Callable[[], None] | None = None
    ) -> None:
        """What the job left there, now that nothing writes any more. `between` as above."""
        self._seen = fingerprint(self._folder)
        self._save(job_id, epoch, between)

    def _save(self, job_id: str, epoch: int, between: Callable[[], None] | None) -> None:
        if not self._seen or self._seen == self._saved:
            return
        self._sequence += 1
        state = self._seen
        saved = checkpoints.save(
            self._repo,
            job_id=job_id,
            epoch=epoch,
            sequence=self._sequence,
            folder=self._folder,
            part_bytes=self._part_bytes,
            between=between,
        )
        if saved is not None:
            self._saved = state
            self._kept.append(saved)
            self._forget_old()

    def _forget_old(self) -> None:
        """A crash on the way leaves some of an old checkpoint's parts: room, and nothing else."""
        while len(self._kept) > _KEPT:
            checkpoints.delete(self._repo, self._kept[0])
            del self._kept[0]
