"""R208: what keeps a job in the queue can be looked at."""

from __future__ import annotations

from datetime import timedelta

from stado.core.records import Capacity
from stado.core.spec import Spec
from stado.core.states import State
from stado.jobs.capacity import write_capacity
from stado.jobs.changes import pause_queue
from stado.jobs.waiting import Wait, hopeless, why_queued
from tests.jobs.world import TICK, World


def _agent(world: World, name: str = "one", **changes: object) -> None:
    capacity = Capacity(
        consumer=name,
        incarnation="i",
        host="host",
        at=world.repo.now(),
        counter=1,
        broadcast_seconds=TICK,
        cpu_total=4.0,
        cpu_free=4.0,
        memory_total_gb=16.0,
        memory_free_gb=16.0,
        disk_free_gb=100.0,
        version="1",
    )
    write_capacity(world.repo, capacity.evolve(**changes))


def _why(world: World, spec: Spec | None = None) -> Wait:
    job = world.submit(spec=spec)
    return why_queued(world.repo, world.record(State.QUEUED, job).spec)


def test_a_paused_queue_is_named_first(world: World) -> None:
    """R208, R209"""
    pause_queue(world.repo, by="ada")
    wait = _why(world, Spec(command="", cpu=64))
    assert wait.code == "queue_paused"
    assert wait.remedy == "`stado queue resume` lets it go on"


def test_a_deadline_that_has_passed_is_named(world: World) -> None:
    """R136, R208"""
    _agent(world)
    deadline = world.repo.now() - timedelta(seconds=1)
    assert _why(world, Spec(command="", deadline_at=deadline)).code == "deadline_passed"


def test_a_fleet_without_a_worker_is_named(world: World) -> None:
    """R208"""
    wait = _why(world)
    assert wait.code == "no_eligible_worker"
    assert wait.remedy is not None
    assert "stado up" in wait.remedy


def test_workers_that_are_silent_stopped_or_draining_do_not_count(world: World) -> None:
    """R208"""
    _agent(world, "silent")
    world.clock.sleep(10 * TICK)
    _agent(world, "gone", stopped=True)
    _agent(world, "draining", draining=True)
    assert _why(world).code == "no_eligible_worker"


def test_a_job_that_no_worker_could_ever_run_is_told_what_there_is(world: World) -> None:
    """R208"""
    _agent(world, "small")
    _agent(world, "large", cpu_total=8.0, memory_total_gb=32.0)
    wait = _why(world, Spec(command="", cpu=64))
    assert wait.code == "no_eligible_worker"
    assert "needs 64 cores" in wait.text
    assert "of 2 at work the largest has 8 cores" in wait.text


def test_a_job_that_waits_for_room_is_told_so(world: World) -> None:
    """R208"""
    _agent(world, cpu_free=0.5)
    assert _why(world) == Wait("waiting_capacity", "one is busy: it waits for room")


def test_a_job_that_may_start_is_told_so(world: World) -> None:
    """R208"""
    _agent(world, "busy", cpu_free=0.0)
    _agent(world, "idle")
    assert _why(world).code == "starting"


def test_jobs_that_will_never_start_are_found_in_the_head_of_the_queue(world: World) -> None:
    """R208"""
    _agent(world)
    large = world.submit(spec=Spec(command="", cpu=64))
    late = world.submit(spec=Spec(command="", deadline_at=world.repo.now() - timedelta(seconds=1)))
    world.submit()
    assert sorted(hopeless(world.repo).values()) == sorted([[large], [late]])
