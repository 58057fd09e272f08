from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.core import ids

NOW = datetime(2026, 3, 1, 12, 0, 0, 123_000, tzinfo=UTC)
instants = st.datetimes(datetime(1970, 1, 1), datetime(2400, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@given(instants, instants)
def test_a_later_submission_sorts_before_an_earlier_one(first: datetime, second: datetime) -> None:
    if ids.milliseconds(first) == ids.milliseconds(second):
        return
    early, late = sorted([first, second])
    assert ids.new_base(late, "zzzzzz") < ids.new_base(early, "aaaaaa")


@given(instants, instants)
def test_ids_are_of_one_form_and_sort_newest_first(one: datetime, other: datetime) -> None:
    """To the millisecond."""
    first, second = ids.new_base(one, "abcdef"), ids.new_base(other, "abcdef")
    assert ids.BASE_PATTERN.fullmatch(first)
    assert (first < second) == (ids.milliseconds(one) > ids.milliseconds(other))


def test_a_base_is_ten_letters_of_time_and_six_random_ones() -> None:
    base = ids.new_base(NOW, "qwertyuiop"[: ids.random_letters_needed()])
    assert len(base) == ids.BASE_LENGTH == 16
    assert base.endswith("qwerty")


def test_milliseconds_are_exact() -> None:
    instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=2**52 // 1000 + 1)
    assert ids.milliseconds(instant) == 2**52 // 1000 + 1


@pytest.mark.parametrize(
    ("count", "first", "last"),
    [(1, "-1", "-1"), (9, "-1", "-9"), (10, "-01", "-10"), (100_000, "-000001", "-100000")],
)
def test_members_of_a_batch_are_padded_to_its_size(count: int, first: str, last: str) -> None:
    """R170"""
    base = ids.new_base(NOW, "abcdef")
    members = ids.job_ids(base, count=count, batch=True)
    assert (members[0], members[-1]) == (base + first, base + last)
    assert members == sorted(members)
    assert len(set(members)) == count
    assert all(ids.is_job_id(member) and ids.base_of(member) == base for member in members)


def test_a_single_job_has_the_base_as_its_id() -> None:
    base = ids.new_base(NOW, "abcdef")
    assert ids.job_ids(base, count=1, batch=False) == [base]


@pytest.mark.parametrize("text", ["", "abc", "A" * 16, "a" * 17, "a" * 16 + "-", "a" * 16 + "-1x"])
def test_what_is_no_job_id_is_not_taken_for_one(text: str) -> None:
    assert not ids.is_job_id(text)


@pytest.mark.parametrize("text", ["a", "x" * 100, "nightly@20260329T013000Z", "A.b_c+d-e"])
def test_run_ids_take_plain_characters(text: str) -> None:
    """R129"""
    assert ids.is_run_id(text)


@pytest.mark.parametrize("text", ["", "x" * 101, "a b", "a/b", "é", "a\n"])
def test_run_ids_take_nothing_else(text: str) -> None:
    """R129"""
    assert not ids.is_run_id(text)
