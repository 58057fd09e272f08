"""Whether somebody follows a job: who follows leaves a note, and the holder ships its log at once
as long as the note changes.

A note decides nothing, and who may not write one follows all the same. No clocks are compared: it
is fresh when the holder has seen it change lately.
"""

from __future__ import annotations

from stado.core import keys
from stado.core.records import FollowNote
from stado.errors import Denied, NotFound, StoreError
from stado.jobs.repository import Repository
from stado.storage.port import Version

RENEWAL_SECONDS = 30.0
LOOK_SECONDS = 30.0
FRESH_SECONDS = 2 * RENEWAL_SECONDS + 2 * LOOK_SECONDS
"""Where somebody else has just renewed the note a follower leaves it: then it can be two renewals
until the next one."""


class FollowerNote:
    """The side of one who follows."""

    def __init__(self, repo: Repository, job_id: str) -> None:
        self._repo = repo
        self._key = keys.follow_note(job_id)
        self._version: Version | None = None
        self._renewed_at: float | None = None
        self._refused = False

    def renew_when_due(self) -> None:
        """At most a read and a write each half minute, whoever else follows. Raises nothing: what
        the store does not take costs promptness alone."""
        now = self._repo.clock.monotonic()
        due = self._renewed_at is None or now - self._renewed_at >= RENEWAL_SECONDS
        if self._refused or not due:
            return
        first, self._renewed_at = self._renewed_at is None, now
        try:
            if first or not self._was_renewed_by_others():
                note = FollowNote(nonce=self._repo.entropy.token(), at=self._repo.now())
                self._version = self._repo.store.put(self._key, note.encode())
        except Denied:
            self._refused = True
        except StoreError:
            return

    def _was_renewed_by_others(self) -> bool:
        try:
            version = self._repo.store.head(self._key).version
        except NotFound:
            return False
        known, self._version = self._version, version
        return version != known


class FollowerSight:
    """The holder's side. Not shared between threads."""

    def __init__(self, repo: Repository, job_id: str) -> None:
        self._repo = repo
        self._key = keys.follow_note(job_id)
        self._version: Version | None = None
        self._looked_at: float | None = None
        self._changed_at: float | None = None

    def anybody(self, *, newcomers: bool = True) -> bool:
        """Whether somebody follows, as of the last look. At most a read each half minute, and none
        while we know of nobody and `newcomers` do not matter."""
        now = self._repo.clock.monotonic()
        due = self._looked_at is None or now - self._looked_at >= LOOK_SECONDS
        if due and (newcomers or self._is_fresh(now)):
            self._looked_at = now
            self._look(now)
        return self._is_fresh(now)

    def _is_fresh(self, now: float) -> bool:
        return self._changed_at is not None and now - self._changed_at < FRESH_SECONDS

    def _look(self, now: float) -> None:
        """What is seen for the first time has just changed. Nothing is concluded from a look that
        fails, or shows no note."""
        try:
            self._version = self._repo.store.get(self._key, unless=self._version).version
        except StoreError:
            return
        self._changed_at = now
