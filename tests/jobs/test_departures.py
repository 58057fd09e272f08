"""Documents of agents that are gone."""

from __future__ import annotations

import pytest

from stado.core import keys
from stado.core.records import Capacity
from stado.errors import Denied
from stado.jobs.departures import forget_departed
from stado.jobs.reaping import Reaper
from stado.jobs.upkeep import Passes
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.observe import Operation
from tests.jobs.world import LEASE, World

DAY = 24 * 3600.0


def broadcast(world: World, consumer: str, *, stopped: bool = False) -> None:
    capacity = Capacity(
        consumer=consumer,
        incarnation="1",
        host="host",
        at=world.clock.now(),
        counter=1,
        broadcast_seconds=15,
        cpu_total=4,
        cpu_free=4,
        memory_total_gb=4,
        memory_free_gb=4,
        disk_free_gb=4,
        version="1",
        stopped=stopped,
    )
    world.store.put(keys.capacity(consumer), capacity.encode())


def agents(world: World) -> list[str]:
    return [keys.job_of_record(key) for key in world.names(keys.CAPACITY)]


def test_an_agent_that_left_is_forgotten_after_a_lease(world: World) -> None:
    broadcast(world, "left", stopped=True)
    broadcast(world, "here")
    passes = Passes(world.repo, by="coordinator")
    world.clock.sleep(LEASE)
    passes.tick()
    assert agents(world) == ["here", "left"]
    world.clock.sleep(1)
    passes.tick()
    assert agents(world) == ["here"]


def test_a_silent_agent_is_forgotten_after_a_day(world: World) -> None:
    broadcast(world, "silent")
    passes = Passes(world.repo, by="coordinator")
    world.clock.sleep(DAY)
    broadcast(world, "here")
    passes.tick()
    assert agents(world) == ["here", "silent"]
    world.clock.sleep(1)
    passes.tick()
    assert agents(world) == ["here"]


def test_an_agent_that_a_running_record_names_is_not_forgotten(world: World) -> None:
    """Its supervisors go on when an agent was told to leave at once, and the reaper asks who
    held a job."""
    world.submit()
    claimed = world.start()
    broadcast(world, "alice", stopped=True)
    broadcast(world, "bob", stopped=True)
    world.clock.sleep(LEASE + 1)
    passes = Passes(world.repo, by="coordinator")
    passes.tick()
    assert agents(world) == ["alice"]
    world.end(claimed)
    passes.tick()
    assert agents(world) == []


def test_nobody_is_forgotten_while_a_running_record_cannot_be_read(world: World) -> None:
    job = world.submit()
    world.start()
    world.store.put(f"running/{job}.json", b"{")
    broadcast(world, "alice", stopped=True)
    world.clock.sleep(LEASE + 1)
    Passes(world.repo, by="coordinator").tick()
    assert agents(world) == ["alice"]


def test_an_agent_that_is_back_keeps_its_document(world: World) -> None:
    broadcast(world, "back", stopped=True)
    world.clock.sleep(LEASE + 1)
    report = Reaper(world.repo, by="coordinator").turn()
    broadcast(world, "back")
    assert forget_departed(world.repo, report.idle_agents) == []
    assert agents(world) == ["back"]


def test_a_turn_is_bounded_and_what_is_refused_costs_no_other(world: World) -> None:
    for number in range(30):
        broadcast(world, f"agent-{number:02}", stopped=True)
    world.clock.sleep(LEASE + 1)
    report = Reaper(world.repo, by="coordinator").turn()
    assert len(forget_departed(world.repo, report.idle_agents)) == 20
    refused = ScriptedFaults(Fault(FaultKind.DENIED, Operation.DELETE, "capacity/", times=2))
    repo = world.repo_over(FaultyStore(world.store, world.clock, refused))
    report = Reaper(world.repo, by="coordinator").turn()
    assert len(forget_departed(repo, report.idle_agents)) == 8
    refused.add(Fault(FaultKind.DENIED, Operation.DELETE, "capacity/", times=99))
    for number in range(30):
        broadcast(world, f"agent-{number:02}", stopped=True)
    world.clock.sleep(LEASE + 1)
    report = Reaper(world.repo, by="coordinator").turn()
    with pytest.raises(Denied):
        forget_departed(repo, report.idle_agents)
