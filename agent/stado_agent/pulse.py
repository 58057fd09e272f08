"""The pulse of a held epoch: a thread that beats and checks in, whatever else the supervisor is
waiting for, and tells it what has come of that.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from stado.core.records import Asks, Phase, Progress, Record
from stado.errors import StoreError, Unreadable
from stado.jobs.life import LifeSigns
from stado.jobs.repository import Repository
from stado.ports import Clock, Event, Task

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Moment:
    """By both clocks of the host: the monotonic one of a machine that is suspended stands still
    meanwhile, the other one can be set."""

    monotonic: float
    wall: datetime

    @classmethod
    def now(cls, clock: Clock) -> _Moment:
        return cls(clock.monotonic(), clock.now())

    def is_within(self, seconds: float, clock: Clock) -> bool:
        """Whether less time has passed since, whichever clock is asked."""
        by_wall = abs((clock.now() - self.wall).total_seconds())
        return max(clock.monotonic() - self.monotonic, by_wall) < seconds


class Pulse:
    """Beats for one epoch from `start` to `stop`. The supervisor sets `phase`, `trouble` and
    `started_at` (before the command starts: a start must not go unseen) and reads `sealed`,
    `cancel_asked` and `failure`, of which `on_news` tells it, on our thread."""

    def __init__(
        self,
        repo: Repository,
        record: Record,
        *,
        on_tick: Callable[[], None],
        on_news: Callable[[], None],
    ) -> None:
        self._repo = repo
        self._record = record
        self._signs = LifeSigns(repo, record)
        self._on_tick = on_tick
        self._on_news = on_news
        self._beating = repo.tasks.lock()
        self._ended: Event = repo.tasks.event()
        self._early: Event = repo.tasks.event()
        self._task: Task | None = None
        self._lease_seconds = repo.deployment.lease_seconds
        self._accepted_sent_at: _Moment | None = None
        self._told: tuple[object, ...] = ()
        """What the last accepted beat said."""
        self._silent = False
        self._phase = Phase.PREPARING
        self._phase_since = repo.now()
        self.started_at: datetime | None = None
        self.trouble: str | None = None
        """What cannot be got done for the time being, for people."""
        self.progress: Progress | None = None
        """What the job says of itself: goes with the beats, and calls for none of its own."""
        self.live: str | None = None
        """Where the job says that it can be watched; likewise."""
        self.runs = 0
        """How often the command was started in this epoch."""
        self.sealed = False
        self.failure: Exception | None = None
        self._asked = Asks(nonce="")

    @property
    def cancel_asked(self) -> bool:
        return self._asked.cancel

    @property
    def pause_asked(self) -> bool:
        return self._asked.pause

    @property
    def must_give_way(self) -> bool:
        return self._record.must_give_way(self._asked)

    @property
    def asked(self) -> Asks:
        """What was asked of the epoch, by when we looked last."""
        return self._asked

    @property
    def phase(self) -> Phase:
        return self._phase

    @phase.setter
    def phase(self, phase: Phase) -> None:
        if phase is not self._phase:
            self._phase, self._phase_since = phase, self._repo.now()
            if phase is Phase.VERIFYING:  # it may be over by the time that the next beat is due
                self._early.set()

    def start(self) -> None:
        """Returns when a first beat was accepted, or the epoch is known to be sealed."""
        self.beat_until_accepted()
        self._task = self._repo.tasks.start(f"pulse {self._record.id}", self._run)

    def beat_until_accepted(self) -> None:
        """Returns when the store has what the beat says, or the epoch is known to be sealed."""
        pace = min(1.0, self._repo.deployment.tick_seconds)
        self._on_tick()
        while not self._beat() and not self.sealed:
            self._repo.clock.sleep(pace)
            self._on_tick()

    def stop(self) -> None:
        self._ended.set()
        self._early.set()
        if self._task is not None:
            self._task.join(self._lease_seconds)

    def may_start(self) -> bool:
        """Whether a beat was accepted so lately that nobody can have declared us dead since:
        less than half a lease after it was sent, and that not long ago."""
        if self._accepted_sent_at is None:
            return False
        return self._accepted_sent_at.is_within(self._lease_seconds / 2, self._repo.clock)

    @property
    def heard_at(self) -> float:
        """When the last accepted beat was sent, on our monotonic clock."""
        sent = self._accepted_sent_at
        return -math.inf if sent is None else sent.monotonic

    def _run(self) -> None:
        """An error that nobody foresaw must not leave a job that beats no more and runs on. Once
        sealed, it still shows this host that the supervisor lives."""
        try:
            while self._wait_for_tick():
                self._on_tick()
                if not self.sealed and self._beat_is_due():
                    self._beat()
                if not self.sealed:
                    self.check_in()
        except Exception as error:  # noqa: BLE001 - told to the supervisor, which ends by it
            self.failure = error
            self._on_news()

    def _wait_for_tick(self) -> bool:
        """False once there is none to come. An event cannot be taken back, so each has its own."""
        if self._early.wait(self._repo.deployment.tick_seconds):
            self._early = self._repo.tasks.event()
        return not self._ended.is_set()

    def _beat_is_due(self) -> bool:
        """At the second tick after the last one, but at the first when there is something new to
        say, or the store has not answered."""
        if self._silent or self._accepted_sent_at is None or self._told != self._saying():
            return True
        within_seconds = 1.5 * self._repo.deployment.tick_seconds
        return not self._accepted_sent_at.is_within(within_seconds, self._repo.clock)

    def _saying(self) -> tuple[object, ...]:
        return self._phase, self.started_at, self.trouble, self.runs > 1 and self.runs

    def _beat(self) -> bool:
        """Whether the beat was accepted."""
        with self._beating:
            return self._beat_alone()

    def _beat_alone(self) -> bool:
        sent_at, saying = _Moment.now(self._repo.clock), self._saying()
        try:
            accepted = self._signs.beat(
                self._phase,
                self.started_at,
                phase_since=self._phase_since,
                trouble=self.trouble,
                progress=self.progress,
                runs=self.runs,
                live=self.live,
            )
        except (StoreError, Unreadable) as error:
            self._note_silence(error)
            return False
        self._silent = False
        if accepted:
            self._accepted_sent_at, self._told = sent_at, saying
        else:
            self.sealed = True
            self._on_news()
        return accepted

    def check_in(self) -> None:
        """Asks what has been asked of the epoch. One read."""
        try:
            asked = self._signs.asked()
        except (StoreError, Unreadable) as error:
            self._note_silence(error)
            return
        if asked is not None and asked != self._asked:
            self._asked = asked
            self._on_news()

    def _note_silence(self, error: Exception) -> None:
        """One line an outage, not one a beat."""
        if not self._silent:
            log.warning(
                "event=beat_failed job=%s epoch=%d error=%r",
                self._record.id,
                self._record.epoch,
                str(error),
            )
        self._silent = True
