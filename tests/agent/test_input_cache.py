"""What is kept of inputs on a host: within its limit, whole, and never in a job's way."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stado.errors import Conflict, Unavailable
from stado.storage.port import FileDigest
from stado_agent.downloads import Interrupted
from stado_agent.input_cache import Content, InputCache, cache_bytes
from tests.agent.fakes import GIB, FakeHardware
from tests.cli.conftest import PYTHON_PATH
from tests.jobs.fakes import FakeClock, FakeEntropy

ENTROPY = FakeEntropy()


class Host:
    """A cache, and jobs that want things of it."""

    def __init__(self, folder: Path, *, limit_bytes: int = 100) -> None:
        self.clock = FakeClock()
        self.folder = folder / "inputs"
        self.jobs = folder / "jobs"
        self.jobs.mkdir(exist_ok=True)
        self.limit_bytes = limit_bytes
        self.downloads: list[bytes] = []
        self.cache = self.another_supervisor()

    def another_supervisor(self) -> InputCache:
        return InputCache(
            self.folder, limit_bytes=self.limit_bytes, clock=self.clock, entropy=ENTROPY
        )

    def want(self, data: bytes, *, cache: InputCache | None = None) -> bytes:
        """What a job gets that wants this."""
        cache = cache or self.cache
        target = self.jobs / ENTROPY.token()
        content = content_of(data)
        with cache.room_for([content]) as keep:
            cache.deliver(content, target, self.download(data), keep=keep, heed=lambda: None)
        assert [path.name for path in self.jobs.iterdir() if path.name.startswith(".")] == []
        return target.read_bytes()

    def download(self, data: bytes) -> Callable[[Path], FileDigest]:
        def write(path: Path) -> FileDigest:
            self.downloads.append(data)
            path.write_bytes(data)
            return FileDigest(len(data), hashlib.sha256(data).hexdigest())

        return write

    def kept(self) -> set[bytes]:
        return {path.read_bytes() for path in (self.folder / "objects").glob("*")}

    def entry(self, data: bytes) -> Path:
        return self.folder / "objects" / content_of(data).sha256

    def used_at(self, data: bytes, seconds: int) -> None:
        os.utime(self.entry(data), (seconds, seconds))

    def leftovers(self) -> list[str]:
        folders = ("partial", "locks", "reserved")
        return [path.name for name in folders for path in (self.folder / name).glob("*")]


def content_of(data: bytes) -> Content:
    return Content("a key", hashlib.sha256(data).hexdigest(), len(data))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_what_was_fetched_is_not_fetched_again(host: Host) -> None:
    assert host.want(b"x" * 10) == b"x" * 10
    assert host.want(b"x" * 10, cache=host.another_supervisor()) == b"x" * 10
    assert host.downloads == [b"x" * 10]
    assert host.leftovers() == []


def test_what_a_job_does_to_its_copy_hurts_nobody(host: Host) -> None:
    host.want(b"x" * 10)
    for path in host.jobs.iterdir():
        path.write_bytes(b"spoiled")
    assert host.want(b"x" * 10) == b"x" * 10
    assert host.downloads == [b"x" * 10]


def test_a_copy_of_what_is_kept_can_be_called_off(host: Host) -> None:
    """It is no sign of damage, and leaves nothing behind."""
    data = bytes(3 * 1024 * 1024)
    host.limit_bytes = 2 * len(data)
    cache = host.another_supervisor()
    host.want(data, cache=cache)
    looks = iter((True, False))

    def heed() -> None:
        if not next(looks):
            raise Interrupted

    content = content_of(data)
    with cache.room_for([content]) as keep, pytest.raises(Interrupted):
        cache.deliver(content, host.jobs / "mine", host.download(data), keep=keep, heed=heed)
    assert not (host.jobs / "mine").exists()
    assert host.want(data, cache=cache) == data
    assert host.downloads == [data]


def test_the_least_recently_used_goes_first_and_the_limit_holds(host: Host) -> None:
    one, two, three = b"1" * 40, b"2" * 40, b"3" * 40
    host.want(one)
    host.want(two)
    host.used_at(one, 1)
    host.used_at(two, 2)
    host.want(one)  # which makes it the last one used
    host.want(three)
    assert host.kept() == {one, three}


def test_what_is_larger_than_the_limit_is_fetched_and_not_kept(host: Host) -> None:
    host.want(b"s" * 10)
    assert host.want(b"x" * 101) == b"x" * 101
    assert host.kept() == {b"s" * 10}
    none = Host(host.jobs, limit_bytes=0)
    assert none.want(b"y") == b"y"
    assert not none.folder.exists()


def test_what_somebody_copies_just_now_stays(host: Host) -> None:
    used, other = b"u" * 60, b"o" * 30
    host.want(used)
    host.want(other)
    host.used_at(used, 1)
    with host.entry(used).open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        assert host.want(b"n" * 40) == b"n" * 40
        assert host.kept() == {used, b"n" * 40}
        assert host.want(b"m" * 70) == b"m" * 70
        assert used in host.kept()
        assert b"m" * 70 not in host.kept()


def test_room_that_was_given_is_not_given_twice(host: Host) -> None:
    other = host.another_supervisor()
    one, two = [content_of(b"x" * 60)], [content_of(b"y" * 60)]
    with host.cache.room_for(one) as first, other.room_for(two) as second:
        assert (first, second) == (True, False)
    with host.another_supervisor().room_for([content_of(b"y" * 60)]) as second:
        assert second


@pytest.mark.parametrize("damage", [b"x" * 9, b"y" * 10, b""])
def test_a_damaged_entry_is_noticed_and_fetched_again(host: Host, damage: bytes) -> None:
    host.want(b"x" * 10)
    host.entry(b"x" * 10).write_bytes(damage)
    assert host.want(b"x" * 10) == b"x" * 10
    assert host.kept() == {b"x" * 10}
    assert len(host.downloads) == 2


def test_what_is_not_what_it_should_be_is_neither_given_nor_kept(
    host: Host, tmp_path: Path
) -> None:
    content, target = content_of(b"x" * 10), tmp_path / "target"
    for keep in (True, False):
        with host.cache.room_for([content]), pytest.raises(Conflict, match="a key: it has 4 bytes"):
            host.cache.deliver(
                content, target, host.download(b"liar"), keep=keep, heed=lambda: None
            )
    assert not target.exists()
    assert host.kept() == set()
    assert host.leftovers() == []


def test_a_store_that_is_away_leaves_nothing_behind(host: Host, tmp_path: Path) -> None:
    def away(path: Path) -> FileDigest:
        path.write_bytes(b"half")
        raise Unavailable("a key", "no answer")

    content = content_of(b"x" * 10)
    with host.cache.room_for([content]) as keep, pytest.raises(Unavailable):
        host.cache.deliver(content, tmp_path / "target", away, keep=keep, heed=lambda: None)
    assert host.kept() == set()
    assert host.leftovers() == []
    assert host.want(b"x" * 10) == b"x" * 10


# --- several at once, and those who die -----------------------------------------------------


class BusyClock(FakeClock):
    """Something happens on the host whenever somebody waits."""

    def __init__(self) -> None:
        super().__init__()
        self.happen: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.happen()


class Other:
    """Another supervisor, which fetches something: as far as it is seen from outside."""

    def __init__(self, host: Host, data: bytes) -> None:
        host.want(b"-")  # makes the folders
        host.downloads.clear()
        self.data = data
        sha256 = content_of(data).sha256
        self.partial = host.folder / "partial" / f"token.{sha256}"
        self.partial.write_bytes(b"")
        self._entry = host.entry(data)
        self._lock = host.folder / "locks" / sha256
        self._descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def finish(self) -> None:
        self.partial.write_bytes(self.data)
        self.partial.rename(self._entry)
        self.die()
        self._lock.unlink()

    def die(self) -> None:
        os.close(self._descriptor)


@pytest.fixture
def busy(host: Host) -> BusyClock:
    host.clock = BusyClock()
    host.cache = host.another_supervisor()
    return host.clock


def test_who_comes_second_waits_for_what_the_first_one_fetches(host: Host, busy: BusyClock) -> None:
    """For as long as that grows."""
    other = Other(host, b"x" * 50)

    def grow() -> None:
        if busy.monotonic() > 300:
            busy.happen = lambda: None
            other.finish()
        elif int(busy.monotonic()) % 50 == 0:
            with other.partial.open("ab") as file:
                file.write(b"x")

    busy.happen = grow
    assert host.want(b"x" * 50) == b"x" * 50
    assert host.downloads == []
    assert 300 < busy.monotonic() < 302


def test_who_stands_still_is_waited_for_no_longer_than_a_minute(
    host: Host, busy: BusyClock
) -> None:
    other = Other(host, b"x" * 50)
    assert host.want(b"x" * 50) == b"x" * 50
    assert 60 < busy.monotonic() < 62
    assert host.downloads == [b"x" * 50]
    other.finish()


def test_what_a_dead_one_had_begun_is_begun_anew_at_once(host: Host, busy: BusyClock) -> None:
    Other(host, b"x" * 50).die()
    assert host.want(b"x" * 50) == b"x" * 50
    assert busy.monotonic() == 0
    assert host.downloads == [b"x" * 50]
    assert host.kept() == {b"-", b"x" * 50}
    assert host.leftovers() == []


def test_who_waits_can_be_called_off(host: Host, busy: BusyClock) -> None:
    other = Other(host, b"x" * 50)

    def heed() -> None:
        if busy.monotonic() > 5:
            raise Interrupted

    content = content_of(b"x" * 50)
    with host.cache.room_for([content]) as keep, pytest.raises(Interrupted):
        host.cache.deliver(
            content, host.jobs / "mine", host.download(b"x" * 50), keep=keep, heed=heed
        )
    assert busy.monotonic() < 6
    other.finish()


_FETCHER = """
import sys, time
from pathlib import Path
from stado.system.clock import LiveClock
from stado.system.entropy import LiveEntropy
from stado_agent.input_cache import Content, InputCache
folder, sha256 = Path(sys.argv[1]), sys.argv[2]
cache = InputCache(folder, limit_bytes=100, clock=LiveClock(), entropy=LiveEntropy())
content = Content("a key", sha256, 50)
def download(path):
    path.write_bytes(b"half")
    print("begun", flush=True)
    time.sleep(600)
with cache.room_for([content]) as keep:
    cache.deliver(content, folder / "target", download, keep=keep, heed=lambda: None)
"""


def test_one_that_is_killed_amid_a_download_costs_nothing_but_the_download(host: Host) -> None:
    """Its room is free again, its lock too, and half a file is nothing."""
    data = b"x" * 50
    fetcher = subprocess.Popen(
        [sys.executable, "-c", _FETCHER, str(host.folder), content_of(data).sha256],
        env={"PYTHONPATH": PYTHON_PATH, "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
    )
    assert fetcher.stdout is not None
    assert fetcher.stdout.readline() == b"begun\n"
    with host.cache.room_for([content_of(b"y" * 60)]) as keep:
        assert not keep
    assert len(host.leftovers()) == 3
    fetcher.send_signal(signal.SIGKILL)
    fetcher.wait(20)
    fetcher.stdout.close()
    assert host.want(b"y" * 60) == b"y" * 60
    assert host.leftovers() == []
    assert host.want(data) == data
    assert host.kept() == {data}


# --- a host that is in trouble --------------------------------------------------------------


def test_a_folder_that_cannot_be_used_costs_a_download_and_no_job(
    host: Host, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host.folder.write_text("a file stands where the folder should be")
    assert host.want(b"x" * 10) == b"x" * 10
    assert host.want(b"x" * 10) == b"x" * 10
    assert len(host.downloads) == 2
    assert "event=input_cache_unusable" in caplog.text


def test_a_full_disk_gets_all_that_is_kept_back_before_a_job_is_given_up(host: Host) -> None:
    for number in range(3):
        host.want(bytes([number]) * 20)
    tried: list[int] = []

    def full(path: Path) -> FileDigest:
        tried.append(len(host.kept()))
        if len(tried) == 1:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return host.download(b"x" * 200)(path)

    content = content_of(b"x" * 200)
    with host.cache.room_for([content]) as keep:
        host.cache.deliver(content, host.jobs / "mine", full, keep=keep, heed=lambda: None)
    assert tried == [3, 0]
    assert not host.cache.clear()


def test_a_disk_that_stays_full_is_the_host_s_trouble(host: Host) -> None:
    def full(path: Path) -> FileDigest:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    content = content_of(b"x" * 200)
    with host.cache.room_for([content]) as keep, pytest.raises(OSError, match="No space left"):
        host.cache.deliver(content, host.jobs / "mine", full, keep=keep, heed=lambda: None)


def test_the_limit_is_what_was_stated_or_a_part_of_the_disk(tmp_path: Path) -> None:
    hardware = FakeHardware()
    assert cache_bytes(0, hardware, tmp_path) == 0
    assert cache_bytes(None, hardware, tmp_path) == 10 * GIB
    hardware.disk_error = OSError()
    assert cache_bytes(7, hardware, tmp_path) == 7
