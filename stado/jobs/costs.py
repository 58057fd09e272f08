"""What jobs cost, from the ledger: the same intervals as in `usage`, with their prices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from stado.core.costs import FORECAST_DAYS, Catalog, CostForecast, CostTally, Days, forecast
from stado.core.ids import milliseconds
from stado.core.usage import Use, digest_word
from stado.jobs.health import AgentSight, AgentState, agents
from stado.jobs.ledger import Ledger, read_uses
from stado.jobs.repository import Repository
from stado.jobs.usage import see_running

_A_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Seen:
    """What was used from a moment on, up to now: of epochs that began before, all."""

    since: datetime
    until: datetime
    ended: list[Use]
    running: list[Use]
    """Up to now."""
    dark: list[str]
    """Keys of segments that cannot be read: of what they hold nothing is here."""
    unreadable: list[str] = field(default_factory=list)
    """Jobs that run, of which nothing more is known."""
    running_cut: bool = False

    @property
    def uses(self) -> Iterator[tuple[Use, bool]]:
        """Each with whether it runs."""
        for use in self.ended:
            yield use, False
        for use in self.running:
            yield use, True

    def of(self, user: str) -> Seen:
        """One user's part of it."""
        names = (user, digest_word(user))
        return replace(
            self,
            ended=[use for use in self.ended if use.user in names],
            running=[use for use in self.running if use.user in names],
        )


def see_uses(repo: Repository, since: datetime, *, user: str | None = None) -> Seen:
    """Each epoch once. `user`: None means everybody's. Requests: as of `stado usage`."""
    until = repo.now()
    running = see_running(repo, until)
    live = {one.name: one.use for one in running.found if one.use is not None}
    since_ms = milliseconds(since)
    found = read_uses(Ledger(repo), repo, from_ms=since_ms)
    ended = [use for use in found.uses() if use.ended_ms > since_ms]
    for use in ended:
        live.pop(use.name, None)
    seen = Seen(
        since,
        until,
        ended,
        list(live.values()),
        found.unreadable,
        running.unreadable,
        running.cut,
    )
    return seen if user is None else seen.of(user)


def tally_of(seen: Seen, by: str, catalog: Catalog) -> CostTally:
    tally = CostTally(by, catalog, since_ms=milliseconds(seen.since))
    for use, running in seen.uses:
        tally.add(use, running=running)
    return tally


# --- what is to come ----------------------------------------------------------------------


def see_month(
    repo: Repository, catalog: Catalog, *, user: str | None = None
) -> tuple[Seen, CostForecast]:
    """Of this month, in UTC, and of the days by whose mean the rest of it is told."""
    now = repo.now()
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    next_month = (month + timedelta(days=32)).replace(day=1)
    seen = see_uses(repo, min(month, now - timedelta(days=FORECAST_DAYS + 1)), user=user)
    days = Days(catalog)
    for use, _ in seen.uses:
        days.add(use)
    told = forecast(days, now_ms=milliseconds(now), month_end_ms=milliseconds(next_month))
    return seen, told


# --- hosts that are there and do little ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class Idle:
    """A host that works now and has a price: what it costs a day, and what its jobs bore of that
    in the last one."""

    consumer: str
    price_per_hour: float
    day_dollars: float
    borne: float

    @property
    def idle(self) -> float:
        return max(0.0, self.day_dollars - self.borne)


@dataclass(frozen=True, slots=True)
class IdleReport:
    hosts: list[Idle]
    unpriced: int
    """Hosts that work and have no price."""


def see_allocation(
    repo: Repository, since: datetime, *, user: str | None = None
) -> tuple[Seen, IdleReport]:
    """What was used from a moment on, by one user or by all; and of the last 24 hours, what hosts
    cost that did little, by whoever's jobs, as if each had been there all the time. Requests: as of
    `see_uses`, a listing, and a read for each agent."""
    begin = min(since, repo.now() - _A_DAY)
    everybodys = see_uses(repo, begin)
    seen = everybodys if user is None else everybodys.of(user)
    return replace(seen, since=since), _idle_report(repo, everybodys)


def _idle_report(repo: Repository, seen: Seen) -> IdleReport:
    """`seen` has to reach a day back."""
    sights = [one for one in agents(repo) if one.state is not AgentState.STOPPED]
    priced = [one for one in sights if one.capacity.price_per_hour is not None]
    return IdleReport(list(_idle(priced, seen)), len(sights) - len(priced))


def _idle(sights: Iterable[AgentSight], seen: Seen) -> Iterator[Idle]:
    since_ms = milliseconds(seen.until - _A_DAY)
    borne: dict[str | None, float] = {}
    for use, _ in seen.uses:
        within = use.since(since_ms)
        if within is not None and within.part_micro is not None:
            part = within.wall_ms / 86_400_000 * within.part_micro / 1_000_000
            borne[within.consumer] = borne.get(within.consumer, 0.0) + part
    for one in sights:
        name, price = one.capacity.consumer, one.capacity.price_per_hour or 0.0
        share = min(1.0, borne.get(name, 0.0) + borne.get(digest_word(name), 0.0))
        yield Idle(name, price, 24 * price, 24 * price * share)
