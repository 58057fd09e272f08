"""Amounts in words."""

from __future__ import annotations

import pytest

from stado.sizes import in_words


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [
        (0, "0 MiB"),
        (1 << 19, "0.5 MiB"),
        (96 << 20, "96 MiB"),
        ((1 << 30) - 1, "1024 MiB"),
        (1 << 30, "1 GiB"),
        (1_472_200_000, "1.37 GiB"),
        (100 << 30, "100 GiB"),
        (123_456 << 30, "123456 GiB"),
    ],
)
def test_an_amount_is_told_in_the_unit_that_suits_it(size_bytes: int, words: str) -> None:
    assert in_words(size_bytes) == words
