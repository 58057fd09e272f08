"""Budgets: what is spent of each in a day or a month, and whose new jobs wait for that. Pure.

What is spent is what uses say, ended ones and those that run, cut to the period. The document is a
lower bound: within its period more may be spent by now, and never less but where prices or
estimated ends were put right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated

import msgspec

from stado.core import keys
from stado.core.budget_words import Budget, Whose, parse_budget
from stado.core.costs import Catalog, cost_of_use
from stado.core.documents import COUNT_MAX, Count, Document, Instant, Part
from stado.core.ids import milliseconds
from stado.core.quotas import ScopeKind, scope_name
from stado.core.records import Line
from stado.core.settings import DeploymentSettings
from stado.core.spec import Spec
from stado.core.states import BudgetPeriod, BudgetState, BudgetUnit
from stado.core.usage import Use, digest_word

USERS_TOLD_MAX = 1000
"""Of one budget of each user: those who have spent most."""

USERS_TOLD_MIN = 20
"""So many of them also where none has come near the amount."""

SPENT_MAX = 4 * USERS_TOLD_MAX + 200

_MICRO = 1_000_000
_HOUR_MS = 3_600_000


class BudgetSpent(Part, frozen=True, kw_only=True):
    """What is spent of one budget in the period that `at` of its document is in."""

    whose: Line
    """`all`, `users`, `group.<name>`, `user.<user>`."""
    user: Line | None = None
    """Of `users`: who; null: the most that any other has spent."""
    unit: BudgetUnit
    period: BudgetPeriod
    spent_micro: Count
    """Millionths of a dollar, or of a GPU hour."""
    unpriced_ms: Count = 0
    """That ran and have no price: they are in no sum of dollars."""
    unpriced_epochs: Count = 0
    state: BudgetState = BudgetState.OK
    """By the amount that was set then; what was told in the log. Of the others of `users` never
    held: nobody is held by a row that names nobody."""
    over: Count = 0
    """Of those others: how many have spent all, and are not held, for there is no room to name
    them."""


class Spending(Document, frozen=True, kw_only=True):
    """`budgets.json`: what is spent of the budgets that were set."""

    counter: Count
    """One more with each write."""
    at: Instant
    """Up to when it counts."""
    by: Line
    prices: Line
    """Which catalog has the prices that no host stated."""
    uncounted: Count = 0
    """Segments of the ledger, and jobs that run, that could not be read: there may be more."""
    spent: Annotated[list[BudgetSpent], msgspec.Meta(max_length=SPENT_MAX)] = msgspec.field(
        default_factory=list
    )

    def own_key(self) -> str:
        return keys.BUDGETS


# --- periods ------------------------------------------------------------------------------


def begin_of(period: BudgetPeriod, at: datetime) -> datetime:
    """Of the one that this moment is in, in UTC."""
    day = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day if period is BudgetPeriod.DAY else day.replace(day=1)


def end_of(period: BudgetPeriod, at: datetime) -> datetime:
    """When the next one begins."""
    begin = begin_of(period, at)
    if period is BudgetPeriod.DAY:
        return begin + timedelta(days=1)
    return (begin + timedelta(days=32)).replace(day=1)


# --- what is known of one -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Standing:
    """How one budget of somebody stands, by the settings as they are now."""

    budget: Budget
    kind: ScopeKind
    subject: str
    """The group, the user as a use tells him; "" of all."""
    spent_micro: int
    ends_at: datetime
    """When its period is over, and it begins anew."""
    as_of: datetime
    unpriced_ms: int = 0
    unpriced_epochs: int = 0

    @property
    def name(self) -> str:
        return scope_name(self.kind, self.subject)

    @property
    def share(self) -> float:
        """Of the amount; 1.0 and more: all of it is spent."""
        return self.spent_micro / self.budget.amount_micro

    @property
    def is_spent(self) -> bool:
        return self.spent_micro >= self.budget.amount_micro

    def state(self, warn_percent: int) -> BudgetState:
        return state_of(self.spent_micro, self.budget, warn_percent)

    def is_of(self, subject: str | None) -> bool:
        return subject is not None and self.subject in (subject, digest_word(subject))


def state_of(spent_micro: int, budget: Budget, warn_percent: int) -> BudgetState:
    if spent_micro >= budget.amount_micro:
        return BudgetState.HELD
    warned = spent_micro * 100 >= budget.amount_micro * warn_percent
    return BudgetState.WARNED if warned else BudgetState.OK


def budgets_set(settings: DeploymentSettings) -> tuple[Budget, ...]:
    return _parsed(tuple(settings.budgets.rules or ()))


@lru_cache(maxsize=64)
def _parsed(rules: tuple[str, ...]) -> tuple[Budget, ...]:
    return tuple(parse_budget(rule) for rule in rules)


def standings(
    settings: DeploymentSettings, known: Spending | None, now: datetime
) -> Iterator[Standing]:
    """Of the budgets that are set now, in their order, of which `known` says what is spent in the
    period that is now. Of who is not here nothing is known."""
    rows: dict[tuple[str, BudgetUnit, BudgetPeriod], list[BudgetSpent]] = {}
    for row in [] if known is None else known.spent:
        rows.setdefault((row.whose, row.unit, row.period), []).append(row)
    for budget in budgets_set(settings):
        if known is None or begin_of(budget.period, known.at) != begin_of(budget.period, now):
            continue
        for row in rows.get((budget.of, budget.unit, budget.period), []):
            if budget.whose is Whose.USERS and row.user is None:
                continue
            yield _standing(budget, row, known.at, now)


def _standing(budget: Budget, row: BudgetSpent, as_of: datetime, now: datetime) -> Standing:
    of_users = budget.whose is Whose.USERS
    return Standing(
        budget,
        ScopeKind.USER if of_users else ScopeKind(budget.whose.value),
        (row.user or "") if of_users else budget.subject,
        row.spent_micro,
        end_of(budget.period, now),
        as_of,
        row.unpriced_ms,
        row.unpriced_epochs,
    )


def not_known(
    spec: Spec,
    *,
    user: str | None,
    settings: DeploymentSettings,
    known: Spending | None,
    now: datetime,
) -> list[Budget]:
    """Those that such a job of this user falls under, and of which nobody has worked out yet what
    is spent in the period that is now."""
    worked_out = {
        (row.whose, row.unit, row.period)
        for row in ([] if known is None else known.spent)
        if known is not None and begin_of(row.period, known.at) == begin_of(row.period, now)
    }
    subjects = {Whose.ALL: "", Whose.USERS: "", Whose.GROUP: spec.group, Whose.USER: user}
    return [
        one
        for one in budgets_set(settings)
        if subjects[one.whose] == one.subject and (one.of, one.unit, one.period) not in worked_out
    ]


def spent_out(
    settings: DeploymentSettings | None, known: Spending | None, now: datetime
) -> list[Standing]:
    """Those of which all is spent: whoever falls under one starts nothing new until it begins
    anew."""
    if settings is None or not settings.budgets.rules:
        return []
    return [one for one in standings(settings, known, now) if one.is_spent]


def standings_of(spec: Spec, *, user: str | None, found: Iterable[Standing]) -> list[Standing]:
    """Those that such a job of this user (None: not known) falls under. The narrowest first."""
    of_job = [
        (order, one)
        for one in found
        for order, kind in enumerate((ScopeKind.GROUP, ScopeKind.USER, ScopeKind.ALL))
        if one.kind is kind
        and (kind is ScopeKind.ALL or one.is_of(spec.group if kind is ScopeKind.GROUP else user))
    ]
    return [one for _, one in sorted(of_job, key=lambda pair: pair[0])]


@dataclass(frozen=True, slots=True)
class Hold:
    """Whose new jobs wait, and until when: what a claim is told of a budget that is spent."""

    kind: ScopeKind
    subject: str
    ends_at: datetime

    @property
    def name(self) -> str:
        return scope_name(self.kind, self.subject)

    def holds(self, spec: Spec, user: str | None, now: datetime) -> bool:
        if now >= self.ends_at:
            return False
        if self.kind is ScopeKind.ALL:
            return True
        of_job = spec.group if self.kind is ScopeKind.GROUP else user
        return of_job is not None and self.subject in (of_job, digest_word(of_job))

    def plain(self) -> list[str]:
        """For a line of JSON."""
        return [self.kind.value, self.subject, self.ends_at.isoformat()]


def hold_of(plain: Sequence[str]) -> Hold:
    """Of `Hold.plain`."""
    kind, subject, ends_at = plain
    return Hold(ScopeKind(kind), subject, datetime.fromisoformat(ends_at))


def holds_of(spent: Iterable[Standing]) -> list[Hold]:
    """Each once, with the last end of those that hold the same jobs."""
    last: dict[tuple[ScopeKind, str], datetime] = {}
    for one in spent:
        key = one.kind, one.subject
        last[key] = max(last.get(key, one.ends_at), one.ends_at)
    return [Hold(kind, subject, ends_at) for (kind, subject), ends_at in last.items()]


# --- sums ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Sum:
    amount: float = 0.0
    unpriced_ms: int = 0
    unpriced_epochs: int = 0

    def merge(self, other: _Sum) -> None:
        self.amount += other.amount
        self.unpriced_ms += other.unpriced_ms
        self.unpriced_epochs += other.unpriced_epochs


class BudgetTally:
    """What uses have spent of budgets, in the periods that `at` is in."""

    def __init__(self, budgets: Sequence[Budget], catalog: Catalog, at: datetime) -> None:
        begins = {budget: begin_of(budget.period, at) for budget in budgets}
        self.since = min(begins.values(), default=at)
        """Nothing that ended before counts."""
        self._at_ms = milliseconds(at)
        """Nor what came after, by the clock of a host that is ahead: it counts once it is so
        late."""
        self._catalog = catalog
        self._sums: dict[Budget, dict[str, _Sum]] = {budget: {} for budget in budgets}
        """By the user of a budget of each, else by ""."""
        self._of_all: list[tuple[Budget, int]] = []
        """And of users, each with when its period began: there may be very many uses."""
        self._of_one: dict[tuple[Whose, str], list[tuple[Budget, int]]] = {}
        for budget, begin in begins.items():
            found = (budget, milliseconds(begin))
            if budget.whose in (Whose.ALL, Whose.USERS):
                self._of_all.append(found)
                continue
            for told in (budget.subject, digest_word(budget.subject)):
                self._of_one.setdefault((budget.whose, told), []).append(found)

    def add(self, use: Use) -> None:
        for budget, begin_ms in self._budgets_of(use):
            within = use.since(begin_ms, until_ms=self._at_ms)
            if within is not None:
                subject = use.user if budget.whose is Whose.USERS else ""
                group = self._sums[budget].setdefault(subject, _Sum())
                _add(group, within, budget.unit, self._catalog)

    def _budgets_of(self, use: Use) -> Iterator[tuple[Budget, int]]:
        yield from self._of_all
        yield from self._of_one.get((Whose.USER, use.user), ())
        if use.group is not None:
            yield from self._of_one.get((Whose.GROUP, use.group), ())

    def rows(self, warn_percent: int) -> list[BudgetSpent]:
        """Of each budget; of each user's those that have spent most, and one of all others."""
        found: list[BudgetSpent] = []
        for budget, of_users in self._sums.items():
            sums = _as_one(of_users)
            if budget.whose is not Whose.USERS:
                found.append(_row(budget, None, sums.get("", _Sum()), warn_percent))
                continue
            found += _rows_of_users(budget, sums, warn_percent)
        return found


def _add(group: _Sum, use: Use, unit: BudgetUnit, catalog: Catalog) -> None:
    if unit is BudgetUnit.GPUH:
        group.amount += use.wall_ms * use.gpus / _HOUR_MS
        return
    dollars = cost_of_use(use, catalog)
    if dollars is None:
        group.unpriced_ms += use.wall_ms
        group.unpriced_epochs += 1
    else:
        group.amount += dollars


def _as_one(sums: dict[str, _Sum]) -> dict[str, _Sum]:
    """Some names of uses tell a user by a digest, where others had room for him."""
    for name in [one for one in sums if not one.startswith("!")]:
        told = sums.pop(digest_word(name), None)
        if told is not None:
            sums[name].merge(told)
    return sums


def _rows_of_users(
    budget: Budget, sums: dict[str, _Sum], warn_percent: int
) -> Iterator[BudgetSpent]:
    rows = [_row(budget, user, one, warn_percent) for user, one in sums.items() if user]
    rows.sort(key=lambda row: (-row.spent_micro, row.user or ""))
    told = sum(row.state is not BudgetState.OK for row in rows)
    most = min(USERS_TOLD_MAX, max(USERS_TOLD_MIN, told))
    yield from rows[:most]
    left = rows[most].spent_micro if len(rows) > most else 0
    unpriced = _Sum(
        left / _MICRO,
        sum(row.unpriced_ms for row in rows[most:]),
        sum(row.unpriced_epochs for row in rows[most:]),
    )
    others = _row(budget, None, unpriced, warn_percent)
    over = sum(row.state is BudgetState.HELD for row in rows[most:])
    yield others.evolve(state=state_of_others(others.state), over=over)


def state_of_others(state: BudgetState) -> BudgetState:
    """Of the row of `users` that names nobody: it holds nobody, whatever they have spent."""
    return BudgetState.WARNED if state is BudgetState.HELD else state


def _row(budget: Budget, user: str | None, group: _Sum, warn_percent: int) -> BudgetSpent:
    spent_micro = min(round(group.amount * _MICRO), COUNT_MAX)
    return BudgetSpent(
        whose=budget.of,
        user=user,
        unit=budget.unit,
        period=budget.period,
        spent_micro=spent_micro,
        unpriced_ms=min(group.unpriced_ms, COUNT_MAX),
        unpriced_epochs=group.unpriced_epochs,
        state=state_of(spent_micro, budget, warn_percent),
    )


def not_below(
    rows: Sequence[BudgetSpent],
    before: Spending | None,
    at: datetime,
    settings: DeploymentSettings,
) -> list[BudgetSpent]:
    """Where something could not be read, what was known before still holds in its period: who had
    spent all has not spent less by that. Whether that is all of it the settings of now say. Where
    there is no room for all, who is held comes first."""
    budgets = {(one.of, one.unit, one.period): one for one in budgets_set(settings)}
    warn_percent = settings.budgets.warns_at_percent
    known = {
        name: _restated(row, budgets.get((row.whose, row.unit, row.period)), warn_percent)
        for name, row in _of_now(before, at).items()
    }
    set_now = {(row.whose, row.unit, row.period) for row in rows}
    found = {_name(row): _larger(row, known.get(_name(row))) for row in rows}
    for name, row in known.items():
        if (row.whose, row.unit, row.period) in set_now:
            found.setdefault(name, row)
    kept = list(found.values())
    if len(kept) > SPENT_MAX:
        kept.sort(key=_last_left_out)
    return kept[:SPENT_MAX]


def _restated(row: BudgetSpent, budget: Budget | None, warn_percent: int) -> BudgetSpent:
    if budget is None:
        return row
    state = state_of(row.spent_micro, budget, warn_percent)
    of_others = budget.whose is Whose.USERS and row.user is None
    return row.evolve(state=state_of_others(state) if of_others else state)


def _last_left_out(row: BudgetSpent) -> int:
    if row.user is None:
        return 0
    return 1 if row.state is BudgetState.HELD else 2


def _of_now(before: Spending | None, at: datetime) -> dict[_Name, BudgetSpent]:
    """What it says of the periods that `at` is in."""
    if before is None:
        return {}
    return {
        _name(row): row
        for row in before.spent
        if begin_of(row.period, before.at) == begin_of(row.period, at)
    }


_Name = tuple[str, str | None, BudgetUnit, BudgetPeriod]


def _name(row: BudgetSpent) -> _Name:
    return row.whose, row.user, row.unit, row.period


def _larger(row: BudgetSpent, before: BudgetSpent | None) -> BudgetSpent:
    if before is None or before.spent_micro <= row.spent_micro:
        return row
    return row.evolve(spent_micro=before.spent_micro, state=before.state)


def news(
    rows: Iterable[BudgetSpent], before: Spending | None, at: datetime
) -> Iterator[BudgetSpent]:
    """Those that have come further than was told in their period: once each is warned, and held."""
    told, order = _of_now(before, at), list(BudgetState)
    for row in rows:
        was = told.get(_name(row))
        reached = 0 if was is None else order.index(was.state)
        of_others = row.whose == Whose.USERS and row.user is None
        if order.index(row.state) > reached and not of_others:
            yield row
