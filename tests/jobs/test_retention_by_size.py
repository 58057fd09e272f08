"""Outputs of those jobs go that ended first, until the rest takes no more than it may."""

from __future__ import annotations

from pathlib import Path

import pytest

from stado.core import keys
from stado.core.retention import Keeps, RetentionSettings, Rules, rules_of
from stado.core.states import Leftover
from stado.core.usage import Use, use_key
from stado.jobs.expired import find_expired
from stado.jobs.ledger import Compaction, Pace
from stado.jobs.retention import Outcome, Retention
from stado.storage.observe import CountingStore, Operation
from stado.storage.port import Store
from tests.jobs.actors import Crash, mortal
from tests.jobs.test_artifacts import FILES, left, published
from tests.jobs.world import World

DAY = 86_400
SIZE = 100


def of(size: int, newest: int = 0) -> Rules:
    return Rules(ages={}, keep_newest=newest, output_bytes=size)


def used(world: World, job: str, size: int | None = SIZE) -> None:
    """What the ledger says of it."""
    use = Use(job, 1, "ada", None, ended_ms=world.repo.now_ms(), wall_ms=5, output_bytes=size)
    world.store.create(use_key(use), b"")


def compacted(world: World) -> None:
    Compaction(world.repo, by="coordinator", pace=Pace(names_min=1)).turns(60)
    assert world.names(keys.USAGE) == []


def several(world: World, folder: Path, count: int = 4) -> list[str]:
    """In the order in which they ended, a day each."""
    jobs = []
    for _ in range(count):
        jobs.append(left(world, folder))
        used(world, jobs[-1])
        world.clock.sleep(DAY)
    return jobs


def run(
    world: World, rules: Rules, *, apply: bool = True, most: int = 1000, store: Store | None = None
) -> tuple[list[Outcome], Retention]:
    repo = world.repo if store is None else world.repo_over(store)
    retention = Retention(repo, rules, by="ada")
    some = retention.outcomes(apply=apply, jobs_max=most)
    return [outcome for batch in some for outcome in batch], retention


def gone(outcomes: list[Outcome]) -> list[str]:
    return [one.job_id for one in outcomes if one.keeps is None]


def there(world: World, jobs: list[str]) -> list[str]:
    return [job for job in jobs if world.has(keys.output_file(job, 1, "note"))]


@pytest.mark.parametrize("is_compacted", [True, False])
def test_those_that_ended_first_go_until_the_rest_fits(
    world: World, tmp_path: Path, is_compacted: bool
) -> None:
    """R276: exactly at the limit nothing goes; the next run counts no more what has gone."""
    jobs = several(world, tmp_path)
    if is_compacted:
        compacted(world)
    assert run(world, of(4 * SIZE))[0] == []
    looked, _ = run(world, of(4 * SIZE - 101), apply=False)
    assert gone(looked) == jobs[:2]
    assert there(world, jobs) == jobs, "a look deletes nothing"
    outcomes, retention = run(world, of(4 * SIZE - 101))
    assert gone(outcomes) == jobs[:2]
    assert {one.rule for one in outcomes} == {"retention.output_bytes 0.299kB"}
    assert there(world, jobs) == jobs[2:]
    mark = find_expired(world.repo, Leftover.OUTPUTS, jobs[0], epoch=1)
    assert mark is not None
    assert mark.gone
    assert retention.room is not None
    assert (retention.room.held, retention.room.jobs) == (2 * SIZE, 2)
    again, retention = run(world, of(2 * SIZE))
    assert again == []
    assert retention.room is not None
    assert retention.room.held == 2 * SIZE


def test_what_is_kept_counts_and_stays_and_is_told_when_it_does_not_fit(
    world: World, tmp_path: Path
) -> None:
    """R276, R271, R272: and others go in its place."""
    jobs = several(world, tmp_path)
    published(world, jobs[0])
    world.clock.sleep(DAY)
    young = left(world, tmp_path)
    used(world, young)
    outcomes, retention = run(world, of(3 * SIZE, newest=2))
    assert gone(outcomes) == jobs[1:3]
    outcomes, retention = run(world, of(SIZE, newest=1))
    assert gone(outcomes) == jobs[3:]
    assert there(world, [*jobs, young]) == [jobs[0], young]
    room = retention.room
    assert room is not None
    assert room.beyond == SIZE
    assert room.kept == {Keeps.PUBLISHED: SIZE, Keeps.NEWEST: SIZE}
    outcomes, retention = run(world, of(SIZE))
    assert gone(outcomes) == []
    assert retention.room is not None
    assert retention.room.kept == {Keeps.PUBLISHED: SIZE, Keeps.YOUNG: SIZE}


def test_unknown_sizes_are_told_and_go_in_their_turn_and_only_then(
    world: World, tmp_path: Path
) -> None:
    """R276: what is known is too much already, so more is there, and each goes rightly."""
    old = left(world, tmp_path)
    used(world, old, None)
    world.clock.sleep(DAY)
    jobs = several(world, tmp_path, 2)
    late = left(world, tmp_path)
    world.clock.sleep(2 * DAY)
    outcomes, retention = run(world, of(2 * SIZE))
    assert outcomes == []
    assert retention.room is not None
    assert (retention.room.held, retention.room.unknown) == (2 * SIZE, 2)
    outcomes, retention = run(world, of(SIZE))
    assert gone(outcomes) == [old, jobs[0]]
    assert retention.room is not None
    assert (retention.room.held, retention.room.unknown) == (SIZE, 1)
    assert there(world, [old, *jobs, late]) == [jobs[1], late]


def test_a_segment_that_cannot_be_read_leaves_sizes_unknown(world: World, tmp_path: Path) -> None:
    """R276"""
    jobs = several(world, tmp_path)
    compacted(world)
    (segment,) = world.names(keys.LEDGER_SEGMENTS)
    world.store.delete(segment, None)
    world.store.create(segment, b"no segment")
    outcomes, retention = run(world, of(1))
    assert outcomes == []
    assert retention.room is not None
    assert (retention.room.held, retention.room.unknown) == (0, len(jobs))


def test_what_goes_for_its_age_counts_no_more(world: World, tmp_path: Path) -> None:
    """R276"""
    jobs = several(world, tmp_path)
    rules = rules_of(RetentionSettings(outputs=3 * DAY, output_bytes=2 * SIZE, keep_newest=0))
    outcomes, retention = run(world, rules, apply=False)
    assert set(gone(outcomes)) == set(jobs[:2])
    assert {one.rule for one in outcomes} == {"retention.outputs 3d"}
    assert retention.room is not None
    assert retention.room.held == 2 * SIZE


def test_so_many_jobs_and_no_more(world: World, tmp_path: Path) -> None:
    """R276: and a run says that it has not looked at all."""
    jobs = several(world, tmp_path)
    outcomes, retention = run(world, of(1), most=2)
    assert gone(outcomes) == jobs[:2]
    assert retention.room is not None
    assert not retention.room.is_whole
    assert gone(run(world, of(1), most=2)[0]) == jobs[2:]


def test_requests_do_not_grow_with_jobs_that_stay(world: World, tmp_path: Path) -> None:
    """R275, R276: listings and segments; and of each that goes what it takes by age."""
    jobs = several(world, tmp_path, 12)
    compacted(world)
    store = CountingStore(world.store, world.tasks)
    run(world, of(12 * SIZE), store=store)
    asked = store.snapshot()
    assert (asked.of(Operation.LIST), asked.of(Operation.GET)) == (4 + 1 + 1, 2)
    assert asked.of() == 8
    store = CountingStore(world.store, world.tasks)
    assert gone(run(world, of(11 * SIZE), store=store)[0]) == jobs[:1]
    asked = store.snapshot()
    assert asked.of(Operation.LIST) == 6 + 5
    assert asked.of(Operation.GET) == 2 + 2
    assert asked.of(Operation.DELETE) == len(FILES) + 1 + 1


@pytest.mark.parametrize("applied_before", [True, False])
def test_who_dies_at_any_request_lets_no_more_go_than_it_takes(
    tmp_path: Path, applied_before: bool
) -> None:
    """R274, R276: an output counts until its mark says that all of it has gone."""
    for number in range(100):
        world = World()
        jobs = several(world, tmp_path / f"{number}-{applied_before}", 3)
        store = mortal(world.store, at=number, applied=applied_before)
        try:
            run(world, of(2 * SIZE), store=store)
        except Crash:
            died = True
        else:
            died = False
        run(world, of(2 * SIZE))
        assert there(world, jobs) == jobs[1:]
        mark = find_expired(world.repo, Leftover.OUTPUTS, jobs[0], epoch=1)
        assert mark is not None
        assert (mark.gone, mark.left) == (True, True)
        if not died:
            break
    else:
        raise AssertionError("it never got through")
    assert number > 15
