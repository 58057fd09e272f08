"""What jobs cost: the time that an epoch held a part of its host, times what the host costs. Pure.

The price is the one that the host stated when the job was claimed; else the one that a catalog has
for what the job ran on. What neither says is unpriced: it is counted beside, and never taken for
nothing. Each epoch counts once, with its own part of its host, so that the jobs of a host together
never cost more than the host.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from stado.core.ids import base_of
from stado.core.states import Verdict
from stado.core.usage import DAY_MS, Use, day_of
from stado.errors import Refused

_HOUR_MS = 3_600_000
_MICRO = 1_000_000
_GB = 1e9
_CARDS = re.compile(r"([1-9][0-9]{0,3})x (.+)")


@dataclass(frozen=True, slots=True)
class Catalog:
    """Prices of what nobody stated a price for, in dollars an hour, as they were on a day."""

    as_of: date
    source: str
    cards: Mapping[str, float]
    """Of one whole card, by its kind."""
    machines: Mapping[str, float]
    """Of a whole machine, by its type."""
    gb_month: float | None = None
    """Of storage."""
    put_thousand: float | None = None
    """Of a thousand writes or listings."""
    get_thousand: float | None = None
    """Of a thousand reads."""
    egress_gb: float | None = None
    """Of a gigabyte that hosts receive from the store; None: it counts for nothing, as within a
    provider's region."""


NO_CATALOG = Catalog(date(1970, 1, 1), "none", {}, {})


def cost_of_use(use: Use, catalog: Catalog) -> float | None:
    """Dollars; None: unpriced."""
    hours = use.wall_ms / _HOUR_MS
    if use.price_micro is not None and use.part_micro is not None:
        return hours * use.price_micro / _MICRO * use.part_micro / _MICRO
    price = price_of_hardware(use, catalog)
    return None if price is None else hours * price


def price_of_hardware(use: Use, catalog: Catalog) -> float | None:
    """Dollars an hour for what the use had of it, by the catalog."""
    if use.hardware is None:
        return None
    cards = _CARDS.fullmatch(use.hardware)
    if cards is not None:
        price = catalog.cards.get(cards[2])
        return None if price is None else price * use.share_milli / 1000
    price = catalog.machines.get(use.hardware)
    if price is None or use.part_micro is None:
        return None
    return price * use.part_micro / _MICRO


# --- sums ---------------------------------------------------------------------------------


@dataclass(slots=True)
class CostSum:
    """Of some epochs."""

    dollars: float = 0.0
    """Of those that have a price."""
    failed_dollars: float = 0.0
    """Of these, for epochs after which the job had not got further: failed, timed out, lost, or
    tried again."""
    wall_ms: int = 0
    epochs: int = 0
    completed: int = 0
    """Epochs by which a job completed: so many jobs."""
    unpriced_epochs: int = 0
    unpriced_ms: int = 0
    output_bytes: int = 0
    """That these epochs left, as far as that is known."""
    running: int = 0
    metered_epochs: int = 0
    """Of which it is known what they asked of the store; the next four are theirs."""
    dear: int = 0
    cheap: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0

    def add(self, use: Use, dollars: float | None, *, running: bool = False) -> None:
        self.wall_ms += use.wall_ms
        self.epochs += 1
        self.running += running
        self.completed += use.verdict is Verdict.COMPLETED
        self.output_bytes += use.output_bytes or 0
        if dollars is None:
            self.unpriced_epochs += 1
            self.unpriced_ms += use.wall_ms
        else:
            self.dollars += dollars
            if use.verdict in _FAILED:
                self.failed_dollars += dollars
        if use.is_metered:
            self.metered_epochs += 1
            self.dear += use.dear or 0
            self.cheap += use.cheap or 0
            self.received_bytes += use.received_bytes or 0
            self.sent_bytes += use.sent_bytes or 0

    def merge(self, other: CostSum) -> None:
        """What epochs cost that are not in this one."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def known(self) -> float | None:
        """Dollars; None where nothing has a price."""
        return self.dollars if self.epochs > self.unpriced_epochs or not self.epochs else None

    @property
    def per_job(self) -> float | None:
        """Dollars for each job that completed, whatever failed on the way; None where there is
        none, or where part of it is unpriced."""
        return (
            self.dollars / self.completed if self.completed and not self.unpriced_epochs else None
        )


def store_cost(group: CostSum, catalog: Catalog) -> float | None:
    """Dollars for what these epochs asked of the store, as far as that is known; it is in no other
    sum. None: it is of none of them, or the catalog has no price for some of it."""
    writes = _priced(group.dear / 1000, catalog.put_thousand)
    reads = _priced(group.cheap / 1000, catalog.get_thousand)
    if not group.metered_epochs or writes is None or reads is None:
        return None
    return writes + reads + group.received_bytes / _GB * (catalog.egress_gb or 0.0)


def _priced(amount: float, price: float | None) -> float | None:
    """Of nothing no price is needed."""
    if not amount:
        return 0.0
    return None if price is None else amount * price


_FAILED = frozenset((Verdict.FAILED, Verdict.TIMED_OUT, Verdict.LOST, Verdict.RETRYING))

_GROUPS: Mapping[str, Callable[[Use], str | None]] = {
    "target": lambda use: use.hardware,
    "model": lambda use: use.model,
    "user": lambda use: use.user,
    "group": lambda use: use.group,
    "batch": lambda use: base_of(use.job_id),
    "job": lambda use: use.job_id,
    "schedule": lambda use: use.schedule,
    "host": lambda use: use.consumer,
}
GROUPINGS = (*_GROUPS, "day")


class CostTally:
    """Sums in groups, and of all."""

    def __init__(self, by: str, catalog: Catalog, *, since_ms: int) -> None:
        self.groups: dict[str | None, CostSum] = {}
        self._whole = CostSum()
        self._by = by
        self._catalog = catalog
        self._since_ms = since_ms

    def add(self, use: Use, *, running: bool = False) -> None:
        within = use.since(self._since_ms)
        if within is None:
            return
        dollars = cost_of_use(within, self._catalog)
        if self._by != "day":
            self._group(_GROUPS[self._by](within)).add(within, dollars, running=running)
            return
        self._whole.add(within, dollars, running=running)
        for day, part in within.by_day():
            of_it = dollars if part is within else cost_of_use(part, self._catalog)
            self._group(day).add(part, of_it, running=running)

    def _group(self, name: str | None) -> CostSum:
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = CostSum()
        return group

    def total(self) -> CostSum:
        """Each epoch once, also one that counts for several days."""
        if self._by == "day":
            return self._whole
        total = CostSum()
        for group in self.groups.values():
            total.merge(group)
        return total


# --- what was observed of a model ---------------------------------------------------------

ESTIMATED_FROM_MIN = 1
"""Completed jobs, all of whose epochs have a price."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What completed jobs of one model cost on one kind of target, each with all of its epochs."""

    model: str
    target: str
    dollars: Sequence[float]
    """Of each job, the cheapest first."""
    hours: float
    """The median of how long they ran."""

    @property
    def median(self) -> float:
        return statistics.median(self.dollars)

    @property
    def low(self) -> float:
        """A tenth of them cost no more."""
        return self._at(0.1)

    @property
    def high(self) -> float:
        """A tenth of them cost at least so much."""
        return self._at(0.9)

    def _at(self, share: float) -> float:
        place = share * (len(self.dollars) - 1)
        below = int(place)
        above = min(below + 1, len(self.dollars) - 1)
        return self.dollars[below] + (place - below) * (self.dollars[above] - self.dollars[below])


@dataclass(slots=True)
class _Job:
    """The epochs of one job."""

    dollars: float = 0.0
    wall_ms: int = 0
    unpriced: bool = False
    completed_on: tuple[str, str] | None = None
    """Model and target of the epoch that completed it."""


def jobs_of(uses: Iterable[Use], catalog: Catalog) -> dict[str, _Job]:
    jobs: dict[str, _Job] = {}
    for use in uses:
        job = jobs.setdefault(use.job_id, _Job())
        dollars = cost_of_use(use, catalog)
        job.unpriced |= dollars is None
        job.dollars += dollars or 0.0
        job.wall_ms += use.wall_ms
        if use.verdict is Verdict.COMPLETED and use.model is not None and use.hardware is not None:
            job.completed_on = (use.model, use.hardware)
    return jobs


def observed(uses: Iterable[Use], catalog: Catalog) -> list[Observed]:
    """By model and target; jobs of which some epoch has no price tell nothing."""
    found: dict[tuple[str, str], list[_Job]] = {}
    for job in jobs_of(uses, catalog).values():
        if job.completed_on is not None and not job.unpriced:
            found.setdefault(job.completed_on, []).append(job)
    return [
        Observed(
            model,
            target,
            sorted(job.dollars for job in jobs),
            statistics.median(job.wall_ms for job in jobs) / _HOUR_MS,
        )
        for (model, target), jobs in sorted(found.items())
    ]


@dataclass(frozen=True, slots=True)
class Estimate:
    """What so many jobs of a model should cost on one kind of target."""

    observed: Observed
    jobs: int

    @property
    def dollars(self) -> float:
        return self.observed.median * self.jobs

    @property
    def low(self) -> float:
        return self.observed.low * self.jobs

    @property
    def high(self) -> float:
        return self.observed.high * self.jobs


def estimates_for(found: Iterable[Observed], *, model: str, jobs: int) -> list[Estimate]:
    """The cheapest first. Raises `Refused` where no completed run tells what one costs."""
    known = [one for one in found if one.model == model]
    if not known:
        raise Refused(
            "no_cost_evidence",
            f"no cost for jobs of {model}: no completed run of it has a price. A price comes from "
            "`stado hosts set NAME --price-per-hour`, `stado agent run --price-per-hour` or a "
            "catalog (--prices FILE), for runs from then on",
        )
    return sorted((Estimate(one, jobs) for one in known), key=lambda each: each.dollars)


# --- what stands out ----------------------------------------------------------------------

_ANOMALY_FACTOR = 3.0
_ANOMALY_RUNS_MIN = 5
_SAVING_RUNS_MIN = 3


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A job that cost more than three times the median of its model on its target."""

    job_id: str
    model: str
    target: str
    dollars: float
    median: float


def anomalies(uses: Iterable[Use], catalog: Catalog) -> list[Anomaly]:
    """The dearest first. Of a model and target on which at least five jobs completed."""
    jobs = jobs_of(uses, catalog)
    kinds: dict[tuple[str, str], list[float]] = {}
    for job in jobs.values():
        if job.completed_on is not None and not job.unpriced:
            kinds.setdefault(job.completed_on, []).append(job.dollars)
    medians = {
        kind: statistics.median(dollars)
        for kind, dollars in kinds.items()
        if len(dollars) >= _ANOMALY_RUNS_MIN
    }
    found = [
        Anomaly(job_id, *job.completed_on, job.dollars, medians[job.completed_on])
        for job_id, job in jobs.items()
        if job.completed_on in medians
        and not job.unpriced
        and job.dollars > _ANOMALY_FACTOR * medians[job.completed_on]
    ]
    return sorted(found, key=lambda each: -each.dollars)


@dataclass(frozen=True, slots=True)
class Saving:
    """What would have been saved, had the jobs of a model all run on its cheapest target."""

    model: str
    target: str
    cheapest: str
    jobs: int
    dollars: float


def savings(uses: Iterable[Use], catalog: Catalog) -> list[Saving]:
    """The largest first: of targets on which at least three jobs of the model completed, by the
    median of each."""
    by_model: dict[str, list[Observed]] = {}
    for one in observed(uses, catalog):
        if len(one.dollars) >= _SAVING_RUNS_MIN:
            by_model.setdefault(one.model, []).append(one)
    return sorted(_savings_in(by_model.values()), key=lambda each: -each.dollars)


def _savings_in(models: Iterable[list[Observed]]) -> Iterator[Saving]:
    for known in models:
        best = min(known, key=lambda one: one.median)
        for one in known:
            saved = (one.median - best.median) * len(one.dollars)
            if saved > 0:
                yield Saving(one.model, one.target, best.target, len(one.dollars), saved)


# --- what is to come ----------------------------------------------------------------------

FORECAST_DAYS = 7
"""The whole days, up to today, whose mean tells of the days to come."""


@dataclass(frozen=True, slots=True)
class CostForecast:
    """What this month should cost in the end, by the mean of the last seven whole days."""

    month: str
    """`2026-03`"""
    spent: float
    """In this month, so far."""
    per_day: float
    days_left: float
    unpriced_epochs: int
    """Of this month, that are in none of these figures."""

    @property
    def dollars(self) -> float:
        return self.spent + self.per_day * self.days_left


@dataclass(slots=True)
class Days:
    """Dollars by day, for a forecast."""

    catalog: Catalog
    dollars: dict[str, float] = field(default_factory=dict)
    unpriced: dict[str, int] = field(default_factory=dict)

    def add(self, use: Use) -> None:
        for day, part in use.by_day():
            cost = cost_of_use(part, self.catalog)
            if cost is None:
                self.unpriced[day] = self.unpriced.get(day, 0) + 1
            else:
                self.dollars[day] = self.dollars.get(day, 0.0) + cost


def forecast(days: Days, *, now_ms: int, month_end_ms: int) -> CostForecast:
    """`month_end_ms`: when the month of `now_ms` ends."""
    today = now_ms // DAY_MS
    month = day_of(now_ms)[:7]
    last = [day_of(number * DAY_MS) for number in range(today - FORECAST_DAYS, today)]
    return CostForecast(
        month=month,
        spent=sum(cost for day, cost in days.dollars.items() if day.startswith(month)),
        per_day=sum(days.dollars.get(day, 0.0) for day in last) / FORECAST_DAYS,
        days_left=max(0.0, (month_end_ms - now_ms) / DAY_MS),
        unpriced_epochs=sum(n for day, n in days.unpriced.items() if day.startswith(month)),
    )
