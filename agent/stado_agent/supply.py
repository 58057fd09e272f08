"""Where an agent gets its next job from: pages of the queue, read no more often than it pays.

A page is used for a moment and then read again, so that what is new and urgent comes first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, takewhile

from stado.core import keys
from stado.core.admission import Door, Offer
from stado.core.order import ReadyEntry
from stado.jobs.queue_index import LATER, Page, read_page
from stado.jobs.repository import Repository
from stado.ports import Clock
from stado_agent.guidance import Guidance

_FRESH_SECONDS = 2.0
_PAGE_MIN = 64
_PAGE_MAX = 1000
_LATER_SECONDS = 15.0
"""How often what is not due yet is looked at, where it lies behind the page that is read."""

_PAGES_MAX = 20
"""How deep an agent looks for a job that fits when the head of the queue does not."""

_STALE_SECONDS = 0.25
"""While other agents take the same jobs, a page that is older is read anew."""

_IN_VAIN_MAX = 2
"""Claims that may come too late before the page that they were made from is read anew."""

_CHOICE_MIN = 64.0
"""Equal jobs that one is drawn from after a claim that came too late."""

_CHOICE_GROWTH = 2.0
_CHOICE_DECAY = 0.9
"""Of the number of equal jobs that one is drawn from: with each claim that came too late, and with
each other. They balance where one of eight or so comes too late."""

_IDLE_FACTOR = 1.5
_REST_SECONDS = 1.0
_REST_SECONDS_MAX = 600.0
_MISSED_MAX = 1000
_OVER_MAX = 4
"""Jobs whose time is up that an agent ends after one look at the queue; coordinators do more."""


@dataclass(slots=True)
class _Miss:
    """An entry that could not be claimed, and was still there afterwards."""

    count: int = 0
    until: float = float("-inf")


class _Misses:
    """Entries without a job that can be had (their record is not there yet, or cannot be read, or
    a claimer has died over it): tried at once again, and then less and less often."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._misses: dict[str, _Miss] = {}

    def note(self, name: str) -> None:
        now = self._clock.monotonic()
        if len(self._misses) >= _MISSED_MAX:
            self._misses = {key: one for key, one in self._misses.items() if one.until > now}
        miss = self._misses.setdefault(name, _Miss())
        miss.count += 1
        if miss.count > 1:
            rest = min(_REST_SECONDS_MAX, _REST_SECONDS * 2.0 ** min(miss.count - 2, 20))
            miss.until = now + rest

    def resting(self, name: str) -> bool:
        miss = self._misses.get(name)
        return miss is not None and self._clock.monotonic() < miss.until


class Supply:
    """The queue as one agent sees it, in the order of its guidance."""

    def __init__(self, repo: Repository, guidance: Guidance, *, poll_seconds: float) -> None:
        self._repo = repo
        self._guidance = guidance
        self._poll_seconds_max = poll_seconds
        self._pause = 0.0
        self._next_poll_at = 0.0
        self._read_at = float("-inf")
        self._later_read_at = float("-inf")
        self._head: list[ReadyEntry] = []
        self._head_at = float("-inf")
        self._entries: list[ReadyEntry] = []
        self._over: list[ReadyEntry] = []
        self._choice = 1.0
        self._is_stale = False
        self._in_vain = 0
        self._misses = _Misses(repo.clock)

    def seconds_to_wait(self) -> float:
        """Until the queue is worth another look."""
        return max(0.0, self._next_poll_at - self._repo.clock.monotonic())

    def hurry(self) -> None:
        """Something ended here: what waits may fit now."""
        self._pause = 0.0
        if self._entries:
            self._next_poll_at = self._repo.clock.monotonic()

    def rest(self, seconds: float) -> None:
        """Something is wrong here: take nothing for a while."""
        self._entries = []
        self._next_poll_at = self._repo.clock.monotonic() + seconds

    def missed(self, entry: ReadyEntry | None) -> None:
        """Another agent was faster: next time one of more is drawn, and not the very next job,
        which all who lost will try. Or it is an entry that nobody can claim."""
        self._choice = min(_PAGE_MAX, max(_CHOICE_MIN, self._choice * _CHOICE_GROWTH))
        self._is_stale = True
        self._in_vain += 1
        if entry is not None:
            self._misses.note(entry.name)

    def take_over(self) -> list[ReadyEntry]:
        """Some of the jobs whose time was up when the queue was looked at last, once each look."""
        over, self._over = self._over[:_OVER_MAX], []
        return over

    def next_fitting(
        self, offer: Offer, *, skip: Callable[[ReadyEntry], bool]
    ) -> ReadyEntry | None:
        """The first job in this host's order that may start here now; None for now."""

        def passed_over(entry: ReadyEntry) -> bool:
            resting = self._misses.resting(entry.name)
            return skip(entry) or resting or self._guidance.is_anothers(entry)

        if self._is_outdated():
            self._entries = []
        found = self._take(offer, passed_over)
        if found is None and (self._is_stale or not self.seconds_to_wait()):
            self._poll(offer, passed_over)
            found = self._take(offer, passed_over)
        return found

    def _is_outdated(self) -> bool:
        """Its age counts from when it was asked for: a slow listing is old when it arrives."""
        is_contended = self._is_stale or self._choice > 1
        age = self._repo.clock.monotonic() - self._read_at
        return self._in_vain >= _IN_VAIN_MAX or age > (
            _STALE_SECONDS if is_contended else _FRESH_SECONDS
        )

    def waiting(self, *, skip: Callable[[ReadyEntry], bool]) -> list[ReadyEntry]:
        """The head of the queue in order, of what is due: a look of its own where the last one is
        older than a beat. Nothing of it is taken."""
        if self._repo.clock.monotonic() - self._head_at > self._repo.deployment.tick_seconds:
            self._note_head(read_page(self._repo, limit=_PAGE_MIN))
        entries, now_ms = self._head, self._repo.now_ms()
        return [
            entry
            for entry in sorted(entries, key=lambda one: one.rank)
            if entry.is_due(now_ms) and not skip(entry) and not self._misses.resting(entry.name)
        ]

    def _note_head(self, page: Page) -> None:
        self._head = [] if page.paused else page.entries
        self._head_at = self._repo.clock.monotonic()

    def _take(self, offer: Offer, skip: Callable[[ReadyEntry], bool]) -> ReadyEntry | None:
        now_ms = self._repo.now_ms()
        door = Door(offer, now_ms=now_ms)
        fitting = (
            entry for entry in self._entries if _may_start(entry, door, now_ms) and not skip(entry)
        )
        found = next(fitting, None)
        if found is None:
            return None
        if self._choice > 1:
            found = self._drawn_from(found, fitting)
        self._choice = max(1.0, self._choice * _CHOICE_DECAY)
        self._entries.remove(found)
        return found

    def _drawn_from(self, first: ReadyEntry, others: Iterator[ReadyEntry]) -> ReadyEntry:
        """One of those that are as urgent as the first: many agents do not want the same."""
        rank = self._guidance.order()
        place = rank(first)[:2]
        equal = takewhile(lambda one: rank(one)[:2] == place, others)
        equals = [first, *islice(equal, math.ceil(self._choice) - 1)]
        return equals[int(self._repo.entropy.uniform(0, len(equals) - 0.001))]

    def _poll(self, offer: Offer, skip: Callable[[ReadyEntry], bool]) -> None:
        """Reads the head of the queue, and on while nothing in it fits."""
        wanted = max(16 * offer.cpu_milli // 1000, 2 * int(self._choice))
        limit = min(_PAGE_MAX, max(_PAGE_MIN, wanted))
        self._is_stale = False
        self._in_vain = 0
        self._read_at = self._repo.clock.monotonic()
        head = read_page(self._repo, limit=limit)
        self._note_head(head)
        page = self._with_own(self._with_later(head))
        now_ms = self._repo.now_ms()
        door = Door(offer, now_ms=now_ms)

        def fits(page: Page) -> bool:
            return any(
                _may_start(entry, door, now_ms) and not skip(entry) for entry in page.entries
            )

        over: list[ReadyEntry] = []
        for _ in range(_PAGES_MAX):
            over += [entry for entry in page.entries if entry.is_over(now_ms)]
            if page.paused or page.next_after is None or fits(page) or _is_all_later(page, now_ms):
                break
            page = read_page(self._repo, start_after=page.next_after, limit=_PAGE_MAX)
        self._entries = [] if page.paused else sorted(page.entries, key=self._guidance.order())
        self._over = [entry for entry in over if not self._misses.resting(entry.name)]
        self._plan_next_poll(found_work=not page.paused and fits(page))

    def _with_later(self, page: Page) -> Page:
        """With what has waited for its time and lies behind all others, now and then: it counts
        like them once it is due."""
        now = self._repo.clock.monotonic()
        far = page.next_after is not None and page.next_after < LATER
        if not far or page.paused or now - self._later_read_at < _LATER_SECONDS:
            return page
        self._later_read_at = now
        later = read_page(self._repo, start_after=LATER)
        due = [entry for entry in later.entries if entry.is_due(self._repo.now_ms())]
        return replace(page, entries=[*page.entries, *due])

    def _with_own(self, page: Page) -> Page:
        """With what this host should get and lies behind the page."""
        if page.next_after is None:
            return page
        behind = page.next_after.removeprefix(keys.READY)
        own = [one for one in self._guidance.own_entries() if one.name > behind]
        return replace(page, entries=[*own, *page.entries])

    def _plan_next_poll(self, *, found_work: bool) -> None:
        """An idle agent looks less and less often, and never in step with the others."""
        shortest = self._poll_seconds_max / 4
        self._pause = (
            shortest if found_work else min(self._poll_seconds_max, self._pause * _IDLE_FACTOR)
        )
        self._pause = max(self._pause, shortest)
        jitter = self._repo.entropy.uniform(0.8, 1.2)
        self._next_poll_at = self._repo.clock.monotonic() + self._pause * jitter


def _may_start(entry: ReadyEntry, door: Door, now_ms: int) -> bool:
    return entry.is_due(now_ms) and door.lets_in(entry.needs)


def _is_all_later(page: Page, now_ms: int) -> bool:
    """Whether it ends among names behind which none can be started now: of jobs that wait for a
    time to come, in its order, and of those that wait for others."""
    return bool(page.entries) and not page.entries[-1].is_due(now_ms)
