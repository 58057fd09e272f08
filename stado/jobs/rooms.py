"""Which host keeps room for a job that would otherwise never get any: one of them, for one job at
a time. A note says which, so that no two hosts stand half empty for the same job.

A note whose host is gone is taken over by whoever has watched it unchanged for a lease.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from stado.core import keys
from stado.core.liveness import Vigil
from stado.core.records import RoomNote
from stado.errors import Conflict, Unreadable
from stado.jobs.repository import Repository
from stado.storage.port import Version

log = logging.getLogger(__name__)

NOTES_MAX = 1000
"""Notes that one sweep looks at."""

_FORGOTTEN_LEASES = 10
"""So many leases unchanged, a note is nobody's."""


@dataclass(frozen=True, slots=True)
class KeptRoom:
    """That we keep, by the note as we wrote it last."""

    note: RoomNote
    version: Version


class Rooms:
    """The notes, as one agent sees them."""

    def __init__(self, repo: Repository, *, consumer: str, incarnation: str) -> None:
        self._repo = repo
        self._consumer = consumer
        self._incarnation = incarnation
        self._others = Vigil()

    def keep(self, job_id: str) -> KeptRoom | None:
        """None when another host keeps room for the job. A write, and a read where there is a note
        already."""
        note = self._new_note(job_id)
        version = self._repo.create(keys.room(job_id), note)
        if version is not None:
            return KeptRoom(note, version)
        try:
            found = self._repo.find(RoomNote, keys.room(job_id))
        except Unreadable as error:
            self._repo.tell_unreadable(error)
            return self._replace(note, self._repo.store.head(error.key).version)
        if found is None:
            return None
        if found.value.consumer != self._consumer and not self._is_silent(found.value):
            return None
        return self._replace(note, found.version)

    def renew(self, room: KeptRoom) -> KeptRoom | None:
        """None when the note is another's by now, or gone. One that we wrote without hearing of
        it is ours."""
        note = room.note.evolve(counter=room.note.counter + 1, at=self._repo.now())
        renewed = self._replace(note, room.version)
        if renewed is not None:
            return renewed
        found = self._repo.find(RoomNote, keys.room(note.job_id))
        if found is None or found.value.incarnation != self._incarnation:
            return None
        return KeptRoom(found.value, found.version)

    def give_up(self, room: KeptRoom) -> None:
        try:
            self._repo.store.delete(keys.room(room.note.job_id), room.version)
        except Conflict:
            log.info("event=room_note_changed job=%s", room.note.job_id)

    def sweep(self) -> int:
        """Deletes notes that nobody has renewed for long; how many. A listing."""
        limit_seconds = _FORGOTTEN_LEASES * self._repo.deployment.lease_seconds
        now = self._repo.now()
        deleted = 0
        for entry in self._repo.store.list(keys.ROOMS, limit=NOTES_MAX):
            if (now - entry.modified_at).total_seconds() > limit_seconds:
                try:
                    self._repo.store.delete(entry.key, entry.version)
                    deleted += 1
                except Conflict:
                    continue
        return deleted

    def _new_note(self, job_id: str) -> RoomNote:
        return RoomNote(
            job_id=job_id,
            consumer=self._consumer,
            incarnation=self._incarnation,
            counter=1,
            at=self._repo.now(),
        )

    def _replace(self, note: RoomNote, version: Version) -> KeptRoom | None:
        try:
            written = self._repo.store.replace(keys.room(note.job_id), note.encode(), version)
        except Conflict:
            return None
        return KeptRoom(note, written)

    def _is_silent(self, note: RoomNote) -> bool:
        now = self._repo.clock.monotonic()
        sign = (note.incarnation, note.counter)
        return self._others.look(note.job_id, sign, now) > self._repo.deployment.lease_seconds
