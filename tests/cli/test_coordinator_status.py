"""Which coordinator acts, and how its passes fare."""

from __future__ import annotations

import json
from datetime import timedelta

from stado.cli.coordinator_views import WHAT_PASSES_DO
from stado.core import keys
from stado.core.records import CoordinatorLease, PassNote
from stado.jobs.repository import Repository
from stado.storage.observe import CountingStore, Operation
from stado.storage.port import Store
from stado_coordinator.coordinator import Coordinator
from tests.cli.conftest import Program, World
from tests.cli.terminal import Terminal


def over(world: World, store: Store) -> Repository:
    repo = world.repo
    return Repository(
        store, repo.deployment, clock=repo.clock, entropy=repo.entropy, tasks=repo.tasks
    )


def lead(world: World, **changes: object) -> None:
    """Writes the lease of a coordinator that acts."""
    now = world.repo.now()
    lease = CoordinatorLease(
        token="t", holder="coordinator@box:7", counter=1, at=now, lease_seconds=60
    )
    world.repo.store.put(keys.COORDINATOR_LEASE, lease.evolve(**changes).encode())


def test_it_tells_which_acts_since_when_and_each_pass(stado: Program, world: World) -> None:
    """R246: what a coordinator that ticks tells, with its lease and by no request besides."""
    counted = CountingStore(world.repo.store, world.repo.tasks)
    coordinator = Coordinator(over(world, counted), holder="coordinator@box:7", version="9.9")
    coordinator.tick()
    before = counted.snapshot()
    coordinator.tick()
    asked = counted.since(before)
    assert asked.of(Operation.GET, kind="control") == 1
    assert asked.of(Operation.REPLACE, kind="control") == 1
    assert asked.of(kind="control") == 2
    told = stado.json("coordinator", "status")
    assert told["unit"] is None
    found = told["coordinator"]
    assert (found["acts"], found["holder"], found["version"]) == (True, "coordinator@box:7", "9.9")
    passes = {one["name"]: one for one in found["passes"]}
    assert set(passes) == set(WHAT_PASSES_DO) - {"notify"}
    assert not any(one["fails"] for one in passes.values())
    shown = stado.ok("coordinator", "status")
    assert "coordinator@box:7 (stado 9.9) acts for " in shown
    assert "gives lost jobs back" in shown


def test_a_pass_that_fails_is_told_with_why(stado: Program, world: World) -> None:
    """R246"""
    now = world.repo.now()
    bad = PassNote(
        name="repair",
        at=now - timedelta(hours=3),
        failed_at=now - timedelta(seconds=5),
        error="queue/: the store says no",
    )
    lead(world, passes=[bad])
    (found,) = stado.json("coordinator", "status")["coordinator"]["passes"]
    assert (found["fails"], found["error"]) == (True, "queue/: the store says no")
    assert found["age_seconds"] > 10_000
    shown = stado.ok("coordinator", "status")
    assert "queue/: the store says no" in shown
    assert "3h ago" in shown


def test_on_a_terminal_the_title_of_its_table_is_bold(
    environment: dict[str, str], world: World
) -> None:
    lead(world, passes=[PassNote(name="repair", at=world.repo.now())])
    terminal = Terminal("coordinator", "status", environment=environment)
    assert terminal.end() == 0
    assert "\x1b[1mPASS" in terminal.raw
    assert "[1m" not in terminal.text


def test_none_that_acts_is_1(stado: Program, world: World) -> None:
    """R246: neither where none ever worked, nor where the last one has left."""
    result = stado("coordinator", "status")
    assert result.exit_code == 1
    assert "no coordinator has worked there" in result.stdout
    assert json.loads(stado("coordinator", "status", "--json").stdout)["coordinator"] is None
    lead(world, released=True)
    result = stado("coordinator", "status")
    assert result.exit_code == 1
    assert "coordinator@box:7 has left" in result.stdout


def test_a_store_that_is_not_there_is_no_store_without_a_coordinator(
    stado: Program, environment: dict[str, str]
) -> None:
    """R246"""
    assert "there is no store at" in stado.refused("coordinator", "status")


def test_a_lease_of_an_earlier_program_tells_less(stado: Program, world: World) -> None:
    lead(world)
    assert "coordinator@box:7 acts; last heard" in stado.ok("coordinator", "status")


def test_each_pass_of_a_tick_is_a_sign_of_life(world: World) -> None:
    """R242: all together may take longer than the watchdog waits."""
    signs: list[None] = []
    coordinator = Coordinator(
        world.repo, holder="coordinator@box:7", turned=lambda: signs.append(None)
    )
    coordinator.tick()
    assert len(signs) == len(set(WHAT_PASSES_DO) - {"notify"})
