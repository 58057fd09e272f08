"""Which jobs an agent leaves alone because no window is open in which they may start: by the names
of the queue's index, so that none of them is read again and again.

A name does not say whose job it is: while a user's windows are closed, of each submission one job
is tried, and whose the others are is known by it.
"""

from __future__ import annotations

from collections.abc import Callable

from stado.core.envelope import group_code
from stado.core.ids import base_of
from stado.core.order import ReadyEntry
from stado.core.quotas import ScopeKind
from stado.core.settings import DeploymentSettings
from stado.core.windows import Restriction, restrictions
from stado.jobs.repository import Repository
from stado_agent.known_bases import KnownBases

_OTHERS_MAX = 10_000
_TRY_SECONDS = 2.0
"""So long the others of a submission wait for what becomes of the one that is tried."""


class ClosedWindows:
    """Keep one an agent. `settings`: as the agent knows them now; None: not yet."""

    def __init__(self, repo: Repository, settings: Callable[[], DeploymentSettings | None]) -> None:
        self._repo = repo
        self._settings = settings
        self._looked: tuple[int, DeploymentSettings] | None = None
        self._closed: list[Restriction] = []
        self._bases = KnownBases(repo)
        """Submissions of users that were found to have windows."""
        self._others: set[str] = set()
        """Submissions of users who have none."""
        self._trying: dict[str, float] = {}

    def note_tried(self, entry: ReadyEntry) -> None:
        base = base_of(entry.job_id)
        if self._closed_to_some_user() and base not in self._others:
            now = self._repo.clock.monotonic()
            self._trying = {one: until for one, until in self._trying.items() if until > now}
            self._trying[base] = now + _TRY_SECONDS

    def note_claimed(self, entry: ReadyEntry) -> None:
        base = base_of(entry.job_id)
        if self._trying.pop(base, None) is not None and len(self._others) < _OTHERS_MAX:
            self._others.add(base)

    def note(self, kind: ScopeKind, subject: str, entry: ReadyEntry | None) -> None:
        """`entry`: of the job that was not to start yet."""
        if kind is not ScopeKind.USER or entry is None:
            return
        self._bases.learn(subject, base_of(entry.job_id))

    @property
    def everything(self) -> bool:
        """Whether no job at all may start."""
        return any(one.kind is ScopeKind.ALL for one in self._now_closed())

    @property
    def groups(self) -> frozenset[str]:
        """As codes of the queue's index."""
        closed = self._now_closed()
        return frozenset(group_code(one.subject) for one in closed if one.kind is ScopeKind.GROUP)

    def holds_up(self, entry: ReadyEntry) -> bool:
        """Whether it is a job of a user whose windows are closed, or may be one."""
        base = base_of(entry.job_id)
        if self._trying.get(base, 0.0) > self._repo.clock.monotonic():
            return True
        return any(
            base in self._bases.of(one.subject)
            for one in self._now_closed()
            if one.kind is ScopeKind.USER
        )

    def _closed_to_some_user(self) -> bool:
        return any(one.kind is ScopeKind.USER for one in self._now_closed())

    def _now_closed(self) -> list[Restriction]:
        """Looked at once a minute, of which windows are made: there are thousands of questions."""
        settings = self._settings()
        if settings is None or not settings.windows.rules:
            return []
        minute = self._repo.now_ms() // 60_000
        if self._looked is None or self._looked[0] != minute or self._looked[1] is not settings:
            at = self._repo.now()
            self._closed = [one for one in restrictions(settings) if not one.is_open(at)]
            if self._looked is None or self._looked[1] is not settings:
                self._others.clear()
            self._looked = minute, settings
        return self._closed
