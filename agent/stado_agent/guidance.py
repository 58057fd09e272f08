"""Which jobs a coordinator would give to this host, and which to others: read now and then, and
gone by only as long as it is good for. An agent that never heard of any takes what it finds.
"""

from __future__ import annotations

from collections.abc import Callable

from stado.core import keys
from stado.core.documents import decode
from stado.core.hints import Assignments
from stado.core.ids import milliseconds
from stado.core.order import ReadyEntry, parse_entry
from stado.errors import NotFound, NotModified, StoreError, Unreadable
from stado.jobs.assignments import HOLD_TICKS
from stado.jobs.repository import Repository
from stado.storage.port import Version

Rank = tuple[int, int, int, str]

_ABSENT_TICKS = 4
"""How often it is looked whether there is any."""

_LONG_MS = 3_600_000
"""Who has waited for so long waits behind nobody who came later."""


class Guidance:
    """What is known of it. `incarnation`: what was planned for an earlier agent of the name is
    not for this one."""

    def __init__(self, repo: Repository, *, consumer: str, incarnation: str) -> None:
        self._repo = repo
        self._consumer = consumer
        self._incarnation = incarnation
        self._due_at = float("-inf")
        self._version: Version | None = None
        self._expires_ms = 0
        self._own: dict[str, ReadyEntry] = {}
        self._held_until_ms: dict[str, int] = {}
        """For other hosts, by the name of the entry."""
        self._seen_at: dict[str, float] = {}
        """Since when it has been there, on this host's clock: a document may say anything."""

    def refresh_when_due(self) -> None:
        """A conditional read each tick where there is any, and each fourth where there is none."""
        now, tick = self._repo.clock.monotonic(), self._repo.deployment.tick_seconds
        if now < self._due_at:
            return
        self._due_at = now + tick
        try:
            blob = self._repo.store.get(keys.ASSIGNMENTS, unless=self._version)
            self._version = blob.version
            self._heed(decode(Assignments, keys.ASSIGNMENTS, blob.data))
        except NotModified:
            return
        except NotFound:
            self._forget()
            self._version = None
            self._due_at = now + _ABSENT_TICKS * tick
        except Unreadable as error:
            self._forget()
            self._repo.tell_unreadable(error)
        except StoreError:  # what was read last expires by itself
            return

    def _forget(self) -> None:
        self._own, self._held_until_ms, self._expires_ms = {}, {}, 0

    def _heed(self, assignments: Assignments) -> None:
        self._forget()
        self._expires_ms = milliseconds(assignments.expires_at)
        hold_ms = round(1000 * self._hold_seconds)
        seen_at, now = self._seen_at, self._repo.clock.monotonic()
        names = [job.entry for host in assignments.hosts for job in host.jobs]
        self._seen_at = {name: seen_at.get(name, now) for name in names}
        for host in assignments.hosts:
            is_own = (host.consumer, host.incarnation) == (self._consumer, self._incarnation)
            for job in host.jobs:
                entry = parse_entry(job.entry)
                if entry is None:
                    continue
                if is_own:
                    self._own[entry.name] = entry
                elif host.consumer != self._consumer:
                    self._held_until_ms[entry.name] = job.since_ms + hold_ms

    def own_entries(self) -> list[ReadyEntry]:
        """Of the jobs that this host should get."""
        return list(self._own.values()) if self._counts(self._repo.now_ms()) else []

    def is_anothers(self, entry: ReadyEntry) -> bool:
        """Whether it is left to another host for the moment, which is a short one: that host may
        be gone."""
        until_ms = self._held_until_ms.get(entry.name)
        if until_ms is None:
            return False
        now_ms = self._repo.now_ms()
        seen_for = self._repo.clock.monotonic() - self._seen_at[entry.name]
        return self._counts(now_ms) and now_ms < until_ms and seen_for < self._hold_seconds

    @property
    def _hold_seconds(self) -> float:
        return HOLD_TICKS * self._repo.deployment.tick_seconds

    def order(self) -> Callable[[ReadyEntry], Rank]:
        """The order in which this host takes jobs, as it is now. Within a priority: what it should
        get, what is known to end, and what has waited for long, then the rest; older before
        newer."""
        now_ms = self._repo.now_ms()
        own, others = self._own, self._held_until_ms
        if not self._counts(now_ms):
            own, others = {}, {}

        def rank(entry: ReadyEntry) -> Rank:
            known = (
                entry.needs.runtime_seconds is not None
                or entry.name in others
                or now_ms - entry.queued_ms >= _LONG_MS
            )
            place = 0 if entry.name in own else 1 if known else 2
            return (-entry.priority, place, entry.queued_ms, entry.job_id)

        return rank

    def _counts(self, now_ms: int) -> bool:
        return now_ms < self._expires_ms
