"""A budget as people write it: `group.eval:40gpuh/day`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import msgspec

from stado.core.envelope import is_host_word
from stado.core.states import BudgetPeriod, BudgetUnit
from stado.errors import Refused

BUDGETS_MAX = 100

BUDGET_FORM = (
    "WHOSE:AMOUNT/PERIOD with blanks between such budgets: whose jobs (all, group.NAME, user.NAME, "
    "or users: each user for himself), how much (5000usd of dollars, 40gpuh of GPU hours), in each "
    "day or month (UTC): all:5000usd/month users:200usd/month group.eval:40gpuh/day"
)

_MICRO = 1_000_000
_BUDGET = re.compile(
    r"(?:(?P<all>all)|(?P<users>users)|group\.(?P<group>[^\s:]{1,100})"
    r"|user\.(?P<user>[^\s:]{1,128}))"
    r":(?P<amount>[0-9]{1,9}(?:\.[0-9]{1,6})?)(?P<unit>usd|gpuh)/(?P<period>day|month)"
)

BudgetText = Annotated[str, msgspec.Meta(pattern=rf"\A{_BUDGET.pattern}\Z")]
"""As it is kept."""


class Whose(StrEnum):
    """Whose jobs a budget is for."""

    ALL = "all"
    GROUP = "group"
    USER = "user"
    USERS = "users"
    """Each user for himself."""


@dataclass(frozen=True, slots=True)
class Budget:
    """So much may be spent in each period."""

    whose: Whose
    subject: str
    """The group, the user; "" of all, and of each user."""
    amount_micro: int
    """Millionths of a dollar, or of a GPU hour."""
    unit: BudgetUnit
    period: BudgetPeriod

    @property
    def name(self) -> str:
        """All but how much: `group.eval`, gpuh, day. No two budgets of a deployment share it."""
        return f"{self.of} {self.unit} {self.period}"

    @property
    def of(self) -> str:
        """`all`, `users`, `group.eval`, `user.ada`."""
        return f"{self.whose}.{self.subject}" if self.subject else self.whose.value

    @property
    def text(self) -> str:
        """As people write it."""
        amount = f"{self.amount_micro / _MICRO:.6f}".rstrip("0").rstrip(".")
        return f"{self.of}:{amount}{self.unit}/{self.period}"


def parse_budget(text: str) -> Budget:
    """Of one as it is kept (`BudgetText`)."""
    found = _BUDGET.fullmatch(text)
    if found is None:
        raise Refused("budget_invalid", f"{text!r} is no budget: write {BUDGET_FORM}")
    whose = next(one for one in Whose if found[one.value] is not None)
    return Budget(
        whose=whose,
        subject="" if whose in (Whose.ALL, Whose.USERS) else found[whose.value],
        amount_micro=_micro(found["amount"]),
        unit=BudgetUnit(found["unit"]),
        period=BudgetPeriod(found["period"]),
    )


def parse_budgets(text: str) -> list[str]:
    """As they are kept, from what people write. Raises `Refused`, naming the budget."""
    kept = list(dict.fromkeys(text.split()))
    if not kept:
        raise Refused("setting_invalid", f"budgets.rules {text!r} must be {BUDGET_FORM}")
    if len(kept) > BUDGETS_MAX:
        raise Refused("setting_invalid", f"budgets.rules has {BUDGETS_MAX} budgets at most")
    names: dict[str, str] = {}
    for one in kept:
        budget = _checked(one)
        if budget.name in names:
            raise Refused(
                "setting_invalid",
                f"budgets.rules states {names[budget.name]!r} and {one!r}: of the same jobs, unit "
                "and period one budget counts; leave one out",
            )
        names[budget.name] = one
    return kept


def _checked(text: str) -> Budget:
    found = _BUDGET.fullmatch(text)
    if found is None or (found["group"] is not None and not is_host_word(found["group"])):
        raise Refused("setting_invalid", f"budgets.rules {text!r} must be {BUDGET_FORM}")
    budget = parse_budget(text)
    if not budget.amount_micro:
        raise Refused(
            "setting_invalid",
            f"budgets.rules {text!r} is a budget of nothing: where no job may start, set a limit "
            "of 0 (quotas.running_jobs, groups.limits)",
        )
    return budget


def _micro(amount: str) -> int:
    """Exactly: a float of a sum of cents would not be."""
    whole, _, part = amount.partition(".")
    return int(whole) * _MICRO + int(part.ljust(6, "0") or 0)
