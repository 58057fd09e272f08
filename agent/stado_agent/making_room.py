"""Room for a job that finds none on this host, though it would fit an emptier one: the host keeps
what gets free for it, and asks jobs that may yield to make room.

A job waits for a while before anything is kept from others. Of all hosts one keeps room for it
(`stado.jobs.rooms`); that one asks, so that nothing is stopped in vain.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from stado.core.admission import (
    Door,
    Offer,
    Reservation,
    admit,
    cards_to_keep,
    choose_cards,
)
from stado.core.order import ReadyEntry
from stado.core.yields import Running, choose_victims
from stado.errors import Unreadable
from stado.jobs.asking import ask_to_yield
from stado.jobs.repository import Repository
from stado.jobs.rooms import KeptRoom, Rooms

log = logging.getLogger(__name__)

YIELD_AFTER_SECONDS = 30.0
KEEP_AFTER_SECONDS = 600.0

_LEAVE_SECONDS = 600.0
"""So long a job is left alone for which room was kept in vain, or that others see to."""

_LOOKED_AT_MAX = 8
"""Jobs without room that one look goes into."""

_SWEEP_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class RoomWaits:
    """How long an agent leaves things to take their course."""

    yield_after_seconds: float = YIELD_AFTER_SECONDS
    """So long others may find room for a job before anything is stopped for it here."""
    keep_after_seconds: float = KEEP_AFTER_SECONDS
    """So long a job may be passed by before what gets free here is kept for it."""
    ask_again_seconds: float = 600.0
    """A job that was asked and still runs then is counted on no more, and may be asked again."""


@dataclass(slots=True)
class HostNow:
    """What a look is about: `left` is free now, `whole` if nothing of ours ran, `without` what
    would be if these had gone."""

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
    cards: tuple[str, ...] = ()
    """UUIDs of those that it will have once these have gone; none where that is not known."""


class RoomMaker:
    """Of one agent. Turned now and then, at most each beat. `is_for_us`: whether nothing but room
    keeps the job of an entry from this host, by its record and the deployment's limits."""

    def __init__(
        self,
        repo: Repository,
        *,
        consumer: str,
        incarnation: str,
        is_for_us: Callable[[ReadyEntry], bool],
        waits: RoomWaits,
    ) -> None:
        self._repo = repo
        self._consumer = consumer
        self._is_for_us = is_for_us
        self._waits = waits
        self._rooms = Rooms(repo, consumer=consumer, incarnation=incarnation)
        self._kept: _Kept | None = None
        self._blocked_since: dict[str, float] = {}
        self._left_until: dict[str, float] = {}
        self._sweep_at = float("-inf")

    @property
    def kept_for(self) -> str | None:
        """The id of the job that room is kept for."""
        return None if self._kept is None else self._kept.entry.job_id

    def kept_from(self, left: Offer, in_hand: Collection[str]) -> Callable[[ReadyEntry], bool]:
        """Which jobs are not to be let in, because they would take what is kept for another, unless
        that is being started here already."""
        others = self._others_may_have(left, in_hand)
        if others is None:
            return lambda _: False
        door = Door(others, now_ms=self._repo.now_ms())
        return lambda entry: self._stands_behind(entry) and not door.lets_in(entry.needs)

    def open_to(self, entry: ReadyEntry, left: Offer, in_hand: Collection[str]) -> Offer:
        """What this job may have of what is left: not what is kept from it, the cards included."""
        others = self._others_may_have(left, in_hand)
        return left if others is None or not self._stands_behind(entry) else others

    def _others_may_have(self, left: Offer, in_hand: Collection[str]) -> Offer | None:
        """Beside what is kept; None when nothing is."""
        kept = self._kept
        if kept is None or kept.entry.job_id in in_hand:
            return None
        needs = kept.entry.needs
        return left.less(Reservation(needs, kept.cards or cards_to_keep(needs, left.cards)))

    def _stands_behind(self, entry: ReadyEntry) -> bool:
        return self._kept is not None and entry.rank > self._kept.entry.rank

    def turn(self, waiting: Sequence[ReadyEntry], host: HostNow) -> None:
        """`waiting`: the head of the queue in order, as it was seen last, of what is due."""
        self._sweep_when_due()
        self._go_on(waiting, host)
        if self._kept is None:
            self._begin(waiting, host)
        if self._kept is not None:
            self._make_room(self._kept, host)

    def give_up(self) -> None:
        """Keeps room for nobody: the job has it or is gone, or this host takes none."""
        if self._kept is not None:
            kept, self._kept = self._kept, None
            log.info("event=room_given_up job=%s", kept.entry.job_id)
            self._rooms.give_up(kept.room)

    # --- one after another --------------------------------------------------------------

    def _go_on(self, waiting: Sequence[ReadyEntry], host: HostNow) -> None:
        """Renews the note, as long as the job waits and will have room once ours have gone."""
        if self._kept is None:
            return
        job_id = self._kept.entry.job_id
        entry = next((one for one in waiting if one.job_id == job_id), None)
        in_vain = not host.running and entry is not None and not self._fits(entry, host.left)
        if entry is None or in_vain or not self._fits(entry, host.whole):
            self._leave(job_id)
            self.give_up()
            return
        room = self._rooms.renew(self._kept.room)
        self._kept = None if room is None else replace(self._kept, entry=entry, room=room)

    def _begin(self, waiting: Sequence[ReadyEntry], host: HostNow) -> None:
        """With the first that has waited long enough: those behind it have to wait then. One that
        others see to keeps nobody from being looked at."""
        now = self._repo.clock.monotonic()
        self._left_until = {name: at for name, at in self._left_until.items() if at > now}
        blocked = self._blocked(waiting, host)
        self._blocked_since = {
            entry.job_id: self._blocked_since.get(entry.job_id, now) for entry in blocked
        }
        for entry in blocked:
            if self._kept is None and entry.job_id not in self._left_until:
                self._keep_if_time(entry, host, now)

    def _blocked(self, waiting: Sequence[ReadyEntry], host: HostNow) -> list[ReadyEntry]:
        """The first of those that this host could run, and has no room for."""
        now_ms = self._repo.now_ms()
        whole, left = Door(host.whole, now_ms=now_ms), Door(host.left, now_ms=now_ms)
        found: list[ReadyEntry] = []
        for entry in waiting:
            if whole.lets_in(entry.needs) and not left.lets_in(entry.needs):
                found.append(entry)
                if len(found) == _LOOKED_AT_MAX:
                    break
        return found

    def _keep_if_time(self, entry: ReadyEntry, host: HostNow, now: float) -> None:
        waited = now - self._blocked_since[entry.job_id]
        victims = waited >= self._waits.yield_after_seconds and self._victims(entry, host)
        if not victims and waited < self._waits.keep_after_seconds:
            return
        asked = self._asked_before(host.running)
        room = self._rooms.keep(entry.job_id) if self._is_for_us(entry) else None
        if room is None:
            self._leave(entry.job_id)
            return
        log.info("event=room_kept job=%s", entry.job_id)
        self._kept = _Kept(entry, room, dict.fromkeys(asked, now))

    def _leave(self, job_id: str) -> None:
        leave = _LEAVE_SECONDS * self._repo.entropy.uniform(0.1, 0.2)
        self._left_until[job_id] = self._repo.clock.monotonic() + leave

    def _make_room(self, kept: _Kept, host: HostNow) -> None:
        """Asks no more jobs than it takes, counting on those that were asked already."""
        now = self._repo.clock.monotonic()
        limit = self._waits.ask_again_seconds
        asked = {epoch for epoch, at in kept.asked_at.items() if now - at < limit}
        going = [one for one in host.running if (one.job_id, one.epoch) in asked]
        victims: list[Running] = []
        if not self._fits(kept.entry, host.without(going)):
            victims = self._victims(kept.entry, host, going)
        if victims and not self._is_for_us(kept.entry):
            self._leave(kept.entry.job_id)
            self.give_up()
            return
        once_gone = host.without([*going, *victims])
        kept.cards = choose_cards(kept.entry.needs, once_gone.cards) or ()
        for victim in victims:
            self._ask(victim, kept.entry)
            kept.asked_at[victim.job_id, victim.epoch] = now

    def _asked_before(self, running: Sequence[Running]) -> list[tuple[str, int]]:
        """Jobs that go anyway, by id and epoch: an earlier agent of this host asked them, or a
        person. A read for each that could be asked."""
        found: list[tuple[str, int]] = []
        for one in running:
            if one.yields_left:
                try:
                    asks = self._repo.find_asks(one.job_id, one.epoch)
                except Unreadable as error:
                    self._repo.tell_unreadable(error)
                    continue
                if asks is not None and asks.value.give_way:
                    found.append((one.job_id, one.epoch))
        return found

    def _victims(
        self, entry: ReadyEntry, host: HostNow, going: Sequence[Running] = ()
    ) -> list[Running]:
        """Besides those that go anyway."""
        return choose_victims(
            entry.priority,
            [one for one in host.running if one not in going],
            lambda gone: self._fits(entry, host.without([*going, *gone])),
        )

    def _ask(self, victim: Running, entry: ReadyEntry) -> None:
        """What was asked of a job and cannot be read keeps it where it is."""
        note = f"job {entry.job_id} with priority {entry.priority:,} waits for room"
        log.info("event=yield_asked job=%s for=%s", victim.job_id, entry.job_id)
        try:
            ask_to_yield(self._repo, victim.job_id, victim.epoch, by=self._consumer, note=note)
        except Unreadable as error:
            self._repo.tell_unreadable(error)

    def _fits(self, entry: ReadyEntry, offer: Offer) -> bool:
        return admit(entry.needs, offer, now_ms=self._repo.now_ms()) is None

    def _sweep_when_due(self) -> None:
        now = self._repo.clock.monotonic()
        if now >= self._sweep_at:
            self._sweep_at = now + _SWEEP_SECONDS * self._repo.entropy.uniform(0.5, 1.5)
            self._rooms.sweep()
