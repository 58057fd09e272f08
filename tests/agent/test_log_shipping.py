"""What leaves the host is what the command wrote, in whole lines where there are lines."""

from __future__ import annotations

import itertools
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.core.records import LogAccount
from stado.errors import StoreError
from stado.jobs.log_segments import SEGMENT_BYTES_MAX, SegmentPlace
from stado.storage.faults import Fault, FaultKind, FaultyStore
from stado.storage.observe import Operation
from stado_agent.log_shipping import LogEpoch, LogShipper
from stado_agent.log_spool import LogLimit
from tests.agent.printing import JOB, SMALL, Printing, assert_lines_are_whole
from tests.jobs.world import World
from tests.search import examples


@pytest.fixture
def printing(world: World, tmp_path: Path) -> Printing:
    return Printing(world, tmp_path / "log")


def test_a_segment_ends_with_a_line_and_the_rest_follows(printing: Printing) -> None:
    printing.print(b"one\ntwo\nthr")
    printing.pass_time(2)
    assert printing.segments() == [b"one\ntwo\n"]
    printing.print(b"ee\nend")
    account = printing.shipper.ship_rest()
    assert printing.segments() == [b"one\ntwo\n", b"three\nend"]
    assert account == LogAccount(written=17, kept=17, dropped=0)


def test_lines_over_several_segments_stay_whole(printing: Printing) -> None:
    """A45: joined, the bytes are identical."""
    lines = b"".join(b'{"step": %d, "loss": 0.%d}\n' % (n, n * 7919) for n in range(220_000))
    assert len(lines) > 3 * SEGMENT_BYTES_MAX
    printing.print(lines)
    printing.shipper.ship_rest()
    segments = printing.segments()
    assert len(segments) >= 4
    assert all(segment.endswith(b"\n") for segment in segments)
    assert b"".join(segments) == lines


def test_nothing_is_shipped_more_often_than_once_a_second(printing: Printing) -> None:
    printing.print(b"one\n")
    printing.pass_time(0.5)
    assert printing.segments() == []
    printing.pass_time(0.5)
    assert printing.segments() == [b"one\n"]


def test_the_segments_of_an_old_job_are_further_apart(printing: Printing) -> None:
    """A week of steady output is some five thousand segments, not half a million."""
    day = 24 * 3600
    for _ in range(day // 10):
        printing.print(b"x\n")
        printing.pass_time(10)
    assert 700 < len(printing.places()) < 740


def test_a_line_longer_than_a_segment_is_cut_and_none_of_it_lost(printing: Printing) -> None:
    line = bytes(range(256)).replace(b"\n", b"").replace(b"\r", b"") * 21_000 + b"\n"
    assert len(line) > 5_000_000
    printing.print(line + b"next\n")
    printing.shipper.ship_rest()
    segments = printing.segments()
    assert b"".join(segments) == line + b"next\n"
    assert max(map(len, segments)) <= SEGMENT_BYTES_MAX


def test_a_progress_bar_is_shown_while_it_moves(printing: Printing) -> None:
    printing.print(b"10%\r20%\r30")
    printing.pass_time(2)
    assert printing.segments() == [b"10%\r20%\r"]


def test_an_adopted_epoch_goes_on_where_the_last_one_stopped(printing: Printing) -> None:
    """Its offsets begin anew: nothing is missing in either."""
    printing.print(b"first\n")
    printing.shipper.ship_rest()
    printing.shipper.begin_epoch(2)
    printing.print(b"second\n")
    assert printing.shipper.ship_rest() == LogAccount(written=7, kept=7, dropped=0)
    assert (printing.segments(1), printing.segments(2)) == ([b"first\n"], [b"second\n"])
    assert printing.places(2) == [SegmentPlace(0, 7)]


def test_a_job_that_never_printed_has_nothing_to_ship(printing: Printing) -> None:
    printing.pass_time(60)
    assert printing.shipper.ship_rest() == LogAccount(written=0, kept=0, dropped=0)
    assert printing.segments() == []


def test_while_it_prints_no_more_is_stored_than_the_limit(world: World, tmp_path: Path) -> None:
    """The end can be read while the job runs, however much it has printed."""
    printing = Printing(world, tmp_path / "log", SMALL)
    printed = b""
    for n in range(400):
        line = b"line %d of many\n" % n * 20
        printed += line
        printing.print(line)
        printing.pass_time(2)
        assert sum(place.size for place in printing.places()) <= SMALL.total_bytes
        assert printing.segments()[-1] in printed[-4_000:]


def test_another_shipper_goes_on_where_a_dead_one_stopped(world: World, tmp_path: Path) -> None:
    """A48: the spool is brought to the store by whoever comes next."""
    printing = Printing(world, tmp_path / "log")
    printing.print(b"one\ntwo\nhal")
    printing.pass_time(2)
    printing.print(b"f\nthree")
    successor = Printing(world, tmp_path / "log")
    successor.take_over()
    assert successor.shipper.ship_rest() == LogAccount(written=18, kept=18, dropped=0)
    assert b"".join(successor.segments()) == b"one\ntwo\nhalf\nthree"


@examples(60)
@given(
    steps=st.lists(
        st.tuples(
            st.lists(st.integers(0, 900), max_size=40),
            st.booleans(),
        ),
        max_size=25,
    ),
    newline_every=st.sampled_from([1, 3, 50]),
)
def test_whatever_is_printed_what_is_kept_is_exact(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[list[int], bool]],
    newline_every: int,
) -> None:
    """A46: the beginning and the end, whole lines, `written = kept + dropped`; and below the
    limit everything."""
    printing = Printing(World(), tmp_path_factory.mktemp("spool") / "log", SMALL)
    printed, numbers = b"", itertools.count()
    for sizes, ship in steps:
        for size in sizes:
            end = b"\n" if next(numbers) % newline_every == 0 else b""
            data = bytes(65 + (len(printed) + i) % 26 for i in range(size)) + end
            printed += data
            printing.print(data)
        if ship:
            printing.pass_time(2)
    account = printing.shipper.ship_rest()
    places, segments = printing.places(), printing.segments()
    kept = sum(map(len, segments))
    assert account == LogAccount(written=len(printed), kept=kept, dropped=len(printed) - kept)
    assert kept <= SMALL.total_bytes
    assert [printed[place.offset : place.end] for place in places] == segments
    assert_lines_are_whole(printed, places, piece_bytes=SMALL.piece_bytes)
    if len(printed) <= SMALL.total_bytes:
        assert b"".join(segments) == printed
    else:
        assert (places[0].offset, places[-1].end) == (0, len(printed))
        assert kept >= SMALL.total_bytes - 4 * SMALL.piece_bytes


class Unsteady:
    """Some writes and deletions fail: applied or not, with or without an answer."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.rate = 0.0

    def next(self, operation: Operation, _key: str) -> Fault | None:
        if operation in (Operation.LIST, Operation.GET) or self._random.random() >= self.rate:
            return None
        kinds = [FaultKind.UNAVAILABLE, FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST]
        return Fault(self._random.choice(kinds))


@pytest.mark.parametrize("seed", range(60))
def test_whatever_fails_on_the_way_what_is_kept_is_exact(tmp_path: Path, seed: int) -> None:
    """Also over adoptions, and when somebody else takes over: no byte is doubled or misplaced."""
    random = Random(seed)
    world = World()
    unsteady = Unsteady(random)
    faulty = world.repo_over(FaultyStore(world.store, world.clock, unsteady))
    printing = Printing(world, tmp_path / "log", LogLimit(random.choice([64, 160, 320])))
    printing.shipper = LogShipper(faulty, printing.spool, printing.limit, LogEpoch(JOB, 1))
    printed, bases = b"", {1: 0}
    for _ in range(random.randrange(5, 120)):
        unsteady.rate = random.choice([0, 0, 0.3])
        what = random.random()
        if what < 0.5:
            lines = [b"x" * random.randrange(12) + random.choice([b"\n", b"\r", b""])] * 3
            text = b"".join(lines).replace(b"x", bytes([random.randrange(97, 123)]))
            printed += text
            printing.print(text)
        elif what < 0.95:
            with suppress(StoreError):
                printing.pass_time(random.uniform(0, 5))
        else:
            epoch = max(bases) + 1
            bases[epoch] = printing.shipper.begin_epoch(epoch).base
    unsteady.rate = 0.3
    while True:
        try:
            account = printing.shipper.ship_rest()
            break
        except StoreError:
            unsteady.rate /= 2
    for epoch, base in bases.items():
        end = 0
        for place, segment in zip(printing.places(epoch), printing.segments(epoch), strict=True):
            assert printed[base + place.offset : base + place.end] == segment
            assert place.offset >= end
            end = place.end
    kept = sum(place.size for place in printing.places(max(bases)))
    written = len(printed) - bases[max(bases)]
    assert account == LogAccount(written=written, kept=kept, dropped=written - kept)
    assert kept <= printing.limit.total_bytes
