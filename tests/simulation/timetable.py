"""What people do with schedules: make them, have them run, pause and remove them, and look."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from stado.core.schedules import MissedPolicy, OverlapPolicy, Schedule
from stado.core.spec import Spec, make_request
from stado.jobs import schedules
from tests.simulation.people import Answer
from tests.simulation.plan import draw_script

if TYPE_CHECKING:
    from stado.jobs.repository import Repository
    from tests.simulation.process import SimHost
    from tests.simulation.world import World


def keep_schedule(world: World, host: SimHost, repo: Repository) -> None:
    """One of the plan's schedules: made where there is none of its name, else changed or seen."""
    dice = world.kernel.random
    name = f"schedule-{dice.randrange(world.plan.schedules)}"
    acts = [_create, _create, _pause, _resume, _resume, _run, _remove, _look]
    dice.choice(acts)(world, host, repo, name)


def make_schedule(
    world: World, repo: Repository, name: str, *, by: str, end_seconds: float, **stated: object
) -> None:
    """Due each minute, until so many seconds after the beginning."""
    command = f"of-{name}"
    if command not in world.scripts:
        world.scripts[command] = draw_script(world.kernel, world.plan)
    now = repo.now()
    left = max(61.0, end_seconds - world.kernel.now)
    schedule = Schedule(
        name=name,
        nonce="0",
        cron="* * * * *",
        end_at=now + timedelta(seconds=left),
        request=make_request([command], Spec(command=""), batch=False),
        created_at=now,
        created_by=by,
        changed_at=now,
        changed_by=by,
    )
    asked_at = world.kernel.now
    schedules.create(repo, schedule.evolve(**stated))
    _tell(world, by, "schedule made", name, asked_at)


def _create(world: World, host: SimHost, repo: Repository, name: str) -> None:
    dice = world.kernel.random
    make_schedule(
        world,
        repo,
        name,
        by=host.name,
        end_seconds=world.plan.safety,
        overlap=dice.choice(list(OverlapPolicy)),
        missed=dice.choice(list(MissedPolicy)),
    )


def pause_schedule(world: World, host: SimHost, repo: Repository, name: str) -> None:
    asked_at = world.kernel.now
    schedules.pause(repo, name, by=host.name)
    _tell(world, host.name, "schedule paused", name, asked_at)


_pause = pause_schedule


def _resume(world: World, host: SimHost, repo: Repository, name: str) -> None:
    asked_at = world.kernel.now
    schedules.resume(repo, name, by=host.name)
    _tell(world, host.name, "schedule resumed", name, asked_at)


def _run(world: World, host: SimHost, repo: Repository, name: str) -> None:
    asked_at = world.kernel.now
    schedule, fire = schedules.run_now(repo, name, by=host.name)
    job_ids = tuple(schedule.job_ids(fire))
    world.trace.note(host.name, f"ran {name}: {job_ids}")
    world.tell_answer(Answer("submitted", asked_at, fire.run_id, job_ids))


def _remove(world: World, host: SimHost, repo: Repository, name: str) -> None:
    asked_at = world.kernel.now
    schedules.remove(repo, name, by=host.name)
    _tell(world, host.name, "schedule removed", name, asked_at)


def _look(world: World, host: SimHost, repo: Repository, name: str) -> None:
    found = schedules.list_schedules(repo, limit=5).rows
    for row in found:
        if row.schedule is not None:
            schedules.history(repo, row.schedule, limit=5)


def _tell(world: World, by: str, what: str, name: str, asked_at: float) -> None:
    world.trace.note(by, f"{what}: {name}")
    world.tell_answer(Answer(what, asked_at, schedule=name))
