"""What an agent remembers of limits under which as many jobs run as may: for some seconds it tries
no further job that falls under them, so that none is read in vain.
"""

from __future__ import annotations

from dataclasses import dataclass

from stado.core.envelope import group_code
from stado.core.ids import base_of
from stado.core.order import ReadyEntry
from stado.core.quotas import ScopeKind
from stado.jobs.repository import Repository
from stado_agent.known_bases import KnownBases

_REST_SECONDS = 5.0
"""How long a freed place may stay empty, while its last job ran elsewhere."""

_KNOWN_SECONDS = 60.0
"""So long one job at a time is tried under a limit that was full."""

_BETWEEN_TRIES_SECONDS = 1.0
_OF_USERS = (ScopeKind.USER, ScopeKind.USER_GPUS)


@dataclass(slots=True)
class _Full:
    """A limit that was found full."""

    until: float
    """Nothing is tried before."""
    known_until: float


class FullScopes:
    """Keep one an agent."""

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._full: dict[tuple[ScopeKind, str], _Full] = {}
        self._bases = KnownBases(repo)

    def note(self, kind: ScopeKind, subject: str, entry: ReadyEntry | None) -> None:
        """`entry`: of the job that found it full."""
        now = self._repo.clock.monotonic()
        full = self._full.setdefault((kind, subject), _Full(now, now))
        full.until = now + _REST_SECONDS * self._repo.entropy.uniform(0.75, 1.25)
        full.known_until = now + _KNOWN_SECONDS
        if kind in _OF_USERS and entry is not None:
            self._bases.learn(subject, base_of(entry.job_id))

    def note_tried(self, entry: ReadyEntry) -> None:
        """Of all that wait for one place the others need not be tried beside it."""
        now = self._repo.clock.monotonic()
        for scope, full in self._full.items():
            if self._falls_under(entry, scope):
                full.until = max(full.until, now + _BETWEEN_TRIES_SECONDS)

    def note_end(self) -> None:
        """A job has ended here: a place is free."""
        for full in self._full.values():
            full.until = self._repo.clock.monotonic()

    @property
    def everything(self) -> bool:
        """Whether no job at all is to be tried."""
        return any(kind is ScopeKind.ALL for kind, _ in self._resting())

    @property
    def groups(self) -> frozenset[str]:
        """As codes of the queue's index."""
        return frozenset(
            group_code(group) for kind, group in self._resting() if kind is ScopeKind.GROUP
        )

    def holds_up(self, entry: ReadyEntry) -> bool:
        """Whether it falls under a limit that was found full."""
        if not self._full:
            return False
        return any(self._falls_under(entry, scope) for scope in self._resting())

    def _resting(self) -> dict[tuple[ScopeKind, str], _Full]:
        now = self._repo.clock.monotonic()
        self._full = {scope: one for scope, one in self._full.items() if one.known_until > now}
        return {scope: one for scope, one in self._full.items() if one.until > now}

    def _falls_under(self, entry: ReadyEntry, scope: tuple[ScopeKind, str]) -> bool:
        kind, subject = scope
        if kind.of_cards and not entry.needs.uses_cards:
            return False
        if kind in (ScopeKind.GROUP, ScopeKind.GROUP_GPUS):
            return entry.needs.group == group_code(subject)
        base = base_of(entry.job_id)
        if kind is ScopeKind.RUN:
            return base == subject
        return kind in (ScopeKind.ALL, ScopeKind.GPUS) or base in self._bases.of(subject)
