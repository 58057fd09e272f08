"""What a job reports is taken as far as it says anything, whatever wrote it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.core import keys
from stado.core.documents import decode, from_plain
from stado.core.moves import DETAIL_MAX
from stado.core.records import Heartbeat, Progress
from stado.core.reported import live_of, progress_of, refusal_of
from stado.errors import Unreadable
from stado.reports import PROGRESS_TEXT_MAX

BEAT_KEY = keys.heartbeat("abcdefghijklmnop")


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


@pytest.mark.parametrize(
    "url",
    [
        "http://host:6006",
        "https://h.example/lab?token=1#x",
        "HTTP://[::1]:80/\N{LATIN SMALL LETTER E WITH ACUTE}",
    ],
)
def test_a_live_view_is_an_http_url(url: str) -> None:
    assert live_of(f" {url}\n".encode()) == url
    beat = heartbeat(live=url)
    assert decode(Heartbeat, BEAT_KEY, beat.encode()) == beat


def test_nothing_but_blanks_is_no_live_view() -> None:
    assert live_of(b"") is live_of(b" \n") is None


NO_URLS = [
    *(
        "host:6006",
        "ftp://host/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "http://",
        "http:///x",
    ),
    *("http://a b/", "http://a\nhttp://b", "http://a/\x1b[2J", "http://a/\u202e", "http://a/\xa0b"),
    *("http://ada:secret@host/", "http://ada@host/", "http://[::1/", "http://host:port/"),
    "http://host/" + "x" * 989,
]


@pytest.mark.parametrize("url", NO_URLS)
def test_what_is_no_url_of_a_live_view_is_refused_and_not_repeated(url: str) -> None:
    """R125: by who takes it from the job, and by whoever reads a beat."""
    with pytest.raises(ValueError, match=r"^(has|holds|is)") as refused:
        live_of(url.encode())
    assert "secret" not in str(refused.value)
    with pytest.raises(Unreadable) as unreadable:
        decode(Heartbeat, BEAT_KEY, heartbeat(live=url).encode())
    assert "secret" not in str(unreadable.value)


def test_a_live_view_of_no_text_or_with_a_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="is no text"):
        live_of(b"http://\xff/")
    with pytest.raises(ValueError, match="value of a secret"):
        live_of(b"http://host/?token=key", lambda text: text.replace("key", "[masked]"))


def heartbeat(*, live: str) -> Heartbeat:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Heartbeat(epoch=1, token="t", by="a@box", at=at, live=live)


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
