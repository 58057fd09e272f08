"""Keeps a job's checkpoint folder in the store while the job runs.

A folder is uploaded when it has changed since the last time and then stood still for a beat, so
that a half-written checkpoint is not taken. Files that are replaced under the upload are committed
as they were; when one is written in place, nothing is. Three stay in the store: one to start from,
one more for when that one cannot be read, and the best.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from stado.core import keys
from stado.core.records import Checkpoint, SaveRef
from stado.core.spec import StartFrom
from stado.errors import Conflict, NotFound, Refused, StoreError, Unreadable
from stado.jobs import checkpoints, saving
from stado.jobs.repository import Repository
from stado.jobs.saving import (
    Fingerprint,
    FolderSight,
    Manner,
    NotReadable,
    NotWhole,
    Past,
    Save,
    fingerprint,
    look_at,
)
from stado.storage.port import Fetch

log = logging.getLogger(__name__)

_TRIED_MAX = 3
_TOLD_LINES_MAX = 20
"""Of each kind."""

_UNUSABLE = (Unreadable, NotFound, Conflict, Refused)


class CheckpointSync:
    """One job's checkpoint folder. `heard_at`: when the last accepted beat was sent, on our
    monotonic clock; what is older than a save goes only after a beat that came after it. `say`
    tells the job's log, once each, what keeps the folder from being saved, and what is left out."""

    def __init__(
        self,
        repo: Repository,
        folder: Path,
        *,
        manner: Manner = Manner(),  # noqa: B008 - frozen
        heard_at: Callable[[], float] = lambda: -math.inf,
        say: Callable[[str], None] = lambda _: None,
        on_saved: Callable[[], None] = lambda: None,
    ) -> None:
        self._repo = repo
        self._folder = folder
        self._manner = manner
        self._heard_at = heard_at
        self._say = say
        self._on_saved = on_saved
        self._told: set[str] = set()
        self._lines_told: Counter[str] = Counter()
        self.unsaved: str | None = None
        """Why the last save came to nothing; None when it did not."""
        self._sequence = 0
        self._newest: list[Save] = []
        """The last two of the job, the newest last."""
        self._best: Save | None = None
        self._committed_at: float | None = None
        """Of the newest save; None once what it replaced has been swept."""
        self._named: Sequence[str] | None = ()
        self._spared: list[Checkpoint] | None = None
        """What `_named` are, once they have been read."""
        self._saved: Fingerprint = ()
        self._seen = FolderSight()
        self._due_at = repo.clock.monotonic() + repo.deployment.tick_seconds

    @property
    def has_saved(self) -> bool:
        """Whether the job has a committed checkpoint, of this epoch or an earlier one."""
        return bool(self._newest)

    def spare(self, manifests: Sequence[str] | None) -> None:
        """Saves of earlier lives of the job that stay for ever: policies name them. None: it is
        not known which, and nothing is swept."""
        self._named, self._spared = manifests, None

    # --- restoring ----------------------------------------------------------------------

    def restore_newest(
        self,
        job_id: str,
        *,
        between: Callable[[], None] | None = None,
        fetch: Fetch | None = None,
    ) -> bool:
        """Fills the folder, which need not be saved again then; False, and it is left alone, for a
        job that has saved nothing. Raises what is wrong with the newest checkpoint when none can
        be read: `Unreadable`, `NotFound`, `Conflict`, `Refused`. `between` is called after each
        part, and ends it by raising anything else. `fetch` brings each of them."""
        first_error: Exception | None = None
        for key in checkpoints.newest_manifests(self._repo, job_id, limit=_TRIED_MAX):
            try:
                found = checkpoints.restore(
                    self._repo, key, self._folder, between=between, fetch=fetch
                )
                self._saved = fingerprint(self._folder)
                self._newest = [Save(*found, self._saved)]
                self._best = self._find_best(checkpoints.best_as_of(*found))
                return True
            except _UNUSABLE as error:
                log.warning("event=checkpoint_unusable key=%s error=%r", key, str(error))
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        return False

    def restore_pinned(
        self,
        start_from: StartFrom,
        *,
        between: Callable[[], None] | None = None,
        fetch: Fetch | None = None,
    ) -> None:
        """Fills the folder with another job's save, which counts as none of ours. Raises as
        `restore_newest`."""
        key = start_from.manifest
        if not keys.is_checkpoint_manifest(key, start_from.job_id):
            raise Refused("checkpoint_unavailable", f"{key!r} is no save of {start_from.policy}")
        checkpoints.restore(
            self._repo,
            key,
            self._folder,
            sha256=start_from.sha256,
            between=between,
            fetch=fetch,
        )
        self._saved = fingerprint(self._folder)

    def _find_best(self, best: SaveRef | None) -> Save | None:
        """None also for one that cannot be had any more: the next one that is measured is it."""
        if best is None or best.manifest == self._newest[-1].ref.manifest:
            return None if best is None else self._newest[-1]
        try:
            found = Save(*checkpoints.read_manifest(self._repo, best.manifest))
        except (NotFound, Unreadable) as error:
            log.warning("event=checkpoint_unusable key=%s error=%r", best.manifest, str(error))
            return None
        return found if found.ref.sha256 == best.sha256 else None

    # --- saving -------------------------------------------------------------------------

    def save_when_due(
        self, job_id: str, epoch: int, *, between: Callable[[], None] | None = None
    ) -> None:
        """`between` is called after each part; what it raises ends the save."""
        now = self._repo.clock.monotonic()
        if now < self._due_at:
            return
        self._due_at = now + self._repo.deployment.tick_seconds
        self._sweep_when_heard()
        before, self._seen = self._seen, look_at(self._folder)
        if self._seen == before:
            self._save(job_id, epoch, between)

    def save_rest(
        self, job_id: str, epoch: int, *, between: Callable[[], None] | None = None
    ) -> bool:
        """What the job left there, now that nothing writes any more; whether it is in the store.
        `between` as above."""
        self._seen = look_at(self._folder)
        self._save(job_id, epoch, between)
        return not self._has_news()

    def sweep_rest(self) -> None:
        """For who has given the verdict: nothing can be saved any more."""
        if self._committed_at is not None:
            self._sweep()

    def _save(self, job_id: str, epoch: int, between: Callable[[], None] | None) -> None:
        self._tell_left_out()
        if not self._has_news():
            self.unsaved = None
            return
        self._sequence += 1
        state = self._seen.states
        try:
            saved = saving.save(
                self._repo,
                job_id=job_id,
                epoch=epoch,
                sequence=self._sequence,
                folder=self._folder,
                past=self._past(),
                manner=replace(self._manner, between=between),
            )
        except NotWhole as error:
            self._note_unsaved(job_id, error)
            return
        self.unsaved = None
        self._committed_at = self._repo.clock.monotonic()
        self._saved = state
        self._newest = [*self._newest[-1:], saved]
        if checkpoints.best_as_of(saved.checkpoint, saved.ref) == saved.ref:
            self._best = saved
        self._on_saved()

    def _has_news(self) -> bool:
        """Whether there is, or may be, something that is not saved."""
        seen = self._seen
        return bool(seen.unreadable) or seen.states not in ((), self._saved)

    def _note_unsaved(self, job_id: str, error: NotWhole) -> None:
        """What has only changed meanwhile is saved soon, and not told."""
        self.unsaved = str(error)
        log.info("event=checkpoint_dropped job=%s why=%r", job_id, self.unsaved)
        if isinstance(error, NotReadable):
            self._tell("its checkpoint folder cannot be saved", [self.unsaved])

    def _tell_left_out(self) -> None:
        self._tell("left out of its checkpoints", self._seen.left_out)

    def _tell(self, what: str, whys: Sequence[str]) -> None:
        """In one line, without what has been told before; and no more lines of a kind than a
        few."""
        new = [why for why in whys if why not in self._told]
        if not new or self._lines_told[what] >= _TOLD_LINES_MAX:
            return
        self._told.update(new)
        self._lines_told[what] += 1
        more = f", and {len(new) - 1:,} more" if len(new) > 1 else ""
        self._say(f"{what}: {new[0]}{more}")

    def _past(self) -> Past:
        best = self._best.ref if self._best is not None else None
        return Past(self._kept(), self._saved, best, self._seen.states)

    def _kept(self) -> list[Save]:
        return [*([] if self._best is None else [self._best]), *self._newest]

    # --- what is replaced ---------------------------------------------------------------

    def _sweep_when_heard(self) -> None:
        if self._committed_at is not None and self._heard_at() > self._committed_at:
            self._sweep()

    def _sweep(self) -> None:
        """Tried again at the next look. A store that refuses it keeps what is old, and no save
        waits for that."""
        try:
            if self._named is None:
                return
            kept = [save.checkpoint for save in self._kept()]
            checkpoints.sweep(self._repo, kept, also=self._find_spared())
            self._committed_at = None
        except (StoreError, Unreadable) as error:
            job_id = self._newest[-1].checkpoint.job_id
            log.warning("event=checkpoints_not_swept job=%s error=%r", job_id, str(error))

    def _find_spared(self) -> list[Checkpoint]:
        """Nothing is swept as long as one cannot be read. One that is not there needs no parts."""
        if self._spared is None:
            found = (self._repo.find(Checkpoint, key) for key in self._named or ())
            self._spared = [stored.value for stored in found if stored is not None]
        return self._spared
