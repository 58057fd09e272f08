"""What only a directory has: crashes, processes that share it, and a disk that fails."""

from __future__ import annotations

import errno
import io
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stado.errors import (
    Ambiguous,
    Conflict,
    Denied,
    Exists,
    Misconfigured,
    NotFound,
    StoreError,
    Unavailable,
)
from stado.storage.file import FileStore
from stado.storage.file_errors import store_errors
from stado.storage.file_locks import FileLocks
from stado.storage.file_version import EMPTY_VERSION
from stado.storage.retry import RetryingStore
from tests.storage.fakes import FakeClock, SeededEntropy
from tests.storage.stores import CLOCK, ENTROPY, TASKS

PROCESSES = 8
RACES = 150
SWAPS = 60
KILLS = 8
POLL_SECONDS_MAX = 30.0


def _store(root: Path, *, durable: bool = True) -> FileStore:
    return FileStore.make(root, CLOCK, ENTROPY, durable=durable)


@contextmanager
def _writers(root: Path, what: str, count: int) -> Iterator[Sequence[subprocess.Popen[str]]]:
    """Processes of `file_writer`, killed at the end whatever happens."""
    argv = [sys.executable, "-m", "tests.storage.file_writer", str(root), what]
    processes = [
        subprocess.Popen([*argv, str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(count)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait(10)
            if process.stdout is not None:
                process.stdout.close()


def test_create_race_between_processes_has_one_winner_each(tmp_path: Path) -> None:
    store = _store(tmp_path)
    with _writers(tmp_path, f"create:{RACES}", PROCESSES) as processes:
        wins = [process.communicate(timeout=60)[0].split() for process in processes]
    won = sorted(key for keys in wins for key in keys)
    assert won == sorted(f"race/{number:04}" for number in range(RACES))
    for number, keys in enumerate(wins):
        assert all(store.get(key).data == f"{number}".encode() for key in keys)


def test_swaps_between_processes_lose_no_update(tmp_path: Path) -> None:
    store = _store(tmp_path)
    store.create("counter/n", b"0")
    with _writers(tmp_path, f"swap:{SWAPS}", PROCESSES) as processes:
        for process in processes:
            process.communicate(timeout=90)
            assert process.returncode == 0
    assert store.get("counter/n").data.split()[0] == f"{PROCESSES * SWAPS}".encode()


def test_no_version_is_replaced_twice_while_others_delete_and_create(tmp_path: Path) -> None:
    store = _store(tmp_path)
    store.create("turns/n", b"start")
    with _writers(tmp_path, "turns:200", 4) as processes:
        taken = [line for p in processes for line in p.communicate(timeout=60)[0].split()]
    assert len(taken) == len(set(taken))
    assert len(taken) > 100


def test_killed_writer_leaves_no_partial_object(tmp_path: Path) -> None:
    store = _store(tmp_path)
    seen = 0
    for number in range(KILLS):
        with _writers(tmp_path, "endless", 1) as (process,):
            end = time.monotonic() + POLL_SECONDS_MAX
            count = len(store.list("crash/"))
            while len(store.list("crash/")) <= count and time.monotonic() < end:
                time.sleep(0.005)
            time.sleep(0.01 * number / KILLS)
            process.send_signal(signal.SIGKILL)
            process.wait(10)
        for entry in store.list("crash/"):
            data = store.get(entry.key).data
            assert len(data) == 100_000
            assert len(set(data)) == 1
            seen += 1
        assert store.create(f"after/{number}", b"the lock of a dead writer is free")
    assert seen > 0


def test_temporary_files_of_dead_writers_are_swept_after_an_hour(tmp_path: Path) -> None:
    _store(tmp_path)
    old, young = tmp_path / ".tmp" / "old", tmp_path / ".tmp" / "young"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 4000, time.time() - 4000))
    _store(tmp_path)
    assert (old.exists(), young.exists()) == (False, True)


def test_lost_answer_of_a_link_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On NFS a repeated request reports the link of the first one as taken."""
    store = _store(tmp_path)
    link = os.link

    def link_and_lose(source: Path, target: Path) -> None:
        link(source, target)
        raise FileExistsError(errno.EEXIST, "exists")

    monkeypatch.setattr(os, "link", link_and_lose)
    store.create("a/b", b"mine")
    monkeypatch.undo()
    assert store.get("a/b").data == b"mine"
    with pytest.raises(Exists):
        store.create("a/b", b"other")


def test_create_and_its_new_folders_are_flushed_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _store(tmp_path)
    flushed: list[Path] = []
    monkeypatch.setattr(
        os, "fsync", lambda fd: flushed.append(Path(os.readlink(f"/proc/self/fd/{fd}")))
    )
    store.create("status/job/cells/1", b"x")
    assert flushed[0].parent.name == ".tmp"
    made = [tmp_path, tmp_path / "status", tmp_path / "status/job"]
    assert flushed[1:] == [*made, tmp_path / "status/job/cells"]


def test_ten_thousand_creates_are_durable_within_seconds(tmp_path: Path) -> None:
    """Two seconds where nothing else uses the disk: one flush for all, not one each."""
    store = _store(tmp_path)
    begun = time.monotonic()
    versions = store.create_many([(f"queue/{number:05}", b"x" * 300) for number in range(10_000)])
    assert time.monotonic() - begun < 30
    assert None not in versions
    assert not list((tmp_path / ".tmp").iterdir())


def test_folders_of_a_job_go_with_it_and_fixed_ones_stay(tmp_path: Path) -> None:
    store = _store(tmp_path)
    for key in ("status/job/cells/1", "index/ready/1", "queue/1"):
        store.create(key, b"")
        store.delete(key, None)
    assert not (tmp_path / "status" / "job").exists()
    assert (tmp_path / "index" / "ready").is_dir()
    assert (tmp_path / "queue").is_dir()
    store.create("status/job/cells/1", b"again")
    assert store.get("status/job/cells/1").data == b"again"


def test_folder_removed_by_another_process_is_made_again(tmp_path: Path) -> None:
    store, other = _store(tmp_path), _store(tmp_path)
    store.put("status/job/heartbeat", b"1")
    store.create("status/job/cells/1", b"1")
    other.delete("status/job/heartbeat", None)
    other.delete("status/job/cells/1", None)
    assert not (tmp_path / "status" / "job").exists()
    version = store.put("status/job/heartbeat", b"2")
    other.delete("status/job/heartbeat", None)
    with pytest.raises(Conflict):
        store.replace("status/job/heartbeat", b"3", version)
    assert store.list("status/job/") == []


def test_an_empty_folder_where_a_store_was_is_no_empty_store(tmp_path: Path) -> None:
    """As when its file system is unmounted: nothing is absent, nothing is made there, and all is
    well once it is back."""
    root, away = tmp_path / "store", tmp_path / "away"
    store = _store(root)
    version = store.create("queue/a", b"1")
    root.rename(away)
    root.mkdir()
    asked: list[Callable[[], object]] = [
        lambda: store.get("queue/a"),
        lambda: store.head("queue/a"),
        lambda: store.list("queue/"),
        lambda: store.create("queue/a", b"2"),
        lambda: store.create_many([("queue/b", b"2")]),
        lambda: store.replace("queue/a", b"2", version),
        lambda: store.put("queue/b", b"2"),
        lambda: store.delete("queue/a", version),
        lambda: store.upload("queue/b", away / "queue" / "a"),
        lambda: store.download("queue/a", tmp_path / "down"),
    ]
    for ask in asked:
        with pytest.raises(Unavailable, match="mounted"):
            ask()
    assert list(root.iterdir()) == []
    root.rmdir()
    away.rename(root)
    assert store.get("queue/a").data == b"1"


@pytest.mark.parametrize("used", [True, False])
def test_a_directory_that_is_moved_away_amid_a_write_is_not_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: bool
) -> None:
    """What was written there would be gone when it is back, and others would take it for the
    store meanwhile."""
    root = tmp_path / "store"
    store = _store(root)
    if used:
        store.create("queue/a", b"1")
    make_folder = store._make_folder

    def move_away_first(folder: Path) -> None:
        root.rename(tmp_path / "away")
        make_folder(folder)

    monkeypatch.setattr(store, "_make_folder", move_away_first)
    with pytest.raises(StoreError):
        store.create("status/job/cells/1.claim.json", b"1")
    assert not root.exists()


def test_a_store_that_goes_away_while_it_is_listed_is_no_short_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    store = _store(root)
    store.create("queue/a", b"1")
    scan = os.scandir

    @contextmanager
    def scan_and_unmount(path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scan(path) as found:
            yield found
        root.rename(tmp_path / "away")
        root.mkdir()

    monkeypatch.setattr(os, "scandir", scan_and_unmount)
    with pytest.raises(Unavailable, match="mounted"):
        store.list("queue/")


def test_missing_root_is_no_empty_store(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = _store(root)
    shutil.rmtree(root)
    for call in (lambda: store.list("queue/"), lambda: store.get("a"), lambda: store.put("a", b"")):
        with pytest.raises(Misconfigured, match=r"^there is no store at .* any more: is its file"):
            call()
    assert not root.exists()


def test_listing_reads_no_empty_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = _store(tmp_path)
    store.create("index/ready/1", b"")
    monkeypatch.setattr(os, "pread", lambda *_: pytest.fail("read"))
    assert store.list("index/ready/")[0].version == EMPTY_VERSION


def test_object_and_folder_of_one_name_are_refused(tmp_path: Path) -> None:
    store = _store(tmp_path)
    store.create("a", b"")
    with pytest.raises(Misconfigured, match="both an object and a folder"):
        store.create("a/b", b"")
    with pytest.raises(NotFound):
        store.get("a/b")
    store.create("c/d", b"")
    with pytest.raises(NotFound):
        store.get("c")


@pytest.mark.parametrize(
    ("number", "writing", "error"),
    [
        (errno.EACCES, True, Denied),
        (errno.EROFS, True, Denied),
        (errno.EPERM, False, Denied),
        (errno.ENOSPC, True, Unavailable),
        (errno.EDQUOT, True, Unavailable),
        (errno.EMFILE, True, Unavailable),
        (errno.ENFILE, False, Unavailable),
        (errno.EFBIG, True, Misconfigured),
        (errno.EIO, True, Ambiguous),
        (errno.ESTALE, True, Ambiguous),
        (errno.EIO, False, Unavailable),
        (errno.ESTALE, False, Unavailable),
        (errno.ENOTCONN, False, Unavailable),
    ],
)
def test_errors_of_the_disk_are_told_apart(
    number: int, writing: bool, error: type[StoreError]
) -> None:
    errors = store_errors("a", writing=writing, folder=Path("/srv/queue"))
    with pytest.raises(error) as raised, errors:
        raise OSError(number, os.strerror(number))
    assert type(raised.value) is error
    assert os.strerror(number) in str(raised.value)
    if number not in (errno.EMFILE, errno.ENFILE):
        assert "/srv/queue" in str(raised.value)


class Disk:
    """Fails with an error at a call of the operating system, for files of one store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch

    def fails(self, call: str, number: int) -> None:
        def fail(*_: Any, **__: Any) -> Any:
            raise OSError(number, os.strerror(number))

        self._patch.setattr(os, call, fail)

    def fills_up(self) -> None:
        """After a part of the data, as disks do."""
        write = os.write

        def write_a_part(descriptor: int, data: memoryview) -> int:
            if len(data) > 10:
                return write(descriptor, data[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        self._patch.setattr(os, "write", write_a_part)

    def is_well(self) -> None:
        self._patch.undo()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def _writes(store: FileStore, version: str, source: Path) -> dict[str, Callable[[], object]]:
    return {
        "create": lambda: store.create("q/new", b"x" * 100),
        "create_many": lambda: store.create_many([("q/many", b"x" * 100)]),
        "put": lambda: store.put("q/a", b"x" * 100),
        "replace": lambda: store.replace("q/a", b"x" * 100, version),
        "upload": lambda: store.upload("q/file", source),
    }


WRITE_NAMES = ("create", "create_many", "put", "replace", "upload")


@pytest.mark.parametrize("name", WRITE_NAMES)
def test_a_full_disk_refuses_a_write_for_now_and_keeps_nothing_of_it(
    tmp_path: Path, disk: Disk, name: str
) -> None:
    """A64: certainly not applied, said with the folder and what to do; later it works."""
    store = _store(tmp_path / "store")
    version = store.create("q/a", b"old")
    source = tmp_path / "source"
    source.write_bytes(b"x" * 100)
    write = _writes(store, version, source)[name]
    disk.fills_up()
    with pytest.raises(Unavailable) as raised:
        write()
    assert type(raised.value) is Unavailable
    assert f"No space left on device: free some space (or quota) at {tmp_path / 'store'}" in str(
        raised.value
    )
    assert [entry.key for entry in store.list("q/")] == ["q/a"]
    assert store.get("q/a").data == b"old"
    assert list((tmp_path / "store/.tmp").iterdir()) == []
    disk.is_well()
    write()
    assert b"x" * 100 in {store.get(entry.key).data for entry in store.list("q/")}


def test_a_full_disk_is_outlived_with_retries(tmp_path: Path, disk: Disk) -> None:
    clock = FakeClock()
    inner = _store(tmp_path)
    store = RetryingStore(inner, clock=clock, entropy=SeededEntropy(), tasks=TASKS)
    disk.fills_up()
    sleep = clock.sleep

    def make_room(seconds: float) -> None:
        sleep(seconds)
        if len(clock.slept) == 3:
            disk.is_well()

    clock.sleep = make_room  # type: ignore[method-assign]
    version = store.create("q/a", b"x" * 100)
    assert store.get("q/a").version == version
    assert len(clock.slept) == 3


def test_a_disk_without_room_for_a_name_can_be_made_less_full(tmp_path: Path, disk: Disk) -> None:
    """Not even an empty file can be made; the clock is told, and objects go."""
    _store(tmp_path).create("q/a", b"1")
    store = FileStore(tmp_path, CLOCK, ENTROPY)
    open_file = os.open

    def open_what_is_there(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT and not Path(path).exists():
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        return open_file(path, flags, mode)

    disk._patch.setattr(os, "open", open_what_is_there)
    with pytest.raises(Unavailable, match="quota"):
        store.create("q/b", b"1")
    assert abs((store.now() - CLOCK.now()).total_seconds()) < 5
    store.delete("q/a", store.head("q/a").version)
    assert store.list("q/") == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EACCES])
@pytest.mark.parametrize("name", ["create", "put", "replace"])
def test_what_fails_after_an_object_is_in_its_place_leaves_the_write_unclear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    """Some file systems say only when a folder is flushed that there is no room."""
    store = _store(tmp_path / "store")
    version = store.create("q/a", b"old")
    fsync = os.fsync

    def fail_for_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_for_folders)
    with pytest.raises(Ambiguous):
        _writes(store, version, tmp_path)[name]()


def test_a_temporary_file_that_cannot_be_removed_fails_no_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _store(tmp_path)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "unlink", fail)
    monkeypatch.setattr(Path, "unlink", fail)
    version = store.create("q/a", b"1")
    monkeypatch.undo()
    assert store.get("q/a").version == version


@pytest.mark.parametrize("call", ["open", "stat", "scandir"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EMFILE])
def test_a_disk_in_trouble_is_no_absence(
    tmp_path: Path, disk: Disk, call: str, number: int
) -> None:
    store = _store(tmp_path)
    version = store.create("q/a", b"1")
    reads: Sequence[Callable[[], object]] = {
        "open": [
            lambda: store.get("q/a"),
            lambda: store.head("q/a"),
            lambda: store.list("q/"),
            lambda: store.download("q/a", tmp_path / "target"),
        ],
        "stat": [lambda: store.get("q/none"), lambda: store.list("none/")],
        "scandir": [lambda: store.list("q/")],
    }[call]
    disk.fails(call, number)
    for read in reads:
        with pytest.raises(Unavailable):
            read()
    with pytest.raises((Unavailable, Ambiguous)):
        if call == "scandir":
            store.list("q/")
        else:
            store.replace("q/a", b"2", version)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_folder_that_cannot_be_looked_at_is_not_called_missing(
    tmp_path: Path, disk: Disk, number: int
) -> None:
    _store(tmp_path)
    disk.fails("stat", number)
    with pytest.raises(Unavailable, match=str(tmp_path)):
        FileStore(tmp_path, CLOCK, ENTROPY)


def test_a_disk_that_fails_during_a_download_is_not_blamed_on_the_users_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _store(tmp_path / "store")
    store.create("q/a", b"1")

    class Failing(io.BytesIO):
        def read(self, *_: Any) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdopen", lambda *_: Failing())
    with pytest.raises(Unavailable, match="Input/output error"):
        store.download("q/a", tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_reader_without_write_access_can_read() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _store(root).create("a", b"1")
        with _as_a_mere_reader(root):
            reader = FileStore(root, CLOCK, ENTROPY)
            assert reader.get("a").data == b"1"
            assert [entry.key for entry in reader.list("")] == ["a"]
            with pytest.raises(Denied, match="who owns"):
                reader.create("b", b"1")


@contextmanager
def _as_a_mere_reader(root: Path) -> Iterator[None]:
    folders = (root, root / ".tmp", root / ".locks")
    for folder in folders:
        folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:  # whom no mode stops
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        for folder in folders:
            folder.chmod(0o755)


def test_lock_of_a_stopped_process_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    _store(tmp_path)
    clock = FakeClock()
    locks = FileLocks(tmp_path, clock, SeededEntropy())
    with (
        locks.holding("a"),
        pytest.raises(Unavailable, match="is it stopped"),
        locks.holding("a"),
    ):
        pass
    assert 9 < clock.monotonic() < 11


def test_failed_download_leaves_no_file(tmp_path: Path) -> None:
    store = _store(tmp_path / "store")
    with pytest.raises(NotFound):
        store.download("none", tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_missing_file_to_upload_is_not_blamed_on_the_store(tmp_path: Path) -> None:
    store = _store(tmp_path / "store")
    with pytest.raises(FileNotFoundError):
        store.upload("a", tmp_path / "none")
    assert store.list("") == []
