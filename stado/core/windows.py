"""Windows of time in which jobs may start: of all jobs, of a user, of a group.

A window is told by the clock on the wall of its time zone, whatever that shows: where the clock is
set back over it, it is open longer or twice, and what the clock leaves out is left out of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from stado.core.quotas import ScopeKind, scope_name
from stado.core.settings import DeploymentSettings
from stado.core.spec import Spec
from stado.core.window_words import Window, parse_window
from stado.core.zones import find_zone

_AHEAD_DAYS = 15
"""A window of one day in the week, over which the clock was set forward once."""

_ROUNDS_MAX = 100

_QUARTER = timedelta(minutes=15)
"""Wherever clocks are set, they are at a multiple of it in UTC."""


@dataclass(frozen=True, slots=True)
class Restriction:
    """Whose jobs start within windows alone: within any of these."""

    kind: ScopeKind
    subject: str
    """The group, the user; "" of all jobs."""
    windows: tuple[Window, ...]

    @property
    def name(self) -> str:
        return scope_name(self.kind, self.subject)

    def is_open(self, at: datetime) -> bool:
        """A window whose time zone this host does not know is open for nobody."""
        return any(_is_open(window, at) for window in self.windows)

    def opens_at(self, at: datetime) -> datetime | None:
        """The first moment from this one on at which one is open, in UTC, by the minute; None where
        nobody can say: no time zone of them is known here."""
        known = [one for one in self.windows if find_zone(one.zone) is not None]
        return min(filter(None, (_opens_at(one, at) for one in known)), default=None)


@lru_cache(maxsize=64)
def _restrictions(rules: tuple[str, ...]) -> tuple[Restriction, ...]:
    by_subject: dict[tuple[ScopeKind, str], list[Window]] = {}
    for rule in rules:
        window = parse_window(rule)
        by_subject.setdefault((ScopeKind(window.kind), window.subject), []).append(window)
    return tuple(
        Restriction(kind, subject, tuple(windows))
        for (kind, subject), windows in by_subject.items()
    )


def restrictions(settings: DeploymentSettings) -> tuple[Restriction, ...]:
    """All that a deployment states."""
    return _restrictions(tuple(settings.windows.rules or ()))


def restrictions_of(
    spec: Spec, *, user: str | None, settings: DeploymentSettings
) -> list[Restriction]:
    """Those that such a job of this user (None: not known) falls under; each of them has to be
    open. The narrowest first."""
    subjects = {
        (ScopeKind.GROUP, spec.group): 0,
        (ScopeKind.USER, user): 1,
        (ScopeKind.ALL, ""): 2,
    }
    found = [one for one in restrictions(settings) if (one.kind, one.subject) in subjects]
    return sorted(found, key=lambda one: subjects[one.kind, one.subject])


def first_closed(
    spec: Spec, *, user: str | None, settings: DeploymentSettings, at: datetime
) -> Restriction | None:
    """What keeps such a job from starting at this moment; None: nothing of this."""
    found = restrictions_of(spec, user=user, settings=settings)
    return next((one for one in found if not one.is_open(at)), None)


def opening(restricted: Sequence[Restriction], at: datetime) -> datetime | None:
    """The first moment from this one on at which each of them is open, in UTC; None where there is
    none within two weeks, or a time zone is not known here."""
    until = at + timedelta(days=_AHEAD_DAYS)
    for _ in range(_ROUNDS_MAX):
        nexts = [one.opens_at(at) for one in restricted]
        latest = max((one for one in nexts if one is not None), default=at)
        if None in nexts or latest > until:
            return None
        if latest == at:
            return at
        at = latest
    return None


def _is_open(window: Window, at: datetime) -> bool:
    zone = find_zone(window.zone)
    return zone is not None and window.holds(at.astimezone(zone))


def _opens_at(window: Window, at: datetime) -> datetime | None:
    zone = find_zone(window.zone)
    if zone is None:
        return None
    if _is_open(window, at):
        return at
    return next((one for one in _moments(window, zone, at) if _is_open(window, one)), None)


def _moments(window: Window, zone: ZoneInfo, at: datetime) -> Sequence[datetime]:
    """In order, in UTC: among them whenever the window opens. Its beginning on each day, as the
    clock shows it once or twice, and each moment at which a clock may be set."""
    return sorted(one for one in _all_moments(window, zone, at) if one > at)


def _all_moments(window: Window, zone: ZoneInfo, at: datetime) -> Iterator[datetime]:
    midnight = at.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    hours, minutes = divmod(window.opens, 60)
    for day in range(-1, _AHEAD_DAYS):
        begin = (midnight + timedelta(days=day)).replace(hour=hours, minute=minutes)
        for fold in (0, 1):
            yield begin.replace(tzinfo=zone, fold=fold).astimezone(UTC)
    quarter = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    for number in range(_AHEAD_DAYS * 96):
        yield quarter + number * _QUARTER
