"""The index of the queue: no job that waits is ever without the entry that leads to it."""

from __future__ import annotations

from stado.core import keys
from stado.core.order import entry_key
from stado.core.records import Record
from stado.core.spec import Spec, make_request
from stado.core.states import State
from stado.jobs.changes import cancel
from stado.jobs.claim import claim
from stado.jobs.endings import settle
from stado.jobs.queue_index import Repair
from stado.jobs.submit import submit
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.observe import Operation
from stado.storage.port import Store
from tests.holes.staging import lose_unsettled, slow_claimer, steps_to_write
from tests.jobs.actors import Actor, GuardedStore
from tests.jobs.world import ALICE, BOB, World, entry_of, heal


def change_priority(world: World, store: Store, priority: int) -> None:
    """As a change of a queue record has to be made: record, new entry, old entry."""
    repo = world.repo_over(store)
    (job,) = [keys.job_of_record(entry.key) for entry in repo.walk_records(State.QUEUED)]
    found = repo.find_record(State.QUEUED, job)
    assert found is not None
    changed = found.value.evolve(priority=priority, nonce=repo.entropy.letters(8))
    repo.store.replace(keys.record(State.QUEUED, job), changed.encode(), found.version)
    repo.create_entry(changed)
    repo.delete_entry(found.value)


def test_two_changes_that_cross_leave_the_entry_of_the_record(world: World) -> None:
    """H08: the priority goes up and down again; the slower changer deletes the old entry last."""
    job = world.submit()
    up = Actor(world.store, lambda store: change_priority(world, store, 5))
    assert steps_to_write(up, entry_key(world.record(State.QUEUED, job)))
    change_priority(world, world.store, 0)
    up.finish()
    record = world.record(State.QUEUED, job)
    assert world.names(keys.READY) == [entry_key(record)]
    assert claim(world.repo, entry_of(record), ALICE) is not None


def test_the_right_entry_is_written_before_a_wrong_one_is_deleted(world: World) -> None:
    """R148, H08: by a claimer that meets the wrong one, and by repair."""
    for mend in (mend_as_claimer, mend_as_repair):
        world = World()
        job = world.submit()
        right = world.record(State.QUEUED, job)
        wrong = right.evolve(nonce="other")
        world.repo.create_entry(wrong)
        world.repo.delete_entry(right)
        seen: list[list[str]] = []
        watched = GuardedStore(
            world.store,
            after=lambda *_, w=world, s=seen: s.append(w.names(keys.READY)),
        )
        mend(world, watched, wrong)
        assert all(seen)
        assert seen[-1] == [entry_key(right)]


def mend_as_claimer(world: World, store: Store, wrong: Record) -> None:
    assert claim(world.repo_over(store), entry_of(wrong), BOB) is None


def mend_as_repair(world: World, store: Store, wrong: Record) -> None:
    assert Repair(world.repo_over(store)).turn().entries_written == 1


def test_the_entry_of_a_slow_submitter_is_left(world: World) -> None:
    """H14: he has written the entry, and not yet the record."""

    def work(store: Store) -> object:
        request = make_request(["true"], Spec(command=""), batch=False)
        return submit(world.repo_over(store), run_id="slow", request=request, submitter="ada")

    slow = Actor(world.store, work)
    assert steps_to_write(slow, "queue/")
    (entry,) = world.names(keys.READY)
    Repair(world.repo).turn()
    slow.finish()
    assert world.names(keys.READY) == [entry]
    assert world.claim() is not None


def settler_that_died_before_the_record(world: World) -> str:
    """The entry of epoch 2 is there, its queue record is not; nor has anybody else one."""
    job = world.submit()
    world.start()
    lose_unsettled(world, job)
    dying = Actor(world.store, lambda store: settle(world.repo_over(store), job, 1))
    assert steps_to_write(dying, keys.record(State.QUEUED, job))
    dying.kill()
    assert [entry.epoch for entry in world.entries()] == [2]
    assert world.states(job) == {State.RUNNING}
    return job


def test_the_only_entry_of_a_job_whose_mover_died_is_left(world: World) -> None:
    """H19: and what it announces is done for the mover."""
    job = settler_that_died_before_the_record(world)
    Repair(world.repo).turn()
    second = world.record(State.QUEUED, job)
    assert second.epoch == 2
    assert world.names(keys.READY) == [entry_key(second)]
    assert heal(world, job) == [(job, 2)]


def test_a_claimer_leaves_the_entry_of_an_epoch_that_is_on_its_way(world: World) -> None:
    """H19: the mover sleeps between the entry of epoch 2 and its record; the queue still shows
    epoch 1, whose claimer died in the gate."""
    job = world.submit()
    slow_claimer(world, requests=2).kill()
    lose_unsettled(world, job)
    mover = Actor(world.store, lambda store: settle(world.repo_over(store), job, 1))
    assert steps_to_write(mover, keys.record(State.QUEUED, job))
    (on_its_way,) = [entry for entry in world.entries() if entry.epoch == 2]
    assert claim(world.repo, on_its_way, BOB) is None
    mover.finish()
    assert mover.error is None
    second = world.record(State.QUEUED, job)
    assert second.epoch == 2
    assert world.names(keys.READY) == [entry_key(second)]


def test_repair_leaves_the_entry_of_an_epoch_that_is_on_its_way(world: World) -> None:
    """H19: its listing of the cells is old, from before the verdict on epoch 1."""
    job = world.submit()
    slow_claimer(world, requests=2).kill()
    plan = ScriptedFaults()
    repair = Repair(world.repo_over(FaultyStore(world.store, world.clock, plan)))
    repair.turn()
    lose_unsettled(world, job)
    mover = Actor(world.store, lambda store: settle(world.repo_over(store), job, 1))
    assert steps_to_write(mover, keys.record(State.QUEUED, job))
    plan.add(Fault(FaultKind.STALE_PAGE, Operation.LIST, keys.cells(job)))
    repair.turn()
    assert plan.used_up
    mover.finish()
    second = world.record(State.QUEUED, job)
    assert second.epoch == 2
    assert world.names(keys.READY) == [entry_key(second)]


def test_a_cancel_is_not_dropped_when_the_mover_and_the_canceller_died(world: World) -> None:
    """H19: the intent in epoch 2 is all that there is of the cancel."""
    job = settler_that_died_before_the_record(world)
    canceller = Actor(world.store, lambda store: cancel(world.repo_over(store), job, by="ada"))
    assert steps_to_write(canceller, keys.end_cell(job, 2))
    canceller.kill()
    Repair(world.repo).turn()
    assert world.states(job) == {State.CANCELLED}
    assert heal(world, job) == []


def test_no_queue_record_is_ever_without_its_entry() -> None:
    """H23: neither a submitter's nor a settler's."""
    world = World()
    checks: list[str] = []

    def check(operation: Operation, key: str) -> None:
        for entry in world.repo.walk_records(State.QUEUED):
            record = world.record(State.QUEUED, keys.job_of_record(entry.key))
            assert entry_key(record) in world.names(keys.READY), (operation, key)
            checks.append(record.id)

    request = make_request(["true"], Spec(command=""), batch=False)
    watched = GuardedStore(world.store, after=check)
    submit(world.repo_over(watched), run_id="one", request=request, submitter="ada")
    (job,) = set(checks)
    world.start()
    lose_unsettled(world, job)
    checks.clear()
    settle(world.repo_over(watched), job, 1)
    assert checks


def test_a_priority_that_changed_under_a_claim_is_taken_over(world: World) -> None:
    """H08: and the changed record does not stay behind in the queue."""
    job = world.submit()
    claimer = slow_claimer(world, requests=3)
    change_priority(world, world.store, 5)
    claimer.finish()
    assert world.states(job) == {State.RUNNING}
    assert world.names(keys.READY) == []
    result = claimer.result
    assert getattr(result, "record", None) is not None
    assert result.record.priority == 5  # type: ignore[attr-defined]
