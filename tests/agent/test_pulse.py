"""The beats of a held epoch, and what they tell the supervisor."""

from __future__ import annotations

from stado.core import keys
from stado.core.records import Phase, Record
from stado.core.states import State
from stado.jobs.changes import cancel
from stado.jobs.life import seal_epoch
from stado.jobs.repository import Repository
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.observe import Operation
from stado_agent.pulse import Pulse
from tests.jobs.world import LEASE, World


def _running(world: World) -> Record:
    (entry,) = world.repo.walk_records(State.RUNNING)
    return world.record(State.RUNNING, keys.job_of_record(entry.key))


def _pulse(world: World, repo: Repository | None = None) -> Pulse:
    world.submit()
    claimed = world.claim()
    assert claimed is not None
    return Pulse(repo or world.repo, claimed.record, on_tick=lambda: None, on_news=lambda: None)


def test_a_command_may_start_only_just_after_an_accepted_beat(world: World) -> None:
    pulse = _pulse(world)
    assert not pulse.may_start()
    pulse.beat_until_accepted()
    assert pulse.may_start()
    world.clock.sleep(LEASE / 2)
    assert not pulse.may_start()


def test_a_host_that_was_suspended_starts_nothing_before_it_has_beaten(world: World) -> None:
    """It may have been declared lost meanwhile."""
    pulse = _pulse(world)
    pulse.beat_until_accepted()
    world.clock.suspend(LEASE / 2)
    assert not pulse.may_start()
    pulse.beat_until_accepted()
    assert pulse.may_start()


def test_a_beat_that_took_half_a_lease_lets_nothing_start(world: World) -> None:
    """It is the sending that counts: the answer may be old news."""
    delay = Fault(FaultKind.DELAY, Operation.CREATE, seconds=LEASE / 2 + 1)
    slow = FaultyStore(world.store, world.clock, ScriptedFaults(delay))
    pulse = _pulse(world, world.repo_over(slow))
    pulse.beat_until_accepted()
    assert not pulse.may_start()


def test_a_beat_says_that_the_command_is_about_to_start(world: World) -> None:
    """R186, T8: what may have run is counted as a start."""
    pulse = _pulse(world)
    pulse.phase = Phase.RUNNING
    pulse.started_at = world.repo.now()
    pulse.beat_until_accepted()
    beat = world.repo.find_heartbeat(_running(world).id)
    assert beat is not None
    assert beat.value.started_at == pulse.started_at


def test_a_sealed_epoch_beats_no_more(world: World) -> None:
    pulse = _pulse(world)
    pulse.beat_until_accepted()
    record = _running(world)
    assert seal_epoch(world.repo, record, world.repo.find_heartbeat(record.id), by="reaper")
    pulse.beat_until_accepted()
    assert pulse.sealed


def test_a_cancel_is_met_at_the_next_check_in(world: World) -> None:
    pulse = _pulse(world)
    pulse.beat_until_accepted()
    pulse.check_in()
    assert not pulse.cancel_asked
    cancel(world.repo, _running(world).id, by="ada")
    pulse.check_in()
    assert pulse.cancel_asked
