"""Next to what was dropped there are whole lines, and nothing of them is dropped without need."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.core.records import LogAccount
from tests.agent.printing import SMALL, Printing, assert_lines_are_whole
from tests.jobs.world import World
from tests.search import examples

PIECE = SMALL.piece_bytes


@pytest.mark.parametrize(
    ("behind_a_gap", "kept"),
    [
        pytest.param(b"half\none\n", b"one\n", id="the next line"),
        pytest.param(
            b"x" * 400 + b"\n" + b"y" * 800 + b"\n", b"y" * 800 + b"\n", id="one that fits"
        ),
        pytest.param(b"x" * (PIECE - 1) + b"\none\n", b"one\n", id="one in the next piece"),
        pytest.param(b"10%\r20%\r", b"20%\r", id="a progress bar"),
        pytest.param(b"half\r\none\r\n", b"one\r\n", id="both ends"),
        pytest.param(b"half\n", b"", id="none"),
        pytest.param(b"half", b"", id="none, and no end"),
        pytest.param(b"half\nend", b"end", id="the end of all"),
        pytest.param(b"x" * 3 * PIECE + b"\n", b"x" * 3 * PIECE + b"\n", id="more than a segment"),
    ],
)
def test_half_a_line_behind_a_gap_is_left_out_and_no_more(
    world: World, tmp_path: Path, behind_a_gap: bytes, kept: bytes
) -> None:
    printing = Printing(world, tmp_path / "log", SMALL)
    printing.lose(b"the beginning of ")
    printing.print(behind_a_gap)
    account = printing.shipper.ship_rest()
    assert b"".join(printing.segments()) == kept
    assert len(printing.segments()) == -(-len(kept) // PIECE)
    assert (account.written, account.kept) == (17 + len(behind_a_gap), len(kept))


@pytest.mark.parametrize(
    ("before_a_gap", "kept"),
    [
        pytest.param(b"one\nhalf", b"one\n", id="the line before"),
        pytest.param(b"half", b"", id="none"),
        pytest.param(b"10%\r20%", b"10%\r", id="a progress bar"),
        pytest.param(b"x" * PIECE, b"x" * PIECE, id="more than a segment"),
    ],
)
def test_half_a_line_before_a_gap_is_left_out_and_no_more(
    world: World, tmp_path: Path, before_a_gap: bytes, kept: bytes
) -> None:
    printing = Printing(world, tmp_path / "log", SMALL)
    printing.print(before_a_gap)
    printing.lose(b" and the end of it\n")
    printing.print(b"next\n")
    printing.shipper.ship_rest()
    assert b"".join(printing.segments()) == kept + b"next\n"


def test_a_half_line_that_ends_with_its_piece_takes_no_other_with_it(
    world: World, tmp_path: Path
) -> None:
    """The end of a log may begin where a line does: nobody knows, and that line goes."""
    printing = Printing(world, tmp_path / "log", SMALL)
    line = b"x" * (PIECE - 1) + b"\n"
    printing.print(b"first one\n" + line * 4 + line[:5])
    printing.pass_time(2)
    shipped = printing.places()[-1].end
    printing.print(line[5:] + line * 13)
    account = printing.shipper.ship_rest()
    tail_start = account.written - SMALL.tail_bytes
    assert shipped < tail_start
    assert account.kept == shipped + SMALL.tail_bytes - PIECE


@examples(60)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["print", "print", "lose", "ship"]),
            st.lists(
                st.tuples(st.integers(0, 1_500), st.sampled_from([b"\n", b"\n", b"\r", b""])),
                max_size=30,
            ),
        ),
        max_size=25,
    ),
)
def test_whatever_a_disk_takes_none_of_what_is_kept_is_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[tuple[int, bytes]]]]
) -> None:
    """A46, A57: by the byte, and never more than the limit."""
    printing = Printing(World(), tmp_path_factory.mktemp("spool") / "log", SMALL)
    printed = b""
    for what, lines in steps:
        text = b"".join(bytes([65 + n % 26]) * size + end for n, (size, end) in enumerate(lines))
        printed += text
        if what == "lose":
            printing.lose(text)
        else:
            printing.print(text)
        if what == "ship":
            printing.pass_time(2)
    account = printing.shipper.ship_rest()
    places, segments = printing.places(), printing.segments()
    kept = sum(map(len, segments))
    assert account == LogAccount(written=len(printed), kept=kept, dropped=len(printed) - kept)
    assert kept <= SMALL.total_bytes
    assert [printed[place.offset : place.end] for place in places] == segments
    assert_lines_are_whole(printed, places, piece_bytes=PIECE)
