"""A log is read once and in order, from wherever one begins; what was dropped is a gap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.core import keys
from stado.core.records import LogAccount, Manifest
from stado.jobs.log_segments import (
    SEGMENT_BYTES_MAX,
    delete_segment,
    epochs_with_log,
    write_segment,
)
from stado.jobs.logs import Gap, LogReader, Piece
from stado.jobs.repository import Repository
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.memory import MemoryStore
from stado.storage.observe import CountingStore, Operation
from stado.storage.port import LIST_LIMIT_MAX, Blob, Entry, Version
from tests.jobs.world import World

JOB = "a" * 16


def write(world: World, *segments: tuple[int, bytes], epoch: int = 1) -> None:
    for offset, data in segments:
        write_segment(world.repo, JOB, epoch, offset, data)


def tail(repo: Repository, lines: int) -> bytes:
    return joined(list(reader_at_tail(repo, lines).read_new()))


def reader_at_tail(repo: Repository, lines: int) -> LogReader:
    reader = LogReader(repo, JOB, 1)
    reader.skip_to_tail(lines)
    return reader


def joined(pieces: list[Piece]) -> bytes:
    assert all(isinstance(piece, bytes) for piece in pieces), pieces
    return b"".join(piece for piece in pieces if isinstance(piece, bytes))


def account(world: World, written: int, kept: int) -> None:
    log = LogAccount(written=written, kept=kept, dropped=written - kept)
    manifest = Manifest(job_id=JOB, epoch=1, partial=False, files=[], log=log)
    world.store.put(keys.output_manifest(JOB, 1), manifest.encode())


# Where one begins


def test_what_comes_is_read_once_and_in_order(world: World) -> None:
    reader = LogReader(world.repo, JOB, 1)
    assert list(reader.read_new()) == []
    write(world, (0, b"one\n"), (4, b"two\n"))
    assert list(reader.read_new()) == [b"one\n", b"two\n"]
    assert list(reader.read_new()) == []
    write(world, (8, b"three"))
    assert list(reader.read_new()) == [b"three"]
    assert reader.offset == 13


def test_a_reader_begins_at_an_offset_in_the_middle_of_a_segment(world: World) -> None:
    write(world, (0, b"abc"), (3, b"defg"), (7, b"hi"))
    assert joined(list(LogReader(world.repo, JOB, 1, offset=5).read_new())) == b"fghi"


@pytest.mark.parametrize(
    ("lines", "shown"),
    [(0, b""), (1, b"4\n"), (2, b"3\n4\n"), (4, b"1\n2\n3\n4\n"), (9, b"1\n2\n3\n4\n")],
)
def test_the_last_lines_and_then_what_comes(world: World, lines: int, shown: bytes) -> None:
    """R29, R30"""
    write(world, (0, b"1\n2"), (3, b"\n3\n"), (6, b"4\n"))
    reader = reader_at_tail(world.repo, lines)
    assert joined(list(reader.read_new())) == shown
    write(world, (8, b"5\n"))
    assert list(reader.read_new()) == [b"5\n"]


def test_a_last_line_without_its_end_is_a_line(world: World) -> None:
    write(world, (0, b"1\n2\n3"))
    assert tail(world.repo, 1) == b"3"
    assert tail(world.repo, 2) == b"2\n3"


def test_a_progress_bar_is_one_line(world: World) -> None:
    write(world, (0, b"begin\n" + b"".join(b"%d%%\r" % n for n in range(100)) + b"done\nend\n"))
    assert tail(world.repo, 1) == b"end\n"
    assert tail(world.repo, 2).startswith(b"0%\r1%\r")
    assert tail(world.repo, 3).startswith(b"begin\n")


def test_a_reader_that_was_there_before_the_log_gets_all_of_it(world: World) -> None:
    reader = reader_at_tail(world.repo, 1)
    write(world, (0, b"1\n2\n3\n"))
    assert list(reader.read_new()) == [b"1\n2\n3\n"]


@given(
    sizes=st.lists(st.integers(1, 9), max_size=12),
    lines=st.integers(0, 20),
    text=st.binary(min_size=108, max_size=108).map(lambda data: data.replace(b"\0", b"\n")),
)
def test_the_last_lines_do_not_depend_on_where_segments_end(
    sizes: list[int], lines: int, text: bytes
) -> None:
    world, offset = World(), 0
    for size in sizes:
        write(world, (offset, text[offset : offset + size]))
        offset += size
    parts = text[:offset].split(b"\n")
    ended = [part + b"\n" for part in parts[:-1]] + [part for part in parts[-1:] if part]
    assert tail(world.repo, lines) == b"".join(ended[-lines:] if lines else [])


def test_only_the_last_segments_are_read_for_the_last_lines(world: World) -> None:
    for number in range(200):
        write(world, (number * 4, b"%03d\n" % number))
    counting = CountingStore(world.store, world.tasks)
    assert tail(world.repo_over(counting), 10) == b"".join(b"%03d\n" % n for n in range(190, 200))
    assert counting.snapshot().of(Operation.GET) <= 16 + 1
    assert counting.snapshot().of(Operation.LIST) == 2


# What was dropped


def test_a_dropped_middle_is_a_gap(world: World) -> None:
    write(world, (0, b"head\n"), (1_000_005, b"tail\n"))
    reader = LogReader(world.repo, JOB, 1)
    assert list(reader.read_new()) == [b"head\n", Gap(1_000_000), b"tail\n"]
    assert Gap(1_936_123).text == "1,936,123 bytes of the log were dropped here"
    assert Gap(1).text == "1 byte of the log was dropped here"


def test_a_log_can_begin_with_a_gap_and_the_last_lines_do_not_tell_of_it(world: World) -> None:
    write(world, (7, b"1\n2\n"))
    assert list(LogReader(world.repo, JOB, 1).read_new()) == [Gap(7), b"1\n2\n"]
    assert tail(world.repo, 1) == b"2\n"


def test_the_last_lines_may_lie_around_a_gap(world: World) -> None:
    write(world, (0, b"1\n2\n"), (10, b"3\n"))
    assert list(reader_at_tail(world.repo, 2).read_new()) == [b"2\n", Gap(6), b"3\n"]


class VanishingStore(MemoryStore):
    """Deletes a segment between the listing that showed it and the first read of it."""

    def __init__(self, world: World, key: str) -> None:
        super().__init__(world.clock, world.tasks)
        self._key = key

    def get(self, key: str, *, unless: Version | None = None) -> Blob:
        self.delete(self._key, None)
        return super().get(key, unless=unless)


@pytest.mark.parametrize("lines", [None, 9])
def test_a_segment_that_vanishes_between_listing_and_read_is_a_gap(
    world: World, lines: int | None
) -> None:
    repo = world.repo_over(VanishingStore(world, keys.log_segment(JOB, 1, 2)))
    for offset, data in ((0, b"1\n"), (2, b"2\n"), (4, b"3\n")):
        write_segment(repo, JOB, 1, offset, data)
    reader = LogReader(repo, JOB, 1)
    if lines is not None:
        reader.skip_to_tail(lines)
    assert list(reader.read_new()) == [b"1\n", Gap(2), b"3\n"]


def test_a_window_that_rolls_while_one_reads_gives_each_byte_at_most_once(world: World) -> None:
    reader, got, dropped = LogReader(world.repo, JOB, 1), b"", 0
    for number in range(60):
        write(world, (number * 3, b"%02d\n" % number))
        if number > 5:
            delete_segment(world.repo, JOB, 1, (number - 4) * 3)
        if number % 9 == 0:
            for piece in reader.read_new():
                if isinstance(piece, Gap):
                    dropped += piece.size
                else:
                    got += piece
    assert sorted(set(got.split())) == got.split()
    assert len(got) + dropped == reader.offset == 55 * 3


class LateNames(MemoryStore):
    """A listing shows the newest name, and only the next one an older that came meanwhile."""

    def __init__(self, world: World, missed: str) -> None:
        super().__init__(world.clock, world.tasks)
        self._missed = [missed]

    def list(
        self, prefix: str, *, start_after: str = "", limit: int = LIST_LIMIT_MAX
    ) -> list[Entry]:
        page = super().list(prefix, start_after=start_after, limit=limit)
        missed = self._missed.pop() if self._missed else None
        return [entry for entry in page if entry.key != missed]


def test_a_name_that_a_listing_missed_is_no_gap(world: World) -> None:
    repo = world.repo_over(LateNames(world, keys.log_segment(JOB, 1, 2)))
    for offset, data in ((0, b"1\n"), (2, b"2\n"), (4, b"3\n")):
        write_segment(repo, JOB, 1, offset, data)
    assert list(LogReader(repo, JOB, 1).read_new()) == [b"1\n", b"2\n", b"3\n"]


def test_what_was_dropped_at_the_end_is_told_by_the_manifest(world: World) -> None:
    write(world, (0, b"head\n"))
    account(world, written=105, kept=5)
    reader = LogReader(world.repo, JOB, 1)
    pieces = list(reader.read_rest())
    assert pieces == [b"head\n", Gap(100, at_end=True)]
    assert list(reader.read_rest()) == []
    assert Gap(100, at_end=True).text == "100 bytes of the log were dropped here, at its end"


def test_a_manifest_that_cannot_be_read_costs_no_log(world: World) -> None:
    write(world, (0, b"head\n"))
    world.store.put(keys.output_manifest(JOB, 1), b"{")
    assert list(LogReader(world.repo, JOB, 1).read_rest()) == [b"head\n"]


# A store that fails


def test_who_goes_on_after_an_error_repeats_nothing(world: World) -> None:
    write(world, *((number * 2, b"%d\n" % number) for number in range(9)))
    faults = ScriptedFaults()
    reader = LogReader(world.repo_over(FaultyStore(world.store, world.clock, faults)), JOB, 1)
    got: list[Piece] = []
    for operation, skip in ((Operation.LIST, 0), (Operation.GET, 4)):
        faults.add(Fault(FaultKind.UNAVAILABLE, operation, skip=skip))
        with pytest.raises(Exception, match="injected"):
            got.extend(reader.read_new())
    got.extend(reader.read_new())
    assert joined(got) == b"".join(b"%d\n" % number for number in range(9))


def test_a_large_log_is_read_in_pieces_of_a_few_mib(world: World) -> None:
    """Memory is bounded: no more segments are read ahead than fit into the batch."""
    block = b"x" * (SEGMENT_BYTES_MAX - 1) + b"\n"
    write(world, *((number * len(block), block) for number in range(20)))
    counting = CountingStore(world.store, world.tasks)
    pieces = LogReader(world.repo_over(counting), JOB, 1).read_new()
    next(pieces)
    assert counting.snapshot().of(Operation.GET) == 2
    assert sum(len(piece) for piece in pieces if isinstance(piece, bytes)) == 19 * len(block)


def test_epochs_with_a_log_are_told_from_their_segments(world: World) -> None:
    write(world, (0, b"1"))
    write(world, (0, b"3"), epoch=3)
    assert epochs_with_log(world.repo, JOB) == [1, 3]
