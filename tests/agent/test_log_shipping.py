"""What leaves the host is what the command wrote, in whole lines where there are lines."""

from __future__ import annotations

from pathlib import Path

from stado.jobs.logs import SEGMENT_BYTES_MAX, LogReader
from stado_agent.log_shipping import LogShipper
from tests.jobs.world import World

JOB = "a" * 16


def _segments(world: World, epoch: int = 1) -> list[bytes]:
    return list(LogReader(world.repo, JOB, epoch).read_new())


def test_a_segment_ends_with_a_line_and_the_rest_follows(world: World, tmp_path: Path) -> None:
    path = tmp_path / "log"
    shipper = LogShipper(world.repo, path)
    path.write_bytes(b"one\ntwo\nthr")
    world.clock.sleep(2)
    shipper.ship_when_due(JOB, 1)
    assert _segments(world) == [b"one\ntwo\n"]
    with path.open("ab") as file:
        file.write(b"ee\nend")
    shipper.ship_rest(JOB, 1)
    assert _segments(world) == [b"one\ntwo\n", b"three\nend"]


def test_nothing_is_shipped_more_often_than_once_a_second(world: World, tmp_path: Path) -> None:
    path = tmp_path / "log"
    shipper = LogShipper(world.repo, path)
    path.write_bytes(b"one\n")
    world.clock.sleep(0.5)
    shipper.ship_when_due(JOB, 1)
    assert _segments(world) == []
    world.clock.sleep(0.5)
    shipper.ship_when_due(JOB, 1)
    assert _segments(world) == [b"one\n"]


def test_the_segments_of_an_old_job_are_further_apart(world: World, tmp_path: Path) -> None:
    """A week of steady output is some ten thousand segments, not half a million."""
    path = tmp_path / "log"
    shipper = LogShipper(world.repo, path)
    path.write_bytes(b"")
    week = 7 * 24 * 3600
    for _ in range(week // 20):
        world.clock.sleep(20)
        with path.open("ab") as file:
            file.write(b"x\n")
        shipper.ship_when_due(JOB, 1)
    assert len(_segments(world)) < 12_000


def test_a_line_longer_than_a_segment_is_cut_and_none_of_it_lost(
    world: World, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    line = bytes(range(256)).replace(b"\n", b"").replace(b"\r", b"") * 9000 + b"\n"
    path.write_bytes(line + b"next\n")
    LogShipper(world.repo, path).ship_rest(JOB, 1)
    segments = _segments(world)
    assert b"".join(segments) == line + b"next\n"
    assert max(map(len, segments)) <= SEGMENT_BYTES_MAX
    assert len(segments) == 3


def test_a_progress_bar_is_shown_while_it_moves(world: World, tmp_path: Path) -> None:
    path = tmp_path / "log"
    shipper = LogShipper(world.repo, path)
    path.write_bytes(b"10%\r20%\r30")
    world.clock.sleep(2)
    shipper.ship_when_due(JOB, 1)
    assert _segments(world) == [b"10%\r20%\r"]


def test_an_adopted_epoch_goes_on_where_the_last_one_stopped(world: World, tmp_path: Path) -> None:
    path = tmp_path / "log"
    shipper = LogShipper(world.repo, path)
    path.write_bytes(b"first\n")
    shipper.ship_rest(JOB, 1)
    with path.open("ab") as file:
        file.write(b"second\n")
    shipper.ship_rest(JOB, 2)
    assert _segments(world, 1) == [b"first\n"]
    assert _segments(world, 2) == [b"second\n"]


def test_a_job_that_never_had_a_log_has_nothing_to_ship(world: World, tmp_path: Path) -> None:
    shipper = LogShipper(world.repo, tmp_path / "absent")
    world.clock.sleep(60)
    shipper.ship_when_due(JOB, 1)
    shipper.ship_rest(JOB, 1)
    assert _segments(world) == []
