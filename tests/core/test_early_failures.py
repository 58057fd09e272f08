"""Whose fault failures at once are: a table, and what no answer may lead to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some

from stado.core.early_failures import (
    Elsewhere,
    Fault,
    Running,
    failed_early,
    in_a_row,
    went_well,
    whose_fault,
)
from stado.core.records import JobEnd

START = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
BATCH, OTHER = "a" * 16, "b" * 16


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def end(
    job: str = f"{BATCH}-1",
    *,
    ended: float = 1.0,
    verdict: str = "failed",
    reason: str | None = "job_failed",
    ran: float | None = 1.0,
    user: str | None = "ada",
) -> JobEnd:
    return JobEnd(
        job_id=job, user=user, verdict=verdict, reason=reason, ran_seconds=ran, at=at(ended)
    )


def well(job: str = f"{BATCH}-50", *, ended: float = 9.0, ran: float = 2.0) -> JobEnd:
    return end(job, ended=ended, verdict="completed", reason=None, ran=ran)


ROW = [end(f"{BATCH}-{number}", ended=number) for number in (1, 2, 3)]
SINGLES = [end(letter * 16, ended=number) for number, letter in enumerate("cde", 1)]


def host(
    *ends: JobEnd, running: Sequence[Running] = (), works: bool = True, quarantined: bool = False
) -> Elsewhere:
    return Elsewhere(at(60), works, quarantined, ends, running)


@pytest.mark.parametrize(
    ("one", "early"),
    [
        (end(), True),
        (end(verdict="retrying"), True),
        (end(ran=29.9), True),
        (end(ran=30), False),
        (end(ran=None, reason="input_unavailable"), True),
        (end(ran=None, reason="launch_failed"), True),
        (end(reason="memory_limit_exceeded"), False),
        (end(reason="job_refused"), False),
        (end(verdict="cancelled", reason="cancelled"), False),
        (end(verdict="timed_out", reason="timeout"), False),
        (end(verdict="lost", reason="supervisor_died", ran=None), True),
        (end(verdict="lost", reason="supervisor_died", ran=5), False),
        (end(verdict="lost", reason="host_unable", ran=None), False),
        (end(verdict="failed", reason="a_reason_of_tomorrow"), False),
        (well(), False),
    ],
)
def test_what_fails_early(one: JobEnd, early: bool) -> None:
    """A33"""
    assert failed_early(one) is early
    assert not (early and went_well(one))


@pytest.mark.parametrize(
    ("ends", "count"),
    [
        ([], 0),
        (ROW, 3),
        ([ROW[0], ROW[0], ROW[0]], 1),
        ([*ROW, well()], 0),
        ([*ROW, end(ran=31), *ROW[:1]], 1),
        ([ROW[0], end(verdict="cancelled", reason="cancelled"), ROW[1]], 2),
    ],
    ids=["none", "three", "one job thrice", "then well", "ran for long", "a cancel between"],
)
def test_different_jobs_in_a_row(ends: list[JobEnd], count: int) -> None:
    """A33"""
    assert len(in_a_row(ends)) == count


def _singles(count: int, *, ended: float = 9.0) -> list[JobEnd]:
    return [well(letter * 16, ended=ended) for letter in "wxyz"[:count]]


@pytest.mark.parametrize(
    ("row", "others", "fault"),
    [
        (ROW, [], Fault.JOBS),
        (ROW, [host(well(), works=False)], Fault.JOBS),
        (ROW, [host()], Fault.UNKNOWN),
        (ROW, [host(well())], Fault.HOST),
        (ROW, [host(well(), end(f"{BATCH}-9", reason="job_refused"))], Fault.HOST),
        (ROW, [host(well(ended=9, ran=60))], Fault.UNKNOWN),
        (ROW, [host(running=[Running(f"{BATCH}-7", at(5))])], Fault.HOST),
        (ROW, [host(running=[Running(f"{BATCH}-7", at(40))])], Fault.UNKNOWN),
        (ROW, [host(running=[Running(f"{BATCH}-7", at(-500))])], Fault.UNKNOWN),
        (ROW, [host(running=[Running(OTHER, at(5))])], Fault.UNKNOWN),
        (ROW, [host(end(f"{BATCH}-9"))], Fault.JOBS),
        (ROW, [host(end(f"{BATCH}-9", ended=-999))], Fault.JOBS),
        (ROW, [host(end(f"{BATCH}-9"), well())], Fault.JOBS),
        (ROW, [host(end(f"{BATCH}-9"), well(), well(), well())], Fault.UNKNOWN),
        (ROW, [host(end(f"{BATCH}-9"), *[well()] * 7), host(*[well()] * 8)], Fault.HOST),
        (ROW, [host(well()), host(works=False, quarantined=True)], Fault.UNKNOWN),
        (ROW, [host(well()), host(), host(works=False, quarantined=True)], Fault.HOST),
        (ROW, [host(well(OTHER))], Fault.UNKNOWN),
        (SINGLES, [host(*_singles(3))], Fault.HOST),
        (SINGLES, [host(*_singles(2))], Fault.UNKNOWN),
        (SINGLES, [host(*_singles(3, ended=-9))], Fault.UNKNOWN),
        (SINGLES, [host(*_singles(4)), host(end(OTHER))], Fault.JOBS),
        (SINGLES, [host(*[well(OTHER)] * 8)], Fault.UNKNOWN),
        (SINGLES, [host(end(SINGLES[0].job_id)), host(*_singles(4))], Fault.JOBS),
        (SINGLES, [host(well(SINGLES[0].job_id))], Fault.HOST),
    ],
)
def test_whose_fault_it_is(row: list[JobEnd], others: list[Elsewhere], fault: Fault) -> None:
    """A33: nobody to compare with, better elsewhere, worse elsewhere, or not known."""
    assert whose_fault(row, others) is fault


@given(
    some.lists(
        some.tuples(some.integers(0, 8), some.booleans(), some.booleans()), min_size=1, max_size=12
    )
)
def test_a_batch_that_fails_everywhere_closes_no_host(
    fleet: list[tuple[int, bool, bool]],
) -> None:
    """A33: whatever others have in quarantine, and however many of it they have had."""
    others = [
        host(
            *[end(f"{BATCH}-{n}", ended=n) for n in range(count)],
            works=works,
            quarantined=not works and closed,
        )
        for count, works, closed in fleet
    ]
    assert whose_fault(ROW, others) is not Fault.HOST


@given(some.integers(1, 30), some.integers(1, 8))
def test_no_more_hosts_are_in_quarantine_than_at_work(hosts: int, good: int) -> None:
    """A33: hosts are judged one after another, and each time the jobs do well with the others."""
    closed = 0
    for _ in range(hosts):
        at_work = [host(*[well()] * good) for _ in range(hosts - closed - 1)]
        others = [*at_work, *[host(works=False, quarantined=True)] * closed]
        closed += whose_fault(ROW, others) is Fault.HOST
    assert closed <= hosts - closed


@pytest.mark.parametrize("instant", ["0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59+00:00"])
def test_reports_from_the_ends_of_the_calendar_end_nobody(instant: str) -> None:
    when = datetime.fromisoformat(instant)
    odd = well().evolve(at=when, ran_seconds=1e9)
    others = [Elsewhere(when, True, False, [odd], [Running(f"{BATCH}-7", when)])]
    for row in (ROW, SINGLES):
        assert whose_fault(row, others) in Fault
