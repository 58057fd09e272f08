"""What is spent of budgets, read once a coordinator has worked it out, and where a claim asks.

The document is derived and a lower bound: without it nobody is held. A budget holds new jobs alone;
what runs at the moment of reaching it goes on, and adds to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from stado.core import keys
from stado.core.budgets import Hold, Spending
from stado.core.quotas import ScopeKind
from stado.core.records import Record
from stado.errors import StadoError
from stado.jobs.derived import find_derived
from stado.jobs.repository import Repository

STALE = timedelta(minutes=10)
"""Several looks of a coordinator. What is older says who has spent all, and of nobody else that he
has not."""


class BudgetGone(StadoError):
    """A budget is spent that such a job falls under."""

    def __init__(self, hold: Hold, subject: str) -> None:
        """`subject`: the user by his name, which `hold` may tell by a digest."""
        super().__init__(f"a budget of {hold.name} is spent until {hold.ends_at:%Y-%m-%d %H:%M}Z")
        self.hold = hold
        self.subject = subject


def is_held(repo: Repository, record: Record, holds: Sequence[Hold]) -> bool:
    """Whether a budget is spent that this job falls under, on the store's clock. No request."""
    return _hold_of(repo, record, holds) is not None


def check_budgets(repo: Repository, record: Record, holds: Sequence[Hold]) -> None:
    """Raises `BudgetGone`. No request."""
    hold = _hold_of(repo, record, holds)
    if hold is not None:
        of_user = hold.kind is ScopeKind.USER
        raise BudgetGone(hold, record.submitter if of_user else hold.subject)


def _hold_of(repo: Repository, record: Record, holds: Sequence[Hold]) -> Hold | None:
    if not holds:
        return None
    now, user = repo.now(), record.submitter
    return next((one for one in holds if one.holds(record.spec, user, now)), None)


def read_budgets(repo: Repository) -> Spending | None:
    """None: no coordinator has worked out what is spent, or it cannot be read. One read."""
    return find_derived(repo, Spending, keys.BUDGETS)


def is_old(known: Spending, now: datetime) -> bool:
    return now - known.at > STALE
