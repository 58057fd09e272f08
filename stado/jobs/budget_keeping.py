"""What is spent of budgets, worked out: a coordinator's pass.

Only derived: where it is gone or spoilt the next look makes it anew.
"""

from __future__ import annotations

import logging
from datetime import datetime

from stado.core import keys
from stado.core.budgets import (
    BudgetSpent,
    BudgetTally,
    Spending,
    budgets_set,
    news,
    not_below,
)
from stado.core.costs import Catalog
from stado.core.documents import COUNT_MAX
from stado.core.ids import milliseconds
from stado.core.records import LINE_MAX, Record
from stado.core.settings import DeploymentSettings
from stado.core.states import BudgetState
from stado.core.usage import Use, use_so_far
from stado.jobs.assignments import RunningJobs
from stado.jobs.derived import Derived
from stado.jobs.ledger import Ledger, read_uses
from stado.jobs.repository import PARALLEL_REQUESTS, Repository
from stado.jobs.settings import read_settings

log = logging.getLogger(__name__)

SECONDS_BETWEEN_LOOKS = 120.0
"""At least: as often as agents read what came of it."""

SECONDS_BETWEEN_LOOKS_MAX = 300.0
_PART_OF_TIME = 20
"""A look that takes long is not taken anew before so many times as long, up to that maximum: what
is older than two of these is told as not known (`budgets.STALE`)."""


class BudgetKeeping:
    """A coordinator's pass. Keep it between ticks: what did not change is not read again."""

    def __init__(
        self, repo: Repository, *, by: str, catalog: Catalog, ledger: Ledger | None = None
    ) -> None:
        self._repo = repo
        self._by = by
        self._catalog = catalog
        self._ledger = ledger or Ledger(repo)
        self._running = RunningJobs(repo)
        self._document = Derived(repo, Spending, keys.BUDGETS)
        self._due_at = float("-inf")

    def turn_when_due(self) -> None:
        """Each two minutes, and more rarely where a look takes long."""
        began = self._repo.clock.monotonic()
        if began < self._due_at:
            return
        self._due_at = began + SECONDS_BETWEEN_LOOKS
        self.turn()
        ended = self._repo.clock.monotonic()
        pause = max(SECONDS_BETWEEN_LOOKS, _PART_OF_TIME * (ended - began))
        self._due_at = ended + min(pause, SECONDS_BETWEEN_LOOKS_MAX)

    def turn(self) -> list[BudgetSpent]:
        """Works out what is spent and writes it; who has come further than was told.

        Requests: a read of the settings. Where a budget is set: two listings (a page each 1,000), a
        read of the ledger's index and of each segment of the period that is not remembered, a read
        for each record of a running job that is new, and for each heartbeat; a write."""
        settings = read_settings(self._repo)
        if not settings.budgets.rules:
            return []
        at, before = self._repo.now(), self._document.get()
        rows, uncounted = self._counted(settings, at)
        if uncounted:
            rows = not_below(rows, before, at, settings)
        document = Spending(
            counter=1 if before is None else min(before.counter + 1, COUNT_MAX),
            at=at,
            by=self._by,
            prices=_source(self._catalog),
            uncounted=uncounted,
            spent=rows,
        )
        if not self._document.write(document):
            return []
        found = list(news(rows, before, at))
        for row in found:
            _tell(row)
        return found

    def _counted(self, settings: DeploymentSettings, at: datetime) -> tuple[list[BudgetSpent], int]:
        """What is spent, and how much could not be counted. What runs is listed first: what ends
        meanwhile is found among what has ended then, and counted once."""
        tally = BudgetTally(budgets_set(settings), self._catalog, at)
        live = {use.name: use for use in self._uses_so_far(at)}
        ended = read_uses(self._ledger, self._repo, from_ms=milliseconds(tally.since))
        for use in ended.uses():
            live.pop(use.name, None)
            tally.add(use)
        for use in live.values():
            tally.add(use)
        uncounted = len(ended.unreadable) + self._running.left_out
        return tally.rows(settings.budgets.warns_at_percent), uncounted

    def _uses_so_far(self, now: datetime) -> list[Use]:
        def look(record: Record) -> Use | None:
            beat = self._repo.find_heartbeat(record.id)
            return use_so_far(record, None if beat is None else beat.value, now)

        found = self._repo.tasks.map(look, self._running.look(), limit=PARALLEL_REQUESTS)
        return [use for use in found if use is not None]


def _source(catalog: Catalog) -> str:
    return f"{catalog.source}, of {catalog.as_of.isoformat()}"[:LINE_MAX]


def _tell(row: BudgetSpent) -> None:
    """Once in its period."""
    log.warning(
        "event=%s whose=%s user=%s spent=%.6f unit=%s period=%s",
        "budget_held" if row.state is BudgetState.HELD else "budget_warned",
        row.whose,
        row.user or "-",
        row.spent_micro / 1_000_000,
        row.unit,
        row.period,
    )
