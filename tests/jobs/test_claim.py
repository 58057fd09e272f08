from __future__ import annotations

import threading

import pytest

from stado.core import keys
from stado.core.envelope import required_facts
from stado.core.order import entry_key
from stado.core.records import Intent, Phase
from stado.core.spec import PRIORITY_MAX, Spec
from stado.core.states import State
from stado.errors import Ambiguous, Exists, StoreError, Unreadable
from stado.jobs.claim import Claimant, Claimed, Place, adopt, claim, holder_of
from stado.jobs.endings import as_queued_last, claim_for_intent
from stado.jobs.life import LifeSigns, seal_epoch
from stado.jobs.listings import newest
from stado.jobs.queue_index import read_page
from stado.jobs.reaping import Reaper
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.observe import CountingStore, Operation
from tests.jobs.actors import Actor, GuardedStore
from tests.jobs.world import ALICE, BOB, World, entry_of, heal


def test_a_claimed_job_is_running_and_nowhere_else(world: World) -> None:
    """R68, R175, R210, T6"""
    job = world.submit()
    claimed = world.start()
    assert world.states(job) == {State.RUNNING}
    assert world.names(keys.READY) == []
    assert world.names(keys.cells(job)) == [keys.claim_cell(job, 1)]
    assert world.repo.claim_cell(job, 1).token == claimed.token
    assert world.repo.claim_cell(job, 1).record == claimed.record


def test_a_host_that_lacks_one_of_five_things_that_are_asked_for_does_not_claim(
    world: World,
) -> None:
    """Its entry's name has room for four of them: the record says the fifth."""
    labels = ["a=1", "b=2", "c=3", "d=4"]
    spec = Spec(command="true", labels=labels, machine_type="large")
    job = world.submit(spec=spec)
    (entry,) = world.entries()
    facts = frozenset(required_facts(spec))
    lacking = (claim(world.repo, entry, ALICE, None, Place(facts=facts - {one})) for one in facts)
    assert list(lacking) == [None] * 5
    assert world.states(job) == {State.QUEUED}
    assert claim(world.repo, entry, ALICE, None, Place(facts=facts)) is not None


def test_of_many_claimers_one_wins() -> None:
    """R176"""
    for _ in range(20):
        world = World()
        world.submit()
        won = claim_in_threads(world, 16)
        assert len(won) == 1
        assert world.repo.claim_cell(won[0].record.id, 1).token == won[0].token


def claim_in_threads(world: World, count: int) -> list[Claimed]:
    (entry,) = world.entries()
    answers: list[Claimed | None] = []

    def attempt(name: str) -> None:
        answers.append(claim(world.repo, entry, Claimant(name, name, name)))

    threads = [threading.Thread(target=attempt, args=(f"agent-{n}",)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == count
    return [answer for answer in answers if answer is not None]


def test_the_new_record_is_written_before_the_old_one_is_deleted() -> None:
    """R177: a look between any two requests finds the job under some prefix."""
    world = World()
    job = world.submit()
    seen: list[set[State]] = []
    watched = GuardedStore(world.store, after=lambda *_: seen.append(world.states(job)))
    (entry,) = world.entries()
    claimed = claim(world.repo_over(watched), entry, ALICE)
    assert claimed is not None
    world.end(claimed)
    assert all(seen)
    assert {State.QUEUED, State.RUNNING} in seen


def test_claim_and_first_beat_make_3_writes_1_read_2_deletes(world: World) -> None:
    world.submit()
    (entry,) = world.entries()
    counting = CountingStore(world.store, world.tasks)
    repo = world.repo_over(counting)
    claimed = claim(repo, entry, ALICE)
    assert claimed is not None
    assert LifeSigns(repo, claimed.record).beat(Phase.PREPARING, None)
    asked = counting.snapshot()
    assert (asked.writes, asked.reads, asked.deletes, asked.lists) == (3, 1, 2, 0)


def test_a_check_in_makes_1_write_1_read(world: World) -> None:
    world.submit()
    counting = CountingStore(world.store, world.tasks)
    signs = LifeSigns(world.repo_over(counting), world.start().record)
    signs.beat(Phase.RUNNING, None)
    before = counting.snapshot()
    assert signs.beat(Phase.RUNNING, None)
    assert signs.asked() is None
    asked = counting.since(before)
    assert (asked.writes, asked.reads, asked.of()) == (1, 1, 2)


def test_the_head_of_the_queue_is_one_listing_by_priority_then_age(world: World) -> None:
    jobs = []
    for priority in (0, 5, PRIORITY_MAX, 5):
        jobs.append(world.submit(spec=Spec(command="", priority=priority)))
        world.clock.sleep(1)
    counting = CountingStore(world.store, world.tasks)
    page = read_page(world.repo_over(counting))
    assert [entry.job_id for entry in page.entries] == [jobs[2], jobs[1], jobs[3], jobs[0]]
    assert counting.snapshot().of(Operation.LIST) == counting.snapshot().of() == 1


def test_pages_follow_each_other(world: World) -> None:
    world.submit(*[f"echo {number}" for number in range(5)])
    first = read_page(world.repo, limit=3)
    assert first.next_after is not None
    rest = read_page(world.repo, start_after=first.next_after, limit=3)
    assert (len(first.entries), len(rest.entries), rest.next_after) == (3, 2, None)


def test_a_stale_entry_admits_nothing_and_is_mended(world: World) -> None:
    """R149: an entry that its queue record does not compute to."""
    job = world.submit()
    record = world.record(State.QUEUED, job)
    wrong = record.evolve(nonce="other")
    world.repo.create_entry(wrong)
    world.repo.delete_entry(record)
    assert claim(world.repo, entry_of(wrong), ALICE) is None
    assert world.names(keys.READY) == [entry_key(record)]
    assert world.states(job) == {State.QUEUED}


def test_an_entry_of_a_job_that_was_claimed_since_the_listing_admits_nothing(
    world: World,
) -> None:
    job = world.submit()
    (entry,) = world.entries()
    claimed = world.start(ALICE)
    assert claim(world.repo, entry, BOB) is None
    world.end(claimed)
    assert claim(world.repo, entry, BOB) is None
    assert world.states(job) == {State.COMPLETED}


@pytest.mark.parametrize("stalled_after", range(1, 6))
def test_a_claimer_that_stalls_while_the_job_runs_elsewhere_gets_nothing(
    stalled_after: int,
) -> None:
    """R176"""
    world = World()
    job = world.submit()
    (entry,) = world.entries()
    slow = Actor(world.store, lambda store: claim(world.repo_over(store), entry, ALICE))
    slow.step(stalled_after)
    other = claim(world.repo, entry, BOB)
    if other is not None:
        world.end(other)
    slow.finish()
    assert (slow.result is None) == (other is not None)
    if other is not None:
        assert world.states(job) == {State.COMPLETED}
        assert world.names(keys.READY) == []


def test_a_running_record_that_lands_after_the_end_is_settled_away(world: World) -> None:
    """H03: a create of `running/` whose caller saw a time-out long ago."""
    job = world.submit()
    (entry,) = world.entries()
    store = FaultyStore(
        world.store, world.clock, ScriptedFaults(Fault(FaultKind.LATE, key_prefix="running/"))
    )
    with pytest.raises(Ambiguous):
        claim(world.repo_over(store), entry, ALICE)
    world.end(world.start(BOB))
    store.land_late_writes()
    assert world.states(job) == {State.RUNNING, State.COMPLETED}
    assert world.find(job).state is State.COMPLETED
    assert heal(world, job) == []


def test_a_ghost_of_an_ended_epoch_does_not_bar_the_next(world: World) -> None:
    job = world.submit()
    ghost = world.start(ALICE).record
    entry = world.entries()
    assert entry == []
    world.lose(reaper(world))
    world.store.create(keys.record(State.RUNNING, job), ghost.encode())
    claimed = world.start(BOB)
    assert (claimed.record.epoch, claimed.record.holder) != (1, ghost.holder)
    assert world.record(State.RUNNING, job) == claimed.record


def test_a_worker_does_not_take_its_own_ghost_for_its_claim(world: World) -> None:
    """A running record without a cell is nobody's until its epoch has ended."""
    job = world.submit()
    (entry,) = world.entries()
    fault = Fault(FaultKind.LOST_REQUEST, key_prefix=keys.cells(job))
    with pytest.raises(Ambiguous):
        claim(
            world.repo_over(FaultyStore(world.store, world.clock, ScriptedFaults(fault))),
            entry,
            ALICE,
        )
    assert claim(world.repo, entry, ALICE) is None


def test_a_claim_stands_though_the_queue_record_could_not_be_removed(world: World) -> None:
    """The epoch is ours with the cell; what is left in the queue is removed by whoever meets it."""
    job = world.submit()
    (entry,) = world.entries()
    fault = Fault(FaultKind.UNAVAILABLE, Operation.DELETE)
    store = FaultyStore(world.store, world.clock, ScriptedFaults(fault))
    claimed = claim(world.repo_over(store), entry, ALICE)
    assert claimed is not None
    assert world.states(job) == {State.QUEUED, State.RUNNING}
    assert world.find(job).state is State.RUNNING
    world.end(claimed)
    assert heal(world, job) == []


def test_a_claim_that_could_not_look_at_what_changed_says_so(world: World) -> None:
    """H38: whoever gives the verdict for it looks again."""
    job = world.submit()
    (entry,) = world.entries()

    def prioritize(operation: Operation, key: str) -> None:
        if key == keys.claim_cell(job, 1):
            found = world.repo.find_record(State.QUEUED, job)
            assert found is not None
            changed = found.value.evolve(priority=5, nonce="later")
            world.store.replace(found.value.own_key(), changed.encode(), found.version)

    fault = Fault(FaultKind.UNAVAILABLE, Operation.GET, keys.prefix(State.QUEUED), skip=1)
    faulty = FaultyStore(world.store, world.clock, ScriptedFaults(fault))
    claimed = claim(world.repo_over(GuardedStore(faulty, before=prioritize)), entry, ALICE)
    assert claimed is not None
    assert (claimed.left_in_queue, claimed.record.priority) == (True, 0)
    assert as_queued_last(world.repo, claimed.record).priority == 5
    world.end(claimed)
    assert heal(world, job) == []


def test_an_unreadable_queue_record_costs_its_own_job_only(world: World) -> None:
    """A19"""
    jobs = []
    for _ in range(4):
        jobs.append(world.submit())
        world.clock.sleep(1)
    truncated, mangled = (keys.record(State.QUEUED, job) for job in jobs[:2])
    world.store.put(truncated, world.store.get(truncated).data[:50])
    world.store.put(mangled, b"\xff\xfe")
    for entry in world.entries()[:2]:
        with pytest.raises(Unreadable, match=entry.job_id):
            claim(world.repo, entry, ALICE)
    for entry in world.entries()[2:]:
        assert claim(world.repo, entry, ALICE) is not None
    rows = {row.job_id: row for row in newest(world.repo, limit=10).rows}
    assert set(rows) == set(jobs)
    for job in jobs[:2]:
        assert rows[job].record is None
        assert rows[job].state is State.QUEUED
        assert keys.record(State.QUEUED, job) in (rows[job].problem or "")
    assert all(rows[job].problem is None for job in jobs[2:])


def test_the_first_beat_of_a_later_epoch_replaces_the_seal_of_the_one_before(
    world: World,
) -> None:
    world.submit()
    first = world.start(ALICE)
    signs = LifeSigns(world.repo, first.record)
    assert signs.beat(Phase.RUNNING, None)
    world.lose(reaper(world))
    second = world.start(BOB)
    assert second.record.epoch == 2
    assert not signs.beat(Phase.RUNNING, None)
    found = world.repo.find_heartbeat(first.record.id)
    assert found is not None
    assert (found.value.epoch, found.value.token) == (2, second.token)


def test_a_seal_is_final(world: World) -> None:
    """R176: no beat replaces it, however often and by whichever path it comes."""
    job = world.submit()
    record = world.start().record
    signs = LifeSigns(world.repo, record)
    assert signs.beat(Phase.RUNNING, None)
    assert seal_epoch(world.repo, record, world.repo.find_heartbeat(job), by="r") is not None
    sealed = world.store.get(keys.heartbeat(job))
    assert not signs.beat(Phase.RUNNING, None)
    assert not LifeSigns(world.repo, record).beat(Phase.RUNNING, None)
    assert world.store.get(keys.heartbeat(job)) == sealed


def test_a_seal_before_the_first_beat_is_final_too(world: World) -> None:
    job = world.submit()
    claimed = world.claim()
    assert claimed is not None
    assert seal_epoch(world.repo, claimed.record, None, by="r") is not None
    assert not LifeSigns(world.repo, claimed.record).beat(Phase.RUNNING, None)
    found = world.repo.find_heartbeat(job)
    assert found is not None
    assert found.value.sealed


def test_a_beat_wins_against_a_seal_that_was_judged_before_it(world: World) -> None:
    job = world.submit()
    record = world.start().record
    judged = world.repo.find_heartbeat(job)
    assert LifeSigns(world.repo, record).beat(Phase.RUNNING, None)
    assert seal_epoch(world.repo, record, judged, by="r") is None
    found = world.repo.find_heartbeat(job)
    assert found is not None
    assert not found.value.sealed


def test_an_epoch_has_the_beats_of_one_holder(world: World) -> None:
    """R176: the cell lets in one; should a store ever let in two, the second is refused here."""
    world.submit()
    record = world.start().record
    assert record.holder is not None
    other = record.evolve(holder=holder_of(world.repo, ALICE))
    assert not LifeSigns(world.repo, other).beat(Phase.RUNNING, None)
    found = world.repo.find_heartbeat(record.id)
    assert found is not None
    assert found.value.token == record.holder.token


def test_two_sealers_agree(world: World) -> None:
    job = world.submit()
    record = world.start().record
    judged = world.repo.find_heartbeat(job)
    one = seal_epoch(world.repo, record, judged, by="r")
    other = seal_epoch(world.repo, record, judged, by="s")
    assert one is not None
    assert one == other


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST])
@pytest.mark.parametrize("skip", range(3))
def test_a_beat_without_an_answer_is_followed_by_one_with(
    world: World, kind: FaultKind, skip: int
) -> None:
    job = world.submit()
    claimed = world.claim()
    assert claimed is not None
    fault = Fault(kind, key_prefix=keys.heartbeat(job), skip=skip)
    repo = world.repo_over(FaultyStore(world.store, world.clock, ScriptedFaults(fault)))
    signs = LifeSigns(repo, claimed.record)
    for _ in range(4):
        try:
            assert signs.beat(Phase.RUNNING, None)
        except StoreError:
            continue
    found = world.repo.find_heartbeat(job)
    assert found is not None
    assert found.value.counter == 4


def test_a_living_process_adopts_the_epoch_that_follows_its_lost_one(world: World) -> None:
    job = world.submit()
    holder = world.start(ALICE).record.holder
    world.lose(reaper(world))
    adopted = adopt(
        world.repo, world.record(State.QUEUED, job), holder_of(world.repo, ALICE, adopts=holder)
    )
    assert adopted is not None
    assert adopted.record.epoch == 2
    assert world.states(job) == {State.RUNNING}
    assert adopt(world.repo, adopted.record, holder_of(world.repo, ALICE)) is None


def test_a_claimer_declared_lost_before_its_cell_cannot_beat(world: World) -> None:
    """R176: it wins the cell of an epoch that is over, and that is all it wins."""
    job = world.submit()
    (entry,) = world.entries()
    slow = Actor(world.store, lambda store: claim(world.repo_over(store), entry, ALICE))
    slow.step(2)
    world.lose(reaper(world))
    successor = world.start(BOB)
    slow.finish()
    late = slow.result
    assert isinstance(late, Claimed)
    assert not LifeSigns(world.repo, late.record).beat(Phase.PREPARING, None)
    assert world.record(State.RUNNING, job) == successor.record
    world.end(successor)
    assert heal(world, job) == []


def reaper(world: World) -> Reaper:
    return Reaper(world.repo, by="coordinator")


def test_a_claimer_finishes_the_intent_that_it_meets(world: World) -> None:
    """The canceller died between its claim and the verdict."""
    job = world.submit()
    (entry,) = world.entries()
    record = world.record(State.QUEUED, job)
    assert claim_for_intent(world.repo, record, intent=Intent.CANCEL, by="ada")
    assert claim(world.repo, entry, ALICE) is None
    assert world.states(job) == {State.CANCELLED}
    assert world.names(keys.READY) == []


@pytest.mark.parametrize("key", [keys.record(State.RUNNING, ""), "status/"], ids=["gate", "cell"])
def test_a_claimer_knows_its_own_token_again(world: World, key: str) -> None:
    """A store may have applied a create of which it says that somebody else was there first."""
    job = world.submit()

    def deny_it(operation: Operation, told: str) -> None:
        if operation is Operation.CREATE and told.startswith(key.removesuffix(".json")):
            raise Exists(told)

    (entry,) = world.entries()
    claimed = claim(world.repo_over(GuardedStore(world.store, after=deny_it)), entry, ALICE)
    assert claimed is not None
    assert world.repo.claim_cell(job, 1).token == claimed.token
    assert world.states(job) == {State.RUNNING}
    world.end(claimed)
    assert world.states(job) == {State.COMPLETED}
