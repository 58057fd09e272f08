"""Waiting until nothing runs, while the queue is paused."""

from __future__ import annotations

from stado.jobs.changes import pause_queue, resume_queue
from stado.jobs.draining import NAMED_MAX, Drain, begin_drain
from stado.jobs.queue_index import find_pause_mark
from stado.storage.observe import CountingStore
from tests.jobs.actors import GuardedStore
from tests.jobs.world import World


def test_a_queue_is_drained_once_it_is_paused_and_nothing_runs(world: World) -> None:
    """R209: what runs goes on until it ends."""
    job = world.submit()
    world.submit()
    claimed = world.start()
    begin_drain(world.repo, by="ada")
    drain = Drain(world.repo)
    world.clock.sleep(60)
    look = drain.look()
    assert (look.paused, look.drained, look.running) == (True, False, [job])
    assert look.named[job].holder == claimed.record.holder
    world.end(claimed)
    assert drain.look().drained


def test_nothing_that_runs_is_not_enough_right_after_the_pause(world: World) -> None:
    """An agent may be about to claim what it read before."""
    begin_drain(world.repo, by="ada")
    drain = Drain(world.repo)
    assert not drain.look().drained
    world.clock.sleep(5)
    assert drain.look().drained


def test_what_was_seen_soon_after_the_pause_proves_nothing_later(world: World) -> None:
    """The listing of what runs was answered at once, and took its time to come."""
    begin_drain(world.repo, by="ada")
    slow = GuardedStore(world.store, after=lambda *_: world.clock.sleep(3))
    assert not Drain(world.repo_over(slow)).look().drained


def test_a_queue_that_is_paused_already_is_not_paused_again(world: World) -> None:
    pause_queue(world.repo, by="bob")
    before = find_pause_mark(world.repo)
    world.clock.sleep(5)
    begin_drain(world.repo, by="ada")
    assert find_pause_mark(world.repo) == before
    assert Drain(world.repo).look().drained


def test_a_queue_that_somebody_resumed_is_not_drained(world: World) -> None:
    begin_drain(world.repo, by="ada")
    world.clock.sleep(5)
    resume_queue(world.repo, by="bob")
    look = Drain(world.repo).look()
    assert (look.paused, look.drained) == (False, False)


def test_a_look_costs_two_listings_and_a_read_for_what_is_new_of_some(world: World) -> None:
    world.submit(*[f"echo {number}" for number in range(NAMED_MAX + 5)])
    for _ in range(NAMED_MAX + 5):
        world.start()
    counting = CountingStore(world.store, world.tasks)
    drain = Drain(world.repo_over(counting))
    drain.look()
    asked = counting.snapshot()
    assert (asked.lists, asked.reads) == (2, NAMED_MAX)
    drain.look()
    asked = counting.snapshot()
    assert (asked.lists, asked.reads) == (4, NAMED_MAX)
