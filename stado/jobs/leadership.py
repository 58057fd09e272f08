"""Which coordinator acts while others stand by.

The lease saves work and spares the log; correctness never hangs on it. Two that act at once do
the same steps twice, which every step survives.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from stado.core import keys
from stado.core.documents import decode
from stado.core.liveness import Vigil
from stado.core.records import PASSES_MAX, CoordinatorLease, PassNote
from stado.errors import Conflict, NotFound, Unreadable
from stado.jobs.repository import Repository, Stored

_SUBJECT = "coordinator"

_ERROR_CHARACTERS_MAX = 300
"""Of what a pass said: the lease is read and written each tick."""


class PassNotes:
    """How the passes of this process fared, and what was found of those before it."""

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._notes: dict[str, PassNote] = {}

    def note(self, name: str, error: str | None) -> None:
        """`error`: None of one that succeeded."""
        before = self._notes.get(name, PassNote(name=name))
        now = self._repo.now()
        if error is None:
            self._notes[name] = before.evolve(at=now)
        else:
            line = " ".join(error.split())[:_ERROR_CHARACTERS_MAX]
            self._notes[name] = before.evolve(failed_at=now, error=line)

    def adopt(self, found: Sequence[PassNote]) -> None:
        """What the coordinator has left that acted until now."""
        self._notes.update({note.name: note for note in found})

    def all(self) -> list[PassNote]:
        return list(self._notes.values())[:PASSES_MAX]


class Leadership:
    """One coordinator's part in the lease. Silence is judged by what it watched itself."""

    def __init__(self, repo: Repository, *, holder: str, version: str | None = None) -> None:
        self._repo = repo
        self._holder = holder
        self._version = version
        self._since: datetime | None = None
        self.notes = PassNotes(repo)
        self._token = repo.entropy.token()
        self._counter = 0
        self._vigil = Vigil()

    def take_or_renew(self) -> bool:
        """Whether we are the one who acts now. One read and at most one write."""
        found = self._find()
        ours = found is not None and found.value.token == self._token
        if not ours:
            self._since = None
        if found is not None and not ours:
            if not self._abandoned(found):
                return False
            self.notes.adopt(found.value.passes)
        self._since = self._since or self._repo.now()
        lease = self._lease()
        if found is None:
            return self._repo.create(keys.COORDINATOR_LEASE, lease) is not None
        return self._replace(found, lease)

    def release(self) -> None:
        """Lets the next one act at once."""
        found = self._find()
        if found is not None and found.value.token == self._token:
            self._replace(found, self._lease().evolve(released=True))

    def _find(self) -> Stored[CoordinatorLease] | None:
        """One that cannot be read may be a newer program's, which renews it: it counts as
        another's, for as long as ours would."""
        try:
            blob = self._repo.store.get(keys.COORDINATOR_LEASE)
        except NotFound:
            return None
        try:
            lease = decode(CoordinatorLease, keys.COORDINATOR_LEASE, blob.data)
        except Unreadable as error:
            self._repo.tell_unreadable(error)
            lease = self._lease().evolve(token="")
        return Stored(lease, blob.version)

    def _abandoned(self, found: Stored[CoordinatorLease]) -> bool:
        if found.value.released:
            return True
        at = self._repo.clock.monotonic()
        return self._vigil.look(_SUBJECT, found.version, at) >= found.value.lease_seconds

    def _lease(self) -> CoordinatorLease:
        self._counter += 1
        return CoordinatorLease(
            token=self._token,
            holder=self._holder,
            counter=self._counter,
            at=self._repo.now(),
            lease_seconds=self._repo.deployment.lease_seconds,
            since=self._since,
            version=self._version,
            passes=self.notes.all(),
        )

    def _replace(self, found: Stored[CoordinatorLease], lease: CoordinatorLease) -> bool:
        try:
            self._repo.store.replace(keys.COORDINATOR_LEASE, lease.encode(), found.version)
            return True
        except Conflict:
            return False


class CoordinatorWatch:
    """Somebody else's view: is any coordinator at work?"""

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._vigil = Vigil()

    def silent(self) -> bool:
        """Whether no coordinator has given a sign for a whole lease that was watched. One head."""
        try:
            version = self._repo.store.head(keys.COORDINATOR_LEASE).version
        except NotFound:
            version = None
        at = self._repo.clock.monotonic()
        silence = self._vigil.look(_SUBJECT, version, at)
        return silence >= self._repo.deployment.lease_seconds
