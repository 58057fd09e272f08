from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.errors import Misconfigured
from stado.storage.keys import COMPONENT_BYTES_MAX, KEY_BYTES_MAX, check_key, check_prefix


@pytest.mark.parametrize(
    "key", ["a", "stado.json", "index/ready/!99-open", "a/b~c@d+e=f,g", "a..b"]
)
def test_plain_keys_pass(key: str) -> None:
    check_key(key)


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", ".", "..", "a/../b", ".tmp/a", "a\\b", "a b", "a\x7f", "ž"]
)
def test_keys_that_some_store_mangles_are_refused(key: str) -> None:
    with pytest.raises(Misconfigured):
        check_key(key)


def test_lengths_are_bounded() -> None:
    check_key("x" * COMPONENT_BYTES_MAX)
    with pytest.raises(Misconfigured, match="200 bytes"):
        check_key("x" * (COMPONENT_BYTES_MAX + 1))
    with pytest.raises(Misconfigured, match="800 bytes"):
        check_key("x/" * (KEY_BYTES_MAX // 2) + "x")


@given(st.text(max_size=12))
def test_key_that_passes_is_a_safe_path(key: str) -> None:
    try:
        check_key(key)
    except Misconfigured:
        return
    assert key.isascii()
    assert all(part and not part.startswith(".") for part in key.split("/"))


@pytest.mark.parametrize(("prefix", "limit"), [("", 1), ("a/", 1000), ("a/b", 5), ("a/b/c-", 7)])
def test_folders_and_beginnings_can_be_listed(prefix: str, limit: int) -> None:
    check_prefix(prefix, limit, 1000)


@pytest.mark.parametrize(("prefix", "limit"), [("a/", 0), ("a/", 1001), ("/a", 1), ("a//", 1)])
def test_listings_that_some_store_cannot_answer_are_refused(prefix: str, limit: int) -> None:
    with pytest.raises(Misconfigured):
        check_prefix(prefix, limit, 1000)
