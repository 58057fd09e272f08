"""Hosts whose clocks are off, and beats that take their time: neither makes anybody dead."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from stado.core.records import Intent
from stado.core.states import State, Verdict
from stado.jobs.reaping import Reaper
from stado.storage.faults import Fault, FaultKind
from stado.storage.observe import Operation
from tests.agent.fakes import Script, TurnClock
from tests.agent.scene import Scene
from tests.agent.test_agent import Host
from tests.jobs.world import LEASE, TICK


class WrongClock:
    """Tells another time of day than the store, and measures durations as everybody does."""

    def __init__(self, clock: TurnClock, *, hours: float) -> None:
        self._clock = clock
        self._off = timedelta(hours=hours)

    def now(self) -> datetime:
        return self._clock.now() + self._off

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


class SlowBeats:
    """From one moment to another each beat takes this long."""

    def __init__(
        self, clock: TurnClock, *, seconds: float, begin: float = 0.0, end: float = math.inf
    ) -> None:
        self._clock = clock
        self._begin, self._end = begin, end
        self._fault = Fault(FaultKind.DELAY, seconds=seconds)
        self.met = 0

    def next(self, operation: Operation, key: str) -> Fault | None:
        beats = operation in (Operation.CREATE, Operation.REPLACE) and key.endswith("/heartbeat")
        if not beats or not self._begin <= self._clock.monotonic() < self._end:
            return None
        self.met += 1
        return self._fault


def test_beats_that_take_most_of_a_lease_are_signs_of_life(tmp_path: Path) -> None:
    """A36: 0.8 of a lease each, for many leases."""
    scene = Scene(tmp_path)
    scene.script(Script(seconds=10 * LEASE))
    slow = SlowBeats(scene.clock, begin=20, seconds=0.8 * LEASE)
    scene.watch(seconds=12 * LEASE)
    scene.run(scene.claim(), faults=slow)
    assert slow.met >= 10
    assert scene.ending.verdict is Verdict.COMPLETED
    assert (scene.final.epoch, scene.final.starts) == (1, 1)


def test_a_worker_whose_beats_are_too_slow_for_a_start_says_so(tmp_path: Path) -> None:
    """A36: nothing may start by a beat that is older than half a lease; people shall not wait
    without knowing for what."""
    scene = Scene(tmp_path)
    told: list[str | None] = []
    for at in (4 * LEASE, 9 * LEASE):
        scene.clock.at(at, lambda: told.append(scene.heartbeat().trouble))
    scene.script(Script(seconds=5 * LEASE))
    slow = SlowBeats(scene.clock, seconds=0.8 * LEASE, end=5 * LEASE)
    scene.watch(seconds=12 * LEASE)
    scene.run(scene.claim(), faults=slow)
    assert len(told) == 2
    waiting, running = told
    assert waiting == "it cannot start: the store takes longer than 60 s for a sign of life"
    assert running is None
    assert (scene.final.epoch, scene.final.starts) == (1, 1)
    assert scene.processes.executions[0].at > 5 * LEASE


def host_with(folder: Path, *, hours: float) -> Host:
    host = Host(folder)
    host.world.clock = WrongClock(host.clock, hours=hours)  # type: ignore[assignment]
    host.agent = host.new_agent()
    return host


def watched(host: Host) -> Callable[[], bool]:
    """Whether a reaper with a right clock has looked at everything for three leases."""
    reaper = Reaper(host.world.repo, by="coordinator")
    begun = host.clock.monotonic()
    for tick in range(int(3 * LEASE / TICK)):
        host.clock.at(begun + tick * TICK, reaper.turn)
    return lambda: host.clock.monotonic() > begun + 3 * LEASE


@pytest.mark.parametrize("hours", [2.0, -2.0])
def test_a_worker_whose_clock_is_off_is_no_dead_worker(tmp_path: Path, hours: float) -> None:
    """A37: and what it writes is on the store's clock."""
    host = host_with(tmp_path, hours=hours)
    host.script(5 * LEASE)
    (job,) = host.submit("true")
    host.step_to_start()
    host.step_until(watched(host))
    record = host.world.record(State.RUNNING, job)
    assert record.epoch == 1
    assert record.holder is not None
    assert abs(record.holder.claimed_at - host.clock.now()) < timedelta(hours=1)
    capacity = host.capacity()
    assert capacity.host_at is not None
    assert capacity.host_at - capacity.at == timedelta(hours=hours)
    host.step_until_at_rest(job)
    ending = host.world.record(State.COMPLETED, job).ending
    assert ending is not None
    assert ending.started_at is not None
    assert abs(ending.started_at - host.clock.now()) < timedelta(hours=1)


@pytest.mark.parametrize("hours", [2.0, -2.0])
def test_a_deadline_is_on_the_clock_of_the_store(tmp_path: Path, hours: float) -> None:
    """A37: it does not come early where the clock is ahead, and not late where it is behind. What
    has passed it is ended in the queue, and never started."""
    host = host_with(tmp_path, hours=hours)
    host.script(1)
    now = host.clock.now()
    (ahead,) = host.submit("true", deadline_at=now + timedelta(hours=1))
    (over,) = host.submit("true", deadline_at=now - timedelta(seconds=1))
    host.step_until_at_rest(ahead)
    host.step_for(60)
    assert host.world.states(ahead) == {State.COMPLETED}
    assert host.world.states(over) == {State.TIMED_OUT}
    assert host.world.repo.claim_cell(over, 1).intent is Intent.EXPIRE
