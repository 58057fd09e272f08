"""What was ended on a host, in the store before anything is signalled."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stado.core import keys
from stado.core.records import HostReap, ReapOutcome
from stado.errors import Refused, StoreError
from stado.jobs.host_reaps import Reaped, newest_reaps, of_jobs, reap
from stado.jobs.repository import Repository
from stado.ports import HostProcess, ProcessIdentity, ReapEnd
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.observe import Operation
from tests.jobs.world import World

JOB = "zrkkcmezlzooeqjq"


def process(pid: int, job_id: str = JOB) -> HostProcess:
    return HostProcess(
        identity=ProcessIdentity(pid, 1),
        job_id=job_id,
        epoch=1,
        program="sleep",
        names=frozenset({"sleep"}),
        started_at=1_900_000_000.0,
        uid=0,
        held_by=None,
    )


class Host:
    """Ends what it is told to, and looks into the store meanwhile."""

    def __init__(self, world: World, *ends: ReapEnd) -> None:
        self._world = world
        self._ends = list(ends)
        self.known: list[HostReap] = []

    def look(self) -> tuple[list[HostProcess], int]:
        raise AssertionError("it was looked before")

    def end(self, found: Sequence[HostProcess], *, grace_seconds: float) -> list[ReapEnd]:
        assert grace_seconds == 3.0
        self.known = list(newest_reaps(self._world.repo, limit=10))
        return self._ends[: len(found)]


def reap_with(
    world: World, host: Host, found: Sequence[HostProcess], repo: Repository | None = None
) -> Reaped:
    return reap(
        repo or world.repo,
        host,
        found,
        host="lab-7",
        command="sleep",
        by="ada",
        grace_seconds=3.0,
    )


def test_the_store_knows_before_the_first_signal_and_what_became_of_it(world: World) -> None:
    """R204, R217"""
    host = Host(world, ReapEnd.ENDED, ReapEnd.STAYS)
    reaped = reap_with(world, host, [process(7), process(8)])
    (before,) = host.known
    assert [one.outcome for one in before.processes] == [None, None]
    assert [one.pid for one in before.processes] == [7, 8]
    assert (before.by, before.host, before.command) == ("ada", "lab-7", "sleep")
    assert reaped.untold is None
    assert list(newest_reaps(world.repo, limit=10)) == [reaped.record]
    outcomes = [one.outcome for one in reaped.record.processes]
    assert outcomes == [ReapOutcome.ENDED, ReapOutcome.STAYS]


def test_the_newest_is_first_and_what_cannot_be_read_costs_itself_alone(world: World) -> None:
    for pid in (1, 2, 3):
        reap_with(world, Host(world, ReapEnd.ENDED), [process(pid)])
        world.clock.sleep(1)
    key = keys.host_reap(1, "x")
    world.store.create(key, b"{")
    pids = [one.processes[0].pid for one in newest_reaps(world.repo, limit=10)]
    assert pids == [3, 2, 1]


def test_nothing_is_signalled_that_the_store_does_not_take(world: World) -> None:
    """R217"""
    host = Host(world, ReapEnd.ENDED)
    fault = Fault(FaultKind.DENIED, Operation.CREATE)
    store = FaultyStore(world.store, world.clock, ScriptedFaults(fault))
    with pytest.raises(StoreError):
        reap_with(world, host, [process(7)], repo=world.repo_over(store))
    assert host.known == []
    assert not list(newest_reaps(world.repo, limit=10))


def test_a_store_that_fails_afterwards_is_told_with_the_outcome(world: World) -> None:
    host = Host(world, ReapEnd.ENDED)
    fault = Fault(FaultKind.DENIED, Operation.REPLACE)
    store = FaultyStore(world.store, world.clock, ScriptedFaults(fault))
    reaped = reap_with(world, host, [process(7)], repo=world.repo_over(store))
    assert reaped.untold is not None
    assert reaped.record.processes[0].outcome is ReapOutcome.ENDED
    (kept,) = newest_reaps(world.repo, limit=10)
    assert kept.processes[0].outcome is None


def test_more_than_can_be_kept_is_refused_before_anything_is_done(world: World) -> None:
    host = Host(world)
    with pytest.raises(Refused, match="1001 processes would be ended and 1000 can be at once"):
        reap_with(world, host, [process(pid) for pid in range(1001)])
    assert not list(newest_reaps(world.repo, limit=10))


def test_an_environment_can_name_anything(world: World) -> None:
    found = [process(1), process(2, "no job"), process(3, f"{JOB}-7"), process(4, "")]
    assert [one.identity.pid for one in of_jobs(found)] == [1, 3]
