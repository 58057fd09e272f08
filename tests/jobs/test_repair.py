from __future__ import annotations

import contextlib

import pytest

from stado.core import keys
from stado.core.order import entry_key
from stado.core.records import Ending, Intent, Record
from stado.core.spec import Spec, make_request
from stado.core.states import State, Verdict
from stado.errors import Denied, StoreError
from stado.jobs.claim import claim
from stado.jobs.endings import claim_for_intent, give_verdict, settle
from stado.jobs.queue_index import Repair
from stado.jobs.repository import Repository
from stado.jobs.submit import SubmissionSweep, submit
from stado.storage.faults import Fault, FaultKind, FaultyStore, RandomFaults, ScriptedFaults
from stado.storage.observe import Operation
from stado.storage.port import Store
from tests.jobs.actors import Actor, Crash, mortal
from tests.jobs.fakes import FakeEntropy
from tests.jobs.world import ALICE, BOB, World, end, heal


def add_entry(world: World, record: Record) -> None:
    assert world.repo.create_entry(record)


def lose(world: World, record: Record) -> None:
    give_verdict(
        world.repo, record, Ending(verdict=Verdict.LOST, ended_at=world.clock.now(), by="r")
    )


def test_a_queue_in_order_is_left_as_it_is(world: World) -> None:
    world.submit("echo 1", "echo 2")
    world.submit()
    world.start()
    before = world.names(keys.READY)
    report = Repair(world.repo).turn()
    assert not report.changed
    assert world.names(keys.READY) == before


def test_a_lost_entry_is_written_again(world: World) -> None:
    job = world.submit()
    record = world.record(State.QUEUED, job)
    world.repo.delete_entry(record)
    report = Repair(world.repo).turn()
    assert report.entries_written == 1
    assert world.names(keys.READY) == [entry_key(record)]


@pytest.mark.parametrize(
    "changes",
    [{"nonce": "other"}, {"priority": 5}, {"queued_ms": 1_700_000_000_000}],
    ids=["nonce", "priority", "time"],
)
@pytest.mark.parametrize("right_too", [False, True], ids=["alone", "doubled"])
def test_a_wrong_entry_is_replaced_by_the_right_one(
    world: World, changes: dict[str, object], right_too: bool
) -> None:
    """R148"""
    job = world.submit()
    record = world.record(State.QUEUED, job)
    add_entry(world, record.evolve(**changes))
    if not right_too:
        world.repo.delete_entry(record)
    assert Repair(world.repo).turn().entries_deleted == 1
    assert world.names(keys.READY) == [entry_key(record)]


def test_a_wrong_entry_that_nothing_can_admit_does_not_hide_its_job(world: World) -> None:
    """No agent reads the record behind an entry that does not fit."""
    job = world.submit()
    record = world.record(State.QUEUED, job)
    add_entry(world, record.evolve(spec=Spec(command="true", cpu=1e5)))
    world.repo.delete_entry(record)
    repair = Repair(world.repo, slice_size=1)
    repair.turn()
    assert world.names(keys.READY) == [entry_key(record)]


def test_the_entry_of_a_later_epoch_is_its_movers(world: World) -> None:
    """The mover of a lost epoch wrote the entry and died before the queue record."""
    job = world.submit()
    record = world.record(State.QUEUED, job)
    lose(world, record)
    with pytest.raises(Crash):
        settle(world.repo_over(mortal(world.store, at=4, applied=False)), job, 1)
    assert len(world.names(keys.READY)) == 2
    Repair(world.repo).turn()
    following = world.record(State.QUEUED, job)
    assert following.epoch == 2
    assert entry_key(following) in world.names(keys.READY)
    Repair(world.repo).turn()
    assert world.names(keys.READY) == [entry_key(following)]


def test_the_entries_of_a_slow_submitter_are_left(world: World) -> None:
    """An entry without a record, of an epoch that nothing says is over."""
    slow = Actor(world.store, lambda store: submit_one(world, store))
    slow.step(3)
    assert len(world.names(keys.READY)) == 1
    assert world.names("queue/") == []
    for _ in range(3):
        assert not Repair(world.repo).turn().changed
    slow.finish()
    assert len(world.names(keys.READY)) == len(world.names("queue/")) == 1


def submit_one(world: World, store: Store) -> object:
    request = make_request(["true"], Spec(command=""), batch=False)
    return submit(world.repo_over(store), run_id="slow", request=request, submitter="ada")


def test_an_entry_whose_epoch_has_ended_is_deleted(world: World) -> None:
    job = world.submit()
    record = world.record(State.QUEUED, job)
    world.end(world.start())
    add_entry(world, record)
    assert Repair(world.repo).turn().entries_deleted == 1
    assert world.names(keys.READY) == []
    assert world.states(job) == {State.COMPLETED}


def test_an_entry_whose_epoch_ended_unsettled_is_deleted_and_the_epoch_settled(
    world: World,
) -> None:
    job = world.submit()
    record = world.record(State.QUEUED, job)
    claimed = world.start()
    add_entry(world, record)
    now = world.clock.now()
    give_verdict(
        world.repo, claimed.record, Ending(verdict=Verdict.COMPLETED, ended_at=now, by="a")
    )
    Repair(world.repo).turn()
    assert world.names(keys.READY) == []
    assert world.states(job) == {State.COMPLETED}


def test_an_entry_whose_epoch_an_agent_holds_is_deleted(world: World) -> None:
    job = world.submit()
    record = world.record(State.QUEUED, job)
    world.start()
    add_entry(world, record)
    Repair(world.repo).turn()
    assert world.names(keys.READY) == []
    assert world.states(job) == {State.RUNNING}


def test_an_intent_without_a_verdict_is_finished_and_its_entry_deleted(world: World) -> None:
    job = world.submit()
    record = world.record(State.QUEUED, job)
    assert claim_for_intent(world.repo, record, intent=Intent.CANCEL, by="ada")
    world.store.delete(keys.record(State.QUEUED, job), None)
    Repair(world.repo).turn()
    assert world.names(keys.READY) == []
    assert world.states(job) == {State.CANCELLED}


def test_an_entry_of_a_lower_epoch_is_deleted(world: World) -> None:
    job = world.submit()
    first = world.record(State.QUEUED, job)
    world.start()
    lose(world, world.record(State.RUNNING, job))
    settle(world.repo, job, 1)
    second = world.start()
    add_entry(world, first)
    Repair(world.repo).turn()
    assert world.names(keys.READY) == []
    world.end(second)
    assert heal(world, job) == []


def test_a_claimed_jobs_queue_record_is_removed(world: World) -> None:
    """The claimer died between its cell and the removal."""
    job = world.submit()
    (entry,) = world.entries()
    with pytest.raises(Crash):
        claim(world.repo_over(mortal(world.store, at=2, applied=True)), entry, ALICE)
    assert world.states(job) == {State.QUEUED, State.RUNNING}
    Repair(world.repo).turn()
    assert world.states(job) == {State.RUNNING}
    assert world.names(keys.READY) == []


def test_a_cancelled_jobs_queue_record_is_settled_away(world: World) -> None:
    job = world.submit()
    record = world.record(State.QUEUED, job)
    claim_for_intent(world.repo, record, intent=Intent.CANCEL, by="ada")
    assert Repair(world.repo).turn().settled == 1
    assert world.states(job) == {State.CANCELLED}
    assert world.names(keys.READY) == []


def test_what_nothing_can_be_done_about_does_not_keep_the_rest_waiting(world: World) -> None:
    """Entries of a submitter who died in the middle of a large batch, and broken records."""
    request = make_request(["true"] * 30, Spec(command=""), batch=True)
    dying = world.repo_over(mortal(world.store, at=2, applied=True))
    with pytest.raises(Crash):
        submit(dying, run_id="dead", request=request, submitter="ada")
    for number in range(30):
        world.store.put(f"queue/{'a' * 16}-{number:02}.json", b"\xff")
    world.clock.sleep(-60)  # an older job sorts behind a newer one
    job = world.submit()
    record = world.record(State.QUEUED, job)
    world.repo.delete_entry(record)
    other = world.submit()
    orphan = world.record(State.QUEUED, other)
    world.end(world.claimed_of(other))
    add_entry(world, orphan)
    repair = Repair(world.repo, slice_size=2)
    for _ in range(20):
        repair.turn()
    assert entry_key(record) in world.names(keys.READY)
    assert entry_key(orphan) not in world.names(keys.READY)


def test_an_unreadable_record_costs_its_own_job_only_and_is_named(world: World) -> None:
    """A19"""
    jobs = sorted(world.submit() for _ in range(3))
    for job in jobs:
        world.repo.delete_entry(world.record(State.QUEUED, job))
    broken = keys.record(State.QUEUED, jobs[0])
    world.store.put(broken, world.store.get(broken).data[:-9])
    report = Repair(world.repo).turn()
    assert report.unreadable == [broken]
    assert [entry.job_id for entry in world.entries()] == sorted(
        jobs[1:], key=lambda job: world.record(State.QUEUED, job).queued_ms
    )


def test_an_unreadable_cell_costs_its_own_job_only(world: World) -> None:
    """A19"""
    jobs = sorted([world.submit(), world.submit()])
    world.store.put(keys.claim_cell(jobs[0], 1), b"{")
    world.repo.delete_entry(world.record(State.QUEUED, jobs[1]))
    report = Repair(world.repo).turn()
    assert report.unreadable == [keys.claim_cell(jobs[0], 1)]
    assert report.entries_written == 1


@pytest.mark.parametrize("seed", range(6))
def test_listings_that_drop_and_repeat_pages_make_nothing_run_twice(seed: int) -> None:
    """A15"""
    world = World(entropy=FakeEntropy(seed))
    faults = {
        Fault(FaultKind.DROPPED_PAGE, Operation.LIST): 0.2,
        Fault(FaultKind.REPEATED_PAGE, Operation.LIST): 0.2,
        Fault(FaultKind.STALE_PAGE, Operation.LIST): 0.2,
    }
    plan = RandomFaults(FakeEntropy(seed), faults)
    world.repo = world.repo_over(FaultyStore(world.store, world.clock, plan))
    count = 60
    base = world.submit(*["true"] * count)
    repair, started = Repair(world.repo), []
    for _ in range(40):
        repair.turn()
        for entry in world.entries():
            claimed = claim(world.repo, entry, BOB)
            if claimed is not None:
                started.append(claimed.record.id)
                end(world.repo, claimed)
        request = make_request(["true"] * count, Spec(command=""), batch=True)
        assert submit(world.repo, run_id="run-1", request=request, submitter="ada").base_id == base
    plan.active = False
    heal(world, f"{base}-01")
    assert len(started) == len(set(started)) == count
    assert len(world.names("completed/")) == count
    assert world.names("queue/") == world.names("running/") == world.names(keys.READY) == []


@pytest.mark.parametrize("at", range(12))
@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.LATE])
def test_two_repairs_and_late_writes_agree_in_the_end(at: int, kind: FaultKind) -> None:
    world = World()
    job = world.submit()
    record = world.record(State.QUEUED, job)
    claim_for_intent(world.repo, record, intent=Intent.CANCEL, by="ada")
    store = FaultyStore(world.store, world.clock, ScriptedFaults(Fault(kind, skip=at)))
    with contextlib.suppress(StoreError):
        Repair(world.repo_over(store)).turn()
    Repair(world.repo).turn()
    store.land_late_writes()
    assert world.find(job).state is State.CANCELLED
    assert heal(world, job) == []


def test_a_queue_record_that_was_lost_after_a_verdict_is_written_again(world: World) -> None:
    """What a store without delete-by-version may lose: its entry and the verdict before it stay."""
    job = world.submit()
    claimed = world.start()
    lose(world, claimed.record)
    settle(world.repo, job, 1)
    world.store.delete(keys.record(State.QUEUED, job), None)
    Repair(world.repo).turn()
    assert world.record(State.QUEUED, job).epoch == 2


def test_a_job_of_which_there_is_no_trace_is_queued_for_the_first_time_again(world: World) -> None:
    job = world.submit()
    record = world.record(State.QUEUED, job)
    world.store.delete(keys.record(State.QUEUED, job), None)
    world.clock.sleep(1000)
    sweep = SubmissionSweep(world.repo)
    assert sweep.turn() == [record.run_id]
    assert world.record(State.QUEUED, job) == record
    assert sweep.turn() == []


def test_a_record_under_a_name_that_no_job_has_is_left_alone(world: World) -> None:
    """A copy of a queue record, made by hand, is no second job."""
    job = world.submit()
    record = world.record(State.QUEUED, job)
    world.store.put(f"queue/{job}.old.json", record.encode())
    world.end(world.start())
    assert not Repair(world.repo).turn().changed
    assert world.names(keys.READY) == []


def refusing(world: World, *job_ids: str) -> Repository:
    """Over a store that refuses to list the cells of these jobs."""
    faults = [
        Fault(FaultKind.DENIED, Operation.LIST, keys.cells(job_id), times=99) for job_id in job_ids
    ]
    return world.repo_over(FaultyStore(world.store, world.clock, ScriptedFaults(*faults)))


def test_a_job_that_the_store_refuses_costs_no_other_its_turn(world: World) -> None:
    jobs = sorted(world.submit() for _ in range(3))
    for job in jobs:
        world.repo.delete_entry(world.record(State.QUEUED, job))
    report = Repair(refusing(world, jobs[0])).turn()
    assert report.failed == jobs[:1]
    assert sorted(entry.job_id for entry in world.entries()) == jobs[1:]


def test_several_that_fail_end_the_turn_and_the_next_goes_on_after_them(world: World) -> None:
    """A store that is away would cost its time limit for each."""
    jobs = sorted(world.submit() for _ in range(5))
    for job in jobs:
        world.repo.delete_entry(world.record(State.QUEUED, job))
    repair = Repair(refusing(world, *jobs[:3]))
    with pytest.raises(Denied):
        repair.turn()
    with contextlib.suppress(Denied):
        repair.turn()
    assert sorted(entry.job_id for entry in world.entries()) == jobs[3:]


def slow(world: World) -> Repository:
    """Over a store whose every listing of cells takes a second."""
    pace = Fault(FaultKind.DELAY, Operation.LIST, "status/", seconds=1.0, times=999)
    return world.repo_over(FaultyStore(world.store, world.clock, ScriptedFaults(pace)))


def test_a_turn_ends_in_time_and_the_next_goes_on_where_it_stopped(world: World) -> None:
    for _ in range(5):
        world.repo.delete_entry(world.record(State.QUEUED, world.submit()))
    repair = Repair(slow(world), turn_seconds=2.0)
    written = [repair.turn().entries_written for _ in range(4)]
    assert max(written) <= 2
    assert sum(written) == 5


def test_a_repair_that_has_one_turn_begins_anywhere(world: World) -> None:
    """Else those that run once would all look at the same jobs."""
    for number in range(8):
        world.store.put(f"queue/{'a' * 16}-{number}.json", b"broken")
    job = world.submit()
    world.repo.delete_entry(world.record(State.QUEUED, job))
    for _ in range(20):
        Repair(world.repo, slice_size=1).turn()
    assert world.entries() == []
    for _ in range(20):
        Repair(world.repo, slice_size=1, once=True).turn()
    assert [entry.job_id for entry in world.entries()] == [job]
