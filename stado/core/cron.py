"""When something is due: cron expressions, by the clock on the wall in a time zone. Pure.

A library parses an expression and finds the times on the wall; which instants these are while a
clock is being changed is decided here, as Debian's cron(8) does:

* An expression whose minute and hour both begin with something else than `*` names times of a day.
  One that the clock skips is due once, at the first instant after the gap; one that the clock shows
  twice is due once, the first time.
* Any other names a rhythm. It goes by real time: a minute that the clock shows twice is due twice,
  one that it skips is not due.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from cronsim import CronSim, CronSimError

from stado.errors import Refused

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
CRON_CHARACTERS_MAX = 200
_SHOWN_MAX = 60

_FORM = (
    "write minute, hour, day of the month, month, day of the week, such as '30 2 * * MON-FRI', "
    f"or one of {', '.join(ALIASES)}"
)
_FIELDS = ("minute", "hour", "day-of-month", "month", "day-of-week")
_PLAIN = re.compile(r"[A-Za-z0-9*/,#\- ]+")
_ANY_DAY = datetime(2024, 1, 1)  # noqa: DTZ001 - a time on some wall
_SECOND = timedelta(seconds=1)
_LOOK = timedelta(hours=12)
"""No zone changes its clock twice within so long."""

_CHANGES_MAX = 1000
"""Changes of a clock between two times that are due: a few a year, for fifty years."""

_SKIPPED_MAX = 10_000
"""Times of a day that a clock shows twice, and more than a day has."""

_WINDOW_FIRST = timedelta(minutes=1)
_WINDOW_GROWTH = 8


def cron_flaw(text: str) -> str | None:
    """Why nothing is ever due by it, as a part of a sentence; None where it is fine."""
    if text.startswith("@"):
        return None if text.lower() in ALIASES else f"there is no {text}"
    fields = text.split()
    if len(text) > CRON_CHARACTERS_MAX or not _PLAIN.fullmatch(text):
        return f"at most {CRON_CHARACTERS_MAX} letters, digits and * / , - # are taken"
    if len(fields) != len(_FIELDS):
        return f"it has {len(fields)} field{'' if len(fields) == 1 else 's'} instead of five"
    try:
        next(CronSim(text, _ANY_DAY))
    except CronSimError as error:
        return _field_flaw(str(error), fields)
    except (StopIteration, OverflowError, ValueError):
        return "no day is like that"
    return None


def _field_flaw(error: str, fields: list[str]) -> str:
    """The library says `Bad hour`."""
    for name, field in zip(_FIELDS, fields, strict=True):
        if error == f"Bad {name}":
            if name == "day-of-month" and _is_day(field):
                return "no day is like that"
            return f"{field!r} is no {name.replace('-', ' ').replace(' of ', ' of the ')}"
    return error


def _is_day(field: str) -> bool:
    """By itself: the library also refuses one that none of the months has."""
    try:
        CronSim(f"0 0 {field} * *", _ANY_DAY)
    except (CronSimError, ValueError):
        return False
    return True


def check_cron(text: str) -> str:
    """The expression with single spaces. Raises `Refused` (`cron_invalid`)."""
    text = " ".join(text.split())
    flaw = cron_flaw(text)
    if flaw is not None:
        shown = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
        raise Refused("cron_invalid", f"cron expression {shown!r} cannot be used: {flaw}; {_FORM}")
    return text


def due_after(expression: str, zone: tzinfo, after: datetime) -> datetime | None:
    """The first instant later than `after` that is due, in UTC; None where there is none within
    about fifty years. `expression` has no flaw."""
    expression = ALIASES.get(expression.lower(), expression)
    minute, hour = expression.split()[:2]
    after = after.astimezone(UTC).replace(microsecond=0)
    try:
        if minute.startswith("*") or hour.startswith("*"):
            return _after_in_real_time(expression, zone, after)
        return _after_on_the_wall(expression, zone, after)
    except (StopIteration, OverflowError):
        return None


def latest_due(
    expression: str, zone: tzinfo, *, since: datetime, until: datetime
) -> datetime | None:
    """The last instant later than `since` that is due at `until` or before. Looks back from
    there, so that it takes no longer after a year than after a day."""
    window = _WINDOW_FIRST
    while True:
        begin = since if until - since <= window else until - window
        found, due = None, due_after(expression, zone, begin)
        while due is not None and due <= until:
            found, due = due, due_after(expression, zone, due)
        if found is not None or begin == since:
            return found
        window *= _WINDOW_GROWTH


def count_due(expression: str, zone: tzinfo, *, since: datetime, until: datetime, most: int) -> int:
    """How many instants later than `since` are due at `until` or before; `most` where there are
    so many or more."""
    count, due = 0, due_after(expression, zone, since)
    while due is not None and due <= until and count < most:
        count, due = count + 1, due_after(expression, zone, due)
    return count


def _after_on_the_wall(expression: str, zone: tzinfo, after: datetime) -> datetime | None:
    times = CronSim(expression, _on_wall(zone, after))
    for _ in range(_SKIPPED_MAX):
        due = _first_instant(next(times), zone)
        if due > after:  # else the clock shows this time for the second time
            return due
    return None


def _first_instant(wall: datetime, zone: tzinfo) -> datetime:
    """When the clock shows a time first; or the end of the gap that it falls into."""
    instant = wall.replace(tzinfo=zone).astimezone(UTC)
    if _on_wall(zone, instant) == wall:
        return instant
    # In a gap the offset before it (fold 0) leads behind it, and the one after it before it.
    before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    change = _first_change(zone, before, instant)
    return instant if change is None else change


def _after_in_real_time(expression: str, zone: tzinfo, after: datetime) -> datetime | None:
    """From change to change of the clock: in between, times on the wall are as far apart as
    instants are."""
    offset = _offset(zone, after)
    for _ in range(_CHANGES_MAX):
        wall = next(CronSim(expression, (after + offset).replace(tzinfo=None)))
        due = wall.replace(tzinfo=UTC) - offset
        change = _first_change(zone, after, due, offset=offset)
        if change is None:
            return due
        offset = _offset(zone, change)
        after = change - _SECOND
    return None


def _first_change(
    zone: tzinfo, begin: datetime, end: datetime, *, offset: timedelta | None = None
) -> datetime | None:
    """The first instant, later than `begin` and not later than `end`, at which the clock is ahead
    of UTC by something else than `offset`; None: what it is at `begin`."""
    offset = _offset(zone, begin) if offset is None else offset
    while begin < end:
        then = min(begin + _LOOK, end)
        if _offset(zone, then) != offset:
            while then - begin > _SECOND:
                middle = begin + timedelta(seconds=(then - begin) // _SECOND // 2)
                begin, then = (begin, middle) if _offset(zone, middle) != offset else (middle, then)
            return then
        begin = then
    return None


def _offset(zone: tzinfo, instant: datetime) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta(0)


def _on_wall(zone: tzinfo, instant: datetime) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)
