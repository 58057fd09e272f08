"""Brings actors to the moments that the scenarios are about."""

from __future__ import annotations

from stado.core.records import Ending
from stado.core.states import Reason, State, Verdict
from stado.jobs.claim import claim
from stado.jobs.endings import give_verdict
from stado.jobs.life import seal_epoch
from stado.jobs.reaping import Reaper
from stado.storage.observe import WRITES
from stado.storage.port import Store
from tests.jobs.actors import Actor
from tests.jobs.world import ALICE, LEASE, TICK, World

STEPS_MAX = 60


def slow_claimer(world: World, *, requests: int) -> Actor:
    """Alice has made so many requests of a claim, and sleeps: 1 has read the queue record, 2 has
    passed the gate, 3 has the cell."""
    (entry,) = world.entries()
    actor = Actor(world.store, lambda store: claim(world.repo_over(store), entry, ALICE))
    actor.step(requests)
    return actor


def about_to_reap(world: World) -> Reaper:
    """A reaper that has watched for a lease: in its next turn it reaps who is silent."""
    judge = Reaper(world.repo, by="coordinator")
    for _ in range(int(LEASE / TICK)):
        assert judge.turn().reaped == []
        world.clock.sleep(TICK)
    return judge


def slow_reaper(world: World) -> Actor:
    """The turn in which a silent job is reaped, to be stepped."""
    judge = about_to_reap(world)

    def turn(store: Store) -> object:
        judge._repo = world.repo_over(store)
        return judge.turn()

    return Actor(world.store, turn)


def lose_unsettled(world: World, job_id: str) -> None:
    """A reaper seals the epoch in `running/`, declares it lost, and dies before it settles."""
    record = world.record(State.RUNNING, job_id)
    assert seal_epoch(world.repo, record, world.repo.find_heartbeat(job_id), by="coordinator")
    ending = Ending(
        verdict=Verdict.LOST,
        reason=Reason.LEASE_EXPIRED,
        ended_at=world.clock.now(),
        by="coordinator",
    )
    give_verdict(world.repo, record, ending)


def steps_to_write(actor: Actor, key: str) -> bool:
    """Lets it run until a write of such a key comes next; False when it makes none."""
    for _ in range(STEPS_MAX):
        if actor.done:
            return False
        if actor.pending in WRITES and actor.pending_key.startswith(key):
            return True
        actor.step()
    raise AssertionError(f"no write of {key} came within {STEPS_MAX} requests")
