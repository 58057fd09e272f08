"""A log that is complete becomes a few objects, and whoever reads it sees the same before, during
and after; whatever dies, comes late, or does the same at the same time."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.core import keys
from stado.core.records import LogIndex, LogRange, LogTime
from stado.errors import StoreError
from stado.jobs.log_compaction import compact_log
from stado.jobs.log_segments import (
    delete_segment,
    epochs_with_log,
    list_log,
    write_segment,
)
from stado.jobs.logs import Gap, LogReader, Piece
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.memory import MemoryStore
from stado.storage.observe import CountingStore, Operation
from stado.storage.port import LIST_LIMIT_MAX, Entry, Store
from tests.jobs.actors import Actor, Crash, mortal
from tests.jobs.world import World
from tests.search import examples

JOB = "a" * 16
STEPS_MAX = 80

Whole = list[bytes | int]
"""A log, with its gaps as numbers; what lies between two of them is one."""


def a_log(world: World) -> Whole:
    """Eight segments and two gaps."""
    for offset, data in (
        *((number * 4, b"%03d\n" % number) for number in range(4)),
        *((number * 4, b"%03d\n" % number) for number in range(10, 12)),
        *((number * 4, b"%03d\n" % number) for number in range(20, 22)),
    ):
        write_segment(world.repo, JOB, 1, offset, data)
    return whole(world.store, world)


def whole(store: Store, world: World) -> Whole:
    return joined(LogReader(world.repo_over(store), JOB, 1).read_rest())


def joined(pieces: object) -> Whole:
    found: Whole = []
    for piece in pieces:  # type: ignore[attr-defined]
        if isinstance(piece, Gap):
            found.append(piece.size)
        elif found and isinstance(found[-1], bytes):
            found[-1] += piece
        else:
            found.append(piece)
    return found


def compact(world: World, store: Store | None = None) -> None:
    repo = world.repo if store is None else world.repo_over(store)
    compact_log(repo, JOB, 1, segments_max=2, block_bytes=10)


def names(world: World) -> list[str]:
    return [name.rpartition("/")[2] for name in world.names(keys.log_folder(JOB))]


def kinds(world: World) -> list[str]:
    return [name[7:12] for name in names(world)]


# What comes of it


def test_segments_become_blocks_of_one_size_and_an_index(world: World) -> None:
    before = a_log(world)
    assert before == [b"000\n001\n002\n003\n", 24, b"010\n011\n", 32, b"020\n021\n"]
    compact(world)
    assert kinds(world) == ["block"] * 4 + ["index"]
    assert whole(world.store, world) == before
    compact(world)
    assert kinds(world) == ["block"] * 4 + ["index"]


def test_a_log_of_few_segments_stays_as_it_is(world: World) -> None:
    for number in range(16):
        write_segment(world.repo, JOB, 1, number, b"\n")
    compact_log(world.repo, JOB, 1)
    assert len(list_log(world.repo, JOB, 1).segments) == 16
    write_segment(world.repo, JOB, 1, 16, b"\n")
    compact_log(world.repo, JOB, 1)
    assert kinds(world) == ["block", "index"]


def test_what_it_costs(world: World) -> None:
    for number in range(100):
        write_segment(world.repo, JOB, 1, number, b"\n")
    counting = CountingStore(world.store, world.tasks)
    compact_log(world.repo_over(counting), JOB, 1)
    requests = counting.snapshot()
    assert (requests.writes, requests.lists, requests.reads) == (2, 2, 100)
    assert requests.deletes == 100


@examples(80)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=12),
    text=st.binary(min_size=150, max_size=150).map(lambda data: data.replace(b"\0", b"\n")),
    block=st.integers(1, 30),
    lines=st.integers(0, 12),
    offset=st.integers(0, 150),
)
def test_whatever_was_printed_all_readers_see_the_same(
    sizes: list[tuple[int, int]], text: bytes, block: int, lines: int, offset: int
) -> None:
    world, at = World(), 0
    for gap, size in sizes:
        at += gap
        write_segment(world.repo, JOB, 1, at, text[at : at + size])
        at += size

    def seen() -> tuple[Whole, Whole, int, Whole]:
        tail = LogReader(world.repo, JOB, 1)
        missing = tail.skip_to_tail(lines)
        middle = LogReader(world.repo, JOB, 1, offset=offset).read_rest()
        return whole(world.store, world), joined(tail.read_rest()), missing, joined(middle)

    before = seen()
    compact_log(world.repo, JOB, 1, segments_max=0, block_bytes=block)
    assert set(kinds(world)) == {"block", "index"}
    assert seen() == before


def test_the_end_of_a_large_log_is_read_with_little(world: World) -> None:
    line = b"a line of a log that is not short at all, and of which there are many: %06d\n"
    text = b"".join(line % number for number in range(30_000))
    for at in range(0, len(text), 300_000):
        write_segment(world.repo, JOB, 1, at, text[at : at + 300_000])

    def read_tail() -> tuple[Whole, int]:
        counting = CountingStore(world.store, world.tasks)
        reader = LogReader(world.repo_over(counting), JOB, 1)
        reader.skip_to_tail(20)
        return joined(reader.read_rest()), counting.snapshot().bytes_read

    times = [LogTime(offset=number * 250, ms=number) for number in range(8192)]
    expected = b"".join(line % number for number in range(29_980, 30_000))
    assert read_tail() == ([expected], 64 * 1024)
    compact_log(world.repo, JOB, 1, segments_max=2, block_bytes=1024 * 1024, times=times)
    assert kinds(world) == ["block"] * 3 + ["index"]
    tail, bytes_read = read_tail()
    assert tail == [expected]
    assert bytes_read < 650_000, "pieces of 128 KiB, and an index with as many times as it may have"


# Whatever is damaged


def told(world: World) -> list[tuple[int, bool]]:
    """The gaps of a log, and whether they are damage."""
    pieces = LogReader(world.repo, JOB, 1).read_rest()
    return [(piece.size, piece.damaged) for piece in pieces if isinstance(piece, Gap)]


def overwrite(world: World, number: int, data: bytes | None) -> None:
    (key,) = (name for name in world.names(keys.log_folder(JOB)) if name.endswith(f".{number:06d}"))
    if data is None:
        world.store.delete(key, None)
    else:
        world.store.put(key, data)


@pytest.mark.parametrize("instead", [None, b"", b"000\n001\n0x", b"000\n001\n0", b"0" * 10])
def test_a_block_that_is_not_what_was_stored_is_told_and_never_shown(
    world: World, instead: bytes | None
) -> None:
    """In the middle as at the end; the rest is shown."""
    a_log(world)
    compact(world)
    overwrite(world, 0, instead)
    assert whole(world.store, world) == [10, b"2\n003\n", 24, b"010\n011\n", 32, b"020\n021\n"]
    assert told(world) == [(10, True), (24, False), (32, False)]
    overwrite(world, 3, b"?\n" if instead is None else instead)
    assert told(world) == [(10, True), (24, False), (32, False), (2, True)]
    reader = LogReader(world.repo, JOB, 1)
    reader.skip_to_tail(2)
    assert joined(reader.read_rest())[-1] == 2


def test_what_stands_behind_a_block_is_not_read(world: World) -> None:
    before = a_log(world)
    compact(world)
    overwrite(world, 3, b"1\nand more\n")
    assert whole(world.store, world) == before


def test_damage_costs_a_mebibyte_at_most_of_a_large_log(world: World) -> None:
    line = b"%07d of a log that has more than one piece in a block\n"
    text = b"".join(line % number for number in range(60_000))
    assert len(text) > 3_000_000
    for at in range(0, len(text), 500_000):
        write_segment(world.repo, JOB, 1, at, text[at : at + 500_000])
    compact_log(world.repo, JOB, 1, segments_max=2)
    overwrite(world, 0, text[:2_000_000] + b"!" + text[2_000_001:])
    first, missing, last = whole(world.store, world)
    assert (first, missing, last) == (text[: 2**20], 2**20, text[2**21 :])


def test_a_log_without_digests_is_read_as_it_stands(world: World) -> None:
    """Of an older agent."""
    before = a_log(world)
    compact(world)
    key = keys.log_index(JOB, 1)
    index = world.repo.read(LogIndex, key).value
    world.store.put(key, index.evolve(digest_bytes=0, digests=[]).encode())
    assert whole(world.store, world) == before


# Whatever dies


@pytest.mark.parametrize("applied", [False, True])
def test_a_compaction_that_dies_at_any_request_costs_nothing(applied: bool) -> None:
    for at in range(STEPS_MAX):
        world = World()
        before = a_log(world)
        try:
            compact(world, mortal(world.store, at=at, applied=applied))
            break
        except Crash:
            pass
        assert whole(world.store, world) == before, at
        compact(world)
        assert whole(world.store, world) == before, at
        assert "index" in kinds(world)
        assert not list_log(world.repo, JOB, 1).segments
    else:
        raise AssertionError("it never ended")
    assert at > 20


@pytest.mark.parametrize(
    "kind", [FaultKind.UNAVAILABLE, FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.LATE]
)
def test_a_request_that_fails_costs_nothing_and_may_come_late(kind: FaultKind) -> None:
    for at in range(STEPS_MAX):
        world = World()
        before = a_log(world)
        faults = ScriptedFaults(Fault(kind, skip=at))
        store = FaultyStore(world.store, world.clock, faults)
        with suppress(StoreError):
            compact(world, store)
        if not faults.used_up:
            break
        assert whole(world.store, world) == before, at
        compact(world)
        assert whole(world.store, world) == before, at
        store.land_late_writes()
        assert whole(world.store, world) == before, at
    else:
        raise AssertionError("it never ended")
    assert at > 20


def test_two_at_once_make_one_index_and_leave_the_blocks_of_one() -> None:
    for stopped_after in range(STEPS_MAX):
        world = World()
        before = a_log(world)
        first = Actor(world.store, partial(compact, world))
        goes_on = first.step(stopped_after)
        compact(world)
        assert whole(world.store, world) == before, stopped_after
        first.finish()
        assert first.error is None
        assert whole(world.store, world) == before, stopped_after
        assert kinds(world) == ["block"] * 4 + ["index"], stopped_after
        if not goes_on:
            return
    raise AssertionError("it never ended")


# Whoever reads meanwhile


@pytest.mark.parametrize("lines", [None, 3, 6])
def test_who_reads_amid_a_compaction_at_any_step_of_it(lines: int | None) -> None:
    for stopped_after in range(STEPS_MAX):
        world = World()
        a_log(world)
        expected = read(world, world.store, lines)
        mover = Actor(world.store, partial(compact, world))
        goes_on = mover.step(stopped_after)
        assert read(world, world.store, lines) == expected, stopped_after
        assert epochs_with_log(world.repo, JOB) == [1]
        mover.finish()
        if not goes_on:
            return
    raise AssertionError("it never ended")


@pytest.mark.parametrize("lines", [None, 3, 6])
@pytest.mark.parametrize("steps_of_mover", [16, 19, 23, STEPS_MAX])
def test_a_compaction_amid_the_reading_at_any_step_of_that(
    lines: int | None, steps_of_mover: int
) -> None:
    for stopped_after in range(STEPS_MAX):
        world = World()
        a_log(world)
        expected = read(world, world.store, lines)
        reader = Actor(world.store, lambda store: read(world, store, lines))  # noqa: B023
        goes_on = reader.step(stopped_after)
        mover = Actor(world.store, partial(compact, world))
        mover.step(steps_of_mover)
        reader.finish()
        assert reader.error is None
        assert reader.result == expected, stopped_after
        mover.finish()
        if not goes_on:
            return
    raise AssertionError("it never ended")


def read(world: World, store: Store, lines: int | None) -> Whole:
    reader = LogReader(world.repo_over(store), JOB, 1)
    if lines is not None:
        reader.skip_to_tail(lines)
    return joined(reader.read_rest())


class TornListings(MemoryStore):
    """A listing takes its time, as that of a directory does: a compaction ends while it is made.
    Of what is deleted meanwhile it shows what it came by before, of what is new nothing."""

    def __init__(self, world: World, *, seen: int) -> None:
        super().__init__(world.clock, world.tasks)
        self._world = world
        self._seen = seen
        self.torn = True

    def list(
        self, prefix: str, *, start_after: str = "", limit: int = LIST_LIMIT_MAX
    ) -> list[Entry]:
        page = super().list(prefix, start_after=start_after, limit=limit)
        if self.torn:
            return page
        self.torn = True
        compact_log(self._world.repo_over(self), JOB, 1, segments_max=2, block_bytes=10)
        return page[: self._seen]


@pytest.mark.parametrize("lines", [None, 3, 6])
@pytest.mark.parametrize("seen", range(9))
def test_a_listing_that_misses_what_was_moved_loses_nothing(
    world: World, seen: int, lines: int | None
) -> None:
    store = TornListings(world, seen=seen)
    repo = world.repo_over(store)
    for number in range(8):
        write_segment(repo, JOB, 1, number * 4, b"%03d\n" % number)
    expected = read(world, store, lines)
    store.torn = False
    assert read(world, store, lines) == expected
    store.torn = False
    assert epochs_with_log(repo, JOB) == [1]


def test_a_follower_goes_on_in_the_blocks_where_it_was(world: World) -> None:
    reader, got = LogReader(world.repo, JOB, 1), list[Piece]()
    for number in range(5):
        write_segment(world.repo, JOB, 1, number * 4, b"%03d\n" % number)
    got.extend(reader.read_new())
    write_segment(world.repo, JOB, 1, 20, b"005\n")
    compact(world)
    got.extend(reader.read_rest())
    assert joined(got) == [b"000\n001\n002\n003\n004\n005\n"]


# Whatever comes late


def test_a_segment_that_lands_when_it_is_in_the_blocks_counts_for_nothing(world: World) -> None:
    before = a_log(world)
    compact(world)
    write_segment(world.repo, JOB, 1, 4, b"001\n")
    write_segment(world.repo, JOB, 1, 84, b"021")
    assert whole(world.store, world) == before
    compact(world)
    assert kinds(world) == ["block"] * 4 + ["index"]


def test_what_comes_behind_the_blocks_counts(world: World) -> None:
    """From a host that was thought to be gone."""
    before = a_log(world)
    compact(world)
    write_segment(world.repo, JOB, 1, 90, b"late\n")
    assert whole(world.store, world) == [*before, 2, b"late\n"]
    tail = LogReader(world.repo, JOB, 1)
    tail.skip_to_tail(2)
    assert joined(tail.read_rest()) == [b"021\n", 2, b"late\n"]


def test_what_is_in_a_gap_of_the_blocks_counts_and_is_not_deleted(world: World) -> None:
    """As from a store that did not list it."""
    a_log(world)
    compact(world)
    write_segment(world.repo, JOB, 1, 20, b"005\n")
    compact(world)
    assert whole(world.store, world)[:4] == [b"000\n001\n002\n003\n", 4, b"005\n", 16]


def test_a_segment_that_vanishes_before_it_is_read_is_a_gap_in_the_index(world: World) -> None:
    a_log(world)
    mover = Actor(world.store, partial(compact, world))
    mover.step(2)
    delete_segment(world.repo, JOB, 1, 8)
    mover.finish()
    assert mover.error is None
    assert whole(world.store, world)[:3] == [b"000\n001\n", 4, b"003\n"]


# What others put there


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        LogIndex(job_id="b" * 16, epoch=1, token="t", block_bytes=9, ranges=[]).encode(),
        LogIndex(
            job_id=JOB,
            epoch=1,
            token="t",
            block_bytes=1,
            ranges=[LogRange(offset=0, size=2**36)],
        ).encode(),
        LogIndex(
            job_id=JOB,
            epoch=1,
            token="t",
            block_bytes=9,
            ranges=[LogRange(offset=4, size=4), LogRange(offset=7, size=4)],
        ).encode(),
    ],
    ids=["no document", "another's", "endless", "overlapping"],
)
def test_an_index_that_cannot_be_read_costs_no_log(world: World, data: bytes) -> None:
    before = a_log(world)
    world.store.put(keys.log_index(JOB, 1), data)
    assert whole(world.store, world) == before
    compact(world)
    assert whole(world.store, world) == before


def test_blocks_that_are_not_there_are_a_gap(world: World) -> None:
    index = LogIndex(
        job_id=JOB, epoch=1, token="t", block_bytes=9, ranges=[LogRange(offset=0, size=40)]
    )
    world.store.put(keys.log_index(JOB, 1), index.encode())
    write_segment(world.repo, JOB, 1, 40, b"end\n")
    assert whole(world.store, world) == [40, b"end\n"]


# When it was printed


def test_times_are_those_of_the_holder_or_else_of_the_store(world: World) -> None:
    began = world.repo.now()
    for number in range(4):
        world.clock.sleep(10)
        write_segment(world.repo, JOB, 1, number * 4, b"%03d\n" % number)
    reader = LogReader(world.repo, JOB, 1)
    list(reader.read_new())
    told = [reader.find_time(offset) for offset in (0, 3, 4, 15)]
    assert [(at - began).total_seconds() for at in told if at is not None] == [10, 10, 20, 40]
    compact_log(world.repo, JOB, 1, segments_max=2)
    again = LogReader(world.repo, JOB, 1)
    list(again.read_new())
    assert [again.find_time(offset) for offset in (0, 3, 4, 15)] == told
    last = told[-1]
    assert last is not None
    later = LogReader(world.repo, JOB, 1)
    later.skip_to_time(last)
    assert joined(later.read_rest()) == [b"003\n"]


@pytest.mark.parametrize("operation", [Operation.GET, Operation.LIST])
def test_who_goes_on_after_an_error_amid_blocks_repeats_nothing(
    world: World, operation: Operation
) -> None:
    before = a_log(world)
    compact(world)
    for skip in range(3):
        faults = ScriptedFaults(Fault(FaultKind.UNAVAILABLE, operation, skip=skip))
        repo = world.repo_over(FaultyStore(world.store, world.clock, faults))
        reader, got = LogReader(repo, JOB, 1), list[Piece]()
        for _ in range(3):
            with suppress(StoreError):
                got.extend(reader.read_rest())
        assert joined(got) == before
