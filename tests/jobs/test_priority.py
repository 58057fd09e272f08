"""A queued job's priority, changed."""

from __future__ import annotations

import pytest

from stado.core import keys
from stado.core.order import entry_key
from stado.core.records import PRIORITY_CHANGES_MAX, PriorityChange
from stado.core.spec import PRIORITY_MAX, After, Spec
from stado.core.states import AfterWhen, State
from stado.errors import Ambiguous, NotFound, Refused
from stado.jobs.priority import NotQueued, set_priority
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.observe import CountingStore, Operation
from tests.jobs.actors import GuardedStore
from tests.jobs.world import World

UNCLEAR = [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.LATE]


def test_a_job_goes_to_the_place_that_its_priority_gives_it(world: World) -> None:
    """R141, R142, R143, R147: up to the largest number that 63 bits hold, and back; one that has
    another's priority stands by its age."""
    first, second, third = (world.submit() for _ in range(3))
    set_priority(world.repo, third, PRIORITY_MAX, by="ada")
    assert [entry.job_id for entry in world.entries()] == [third, first, second]
    set_priority(world.repo, second, PRIORITY_MAX - 1, by="ada")
    assert [entry.job_id for entry in world.entries()] == [third, second, first]
    set_priority(world.repo, third, 0, by="ada")
    assert [entry.job_id for entry in world.entries()] == [second, first, third]
    assert [entry.priority for entry in world.entries()] == [PRIORITY_MAX - 1, 0, 0]


def test_the_receipt_of_a_change_says_who_and_what_and_stays_with_the_job(world: World) -> None:
    """R143, R146."""
    job = world.submit(spec=Spec(command="", priority=2))
    receipt = set_priority(world.repo, job, 5, by="ada")
    change = PriorityChange(at=world.store.now(), by="ada", epoch=1, before=2, after=5)
    assert (receipt.record.state, receipt.change, receipt.changed_now) == (
        State.QUEUED,
        change,
        True,
    )
    ended = world.end(world.claimed_of(job))
    assert ended.priority_changes == [change]


def test_what_a_job_was_asked_to_be_stays_as_it_is(world: World) -> None:
    """R143: it is not submitted anew: its id, its age, its spec and its epoch are the same."""
    job = world.submit(spec=Spec(command="", priority=2))
    before = world.record(State.QUEUED, job)
    after = set_priority(world.repo, job, 5, by="ada").record
    assert after.nonce != before.nonce
    same = after.evolve(priority=2, nonce=before.nonce, priority_changes=[])
    assert same == before


def test_a_job_that_has_the_priority_already_is_left_alone(world: World) -> None:
    job = world.submit(spec=Spec(command="", priority=5))
    before = world.record(State.QUEUED, job)
    receipt = set_priority(world.repo, job, 5, by="bob")
    assert (receipt.change, receipt.changed_now) == (None, False)
    assert world.record(State.QUEUED, job) == before
    set_priority(world.repo, job, 6, by="ada")
    again = set_priority(world.repo, job, 6, by="bob")
    assert (again.changed_now, again.change and again.change.by) == (False, "ada")


@pytest.mark.parametrize(
    ("priority", "code", "text"),
    [
        (-1, "priority_negative", "job priority -1 must be nonnegative"),
        (-(2**63), "priority_negative", f"job priority {-(2**63)} must be nonnegative"),
        (2**63, "priority_too_large", f"job priority {2**63} is above the largest, {2**63 - 1}"),
    ],
)
def test_what_is_no_priority_is_refused_in_these_words(
    world: World, priority: int, code: str, text: str
) -> None:
    """R141, R144."""
    job = world.submit()
    with pytest.raises(Refused) as refused:
        set_priority(world.repo, job, priority, by="ada")
    assert (refused.value.code, refused.value.text) == (code, text)
    assert world.record(State.QUEUED, job).priority == 0


def test_a_job_that_is_not_queued_is_refused_with_its_state(world: World) -> None:
    """R145."""
    job = world.submit()
    claimed = world.start()
    with pytest.raises(NotQueued, match=f"job {job} is running, and not queued") as running:
        set_priority(world.repo, job, 5, by="ada")
    assert running.value.record.state is State.RUNNING
    world.end(claimed)
    with pytest.raises(NotQueued, match="is completed"):
        set_priority(world.repo, job, 5, by="ada")
    assert world.states(job) == {State.COMPLETED}
    with pytest.raises(NotFound):
        set_priority(world.repo, "z" * 16, 5, by="ada")


def test_the_newest_changes_are_kept(world: World) -> None:
    """R146: as many as a record holds."""
    job = world.submit()
    for priority in range(1, PRIORITY_CHANGES_MAX + 3):
        set_priority(world.repo, job, priority, by="ada")
    kept = world.record(State.QUEUED, job).priority_changes
    assert len(kept) == PRIORITY_CHANGES_MAX
    assert [change.after for change in kept] == list(range(3, PRIORITY_CHANGES_MAX + 3))


def test_a_job_that_waits_for_another_is_moved_among_those(world: World) -> None:
    """And has one entry, when it is let go too."""
    parent = world.submit()
    after = [After(job_id=parent, when=AfterWhen.OK)]
    job = world.submit(spec=Spec(command="", after=after))
    set_priority(world.repo, job, 5, by="ada")
    assert [entry.priority for entry in world.entries() if entry.waits] == [5]
    world.end(world.claimed_of(parent))
    record = world.record(State.QUEUED, job)
    assert world.names(keys.READY) == [entry_key(record)]
    assert (record.priority, record.awaits) == (5, [])


# --- answers that do not come -------------------------------------------------------------------


def unclear(world: World, kind: FaultKind) -> FaultyStore:
    fault = Fault(kind, Operation.REPLACE, keys.prefix(State.QUEUED))
    return FaultyStore(world.store, world.clock, ScriptedFaults(fault))


@pytest.mark.parametrize("kind", UNCLEAR)
def test_a_write_without_an_answer_is_looked_up(world: World, kind: FaultKind) -> None:
    """R143: whether it was applied, was not, or will be, the change is made once and never called
    a failure."""
    job = world.submit()
    store = unclear(world, kind)
    receipt = set_priority(world.repo_over(store), job, 5, by="ada")
    store.land_late_writes()
    assert (receipt.changed_now, receipt.change and receipt.change.after) == (True, 5)
    record = world.record(State.QUEUED, job)
    assert (record.priority, len(record.priority_changes)) == (5, 1)
    assert world.names(keys.READY) == [entry_key(record)]


@pytest.mark.parametrize("kind", UNCLEAR)
def test_a_job_that_left_the_queue_before_it_could_be_looked_up_is_not_called_unchanged(
    world: World, kind: FaultKind
) -> None:
    """R145: it may have been changed first."""
    job = world.submit()

    def leave(operation: Operation, key: str) -> None:
        if operation is Operation.REPLACE and key.startswith(keys.prefix(State.QUEUED)):
            assert world.claim() or world.claim()

    store = GuardedStore(unclear(world, kind), after=leave)
    with pytest.raises(Ambiguous, match="is running, and not queued"):
        set_priority(world.repo_over(store), job, 5, by="ada")
    assert world.states(job) == {State.RUNNING}


def test_a_store_that_goes_away_behind_the_change_leaves_the_outcome_open(world: World) -> None:
    """The same command says what has become of it, and writes the entry."""
    job = world.submit()
    fault = Fault(FaultKind.UNAVAILABLE, Operation.CREATE, keys.READY)
    store = FaultyStore(world.store, world.clock, ScriptedFaults(fault))
    with pytest.raises(Ambiguous, match="the priority is 5 if the job has not left the queue"):
        set_priority(world.repo_over(store), job, 5, by="ada")
    assert set_priority(world.repo, job, 5, by="ada").record.priority == 5
    assert entry_key(world.record(State.QUEUED, job)) in world.names(keys.READY)


def test_a_change_makes_the_requests_of_the_protocol(world: World) -> None:
    job = world.submit()
    counting = CountingStore(world.store, world.tasks)
    set_priority(world.repo_over(counting), job, 5, by="ada")
    asked = counting.snapshot()
    finding_it = 2
    assert (asked.writes, asked.deletes) == (2, 1)
    assert asked.of() == 2 + 1 + 1 + 1 + finding_it
