"""The checker of schedules says so when its rule is broken, and nothing when it is not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from stado.core import keys, schedules
from stado.core.schedules import DroppedFire, DropReason, Fire, Schedule, ScheduleStop
from stado.core.spec import Spec, make_request
from stado.jobs.firing import Firing
from stado.jobs.schedules import create, pause, remove, resume, run_now
from stado.jobs.submit import submit_as
from tests.simulation.bench import Bench, made_bench
from tests.simulation.checkers.schedules import SchedulesChecker
from tests.simulation.people import Answer

MINUTE = timedelta(minutes=1)
NAME = "nightly"


@pytest.fixture
def bench() -> Iterator[Bench]:
    with made_bench(SchedulesChecker) as made:
        yield made


def made(bench: Bench) -> Schedule:
    """Due each minute."""
    now = bench.repo.now()
    schedule = Schedule(
        name=NAME,
        nonce="0",
        cron="* * * * *",
        request=make_request(["command"], Spec(command=""), batch=False),
        created_at=now,
        created_by="ann",
        changed_at=now,
        changed_by="ann",
    )
    return bench.by(bench.client, lambda: create(bench.repo, schedule).schedule)


def fire(bench: Bench) -> None:
    bench.by(bench.judge, lambda: Firing(bench.repo, by="judge").turn())


def change(bench: Bench, schedule: Schedule, **fields: object) -> Schedule:
    changed = schedule.evolve(**fields)
    bench.write(bench.judge, changed.own_key(), changed)
    return changed


def decided(bench: Bench, schedule: Schedule, due: int = 1) -> Schedule:
    """As a coordinator decides, at the right moment."""
    at = schedule.created_at.replace(second=0, microsecond=0) + due * MINUTE
    run_id = schedules.fire_run_id(NAME, at)
    firing = Fire(run_id=run_id, due_at=at, at=at, by="judge")
    return change(bench, schedule, firing=firing, next_at=at + MINUTE)


def sent(bench: Bench, run_id: str) -> None:
    request = make_request(["command"], Spec(command=""), batch=False)
    bench.by(
        bench.judge,
        lambda: submit_as(bench.repo, run_id=run_id, request=request, submitter="ann"),
    )


def test_a_schedule_that_is_kept_as_it_should_be_breaks_nothing(bench: Bench) -> None:
    made(bench)
    for _ in range(4):
        bench.wait(30)
        fire(bench)
    for what, act in (("schedule paused", pause), ("schedule resumed", resume)):
        bench.by(bench.client, lambda act=act: act(bench.repo, NAME, by="ann"))  # type: ignore[misc]
        bench.tell(Answer(what, bench.world.kernel.now, schedule=NAME))
        bench.by(bench.client, lambda: run_now(bench.repo, NAME, by="ann"))
        bench.wait(600)
        fire(bench)
    bench.by(bench.client, lambda: remove(bench.repo, NAME, by="ann"))
    bench.tell(Answer("schedule removed", bench.world.kernel.now, schedule=NAME))
    bench.wait(2 * 86_400)
    fire(bench)
    bench.look_at_the_end()
    assert bench.violation == ""
    assert len(bench.repo.store.list(keys.RUNS)) == 3


def test_a_run_that_nobody_decided(bench: Bench) -> None:
    made(bench)
    sent(bench, "nightly@20260301T000100Z")
    assert "nobody had decided that" in bench.violation


def test_a_due_time_that_is_decided_twice(bench: Bench) -> None:
    schedule = decided(bench, made(bench))
    assert schedule.firing is not None
    sent(bench, schedule.firing.run_id)
    schedule = change(bench, schedule, firing=None)
    assert bench.violation == ""
    decided(bench, schedule)
    assert "was decided twice" in bench.violation


def test_a_due_time_that_nobody_decides_about(bench: Bench) -> None:
    schedule = made(bench)
    assert schedule.next_at is not None
    change(bench, schedule, next_at=schedule.next_at + MINUTE)
    assert "nothing was decided of what nightly had due" in bench.violation


def test_a_due_time_that_is_left_out_though_it_is_not_late(bench: Bench) -> None:
    decided(bench, made(bench), due=2)
    assert bench.violation == ""
    with made_bench(SchedulesChecker) as other:
        schedule = made(other)
        assert schedule.next_at is not None
        last = schedule.next_at + MINUTE
        dropped = DroppedFire(due_at=last, reason=DropReason.MISSED, at=schedule.next_at)
        change(other, schedule, dropped=dropped, next_at=last + MINUTE)
        assert "which were not late" in other.violation


def test_what_was_decided_and_is_forgotten(bench: Bench) -> None:
    change(bench, decided(bench, made(bench)), firing=None)
    assert "forgotten before it was submitted" in bench.violation


def test_what_was_decided_and_is_never_submitted(bench: Bench) -> None:
    decided(bench, made(bench))
    assert bench.violation == ""
    bench.look_at_the_end()
    assert "and never submitted" in bench.violation


@pytest.mark.parametrize("what", ["schedule paused", "schedule removed"])
def test_a_submission_after_a_stop(bench: Bench, what: str) -> None:
    schedule = decided(bench, made(bench))
    stop = ScheduleStop(by="ann", at=schedule.created_at)
    fields = {"paused": stop} if what == "schedule paused" else {"removed": stop}
    change(bench, schedule, **fields)
    bench.tell(Answer(what, bench.world.kernel.now, schedule=NAME))
    assert schedule.firing is not None
    sent(bench, schedule.firing.run_id)
    assert "after its schedule had been stopped" in bench.violation


def test_a_document_that_goes_though_nobody_removed_it(bench: Bench) -> None:
    bench.delete(bench.judge, made(bench).own_key())
    assert "nobody had removed it" in bench.violation
