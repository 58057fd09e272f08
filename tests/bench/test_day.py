"""The replayed day, small: it ends, it is the same each time, and no card is in use twice."""

from __future__ import annotations

from statistics import fmean

import pytest

from tests.bench.day import StadoDay, Tally, play_fifo, table
from tests.bench.day_jobs import CARDS_PER_HOST, DAY_SECONDS, DayJob, draw_day

_HOSTS = 1
_JOBS = 60
_LOAD = 1.0
_SEED = 5


@pytest.fixture(scope="module")
def jobs() -> list[DayJob]:
    return draw_day(_SEED, jobs=_JOBS, load=_LOAD, hosts=_HOSTS)


@pytest.fixture(scope="module")
def day(jobs: list[DayJob]) -> Tally:
    return StadoDay(jobs, _HOSTS).play()


def test_the_jobs_of_a_day_ask_for_as_much_as_they_should(jobs: list[DayJob]) -> None:
    asked = sum(job.cards * job.seconds for job in jobs)
    assert asked == pytest.approx(_LOAD * _HOSTS * CARDS_PER_HOST * DAY_SECONDS, rel=0.01)
    assert [job.submitted_at for job in jobs] == sorted(job.submitted_at for job in jobs)
    assert draw_day(_SEED, jobs=_JOBS, load=_LOAD, hosts=_HOSTS) == jobs
    assert {job.cards for job in jobs} == {1, 2, 4, 8}


def test_all_jobs_of_a_day_come_to_their_end(jobs: list[DayJob], day: Tally) -> None:
    """None before its time: what it lost by making room is done again."""
    for tally in (day, play_fifo(jobs, _HOSTS)):
        assert len(tally.ended_at) == _JOBS
        assert min(tally.waits()) > -1e-6
        assert 0 < tally.use <= 100


def test_as_agents_decide_the_urgent_do_not_wait_behind_the_others(
    jobs: list[DayJob], day: Tally
) -> None:
    """R157: first come, first served knows none that are urgent."""
    fifo = play_fifo(jobs, _HOSTS)
    urgent, as_they_came = fmean(day.waits(urgent=True)), fmean(fifo.waits(urgent=True))
    assert urgent < as_they_came / 5
    assert day.yields > 0


def test_the_same_day_is_decided_alike_each_time(jobs: list[DayJob], day: Tally) -> None:
    again = StadoDay(jobs, _HOSTS).play()
    assert again.ended_at == day.ended_at
    assert (again.yields, again.lost) == (day.yields, day.lost)


def test_a_table_has_a_column_for_each_load_and_way(jobs: list[DayJob], day: Tally) -> None:
    lines = table({_LOAD: [(play_fifo(jobs, _HOSTS), day)]}).splitlines()
    assert lines[0] == "| | load 1, FIFO | load 1, stado |"
    assert all(line.count("|") == 4 for line in lines)


def test_first_come_first_served_holds_up_who_stands_behind_the_head() -> None:
    """The second job wants all cards of the only host, and the third would fit beside the first."""

    def job(number: int, cards: int) -> DayJob:
        return DayJob(number, float(number), cards, 600.0, priority=0, yields=0)

    tally = play_fifo([job(0, 1), job(1, 8), job(2, 1)], 1)
    assert tally.ended_at == {0: 600.0, 1: 1200.0, 2: 1800.0}
    assert tally.use == pytest.approx(100 * 10 * 600 / (8 * DAY_SECONDS))
