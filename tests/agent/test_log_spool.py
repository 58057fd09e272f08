"""What a command prints is never kept waiting: the beginning and the end are kept, by the byte."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest

from stado_agent.log_spool import LogLimit, LogSpool
from tests.jobs.world import World

LIMIT = LogLimit(16_000)


def spool_in(world: World, folder: Path, limit: LogLimit = LIMIT) -> LogSpool:
    folder.mkdir(exist_ok=True)
    return LogSpool(folder, limit, world.tasks.lock())


def printed(spool: LogSpool, data: bytes, step: int = 700) -> None:
    for start in range(0, len(data), step):
        spool.append(memoryview(data[start : start + step]))


def kept(spool: LogSpool) -> list[tuple[int, bytes]]:
    """Runs of bytes that follow each other, each with its offset."""
    runs: list[tuple[int, bytes]] = []
    position = 0
    while (piece := spool.read(position, bytes_max=5000)).data:
        if runs and piece.offset == position:
            runs[-1] = (runs[-1][0], runs[-1][1] + piece.data)
        else:
            runs.append((piece.offset, piece.data))
        position = piece.end
    return runs


def on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_bytes_come_back_as_they_went_in(world: World, tmp_path: Path) -> None:
    spool = spool_in(world, tmp_path / "log")
    data = os.urandom(12_345)
    printed(spool, data)
    assert kept(spool) == [(0, data)]
    assert spool.written == len(data)
    assert spool.waiting_behind(2345) == 10_000


def test_beyond_the_limit_the_middle_goes(world: World, tmp_path: Path) -> None:
    """A46: the disk within the limit at every moment, and every byte accounted for."""
    folder = tmp_path / "log"
    spool = spool_in(world, folder)
    data = os.urandom(200_000)
    for start in range(0, len(data), 997):
        spool.append(memoryview(data[start : start + 997]))
        assert on_disk(folder) <= LIMIT.total_bytes
    (_, head), (tail_offset, tail) = kept(spool)
    assert spool.written == len(data)
    assert data.startswith(head)
    assert len(head) >= LIMIT.head_bytes
    assert data[tail_offset:] == tail
    assert len(head) + len(tail) >= LIMIT.total_bytes - 2 * LIMIT.piece_bytes


def test_what_is_shipped_makes_room(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    spool = spool_in(world, folder)
    data = os.urandom(100_000)
    for start in range(0, len(data), 5000):
        printed(spool, data[start : start + 5000])
        assert spool.read(start, bytes_max=5000).data == data[start : start + 5000]
        spool.discard(start + 5000)
    assert on_disk(folder) == 0
    assert spool.written == len(data)


def test_a_disk_that_takes_nothing_costs_bytes_and_one_warning(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A57: what comes once there is room again is kept, behind a gap."""
    folder = tmp_path / "log"
    spool = spool_in(world, folder)
    printed(spool, b"before\n")
    spool.discard(7)
    shutil.rmtree(folder)
    with caplog.at_level(logging.WARNING):
        printed(spool, b"x" * 5000)
        printed(spool, b"y" * 5000)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    folder.mkdir()
    printed(spool, b"after\n")
    assert kept(spool) == [(10_007, b"after\n")]
    assert spool.written == 10_013


def test_a_piece_says_that_a_gap_follows(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    spool = spool_in(world, folder)
    printed(spool, b"one\n")
    assert not spool.read(0, bytes_max=100).gap_after
    spool.close()
    os.rename(folder, tmp_path / "away")
    printed(spool, b"one")
    os.rename(tmp_path / "away", folder)
    assert spool.read(0, bytes_max=2).gap_after is False
    assert spool.read(0, bytes_max=100).gap_after
    printed(spool, b"two\n")
    assert kept(spool) == [(0, b"one\n"), (7, b"two\n")]


def test_another_one_finds_what_was_left(world: World, tmp_path: Path) -> None:
    """A48: whoever wrote it may be dead."""
    folder = tmp_path / "log"
    data = os.urandom(9_000)
    first = spool_in(world, folder)
    printed(first, data)
    first.discard(2_500)
    found = LogSpool.left_in(folder, LIMIT, world.tasks.lock())
    ((offset, rest),) = kept(found)
    assert offset <= 2_500
    assert rest == data[offset:]
    assert found.written == 9_000


def test_a_second_head_is_kept_from_where_it_begins(world: World, tmp_path: Path) -> None:
    spool = spool_in(world, tmp_path / "log")
    first, second = os.urandom(50_000), os.urandom(100_000)
    printed(spool, first)
    spool.discard(50_000)
    spool.keep_head_from(50_000)
    printed(spool, second)
    (head_offset, head), (_, tail) = kept(spool)
    assert head_offset == 50_000
    assert second.startswith(head)
    assert second.endswith(tail)


def test_a_piece_behind_a_gap_says_whether_it_begins_a_line(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    spool = spool_in(world, folder)
    for lost, begins_line in ((b"one\n", True), (b"half", False)):
        folder.rename(tmp_path / "away")
        printed(spool, lost)
        (tmp_path / "away").rename(folder)
        before = spool.written
        printed(spool, b"next\n")
        assert spool.read(before, bytes_max=100).begins_line is begins_line
        spool.close()


def test_a_file_that_could_be_made_but_not_written_hides_nothing(
    world: World, tmp_path: Path
) -> None:
    """As on a full disk, where a name still finds room."""
    folder = tmp_path / "log"
    spool = spool_in(world, folder)
    printed(spool, b"before\n")
    spool.close()
    (folder / f"{7:016d}").symlink_to("/dev/full")
    printed(spool, b"lost\n")
    printed(spool, b"after\n")
    assert kept(spool) == [(0, b"before\n"), (12, b"after\n")]
    assert [path.name for path in sorted(folder.iterdir())] == [f"{0:016d}", f"{12:016d}"]
