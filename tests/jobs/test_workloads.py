"""Sessions among other jobs: what it costs to find them."""

from __future__ import annotations

import pytest

from stado.core import keys
from stado.core.spec import Spec
from stado.core.states import State
from stado.errors import Refused
from stado.jobs.workloads import place, sessions
from stado.storage.observe import CountingStore, Operation
from tests.jobs.broadcasts import Agent
from tests.jobs.world import ALICE, World

SESSION = Spec(command="", pinned_host="a", workload_kind="notebook")


def test_of_a_long_queue_only_jobs_that_are_pinned_are_read(world: World) -> None:
    """R128"""
    for _ in range(50):
        world.submit()
    held = world.submit(spec=SESSION)
    world.submit(spec=Spec(command="", pinned_host="b"))
    counting = CountingStore(world.store, world.tasks)
    listing = sessions(world.repo_over(counting), ended=False, limit=20)
    assert [row.job_id for row in listing.rows] == [held]
    assert counting.snapshot().of(Operation.GET) == 2


def test_a_session_whose_place_in_the_queue_is_gone_is_listed_all_the_same(world: World) -> None:
    """R128"""
    held = world.submit(spec=SESSION)
    (entry,) = world.store.list(keys.READY)
    world.store.delete(entry.key, None)
    listing = sessions(world.repo, ended=False, limit=20)
    assert [(row.job_id, row.state) for row in listing.rows] == [(held, State.QUEUED)]


def test_room_that_was_taken_since_the_report_is_not_given_away(world: World) -> None:
    """R126: a host of four cores; what it runs by now it has not told yet."""
    agent = Agent(world)
    agent.broadcast()
    wanted = Spec(command="", cpu=3)
    assert place(world.repo, wanted) == ALICE.consumer
    world.clock.sleep(1)
    first = world.submit(spec=wanted.evolve(pinned_host=ALICE.consumer))
    with pytest.raises(Refused, match="is for jobs that are pinned there and wait"):
        place(world.repo, wanted)
    claimed = world.claimed_of(first)
    with pytest.raises(Refused, match="or has just been taken"):
        place(world.repo, wanted)
    assert place(world.repo, Spec(command="", cpu=1)) == ALICE.consumer
    world.end(claimed)
    assert place(world.repo, wanted) == ALICE.consumer


def test_what_a_report_tells_is_counted_once(world: World) -> None:
    agent = Agent(world)
    claimed = world.claimed_of(world.submit(spec=Spec(command="", cpu=3)))
    agent.broadcast(claimed)  # its room is what is left beside that
    assert place(world.repo, Spec(command="", cpu=4)) == ALICE.consumer
