"""Jobs that wait for others to end are let go, or doomed, once: whoever dies, whoever is slow."""

from __future__ import annotations

import contextlib

import pytest

from stado.core import keys, moves
from stado.core.order import entry_key
from stado.core.pipelines import step_run_id
from stado.core.records import Awaited, Ending, Record
from stado.core.spec import After, Spec, Step, make_request
from stado.core.states import AfterWhen, Reason, State, Verdict
from stado.errors import Refused
from stado.jobs.changes import cancel, pause, resume, retry
from stado.jobs.claim import Claimed, claim
from stado.jobs.deletion import delete
from stado.jobs.dependents import replace_queued, tell_dependents, tell_end
from stado.jobs.endings import give_verdict, project, settle
from stado.jobs.queue_index import Repair
from stado.jobs.submit import submit
from stado.jobs.upkeep import Passes
from stado.pinning import Unpinned, pin
from stado.storage.observe import CountingStore, Operation
from tests.jobs.actors import Actor, Crash, GuardedStore, mortal
from tests.jobs.world import ALICE, World, end, entry_of

OK, ANY, FAIL = AfterWhen.OK, AfterWhen.ANY, AfterWhen.FAIL
FAILED = (Verdict.FAILED, Verdict.TIMED_OUT, Verdict.CANCELLED)


def after(*parents: str, when: AfterWhen = OK) -> Spec:
    return Spec(command="", after=[After(job_id=one, when=when) for one in sorted(parents)])


def queued(world: World, job: str) -> Record:
    return world.record(State.QUEUED, job)


def is_released(world: World, job: str) -> bool:
    record = queued(world, job)
    assert record.doomed_by is None
    assert entry_key(record) in world.names(keys.READY)
    return not record.awaits


def tick(world: World, times: int = 30) -> None:
    """A coordinator's passes, until all is done that can be done without a worker."""
    passes = Passes(world.repo, by="coordinator")
    for _ in range(times):
        passes.tick()
        world.clock.sleep(world.repo.deployment.tick_seconds)


def end_of(world: World, job: str, verdict: Verdict = Verdict.COMPLETED) -> Record:
    return world.end(world.claimed_of(job), verdict)


def test_a_job_waits_until_another_has_completed(world: World) -> None:
    """T1: nobody can have it before, though it stands in the queue."""
    parent = world.submit()
    child = world.submit(spec=after(parent))
    assert not is_released(world, child)
    assert claim(world.repo, entry_of(queued(world, child)), ALICE) is None
    end_of(world, parent)
    assert is_released(world, child)
    assert claim(world.repo, entry_of(queued(world, child)), ALICE) is not None
    assert world.names(keys.after_folder(parent)) == []


def test_a_job_whose_parents_have_ended_already_does_not_wait(world: World) -> None:
    parent = world.submit()
    end_of(world, parent)
    assert is_released(world, world.submit(spec=after(parent)))


def test_all_parents_have_to_end(world: World) -> None:
    first, second = world.submit(), world.submit()
    child = world.submit(spec=after(first, second))
    end_of(world, second)
    assert not is_released(world, child)
    end_of(world, first)
    assert is_released(world, child)
    assert {one.job_id for one in queued(world, child).met} == {first, second}


@pytest.mark.parametrize("verdict", [Verdict.COMPLETED, *FAILED])
@pytest.mark.parametrize("when", list(AfterWhen))
def test_which_end_lets_it_go_is_its_own_to_say(
    world: World, verdict: Verdict, when: AfterWhen
) -> None:
    """One that can come to nothing any more ends as failed, with the job that it waited for."""
    parent = world.submit()
    child = world.submit(spec=after(parent, when=when))
    end_of(world, parent, verdict)
    if when is ANY or (verdict is Verdict.COMPLETED) is (when is OK):
        assert is_released(world, child)
        return
    tick(world, 2)
    ending = world.record(State.FAILED, child).ending
    assert ending is not None
    assert ending.reason is Reason.UPSTREAM_FAILED
    assert parent in (ending.detail or "")
    assert world.states(child) == {State.FAILED}


def test_doom_goes_on_to_those_that_wait_for_the_doomed(world: World) -> None:
    parent = world.submit()
    child = world.submit(spec=after(parent))
    grandchild = world.submit(spec=after(child))
    end_of(world, parent, Verdict.FAILED)
    tick(world, 4)
    assert world.states(grandchild) == {State.FAILED}


@pytest.mark.parametrize("verdict", [Verdict.LOST, Verdict.PAUSED])
def test_what_only_interrupts_a_parent_is_no_end(world: World, verdict: Verdict) -> None:
    parent = world.submit()
    child = world.submit(spec=after(parent, when=ANY))
    end_of(world, parent, verdict)
    assert not is_released(world, child)


@pytest.mark.parametrize("at", range(1, 16))
def test_a_parent_that_ends_amid_the_submit_is_not_missed(at: int) -> None:
    """At each request of it."""
    world = World()
    parent = world.submit()
    claimed = world.claimed_of(parent)
    count = 0

    def before(operation: Operation, key: str) -> None:
        nonlocal count
        count += 1
        if count == at:
            world.end(claimed)

    request = make_request(["true"], after(parent), batch=False)
    store = GuardedStore(world.store, before=before)
    (child,) = submit(world.repo_over(store), run_id="x", request=request, submitter="ada").job_ids
    if count < at:
        world.end(claimed)
    assert is_released(world, child)


@pytest.mark.parametrize("at", range(1, 8))
def test_a_submit_amid_the_end_of_a_parent_is_not_missed(at: int) -> None:
    """At each request of who ends it."""
    world = World()
    parent = world.submit()
    claimed = world.claimed_of(parent)
    count = 0
    children: list[str] = []

    def before(operation: Operation, key: str) -> None:
        nonlocal count
        count += 1
        if count == at:
            children.append(world.submit(spec=after(parent)))

    end(world.repo_over(GuardedStore(world.store, before=before)), claimed)
    if not children:
        children.append(world.submit(spec=after(parent)))
    assert is_released(world, children[0])


@pytest.mark.parametrize("at", range(16))
@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
def test_a_settler_that_dies_at_any_request_leaves_nobody_waiting(at: int, applied: bool) -> None:
    world = World()
    parent = world.submit()
    child = world.submit(spec=after(parent))
    claimed = world.claimed_of(parent)
    with contextlib.suppress(Crash):
        end(world.repo_over(mortal(world.store, at=at, applied=applied)), claimed)
    if world.repo.find_end(parent, 1) is None:
        return  # it died before its verdict
    tick(world)
    assert is_released(world, child)
    assert len(world.names(keys.READY)) == 1


@pytest.mark.parametrize("at", range(14))
@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
def test_a_submitter_that_dies_at_any_request_leaves_nobody_waiting(at: int, applied: bool) -> None:
    """The parent has ended before: nobody else looks for those that wait."""
    world = World()
    parent = world.submit()
    end_of(world, parent)
    request = make_request(["true"], after(parent), batch=False)
    repo = world.repo_over(mortal(world.store, at=at, applied=applied))
    with contextlib.suppress(Crash):
        submit(repo, run_id="x", request=request, submitter="ada")
    tick(world)
    run = world.repo.find_run("x")
    if run is not None:
        assert is_released(world, run.value.base_id)


def test_who_tells_late_of_an_earlier_end_changes_nothing(world: World) -> None:
    """A settler of the parent's first epoch that slept dooms nobody whom its second one let go."""
    parent = world.submit()
    failed = end_of(world, parent, Verdict.FAILED)
    retry(world.repo, parent, by="ada")
    child = world.submit(spec=after(parent))
    end_of(world, parent)
    assert is_released(world, child)
    now = world.repo.find_record(State.QUEUED, child)
    assert now is not None
    tell_end(world.repo, now, moves.ended_as(failed))
    assert is_released(world, child)


def rest_only(world: World, claimed: Claimed, verdict: Verdict = Verdict.COMPLETED) -> Record:
    """Its holder dies once the record at rest is there: nobody was told."""
    now = world.repo.now()
    ending = Ending(verdict=verdict, exit_code=0, started_at=now, ended_at=now, by="alice")
    final = moves.after(give_verdict(world.repo, claimed.record, ending)[0])
    project(world.repo, final)
    return final


@pytest.mark.parametrize("when", [OK, ANY])
def test_an_end_that_somebody_has_undone_is_told_to_nobody(world: World, when: AfterWhen) -> None:
    """Its settler died before it told anybody; the job is retried, and another one is to wait for
    it. Whoever claims the retried job settles that end again."""
    parent = world.submit()
    rest_only(world, world.claimed_of(parent), Verdict.FAILED)
    retry(world.repo, parent, by="ada")
    child = world.submit(spec=after(parent, when=when))
    claimed = world.claimed_of(parent)
    assert not is_released(world, child)
    assert world.end(claimed).epoch == 2
    assert is_released(world, child)


@pytest.mark.parametrize("at", range(8))
def test_a_settler_that_sleeps_while_a_job_is_retried_tells_nobody_who_came_since(at: int) -> None:
    """At each of its requests after the record at rest."""
    world = World()
    parent = world.submit()
    world.submit(spec=after(parent))
    final = rest_only(world, world.claimed_of(parent), Verdict.FAILED)
    settler = Actor(world.store, lambda store: tell_dependents(world.repo_over(store), final.id))
    settler.step(at)
    retry(world.repo, parent, by="ada")
    child = world.submit(spec=after(parent))
    settler.finish()
    assert not is_released(world, child)
    end_of(world, parent)
    assert is_released(world, child)


def test_of_two_who_tell_at_once_both_are_heard(world: World) -> None:
    first, second = world.submit(), world.submit()
    child = world.submit(spec=after(first, second))
    found = world.repo.find_record(State.QUEUED, child)
    assert found is not None
    end_of(world, first)
    slow = moves.told_of(found.value, moves.ended_as(end_of(world, second)), nonce="slowslow")
    assert slow is not None
    assert not replace_queued(world.repo, found, slow)
    assert is_released(world, child)
    assert len([name for name in world.names(keys.READY) if child in name]) == 1


def test_a_doomed_job_that_is_retried_waits_again_for_what_is_not_met(world: World) -> None:
    parent = world.submit()
    child = world.submit(spec=after(parent))
    end_of(world, parent, Verdict.FAILED)
    tick(world, 2)
    retry(world.repo, parent, by="ada")
    retry(world.repo, child, by="ada")
    assert not is_released(world, child)
    end_of(world, parent)
    assert is_released(world, child)


def test_a_retry_while_the_parent_is_still_failed_comes_to_the_same(world: World) -> None:
    parent = world.submit()
    child = world.submit(spec=after(parent))
    end_of(world, parent, Verdict.FAILED)
    tick(world, 2)
    retry(world.repo, child, by="ada")
    tick(world, 2)
    assert world.states(child) == {State.FAILED}


def test_a_job_that_was_paused_while_it_waited_waits_on(world: World) -> None:
    """And misses no end meanwhile."""
    parent, other = world.submit(), world.submit()
    child = world.submit(spec=after(parent, other))
    pause(world.repo, child, by="ada")
    end_of(world, parent)
    resume(world.repo, child, by="ada")
    assert [one.job_id for one in queued(world, child).awaits] == [other]
    end_of(world, other)
    assert is_released(world, child)


def test_a_job_that_waits_can_be_cancelled(world: World) -> None:
    parent = world.submit()
    child = world.submit(spec=after(parent))
    cancel(world.repo, child, by="ada")
    end_of(world, parent)
    assert world.states(child) == {State.CANCELLED}
    assert world.names(keys.after_folder(parent)) == []


def test_a_deadline_ends_a_job_that_waits(world: World) -> None:
    parent = world.submit()
    spec = after(parent).evolve(deadline_at=world.repo.now())
    child = world.submit(spec=spec)
    tick(world, 2)
    assert world.states(child) == {State.TIMED_OUT}


def test_a_deleted_parent_counts_as_it_ended(world: World) -> None:
    parent = world.submit()
    end_of(world, parent)
    delete(world.repo, parent, by="ada")
    settle(world.repo, parent, 1)
    assert is_released(world, world.submit(spec=after(parent)))


def test_a_parent_that_is_deleted_before_anybody_was_told_leaves_nobody_waiting(
    world: World,
) -> None:
    parent = world.submit()
    child = world.submit(spec=after(parent))
    rest_only(world, world.claimed_of(parent))
    delete(world.repo, parent, by="ada")
    assert is_released(world, child)


@pytest.mark.parametrize("at", range(12))
@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
def test_who_retries_what_waits_and_dies_leaves_it_not_waiting_for_ever(
    at: int, applied: bool
) -> None:
    """Its parent has ended meanwhile, and has told all whom it had to tell."""
    world = World()
    parent = world.submit()
    child = world.submit(spec=after(parent))
    cancel(world.repo, child, by="ada")
    end_of(world, parent)
    with contextlib.suppress(Crash):
        retry(world.repo_over(mortal(world.store, at=at, applied=applied)), child, by="ada")
    tick(world)
    if world.repo.find_open(child, 2) is not None:
        assert is_released(world, child)


def test_one_that_cannot_be_read_keeps_no_other_waiting(world: World) -> None:
    """Neither does it keep the job that has ended from being settled."""
    parent = world.submit()
    children = sorted(world.submit(spec=after(parent)) for _ in range(3))
    world.store.put(keys.record(State.QUEUED, children[0]), b"{}")
    end_of(world, parent)
    assert world.states(parent) == {State.COMPLETED}
    assert all(is_released(world, child) for child in children[1:])
    assert world.names(keys.after_folder(parent)) == [keys.after(parent, children[0])]


@pytest.mark.parametrize("of_step", [False, True], ids=["output", "run of the step"])
def test_what_cannot_be_read_of_a_step_keeps_nobody_waiting(world: World, of_step: bool) -> None:
    """The step is not launched where it cannot be known what it has to take along."""
    step = Step(name="export", command="true")
    parent = world.submit(spec=Spec(command="", then=[step], notify=["ops:pipeline"]))
    child = world.submit(spec=after(parent))
    key = keys.run(step_run_id(parent, 1)) if of_step else keys.output_manifest(parent, 1)
    world.store.put(key, b"{}")
    end_of(world, parent)
    assert world.states(parent) == {State.COMPLETED}
    assert is_released(world, child)


def test_a_parent_of_which_nothing_can_be_read_is_waited_for(world: World) -> None:
    """The submission is complete all the same; the job goes on once the end can be read."""
    parent, other = world.submit(), world.submit()
    end_of(world, other)
    world.store.put(keys.end_cell(parent, 1), b"{}")
    child = world.submit(run_id="x", spec=after(parent, other))
    run = world.repo.find_run("x")
    assert run is not None
    assert run.value.complete
    assert [one.job_id for one in queued(world, child).awaits] == [parent]


def test_names_that_are_no_jobs_keep_nobody_waiting(world: World) -> None:
    parent = world.submit()
    child = world.submit(spec=after(parent))
    for number in range(300):
        world.store.put(f"{keys.after_folder(parent)}!{number:03}", b"")
    end_of(world, parent)
    assert is_released(world, child)
    assert keys.after(parent, child) not in world.names(keys.after_folder(parent))


@pytest.mark.parametrize("mends", [False, True], ids=["an agent", "repair"])
def test_nobody_takes_the_entry_of_a_job_that_is_just_let_go(world: World, mends: bool) -> None:
    """Who meets it, while the record is not replaced yet, leaves it there."""
    parent = world.submit()
    child = world.submit(spec=after(parent))
    claimed = world.claimed_of(parent)

    def meet(operation: Operation, key: str) -> None:
        if operation is not Operation.REPLACE or key != keys.record(State.QUEUED, child):
            return
        if mends:
            Repair(world.repo).turn()
            return
        for entry in world.entries():
            claim(world.repo, entry, ALICE)

    end(world.repo_over(GuardedStore(world.store, before=meet)), claimed)
    assert is_released(world, child)


def test_an_entry_of_who_died_as_he_let_a_job_go_stays_for_a_lease(world: World) -> None:
    parent = world.submit()
    record = queued(world, world.submit(spec=after(parent)))
    met = [Awaited(job_id=parent, epoch=1, state=State.COMPLETED)]
    world.repo.create_entry(record.evolve(nonce="whodied1", met=met))
    repair = Repair(world.repo)
    repair.turn()
    assert len(world.entries()) == 3
    world.clock.sleep(world.repo.deployment.lease_seconds)
    repair.turn()
    assert len(world.entries()) == 2


def test_many_are_told_beside_each_other(world: World) -> None:
    """In bulks, for each of which the end is looked up once."""
    parent = world.submit()
    base = world.submit(*["x"] * 250, spec=after(parent))
    claimed = world.claimed_of(parent)
    counting = CountingStore(world.store, world.tasks)
    end(world.repo_over(counting), claimed)
    made = counting.snapshot()
    assert not any(entry.waits for entry in world.entries())
    assert len([name for name in world.names(keys.READY) if base in name]) == 250
    assert (made.writes, made.deletes) == (2 + 2 * 250, 1 + 2 * 250)
    assert (made.reads, made.lists) == (1 + 250 + 3, 1 + 3)


def test_deleting_a_job_leaves_no_name_of_it(world: World) -> None:
    parent = world.submit()
    child = world.submit(spec=after(parent))
    cancel(world.repo, child, by="ada")
    delete(world.repo, child, by="ada")
    assert world.names(keys.after_folder(parent)) == []


def test_a_job_that_nothing_waits_for_costs_one_read_more(world: World) -> None:
    """Not a listing, which costs twelve times that."""
    job = world.submit()
    claimed = world.claimed_of(job)
    counting = CountingStore(world.store, world.tasks)
    end(world.repo_over(counting), claimed)
    made = counting.snapshot()
    assert (made.reads, made.lists) == (1, 0)


def test_words_are_pinned_to_jobs(world: World) -> None:
    first, second = sorted([world.submit(), world.submit()])
    request = make_request(["true"], Spec(command=""), batch=False)
    refs = (f"{second}:any", first)
    pinned = pin(world.repo, request, Unpinned(after_refs=refs)).shared.after
    assert pinned == [After(job_id=first), After(job_id=second, when=ANY)]
    with pytest.raises(Refused, match="there is no job"):
        pin(world.repo, request, Unpinned(after_refs=("nobody:ok",)))


def test_two_conditions_on_one_job_are_refused(world: World) -> None:
    """Twice the same one is one."""
    parent, request = world.submit(), make_request(["x"], Spec(command=""), batch=False)
    refs = (parent, f"{parent}:ok")
    assert len(pin(world.repo, request, Unpinned(after_refs=refs)).shared.after) == 1
    with pytest.raises(Refused, match="is to end first twice: state one condition"):
        pin(world.repo, request, Unpinned(after_refs=(parent, f"{parent}:fail")))


def test_a_job_can_be_named_once() -> None:
    twice = [After(job_id="a" * 16), After(job_id="a" * 16, when=FAIL)]
    with pytest.raises(Refused, match="is to end first twice"):
        make_request(["true"], Spec(command="", after=twice), batch=False)
