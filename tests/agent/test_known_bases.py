"""Which submissions are known to be a user's."""

from __future__ import annotations

from stado.core.ids import base_of
from stado.storage.faults import FaultKind, FaultyStore
from stado.storage.observe import CountingStore
from stado_agent.known_bases import KnownBases
from tests.agent.scene import Trouble
from tests.jobs.world import World

OLD = ["a" * 16, "b" * 16, "c" * 16]
"""Too old for the listing, of which only the newest count."""


def test_what_was_learnt_one_by_one_stays_known_and_is_not_listed_for_again(world: World) -> None:
    newest = base_of(world.submit())
    counting = CountingStore(world.store, world.tasks)
    bases = KnownBases(world.repo_over(counting))
    for _ in range(10):
        for base in OLD:
            bases.learn("ada", base)
        world.clock.sleep(1)
    assert bases.of("ada") == {newest, *OLD}
    assert bases.of("bob") == set()
    assert counting.snapshot().lists == 1


def test_a_listing_that_fails_costs_nothing_that_is_known(world: World) -> None:
    newest = base_of(world.submit())
    trouble = Trouble(FaultKind.UNAVAILABLE, lambda *_: True)
    bases = KnownBases(world.repo_over(FaultyStore(world.store, world.clock, trouble)))
    for base, fails in ((OLD[0], False), (OLD[1], True)):
        trouble.on = fails
        bases.learn("ada", base)
        world.clock.sleep(100)
    assert bases.of("ada") == {newest, *OLD[:2]}
