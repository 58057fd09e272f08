"""Manifests say where files go. None goes anywhere but below the folder that was named."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.core import keys
from stado.core.records import Checkpoint, CheckpointFile, Manifest, OutputFile
from stado.core.states import State
from stado.errors import Conflict, Refused, StadoError
from stado.jobs import checkpoints, saving
from stado.jobs.downloads import download
from stado.jobs.folders import remove_folder
from stado.jobs.outputs import publish, safe_target
from tests.agent.fakes import Script
from tests.agent.scene import Scene
from tests.hostile.search import examples
from tests.jobs.world import World

ESCAPES = [
    "../out",
    "../../out",
    "/out",
    "//out",
    "a/../../out",
    "a/..",
    "..",
    ".",
    "",
    "/",
    "a\0b",
    "x" * 300,
    "/".join(["deep"] * 2000),
]
ODD = ["C:\\x", "a b", "-rf", "~", "a\nb", "\x1b[2J", "\u202egnp", "con", ".hidden", "..."]
"""Names like others here, however odd."""

CONTENT = b"content"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def leave_output(world: World, paths: Sequence[str], *, size: int = len(CONTENT)) -> str:
    """A job whose manifest names these paths."""
    job = world.submit("true")
    files = [
        OutputFile(path=path, key=keys.output_file(job, 1, path), size=size, sha256=SHA256)
        for path in paths
    ]
    for file in files:
        world.store.put(file.key, CONTENT)
    manifest = Manifest(job_id=job, epoch=1, partial=False, files=files)
    world.store.put(keys.output_manifest(job, 1), manifest.encode())
    return job


def leave_checkpoint(world: World, job: str, paths: Sequence[str]) -> str:
    part = keys.checkpoint_part(job, 1, 1, 0)
    world.store.put(part, CONTENT)
    files = [
        CheckpointFile(path=path, size=len(CONTENT), sha256=SHA256, parts=[part]) for path in paths
    ]
    at = world.clock.now()
    checkpoint = Checkpoint(job_id=job, epoch=1, sequence=1, at=at, files=files)
    key = keys.checkpoint_manifest(job, 1, 1)
    world.store.put(key, checkpoint.encode())
    return key


def everything_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Nothing may appear in it but `target`."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "precious").write_bytes(b"precious")
    return home


def assert_untouched(home: Path) -> None:
    assert {path.name for path in home.iterdir()} <= {"precious", "target"}
    assert (home / "precious").read_bytes() == b"precious"


@pytest.mark.parametrize("path", ESCAPES, ids=range(len(ESCAPES)))
def test_no_result_leaves_the_folder(world: World, home: Path, path: str) -> None:
    job = leave_output(world, ["fine", path])
    with pytest.raises(Refused) as caught:
        download(world.repo, job_id=job, epoch=1, folder=home / "target")
    assert caught.value.code in ("manifest_path_unsafe", "manifest_path_too_long")
    assert "\0" not in caught.value.text
    assert_untouched(home)
    assert not (home / "target").exists()


@pytest.mark.parametrize("path", ESCAPES, ids=range(len(ESCAPES)))
def test_no_checkpoint_leaves_the_folder(world: World, home: Path, path: str) -> None:
    key = leave_checkpoint(world, world.submit("true"), ["fine", path])
    with pytest.raises(Refused):
        checkpoints.restore(world.repo, key, home / "target")
    assert_untouched(home)


def test_odd_names_are_names(world: World, home: Path) -> None:
    job = leave_output(world, ODD)
    download(world.repo, job_id=job, epoch=1, folder=home / "target")
    assert_untouched(home)
    assert {*ODD, "manifest.json", "log.txt"} == set(os.listdir(home / "target"))


@examples(150)
@given(st.text(max_size=30) | st.text("./\\\0~ab", max_size=12))
def test_whatever_the_path_the_target_is_below(path: str) -> None:
    folder = Path("/nowhere/folder")
    try:
        target = safe_target(folder, path)
    except Refused:
        return
    assert folder in Path(os.path.normpath(target)).parents


CLASHES = [["a", "a/b"], ["a/b", "a"], ["a", "a"], ["a/b", "a//b"], ["a/b/c", "./a/b"]]


@pytest.mark.parametrize("paths", CLASHES)
def test_a_file_that_is_also_a_folder_is_refused(
    world: World, home: Path, paths: list[str]
) -> None:
    job = leave_output(world, paths)
    with pytest.raises(Refused, match="names"):
        download(world.repo, job_id=job, epoch=1, folder=home / "target")
    key = leave_checkpoint(world, job, paths)
    with pytest.raises(Refused, match="names"):
        checkpoints.restore(world.repo, key, home / "target")
    assert_untouched(home)


@pytest.mark.parametrize("paths", [["../out"], *CLASHES, ["x" * 300]])
def test_a_manifest_that_cannot_be_restored_is_the_jobs_trouble_and_not_the_hosts(
    tmp_path: Path, paths: list[str]
) -> None:
    """A host that is found unable takes no other job either."""
    scene = Scene(tmp_path)
    scene.lose_epoch_one()
    leave_checkpoint(scene.world, scene.job, paths)
    scene.run(scene.claim())
    assert scene.final.state is State.FAILED
    assert scene.ending.reason == "input_unavailable"


@pytest.mark.parametrize("path", ["link/x", "link", "deep/link/x"])
def test_nothing_is_written_through_a_link_that_was_planted(
    world: World, home: Path, path: str
) -> None:
    """By the job's earlier results, or by whoever may write there."""
    job = leave_output(world, ["first"])
    target = home / "target"
    download(world.repo, job_id=job, epoch=1, folder=target)
    link = target / path[: path.index("link") + 4]
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(home)
    manifest = world.repo.read(Manifest, keys.output_manifest(job, 1)).value
    file = manifest.files[0].evolve(path=path, key=keys.output_file(job, 1, path))
    world.store.put(file.key, CONTENT)
    world.store.put(keys.output_manifest(job, 1), manifest.evolve(files=[file]).encode())
    with pytest.raises(Refused, match="is a link"):
        download(world.repo, job_id=job, epoch=1, folder=target)
    assert_untouched(home)


@pytest.mark.parametrize("name", ["manifest.json", "log.txt"])
def test_our_own_files_are_not_written_through_links(world: World, home: Path, name: str) -> None:
    job = leave_output(world, ["first"])
    target = home / "target"
    download(world.repo, job_id=job, epoch=1, folder=target)
    content = (target / name).read_bytes()
    (target / name).unlink()
    (home / "target" / "copy").write_bytes(content)
    (target / name).symlink_to(target / "copy")
    download(world.repo, job_id=job, epoch=1, folder=target)
    assert not (target / name).is_symlink()
    assert_untouched(home)


def test_a_job_may_call_its_files_as_we_call_ours(world: World, home: Path) -> None:
    names = ["manifest.json", "stado.manifest.json", "log.txt", "stado.log.txt/inner"]
    job = leave_output(world, names)
    for _ in range(2):
        download(world.repo, job_id=job, epoch=1, folder=home / "target")
        for name in names:
            assert (home / "target" / name).read_bytes() == CONTENT
    assert len(os.listdir(home / "target")) == 6


@pytest.mark.parametrize("size", [0, 10**15, 2**63 - 1])
def test_a_size_that_lies_is_found_out(world: World, home: Path, size: int) -> None:
    job = leave_output(world, ["a"], size=size)
    with pytest.raises(Conflict, match="the manifest says"):
        download(world.repo, job_id=job, epoch=1, folder=home / "target")
    assert not (home / "target" / "a").exists()


def test_a_manifest_with_the_files_of_another_job_is_unreadable(world: World, home: Path) -> None:
    secret = leave_output(world, ["secret"])
    job = leave_output(world, ["a"])
    manifest = world.repo.read(Manifest, keys.output_manifest(job, 1)).value
    stolen = manifest.files[0].evolve(key=keys.output_file(secret, 1, "secret"))
    world.store.put(keys.output_manifest(job, 1), manifest.evolve(files=[stolen]).encode())
    with pytest.raises(StadoError, match="not its own"):
        download(world.repo, job_id=job, epoch=1, folder=home / "target")


def test_a_checkpoint_deletes_nothing_but_its_own_parts(world: World) -> None:
    """What a manifest names is deleted when it is old: a forged one must not be read."""
    job = world.submit("true")
    key = leave_checkpoint(world, job, ["a"])
    checkpoint = world.repo.read(Checkpoint, key).value
    other = world.submit("true")
    for stolen in (
        keys.record(State.QUEUED, job),
        keys.checkpoint_part(other, 1, 1, 0),
        keys.checkpoint_part(job, 1, 2, 0),
        keys.checkpoint_manifest(job, 1, 1),
        f"{keys.checkpoint_part(job, 1, 1, 0)}/..",
    ):
        forged = checkpoint.evolve(files=[checkpoint.files[0].evolve(parts=[stolen])])
        world.store.put(key, forged.encode())
        with pytest.raises(StadoError, match="not its own"):
            checkpoints.read_manifest(world.repo, key)


def test_a_sweep_deletes_checkpoints_and_nothing_else(world: World) -> None:
    """Names that no checkpoint has, and what was saved later, stay."""
    job = world.submit("true")
    key = leave_checkpoint(world, job, ["a"])
    kept = world.repo.read(Checkpoint, key).value.evolve(sequence=2)
    folder = keys.checkpoints_folder(job)
    others = [
        f"{folder}junk",
        f"{folder}000001-000001.junk",
        keys.checkpoint_part(job, 1, 3, 0),
        keys.checkpoint_manifest(job, 2, 1),
    ]
    for name in (*others, keys.checkpoint_part(job, 1, 1, 7)):
        world.store.put(name, b"x")
    checkpoints.sweep(world.repo, [kept])
    part = keys.checkpoint_part(job, 1, 1, 0)
    assert world.names(folder) == sorted([*others, part])
    assert world.states(job) == {State.QUEUED}


# Deeper than a program that recurses can follow


def make_deep(folder: Path, levels: int) -> None:
    """A file below so many folders, whose path may be too long to be named at once."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("a", dir_fd=at)
        below = os.open("a", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    file = os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at)
    os.write(file, CONTENT)
    os.close(file)
    os.close(at)


@pytest.mark.parametrize("levels", [1500, 5000])
def test_a_deep_folder_is_removed_and_what_its_links_name_is_not(home: Path, levels: int) -> None:
    target = home / "target"
    target.mkdir()
    make_deep(target, levels)
    (target / "link").symlink_to(home)
    (target / "a" / "link").symlink_to(home)
    remove_folder(target)
    assert not target.exists()
    assert_untouched(home)


def test_a_deep_file_is_delivered(world: World, home: Path) -> None:
    folder = home / "target"
    folder.mkdir()
    make_deep(folder, 1500)
    job = world.submit("true")
    manifest = publish(world.repo, job_id=job, epoch=1, folder=folder, partial=False)
    assert manifest is not None
    assert [file.path for file in manifest.files] == ["a/" * 1500 + "file"]
    download(world.repo, job_id=job, epoch=1, folder=home / "target" / "again")
    assert (home / "target" / "again" / manifest.files[0].path).read_bytes() == CONTENT
    remove_folder(folder)


def test_what_no_path_can_name_is_left_out_and_named(world: World, home: Path) -> None:
    folder = home / "target"
    folder.mkdir()
    (folder / "beside").write_bytes(CONTENT)
    make_deep(folder, 3000)
    job = world.submit("true")
    manifest = publish(world.repo, job_id=job, epoch=1, folder=folder, partial=False)
    assert manifest is not None
    assert [file.path for file in manifest.files] == ["beside"]
    assert any("cannot be read" in why for why in manifest.skipped)
    remove_folder(folder)


def test_a_deep_checkpoint_comes_back(world: World, home: Path) -> None:
    folder = home / "target"
    folder.mkdir()
    make_deep(folder, 1200)
    job = world.submit("true")
    saved = saving.save(world.repo, job_id=job, epoch=1, sequence=1, folder=folder)
    assert saved is not None
    checkpoints.restore(world.repo, keys.checkpoint_manifest(job, 1, 1), folder)
    assert (folder / saved.checkpoint.files[0].path).read_bytes() == CONTENT
    remove_folder(folder)


@pytest.mark.parametrize("where", ["work", "output", "checkpoints"])
def test_a_job_that_digs_deep_ends_as_any_other(tmp_path: Path, where: str) -> None:
    """Its folder is removed: what it left keeps no room, and its supervisor lives."""
    scene = Scene(tmp_path)
    scene.script(Script(seconds=60))
    workspace = scene.folder.workspace(scene.job, 1)
    scene.clock.at(30.0, lambda: make_deep(getattr(workspace, where), 1500))
    process = scene.run(scene.claim())
    assert process.exit_code == 0
    assert scene.final.state is State.COMPLETED
    assert not workspace.root.exists()
