"""What a coordinator would have an agent take, and what it makes of that."""

from __future__ import annotations

from datetime import timedelta

from stado.core import keys
from stado.core.admission import Offer
from stado.core.hints import Assignment, Assignments, HostPlan
from stado.core.ids import milliseconds
from stado.core.order import ReadyEntry
from stado.core.spec import Spec
from stado.storage.observe import CountingStore
from stado_agent.guidance import Guidance
from stado_agent.supply import Supply
from tests.jobs.world import ALICE, BOB, TICK, World

ROOM = Offer(cpu_milli=64_000, memory_mib=64_000)
HOUR = 3600.0


class Host:
    """Alice's view of the queue."""

    def __init__(self, world: World) -> None:
        self.guidance = Guidance(world.repo, consumer=ALICE.consumer, incarnation=ALICE.incarnation)
        self.supply = Supply(world.repo, self.guidance, poll_seconds=1)
        self.guidance.refresh_when_due()

    def takes(self) -> str | None:
        """The next job; None for none."""
        found = self.supply.next_fitting(ROOM, skip=lambda _: False)
        return None if found is None else found.job_id

    def order(self) -> list[str]:
        taken = []
        while (job := self.takes()) is not None:
            taken.append(job)
        return taken


def assign(
    world: World,
    consumer: str,
    *jobs: str,
    incarnation: str | None = None,
    since_seconds: float = 0,
) -> None:
    """As a coordinator does that began now, or so long from now."""
    entries: dict[str, ReadyEntry] = {entry.job_id: entry for entry in world.entries()}
    now = world.repo.now()
    plan = HostPlan(
        consumer=consumer,
        incarnation=incarnation or f"{consumer}-1",
        counter=1,
        jobs=[
            Assignment(
                entry=entries[job].name,
                since_ms=milliseconds(now) + round(1000 * since_seconds),
                seconds=60,
                begins_ms=milliseconds(now),
            )
            for job in jobs
        ],
    )
    document = Assignments(
        counter=1, at=now, expires_at=now + timedelta(seconds=4 * TICK), by="c", hosts=[plan]
    )
    world.store.put(keys.ASSIGNMENTS, document.encode())


def submit(world: World, *, seconds: int | None = None, priority: int = 0) -> str:
    world.clock.sleep(1)
    return world.submit(spec=Spec(command="", runtime_seconds_estimate=seconds, priority=priority))


def test_assigned_jobs_come_first_then_known_ones_then_the_rest(world: World) -> None:
    """R161, R162: the older first among equals."""
    unknown = [submit(world), submit(world)]
    known = [submit(world, seconds=9), submit(world, seconds=900)]
    mine = submit(world)
    assign(world, "alice", mine)
    assert Host(world).order() == [mine, *known, *unknown]


def test_priority_comes_before_all_of_it(world: World) -> None:
    """R164"""
    mine = submit(world, seconds=9)
    urgent = submit(world, priority=1)
    assign(world, "alice", mine)
    assert Host(world).order() == [urgent, mine]


def test_nobody_starves_behind_jobs_of_known_run_time(world: World) -> None:
    old = submit(world)
    world.clock.sleep(HOUR / 2)
    young = submit(world)
    world.clock.sleep(HOUR / 2)
    known = submit(world, seconds=9)
    assert Host(world).order() == [old, known, young]


def test_what_is_anothers_is_left_to_it_for_two_ticks(world: World) -> None:
    """R165: it may be gone."""
    theirs = submit(world, seconds=9)
    assign(world, BOB.consumer, theirs)
    alice = Host(world)
    assert alice.takes() is None
    world.clock.sleep(2 * TICK + 1)
    assert alice.takes() == theirs


def test_nobody_is_kept_waiting_by_a_moment_that_is_still_to_come(world: World) -> None:
    """R165: two ticks from when an agent has seen it first are the most, however often the
    document is renewed."""
    theirs = submit(world, seconds=9)
    assign(world, BOB.consumer, theirs, since_seconds=HOUR)
    alice = Host(world)
    taken = []
    for _ in range(3):
        taken.append(alice.takes())
        world.clock.sleep(TICK)
        assign(world, BOB.consumer, theirs, since_seconds=HOUR)
        alice.guidance.refresh_when_due()
    assert taken == [None, None, theirs]


def test_what_has_expired_holds_nobody_back(world: World) -> None:
    older, newer = submit(world), submit(world)
    assign(world, "alice", newer)
    alice = Host(world)
    world.clock.sleep(4 * TICK + 1)
    assert alice.order() == [older, newer]


def test_what_was_meant_for_an_earlier_agent_of_the_name_is_for_all(world: World) -> None:
    older, newer = submit(world), submit(world)
    assign(world, "alice", newer, incarnation="alice-0")
    assert Host(world).order() == [older, newer]


def test_a_job_behind_the_page_is_taken_where_it_is_assigned(world: World) -> None:
    world.submit(*["true"] * 1500, spec=Spec(command="", priority=1))
    world.clock.sleep(1)
    world.submit(*["true"] * 1500)
    last = world.repo.store.list(keys.READY, start_after=world.entries()[-1].name)
    names = [entry.key for entry in world.listed(keys.READY)]
    assert last
    mine = names[-1].removeprefix(keys.READY)
    now = world.repo.now()
    job = Assignment(entry=mine, since_ms=0, seconds=1, begins_ms=0)
    plan = HostPlan(consumer="alice", incarnation="alice-1", counter=1, jobs=[job])
    document = Assignments(
        counter=1, at=now, expires_at=now + timedelta(hours=1), by="c", hosts=[plan]
    )
    world.store.put(keys.ASSIGNMENTS, document.encode())
    order = Host(world).order()
    assert mine.startswith("9223372036854775807")
    assert any(mine.split("-")[2].startswith(job_id[:16]) for job_id in order)


def test_a_spoilt_document_counts_as_none(world: World) -> None:
    job = submit(world)
    world.store.put(keys.ASSIGNMENTS, b"nonsense")
    assert Host(world).takes() == job


def test_it_is_read_once_a_tick_and_seldom_where_there_is_none(world: World) -> None:
    counting = CountingStore(world.store, world.tasks)
    repo = world.repo_over(counting)
    guidance = Guidance(repo, consumer="alice", incarnation="alice-1")
    for _ in range(8):
        guidance.refresh_when_due()
        world.clock.sleep(TICK)
    assert counting.snapshot().of() == 2
    assign(world, "alice", submit(world))
    for _ in range(8):
        guidance.refresh_when_due()
        world.clock.sleep(TICK)
    assert 8 <= counting.snapshot().of() <= 10
