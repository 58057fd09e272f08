"""Life signs of an epoch: the beats of its holder, and what the holder is asked for.

One object a job. A seal ends the holder's right to beat, for ever: no beat replaces it.
"""

from __future__ import annotations

from datetime import datetime

from stado.core import keys, moves
from stado.core.documents import decode
from stado.core.records import Asks, Heartbeat, Phase, Progress, Record
from stado.errors import Conflict, Exists, NotFound, NotModified
from stado.jobs.repository import Repository, Stored
from stado.storage.port import Version

_ROUNDS_MAX = 5


class LifeSigns:
    """The holder's side: beats for one claimed epoch. Not shared between threads."""

    def __init__(self, repo: Repository, record: Record) -> None:
        assert record.holder is not None  # a claimed record has one
        self._repo = repo
        self._record = record
        self._token = record.holder.token
        self._consumer = record.holder.consumer
        self._counter = 0
        self._version: Version | None = None
        self._asks: Stored[Asks] | None = None

    def beat(
        self,
        phase: Phase,
        started_at: datetime | None,
        *,
        phase_since: datetime | None = None,
        trouble: str | None = None,
        progress: Progress | None = None,
        runs: int = 0,
        live: str | None = None,
    ) -> bool:
        """Whether the beat was accepted; False: the epoch is sealed, or over.

        One write; raises what the store raises, and then nothing is known."""
        self._counter += 1
        beat = Heartbeat(
            epoch=self._record.epoch,
            token=self._token,
            counter=self._counter,
            by=self._consumer,
            at=self._repo.now(),
            phase=phase,
            started_at=started_at,
            phase_since=phase_since,
            trouble=None if trouble is None else moves.clip(trouble),
            progress=progress,
            runs=runs,
            live=live,
        )
        key = keys.heartbeat(self._record.id)
        for _ in range(_ROUNDS_MAX):
            try:
                self._version = self._write(key, beat)
                return True
            except (Conflict, Exists):
                if not self._catch_up():
                    return False
        raise Conflict(key, "others keep changing it")

    def asked(self) -> Asks | None:
        """What has been asked of the epoch, None when nothing. One read."""
        key = keys.asks(self._record.id, self._record.epoch)
        known = self._asks.version if self._asks else None
        try:
            blob = self._repo.store.get(key, unless=known)
        except NotFound:
            return None
        except NotModified:
            return self._asks.value if self._asks else None
        self._asks = Stored(decode(Asks, key, blob.data), blob.version)
        return self._asks.value

    def _write(self, key: str, beat: Heartbeat) -> Version:
        if self._version is not None:
            return self._repo.store.replace(key, beat.encode(), self._version)
        if self._record.epoch == 1:
            return self._repo.store.create(key, beat.encode())
        raise Conflict(key, "the version is not known yet")

    def _catch_up(self) -> bool:
        """Learns what stands there now; False when our epoch may not beat any more."""
        found = self._repo.find_heartbeat(self._record.id)
        if found is None:
            key = keys.heartbeat(self._record.id)
            placeholder = Heartbeat(
                epoch=self._record.epoch,
                token=self._token,
                by=self._consumer,
                at=self._repo.now(),
            )
            self._version = self._repo.create(key, placeholder)
            return True
        current = found.value
        if current.epoch > self._record.epoch:
            return False
        if current.epoch == self._record.epoch and (current.sealed or current.token != self._token):
            return False
        self._version = found.version
        return True


def seal_epoch(
    repo: Repository,
    record: Record,
    last: Stored[Heartbeat] | None,
    *,
    by: str,
    saved_at: datetime | None = None,
) -> Heartbeat | None:
    """Ends the holder's right to beat, if nothing was heard of it since the judgement.

    `last` is the heartbeat that was found silent; None when there was none. The seal keeps what
    it said of the epoch: when the command started, and when it was last heard, which may have been
    a save (`saved_at`). None when a beat came meanwhile."""
    key = keys.heartbeat(record.id)
    if last is not None and last.value.sealed and last.value.epoch == record.epoch:
        return last.value
    own = last is not None and last.value.epoch == record.epoch
    seal = Heartbeat(
        epoch=record.epoch,
        token=repo.entropy.token(),
        sealed=True,
        by=by,
        at=repo.now(),
        phase=last.value.phase if last is not None and own else Phase.PREPARING,
        started_at=last.value.started_at if last is not None and own else None,
        heard_at=_last_sign(last.value, saved_at) if last is not None and own else None,
    )
    try:
        if last is None:
            repo.store.create(key, seal.encode())
        else:
            repo.store.replace(key, seal.encode(), last.version)
        return seal
    except (Conflict, Exists):
        found = repo.find_heartbeat(record.id)
        sealed = found is not None and found.value.sealed and found.value.epoch == record.epoch
        return found.value if found is not None and sealed else None


def _last_sign(last: Heartbeat, saved_at: datetime | None) -> datetime | None:
    """Of what the epoch ran, by its last beat and its newest save."""
    if saved_at is None or last.command_ended_at is not None or last.last_sign_at is None:
        return last.last_sign_at
    return max(last.last_sign_at, saved_at)
