"""When a queued job could start, and how long it will run: what is known, and what is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from stado.core import keys
from stado.core.ids import milliseconds
from stado.core.records import Capacity, JobReport
from stado.core.spec import Spec
from stado.core.states import State
from stado.jobs.assignments import Assigner
from stado.jobs.capacity import write_capacity
from stado.jobs.claim import Claimant, Claimed
from stado.jobs.forecast import Forecast
from stado.jobs.waiting import explain
from tests.jobs.world import ALICE, BOB, TICK, World


def full(world: World, claimant: Claimant, job: Claimed) -> None:
    """A host with one core, on which this job runs."""
    report = JobReport(job_id=job.record.id, epoch=job.record.epoch, signs=1)
    capacity = Capacity(
        consumer=claimant.consumer,
        incarnation=claimant.incarnation,
        host=claimant.host,
        at=world.repo.now(),
        counter=1,
        broadcast_seconds=TICK,
        cpu_total=1,
        cpu_free=0,
        memory_total_gb=64,
        memory_free_gb=63,
        disk_free_gb=4,
        disk_left_gb=4,
        version="1",
        jobs=[report],
    )
    write_capacity(world.repo, capacity)


def run(world: World, claimant: Claimant, seconds: int | None) -> Claimed:
    world.submit(spec=Spec(command="", runtime_seconds_estimate=seconds))
    claimed = world.start(claimant)
    full(world, claimant, claimed)
    return claimed


def forecast(world: World, job: str) -> Forecast:
    found = explain(world.repo, world.record(State.QUEUED, job)).forecast
    assert found is not None
    return found


def test_a_job_that_waits_for_room_is_told_when_there_should_be_some(world: World) -> None:
    run(world, ALICE, 3600)
    first = run(world, BOB, 600)
    job = world.submit()
    known = forecast(world, job)
    assert first.record.holder is not None
    at = first.record.holder.claimed_at + timedelta(seconds=600)
    assert known.starts_at is not None
    assert milliseconds(known.starts_at) == milliseconds(at)
    assert known.starts == f"about {at:%H:%M}Z, when bob has room"
    wait = explain(world.repo, world.record(State.QUEUED, job)).wait
    assert wait.until == known.starts


def test_nothing_is_guessed_where_the_run_time_of_what_runs_is_not_known(world: World) -> None:
    run(world, ALICE, None)
    known = forecast(world, world.submit())
    assert known.starts_at is None
    assert known.starts == (
        "nobody can say when a host has room: the run time of what runs there is not known"
    )


def test_nobody_can_say_when_where_a_claim_is_of_the_last_year_there_is(world: World) -> None:
    record = run(world, ALICE, 86_400).record
    assert record.holder is not None
    holder = record.holder.evolve(claimed_at=datetime(9999, 12, 31, 23, tzinfo=UTC))
    forged = record.evolve(holder=holder)
    world.store.put(keys.record(State.RUNNING, record.id), forged.encode())
    known = forecast(world, world.submit())
    assert known.starts_at is None
    assert str(known.starts).startswith("nobody can say")


def test_what_has_run_longer_than_it_should_says_nothing_of_its_end(world: World) -> None:
    run(world, ALICE, 10)
    job = world.submit()
    world.clock.sleep(20)
    known = forecast(world, job)
    assert known.starts_at is None
    assert known.starts == (
        "nobody can say when alice has room: what runs there should have ended by now"
    )


def test_a_start_on_another_day_is_told_with_its_date(world: World) -> None:
    claimed = run(world, ALICE, 3 * 86_400)
    assert claimed.record.holder is not None
    at = claimed.record.holder.claimed_at + timedelta(days=3)
    known = forecast(world, world.submit())
    assert known.starts == f"about {at:%Y-%m-%d %H:%M}Z, when alice has room"


def test_a_job_says_to_whom_it_is_assigned_as_long_as_that_counts(world: World) -> None:
    run(world, ALICE, 600)
    job = world.submit(spec=Spec(command="", runtime_seconds_estimate=60))
    assert forecast(world, job).assigned_to is None
    Assigner(world.repo, by="one").turn()
    known = forecast(world, job)
    assert known.assigned_to == "alice"
    assert known.takes == "it takes 1m, as its submitter says"
    world.clock.sleep(4 * TICK)
    assert forecast(world, job).assigned_to is None
