"""Which jobs an agent leaves alone because of whose they are: no window is open in which they may
start, or a budget of theirs is spent. It goes by the names of the queue's index, so that none of
them is read again and again.

A name does not say whose job it is: while a user's jobs wait, of each submission one is tried, and
whose the others are is known by it.
"""

from __future__ import annotations

from stado.core.budgets import Hold, Spending, holds_of, spent_out
from stado.core.envelope import group_code
from stado.core.ids import base_of
from stado.core.order import ReadyEntry
from stado.core.quotas import ScopeKind
from stado.core.settings import DeploymentSettings
from stado.core.usage import digest_word
from stado.core.windows import restrictions
from stado.jobs.repository import Repository
from stado_agent.known_bases import KnownBases
from stado_agent.rules import Rules

_OTHERS_MAX = 10_000
_USERS_MAX = 1000
_TRY_SECONDS = 2.0
"""So long the others of a submission wait for what becomes of the one that is tried."""


class HeldBack:
    """Keep one an agent. `rules`: what the deployment says, as the agent knows it now."""

    def __init__(self, repo: Repository, rules: Rules) -> None:
        self._repo = repo
        self._rules = rules
        self._looked: tuple[int, DeploymentSettings | None, Spending | None] | None = None
        self._held = _Held()
        self._bases = KnownBases(repo)
        """Submissions of users that were found to wait."""
        self._users: dict[str, str] = {}
        """These users, and how they are told where their names are too long."""
        self._others: set[str] = set()
        """Submissions of users who do not."""
        self._trying: dict[str, float] = {}

    @property
    def holds(self) -> list[Hold]:
        """Whose budgets are spent, for a claim."""
        return self._now().holds

    def note_tried(self, entry: ReadyEntry) -> None:
        base = base_of(entry.job_id)
        if self._now().users and base not in self._others:
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
        if subject not in self._users and len(self._users) >= _USERS_MAX:
            self._users.clear()
        self._users[subject] = digest_word(subject)
        self._bases.learn(subject, base_of(entry.job_id))

    @property
    def everything(self) -> bool:
        """Whether no job at all may start."""
        return self._now().everything

    @property
    def groups(self) -> frozenset[str]:
        """As codes of the queue's index."""
        return self._now().groups

    def holds_up(self, entry: ReadyEntry) -> bool:
        """Whether it is a job of a user who has to wait, or may be one."""
        base = base_of(entry.job_id)
        if self._trying.get(base, 0.0) > self._repo.clock.monotonic():
            return True
        users = self._now().users
        return bool(users) and any(
            base in self._bases.of(user)
            for user, told in self._users.items()
            if user in users or told in users
        )

    def _now(self) -> _Held:
        """Looked at once a minute, of which windows and days are made: there are thousands of
        questions."""
        settings, budgets = self._rules.settings, self._rules.budgets
        minute = self._repo.now_ms() // 60_000
        before = self._looked
        known = before is not None and before[1] is settings and before[2] is budgets
        if not known or before is None or before[0] != minute:
            held = self._look(settings, budgets)
            if held.users != self._held.users:
                self._others.clear()
            self._held = held
            self._looked = minute, settings, budgets
        return self._held

    def _look(self, settings: DeploymentSettings | None, budgets: Spending | None) -> _Held:
        if settings is None or not (settings.windows.rules or settings.budgets.rules):
            return _Held()
        at = self._repo.now()
        holds = holds_of(spent_out(settings, budgets, at))
        closed = [one for one in restrictions(settings) if not one.is_open(at)]
        whose = [(one.kind, one.subject) for one in closed]
        return _Held([*whose, *((one.kind, one.subject) for one in holds)], holds)


class _Held:
    """Whose jobs wait at one moment."""

    def __init__(
        self, whose: list[tuple[ScopeKind, str]] | None = None, holds: list[Hold] | None = None
    ) -> None:
        found = whose or []
        self.holds = holds or []
        self.everything = any(kind is ScopeKind.ALL for kind, _ in found)
        self.groups = frozenset(
            group_code(subject) for kind, subject in found if kind is ScopeKind.GROUP
        )
        self.users = frozenset(subject for kind, subject in found if kind is ScopeKind.USER)
