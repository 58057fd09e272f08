"""Room for a job that finds none on this host, though it would fit an emptier one: the host keeps
what gets free for it, and asks jobs that may yield to make room.

A job waits for a while before anything is kept from others. Of all hosts one keeps room for it
(`stado.jobs.rooms`); that one asks, so that nothing is stopped in vain.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from stado.core.admission import Door, Offer, Reservation, admit, cards_to_keep
from stado.core.order import ReadyEntry
from stado.core.yields import Running, choose_victims
from stado.jobs.repository import Repository
from stado.jobs.rooms import KeptRoom, Rooms
from stado.jobs.yielding import ask_to_yield

log = logging.getLogger(__name__)

YIELD_AFTER_SECONDS = 30.0
"""So long others may find room for a job before anything is stopped for it here."""

KEEP_AFTER_SECONDS = 600.0
"""So long a job may be passed by before what gets free here is kept for it."""

_ASK_AGAIN_SECONDS = 600.0
"""A job that was asked and still runs then is counted on no more, and may be asked again."""

_SWEEP_SECONDS = 3600.0


@dataclass(slots=True)
class HostNow:
    """What a look is about: `left` is free now, `whole` if nothing ran, `without` what would be if
    these had gone."""

    left: Offer
    whole: Offer
    running: Sequence[Running]
    without: Callable[[Sequence[Running]], Offer]


@dataclass(slots=True)
class _Kept:
    """The job that room is kept for."""

    entry: ReadyEntry
    room: KeptRoom
    asked_at: dict[tuple[str, int], float] = field(default_factory=dict)
    """When jobs were asked to make room, by id and epoch."""


class RoomMaker:
    """Of one agent. Turned each beat."""

    def __init__(self, repo: Repository, *, consumer: str, incarnation: str) -> None:
        self._repo = repo
        self._consumer = consumer
        self._rooms = Rooms(repo, consumer=consumer, incarnation=incarnation)
        self._kept: _Kept | None = None
        self._blocked_since: dict[str, float] = {}
        self._sweep_at = float("-inf")

    @property
    def kept_for(self) -> str | None:
        """The id of the job that room is kept for."""
        return None if self._kept is None else self._kept.entry.job_id

    def kept_from(self, left: Offer, in_hand: Collection[str]) -> Callable[[ReadyEntry], bool]:
        """Which jobs are not to be let in, because they would take what is kept for another, unless
        that is being started here already."""
        kept = self._kept
        if kept is None or kept.entry.job_id in in_hand:
            return lambda _: False
        needs = kept.entry.needs
        others = left.less(Reservation(needs, cards_to_keep(needs, left.cards)))
        door = Door(others, now_ms=self._repo.now_ms())
        return lambda entry: entry.rank > kept.entry.rank and not door.lets_in(entry.needs)

    def turn(self, waiting: Sequence[ReadyEntry], host: HostNow) -> None:
        """`waiting`: the head of the queue in order, as it was seen last, of what is due."""
        self._sweep_when_due()
        self._go_on(waiting, host)
        if self._kept is None:
            self._begin(waiting, host)
        if self._kept is not None:
            self._make_room(self._kept, host)

    # --- one after another --------------------------------------------------------------

    def _go_on(self, waiting: Sequence[ReadyEntry], host: HostNow) -> None:
        """Renews the note, as long as the job waits and could run here."""
        if self._kept is None:
            return
        job_id = self._kept.entry.job_id
        entry = next((one for one in waiting if one.job_id == job_id), None)
        if entry is None or not self._fits(entry, host.whole):
            self._give_up()
            return
        room = self._rooms.renew(self._kept.room)
        self._kept = None if room is None else _Kept(entry, room, self._kept.asked_at)

    def _begin(self, waiting: Sequence[ReadyEntry], host: HostNow) -> None:
        """With the first that could run here, and finds no room: those behind it have to wait."""
        entry = next((one for one in waiting if self._fits(one, host.whole)), None)
        if entry is None or self._fits(entry, host.left):
            self._blocked_since.clear()
            return
        now = self._repo.clock.monotonic()
        since = self._blocked_since.get(entry.job_id, now)
        self._blocked_since = {entry.job_id: since}
        waited = now - since
        victims = waited >= YIELD_AFTER_SECONDS and self._victims(entry, host)
        if not victims and waited < KEEP_AFTER_SECONDS:
            return
        room = self._rooms.keep(entry.job_id)
        if room is not None:
            log.info("event=room_kept job=%s", entry.job_id)
            self._kept = _Kept(entry, room)

    def _make_room(self, kept: _Kept, host: HostNow) -> None:
        """Asks no more jobs than it takes, counting on those that were asked already."""
        now = self._repo.clock.monotonic()
        asked = {epoch for epoch, at in kept.asked_at.items() if now - at < _ASK_AGAIN_SECONDS}
        going = [one for one in host.running if (one.job_id, one.epoch) in asked]
        if self._fits(kept.entry, host.without(going)):
            return
        for victim in self._victims(kept.entry, host):
            if (victim.job_id, victim.epoch) not in asked:
                self._ask(victim, kept.entry)
                kept.asked_at[victim.job_id, victim.epoch] = now

    def _victims(self, entry: ReadyEntry, host: HostNow) -> list[Running]:
        return choose_victims(
            entry.priority, host.running, lambda gone: self._fits(entry, host.without(gone))
        )

    def _ask(self, victim: Running, entry: ReadyEntry) -> None:
        note = f"job {entry.job_id} with priority {entry.priority:,} waits for room"
        log.info("event=yield_asked job=%s for=%s", victim.job_id, entry.job_id)
        ask_to_yield(self._repo, victim.job_id, victim.epoch, by=self._consumer, note=note)

    def _fits(self, entry: ReadyEntry, offer: Offer) -> bool:
        return admit(entry.needs, offer, now_ms=self._repo.now_ms()) is None

    def _give_up(self) -> None:
        if self._kept is not None:
            kept, self._kept = self._kept, None
            log.info("event=room_given_up job=%s", kept.entry.job_id)
            self._rooms.give_up(kept.room)

    def _sweep_when_due(self) -> None:
        now = self._repo.clock.monotonic()
        if now >= self._sweep_at:
            self._sweep_at = now + _SWEEP_SECONDS * self._repo.entropy.uniform(0.5, 1.5)
            self._rooms.sweep()
