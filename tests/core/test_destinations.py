"""Where a copy of an output may go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.core import keys
from stado.core.destinations import Destination, parse_destination
from stado.errors import Refused
from stado.storage.keys import check_key

LONGEST_JOB_ID = "a" * 16 + "-99999"


@pytest.mark.parametrize(
    ("text", "own", "place"),
    [
        ("stado://models/night", True, "models/night"),
        ("stado://models/", True, "models"),
        ("s3://lab-models/night", False, "s3://lab-models/night"),
        ("gs://lab", False, "gs://lab"),
        ("/data/out", False, "/data/out"),
        ("file:///data/my results", False, "file:///data/my results"),
    ],
)
def test_a_destination_is_in_the_own_store_or_another(text: str, own: bool, place: str) -> None:
    assert parse_destination(text) == Destination(own=own, place=place)


@pytest.mark.parametrize(
    "text",
    [
        *("", "models", "./out", "~/out", "ftp://x/y", "stado://", "stado:///", "s3://", "s3://a"),
        *("stado://../queue", "stado://a//b", "stado://a/../b", "stado://.hidden", "stado://a b"),
        *("s3://bucket/../x", "s3://bucket/a b", "s3://bucket//x", "s3://bucket/.x"),
        *("/a\0b", "/a\nb", "file://host/x", "stado://" + "a/" * 160 + "a", "/" + "a" * 1000),
    ],
)
def test_what_could_not_be_written_to_is_refused_with_what_could(text: str) -> None:
    with pytest.raises(Refused, match="stado://path in the deployment's own store") as refused:
        parse_destination(text)
    assert refused.value.code == "output_uri_invalid"


def test_a_secret_in_an_address_is_not_repeated() -> None:
    with pytest.raises(Refused) as refused:
        parse_destination("s3://AKIA:s3cr3t@bucket/prefix")
    assert "s3cr3t" not in refused.value.text


@given(st.from_regex(r"stado://[a-z./_-]{1,310}", fullmatch=True), st.text(max_size=900))
def test_no_place_leads_out_of_its_folder(text: str, path: str) -> None:
    """Nor onto a key that means something to a queue."""
    try:
        found = parse_destination(text)
    except Refused:
        return
    key = keys.published(found.place) + keys.copied_file(LONGEST_JOB_ID, path or "x")
    check_key(key)
    assert key.startswith("published/")
