"""Who makes room: by priority, by what is lost, by how often it may, and no more than it takes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.core.admission import Reservation
from stado.core.order import Needs
from stado.core.yields import Running, choose_victims


def running(
    name: str, *, cores: int = 1, lost: float = 0.0, priority: int = 0, left: int = 1
) -> Running:
    held = Reservation(Needs(cores * 1000, 1024))
    return Running(name, 1, priority, held, yields_left=left, lost_seconds=lost)


def chosen(priority: int, jobs: Sequence[Running], *, cores: int) -> list[str]:
    """Names of those that make room for one that wants so many cores, none of which is free."""

    def fits(gone: Sequence[Running]) -> bool:
        return sum(one.held.needs.cpu_milli for one in gone) >= 1000 * cores

    return sorted(one.job_id for one in choose_victims(priority, jobs, fits))


def test_those_that_lose_the_least_make_room() -> None:
    """R157"""
    jobs = [running("a", lost=50), running("b", lost=5), running("c", lost=20)]
    assert chosen(5, jobs, cores=1) == ["b"]
    assert chosen(5, jobs, cores=2) == ["b", "c"]


def test_no_more_are_stopped_than_it_takes() -> None:
    """R157: the first ones are let off where one that loses more would do alone."""
    jobs = [running("a", lost=1), running("b", lost=2), running("large", cores=4, lost=3)]
    assert chosen(5, jobs, cores=4) == ["large"]


def test_nobody_is_stopped_where_all_of_them_would_not_do() -> None:
    """R157"""
    assert chosen(5, [running("a"), running("b")], cores=3) == []


@pytest.mark.parametrize(("priority", "makes_room"), [(4, False), (5, False), (6, True)])
def test_room_is_made_for_the_more_urgent_alone(priority: int, makes_room: bool) -> None:
    """R157"""
    assert bool(chosen(priority, [running("a", priority=5)], cores=1)) is makes_room


def test_who_may_not_yield_any_more_is_passed_over() -> None:
    """R157"""
    jobs = [running("spent", left=0, lost=1), running("able", lost=100)]
    assert chosen(5, jobs, cores=1) == ["able"]
    assert chosen(5, jobs, cores=2) == []


_JOBS = st.lists(
    st.builds(
        running,
        st.uuids().map(str),
        cores=st.integers(1, 8),
        lost=st.floats(0, 1000),
        priority=st.integers(0, 9),
        left=st.integers(0, 2),
    ),
    max_size=8,
)


@given(_JOBS, st.integers(0, 9), st.integers(1, 20))
def test_whoever_is_chosen_is_needed_and_enough(
    jobs: list[Running], priority: int, cores: int
) -> None:
    """R157: and somebody is chosen wherever that helps."""
    by_name = {one.job_id: one for one in jobs}
    able = [one for one in jobs if one.yields_left and one.priority < priority]
    victims = [by_name[name] for name in chosen(priority, jobs, cores=cores)]
    freed = sum(one.held.needs.cpu_milli for one in victims)
    assert set(map(id, victims)) <= set(map(id, able))
    assert bool(victims) is (sum(one.held.needs.cpu_milli for one in able) >= 1000 * cores)
    assert all(freed - one.held.needs.cpu_milli < 1000 * cores for one in victims)
