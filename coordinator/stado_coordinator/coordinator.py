"""The coordinator: ticks, while it holds the lease. While none runs, jobs run without it, agents
make the passes of `stado.jobs.upkeep`, and notices, assignments and budgets wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from stado.core.costs import NO_CATALOG, Catalog
from stado.errors import StadoError
from stado.jobs.assignments import Assigner
from stado.jobs.budget_keeping import BudgetKeeping
from stado.jobs.deliveries import Deliveries
from stado.jobs.leadership import Leadership
from stado.jobs.ledger import PACE, Compaction, Pace
from stado.jobs.repository import Repository
from stado.jobs.rest_rows import RestRowsKept
from stado.jobs.upkeep import Passes, Told, run_pass, told_to_nobody
from stado.ports import Event, Messenger

log = logging.getLogger(__name__)

_ONCE_SECONDS = 60.0
"""How long a process that ticks once waits for a channel; the next one sends the rest."""

_UNTOLD_SECONDS_MAX = 30.0


class Coordinator:
    """One coordinator process. Any number may run; one acts, the others stand by."""

    def __init__(
        self,
        repo: Repository,
        *,
        holder: str,
        messenger: Messenger | None = None,
        turned: Callable[[], None] = lambda: None,
        ledger_pace: Pace = PACE,
        catalog: Catalog = NO_CATALOG,
        version: str | None = None,
    ) -> None:
        """`turned` is called by the main loop: after each pass and each tick, and now and then
        between two ticks. `catalog`: prices of what no host stated one for."""
        self._repo = repo
        self._turned = turned
        self._leadership = Leadership(repo, holder=holder, version=version)
        # A large submission that is finished shall not keep the reaper from its next look.
        self._passes = Passes(
            repo, by=holder, turn_seconds=repo.deployment.tick_seconds, told=self._told
        )
        self._deliveries = Deliveries(repo, messenger) if messenger is not None else None
        self._assigner = Assigner(repo, by=holder)
        self._compaction = Compaction(repo, by=holder, pace=ledger_pace)
        self._rest_rows = RestRowsKept(repo)
        self._budgets = BudgetKeeping(repo, by=holder, catalog=catalog)
        self._leading: bool | None = None

    def run(self, stop: Event) -> None:
        """Ticks until `stop` is set, then releases the lease."""
        while not stop.is_set():
            self.tick()
            pace = self._repo.deployment.tick_seconds
            pause = self._repo.entropy.uniform(0.8 * pace, pace)
            if self._leading:
                pause = min(pause, self._passes.next_seconds)
            self._wait(stop, pause)
        self._leave()

    def _wait(self, stop: Event, seconds: float) -> None:
        """Lets it be known meanwhile that we turn: between two ticks there may be many minutes."""
        left = seconds
        while True:
            self._turned()
            if stop.wait(min(left, _UNTOLD_SECONDS_MAX)) or left <= _UNTOLD_SECONDS_MAX:
                return
            left -= _UNTOLD_SECONDS_MAX

    def tick(self) -> None:
        """One turn: renews the lease, then runs each pass if it is ours."""
        try:
            leading = self._leadership.take_or_renew()
        except StadoError as error:
            log.warning("event=lease_unknown error=%r", str(error))
            return
        if leading != self._leading:
            log.info("event=%s", "leading" if leading else "standing_by")
            self._leading = leading
        if leading:
            self._passes.tick()
            assign(self._assigner, self._told)
            compact(self._compaction, seconds=self._repo.deployment.tick_seconds, told=self._told)
            keep_rows(self._rest_rows, self._told)
            keep_budgets(self._budgets, self._told)
            if self._deliveries is not None:
                deliver(self._deliveries, self._told)

    def _told(self, name: str, error: str | None) -> None:
        """A pass is over. Each may take long, and all of them longer than a manager of services
        waits for a sign of life: what hangs is the pass that does not come to its end."""
        self._leadership.notes.note(name, error)
        self._turned()

    def _leave(self) -> None:
        try:
            self._leadership.release()
        except StadoError as error:
            log.warning("event=release_failed error=%r", str(error))


def assign(assigner: Assigner, told: Told = told_to_nobody) -> bool:
    """Whether it could be worked out which host should get which job: a hint, no more."""

    def work() -> None:
        report = assigner.turn()
        if report.written:
            log.info("event=assigned jobs=%d skipped=%d", report.assigned, report.skipped)

    return run_pass("assign", work, told)


def compact(compaction: Compaction, *, seconds: float, told: Told = told_to_nobody) -> bool:
    """Whether what ended epochs used could be brought into the ledger, as far as it was due."""

    def work() -> None:
        report = compaction.turns(seconds)
        if report.deleted:
            log.info("event=compacted taken=%d names_deleted=%d", report.taken, report.deleted)

    return run_pass("ledger", work, told)


def keep_rows(kept: RestRowsKept, told: Told = told_to_nobody) -> bool:
    """Whether rows could be kept for lists, as far as it was due."""

    def work() -> None:
        kept.turn_when_due()

    return run_pass("rows", work, told)


def keep_budgets(keeping: BudgetKeeping, told: Told = told_to_nobody) -> bool:
    """Whether it could be worked out what is spent of budgets, as far as it was due."""
    return run_pass("budgets", keeping.turn_when_due, told)


def deliver(deliveries: Deliveries, told: Told = told_to_nobody) -> bool:
    """Whether the notices could be listed: what becomes of each is told in the log."""

    def work() -> None:
        deliveries.turn()

    return run_pass("notify", work, told)


def tick_once(
    repo: Repository,
    *,
    holder: str,
    messenger: Messenger | None = None,
    catalog: Catalog = NO_CATALOG,
) -> bool:
    """For cron: each pass once, judging silence by the store's own times, since this process has
    watched nothing; the ledger's for a minute at most. Whether all succeeded."""
    outcome = list(Passes(repo, by=holder, once=True).tick().values())
    outcome.append(assign(Assigner(repo, by=holder)))
    outcome.append(compact(Compaction(repo, by=holder), seconds=_ONCE_SECONDS))
    outcome.append(keep_rows(RestRowsKept(repo, missing_max=1)))
    outcome.append(keep_budgets(BudgetKeeping(repo, by=holder, catalog=catalog)))
    if messenger is not None:
        deliveries = Deliveries(repo, messenger)
        outcome.append(deliver(deliveries))
        deliveries.wait(_ONCE_SECONDS)
    return all(outcome)
