"""A job's checkpoint folder in the store: whole, no oftener than needed, and no more than two."""

from __future__ import annotations

import errno
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.states import Reason
from stado.errors import Ambiguous, Unavailable, Unreadable
from stado.jobs import checkpoints, saving
from stado.jobs.changes import cancel
from stado.jobs.folders import remove_folder
from stado.jobs.saving import Manner, NotReadable, NotWhole
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.memory import MemoryStore
from stado.storage.observe import Operation
from stado.storage.port import Blob, FileDigest, Version
from stado_agent import checkpoint_sync
from stado_agent.checkpoint_sync import CheckpointSync
from tests.agent.fakes import Script
from tests.agent.scene import Scene
from tests.agent.slow_line import SlowLine
from tests.jobs.test_outputs import make_deep_folder
from tests.jobs.world import World

JOB = "a" * 16
BEAT = 15.0


class BusyStore(MemoryStore):
    """Something happens on this host whenever a part is uploaded."""

    def __init__(self, world: World, happen: Callable[[], None]) -> None:
        super().__init__(world.clock, world.tasks)
        self._happen = happen

    def put(self, key: str, data: bytes) -> Version:
        self._happen()
        return super().put(key, data)


def _names(world: World) -> list[str]:
    return world.names(keys.checkpoints_folder(JOB))


def _manifests(world: World) -> list[str]:
    return [name for name in _names(world) if keys.parse_checkpoint_manifest(name)]


def _busy(world: World, happen: Callable[[], None]) -> World:
    """The world, with a busy store from now on."""
    world.store = BusyStore(world, happen)
    world.repo = world.repo_over(world.store)
    return world


def _folder(tmp_path: Path, *, count: int = 3) -> Path:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for number in range(count):
        (folder / f"part-{number}").write_text(f"{number}ld {number}")
    return folder


def _save(world: World, folder: Path, between: Callable[[], None] | None = None) -> bool:
    manner = Manner(part_bytes=3, between=between)
    try:
        saving.save(world.repo, job_id=JOB, epoch=1, sequence=1, folder=folder, manner=manner)
    except NotWhole:
        return False
    return True


def _replace(path: Path, text: str) -> None:
    """As a program does that leaves a whole file at any time."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def _beat(world: World, sync: CheckpointSync, times: int = 1) -> None:
    for _ in range(times):
        world.clock.sleep(BEAT)
        sync.save_when_due(JOB, 1)


def test_a_cancel_ends_a_long_restore_within_seconds(tmp_path: Path) -> None:
    """A part is not waited for: here it would take half a minute more."""
    scene = Scene(tmp_path / "host")
    scene.script(Script(seconds=5))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "model").write_bytes(random.Random(1).randbytes(5_000_000))
    scene.lose_epoch_one()
    assert CheckpointSync(scene.world.repo, folder).save_rest(scene.job, 1)
    line = SlowLine(scene.world.store, scene.clock, bytes_per_second=1e5)
    scene.world.store = line  # type: ignore[assignment]
    begun = scene.clock.monotonic()
    scene.clock.at(begun + 12, lambda: cancel(scene.world.repo, scene.job, by="ada"))
    scene.run(scene.claim())
    assert (scene.ending.reason, scene.commands) == (Reason.CANCELLED, [])
    assert len(line.ranges) > 1
    assert scene.clock.monotonic() < begun + 12 + scene.world.deployment.beat_seconds + 5


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
    CheckpointSync(world.repo, tmp_path / "from", manner=Manner(part_bytes=10)).save_rest(JOB, 1)
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
    sync.sweep_rest()
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


# --- a folder that goes on changing ---------------------------------------------------------


def test_files_that_are_replaced_during_the_upload_are_saved_as_they_were(
    world: World, tmp_path: Path
) -> None:
    folder = _folder(tmp_path)

    def replace_all() -> None:
        (folder / "another").write_text("new")
        (folder / "part-1").unlink(missing_ok=True)
        _replace(folder / "part-2", "new")

    assert _save(_busy(world, replace_all), folder)
    checkpoints.restore(world.repo, _manifests(world)[0], tmp_path / "to")
    restored = {path.name: path.read_text() for path in (tmp_path / "to").iterdir()}
    assert restored == {"part-0": "0ld 0", "part-1": "1ld 1", "part-2": "2ld 2"}
    assert sorted(os.listdir(tmp_path)) == ["checkpoints", "to"]


def test_a_file_that_is_written_in_place_during_the_upload_is_no_checkpoint(
    world: World, tmp_path: Path
) -> None:
    folder = _folder(tmp_path)

    def write_in_place() -> None:
        with (folder / "part-1").open("a") as file:
            file.write("new")

    assert not _save(_busy(world, write_in_place), folder)
    assert _names(world) == []
    assert os.listdir(tmp_path) == ["checkpoints"]


def test_a_folder_that_cannot_be_linked_is_copied(world: World, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        if Path(elsewhere).stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("there is one file system only")
        (Path(elsewhere) / "step").write_text("old")
        (tmp_path / "checkpoints").symlink_to(elsewhere)
        folder = tmp_path / "checkpoints"
        assert _save(_busy(world, lambda: _replace(folder / "step", "new")), folder)
        checkpoints.restore(world.repo, _manifests(world)[0], tmp_path / "to")
    assert (tmp_path / "to/step").read_text() == "old"


def test_what_an_earlier_save_left_beside_the_folder_is_not_taken(
    world: World, tmp_path: Path
) -> None:
    folder = _folder(tmp_path, count=1)
    (tmp_path / "checkpoints.saving").mkdir()
    (tmp_path / "checkpoints.saving" / "part-0").write_text("stale")
    (tmp_path / "checkpoints.saving" / "stale").write_text("stale")
    assert _save(world, folder)
    checkpoint, _ = checkpoints.restore(world.repo, _manifests(world)[0], tmp_path / "to")
    assert [file.path for file in checkpoint.files] == ["part-0"]
    assert (folder / "part-0").read_text() == (tmp_path / "to/part-0").read_text() == "0ld 0"


# --- a save that comes to nothing -----------------------------------------------------------


@pytest.mark.parametrize("skip", [0, 3, 6])
def test_a_save_that_the_store_refuses_takes_its_parts_back(
    world: World, tmp_path: Path, skip: int
) -> None:
    """Three files of two parts each, then the manifest."""
    folder = _folder(tmp_path)
    away = ScriptedFaults(Fault(FaultKind.UNAVAILABLE, Operation.PUT, skip=skip))
    world.repo = world.repo_over(FaultyStore(world.store, world.clock, away))
    with pytest.raises(Unavailable):
        _save(world, folder)
    assert _names(world) == []
    assert os.listdir(tmp_path) == ["checkpoints"]


def test_parts_stay_when_their_manifest_may_be_there(world: World, tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    silent = ScriptedFaults(Fault(FaultKind.LOST_ANSWER, Operation.PUT, skip=6))
    world.repo = world.repo_over(FaultyStore(world.store, world.clock, silent))
    with pytest.raises(Ambiguous):
        _save(world, folder)
    checkpoints.restore(world.repo, _manifests(world)[0], tmp_path / "to")
    assert (tmp_path / "to/part-2").read_text() == "2ld 2"


def test_a_store_that_stays_away_is_asked_once_to_take_the_parts_back(
    world: World, tmp_path: Path
) -> None:
    faults = ScriptedFaults(
        Fault(FaultKind.UNAVAILABLE, Operation.PUT, skip=4),
        Fault(FaultKind.DENIED, Operation.DELETE),
    )
    world.repo = world.repo_over(FaultyStore(world.store, world.clock, faults))
    with pytest.raises(Unavailable):
        _save(world, _folder(tmp_path))
    assert len(_names(world)) == 4


class Stopped(Exception):
    """Raised by a caller that has other things to do."""


@pytest.mark.parametrize("error", [Stopped(), OSError(), Unavailable("")])
def test_a_caller_can_stop_a_save_between_two_parts(
    world: World, tmp_path: Path, error: Exception
) -> None:
    seen: list[int] = []

    def between() -> None:
        seen.append(len(_names(world)))
        if len(seen) == 4:
            raise error

    with pytest.raises(type(error)):
        _save(world, _folder(tmp_path), between)
    assert seen == [1, 2, 3, 4]
    assert _names(world) == []
    assert os.listdir(tmp_path) == ["checkpoints"]


def test_saves_of_the_supervisor_can_be_stopped_too(world: World, tmp_path: Path) -> None:
    def stop() -> None:
        raise Stopped

    sync = CheckpointSync(world.repo, _folder(tmp_path), manner=Manner(part_bytes=3))
    with pytest.raises(Stopped):
        sync.save_rest(JOB, 1, between=stop)
    with pytest.raises(Stopped):
        for _ in range(2):
            world.clock.sleep(BEAT)
            sync.save_when_due(JOB, 1, between=stop)
    assert _names(world) == []


# --- restoring ------------------------------------------------------------------------------


class StreamingStore(MemoryStore):
    """Hands out manifests in one piece, and nothing else."""

    def get(self, key: str, *, unless: Version | None = None) -> Blob:
        assert keys.parse_checkpoint_manifest(key)
        return super().get(key, unless=unless)

    def download(self, key: str, path: Path) -> FileDigest:
        path.write_bytes(super().get(key).data)
        return FileDigest(path.stat().st_size, "")


def test_a_restore_holds_no_part_in_memory(world: World, tmp_path: Path) -> None:
    world.store = StreamingStore(world.clock, world.tasks)
    world.repo = world.repo_over(world.store)
    assert _save(world, _folder(tmp_path))
    checkpoints.restore(world.repo, _manifests(world)[0], tmp_path / "to")
    assert (tmp_path / "to/part-2").read_text() == "2ld 2"
    assert sorted(os.listdir(tmp_path)) == ["checkpoints", "to"]


def test_a_caller_can_stop_a_restore_between_two_parts(world: World, tmp_path: Path) -> None:
    CheckpointSync(world.repo, _folder(tmp_path), manner=Manner(part_bytes=3)).save_rest(JOB, 1)
    looks: list[int] = []

    def between() -> None:
        looks.append(1)
        if len(looks) == 4:
            raise Stopped

    with pytest.raises(Stopped):
        CheckpointSync(world.repo, tmp_path / "to").restore_newest(JOB, between=between)
    assert len(looks) == 4
    assert sorted(os.listdir(tmp_path)) == ["checkpoints", "to"]


def test_a_folder_that_changed_after_it_was_seen_to_stand_still_is_not_saved(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after the second look: half of it is new then."""
    folder = _folder(tmp_path)
    sync, looks = CheckpointSync(world.repo, folder), 0

    def look(looked_at: Path) -> saving.FolderSight:
        nonlocal looks
        found, looks = saving.look_at(looked_at), looks + 1
        if looks == 2:
            _replace(folder / "part-0", "new and longer")
        return found

    monkeypatch.setattr(checkpoint_sync, "look_at", look)
    _beat(world, sync, 2)
    assert _manifests(world) == []
    _replace(folder / "part-1", "new and longer, too")
    _beat(world, sync, 2)
    assert len(_manifests(world)) == 1


# --- what cannot be saved, and what is left out ---------------------------------------------


def test_a_folder_with_a_part_that_cannot_be_listed_is_not_saved_and_that_is_told_once(
    world: World, tmp_path: Path
) -> None:
    """A save that lacks a folder is not what the job would go on from."""
    said: list[str] = []
    folder = _folder(tmp_path)
    sync = CheckpointSync(world.repo, folder, say=said.append)
    _beat(world, sync, 2)
    assert len(_manifests(world)) == 1
    make_deep_folder(folder)
    _beat(world, sync, 5)
    assert len(_manifests(world)) == 1
    (line,) = said
    assert line.startswith("its checkpoint folder cannot be saved: ddd")
    assert line.endswith(": it cannot be read: File name too long")
    assert not sync.save_rest(JOB, 1)
    remove_folder(folder / ("d" * 200))
    (folder / "part-0").write_text("new and longer")
    assert sync.save_rest(JOB, 1)
    assert sync.unsaved is None
    assert len(_manifests(world)) == 2


def test_a_file_that_cannot_be_read_is_told_before_anything_is_uploaded(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    folder = _folder(tmp_path)
    _forbid_reading("part-1", monkeypatch)
    sync = CheckpointSync(world.repo, folder, say=said.append)
    world.store = store = BusyStore(world, lambda: pytest.fail("something is uploaded"))
    world.repo = world.repo_over(store)
    _beat(world, sync, 4)
    assert not sync.save_rest(JOB, 1)
    with pytest.raises(NotReadable):
        saving.save(world.repo, job_id=JOB, epoch=1, sequence=9, folder=folder)
    why = "part-1: it cannot be read: Permission denied"
    assert said == [f"its checkpoint folder cannot be saved: {why}"]
    assert sync.unsaved == why
    assert _names(world) == []


def test_a_disk_without_room_for_a_copy_is_not_told_as_a_file_that_cannot_be_read(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next save may find room."""
    said: list[str] = []
    sync = CheckpointSync(world.repo, _folder(tmp_path), say=said.append)

    def refuse(code: int) -> Callable[..., None]:
        def call(*_: object, **__: object) -> None:
            raise OSError(code, os.strerror(code))

        return call

    monkeypatch.setattr(os, "link", refuse(errno.EXDEV))
    monkeypatch.setattr(shutil, "copy2", refuse(errno.ENOSPC))
    assert not sync.save_rest(JOB, 1)
    assert sync.unsaved == "no snapshot could be made: No space left on device"
    assert said == []


def _forbid_reading(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a mode does, which stops root in nothing."""
    allowed = os.access

    def access(path: Path, mode: int, *, effective_ids: bool = False) -> bool:
        return path.name != name and allowed(path, mode, effective_ids=effective_ids)

    monkeypatch.setattr(os, "access", access)


def test_why_nothing_was_saved_is_forgotten_once_there_is_nothing_to_save(
    world: World, tmp_path: Path
) -> None:
    """As where what could not be read was removed, and the rest is as it was saved."""
    folder = _folder(tmp_path)
    sync = CheckpointSync(world.repo, folder)
    assert sync.save_rest(JOB, 1)
    make_deep_folder(folder)
    assert not sync.save_rest(JOB, 1)
    assert sync.unsaved is not None
    remove_folder(folder / ("d" * 200))
    assert sync.save_rest(JOB, 1)
    assert sync.unsaved is None


def test_however_many_links_there_are_what_cannot_be_saved_is_told(
    world: World, tmp_path: Path
) -> None:
    said: list[str] = []
    folder = _folder(tmp_path)
    sync = CheckpointSync(world.repo, folder, say=said.append)
    for number in range(25):
        (folder / f"link-{number:02d}").symlink_to("part-0")
    sync.save_rest(JOB, 1)
    (folder / "one-more").symlink_to("part-0")
    make_deep_folder(folder)
    sync.save_rest(JOB, 1)
    links, one_more, unreadable = said
    assert links.endswith("link-00: not a regular file, and 24 more")
    assert "one-more" in one_more
    assert unreadable.startswith("its checkpoint folder cannot be saved: ddd")


def test_links_are_left_out_and_told_once_for_each(world: World, tmp_path: Path) -> None:
    """Also where there is nothing else; and of many in one line."""
    said: list[str] = []
    folder = _folder(tmp_path, count=0)
    (folder / "latest").symlink_to("part-0")
    sync = CheckpointSync(world.repo, folder, say=said.append)
    _beat(world, sync, 4)
    (folder / "part-0").write_text("0")
    for name in ("best", "other"):
        (folder / name).symlink_to("part-0")
    _beat(world, sync, 4)
    assert said == [
        "left out of its checkpoints: latest: not a regular file",
        "left out of its checkpoints: best: not a regular file, and 1 more",
    ]
    assert len(_manifests(world)) == 1


def test_what_is_told_of_a_folder_has_an_end(world: World, tmp_path: Path) -> None:
    said: list[str] = []
    folder = _folder(tmp_path)
    sync = CheckpointSync(world.repo, folder, say=said.append)
    for number in range(40):
        (folder / f"link-{number}").symlink_to("part-0")
        sync.save_rest(JOB, 1)
    assert len(said) == 20
    make_deep_folder(folder)
    sync.save_rest(JOB, 1)
    assert said[20].startswith("its checkpoint folder cannot be saved: ddd")
