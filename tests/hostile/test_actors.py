"""Actors in a bucket full of nonsense: healthy jobs are run, mended and given back as ever."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.order import entry_key
from stado.core.records import CoordinatorLease, Intent
from stado.core.spec import Spec, make_request
from stado.core.states import State
from stado.jobs.changes import cancel
from stado.jobs.endings import claim_for_intent
from stado.jobs.leadership import Leadership
from stado.jobs.submit import submit
from stado.jobs.upkeep import Passes, Upkeep
from stado.storage.observe import Operation
from stado_coordinator.coordinator import Coordinator, tick_once
from tests.hostile.host import Host
from tests.hostile.poison import PAYLOADS, STRANGER, plant
from tests.jobs.actors import Crash, GuardedStore
from tests.jobs.world import ALICE, LEASE, TICK, World

payloads = pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())


def unreadable_told(caplog: pytest.LogCaptureFixture) -> Counter[str]:
    """How often each line about something unreadable was logged."""
    lines = [record.getMessage() for record in caplog.records]
    return Counter(line for line in lines if "unreadable" in line)


@payloads
def test_an_agent_runs_what_is_healthy_and_does_not_spin(
    tmp_path: Path, payload: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    host = Host(tmp_path)
    jobs = host.submit("true", "true", "true")
    planted = plant(host.world.store.put, payload, beside=jobs)
    host.step_until(lambda: all(host.at_rest(job_id) for job_id in jobs))
    assert [host.world.find(job_id).state for job_id in jobs] == [State.COMPLETED] * 3
    host.requests.clear()
    host.step_for(300)
    late = host.submit("true")
    host.step_until(lambda: host.at_rest(late[0]))
    assert len(host.requests) < 2 * 300
    assert len(host.processes.forked) < 20
    told = unreadable_told(caplog)
    assert told
    assert max(told.values()) <= 2  # by the agent and by its supervisors
    assert {path.name for path in tmp_path.iterdir()} == {keys.component("local@host-a")}
    assert len(planted) > 40


@payloads
def test_the_passes_mend_what_is_healthy(
    world: World, payload: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A job without an entry, one whose holder is gone, one half submitted."""
    caplog.set_level(logging.INFO)
    lost = world.submit("lost")
    world.start(ALICE)
    unlisted = world.submit("unlisted")
    world.repo.delete_entry(world.record(State.QUEUED, unlisted))
    half = half_submitted(world)
    plant(world.store.put, payload, beside=[lost, unlisted, half])
    passes = Passes(world.repo, by="coordinator")
    for _ in range(40):
        assert set(passes.tick().values()) == {True}
        world.clock.sleep(TICK)
    queued = {entry.job_id for entry in world.entries()}
    assert {lost, unlisted, half} <= queued
    assert world.find(lost).record.epoch == 2
    told = unreadable_told(caplog)
    of_runs = {line.partition(" why=")[0] for line in told if f"key={keys.RUNS}" in line}
    assert of_runs == {
        f"event=unreadable key={keys.RUNS}{name}" for name in ("!junk", "a-run.json")
    }
    assert max(told.values()) == 1


@payloads
def test_a_tick_that_has_no_memory_does_the_same(world: World, payload: bytes) -> None:
    lost = world.submit("lost")
    world.start(ALICE)
    plant(world.store.put, payload, beside=[lost])
    world.clock.sleep(2 * LEASE)
    assert tick_once(world.repo, holder="cron")
    assert world.find(lost).record.epoch == 2


@payloads
def test_a_lease_that_cannot_be_read_is_taken_over(world: World, payload: bytes) -> None:
    world.store.put(keys.COORDINATOR_LEASE, payload)
    leadership = Leadership(world.repo, holder="coordinator")
    assert not leadership.take_or_renew()
    world.clock.sleep(LEASE)
    assert leadership.take_or_renew()
    assert leadership.take_or_renew()


def test_a_lease_without_end_is_taken_over(world: World) -> None:
    """A day at most, whatever it says."""
    lease = CoordinatorLease(
        token="t", holder="mallory", counter=1, at=world.clock.now(), lease_seconds=1e300
    )
    world.store.put(keys.COORDINATOR_LEASE, lease.encode())
    leadership = Leadership(world.repo, holder="coordinator")
    assert not leadership.take_or_renew()
    world.clock.sleep(LEASE)
    assert leadership.take_or_renew()


def test_a_coordinator_goes_on_when_its_own_lease_is_overwritten(world: World) -> None:
    coordinator = Coordinator(world.repo, holder="coordinator")
    coordinator.tick()
    job = world.submit("true")
    world.repo.delete_entry(world.record(State.QUEUED, job))
    world.store.put(keys.COORDINATOR_LEASE, b"\xff")
    for _ in range(12):
        coordinator.tick()
        world.clock.sleep(TICK)
    assert [entry.job_id for entry in world.entries()] == [job]


def test_a_coordinator_leaves_alone_what_no_job_can_ask_for(world: World) -> None:
    """A run time of nothing."""
    job = world.submit(spec=Spec(command="", runtime_seconds_estimate=60))
    (entry,) = world.entries()
    forged = entry.name.partition("~")[0].replace(job, "a" * 16)
    world.store.put(keys.ready(f"{forged}~c1000.m1024.r0"), b"")
    assert tick_once(world.repo, holder="cron")


def test_a_fault_in_the_pass_of_hints_does_not_end_a_coordinator(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told with its place, and jobs are given back as ever."""

    def broken(*_: object, **__: object) -> None:
        raise ValueError("nobody thought of this")

    monkeypatch.setattr("stado.jobs.assignments.plan_jobs", broken)
    coordinator = Coordinator(world.repo, holder="coordinator")
    lost = world.submit("lost")
    world.start(ALICE)
    for _ in range(24):
        coordinator.tick()
        world.clock.sleep(TICK)
    assert world.find(lost).record.epoch == 2
    assert "ValueError: nobody thought of this" in caplog.text
    assert not tick_once(world.repo, holder="cron")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("fire", keys.SCHEDULES),
        ("ledger", keys.USAGE),
        ("repair", keys.READY),
        ("rows", keys.prefix(State.CANCELLED)),
        ("sweep", keys.RUNS),
    ],
)
def test_a_fault_in_any_pass_ends_neither_its_program_nor_the_other_passes(
    world: World, caplog: pytest.LogCaptureFixture, name: str, place: str
) -> None:
    """R246: it would be met again after each restart. It is told as why the pass fails."""

    def break_off(operation: Operation, key: str) -> None:
        if operation is Operation.LIST and key == place:
            raise ValueError("nobody thought of this")

    repo = world.repo_over(GuardedStore(world.store, before=break_off))
    coordinator = Coordinator(repo, holder="coordinator")
    lost = world.submit("lost")
    world.start(ALICE)
    for _ in range(24):
        coordinator.tick()
        world.clock.sleep(TICK)
    assert world.find(lost).record.epoch == 2
    assert "ValueError: nobody thought of this" in caplog.text
    notes = {
        note.name: note
        for note in world.repo.read(CoordinatorLease, keys.COORDINATOR_LEASE).value.passes
    }
    assert notes[name].error == "a fault of the program (ValueError): its log has more"
    assert notes[name].failed_at is not None
    assert not notes["reap"].fails
    upkeep = Upkeep(repo, by="agent")
    world.clock.sleep(2 * LEASE)
    for _ in range(12):
        upkeep.turn_when_due()
        world.clock.sleep(TICK)


@payloads
def test_a_record_that_is_another_jobs_moves_neither(world: World, payload: bytes) -> None:
    """The queue record of one job under the key of another, with an entry for each."""
    victim = world.submit("victim")
    record = world.record(State.QUEUED, victim)
    world.store.put(keys.record(State.QUEUED, STRANGER), record.encode())
    world.store.put(keys.record(State.RUNNING, STRANGER), record.encode())
    world.store.put(entry_key(record.evolve(id=STRANGER, priority=10**6)), payload)
    passes = Passes(world.repo, by="coordinator")
    for _ in range(20):
        passes.tick()
        world.clock.sleep(TICK)
    assert world.find(victim).state in (State.QUEUED, State.RUNNING)


def test_a_cell_of_another_job_ends_nobody(world: World) -> None:
    """An intent, and a verdict, about a healthy job under the name of a stranger."""

    victim = world.submit("victim")
    spare = world.submit("spare")
    claim = claim_for_intent(
        world.repo, world.record(State.QUEUED, spare), intent=Intent.CANCEL, by="x"
    )
    assert claim is not None
    forged = claim.evolve(record=world.record(State.QUEUED, victim))
    world.store.put(keys.claim_cell(STRANGER, 1), forged.encode())
    world.store.put(keys.record(State.QUEUED, STRANGER), b"{}")
    passes = Passes(world.repo, by="coordinator")
    for _ in range(5):
        passes.tick()
        world.clock.sleep(TICK)
    assert world.find(victim).state is State.QUEUED
    assert cancel(world.repo, victim, by="ada").stopped_now


def half_submitted(world: World) -> str:
    """Only the run record is there."""

    def die(_operation: object, key: str) -> None:
        if key.startswith(keys.READY):
            raise Crash

    store = GuardedStore(world.store, before=die)
    request = make_request(["half"], Spec(command=""), batch=False)
    with pytest.raises(Crash):
        submit(world.repo_over(store), run_id="half", request=request, submitter="ada")
    run = world.repo.find_run("half")
    assert run is not None
    return run.value.base_id
