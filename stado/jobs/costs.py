"""What jobs cost, from the ledger: the same intervals as in `usage`, with their prices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from stado.core.costs import Catalog, CostTally
from stado.core.ids import milliseconds
from stado.core.usage import Use, digest_word
from stado.jobs.health import AgentSight, AgentState, agents
from stado.jobs.ledger import Ledger, read_uses
from stado.jobs.repository import Repository
from stado.jobs.usage import see_running


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


def see_uses(repo: Repository, since: datetime, *, user: str | None = None) -> Seen:
    """Each epoch once. `user`: None means everybody's. Requests: as of `stado usage`."""
    until = repo.now()
    running = see_running(repo, until)
    live = {one.name: one.use for one in running.found if one.use is not None}
    since_ms = milliseconds(since)
    found = read_uses(Ledger(repo), repo, from_ms=since_ms)
    ended = [use for use in found.uses() if use.ended_ms > since_ms and _is_of(use, user)]
    for use in ended:
        live.pop(use.name, None)
    return Seen(
        since,
        until,
        ended,
        [use for use in live.values() if _is_of(use, user)],
        found.unreadable,
        running.unreadable,
        running.cut,
    )


def _is_of(use: Use, user: str | None) -> bool:
    return user is None or use.user in (user, digest_word(user))


def tally_of(seen: Seen, by: str, catalog: Catalog) -> CostTally:
    tally = CostTally(by, catalog, since_ms=milliseconds(seen.since))
    for use, running in seen.uses:
        tally.add(use, running=running)
    return tally


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


def see_idle(repo: Repository, seen: Seen) -> IdleReport:
    """Of the last 24 hours, as if each host had been there all the time; `seen` has to reach back
    so far. A listing, and a read for each agent."""
    sights = [one for one in agents(repo) if one.state is not AgentState.STOPPED]
    priced = [one for one in sights if one.capacity.price_per_hour is not None]
    return IdleReport(list(_idle(priced, seen)), len(sights) - len(priced))


def _idle(sights: Iterable[AgentSight], seen: Seen) -> Iterator[Idle]:
    day = timedelta(days=1)
    since_ms = milliseconds(seen.until - day)
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
