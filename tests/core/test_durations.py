"""Durations as people write them."""

from __future__ import annotations

import pytest

from stado.core.durations import (
    DURATION_SECONDS_MAX,
    duration_text,
    meant_duration,
    parse_duration,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("30m", 1800), ("2h", 7200), ("3d", 259_200), ("3650d", 315_360_000)],
)
def test_a_duration_is_a_whole_number_with_a_unit(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds
    assert parse_duration(duration_text(seconds)) == seconds


@pytest.mark.parametrize(
    "text", ["", "0", "0h", "-5", "1.5h", "5 m", "five", "1h30m", "2H", "True", "٣", "3651d"]
)
def test_what_is_none_is_told(text: str) -> None:
    """R98."""
    assert parse_duration(text) is None


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2 h", "2h"),
        ("2H", "2h"),
        ("1.5 hours", "90m"),
        ("1h30m", "90m"),
        ("1 day, 1 minute", "1441m"),
        ("90sec", "90s"),
        ("2 x", None),
        ("h", None),
        ("-2h", None),
        ("0h", None),
        ("0.1s", None),
        ("99999d", None),
        ("", None),
        ("2 h and more", None),
    ],
)
def test_what_is_meant_is_written_as_it_is_taken(text: str, meant: str | None) -> None:
    assert meant_duration(text) == meant
    assert meant is None or parse_duration(meant)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(90, "90s"), (120, "2m"), (7200, "2h"), (86_400, "1d"), (DURATION_SECONDS_MAX, "3650d")],
)
def test_a_duration_is_shown_in_the_largest_unit_that_is_exact(seconds: int, text: str) -> None:
    assert duration_text(seconds) == text
