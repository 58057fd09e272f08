"""Which job an agent takes next, and how often it looks."""

from __future__ import annotations

from datetime import timedelta

from stado.core.admission import Offer
from stado.core.order import ReadyEntry
from stado.core.records import Ending
from stado.core.spec import After, Spec
from stado.core.states import Verdict
from stado.jobs.changes import pause_queue
from stado.jobs.endings import give_verdict, settle
from stado.jobs.repository import Repository
from stado.storage.observe import CountingStore
from stado_agent.guidance import Guidance
from stado_agent.supply import Supply
from tests.jobs.actors import GuardedStore
from tests.jobs.world import ALICE, World

ROOM = Offer(cpu_milli=2000, memory_mib=4096)


def _supply(repo: Repository, *, poll_seconds: float) -> Supply:
    guidance = Guidance(repo, consumer=ALICE.consumer, incarnation=ALICE.incarnation)
    return Supply(repo, guidance, poll_seconds=poll_seconds)


def _none(_: ReadyEntry) -> bool:
    return False


def test_the_head_of_the_queue_comes_first(world: World) -> None:
    """R135: higher priority first, then the older."""
    low = world.submit(spec=Spec(command="", priority=1))
    world.clock.sleep(1)
    high = world.submit(spec=Spec(command="", priority=7))
    supply = _supply(world.repo, poll_seconds=1)
    taken = [supply.next_fitting(ROOM, skip=_none), supply.next_fitting(ROOM, skip=_none)]
    assert [entry.job_id for entry in taken if entry] == [high, low]


def test_a_job_that_does_not_fit_lets_a_smaller_one_pass(world: World) -> None:
    world.submit(spec=Spec(command="", cpu=64, priority=9))
    small = world.submit(spec=Spec(command="", cpu=0.5))
    entry = _supply(world.repo, poll_seconds=1).next_fitting(ROOM, skip=_none)
    assert entry is not None
    assert entry.job_id == small


def test_an_agent_looks_beyond_a_page_of_jobs_that_do_not_fit(world: World) -> None:
    world.submit(*["true"] * 1500, spec=Spec(command="", cpu=64, priority=9))
    small = world.submit(spec=Spec(command="", cpu=0.5))
    entry = _supply(world.repo, poll_seconds=1).next_fitting(ROOM, skip=_none)
    assert entry is not None
    assert entry.job_id == small


def test_a_page_serves_many_jobs_with_one_listing(world: World) -> None:
    counting = CountingStore(world.store, world.tasks)
    world.submit(*["true"] * 40)
    supply = _supply(world.repo_over(counting), poll_seconds=1)
    for _ in range(40):
        assert supply.next_fitting(ROOM, skip=_none) is not None
    assert counting.snapshot().of() == 1


def test_an_idle_agent_looks_less_and_less_often(world: World) -> None:
    counting = CountingStore(world.store, world.tasks)
    supply = _supply(world.repo_over(counting), poll_seconds=8)
    waits = []
    for _ in range(12):
        assert supply.next_fitting(ROOM, skip=_none) is None
        waits.append(supply.seconds_to_wait())
        world.clock.sleep(waits[-1])
    assert waits[0] < 3
    assert 6 < waits[-1] < 10
    assert counting.snapshot().of() == 12


def test_nothing_is_taken_while_the_queue_is_paused(world: World) -> None:
    """R209."""
    world.submit()
    pause_queue(world.repo, by="ada")
    supply = _supply(world.repo, poll_seconds=1)
    assert supply.next_fitting(ROOM, skip=_none) is None


def test_who_lost_a_claim_tries_another_job_of_the_same_priority(world: World) -> None:
    """So that a hundred agents do not fight for each head in turn."""
    high = {world.submit(spec=Spec(command="", priority=5)) for _ in range(20)}
    world.submit(spec=Spec(command="", priority=1))
    chosen = set()
    for _ in range(30):
        supply = _supply(world.repo, poll_seconds=1)
        supply.missed(None)
        entry = supply.next_fitting(ROOM, skip=_none)
        assert entry is not None
        chosen.add(entry.job_id)
    assert chosen <= high
    assert len(chosen) > 5


def test_a_page_is_read_again_after_a_moment(world: World) -> None:
    """What is new and urgent comes first."""
    world.submit(*["true"] * 10)
    supply = _supply(world.repo, poll_seconds=1)
    assert supply.next_fitting(ROOM, skip=_none) is not None
    urgent = world.submit(spec=Spec(command="", priority=9))
    world.clock.sleep(3)
    entry = supply.next_fitting(ROOM, skip=_none)
    assert entry is not None
    assert entry.job_id == urgent


def test_while_others_take_the_same_jobs_a_page_serves_a_quarter_of_a_second(world: World) -> None:
    """Also after a claim that did not come too late: the others are still there."""
    counting = CountingStore(world.store, world.tasks)
    world.submit(*["true"] * 60)
    supply = _supply(world.repo_over(counting), poll_seconds=0.01)
    supply.missed(None)
    for listings in (1, 2, 3):
        assert supply.next_fitting(ROOM, skip=_none) is not None
        assert supply.next_fitting(ROOM, skip=_none) is not None
        assert counting.snapshot().of() == listings
        world.clock.sleep(0.3)


def test_two_claims_that_came_too_late_are_enough_for_a_page(world: World) -> None:
    """Whatever its age: where two were taken by others, more will have been."""
    counting = CountingStore(world.store, world.tasks)
    world.submit(*["true"] * 60)
    supply = _supply(world.repo_over(counting), poll_seconds=1)
    for listings in (1, 1, 2, 2, 3):
        entry = supply.next_fitting(ROOM, skip=_none)
        supply.missed(entry)
        assert counting.snapshot().of() == listings


def test_a_slow_listing_is_old_when_it_arrives(world: World) -> None:
    world.submit(*["true"] * 60)
    slow = GuardedStore(world.store, after=lambda operation, key: world.clock.sleep(1))
    counting = CountingStore(slow, world.tasks)
    supply = _supply(world.repo_over(counting), poll_seconds=1)
    for listings in (1, 2, 3):
        supply.missed(supply.next_fitting(ROOM, skip=_none))
        assert counting.snapshot().of() == listings


def test_jobs_whose_time_is_up_are_handed_out_once_a_look_and_a_few_at_a_time(
    world: World,
) -> None:
    deadline = world.repo.now() + timedelta(seconds=10)
    world.submit(*["true"] * 9, spec=Spec(command="", deadline_at=deadline))
    world.submit()
    supply = _supply(world.repo, poll_seconds=1)
    supply.next_fitting(ROOM, skip=_none)
    assert supply.take_over() == []
    world.clock.sleep(10)
    supply.next_fitting(ROOM, skip=_none)
    over = supply.take_over()
    assert len(over) == 4
    assert all(entry.needs.deadline_ms is not None for entry in over)
    assert supply.take_over() == []


def failed(world: World, *, priority: int = 0, due_in: float = 30) -> str:
    """A job that is to be tried again in so many seconds."""
    job = world.submit(spec=Spec(command="", priority=priority))
    now = world.repo.now()
    ending = Ending(
        verdict=Verdict.RETRYING,
        started_at=now,
        ended_at=now,
        retry_at=now + timedelta(seconds=due_in),
        by="alice",
    )
    claimed = world.claimed_of(job)
    give_verdict(world.repo, claimed.record, ending)
    settle(world.repo, job, 1)
    return job


def test_what_is_to_be_tried_again_waits_and_is_then_taken_in_its_order(world: World) -> None:
    urgent = failed(world, priority=9)
    usual = world.submit()
    world.clock.sleep(1)
    later = world.submit()
    supply = _supply(world.repo, poll_seconds=1)
    first = supply.next_fitting(ROOM, skip=_none)
    world.clock.sleep(31)
    others = [supply.next_fitting(ROOM, skip=lambda one: one.job_id == usual) for _ in range(2)]
    assert first is not None
    assert [first.job_id, *(entry.job_id for entry in others if entry)] == [usual, urgent, later]


def test_what_is_due_is_found_behind_a_long_queue(world: World) -> None:
    """By one more listing now and then."""
    world.submit(*["true"] * 200)
    urgent = failed(world, priority=9)
    counting = CountingStore(world.store, world.tasks)
    supply = _supply(world.repo_over(counting), poll_seconds=1)
    assert supply.next_fitting(ROOM, skip=_none) is not None
    assert counting.snapshot().of() == 2
    world.clock.sleep(5)
    assert supply.next_fitting(ROOM, skip=_none) is not None
    assert counting.snapshot().of() == 3
    world.clock.sleep(26)
    entry = supply.next_fitting(ROOM, skip=_none)
    assert entry is not None
    assert entry.job_id == urgent
    assert counting.snapshot().of() == 5


def test_an_agent_does_not_look_among_those_that_nobody_can_start(world: World) -> None:
    """A queue of thousands that wait for one job costs a poll what one of ten costs."""
    first = world.submit()
    world.submit(*["true"] * 2500, spec=Spec(command="", after=[After(job_id=first)]))
    world.claimed_of(first)
    counting = CountingStore(world.store, world.tasks)
    supply = _supply(world.repo_over(counting), poll_seconds=1)
    assert supply.next_fitting(ROOM, skip=_none) is None
    assert counting.snapshot().lists == 1
