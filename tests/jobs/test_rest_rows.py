"""Rows of lists that one object has together, and that are never believed."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest

from stado.core import keys
from stado.core.rest_rows import decode_rows, encode_rows
from stado.core.spec import Spec
from stado.core.states import JobType, State, Verdict
from stado.errors import Unreadable
from stado.jobs.changes import retry
from stado.jobs.deletion import delete
from stado.jobs.listings import Listing, matching, newest
from stado.jobs.rest_rows import RestRowsKept
from stado.storage.observe import CountingStore, Requests
from tests.jobs.world import World

REQUESTS_MAX = 20


def keep(world: World) -> int:
    return RestRowsKept(world.repo, missing_max=1).turn()


def ended(world: World, count: int, verdict: Verdict = Verdict.COMPLETED, **spec: object) -> None:
    for _ in range(count):
        world.submit(spec=Spec(command="", **spec))  # type: ignore[arg-type]
        world.end(world.start(), verdict)
        world.clock.sleep(1)


def looked(world: World, limit: int = 250) -> tuple[Listing, Requests]:
    counting = CountingStore(world.store, world.tasks)
    listing = newest(world.repo_over(counting), limit=limit)
    return listing, counting.snapshot()


def test_a_list_of_jobs_at_rest_is_twenty_requests_and_one_for_each_that_lives(
    world: World,
) -> None:
    """R223: however many jobs there are, and 250 rows of them."""
    ended(world, 200)
    ended(world, 60, Verdict.FAILED)
    ended(world, 60, type=JobType.TRAIN)
    keep(world)
    live = [world.submit() for _ in range(5)]
    plain = newest(world.repo, limit=250)
    listing, asked = looked(world)
    assert len(listing.rows) == 250
    assert asked.of() <= REQUESTS_MAX + len(live)
    assert (asked.lists, asked.reads) == (8, 1 + len(live))
    assert listing.rows == plain.rows


def test_the_rows_are_those_that_are_read_one_by_one(world: World) -> None:
    """R223: and so are those of jobs of trainings, with their policies."""
    ended(world, 5)
    ended(world, 5, Verdict.FAILED)
    ended(world, 3, type=JobType.TRAIN)
    before, _ = looked(world)
    keep(world)
    after, asked = looked(world)
    assert asked.reads == 1
    assert after.rows == before.rows
    assert matching(world.repo, "", limit=50).rows == before.rows


def test_what_has_changed_since_is_read(world: World) -> None:
    """R223: a job that failed, was retried and failed again is told with its last epoch."""
    ended(world, 4, Verdict.FAILED)
    job = newest(world.repo, limit=1).rows[0].job_id
    keep(world)
    retry(world.repo, job, by="ada")
    world.end(world.claimed_of(job), Verdict.FAILED)
    listing, asked = looked(world)
    row = next(row for row in listing.rows if row.job_id == job)
    assert row.record is not None
    assert row.record.epoch == 2
    assert asked.reads == 2
    assert keep(world) == 1
    assert looked(world)[1].reads == 1


def test_what_was_deleted_is_in_no_list(world: World) -> None:
    ended(world, 4)
    job = newest(world.repo, limit=1).rows[0].job_id
    keep(world)
    delete(world.repo, job, by="ada")
    assert job not in {row.job_id for row in looked(world)[0].rows}


@pytest.mark.parametrize("data", [b"", b"spoilt", b"{}"])
def test_an_object_that_cannot_be_read_costs_requests_alone(world: World, data: bytes) -> None:
    ended(world, 6)
    before, _ = looked(world)
    world.store.put(keys.REST_ROWS, data)
    listing, asked = looked(world)
    assert listing.rows == before.rows
    assert asked.reads == 7
    assert keep(world) == 6
    assert looked(world)[1].reads == 1


def test_a_row_that_says_something_else_than_its_key_is_not_shown(world: World) -> None:
    """Whoever may write the object cannot put a job under another one's name."""
    ended(world, 4)
    keep(world)
    data = world.store.get(keys.REST_ROWS).data
    rows = list(decode_rows(data).values())
    swapped = [replace(row, record=rows[0].record) for row in rows]
    world.store.put(keys.REST_ROWS, encode_rows(swapped))
    listing, _ = looked(world)
    assert [row.record.id for row in listing.rows if row.record] == [
        row.job_id for row in listing.rows
    ]
    assert len(listing.rows) == 4


def test_rows_of_a_newer_schema_are_told_as_such_whatever_they_are() -> None:
    data = zlib.compress(b'{"schema": 2, "rows": {"by": "column"}}')
    with pytest.raises(Unreadable, match="schema 2 and this stado knows up to 1: upgrade stado"):
        decode_rows(data)


def test_the_pass_waits_until_some_are_missing(world: World) -> None:
    kept = RestRowsKept(world.repo)
    ended(world, 3)
    turns = [kept.turn() for _ in range(6)]
    assert turns == [0, 0, 0, 0, 3, 0]
    ended(world, 10)
    assert kept.turn() == 10


def test_the_newest_are_kept_and_paused_jobs_are_not(world: World) -> None:
    ended(world, 520)
    ended(world, 1, Verdict.PAUSED)
    assert keep(world) == 500
    listing, asked = looked(world, limit=250)
    assert listing.rows[0].state is State.PAUSED
    assert asked.reads <= 1 + 3


def test_of_two_coordinators_one_looks_again(world: World) -> None:
    ended(world, 4)
    slow, other = (RestRowsKept(world.repo, missing_max=1) for _ in range(2))
    slow.turn()
    ended(world, 2)
    other.turn()
    ended(world, 2)
    slow.turn()
    slow.turn()
    assert looked(world)[1].reads == 1
