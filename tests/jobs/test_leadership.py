"""Which coordinator acts, and whether there is one: both by what was watched."""

from __future__ import annotations

from stado.core import keys
from stado.core.records import CoordinatorLease
from stado.jobs.leadership import CoordinatorWatch, Leadership
from stado.jobs.upkeep import Upkeep
from tests.jobs.world import LEASE, TICK, World


def leadership(world: World, name: str) -> Leadership:
    return Leadership(world.repo, holder=name)


def test_one_acts_for_as_long_as_it_is_heard(world: World) -> None:
    first, second = leadership(world, "first"), leadership(world, "second")
    for _ in range(int(3 * LEASE / TICK)):
        assert first.take_or_renew()
        assert not second.take_or_renew()
        world.clock.sleep(TICK)


def test_another_takes_over_after_a_lease_that_it_watched(world: World) -> None:
    """A09"""
    first, second = leadership(world, "first"), leadership(world, "second")
    assert first.take_or_renew()
    world.clock.sleep(3 * LEASE)  # nobody was there to watch
    begun = world.clock.monotonic()
    while not second.take_or_renew():
        world.clock.sleep(TICK)
    assert LEASE <= world.clock.monotonic() - begun <= LEASE + TICK
    assert not first.take_or_renew()


def test_who_leaves_lets_the_next_one_act_at_once(world: World) -> None:
    first, second = leadership(world, "first"), leadership(world, "second")
    assert first.take_or_renew()
    assert not second.take_or_renew()
    second.release()
    assert not second.take_or_renew()
    first.release()
    assert second.take_or_renew()
    assert not first.take_or_renew()


def test_agents_look_on_until_no_coordinator_was_heard_for_a_lease(world: World) -> None:
    watch, coordinator = CoordinatorWatch(world.repo), leadership(world, "one")
    for _ in range(int(2 * LEASE / TICK)):
        coordinator.take_or_renew()
        assert not watch.silent()
        world.clock.sleep(TICK)
    begun = world.clock.monotonic()
    while not watch.silent():
        world.clock.sleep(TICK)
    assert LEASE <= world.clock.monotonic() - begun + TICK <= LEASE + TICK
    coordinator.take_or_renew()
    assert not watch.silent()


def test_an_agent_mends_the_index_when_there_is_no_coordinator_and_only_then(
    world: World,
) -> None:
    for coordinated in (True, False):
        world = World()
        coordinator, upkeep = leadership(world, "one"), Upkeep(world.repo, by="alice")
        world.submit()
        (entry,) = world.names(keys.READY)
        world.store.delete(entry, None)
        for _ in range(int(2 * LEASE / TICK)):
            if coordinated:
                coordinator.take_or_renew()
            upkeep.turn_when_due()
            world.clock.sleep(TICK)
        assert world.names(keys.READY) == ([] if coordinated else [entry])


def lease_of(world: World) -> CoordinatorLease:
    return world.repo.read(CoordinatorLease, keys.COORDINATOR_LEASE).value


def test_a_pass_that_fails_is_told_with_why_until_it_succeeds(world: World) -> None:
    """R246: the last success stays beside it; who takes over goes on with the notes."""
    first = leadership(world, "first")
    assert first.take_or_renew()
    first.notes.note("reap", None)
    world.clock.sleep(TICK)
    first.notes.note("reap", "queue/: cannot be reached\n  now")
    first.release()
    (note,) = lease_of(world).passes
    assert (note.fails, note.error) == (True, "queue/: cannot be reached now")
    assert note.at is not None
    second = leadership(world, "second")
    assert second.take_or_renew()
    (kept,) = lease_of(world).passes
    assert kept == note
    world.clock.sleep(TICK)
    second.notes.note("reap", None)
    assert second.take_or_renew()
    (mended,) = lease_of(world).passes
    assert (mended.fails, mended.error) == (False, note.error)


def test_since_when_one_acts_is_told_anew_by_who_takes_over(world: World) -> None:
    """R246"""
    first, second = leadership(world, "first"), leadership(world, "second")
    assert first.take_or_renew()
    begun = lease_of(world).since
    world.clock.sleep(TICK)
    assert first.take_or_renew()
    assert lease_of(world).since == begun
    first.release()
    assert second.take_or_renew()
    since = lease_of(world).since
    assert since is not None
    assert begun is not None
    assert since > begun
