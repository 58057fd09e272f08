"""What people can put into a shared directory beside objects: nothing of it stops a reader."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stado.core import keys
from stado.errors import Conflict, Exists, NotFound, StoreError
from stado.storage.file import FileStore
from stado.storage.file_version import modified_at
from stado.system.clock import LiveClock
from stado.system.entropy import LiveEntropy

KEY = "queue/aaaaaaaaaaaaaaaa.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    (folder / "queue").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"secret")
    return folder


@pytest.fixture
def store(folder: Path) -> FileStore:
    return FileStore(folder, LiveClock(), LiveEntropy(), durable=False)


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """A call that waits for ever fails the test instead."""

    def give_up(*_: object) -> None:
        raise AssertionError("it waits for ever")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


def make_link(path: Path) -> None:
    path.symlink_to(path.parents[2] / "secret")


def make_loop(path: Path) -> None:
    path.symlink_to(path)


def make_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [make_pipe, make_socket, make_link, make_loop, make_folder])
def test_what_is_no_file_is_no_object(store: FileStore, folder: Path, make: object) -> None:
    assert callable(make)
    make(folder / KEY)
    store.put("queue/bbbbbbbbbbbbbbbb.json", b"healthy")
    with within(20):
        assert [entry.key for entry in store.list("queue/")] == ["queue/bbbbbbbbbbbbbbbb.json"]
        for read in (store.get, store.head):
            with pytest.raises(NotFound):
                read(KEY)
        with pytest.raises(NotFound):
            store.download(KEY, folder.parent / "copy")
        with pytest.raises(Exists):
            store.create(KEY, b"new")
        with pytest.raises(Conflict):
            store.replace(KEY, b"new", "version")
        try:
            store.put(KEY, b"new")
        except StoreError:
            assert make is make_folder
        else:
            assert store.get(KEY).data == b"new"
    assert (folder.parent / "secret").read_bytes() == b"secret"


@pytest.mark.parametrize("seconds", [10**12, -(10**12), 2**62])
def test_some_file_systems_know_years_that_no_calendar_has(seconds: int) -> None:
    status = os.stat_result([0] * 10, {"st_mtime_ns": seconds * 10**9})
    assert modified_at(status).year in (1970, 9999)


@pytest.mark.parametrize("seconds", [10**12, -(10**11), 2**40])
def test_a_time_of_change_that_no_calendar_has(
    store: FileStore, folder: Path, seconds: int
) -> None:
    store.put(KEY, b"healthy")
    try:
        os.utime(folder / KEY, (seconds, seconds))
    except OverflowError:  # this file system has none either
        os.utime(folder / KEY, (2**34 - 1, 2**34 - 1))
    assert store.get(KEY).data == b"healthy"
    assert store.head(KEY).modified_at.tzinfo is not None
    assert [entry.key for entry in store.list("queue/")] == [KEY]


@pytest.mark.parametrize(
    "name", [b"\xff\xfe", b"a\nb", b"\x1b[2J", b".hidden", b"x" * 250, b"a\\b"]
)
def test_files_of_other_names_are_passed_over(store: FileStore, folder: Path, name: bytes) -> None:
    store.put(KEY, b"healthy")
    with open(os.path.join(os.fsencode(folder), b"queue", name), "wb") as file:
        file.write(b"junk")
    assert [entry.key for entry in store.list("queue/")] == [KEY]


def test_a_folder_that_is_a_file_costs_what_is_below(store: FileStore, folder: Path) -> None:
    (folder / "capacity").write_bytes(b"junk")
    assert store.list(keys.CAPACITY) == []
    with pytest.raises(StoreError):
        store.put(keys.capacity("alice"), b"{}")
