"""Budgets, as people see them: what is spent, who waits for it, and how that is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from stado.core.budget_words import Budget, Whose
from stado.core.budgets import (
    BudgetSpent,
    Spending,
    Standing,
    begin_of,
    budgets_set,
    end_of,
    state_of,
    state_of_others,
)
from stado.core.quotas import ScopeKind
from stado.core.settings import DeploymentSettings
from stado.core.spec import Spec
from stado.core.states import BudgetState, BudgetUnit
from stado.jobs.budgets import is_old, read_budgets
from stado.jobs.fitting import Wait
from stado.jobs.repository import Repository
from stado.jobs.settings import read_settings

WAITING_BUDGET = "waiting_budget"

_MICRO = 1_000_000
_REMEDY = "`stado settings set budgets.rules` allows more; `stado cost budgets` shows all"


def budget_wait(spent: Standing, spec: Spec) -> Wait:
    """Of a job that falls under one of which all is spent."""
    moment = f"{spent.ends_at:%a %Y-%m-%d %H:%M}Z"
    text = f"the budget of {_whose(spent)} is spent: {_spent_text(spent)}"
    if spec.deadline_at is not None and spent.ends_at >= spec.deadline_at:
        return Wait(
            WAITING_BUDGET,
            f"{text}; it begins anew at {moment}, and its deadline is before that",
            _REMEDY,
        )
    return Wait(
        WAITING_BUDGET,
        f"{text}; it begins anew at {moment}",
        _REMEDY,
        until=f"at {moment}, when a budget begins anew: {text}",
    )


def budget_note(standing: Standing) -> str:
    """`85 % of the budget of ada is spent: $170.00 of $200 a month; …`."""
    percent = percent_text(standing.spent_micro, standing.budget.amount_micro)
    return (
        f"{percent} of the budget of {_whose(standing)} is spent: "
        f"{_spent_text(standing)}; once all of it is, new jobs wait until "
        f"{standing.ends_at:%Y-%m-%d %H:%M}Z"
    )


def room_text(found: Sequence[Standing]) -> str:
    """Of budgets that have room: `ada has spent $170.00 of $200 a month`."""
    return "; ".join(f"{_whose(one)} has spent {_spent_text(one)}" for one in found)


def percent_text(spent_micro: int, amount_micro: int) -> str:
    """Never 100 % before all is spent."""
    return f"{spent_micro * 100 // amount_micro} %"


def unknown_text(found: Sequence[Budget]) -> str:
    """Of budgets of which nothing is worked out yet."""
    named = ", ".join(one.text for one in found)
    return (
        f"what is spent of {named} is not known yet: no coordinator has worked it out since it was "
        "set, or began anew"
    )


def amount_text(micro: int, unit: BudgetUnit) -> str:
    """`$170.00`, `$0.0042`, `41.5 GPU hours`."""
    amount = micro / _MICRO
    if unit is BudgetUnit.GPUH:
        return f"{_plain(amount, 2)} GPU hours"
    if 0 < amount < 0.01:
        return f"${_plain(amount, 6)}"
    return f"${amount:,.2f}"


def _plain(amount: float, digits: int) -> str:
    text = f"{amount:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _spent_text(one: Standing) -> str:
    unit = one.budget.unit
    spent = amount_text(one.spent_micro, unit).removesuffix(" GPU hours")
    return f"{spent} of {amount_text(one.budget.amount_micro, unit)} a {one.budget.period}"


def _whose(one: Standing) -> str:
    if one.kind is ScopeKind.ALL:
        return "the deployment"
    return f"{'group ' if one.kind is ScopeKind.GROUP else ''}{one.subject}"


# --- all of them ----------------------------------------------------------------------------

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """One budget that is set, or, of each user's, one user."""

    budget: Budget
    user: str | None
    """Of a budget of each user; null: all who are not told by name."""
    spent_micro: int | None
    """None: nothing is known of this period."""
    state: str
    """`ok`, `warned`, `held`; `unknown`: it was not worked out lately."""
    begins_at: datetime
    ends_at: datetime
    unpriced_ms: int = 0
    unpriced_epochs: int = 0
    over: int = 0
    """Of all who are not told by name: how many have spent all, and are not held."""

    @property
    def share(self) -> float | None:
        return None if self.spent_micro is None else self.spent_micro / self.budget.amount_micro


@dataclass(frozen=True, slots=True)
class BudgetsSeen:
    """All that is set, and what is known of it."""

    rows: list[BudgetRow]
    known: Spending | None
    """None: no coordinator has worked it out."""
    old: bool
    """Or not known at all, where a budget is set."""
    now: datetime


def see_budgets(repo: Repository) -> BudgetsSeen:
    """Two reads. Raises `Unreadable` where the settings are."""
    settings, now = read_settings(repo), repo.now()
    is_set = bool(budgets_set(settings))
    known = read_budgets(repo) if is_set else None
    old = is_set and (known is None or is_old(known, now))
    return BudgetsSeen(list(_rows(settings, known, now, old=old)), known, old, now)


def _rows(
    settings: DeploymentSettings, known: Spending | None, now: datetime, *, old: bool
) -> Iterator[BudgetRow]:
    warn_percent = settings.budgets.warns_at_percent
    for budget in budgets_set(settings):
        rows = _known_rows(budget, known, now)
        for row in rows:
            yield _row(budget, row, warn_percent, now, old=old)
        if not rows:
            begins_at, ends_at = begin_of(budget.period, now), end_of(budget.period, now)
            yield BudgetRow(budget, None, None, UNKNOWN, begins_at, ends_at)


def _known_rows(budget: Budget, known: Spending | None, now: datetime) -> list[BudgetSpent]:
    if known is None or begin_of(budget.period, known.at) != begin_of(budget.period, now):
        return []
    name = (budget.of, budget.unit, budget.period)
    return [row for row in known.spent if (row.whose, row.unit, row.period) == name]


def _row(
    budget: Budget, row: BudgetSpent, warn_percent: int, now: datetime, *, old: bool
) -> BudgetRow:
    """What is spent is so however old it is; that something is left is known of now alone."""
    state = state_of(row.spent_micro, budget, warn_percent)
    if budget.whose is Whose.USERS and row.user is None:
        state = state_of_others(state)
    known = state is BudgetState.HELD or not old
    return BudgetRow(
        budget,
        row.user if budget.whose is Whose.USERS else None,
        row.spent_micro,
        state.value if known else UNKNOWN,
        begin_of(budget.period, now),
        end_of(budget.period, now),
        row.unpriced_ms,
        row.unpriced_epochs,
        row.over,
    )
