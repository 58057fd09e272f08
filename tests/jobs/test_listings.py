"""Lists: what is in them, in which order, and what they cost."""

from __future__ import annotations

import pytest

from stado.core import pipelines
from stado.core.phases import JobPhase
from stado.core.pipelines import PipelineState
from stado.core.records import Phase
from stado.core.spec import Spec, Step
from stado.core.states import JobType, State, Verdict
from stado.jobs.changes import cancel
from stado.jobs.deletion import delete
from stado.jobs.life import LifeSigns
from stado.jobs.listings import Listing, Wanted, matching, newest, of_submissions
from stado.jobs.ownership import bases_of
from stado.storage.observe import CountingStore, Operation
from tests.jobs.world import World

THEN = [Step(name="export", command="./export"), Step(name="eval", command="./eval")]


def submitted(world: World, **stated: object) -> str:
    job = world.submit("./train", spec=Spec(command="", **stated))  # type: ignore[arg-type]
    world.clock.sleep(1)
    return job


def run_next(world: World, verdict: Verdict = Verdict.COMPLETED) -> str:
    job = world.end(world.start(), verdict).id
    world.clock.sleep(1)
    return job


def step_id(world: World, root: str, number: int) -> str:
    run = world.repo.find_run(pipelines.step_run_id(root, number))
    assert run is not None
    return run.value.base_id


def told(listing: Listing) -> list[tuple[str, str, int, int]]:
    """Of each pipeline its state, how many steps were done, and how many rows are below it."""
    return [
        (row.job_id, row.steps.state.value, row.steps.done, len(row.steps.rows))
        for row in listing.rows
        if row.steps is not None
    ]


def mine(world: World, *, limit: int = 20, rolled: bool = True) -> Listing:
    return of_submissions(world.repo, bases_of(world.repo, "ada"), limit=limit, rolled=rolled)


def test_a_pipeline_is_one_row_with_its_own_state(world: World) -> None:
    """R58, R59, R60, R61, R62: whatever it is at."""
    root = submitted(world, then=THEN)
    plain = submitted(world)
    seen = []
    for verdict in (Verdict.COMPLETED, Verdict.COMPLETED, Verdict.COMPLETED):
        seen.append(told(newest(world.repo, limit=20, rolled=True)))
        if len(seen) == 1:
            run_next(world, verdict)  # the root
            run_next(world)  # the plain one
        else:
            run_next(world, verdict)
    seen.append(told(newest(world.repo, limit=20, rolled=True)))
    assert [one[0][1:] for one in seen] == [
        ("queued", 0, 0),
        ("queued", 0, 1),
        ("queued", 1, 2),
        ("succeeded", 2, 2),
    ]
    for listing in (newest(world.repo, limit=20, rolled=True), mine(world)):
        assert [row.job_id for row in listing.rows] == [plain, root]
        assert (len(listing.jobs), listing.total, listing.more) == (4, 4, False)


@pytest.mark.parametrize(
    ("verdict", "state"),
    [(Verdict.FAILED, "failed"), (Verdict.TIMED_OUT, "failed"), (Verdict.CANCELLED, "stopped")],
)
def test_a_root_that_did_not_complete_is_the_pipelines_word(
    world: World, verdict: Verdict, state: str
) -> None:
    """R62"""
    submitted(world, then=THEN)
    run_next(world, verdict)
    assert told(mine(world))[0][1:] == (state, 0, 0)


def test_a_step_that_failed_leaves_it_partial_with_its_row_below(world: World) -> None:
    """R61"""
    root = submitted(world, then=THEN)
    run_next(world)
    run_next(world, Verdict.FAILED)
    (row,) = mine(world).rows
    assert row.steps is not None
    assert row.steps.states == [State.FAILED, None]
    assert [step.job_id for step in row.steps.rows] == [step_id(world, root, 1)]
    flat = mine(world, rolled=False)
    assert [one.job_id for one in flat.rows] == [step_id(world, root, 1), root]
    assert all(one.steps is None for one in flat.rows)


def test_pipelines_cost_a_read_for_each_of_their_jobs_and_nothing_else(world: World) -> None:
    """R58: beside the one for rows that are kept together."""
    for _ in range(5):
        submitted(world, then=THEN)
        for _ in range(3):
            run_next(world)
    counting = CountingStore(world.store, world.tasks)
    listing = newest(world.repo_over(counting), limit=5, rolled=True)
    asked = counting.snapshot()
    assert len(listing.rows) == 5
    assert not listing.more
    assert (asked.lists, asked.of(Operation.GET), asked.of()) == (8, 16, 24)


def test_a_page_of_pipelines_is_full_and_tells_what_it_leaves_out(world: World) -> None:
    """R121: steps take no row from others."""
    roots = []
    for _ in range(4):
        roots.append(submitted(world, then=THEN))
        for _ in range(3):
            run_next(world)
    for listing in (newest(world.repo, limit=3, rolled=True), mine(world, limit=3)):
        assert [row.job_id for row in listing.rows] == roots[:0:-1]
        assert (len(listing.jobs), listing.total, listing.more) == (9, 12, True)


def test_a_step_that_stands_before_its_root_is_found_all_the_same(world: World) -> None:
    """It was launched by a host whose clock is behind; or its root alone was asked for."""
    root = submitted(world, then=THEN[:1])
    claimed = world.start()
    world.clock.sleep(-60)
    world.end(claimed)
    world.clock.sleep(60)
    assert step_id(world, root, 1) > root
    for _ in range(2):
        submitted(world)
    assert told(newest(world.repo, limit=3, rolled=True)) == [(root, "queued", 0, 1)]
    assert told(matching(world.repo, root, limit=3, rolled=True)) == [(root, "queued", 0, 1)]


def test_a_step_that_was_deleted_is_no_step_to_come(world: World) -> None:
    root = submitted(world, then=THEN[:1])
    run_next(world)
    cancel(world.repo, step_id(world, root, 1), by="ada")
    delete(world.repo, step_id(world, root, 1), by="ada")
    assert told(mine(world)) == [(root, PipelineState.PARTIAL.value, 0, 0)]


def test_jobs_are_chosen_by_state_type_and_tags(world: World) -> None:
    """R114: of tags a job has to have each."""
    first = submitted(world, tags=["nightly"], type=JobType.TRAIN)
    second = submitted(world, tags=["nightly", "v2"])
    run_next(world)

    def chosen(**stated: object) -> list[str]:
        wanted = Wanted(**stated)  # type: ignore[arg-type]
        lists = [
            newest(world.repo, limit=20, wanted=wanted),
            of_submissions(world.repo, bases_of(world.repo, "ada"), limit=20, wanted=wanted),
        ]
        everybodys, own = ([row.job_id for row in listing.rows] for listing in lists)
        assert everybodys == own
        assert {listing.total for listing in lists} == {len(own)}
        return own

    assert chosen(tags=["nightly"]) == [second, first]
    assert chosen(tags=["nightly", "v2"]) == [second]
    assert chosen(types=[JobType.TRAIN]) == [first]
    assert chosen(types=[JobType.TRAIN], states=[State.QUEUED]) == []
    assert chosen(states=[State.QUEUED], tags=["v2"]) == [second]


def test_running_jobs_are_chosen_by_how_far_they_are(world: World) -> None:
    """SUBMITTED and PENDING are parts of what is running."""
    waiting, claimed, heard, started = (submitted(world) for _ in range(4))
    del waiting
    world.claimed_of(claimed)
    for job, started_at in ((heard, None), (started, world.clock.now())):
        holder = world.claimed_of(job).record
        assert LifeSigns(world.repo, holder).beat(Phase.PREPARING, started_at)

    def chosen(**stated: object) -> list[str]:
        listing = newest(world.repo, limit=20, wanted=Wanted(**stated))  # type: ignore[arg-type]
        assert listing.total == len(listing.rows)
        return [row.job_id for row in listing.rows]

    assert chosen(phases=[JobPhase.SUBMITTED]) == [claimed]
    assert chosen(phases=[JobPhase.PENDING]) == [heard]
    assert chosen(phases=[JobPhase.PENDING], states=[State.RUNNING]) == [started, heard, claimed]
    own = of_submissions(
        world.repo,
        bases_of(world.repo, "ada"),
        limit=20,
        wanted=Wanted(phases=[JobPhase.PENDING]),
    )
    assert [row.job_id for row in own.rows] == [heard]


def test_of_a_batch_only_what_is_wanted_is_read(world: World) -> None:
    base = world.submit(*[f"echo {number}" for number in range(40)], run_id="batch")
    world.end(world.start(), Verdict.FAILED)
    counting = CountingStore(world.store, world.tasks)
    repo, failed = world.repo_over(counting), Wanted(states=[State.FAILED])
    listing = of_submissions(repo, bases_of(repo, "ada"), limit=20, wanted=failed)
    assert [row.job_id for row in listing.rows] == [f"{base}-01"]
    assert (listing.total, listing.total_at_least, listing.more) == (1, False, False)
    assert counting.snapshot().of(Operation.GET) <= 3


def test_how_many_there_are_is_told_as_far_as_it_is_known(world: World) -> None:
    """R121: of submissions that were not read nobody knows how many jobs they have."""
    for _ in range(3):
        submitted(world)
    world.submit("one", "two", "three", run_id="batch")
    everybodys = newest(world.repo, limit=2)
    assert (everybodys.total, everybodys.total_at_least, everybodys.more) == (6, False, True)
    own = mine(world, limit=2)
    assert (own.total, own.total_at_least, own.more) == (6, True, True)
    assert (mine(world).total, mine(world).total_at_least) == (6, False)
    some = newest(world.repo, limit=1, wanted=Wanted(types=[JobType.JOB]))
    assert (some.total, some.total_at_least, some.more) == (1, True, True)
