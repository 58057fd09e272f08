"""Windows of time in which jobs may start."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from stado.core.quotas import ScopeKind
from stado.core.settings import DeploymentSettings, WindowSettings, parse_value
from stado.core.spec import Spec
from stado.core.window_words import parse_window
from stado.core.windows import Restriction, first_closed, opening, restrictions, restrictions_of
from stado.errors import Refused


def settings(rules: str) -> DeploymentSettings:
    return DeploymentSettings(windows=WindowSettings(rules=parse_value("windows.rules", rules)))


def only(rules: str) -> Restriction:
    (found,) = restrictions(settings(rules))
    return found


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("rule", "open_at", "closed_at"),
    [
        # 2026-11-30 is a Monday.
        ("all:mon-fri@09:00-17:00", ["11-30T09:00", "12-04T16:59"], ["11-30T08:59", "12-04T17:00"]),
        ("all:mon-fri@09:00-17:00", ["12-01T12:00"], ["12-05T12:00", "12-06T12:00"]),
        ("all:fri@18:00-08:00", ["12-04T18:00", "12-05T07:59"], ["12-04T07:00", "12-05T08:00"]),
        ("all:sun@18:00-08:00", ["11-30T07:59"], ["12-01T07:59"]),
        ("all:daily@00:00-24:00", ["11-30T00:00", "11-30T23:59"], []),
        ("all:sat,sun@12:00-24:00", ["12-05T23:59"], ["12-06T00:00", "12-07T12:00"]),
        ("all:fri-mon@12:00-13:00", ["12-04T12:00", "12-07T12:30"], ["12-08T12:00", "12-03T12:30"]),
        ("all:mon@09:00-17:00@America/New_York", ["11-30T14:00"], ["11-30T13:59", "11-30T22:00"]),
    ],
)
def test_a_window_is_told_by_days_and_times(
    rule: str, open_at: list[str], closed_at: list[str]
) -> None:
    """R64: what closes before it opens does so on the day after, and belongs to the day before."""
    restriction = only(rule)
    assert all(restriction.is_open(instant(f"2026-{at}")) for at in open_at)
    assert not any(restriction.is_open(instant(f"2026-{at}")) for at in closed_at)


@pytest.mark.parametrize(
    ("rule", "spans"),
    [
        # The clock goes from 02:00 to 03:00 at 01:00Z.
        ("all:daily@02:00-03:00@Europe/Berlin", []),
        ("all:daily@01:30-03:30@Europe/Berlin", [("00:30", "01:30")]),
        ("all:daily@02:30-03:30@Europe/Berlin", [("01:00", "01:30")]),
    ],
)
def test_what_the_clock_leaves_out_is_left_out_of_a_window(
    rule: str, spans: list[tuple[str, str]]
) -> None:
    """R64"""
    assert spans_of(only(rule), date(2026, 3, 29)) == spans


@pytest.mark.parametrize(
    ("rule", "spans"),
    [
        # From 03:00 back to 02:00 at 01:00Z.
        ("all:daily@01:30-03:30@Europe/Berlin", [("00:00", "02:30")]),
        ("all:daily@02:00-03:00@Europe/Berlin", [("00:00", "02:00")]),
        ("all:daily@02:10-02:20@Europe/Berlin", [("00:10", "00:20"), ("01:10", "01:20")]),
    ],
)
def test_where_the_clock_is_set_back_a_window_is_open_longer_or_twice(
    rule: str, spans: list[tuple[str, str]]
) -> None:
    """R64"""
    assert spans_of(only(rule), date(2026, 10, 25)) == spans


def spans_of(restriction: Restriction, day: date) -> list[tuple[str, str]]:
    """From the first three hours of a day in UTC, when it is open, minute by minute."""
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    found: list[tuple[str, str]] = []
    opened = None
    for number in range(3 * 60 + 1):
        at = begin + timedelta(minutes=number)
        is_open = number < 180 and restriction.is_open(at)
        if is_open and opened is None:
            opened = at
        if not is_open and opened is not None:
            found.append((f"{opened:%H:%M}", f"{at:%H:%M}"))
            opened = None
    return found


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize("times", ["01:40-02:10", "02:30-03:30", "22:00-02:15", "02:07-02:09"])
def test_it_is_known_when_a_window_opens_next_at_both_changes_of_the_clock(
    zone: str, times: str
) -> None:
    """R14: the first minute at which it is open, whatever the clock does meanwhile."""
    restriction = only(f"all:daily@{times}@{zone}")
    for begin in ("03-07", "03-28", "04-04", "10-03", "10-24", "10-31"):
        first = instant(f"2026-{begin}")
        minutes = [first + timedelta(minutes=number) for number in range(48 * 60)]
        following = None
        for at in reversed(minutes):
            if restriction.is_open(at):
                following = at
            if following is not None and at.minute == 45:
                assert restriction.opens_at(at) == following


def test_a_weekly_window_that_the_clock_leaves_out_opens_a_week_later() -> None:
    restriction = only("all:sun@02:00-03:00@Europe/Berlin")
    assert restriction.opens_at(instant("2026-03-22T02:00")) == instant("2026-04-05T00:00")


def test_windows_of_one_subject_are_alternatives_and_of_several_each_counts() -> None:
    """R64: as with limits, a job that falls under several needs each."""
    stated = settings("all:mon@08:00-12:00 all:mon@13:00-18:00 group.big:mon@10:00-14:00")
    big = Spec(command="", group="big")

    def closed(spec: Spec, at: str) -> str | None:
        found = first_closed(spec, user="ada", settings=stated, at=instant(f"2026-11-30T{at}"))
        return None if found is None else found.name

    assert closed(Spec(command=""), "09:00") is None
    assert closed(Spec(command=""), "12:30") == "all"
    assert closed(big, "09:00") == "group.big"
    assert closed(big, "11:00") is None
    assert closed(big, "12:30") == "all"
    restricted = restrictions_of(big, user="ada", settings=stated)
    assert opening(restricted, instant("2026-11-30T12:10")) == instant("2026-11-30T13:00")
    assert opening(restricted, instant("2026-11-30T15:00")) == instant("2026-12-07T10:00")


def test_windows_that_never_meet_open_for_nobody() -> None:
    stated = settings("all:mon@08:00-12:00 user.ada:mon@13:00-14:00")
    restricted = restrictions_of(Spec(command=""), user="ada", settings=stated)
    assert opening(restricted, instant("2026-11-30T12:10")) is None


def test_a_zone_that_is_not_known_here_is_open_for_nobody() -> None:
    """Somebody else's host may know more."""
    rules = ["all:daily@00:00-24:00@Mars/Olympus_Mons"]
    (found,) = restrictions(DeploymentSettings(windows=WindowSettings(rules=rules)))
    assert not found.is_open(instant("2026-11-30T12:00"))
    assert found.opens_at(instant("2026-11-30T12:00")) is None


def test_a_window_is_kept_with_its_zone() -> None:
    kept = parse_value(
        "windows.rules", "group.a-b:daily@22:00-06:00 user.ada@x:sun@00:00-24:00@UTC"
    )
    assert kept == ["group.a-b:daily@22:00-06:00@UTC", "user.ada@x:sun@00:00-24:00@UTC"]
    assert [parse_window(one).subject for one in kept] == ["a-b", "ada@x"]
    assert ScopeKind(parse_window(kept[0]).kind) is ScopeKind.GROUP


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "must be WHOSE:DAYS@FROM-TO@ZONE"),
        ("all:mon-fri@18:00-08:00@Europe/Berln", "there is no time zone 'Europe/Berln'; did you "),
        ("all:mon-fri@18:00-08:00@../etc/passwd", "there is no time zone '../etc/passwd'"),
        ("all:mon-fri@18:00-08:00@localtime", "there is no time zone 'localtime'"),
        ("all:mon-fri@18:00-08:00@Europe", "there is no time zone 'Europe'"),
        ("all:mon-fri@18:00-18:00", "is empty: it closes when it opens; a whole day is 00:00-24"),
        ("all:mon-fri@24:00-18:00", "must be"),
        ("all:mon-fri@18:00-24:30", "must be"),
        ("all:monday@18:00-19:00", "must be"),
        ("all:@18:00-19:00", "must be"),
        ("everybody:mon@18:00-19:00", "must be"),
        ("group.:mon@18:00-19:00", "must be"),
        ("group.a/b:mon@18:00-19:00", "must be"),
    ],
)
def test_a_window_that_cannot_be_is_refused_with_what_can(text: str, told: str) -> None:
    """R64"""
    with pytest.raises(Refused, match=r"windows\.rules ") as refused:
        parse_value("windows.rules", text)
    assert told in refused.value.text


def test_there_is_a_most_of_windows() -> None:
    many = " ".join(f"user.u{number}:daily@01:00-02:00" for number in range(101))
    with pytest.raises(Refused, match="100 windows at most"):
        parse_value("windows.rules", many)
