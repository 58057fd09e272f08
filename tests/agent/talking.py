"""What an hour of a job that prints all the time asks of its store, and what that costs: the parts
that ship are the agent's own, on a clock that is told to move."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from stado.core.records import Phase
from stado.jobs.followers import FollowerNote
from stado.jobs.life import LifeSigns
from stado.jobs.reaping import Reaper
from stado.jobs.repository import Repository
from stado.storage.observe import CountingStore, Operation, Requests
from stado_agent.log_shipping import LogEpoch, LogShipper
from stado_agent.log_spool import LogLimit, LogSpool
from tests.jobs.broadcasts import Agent
from tests.jobs.world import World

HOUR = 3600
_LOOK_SECONDS = 0.5
"""So often a supervisor asks whether a segment is due."""

_FOLLOWERS = 24
_ALONE_SECONDS = 360
_APART_SECONDS = 5
"""So that they come at different times between two segments."""

_LIMIT = LogLimit(100 * 1024 * 1024)
_PUT_DOLLARS = 0.005 / 1000
_GET_DOLLARS = 0.0004 / 1000
"""S3 standard, list prices; a listing costs as much as a write, a delete nothing."""


def dollars(requests: Requests) -> float:
    return (requests.writes + requests.lists) * _PUT_DOLLARS + requests.reads * _GET_DOLLARS


@dataclass(frozen=True)
class Hours:
    """Of one job: its log's requests hour by hour; in one hour those of its life signs, and of a
    coordinator that looks at these."""

    log: list[Requests]
    signs: Requests
    looks: Requests
    longest_wait: float
    """Seconds until a line was in the store, at most, in the last hour."""

    def dollars(self, hour: int) -> float:
        """Of all that the job costs while it runs and prints, in that hour."""
        return dollars(self.log[hour]) + dollars(self.signs) + dollars(self.looks)


class _Talker:
    """A job that prints a line of 100 bytes as often as that makes."""

    def __init__(self, world: World, folder: Path, repo: Repository, bytes_a_second: int) -> None:
        folder.mkdir()
        self.job = world.submit()
        self._world = world
        self._spool = LogSpool(folder, _LIMIT, world.tasks.lock())
        self._shipper = LogShipper(repo, self._spool, _LIMIT, LogEpoch(self.job, 1))
        self._lines = memoryview((b"x" * 99 + b"\n") * round(bytes_a_second * _LOOK_SECONDS / 100))

    def go_on(self) -> bool:
        """Whether what was printed has come to the store."""
        self._spool.append(self._lines)
        self._world.clock.sleep(_LOOK_SECONDS)
        return self._shipper.ship_when_due()

    def close(self) -> None:
        self._spool.close()


def talk(
    folder: Path,
    *,
    hours: int = 1,
    bytes_a_second: int = 10_000,
    followed: bool = False,
) -> Hours:
    """What it costs from the start of the job on."""
    world = World()
    counting = CountingStore(world.store, world.tasks)
    talker = _Talker(world, folder, world.repo_over(counting), bytes_a_second)
    note = FollowerNote(world.repo, talker.job)
    log, longest = [], 0.0
    for _ in range(hours):
        before, longest, shipped_at = counting.snapshot(), 0.0, world.clock.monotonic()
        for _ in range(round(HOUR / _LOOK_SECONDS)):
            if followed:
                note.renew_when_due()
            if talker.go_on():
                longest = max(longest, world.clock.monotonic() - shipped_at)
                shipped_at = world.clock.monotonic()
        log.append(counting.since(before))
    talker.close()
    return Hours(log, *_signs(World()), longest)


def waits_of_followers(folder: Path) -> list[float]:
    """Of some who come, one long after the other, to a job that has been printing for an hour:
    seconds from the first note to the first segment with something that was printed since."""
    world = World()
    talker = _Talker(world, folder, world.repo, bytes_a_second=200)
    waits = []
    for number in range(_FOLLOWERS):
        alone_seconds = (HOUR if not number else _ALONE_SECONDS) + number * _APART_SECONDS
        for _ in range(round(alone_seconds / _LOOK_SECONDS)):
            talker.go_on()
        note, came_at = FollowerNote(world.repo, talker.job), world.clock.monotonic()
        note.renew_when_due()
        while not talker.go_on():
            note.renew_when_due()
        waits.append(world.clock.monotonic() - came_at)
    talker.close()
    return waits


def _signs(world: World) -> tuple[Requests, Requests]:
    """Beats and check-ins of an hour, two of these for each of those; and looks of a coordinator,
    whom the agent tells of the job."""
    signing, judging = (CountingStore(world.store, world.tasks) for _ in range(2))
    repo, judge = world.repo_over(signing), Reaper(world.repo_over(judging), by="coordinator")
    world.submit()
    claimed, agent = world.start(), Agent(world)
    signs, tick_seconds = LifeSigns(repo, claimed.record), repo.deployment.tick_seconds
    assert signs.beat(Phase.RUNNING, world.clock.now())
    before, judged_before = signing.snapshot(), judging.snapshot()
    for look in range(round(HOUR / tick_seconds)):
        if look * tick_seconds % repo.deployment.beat_seconds == 0:
            assert signs.beat(Phase.RUNNING, world.clock.now())
        signs.asked()
        agent.signs += 1
        agent.broadcast(claimed)
        world.clock.sleep(tick_seconds)
        judge.turn()
    return signing.since(before), _of_the_job(judging.since(judged_before))


def _of_the_job(requests: Requests) -> Requests:
    """Without what is asked once for all that runs."""
    return Requests(
        Counter({key: n for key, n in requests.counts.items() if key[1].startswith("status/")})
    )


def writes_of(requests: Requests) -> int:
    """Segments."""
    return requests.of(Operation.CREATE, kind="status/*/log")
