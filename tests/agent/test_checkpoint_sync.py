"""A job's checkpoint folder in the store: whole, no oftener than needed, and no more than two."""

from __future__ import annotations

from pathlib import Path

import pytest

from stado.core import keys
from stado.errors import Unreadable
from stado_agent.checkpoint_sync import CheckpointSync
from tests.jobs.world import World

JOB = "a" * 16
BEAT = 15.0


def _manifests(world: World) -> list[str]:
    names = world.names(keys.checkpoints_folder(JOB))
    return [name for name in names if keys.parse_checkpoint_manifest(name)]


def _beat(world: World, sync: CheckpointSync, times: int = 1) -> None:
    for _ in range(times):
        world.clock.sleep(BEAT)
        sync.save_when_due(JOB, 1)


def test_a_folder_is_saved_once_it_stands_still(world: World, tmp_path: Path) -> None:
    sync = CheckpointSync(world.repo, tmp_path)
    (tmp_path / "step").write_text("1")
    _beat(world, sync)
    assert _manifests(world) == []
    _beat(world, sync)
    assert len(_manifests(world)) == 1
    _beat(world, sync, times=5)
    assert len(_manifests(world)) == 1


def test_a_folder_that_keeps_changing_is_not_taken(world: World, tmp_path: Path) -> None:
    sync = CheckpointSync(world.repo, tmp_path)
    for number in range(5):
        (tmp_path / "step").write_text("x" * number)
        _beat(world, sync)
    assert _manifests(world) == []


def test_a_saved_folder_comes_back_in_parts_and_whole(world: World, tmp_path: Path) -> None:
    """R188, R211: a large file is several new names, each a proof of life."""
    (tmp_path / "from" / "deep").mkdir(parents=True)
    (tmp_path / "from" / "deep" / "weights").write_bytes(bytes(range(35)))
    (tmp_path / "from" / "empty").write_bytes(b"")
    CheckpointSync(world.repo, tmp_path / "from", part_bytes=10).save_rest(JOB, 1)
    assert len(world.names(keys.checkpoints_folder(JOB))) == 5
    restored = CheckpointSync(world.repo, tmp_path / "to")
    restored.restore_newest(JOB)
    assert (tmp_path / "to" / "deep" / "weights").read_bytes() == bytes(range(35))
    assert (tmp_path / "to" / "empty").read_bytes() == b""
    restored.save_rest(JOB, 2)
    assert len(_manifests(world)) == 1


def test_the_last_two_stay_and_older_ones_go_with_their_parts(world: World, tmp_path: Path) -> None:
    sync = CheckpointSync(world.repo, tmp_path)
    for number in range(5):
        (tmp_path / "step").write_text("x" * (number + 1))
        sync.save_rest(JOB, 1)
    assert [keys.parse_checkpoint_manifest(name) for name in _manifests(world)] == [(1, 4), (1, 5)]
    assert len(world.names(keys.checkpoints_folder(JOB))) == 4


def test_a_checkpoint_that_cannot_be_read_gives_way_to_the_one_before(
    world: World, tmp_path: Path
) -> None:
    folder = tmp_path / "from"
    folder.mkdir()
    sync = CheckpointSync(world.repo, folder)
    (folder / "step").write_text("1")
    sync.save_rest(JOB, 1)
    (folder / "step").write_text("22")
    sync.save_rest(JOB, 1)
    world.store.put(_manifests(world)[-1], b"{ cut")
    restored = CheckpointSync(world.repo, tmp_path / "to")
    restored.restore_newest(JOB)
    assert (tmp_path / "to" / "step").read_text() == "1"


def test_a_job_whose_checkpoints_cannot_be_read_says_so(world: World, tmp_path: Path) -> None:
    sync = CheckpointSync(world.repo, tmp_path)
    (tmp_path / "step").write_text("1")
    sync.save_rest(JOB, 1)
    world.store.put(_manifests(world)[-1], b"{ cut")
    with pytest.raises(Unreadable):
        CheckpointSync(world.repo, tmp_path / "to").restore_newest(JOB)


def test_a_job_that_saved_nothing_starts_with_an_empty_folder(world: World, tmp_path: Path) -> None:
    CheckpointSync(world.repo, tmp_path / "to").restore_newest(JOB)
    assert not (tmp_path / "to").exists()
