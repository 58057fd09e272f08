"""What a job reports is taken as far as it says anything, whatever wrote it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.core.documents import from_plain
from stado.core.moves import DETAIL_MAX
from stado.core.records import Progress
from stado.core.reported import progress_of, refusal_of
from stado.reports import PROGRESS_TEXT_MAX


@pytest.mark.parametrize(
    ("data", "fraction", "text"),
    [
        (b'{"fraction": 0.5, "text": "round 3 of 6"}', 0.5, "round 3 of 6"),
        (b'{"fraction": 1}', 1.0, ""),
        (b'{"fraction": -3, "text": null}', 0.0, ""),
        (b'{"fraction": 1e300, "text": 7, "mine": []}', 1.0, ""),
        (b'{"fraction": 0.25, "text": "a\\n\\u001b[31mb\\u0000 c"}', 0.25, "a [31mb c"),
    ],
)
def test_progress_is_a_share_and_one_line(data: bytes, fraction: float, text: str) -> None:
    assert progress_of(data) == Progress(fraction=fraction, text=text)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"half", b"[0.5]", b"0.5", b"{}", b'{"fraction": "0.5"}', b'{"fraction": true}'),
        *(b'{"fraction": NaN}', b'{"fraction": 0.5', b"\xff" * 100, b"[" * 8000),
    ],
)
def test_what_says_nothing_of_progress_is_none(data: bytes) -> None:
    assert progress_of(data) is None


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
def test_any_text_of_progress_fits_a_heartbeat(text: str) -> None:
    progress = progress_of(json.dumps({"fraction": 0.5, "text": text}).encode())
    assert progress is not None
    assert len(progress.text) <= PROGRESS_TEXT_MAX
    assert progress.text.isprintable()
    assert from_plain(Progress, progress.plain()) == progress


def test_a_reason_is_one_line_without_control_characters() -> None:
    """R81"""
    assert refusal_of("covers  it\n\x1b[2Jalready \N{EN DASH} \n".encode()) == (
        "covers it [2Jalready \N{EN DASH}"
    )
    assert refusal_of(b"\xff\xfe") == "\N{REPLACEMENT CHARACTER}" * 2
    long = refusal_of(b"x" * 8000)
    assert len(long) == DETAIL_MAX
    assert long.endswith("x…")


@pytest.mark.parametrize("data", [b"", b" \n\x07"])
def test_a_refusal_without_words_is_a_refusal(data: bytes) -> None:
    assert refusal_of(data) == "the job refused to go on and gave no reason"
