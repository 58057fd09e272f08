"""What outputs take together, and how much of it has to go."""

from __future__ import annotations

import pytest

from stado.core.output_sizes import Left, OutputSizes, Room, enough, size_of
from stado.core.retention import Keeps
from stado.core.size_words import parse_size, stated_size
from stado.core.usage import Use

JOB = "abcdefghijklmnop"


def use(epoch: int = 1, size: int | None = None, *, metered: bool = False) -> Use:
    asked = {"dear": 1, "cheap": 1, "received_bytes": 0, "sent_bytes": 0} if metered else {}
    return Use(JOB, epoch, "ada", None, ended_ms=9, wall_ms=5, output_bytes=size, **asked)


def taken(*uses: Use, after: int = 0, completed: bool = True, unreadable: int = 0) -> Left:
    sizes = OutputSizes()
    sizes.unreadable = unreadable
    for one in uses:
        sizes.add(one)
    return sizes.take(JOB, after_epoch=after, completed=completed)


def test_a_size_that_is_not_known_is_not_nothing() -> None:
    """R276"""
    assert size_of(use(size=7)) == 7
    assert size_of(use(size=None, metered=True)) == 0, "it would have said so"
    assert size_of(use(size=None)) is None
    assert taken(use(size=None)) == Left(0, is_known=False)
    assert taken() == Left(0, is_known=False), "it completed, and nobody says what it left"
    assert taken(completed=False) == Left(0, is_known=True), "it ran nothing"
    assert taken(completed=False, unreadable=1) == Left(0, is_known=False)
    assert taken(use(size=7), unreadable=1) == Left(7, is_known=False)


def test_epochs_count_once_and_those_that_have_gone_do_not() -> None:
    """R276"""
    both = (use(1, 5), use(2, 2**40), use(2, 2**40))
    assert taken(*both) == Left(5 + 2**40, is_known=True)
    assert taken(*both, after=1) == Left(2**40, is_known=True)
    assert taken(*both, after=2) == Left(0, is_known=True)
    assert taken(use(1), use(2, 3)) == Left(3, is_known=False)
    assert taken(use(1), use(2, 3), after=1) == Left(3, is_known=True)


@pytest.mark.parametrize(
    ("sizes", "beyond", "count"),
    [
        ([5, 5, 5], 0, 0),
        ([5, 5, 5], 1, 1),
        ([5, 5, 5], 5, 1),
        ([5, 5, 5], 6, 2),
        ([0, 0, 5, 5], 1, 3),
        ([5], 100, 1),
        ([], 1, 0),
    ],
)
def test_no_more_go_than_it_takes(sizes: list[int], beyond: int, count: int) -> None:
    """R276: the first ones first; of those that are not known each that comes before."""
    assert enough(sizes, beyond) == count


def test_what_is_just_at_the_limit_fits() -> None:
    """R276"""
    room = Room(10)
    room.add(Left(6, is_known=True))
    room.add(Left(4, is_known=False))
    assert (room.beyond, room.jobs, room.unknown) == (0, 2, 1)
    room.add(Left(1, is_known=True))
    room.keep(Keeps.NEWEST, 1)
    assert (room.beyond, room.jobs) == (1, 3)
    room.let_go(Left(4, is_known=False))
    assert (room.beyond, room.held, room.jobs, room.unknown) == (0, 7, 2, 0)
    assert room.kept == {Keeps.NEWEST: 1}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500GB", 500 * 10**9),
        ("2TB", 2 * 10**12),
        ("300GiB", 300 * 2**30),
        ("1.5TB", 15 * 10**11),
        ("1kB", 1000),
    ],
)
def test_a_size_is_written_as_it_is_read(text: str, size: int) -> None:
    """R276"""
    assert parse_size(text) == size
    assert parse_size(text.lower()) == size
    assert stated_size(size) == text


@pytest.mark.parametrize("text", ["500", "0GB", "-1GB", "GB", "1.0001kB", "5 days", "1e3GB", "٣GB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    """R276"""
    assert parse_size(text) is None
