"""A write of a segment that lands when nobody expects it any more."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import LogAccount
from stado.errors import StoreError
from stado.jobs.log_segments import list_log
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.observe import Operation
from stado_agent.log_shipping import LogEpoch, LogShipper
from stado_agent.log_spool import LogLimit, LogSpool
from tests.jobs.world import World, stored_log

JOB = "a" * 16
LIMIT = LogLimit(16_000)


class Line:
    """A shipper whose first segment is late."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.world = World()
        self.faults = ScriptedFaults(Fault(FaultKind.LATE, Operation.CREATE))
        self.store = FaultyStore(self.world.store, self.world.clock, self.faults)
        self.spool = LogSpool(folder, LIMIT, self.world.tasks.lock())
        repo = self.world.repo_over(self.store)
        self.shipper = LogShipper(repo, self.spool, LIMIT, LogEpoch(JOB, 1))
        self.print(b"one\n")
        self.try_to_ship()

    def print(self, line: bytes) -> None:
        self.spool.append(memoryview(line))
        self.world.clock.sleep(2)

    def try_to_ship(self) -> None:
        with suppress(StoreError):
            self.shipper.ship_when_due()


def test_a_segment_that_lands_late_does_not_replace_the_longer_one_of_the_next_attempt(
    tmp_path: Path,
) -> None:
    line = Line(tmp_path / "log")
    line.print(b"two\n")
    line.try_to_ship()
    line.store.land_late_writes()
    account = line.shipper.ship_rest()
    assert stored_log(line.world.repo, JOB, 1) == b"one\ntwo\n"
    assert account == LogAccount(written=8, kept=8, dropped=0)


def test_a_segment_that_lands_before_the_next_attempt_is_gone_on_from(tmp_path: Path) -> None:
    line = Line(tmp_path / "log")
    line.try_to_ship()
    line.print(b"two\n")
    line.store.land_late_writes()
    line.world.clock.sleep(2)
    line.try_to_ship()
    line.world.clock.sleep(2)
    line.try_to_ship()
    account = line.shipper.ship_rest()
    assert stored_log(line.world.repo, JOB, 1) == b"one\ntwo\n"
    assert account == LogAccount(written=8, kept=8, dropped=0)


@pytest.mark.parametrize("lands", ["before", "between", "after"])
@pytest.mark.parametrize("tried_again", [False, True])
def test_a_segment_that_lands_after_its_epoch_was_carried_over_doubles_nothing(
    tmp_path: Path, lands: str, tried_again: bool
) -> None:
    """It is written again where it would land, before the next epoch begins with what is behind
    it. Also where the store was away for the attempt in between."""
    line = Line(tmp_path / "log")
    line.print(b"two\nhalf a line")
    if tried_again:
        line.faults.add(Fault(FaultKind.UNAVAILABLE, Operation.CREATE))
        line.try_to_ship()
    if lands == "before":
        line.store.land_late_writes()
    assert line.shipper.unclear
    line.shipper.make_clear()
    if lands == "between":
        line.store.land_late_writes()
    line.shipper.begin_epoch(2)
    line.store.land_late_writes()
    account = line.shipper.ship_rest()
    assert stored_log(line.world.repo, JOB, 1) == b"one\n"
    assert stored_log(line.world.repo, JOB, 2) == b"two\nhalf a line"
    assert account == LogAccount(written=15, kept=15, dropped=0)


@pytest.mark.parametrize("drops_more", [False, True])
def test_a_segment_that_lands_late_behind_a_gap_doubles_nothing(
    tmp_path: Path, drops_more: bool
) -> None:
    """After an outage in which more was printed than the host keeps; also where it drops the
    beginning of that segment as well."""
    line = Line(tmp_path / "log")
    line.store.land_late_writes()
    line.try_to_ship()
    line.print(b"%0*d\n" % (LIMIT.piece_bytes - len(b"one\n\n"), 0))
    _print_numbers(line, 0, 8_000)
    gap = _ship_up_to_the_gap(line)
    line.faults.add(Fault(FaultKind.LATE, Operation.CREATE))
    line.world.clock.sleep(200)
    line.try_to_ship()
    if drops_more:
        _print_numbers(line, 8_000, 9_000)
        assert line.spool.read(gap, bytes_max=1).offset > gap
    assert line.shipper.unclear
    line.shipper.make_clear()
    line.shipper.begin_epoch(2)
    line.store.land_late_writes()
    line.shipper.ship_rest()
    first, second = (set(stored_log(line.world.repo, JOB, epoch).split()) for epoch in (1, 2))
    assert first & second == set()
    assert b"%09d" % (8_999 if drops_more else 7_999) in second


def test_a_segment_whose_beginning_the_host_has_dropped_doubles_nothing(tmp_path: Path) -> None:
    """The rest of it belongs to the epoch that it was written for, whether it lands or not."""
    line = Line(tmp_path / "log")
    line.store.land_late_writes()
    line.try_to_ship()
    line.print(b"%0*d\n" % (LIMIT.piece_bytes // 2 - len(b"one\n\n"), 0))
    _print_numbers(line, 0, 600)
    line.print(b"00000")
    line.world.clock.sleep(200)
    line.try_to_ship()
    begin = _shipped_end(line)
    line.faults.add(Fault(FaultKind.LATE, Operation.CREATE))
    line.print(b"0600\n")
    _print_numbers(line, 601, 800)
    line.world.clock.sleep(200)
    line.try_to_ship()
    printed = 800
    while line.spool.read(begin, bytes_max=1).offset == begin:
        _print_numbers(line, printed, printed + 1)
        printed += 1
    line.shipper.make_clear()
    line.shipper.begin_epoch(2)
    line.store.land_late_writes()
    line.shipper.ship_rest()
    first, second = (stored_log(line.world.repo, JOB, epoch).split() for epoch in (1, 2))
    assert first[2:] == [b"%09d" % number for number in range(700)]
    assert set(first) & set(second) == set()
    assert second[-1] == b"%09d" % (printed - 1)


def _print_numbers(line: Line, first: int, end: int) -> None:
    for number in range(first, end):
        line.spool.append(memoryview(b"%09d\n" % number))


def _ship_up_to_the_gap(line: Line) -> int:
    """Where what is kept behind it begins."""
    for _ in range(100):
        piece = line.spool.read(shipped := _shipped_end(line), bytes_max=1)
        if piece.offset > shipped:
            return piece.offset
        line.shipper._ship_one(final=False)
    raise AssertionError("the spool has no gap")


def _shipped_end(line: Line) -> int:
    return max(place.end for place in list_log(line.world.repo, JOB, 1).segments)


def test_segments_that_overlap_are_accounted_for_once(tmp_path: Path) -> None:
    """As where the host had dropped the beginning of what then landed late after all."""
    line = Line(tmp_path / "log")
    line.print(b"two\n")
    line.world.store.create(keys.log_segment(JOB, 1, 0), b"one\ntw")
    line.world.store.create(keys.log_segment(JOB, 1, 4), b"two\n")
    account = line.shipper.ship_rest()
    assert stored_log(line.world.repo, JOB, 1) == b"one\ntwo\n"
    assert account == LogAccount(written=8, kept=8, dropped=0)


def test_a_key_that_holds_nothing_is_a_refusal_and_no_endless_loop(tmp_path: Path) -> None:
    """As somebody else may have left it there."""
    line = Line(tmp_path / "log")
    line.world.store.create(keys.log_segment(JOB, 1, 0), b"")
    for _ in range(3):
        line.try_to_ship()
        line.world.clock.sleep(2)
    line.shipper.make_clear()
    assert [place.size for place in list_log(line.world.repo, JOB, 1).segments] == [0]
