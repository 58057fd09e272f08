"""What a job leaves arrives whole, and what cannot be taken is named instead of in the way."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.core import keys
from stado.core.documents import parse
from stado.core.records import LogAccount, Manifest, OutputFile
from stado.core.states import State
from stado.errors import Conflict, Refused, Unavailable
from stado.jobs.downloads import RESUMED_BYTES, Wanted, download
from stado.jobs.half_files import PIECE_BYTES
from stado.jobs.log_segments import write_segment
from stado.jobs.outputs import (
    LARGE_BYTES,
    SMALL_TRANSFERS,
    OutputPublisher,
    find_manifest,
    find_present_manifest,
    local_files,
    publish,
)
from stado.jobs.repository import Repository
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.keys import KEY_BYTES_MAX, check_key
from stado.storage.memory import MemoryStore
from stado.storage.observe import Operation
from stado.storage.port import FileDigest
from stado.system.tasks import LiveTasks
from tests.jobs.world import World

JOB = "a" * 16


class WatchedStore(MemoryStore):
    """Calls somebody with the path of each file just before it is uploaded."""

    def __init__(self, world: World, before_upload: Callable[[Path], None]) -> None:
        super().__init__(world.clock, world.tasks)
        self._before_upload = before_upload

    def upload(self, key: str, path: Path) -> FileDigest:
        self._before_upload(path)
        return super().upload(key, path)


def write_files(folder: Path, *paths: str) -> Path:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    return folder


def make_deep_folder(folder: Path) -> None:
    """One whose path is longer than the system takes in one piece."""
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(21):
        os.mkdir("d" * 200, dir_fd=descriptor)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)


# --- what cannot be taken -------------------------------------------------------------------


def test_a_file_that_vanishes_before_its_upload_is_named_and_the_rest_is_delivered(
    world: World, tmp_path: Path
) -> None:
    def vanish(path: Path) -> None:
        if path.name == "gone":
            path.unlink()

    repo = world.repo_over(WatchedStore(world, vanish))
    write_files(tmp_path, "a", "gone", "z")
    publish(repo, job_id=JOB, epoch=1, folder=tmp_path, partial=False)
    manifest = find_manifest(repo, JOB, 1)
    assert manifest is not None
    assert [file.path for file in manifest.files] == ["a", "z"]
    assert manifest.skipped == ["gone: it cannot be read: No such file or directory"]


def test_a_file_that_may_not_be_read_is_named_and_the_rest_is_delivered(
    world: World, tmp_path: Path
) -> None:
    def deny(path: Path) -> None:
        if path.name == "secret":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    repo = world.repo_over(WatchedStore(world, deny))
    write_files(tmp_path, "a", "deep/secret")
    (tmp_path / "link").symlink_to("a")
    publish(repo, job_id=JOB, epoch=1, folder=tmp_path, partial=False)
    manifest = find_manifest(repo, JOB, 1)
    assert manifest is not None
    assert [file.path for file in manifest.files] == ["a"]
    assert manifest.skipped == [
        "deep/secret: it cannot be read: Permission denied",
        "link: not a regular file",
    ]


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    write_files(tmp_path, "a")
    make_deep_folder(tmp_path)
    found = local_files(tmp_path)
    assert found.files == ["a"]
    (skipped,) = found.skipped
    assert skipped.startswith("d" * 200 + "/")
    assert skipped.endswith(": it cannot be read: File name too long")


def test_a_folder_that_is_not_there_leaves_nothing(world: World, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    assert publish(world.repo, job_id=JOB, epoch=1, folder=nowhere, partial=False) is None


# --- a store that fails on the way ----------------------------------------------------------


def test_a_repeated_publish_uploads_only_what_is_missing(world: World, tmp_path: Path) -> None:
    uploaded: list[str] = []
    store = WatchedStore(world, lambda path: uploaded.append(path.name))
    away = Fault(FaultKind.UNAVAILABLE, Operation.UPLOAD, skip=2)
    no_manifest = Fault(FaultKind.UNAVAILABLE, Operation.PUT)
    faults = ScriptedFaults(away, no_manifest)
    repo = world.repo_over(FaultyStore(store, world.clock, faults))
    write_files(tmp_path, "a", "b", "c", "d")
    publisher = OutputPublisher(repo, job_id=JOB, epoch=1, folder=tmp_path)
    for _ in range(2):
        with pytest.raises(Unavailable):
            publisher.publish(partial=True)
        assert find_manifest(repo, JOB, 1) is None
    manifest = publisher.publish(partial=True)
    assert manifest == find_manifest(repo, JOB, 1)
    assert manifest is not None
    assert manifest.partial
    assert [file.path for file in manifest.files] == ["a", "b", "c", "d"]
    assert uploaded == ["a", "b", "c", "d"]


def test_a_file_that_changed_since_its_upload_is_uploaded_again(
    world: World, tmp_path: Path
) -> None:
    no_manifest = ScriptedFaults(Fault(FaultKind.UNAVAILABLE, Operation.PUT))
    repo = world.repo_over(FaultyStore(world.store, world.clock, no_manifest))
    write_files(tmp_path, "a", "b")
    publisher = OutputPublisher(repo, job_id=JOB, epoch=1, folder=tmp_path)
    with pytest.raises(Unavailable):
        publisher.publish(partial=False)
    (tmp_path / "a").write_text("longer")
    (tmp_path / "b").unlink()
    manifest = publisher.publish(partial=False)
    assert manifest is not None
    assert [(file.path, file.size) for file in manifest.files] == [("a", 6)]


def test_no_upload_begins_once_the_store_has_failed(world: World, tmp_path: Path) -> None:
    """Each would take all the time that a store is given to come back."""
    asked: list[str] = []

    def fail(path: Path) -> None:
        asked.append(path.name)
        raise Unavailable(path.name)

    store = WatchedStore(world, fail)
    repo = Repository(
        store, world.deployment, clock=world.clock, entropy=world.entropy, tasks=LiveTasks()
    )
    write_files(tmp_path, *(f"{number:03d}" for number in range(50)))
    publisher = OutputPublisher(repo, job_id=JOB, epoch=1, folder=tmp_path)
    for call in (1, 2):
        with pytest.raises(Unavailable):
            publisher.publish(partial=False)
        assert call <= len(asked) <= SMALL_TRANSFERS * call


# --- keys -----------------------------------------------------------------------------------

PATHS = st.lists(
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1)
    | st.from_regex(r"[a-z~.]{1,195}", fullmatch=True)
    | st.sampled_from(["deeper" * 30, "~" + "0" * 24]),
    min_size=1,
    max_size=40,
).map("/".join)
LONGEST_JOB_ID = "a" * 16 + "-99999"


def output_key(path: str) -> str:
    return keys.output_file(LONGEST_JOB_ID, 999_999, path)


@given(PATHS, PATHS)
def test_any_path_has_a_key_of_its_own_that_every_store_takes(one: str, other: str) -> None:
    for path in (one, other):
        check_key(output_key(path))
    assert (output_key(one) == output_key(other)) == (one == other)


def test_a_path_is_hashed_only_where_its_key_would_be_too_long() -> None:
    room = KEY_BYTES_MAX - len(output_key("")) + len(keys.component(""))
    fits = "/".join(["d" * 99] * 7).ljust(room, "e")
    assert output_key(fits).endswith(fits)
    too_long = output_key(fits + "e")
    assert len(too_long.rpartition("/files/")[2]) == 25


def test_a_deep_file_is_delivered_under_its_own_path(world: World, tmp_path: Path) -> None:
    path = "/".join(["d" * 150] * 8)
    write_files(tmp_path, path)
    manifest = publish(world.repo, job_id=JOB, epoch=1, folder=tmp_path, partial=False)
    assert manifest is not None
    assert [file.path for file in manifest.files] == [path]
    assert world.store.get(manifest.files[0].key).data == path.encode()


# --- downloads ------------------------------------------------------------------------------


def put_manifest(world: World, *paths: str) -> None:
    """Commits small files under these paths, which this host's file system need not take."""
    files = []
    for path in paths:
        key = keys.output_file(JOB, 1, path)
        data = path.encode()
        world.store.put(key, data)
        digest = hashlib.sha256(data).hexdigest()
        files.append(OutputFile(path=path, key=key, size=len(data), sha256=digest))
    manifest = Manifest(job_id=JOB, epoch=1, partial=False, files=files)
    world.store.put(keys.output_manifest(JOB, 1), manifest.encode())


def test_downloaded_files_never_share_or_remove_each_other(world: World, tmp_path: Path) -> None:
    long_names = [f"{'ż' * 120}{number:03d}" for number in range(3)]
    equal_beginnings = [f"{'x' * 220}{number}" for number in range(3)]
    log_names = [".log.txt.partial", ".manifest.json.partial"]
    paths = [".foo.partial", "foo", "deep/.foo.partial", "deep/foo", "..foo.partial.partial"]
    paths += [*long_names, *equal_beginnings, *log_names]
    put_manifest(world, *paths)
    download(world.repo, job_id=JOB, epoch=1, folder=tmp_path)
    assert {path: (tmp_path / path).read_text() for path in paths} == {path: path for path in paths}
    assert sorted(os.listdir(tmp_path)) == sorted(
        {path.split("/")[0] for path in paths} | {"log.txt", "manifest.json"}
    )


def test_a_download_that_fails_leaves_no_half_file(world: World, tmp_path: Path) -> None:
    put_manifest(world, "a", "b")
    world.store.put(keys.output_file(JOB, 1, "b"), b"damaged")
    with pytest.raises(Conflict):
        download(world.repo, job_id=JOB, epoch=1, folder=tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".stado-partial", "a"]
    assert [path.suffix for path in (tmp_path / ".stado-partial").iterdir()] == [".json"]


@pytest.mark.parametrize("path", ["deep/" + "ż" * 128, "/".join(["d" * 200] * 21)])
def test_a_name_that_no_folder_here_can_hold_is_refused_before_anything_is_written(
    world: World, tmp_path: Path, path: str
) -> None:
    put_manifest(world, "a", path)
    with pytest.raises(Refused, match="no file system here can hold") as refused:
        download(world.repo, job_id=JOB, epoch=1, folder=tmp_path / "out")
    assert repr(path) in refused.value.text
    assert not (tmp_path / "out").exists()


class UnreachableFiles(MemoryStore):
    """Answers all but downloads."""

    def __init__(self, world: World) -> None:
        super().__init__(world.clock, world.tasks)
        self.asked = 0

    def download(self, key: str, path: Path) -> FileDigest:
        self.asked += 1
        raise Unavailable(key, "no route")


def test_no_download_begins_once_the_store_has_failed(tmp_path: Path) -> None:
    """Each would take all the time that a store is given to come back."""
    world = World()
    world.store = UnreachableFiles(world)
    repo = Repository(
        world.store, world.deployment, clock=world.clock, entropy=world.entropy, tasks=LiveTasks()
    )
    put_manifest(world, *(f"{number:03d}" for number in range(50)))
    with pytest.raises(Unavailable):
        download(repo, job_id=JOB, epoch=1, folder=tmp_path / "out")
    assert 1 <= world.store.asked <= SMALL_TRANSFERS


def test_a_manifest_of_a_log_alone_does_not_hide_the_files_of_an_earlier_epoch(
    world: World, tmp_path: Path
) -> None:
    put_manifest(world, "a")
    log = LogAccount(written=9, kept=0, dropped=9)
    empty = Manifest(job_id=JOB, epoch=2, partial=True, files=[], log=log)
    world.store.put(keys.output_manifest(JOB, 2), empty.encode())
    out = tmp_path / "out"
    fetched = download(world.repo, job_id=JOB, epoch=2, folder=out, state=State.FAILED)
    assert fetched.manifest.epoch == 1
    assert (tmp_path / "out" / "a").exists()


# --- what a job left, over its epochs -------------------------------------------------------


def test_what_a_try_left_that_failed_is_not_what_a_completed_job_left(
    world: World, tmp_path: Path
) -> None:
    first = write_files(tmp_path / "first", "result.json")
    publish(world.repo, job_id=JOB, epoch=1, folder=first, partial=True)
    (tmp_path / "second").mkdir()
    publish(world.repo, job_id=JOB, epoch=2, folder=tmp_path / "second", partial=False)
    assert find_present_manifest(world.repo, JOB, 2, State.COMPLETED) is None
    shown = find_present_manifest(world.repo, JOB, 2, State.FAILED)
    assert shown is not None
    assert [file.path for file in shown.files] == ["result.json"]


def test_a_part_that_is_fetched_later_leaves_what_is_there_of_the_job(
    world: World, tmp_path: Path
) -> None:
    """The job's own files have the names that ours would have."""
    source = write_files(tmp_path / "source", "manifest.json", "model", ".stado-partial/x")
    publish(world.repo, job_id=JOB, epoch=1, folder=source, partial=False)
    out = tmp_path / "out"
    download(world.repo, job_id=JOB, epoch=1, folder=out)
    download(world.repo, job_id=JOB, epoch=1, folder=out, wanted=Wanted(only=["model"]))
    for path in ("manifest.json", "model", ".stado-partial/x"):
        assert (out / path).read_text() == path


# --- a folder that is filled again, in a later epoch ----------------------------------------


def leave(world: World, tmp_path: Path, epoch: int, **contents: str) -> None:
    """Names have `_` for what no keyword can have."""
    folder = tmp_path / f"epoch-{epoch}"
    for name, text in contents.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    publish(world.repo, job_id=JOB, epoch=epoch, folder=folder, partial=False)


def contents_of(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    texts = {path.relative_to(folder).as_posix(): path.read_text() for path in files}
    return {name: text for name, text in texts.items() if not name.endswith("manifest.json")}


def test_what_an_earlier_epoch_left_goes_and_what_is_somebodys_stays(
    world: World, tmp_path: Path
) -> None:
    """R200"""
    leave(world, tmp_path, 1, a="old", b="old", deep__er__c="old", deep__mine="old", same="same")
    leave(world, tmp_path, 2, a="new", d="new", same="same")
    out = tmp_path / "out"
    download(world.repo, job_id=JOB, epoch=1, folder=out)
    (out / "deep/mine").write_text("changed")
    (out / "also-mine").write_text("old")
    again = download(world.repo, job_id=JOB, epoch=2, folder=out)
    assert contents_of(out) == {
        "a": "new",
        "also-mine": "old",
        "d": "new",
        "deep/mine": "changed",
        "log.txt": "",
        "same": "same",
    }
    assert not (out / "deep/er").exists()
    assert (again.fetched, again.removed, again.changed) == (2, 2, [out / "deep/mine"])
    third = download(world.repo, job_id=JOB, epoch=2, folder=out)
    assert (third.fetched, third.removed, third.changed) == (0, 0, [])


def test_a_file_of_then_makes_room_for_a_folder_of_now(world: World, tmp_path: Path) -> None:
    leave(world, tmp_path, 1, a="old")
    leave(world, tmp_path, 2, a__b="new")
    out = tmp_path / "out"
    for epoch in (1, 2):
        download(world.repo, job_id=JOB, epoch=epoch, folder=out)
    assert contents_of(out) == {"a/b": "new", "log.txt": ""}


def test_a_part_of_a_later_epoch_leaves_nothing_of_an_earlier_one(
    world: World, tmp_path: Path
) -> None:
    leave(world, tmp_path, 1, a="old", b="old", c="same", d="old")
    leave(world, tmp_path, 2, a="new", b="new", c="same")
    out = tmp_path / "out"
    download(world.repo, job_id=JOB, epoch=1, folder=out)
    download(world.repo, job_id=JOB, epoch=2, folder=out, wanted=Wanted(only=["a"]))
    assert contents_of(out) == {"a": "new", "c": "same", "log.txt": ""}
    download(world.repo, job_id=JOB, epoch=2, folder=out)
    assert contents_of(out) == {"a": "new", "b": "new", "c": "same", "log.txt": ""}


def test_a_download_that_fails_between_two_epochs_is_gone_on_with(
    world: World, tmp_path: Path
) -> None:
    """Names of our own files change as well."""
    leave(world, tmp_path, 1, a="old", b="old", manifest_json="its own", log_txt="its own")
    leave(world, tmp_path, 2, a="new", b="new")
    out = tmp_path / "out"
    download(world.repo, job_id=JOB, epoch=1, folder=out)
    for count in range(3):
        away = ScriptedFaults(Fault(FaultKind.UNAVAILABLE, Operation.DOWNLOAD, skip=count))
        if count == 2:
            away = ScriptedFaults(Fault(FaultKind.UNAVAILABLE, Operation.LIST))
        repo = world.repo_over(FaultyStore(world.store, world.clock, away))
        with pytest.raises(Unavailable):
            download(repo, job_id=JOB, epoch=2, folder=out)
    download(world.repo, job_id=JOB, epoch=2, folder=out)
    assert contents_of(out) == {"a": "new", "b": "new", "log.txt": ""}
    assert sorted(os.listdir(out)) == ["a", "b", "log.txt", "manifest.json"]


@pytest.mark.parametrize("own_in", [1, 2])
def test_a_log_of_the_jobs_own_is_there_beside_ours(
    world: World, tmp_path: Path, own_in: int
) -> None:
    """R201: also where it had one in one epoch only."""
    write_segment(world.repo, JOB, 1, 0, b"printed\n")
    out = tmp_path / "out"
    for epoch in (1, 2):
        own = {"log_txt": "its own"} if epoch == own_in else {}
        leave(world, tmp_path, epoch, a="a", **own)
    for epoch in (1, 2, 2):
        download(world.repo, job_id=JOB, epoch=epoch, folder=out)
        contents = contents_of(out)
        if epoch == own_in:
            assert contents.pop("log.txt") == "its own"
            assert contents.pop("stado.log.txt").startswith("printed\n")
        else:
            assert contents.pop("log.txt").startswith("printed\n")
        assert contents == {"a": "a"}


def test_a_log_that_somebody_wrote_or_changed_is_not_replaced_by_ours(
    world: World, tmp_path: Path
) -> None:
    leave(world, tmp_path, 1, a="a", log_txt="its own")
    leave(world, tmp_path, 2, a="a")
    for number, first in enumerate((Wanted(only=["a"]), Wanted())):
        out = tmp_path / f"out-{number}"
        download(world.repo, job_id=JOB, epoch=1, folder=out, wanted=first)
        (out / "log.txt").write_text("mine")
        with pytest.raises(Refused, match="not as the job left it"):
            download(world.repo, job_id=JOB, epoch=2, folder=out)
        assert (out / "log.txt").read_text() == "mine"
        assert not (out / ".stado-partial").exists()


def test_a_folder_of_then_makes_room_for_a_file_of_now(world: World, tmp_path: Path) -> None:
    leave(world, tmp_path, 1, a__b__c="old", a__d="old")
    leave(world, tmp_path, 2, a="new")
    for name in ("out", "changed", "more", "empty"):
        download(world.repo, job_id=JOB, epoch=1, folder=tmp_path / name)
    (tmp_path / "changed/a/d").write_text("mine")
    (tmp_path / "more/a/mine").symlink_to(".")
    (tmp_path / "empty/a/mine").mkdir()
    for name in ("changed", "more", "empty"):
        with pytest.raises(Refused, match=f"{name}/a: not as the job left it"):
            download(world.repo, job_id=JOB, epoch=2, folder=tmp_path / name)
    assert (tmp_path / "more/a/b/c").read_text() == "old"
    assert (tmp_path / "empty/a/mine").is_dir()
    download(world.repo, job_id=JOB, epoch=2, folder=tmp_path / "out")
    assert contents_of(tmp_path / "out") == {"a": "new", "log.txt": ""}


def test_a_file_that_stays_where_a_folder_has_to_be_is_refused_before_anything_goes(
    world: World, tmp_path: Path
) -> None:
    leave(world, tmp_path, 1, a="old", z="old")
    leave(world, tmp_path, 2, a__b__c="new", d="new")
    out = tmp_path / "out"
    download(world.repo, job_id=JOB, epoch=1, folder=out)
    (out / "a").write_text("mine")
    with pytest.raises(Refused, match="out/a: not as the job left it"):
        download(world.repo, job_id=JOB, epoch=2, folder=out)
    assert contents_of(out) == {"a": "mine", "log.txt": "", "z": "old"}


@pytest.mark.parametrize("own_in", [1, 2])
def test_a_log_stays_under_its_name_of_now_when_no_other_is_fetched(
    world: World, tmp_path: Path, own_in: int
) -> None:
    write_segment(world.repo, JOB, 1, 0, b"printed\n")
    for epoch in (1, 2):
        own = {"log_txt": "its own"} if epoch == own_in else {}
        leave(world, tmp_path, epoch, a=str(epoch), **own)
    out = tmp_path / "out"
    then, now = ("stado.log.txt", "log.txt") if own_in == 1 else ("log.txt", "stado.log.txt")
    told = download(world.repo, job_id=JOB, epoch=1, folder=out).manifest.log
    with (out / then).open("a") as log:
        log.write("mine\n")
    download(world.repo, job_id=JOB, epoch=2, folder=out, wanted=Wanted(only=["a"]))
    assert contents_of(out) == {"a": "2", now: "printed\nmine\n"}
    manifest = parse(Manifest, "manifest", (out / "manifest.json").read_bytes())
    assert manifest.log == told is not None
    download(world.repo, job_id=JOB, epoch=2, folder=out, wanted=Wanted(only=["*"]))
    assert contents_of(out)[now] == "printed\nmine\n"


def test_a_file_that_has_its_name_of_then_as_well_stays(world: World, tmp_path: Path) -> None:
    """As where a disk does not tell `A` from `a`."""
    leave(world, tmp_path, 1, A="same")
    leave(world, tmp_path, 2, a="same")
    out = tmp_path / "out"
    download(world.repo, job_id=JOB, epoch=1, folder=out)
    (out / "a").hardlink_to(out / "A")
    download(world.repo, job_id=JOB, epoch=2, folder=out)
    assert contents_of(out)["a"] == contents_of(out)["A"] == "same"


# --- large files that were interrupted ------------------------------------------------------

PIECES = 5
LARGE = b"".join(bytes([number]) * PIECE_BYTES for number in range(PIECES))[:-1]


class HalfStore(MemoryStore):
    """Gives so many parts, and then no more until it is told to; notes which were asked for."""

    def __init__(self, world: World) -> None:
        super().__init__(world.clock, world.tasks)
        self.parts_left = 0
        self.given: list[int] = []

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if not self.parts_left:
            raise Unavailable(key, "no route")
        self.parts_left -= 1
        self.given.append(start // PIECE_BYTES)
        return super().get_range(key, start, length)


def interrupted(tmp_path: Path, *, pieces: int) -> tuple[Repository, HalfStore, Path]:
    """A download of which so many pieces came."""
    world = World()
    store = HalfStore(world)
    repo = world.repo_over(store)
    (tmp_path / "left").mkdir()
    (tmp_path / "left/large").write_bytes(LARGE)
    publish(repo, job_id=JOB, epoch=1, folder=tmp_path / "left", partial=False)
    store.parts_left = pieces
    with pytest.raises(Unavailable):
        download(repo, job_id=JOB, epoch=1, folder=tmp_path / "out")
    store.parts_left = 100
    return repo, store, tmp_path / "out"


@pytest.mark.parametrize("pieces", [0, 2, PIECES - 1])
def test_a_large_file_goes_on_where_it_was_interrupted(tmp_path: Path, pieces: int) -> None:
    """R200"""
    repo, store, out = interrupted(tmp_path, pieces=pieces)
    download(repo, job_id=JOB, epoch=1, folder=out)
    assert store.given == list(range(PIECES))
    assert (out / "large").read_bytes() == LARGE
    assert sorted(os.listdir(out)) == ["large", "log.txt", "manifest.json"]


def test_a_half_file_that_is_not_what_it_was_begins_anew(tmp_path: Path) -> None:
    """As a power cut leaves it; and half a note is none."""
    repo, store, out = interrupted(tmp_path, pieces=2)
    (half,) = (out / ".stado-partial").glob("*.pieces")
    os.truncate(half.with_suffix(""), 7)
    with half.open("ab") as notes:
        notes.write(b"\xff\xfe\n000")
    store.given.clear()
    download(repo, job_id=JOB, epoch=1, folder=out)
    assert store.given == [*range(2, PIECES), *range(PIECES)]
    assert (out / "large").read_bytes() == LARGE


def test_a_large_file_that_is_damaged_leaves_no_half(tmp_path: Path) -> None:
    repo, store, out = interrupted(tmp_path, pieces=2)
    key = keys.output_file(JOB, 1, "large")
    for damaged, told in ((LARGE[:-1] + b"!", "SHA-256"), (b"short", "has 5 bytes")):
        store.put(key, damaged)
        with pytest.raises(Conflict, match=told):
            download(repo, job_id=JOB, epoch=1, folder=out)
        assert os.listdir(out / ".stado-partial") == ["1.json"]
    store.delete(key, None)
    with pytest.raises(Conflict, match="large is missing"):
        download(repo, job_id=JOB, epoch=1, folder=out)


def test_a_damaged_file_costs_none_of_the_others_whatever_their_size(
    world: World, tmp_path: Path
) -> None:
    """R200"""
    (tmp_path / "left").mkdir()
    sizes = {"damaged": 3, "small": 3, "large": LARGE_BYTES, "larger": RESUMED_BYTES}
    for name, size in sizes.items():
        (tmp_path / "left" / name).write_bytes(bytes(size))
    publish(world.repo, job_id=JOB, epoch=1, folder=tmp_path / "left", partial=False)
    world.store.put(keys.output_file(JOB, 1, "damaged"), b"no")
    out = tmp_path / "out"
    with pytest.raises(Conflict, match="damaged has 2 bytes"):
        download(world.repo, job_id=JOB, epoch=1, folder=out)
    assert sorted(os.listdir(out)) == [".stado-partial", "large", "larger", "small"]


def live_repository(tmp_path: Path, store: MemoryStore, **files: bytes) -> Repository:
    """One in which a job has left files, and whose transfers are threads."""
    world = World()
    repo = Repository(
        store, world.deployment, clock=world.clock, entropy=world.entropy, tasks=LiveTasks()
    )
    (tmp_path / "left").mkdir()
    for name, data in files.items():
        (tmp_path / "left" / name).write_bytes(data)
    publish(repo, job_id=JOB, epoch=1, folder=tmp_path / "left", partial=False)
    return repo


class TogetherStore(MemoryStore):
    """Gives no part before all are asked for."""

    def __init__(self, world: World) -> None:
        super().__init__(world.clock, world.tasks)
        self._asked = threading.Barrier(PIECES)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self._asked.wait(timeout=30)
        return super().get_range(key, start, length)


def test_parts_that_come_at_once_make_the_file(tmp_path: Path) -> None:
    repo = live_repository(tmp_path, TogetherStore(World()), large=LARGE)
    download(repo, job_id=JOB, epoch=1, folder=tmp_path / "out")
    assert (tmp_path / "out/large").read_bytes() == LARGE


class FailingStore(MemoryStore):
    """Fails for one file once parts of the other are on their way."""

    def __init__(self, world: World) -> None:
        super().__init__(world.clock, world.tasks)
        self._begun = threading.Event()
        self._failed = threading.Event()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if key.endswith("fails"):
            assert self._begun.wait(timeout=30)
            self._failed.set()
            raise Unavailable(key, "no route")
        self._begun.set()
        assert self._failed.wait(timeout=30)
        time.sleep(0.05)  # until the call knows; if it does not yet, the file comes whole
        return super().get_range(key, start, length)


class Onlooker:
    """Notes what it is told to be there."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def begin(self, files: Sequence[OutputFile]) -> None: ...

    def fetch(self, file: OutputFile, temporary: Path) -> None: ...

    def have(self, file: OutputFile) -> None:
        self.told.append(file.path)


def test_nobody_is_told_of_a_large_file_that_did_not_come(tmp_path: Path) -> None:
    repo = live_repository(tmp_path, FailingStore(World()), fails=LARGE, waits=LARGE + LARGE)
    onlooker, out = Onlooker(), tmp_path / "out"
    with pytest.raises(Unavailable):
        download(repo, job_id=JOB, epoch=1, folder=out, wanted=Wanted(sight=onlooker))
    assert onlooker.told == [path.name for path in out.glob("waits")]


class TwiceStore(HalfStore):
    """In the midst of a download somebody begins another one into its folder."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.begin_other: Callable[[], object] = lambda: None

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.begin_other()
        return super().get_range(key, start, length)


def test_two_downloads_do_not_fill_one_folder_at_once(tmp_path: Path) -> None:
    store = TwiceStore(World())
    repo = live_repository(tmp_path, store, large=LARGE, small=b"s")
    out = tmp_path / "out"

    def begin_other() -> None:
        store.begin_other = lambda: None
        for wanted in (Wanted(), Wanted(only=["small"])):
            with pytest.raises(Refused, match=f"another download fills {out} just now"):
                download(repo, job_id=JOB, epoch=1, folder=out, wanted=wanted)

    store.begin_other, store.parts_left = begin_other, PIECES - 1
    with pytest.raises(Unavailable):
        download(repo, job_id=JOB, epoch=1, folder=out)
    store.parts_left = 1
    download(repo, job_id=JOB, epoch=1, folder=out)
    assert sorted(store.given) == list(range(PIECES))
    assert (out / "large").read_bytes() == LARGE
    assert sorted(os.listdir(out)) == ["large", "log.txt", "manifest.json", "small"]
