"""Whoever may read and nothing else gets every answer: what is left unfinished, others finish."""

from __future__ import annotations

import pytest

from stado.core import keys
from stado.core.states import State
from stado.errors import Denied
from stado.jobs.changes import cancel
from stado.jobs.events import events_of
from stado.jobs.finding import find_job
from stado.jobs.listings import matching, newest
from stado.jobs.repository import Repository
from stado.jobs.status import near_matches, states_of, story
from stado.storage.observe import WRITES, Operation
from tests.jobs.actors import Actor, GuardedStore
from tests.jobs.test_finding import MOVES, Move
from tests.jobs.world import World

_STEPS_MAX = 200


def _refuse_writes(operation: Operation, key: str) -> None:
    if operation in WRITES:
        raise Denied(key, "AccessDenied")


def reader_of(world: World) -> Repository:
    return world.repo_over(GuardedStore(world.store, before=_refuse_writes))


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
def test_a_reader_gets_the_answer_that_a_writer_gets_at_every_step_of_a_mover(move: Move) -> None:
    for stopped_after in range(_STEPS_MAX):
        world = World()
        job = world.submit()
        mover = Actor(world.store, lambda store, w=world, j=job: move(w, store, j))  # type: ignore[misc]
        alive = mover.step(stopped_after)
        mover.kill()
        by_reader = find_job(reader_of(world), job)
        by_writer = find_job(world.repo, job)
        assert by_reader is not None
        assert by_writer is not None
        assert by_reader.record == by_writer.record, f"after {stopped_after} requests"
        if not alive:
            return
    raise AssertionError("the mover never ended")


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
def test_lists_and_stories_are_read_at_every_step_of_a_mover(move: Move) -> None:
    for stopped_after in range(_STEPS_MAX):
        world = World()
        job = world.submit()
        mover = Actor(world.store, lambda store, w=world, j=job: move(w, store, j))  # type: ignore[misc]
        alive = mover.step(stopped_after)
        mover.kill()
        repo = reader_of(world)
        (row,) = newest(repo, limit=10).rows
        assert row.problem is None
        assert row.record is not None
        assert events_of(repo, job).events
        assert [one.job_id for one in matching(repo, job, limit=10).rows] == [job]
        assert near_matches(repo, job[2:9], limit=10).job_ids == [job]
        assert job in states_of(repo, job)
        assert story(repo, job).record.id == job
        if not alive:
            return
    raise AssertionError("the mover never ended")


def test_a_running_record_that_was_lost_is_answered_from_the_cells() -> None:
    world = World()
    job = world.submit()
    world.start()
    world.store.delete(keys.record(State.RUNNING, job), None)
    found = find_job(reader_of(world), job)
    assert found is not None
    assert found.state is State.RUNNING
    assert not world.has(keys.record(State.RUNNING, job))


def test_a_reader_cancels_nothing_and_leaves_no_trace() -> None:
    world = World()
    job = world.submit()
    before = world.names(keys.cells(job))
    with pytest.raises(Denied):
        cancel(reader_of(world), job, by="eve")
    assert world.names(keys.cells(job)) == before
    assert world.find(job).state is State.QUEUED
