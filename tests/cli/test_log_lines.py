"""Lines of a log are found and dated, whatever they are made of and however they are cut."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.cli import log_lines
from stado.cli.log_lines import SEARCHED_BYTES, LogLines

BEGIN = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)


def a_second_a_byte(offset: int) -> datetime:
    return BEGIN + timedelta(seconds=offset)


def shown(*parts: bytes, pattern: str | None = None, dated: bool = False) -> bytes:
    found: list[bytes] = []
    lines = LogLines(
        found.append,
        pattern=re.compile(pattern) if pattern is not None else None,
        find_time=a_second_a_byte if dated else None,
    )
    offset = 0
    for part in parts:
        lines.take(part, offset)
        offset += len(part)
    lines.end_line()
    return b"".join(found)


@given(
    text=st.lists(st.sampled_from([b"a", b"b", b"\n", b"\r", b"\xff", "ž".encode()])).map(b"".join),
    cuts=st.lists(st.integers(0, 60)),
)
def test_lines_are_the_same_however_they_are_cut(text: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    parts = [text[a:b] for a, b in itertools.pairwise(places)]
    assert shown(*parts) == text
    ended = [line for line in re.split(rb"(?<=\n)", text) if line]
    assert shown(*parts, pattern="a") == b"".join(line for line in ended if b"a" in line)
    offset, dated = 0, b""
    for line in ended:
        dated += a_second_a_byte(offset).strftime("%Y-%m-%dT%H:%M:%SZ ").encode() + line
        offset += len(line)
    assert shown(*parts, dated=True) == dated


def test_a_found_line_has_the_time_of_its_beginning() -> None:
    assert shown(b"no\nye", b"s\n", pattern="^yes$", dated=True) == b"2026-03-29T01:30:03Z yes\n"


def test_a_progress_bar_is_one_line() -> None:
    assert shown(b"10%\r20%\r", b"30%\nend\n", pattern="20") == b"10%\r20%\r30%\n"


def test_the_beginning_of_a_long_line_is_searched_and_all_of_it_shown_or_nothing() -> None:
    line = b"x" * (SEARCHED_BYTES - 2) + b"in" + b"y" * SEARCHED_BYTES + b"behind\n"
    parts = [line[at : at + 5000] for at in range(0, len(line), 5000)]
    assert shown(*parts, b"next\n", pattern="in|next") == line + b"next\n"
    assert shown(*parts, b"next\n", pattern="behind|next") == b"next\n"


def test_a_pattern_that_would_take_for_ever_is_given_up_with_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_lines, "SEARCH_SECONDS", 0.1)
    with pytest.raises(click.UsageError, match=r"more than 0.1 s .* \(a\+\)\+"):
        shown(b"a" * 40 + b"!\n", pattern=r"(a+)+$")
    assert shown(b"aa\n", pattern=r"(a+)+$") == b"aa\n"
