"""Sessions among other jobs: what it costs to find them."""

from __future__ import annotations

from stado.core import keys
from stado.core.spec import Spec
from stado.core.states import State
from stado.jobs.workloads import sessions
from stado.storage.observe import CountingStore, Operation
from tests.jobs.world import World

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
