"""What an hour of a job that prints all the time asks of its store, and what that costs: the parts
that ship are the agent's own, on a clock that is told to move."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stado.core.records import Phase
from stado.jobs.followers import FollowerNote
from stado.jobs.life import LifeSigns
from stado.storage.observe import CountingStore, Operation, Requests
from stado_agent.log_shipping import LogEpoch, LogShipper
from stado_agent.log_spool import LogLimit, LogSpool
from tests.jobs.world import World

HOUR = 3600
_LOOK_SECONDS = 0.5
"""So often a supervisor asks whether a segment is due."""

_LIMIT = LogLimit(100 * 1024 * 1024)
_PUT_DOLLARS = 0.005 / 1000
_GET_DOLLARS = 0.0004 / 1000
"""S3 standard, list prices; a listing costs as much as a write, a delete nothing."""


def dollars(requests: Requests) -> float:
    return (requests.writes + requests.lists) * _PUT_DOLLARS + requests.reads * _GET_DOLLARS


@dataclass(frozen=True)
class Hours:
    """Of one job: its log's requests hour by hour, and those of its life signs in one hour."""

    log: list[Requests]
    signs: Requests
    longest_wait: float
    """Seconds until a line was in the store, at most, in the last hour."""


def talk(
    folder: Path,
    *,
    hours: int = 1,
    bytes_a_second: int = 10_000,
    followed: bool = False,
) -> Hours:
    """A job that prints a line of 100 bytes as often as that makes."""
    folder.mkdir()
    world = World()
    counting = CountingStore(world.store, world.tasks)
    repo = world.repo_over(counting)
    job = world.submit()
    spool = LogSpool(folder, _LIMIT, world.tasks.lock())
    shipper = LogShipper(repo, spool, _LIMIT, LogEpoch(job, 1))
    note = FollowerNote(world.repo, job)
    lines = (b"x" * 99 + b"\n") * round(bytes_a_second * _LOOK_SECONDS / 100)
    log, longest = [], 0.0
    for _ in range(hours):
        before, longest, shipped_at = counting.snapshot(), 0.0, world.clock.monotonic()
        for _ in range(round(HOUR / _LOOK_SECONDS)):
            if followed:
                note.renew_when_due()
            spool.append(memoryview(lines))
            world.clock.sleep(_LOOK_SECONDS)
            if shipper.ship_when_due():
                longest = max(longest, world.clock.monotonic() - shipped_at)
                shipped_at = world.clock.monotonic()
        log.append(counting.since(before))
    spool.close()
    return Hours(log, _signs(world), longest)


def _signs(world: World) -> Requests:
    """Beats and check-ins of an hour: two of these for each of those."""
    counting = CountingStore(world.store, world.tasks)
    repo = world.repo_over(counting)
    world.submit()
    signs = LifeSigns(repo, world.start().record)
    assert signs.beat(Phase.RUNNING, world.clock.now())
    before = counting.snapshot()
    for look in range(round(HOUR / repo.deployment.tick_seconds)):
        if look * repo.deployment.tick_seconds % repo.deployment.beat_seconds == 0:
            assert signs.beat(Phase.RUNNING, world.clock.now())
        signs.asked()
        world.clock.sleep(repo.deployment.tick_seconds)
    return counting.since(before)


def writes_of(requests: Requests) -> int:
    """Segments."""
    return requests.of(Operation.CREATE, kind="status/*/log")
