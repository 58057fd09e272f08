from __future__ import annotations

from collections.abc import Callable

import pytest

from stado.core import keys
from stado.core.spec import Spec
from stado.core.states import State, Verdict
from stado.errors import Unreadable
from stado.jobs.changes import cancel
from stado.jobs.finding import Found, find_job
from stado.jobs.listings import matching, newest
from stado.jobs.reaping import Reaper
from stado.jobs.status import near_matches, states_of, story
from stado.storage.observe import CountingStore, Operation
from stado.storage.port import Store
from tests.jobs.actors import Actor
from tests.jobs.world import ALICE, TICK, World, claim_head, end

Move = Callable[[World, Store, str], object]


def claim_and_end(world: World, store: Store, job: str) -> object:
    repo = world.repo_over(store)
    claimed = claim_head(repo, ALICE)
    return claimed and end(repo, claimed)


def cancel_it(world: World, store: Store, job: str) -> object:
    return cancel(world.repo_over(store), job, by="ada")


def lose_and_claim_again(world: World, store: Store, job: str) -> object:
    """It moves backwards: from running to queued, and to running."""
    repo = world.repo_over(store)
    claimed = claim_head(repo, ALICE)
    assert claimed is not None
    end(repo, claimed, Verdict.LOST)
    return claim_head(repo, ALICE)


def lose_twice(world: World, store: Store, job: str) -> object:
    repo = world.repo_over(store)
    for _ in range(2):
        claimed = claim_head(repo, ALICE)
        assert claimed is not None
        end(repo, claimed, Verdict.LOST)
    return None


MOVES: dict[str, Move] = {
    "claim and end": claim_and_end,
    "cancel": cancel_it,
    "lose and claim again": lose_and_claim_again,
    "lose twice": lose_twice,
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
def test_a_job_is_found_between_any_two_steps_of_its_mover(move: Move) -> None:
    """R177"""
    mover_requests = 1
    for stopped_after in range(200):
        world = World()
        job = world.submit()
        mover = Actor(world.store, lambda store, w=world, j=job: move(w, store, j))  # type: ignore[misc]
        alive = mover.step(stopped_after)
        assert find_job(world.repo, job) is not None
        mover.finish()
        assert mover.error is None
        assert find_job(world.repo, job) is not None
        if not alive:
            break
        mover_requests += 1
    assert 5 < mover_requests < 100


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
def test_a_job_is_found_however_the_steps_of_finder_and_mover_fall(move: Move) -> None:
    """R177: the mover makes some steps, the finder one, the mover some more, the finder the
    rest."""
    tried = 0
    for first in range(60):
        for finder_steps in range(1, 6):
            for second in (1, 2, 3, 5, 8, 13, 60):
                tried += 1
                assert found_amid(move, first, finder_steps, second)
        if first > move_requests(move):
            break
    assert tried > 300


def found_amid(move: Move, first: int, finder_steps: int, second: int) -> bool:
    world = World()
    job = world.submit()
    mover = Actor(world.store, lambda store: move(world, store, job))
    finder = Actor(world.store, lambda store: find_job(world.repo_over(store), job))
    mover.step(first)
    finder.step(finder_steps)
    mover.step(second)
    finder.finish()
    mover.finish()
    assert finder.error is None
    return isinstance(finder.result, Found)


def move_requests(move: Move) -> int:
    world = World()
    job = world.submit()
    mover = Actor(world.store, lambda store: move(world, store, job))
    mover.finish()
    return mover.requests


def test_an_unknown_job_is_not_found(world: World) -> None:
    assert find_job(world.repo, "a" * 16) is None


def test_a_running_record_that_is_gone_is_put_back(world: World) -> None:
    """What a store without conditional deletes may have lost: no reaper would see the job."""
    job = world.submit()
    claimed = world.start()
    world.store.delete(keys.record(State.RUNNING, job), None)
    assert world.find(job).state is State.RUNNING
    assert world.record(State.RUNNING, job) == claimed.record
    assert world.lose(Reaper(world.repo, by="r")).reaped == [job]


def test_what_decides_and_cannot_be_read_is_named(world: World) -> None:
    """A19"""
    job = world.submit()
    world.start()
    world.store.put(keys.claim_cell(job, 1), b"\xff")
    with pytest.raises(Unreadable, match=r"1\.claim\.json"):
        find_job(world.repo, job)


def test_the_newest_20_cost_8_listings_and_a_read_a_row(world: World) -> None:
    for number in range(30):
        world.submit(f"echo {number}")
        world.clock.sleep(1)
        if number % 3 == 0:
            world.end(world.start())
    counting = CountingStore(world.store, world.tasks)
    listing = newest(world.repo_over(counting), limit=20)
    asked = counting.snapshot()
    assert (asked.lists, asked.of(Operation.GET), asked.of()) == (8, 20, 28)
    assert len(listing.rows) == 20
    assert listing.more
    assert [row.job_id for row in listing.rows] == sorted(row.job_id for row in listing.rows)
    assert all(row.record is not None and row.record.state is row.state for row in listing.rows)


def test_a_job_under_two_prefixes_is_shown_once_where_it_is(world: World) -> None:
    """R177: the terminal record counts."""
    job = world.submit()
    claimed = world.start()
    world.end(claimed)
    world.store.create(keys.record(State.RUNNING, job), claimed.record.encode())
    (row,) = newest(world.repo, limit=5).rows
    assert row.state is State.COMPLETED
    assert states_of(world.repo, job) == {job: State.COMPLETED}


def test_a_job_is_listed_at_every_step_of_its_move() -> None:
    """R177, A16: a record that is gone between the listing and the read is no traceback."""
    for stopped_after in range(25):
        for listed in range(20):
            world = World()
            job = world.submit()
            mover = Actor(world.store, lambda s, w=world, j=job: claim_and_end(w, s, j))  # type: ignore[misc]
            lister = Actor(world.store, lambda s, w=world: newest(w.repo_over(s), limit=5))  # type: ignore[misc]
            lister.step(listed)
            mover.step(stopped_after)
            lister.finish()
            mover.finish()
            assert lister.error is None


def test_the_story_of_a_job_has_its_epochs(world: World) -> None:
    job = world.submit()
    world.start()
    world.lose(Reaper(world.repo, by="r"))
    world.clock.sleep(TICK)
    second = world.start()
    told = story(world.repo, job)
    assert (told.record.state, told.record.epoch) == (State.RUNNING, 2)
    assert told.life is not None
    assert told.life.heartbeat is not None
    assert told.life.heartbeat.epoch == 2
    assert [(one.epoch, one.end is None) for one in told.epochs] == [(1, False), (2, True)]
    world.end(second)
    assert story(world.repo, job).life is None


def test_names_lead_to_jobs(world: World) -> None:
    """R170"""
    base = world.submit("echo 1", "echo 2", run_id="sweep")
    world.submit(run_id="single")
    assert near_matches(world.repo, base[4:12].upper(), limit=8).job_ids == [
        f"{base}-1",
        f"{base}-2",
    ]
    assert [row.job_id for row in matching(world.repo, base, limit=1).rows] == [f"{base}-1"]
    assert matching(world.repo, base, limit=1).more


def test_a_job_with_an_unreadable_record_at_rest_keeps_its_row(world: World) -> None:
    """A19"""
    job = world.submit(spec=Spec(command=""))
    world.end(world.start())
    world.store.put(keys.record(State.COMPLETED, job), b"{")
    (row,) = newest(world.repo, limit=5).rows
    assert (row.state, row.record) == (State.COMPLETED, None)


def test_names_that_no_job_has_are_passed_over(world: World) -> None:
    """Below each prefix, and before all jobs in their order."""
    base = world.submit("true", "false")
    for state in State:
        for name in ("A-note", "nonsense", f"{base}-1.old"):
            world.store.put(f"{keys.prefix(state)}{name}.json", b"{}")
    jobs = [f"{base}-1", f"{base}-2"]
    assert [row.job_id for row in newest(world.repo, limit=1).rows] == jobs[:1]
    assert [row.job_id for row in matching(world.repo, base, limit=5).rows] == jobs
    assert [row.job_id for row in matching(world.repo, "ons", limit=5).rows] == []
    assert sorted(states_of(world.repo, base)) == jobs
    assert near_matches(world.repo, "nonsense", limit=8).job_ids == []
