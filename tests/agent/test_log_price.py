"""What a log costs: requests of an hour of a job that prints all the time, counted."""

from __future__ import annotations

from pathlib import Path

from stado.storage.observe import Operation
from tests.agent.talking import dollars, talk, writes_of


def test_an_hour_that_nobody_follows_costs_less_than_a_tenth_of_a_cent(tmp_path: Path) -> None:
    hours = talk(tmp_path / "log", hours=2)
    first, second = hours.log
    assert 60 <= writes_of(first) <= 110
    assert writes_of(second) == 60
    for requests in hours.log:
        assert requests.of(Operation.GET) <= 240
        assert requests.of() == writes_of(requests) + requests.of(Operation.GET)
        assert dollars(requests) < 0.001
    assert hours.longest_wait <= 61


def test_an_hour_that_is_followed_has_a_segment_each_two_seconds(tmp_path: Path) -> None:
    hours = talk(tmp_path / "log", followed=True)
    (requests,) = hours.log
    assert 1700 <= writes_of(requests) <= 1810
    assert requests.of(Operation.GET) <= 240
    assert requests.of() == writes_of(requests) + requests.of(Operation.GET)
    assert dollars(requests) < 0.01
    assert hours.longest_wait <= 15


def test_who_prints_more_than_fits_pays_for_each_segment_and_waits_ten_seconds(
    tmp_path: Path,
) -> None:
    hours = talk(tmp_path / "log", bytes_a_second=60_000)
    (requests,) = hours.log
    mebibytes = 60_000 * 3600 / 2**20
    assert mebibytes <= writes_of(requests) <= mebibytes + 60
    assert hours.longest_wait <= 20


def test_the_signs_of_life_are_a_write_each_half_minute_and_a_read_each_quarter(
    tmp_path: Path,
) -> None:
    signs = talk(tmp_path / "log", bytes_a_second=200).signs
    assert signs.of(Operation.REPLACE, kind="status/*") == 120
    assert signs.of(Operation.GET, kind="status/*/asks") == 240
    assert signs.of() == 120 + 240
