"""What a log costs: requests of an hour of a job that prints all the time, counted."""

from __future__ import annotations

from pathlib import Path

from stado.jobs.log_segments import SEGMENT_BYTES_MAX
from stado.storage.observe import Operation
from tests.agent.talking import dollars, talk, waits_of_followers, writes_of


def test_an_hour_that_nobody_follows_costs_less_than_a_tenth_of_a_cent_in_all(
    tmp_path: Path,
) -> None:
    """PROTOCOL.md, "Requests": the log, the signs of life, and a coordinator's looks at them."""
    hours = talk(tmp_path / "log", hours=2)
    first, second = hours.log
    assert writes_of(first) <= 37
    assert writes_of(second) <= 31
    for requests in hours.log:
        assert requests.of(Operation.GET) <= 92
        assert requests.of() == writes_of(requests) + requests.of(Operation.GET)
    assert hours.dollars(0) < 0.00097
    assert hours.dollars(1) < 0.00094
    assert hours.longest_wait <= 121


def test_an_hour_that_is_followed_has_a_segment_each_two_seconds(tmp_path: Path) -> None:
    hours = talk(tmp_path / "log", followed=True)
    (requests,) = hours.log
    assert 1700 <= writes_of(requests) <= 1810
    assert requests.of(Operation.GET) <= 121
    assert requests.of() == writes_of(requests) + requests.of(Operation.GET)
    assert dollars(requests) < 0.01
    assert hours.longest_wait <= 15


def test_who_comes_to_a_job_that_nobody_followed_sees_lines_within_half_a_minute(
    tmp_path: Path,
) -> None:
    waits = waits_of_followers(tmp_path / "log")
    assert len(waits) >= 24
    assert max(waits) <= 31
    assert min(waits) < 10


def test_who_prints_more_than_fits_pays_for_each_segment_and_waits_until_it_is_full(
    tmp_path: Path,
) -> None:
    hours = talk(tmp_path / "log", bytes_a_second=60_000)
    (requests,) = hours.log
    segments = 60_000 * 3600 / SEGMENT_BYTES_MAX
    assert segments <= writes_of(requests) <= segments + 10
    assert hours.longest_wait <= 36


def test_the_signs_of_life_are_a_write_each_half_minute_and_a_read_each_quarter(
    tmp_path: Path,
) -> None:
    hours = talk(tmp_path / "log", bytes_a_second=200)
    signs = hours.signs
    assert signs.of(Operation.REPLACE, kind="status/*") == 120
    assert signs.of(Operation.GET, kind="status/*/asks") == 240
    assert signs.of() == 120 + 240
    assert hours.looks.of(Operation.HEAD, kind="status/*") <= 122
    assert hours.looks.of() == hours.looks.of(Operation.HEAD)
