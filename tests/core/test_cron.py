"""When something is due, by a clock on a wall that is changed twice a year."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from stado.core.cron import (
    ALIASES,
    check_cron,
    count_due,
    cron_flaw,
    due_after,
    latest_due,
)
from stado.errors import Refused
from tests.search import examples

BERLIN = ZoneInfo("Europe/Berlin")
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)

CHANGES = [
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("Pacific/Apia", "2011-12-30"),
    ("America/Havana", "2026-03-08"),
]
"""Clocks that go forward and back by an hour, by half an hour, by a day, and at midnight."""

EXPRESSIONS = [
    *("30 2 * * *", "0 2,3 * * *", "15,45 1-3 * * *", "0-59 1 * * *", "59 1 * * SUN", "0 0 * * *"),
    *("5 */3 * * *", "* * * * *", "*/15 2 * * *", "* 2 * * *", "* 3 * * *", "0 * * * *", "@daily"),
]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def dues(expression: str, zone: ZoneInfo, begin: datetime) -> Iterator[datetime]:
    due = due_after(expression, zone, begin)
    while due is not None:
        yield due
        due = due_after(expression, zone, due)


def walked(expression: str, zone: ZoneInfo, begin: datetime, end: datetime) -> list[datetime]:
    """The same by a walk over every minute that there really was, with a look at the clock."""
    parts = CronSim(ALIASES.get(expression, expression), datetime(2024, 1, 1))  # noqa: DTZ001
    rhythm = any(part.startswith("*") for part in parts.parts[1:3])

    def shows(wall: datetime) -> bool:
        fits = wall.minute in parts.minutes and wall.hour in parts.hours
        return fits and wall.month in parts.months and parts.match_day(wall.date())

    found, seen, before = [], set(), None
    now = begin - DAY
    while now <= end:
        wall = now.astimezone(zone).replace(tzinfo=None, fold=0)
        skipped = []
        while before is not None and before + MINUTE < wall:
            before += MINUTE
            skipped.append(before)
        if rhythm:
            due = shows(wall)
        else:
            due = any(map(shows, skipped)) or (shows(wall) and wall not in seen)
        if due and now > begin:
            found.append(now)
        seen.add(wall)
        before, now = wall, now + MINUTE
    return found


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize(("zone", "day"), CHANGES)
def test_every_minute_around_a_change_of_the_clock_is_as_cron_has_it(
    zone: str, day: str, expression: str
) -> None:
    """A84: asked from every minute of two days around the change, in zones that change by an hour,
    by half of one and by a whole day."""
    place, begin = ZoneInfo(zone), at(f"{day}T00:00+00:00") - timedelta(hours=20)
    end = begin + 2 * DAY
    expected = walked(expression, place, begin, end + 2 * DAY)
    now = begin
    while now < end:
        following = next((due for due in expected if due > now), None)
        found = due_after(expression, place, now)
        assert found == following or (following is None and found > end), now
        now += 7 * MINUTE if expression.startswith("*") else MINUTE


def test_half_past_two_is_due_once_on_each_day_of_a_change() -> None:
    """A84: in spring right after the gap, in autumn the first time."""
    days = islice(dues("30 2 * * *", BERLIN, at("2026-03-28T12:00+01:00")), 2)
    assert list(days) == [at("2026-03-29T01:00+00:00"), at("2026-03-30T00:30+00:00")]
    days = islice(dues("30 2 * * *", BERLIN, at("2026-10-24T12:00+02:00")), 2)
    assert list(days) == [at("2026-10-25T00:30+00:00"), at("2026-10-26T01:30+00:00")]


def test_all_times_in_a_gap_are_one() -> None:
    found = islice(dues("0,10,50 2,3 * * *", BERLIN, at("2026-03-29T00:00+01:00")), 3)
    assert [due.astimezone(BERLIN).strftime("%H:%M") for due in found] == [
        "03:00",
        "03:10",
        "03:50",
    ]


def test_a_rhythm_goes_by_real_time() -> None:
    found = islice(dues("*/30 * * * *", BERLIN, at("2026-10-25T01:45+02:00")), 5)
    steps = list(found)
    assert [due.astimezone(BERLIN).strftime("%H:%M") for due in steps] == [
        *("02:00", "02:30", "02:00", "02:30", "03:00")
    ]
    assert {later - sooner for sooner, later in pairwise(steps)} == {30 * MINUTE}


@pytest.mark.parametrize("minute", range(0, 60, 5))
def test_the_next_ten_are_right_from_each_minute_of_the_repeated_hour(minute: int) -> None:
    """A85: of five expressions, both times that the clock shows it."""
    for hour in (0, 1):
        now = at(f"2026-10-25T0{hour}:{minute:02d}+00:00")
        for expression in ("30 2 * * *", "*/15 * * * *", "0 3 * * *", "5 2-4 * * *", "@hourly"):
            found = list(islice(dues(expression, BERLIN, now), 10))
            assert found == walked(expression, BERLIN, now, found[-1])
            assert len(set(found)) == 10
            assert sorted(found) == found


def test_seconds_count_for_nothing() -> None:
    assert due_after("* * * * *", UTC, at("2026-01-01T10:00:00.5+00:00")) == at(
        "2026-01-01T10:01+00:00"
    )
    assert due_after("* * * * *", UTC, at("2026-01-01T09:59:59.5+00:00")) == at(
        "2026-01-01T10:00+00:00"
    )


@pytest.mark.parametrize(
    ("expression", "first"),
    [
        ("@hourly", "2026-01-01T11:00"),
        ("@DAILY", "2026-01-02T00:00"),
        ("@weekly", "2026-01-04T00:00"),
        ("@monthly", "2026-02-01T00:00"),
        ("@yearly", "2027-01-01T00:00"),
        ("0 9 * * mon-fri", "2026-01-02T09:00"),
        ("0 9 * MAR,nov 7", "2026-03-01T09:00"),
        ("0 9-17/4 * * *", "2026-01-01T13:00"),
        ("0 9 L * *", "2026-01-31T09:00"),
        ("0 9 LW * *", "2026-01-30T09:00"),
        ("0 9 * * FRI#2", "2026-01-09T09:00"),
        ("0 9 * * 5L", "2026-01-30T09:00"),
        ("0 9 13 * FRI", "2026-01-02T09:00"),
        ("0 0 29 2 *", "2028-02-29T00:00"),
    ],
)
def test_what_can_be_written(expression: str, first: str) -> None:
    assert check_cron(expression) == expression
    assert due_after(expression, UTC, at("2026-01-01T10:30+00:00")) == at(f"{first}+00:00")


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("61 * * * *", "'61' is no minute"),
        ("* 24 * * *", "'24' is no hour"),
        ("* * 0 * *", "'0' is no day of the month"),
        ("* * * JANUARY *", "'JANUARY' is no month"),
        ("* * * * FRI-MON", "'FRI-MON' is no day of the week"),
        ("0 0 31 2 *", "no day is like that"),
        ("0 0 31 4,6,9,11 *", "no day is like that"),
        ("* * * *", "it has 4 fields instead of five"),
        ("0 * * * * *", "it has 6 fields instead of five"),
        ("", "letters, digits and"),
        ("@reboot", "there is no @reboot"),
        ("*/0 * * * *", "'*/0' is no minute"),
        ("²L * * * *", "letters, digits and"),
        ("0 " * 150, "200 letters"),
        ("9" * 190 + " * * * *", "is no minute"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_field(expression: str, why: str) -> None:
    with pytest.raises(Refused, match="write minute, hour, day of the month") as refused:
        check_cron(expression)
    assert refused.value.code == "cron_invalid"
    assert why in refused.value.text


_FIELDS = st.text("0123456789*/,-#LWMONFRI", min_size=1, max_size=8)


@examples(300)
@given(st.lists(_FIELDS, min_size=5, max_size=5).map(" ".join))
def test_whatever_is_typed_is_refused_or_has_a_next_time(expression: str) -> None:
    if cron_flaw(expression) is not None:
        return
    now = at("2026-03-29T00:30+00:00")
    due = due_after(expression, BERLIN, now)
    assert due is not None
    assert due > now


def test_the_latest_is_found_from_its_end_however_long_ago_one_looked_last() -> None:
    since, until = at("2020-01-01T00:00+00:00"), at("2026-05-01T12:34:56+00:00")
    for expression, latest in [
        ("* * * * *", "2026-05-01T12:34+00:00"),
        ("30 2 * * *", "2026-05-01T00:30+00:00"),
        ("0 0 29 2 *", "2024-02-28T23:00+00:00"),
    ]:
        assert latest_due(expression, BERLIN, since=since, until=until) == at(latest)
    assert latest_due("0 0 29 2 *", BERLIN, since=at("2025-01-01T00:00Z"), until=until) is None


def test_what_is_due_is_counted_up_to_a_bound() -> None:
    since, until = at("2026-01-01T00:00+00:00"), at("2026-02-01T00:00+00:00")
    assert count_due("30 2 * * *", BERLIN, since=since, until=until, most=1000) == 31
    assert count_due("* * * * *", BERLIN, since=since, until=until, most=1000) == 1000
    assert count_due("0 0 1 6 *", BERLIN, since=since, until=until, most=1000) == 0
