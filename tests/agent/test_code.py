"""The code that a job takes along, on its host: fetched once, verified, and never half there."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import Phase
from stado.core.spec import GitRepo, Snapshot, Spec
from stado.core.states import Reason, Verdict
from stado.jobs import snapshots
from stado.jobs.archives import pack
from stado.jobs.changes import cancel
from stado.storage.faults import FaultKind
from stado.storage.observe import Operation
from stado.system.clock import LiveClock
from stado_agent import snapshot_fetch
from stado_agent.git_checkout import (
    CheckoutFailed,
    GitAnswer,
    GitCheckout,
    folder_within,
    git_environment,
)
from stado_agent.host_cache import HostCache
from stado_agent.setup_output import SetupOutput
from tests.agent.fakes import Script
from tests.agent.scene import Scene, Trouble
from tests.agent.slow_line import SlowLine

_FAILS_TO_BE_READ = "/proc/self/mem"
"""Of which the first bytes cannot be read, as on a disk with bad sectors."""


# --- snapshots --------------------------------------------------------------------------------


class WithSnapshot(Scene):
    """Whose job takes a folder along. What it holds when the command starts is noted."""

    def __init__(self, folder: Path, files: Mapping[str, bytes]) -> None:
        tree = folder / "tree"
        tree.mkdir(parents=True)
        for name, data in files.items():
            (tree / name).write_bytes(data)
        archive = folder / "archive"
        packed = pack(tree, [name.encode() for name in files], archive)
        self.snapshot = Snapshot(digest=packed.digest, files=packed.files, bytes=packed.bytes)
        self.archive = archive
        super().__init__(folder / "host")
        self.world.end(self.claim())
        snapshots.ensure(self.world.repo, self.snapshot, archive)
        self.submit()
        self.script(Script(seconds=5))

    def submit(self) -> None:
        """A job with the snapshot; the scene is about this one now."""
        self.job = self.world.submit("train", spec=Spec(command="", snapshot=self.snapshot))
        self.entry = self.world.entries()[0]

    @property
    def downloads(self) -> int:
        return sum(request.operation is Operation.DOWNLOAD for request in self.requests)

    @property
    def kept(self) -> Path:
        return self.folder.snapshots / self.snapshot.digest / "tree.tar.gz"


@pytest.fixture
def scene(tmp_path: Path) -> WithSnapshot:
    return WithSnapshot(tmp_path, {"train.py": b"print(1)\n", "data": b"\0" * 1000})


def run_another(scene: WithSnapshot) -> None:
    """One more job with the same snapshot, on the same host."""
    scene.submit()
    scene.run(scene.claim())


def folder_at_start(scene: Scene) -> dict[str, bytes]:
    """Runs the job; what its working folder held when the command was started."""
    seen: dict[str, bytes] = {}
    start = scene.processes.start

    def noting(command: object) -> object:
        work = scene.folder.workspace(scene.job, scene.entry.epoch).work
        seen.update({path.name: path.read_bytes() for path in work.iterdir()})
        return start(command)  # type: ignore[arg-type]

    scene.processes.start = noting  # type: ignore[assignment, method-assign]
    scene.run(scene.claim())
    return seen


def test_a_command_finds_the_files_of_its_snapshot(scene: WithSnapshot) -> None:
    """R24: and the log says so, before what the command prints; the bytes are accounted for."""
    assert folder_at_start(scene) == {"train.py": b"print(1)\n", "data": b"\0" * 1000}
    assert scene.ending.verdict is Verdict.COMPLETED
    line = f"[stado] {snapshots.text_of(scene.snapshot)}\n".encode()
    assert scene.log(1) == line + b"begun\nended\n"


def test_jobs_of_one_host_fetch_a_snapshot_once(scene: WithSnapshot) -> None:
    scene.run(scene.claim())
    run_another(scene)
    assert scene.ending.verdict is Verdict.COMPLETED
    assert scene.downloads == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-20]),
        lambda path: path.write_bytes(b"nonsense"),
        lambda path: path.unlink(),
        lambda path: (path.unlink(), path.symlink_to(_FAILS_TO_BE_READ)),
    ],
    ids=["cut", "nonsense", "gone", "bad sectors"],
)
def test_what_a_host_kept_is_fetched_anew_when_it_is_damaged(
    scene: WithSnapshot, damage: Callable[[Path], object]
) -> None:
    scene.run(scene.claim())
    damage(scene.kept)
    run_another(scene)
    assert scene.ending.verdict is Verdict.COMPLETED
    assert scene.downloads == 2


def test_a_kept_archive_that_can_neither_be_linked_nor_read_is_fetched_anew(
    scene: WithSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the cache is another file system, with bad sectors."""
    scene.run(scene.claim())
    scene.kept.unlink()
    scene.kept.symlink_to(_FAILS_TO_BE_READ)
    monkeypatch.setattr(os, "link", _refuse_links)
    run_another(scene)
    assert scene.ending.verdict is Verdict.COMPLETED
    assert scene.downloads == 2


def _refuse_links(*_: object, **__: object) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def test_a_disk_without_room_for_the_tree_is_no_damage_of_the_archive(
    scene: WithSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another host may have room."""
    scene.run(scene.claim())
    kept = scene.kept.stat()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(snapshot_fetch, "unpack", full)
    run_another(scene)
    (state,) = scene.world.states(scene.job)
    assert not state.at_rest
    assert scene.downloads == 1
    assert os.path.samestat(scene.kept.stat(), kept)


def test_a_download_that_was_cut_off_by_death_is_begun_anew(scene: WithSnapshot) -> None:
    partial = scene.kept.with_name("tree.tar.gz.partial")
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"half")
    scene.run(scene.claim())
    assert scene.ending.verdict is Verdict.COMPLETED
    assert not partial.exists()


def test_a_cancel_ends_a_long_download_of_a_snapshot_within_seconds(tmp_path: Path) -> None:
    """Here it would take another half a minute, or what another try takes."""
    scene = WithSnapshot(tmp_path, {"data": random.Random(1).randbytes(4_000_000)})
    line = SlowLine(scene.world.store, scene.clock, bytes_per_second=1e5)
    scene.world.store = line  # type: ignore[assignment]
    scene.clock.at(12, lambda: cancel(scene.world.repo, scene.job, by="ada"))
    scene.run(scene.claim())
    assert (scene.ending.reason, scene.final.starts) == (Reason.CANCELLED, 0)
    assert scene.clock.monotonic() < 12 + scene.world.deployment.beat_seconds + 5
    assert len(line.ranges) > 1


def test_a_cancel_ends_the_wait_for_a_snapshot_that_the_store_does_not_give(
    scene: WithSnapshot,
) -> None:
    """A pause between two tries is half a minute by then."""
    away = Trouble(FaultKind.UNAVAILABLE, lambda operation, key: key.startswith("snapshots/"))
    scene.clock.at(310, lambda: cancel(scene.world.repo, scene.job, by="ada"))
    scene.run(scene.claim(), faults=away)
    assert scene.ending.reason is Reason.CANCELLED
    assert scene.clock.monotonic() < 310 + 10


def test_a_job_whose_snapshot_is_gone_fails_for_that(scene: WithSnapshot) -> None:
    """R24: it is no start, and the log says why."""
    snapshots.drop_reference(scene.world.repo, scene.snapshot.digest, "run-2")
    snapshots.remove_unnamed(scene.world.repo, scene.snapshot.digest)
    scene.run(scene.claim())
    assert (scene.ending.reason, scene.final.starts) == (Reason.INPUT_UNAVAILABLE, 0)
    assert "Submit it anew from the folder" in (scene.ending.detail or "")
    assert scene.log(1).startswith(b"[stado] its snapshot cannot be had: ")
    assert scene.commands == []


def test_an_archive_that_is_another_tree_is_not_run(scene: WithSnapshot, tmp_path: Path) -> None:
    """Although its record says that it is right: whoever wrote both is not believed."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.py").write_bytes(b"print(2)\n")
    pack(other, [b"train.py"], tmp_path / "archive")
    scene.world.store.delete(keys.snapshot(scene.snapshot.digest), None)
    snapshots.ensure(scene.world.repo, scene.snapshot, tmp_path / "archive")
    scene.run(scene.claim())
    assert scene.ending.reason is Reason.INPUT_UNAVAILABLE
    assert "it holds another tree" in (scene.ending.detail or "")
    assert scene.commands == []


# --- what a host keeps --------------------------------------------------------------------------


def keep(cache: HostCache, name: str, size: int) -> None:
    with cache.entry(name, lambda: None) as folder:
        (folder / "f").write_bytes(b"x" * size)
    stamp = time.time_ns() + keep_count(cache)
    os.utime(cache_folder(cache) / f"{name}.lock", ns=(stamp, stamp))


def cache_folder(cache: HostCache) -> Path:
    return cache._folder


def keep_count(cache: HostCache) -> int:
    return len(list(cache_folder(cache).iterdir()))


def test_what_was_not_used_for_longest_makes_room(tmp_path: Path) -> None:
    cache = HostCache(tmp_path / "cache", LiveClock(), bytes_max=250)
    for name in ("a", "b", "a", "c", "d"):
        keep(cache, name, 100)
    assert sorted(path.name for path in (tmp_path / "cache").glob("?")) == ["c", "d"]


def test_what_somebody_uses_is_not_removed(tmp_path: Path) -> None:
    cache = HostCache(tmp_path / "cache", LiveClock(), bytes_max=1)
    with cache.entry("used", lambda: None) as folder:
        (folder / "f").write_bytes(b"xxx")
        keep(cache, "other", 100)
        assert (folder / "f").exists()


def test_one_at_a_time_has_an_entry_and_who_waits_can_be_told_to_stop(tmp_path: Path) -> None:
    cache = HostCache(tmp_path / "cache", LiveClock())

    def stop() -> None:
        raise KeyError

    with cache.entry("a", lambda: None), pytest.raises(KeyError), cache.entry("a", stop):
        raise AssertionError
    with cache.entry("a", stop):
        pass


# --- repositories -------------------------------------------------------------------------------


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=ada", "-c", "user.email=a@b", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


class Lab:
    """A repository with some commits, and a host that checks them out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.origin = folder / "origin"
        self.origin.mkdir()
        git(self.origin, "init", "-q", "-b", "main")
        self.commits = [self.commit(f"{number}\n") for number in range(3)]
        self.cache = HostCache(folder / "cache", LiveClock())
        self.calls: list[Sequence[str]] = []
        self.said: list[bytes] = []
        self.before: Callable[[Sequence[str]], object] = lambda _: None
        self._count = 0

    def commit(self, text: str) -> str:
        (self.origin / "file").write_text(text)
        (self.origin / "sub").mkdir(exist_ok=True)
        (self.origin / "sub" / "other").write_text(text)
        git(self.origin, "add", ".")
        git(self.origin, "commit", "-q", "-m", text)
        return git(self.origin, "rev-parse", "HEAD")

    def repo(self, commit: str) -> GitRepo:
        return GitRepo(url=str(self.origin), commit=commit)

    def run(self, argv: Sequence[str], folder: Path) -> GitAnswer:
        """As a supervisor does."""
        self.before(argv)
        self.calls.append(argv)
        done = subprocess.run(
            argv, cwd=folder, env=git_environment(os.environ), capture_output=True, check=False
        )
        output = SetupOutput(lambda data: self.said.append(bytes(data)))
        output(memoryview(done.stdout + done.stderr))
        output.flush()
        return GitAnswer(done.returncode, output.lines)

    def check_out(self, repo: GitRepo) -> Path:
        self._count += 1
        work = self.folder / f"work-{threading.get_ident()}-{self._count}"
        work.mkdir()
        GitCheckout(self.cache, self.run, lambda: None).check_out(repo, work)
        return work

    @property
    def fetches(self) -> int:
        """From the origin."""
        return sum("fetch" in argv and str(self.origin) in argv for argv in self.calls)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_a_commit_is_checked_out_exactly(lab: Lab) -> None:
    """R138: whatever the branch holds by now, and each commit is fetched once."""
    for number in (1, 0, 2, 1):
        work = lab.check_out(lab.repo(lab.commits[number]))
        assert (work / "file").read_text() == f"{number}\n"
        assert git(work, "rev-parse", "HEAD") == lab.commits[number]
        assert git(work, "status", "--porcelain") == ""
    assert git(work, "remote", "get-url", "origin") == str(lab.origin)
    assert lab.fetches == 3


def test_a_disk_without_room_for_the_clone_is_no_damage_of_the_repository(lab: Lab) -> None:
    repo = lab.repo(lab.commits[0])
    lab.check_out(repo)
    run = lab.run

    def without_room(argv: Sequence[str], folder: Path) -> GitAnswer:
        if "fetch" in argv and str(lab.origin) not in argv:
            return GitAnswer(128, ["fatal: write error: No space left on device"])
        return run(argv, folder)

    lab.run = without_room  # type: ignore[method-assign]
    with pytest.raises(CheckoutFailed, match="No space left on device"):
        lab.check_out(repo)
    assert lab.fetches == 1


@pytest.mark.parametrize("url", ["path", "file"])
def test_paths_of_the_host_and_file_urls_are_fetched_from(lab: Lab, url: str) -> None:
    repo = lab.repo(lab.commits[0])
    if url == "file":
        repo = repo.evolve(url=lab.origin.as_uri())
    assert (lab.check_out(repo) / "file").read_text() == "0\n"


def test_a_repository_with_longer_digests_is_checked_out(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    origin.mkdir()
    git(origin, "init", "-q", "--object-format=sha256")
    (origin / "file").write_text("x")
    git(origin, "add", ".")
    git(origin, "commit", "-q", "-m", "x")
    commit = git(origin, "rev-parse", "HEAD")
    assert len(commit) == 64
    lab = Lab.__new__(Lab)
    lab.folder, lab.origin, lab.cache = tmp_path, origin, HostCache(tmp_path / "c", LiveClock())
    lab.calls, lab.said, lab.before, lab._count = [], [], lambda _: None, 0
    assert (lab.check_out(lab.repo(commit)) / "file").read_text() == "x"


def test_a_server_that_gives_tips_only_is_asked_for_all(lab: Lab) -> None:
    """Protocol 0, as over ssh without `AcceptEnv GIT_PROTOCOL`."""
    first = lab.run

    def by_old_protocol(argv: Sequence[str], folder: Path) -> GitAnswer:
        return first([argv[0], "-c", "protocol.version=0", *argv[1:]], folder)

    lab.run = by_old_protocol  # type: ignore[method-assign]
    for number in (0, 1):
        work = lab.check_out(lab.repo(lab.commits[number]))
        assert (work / "file").read_text() == f"{number}\n"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"commit": "0" * 40}, "not our ref"),
        ({"url": "/nowhere/lab.git"}, "does not appear to be a git repository"),
        ({"url": "file:///nowhere"}, "does not appear to be a git repository"),
        ({"url": "https://localhost:1/lab.git"}, "unable to access 'https://localhost:1/lab.git/'"),
        ({"url": "ssh://localhost:1/lab.git"}, "localhost port 1"),
        ({"url": "ext::sh -c touch% x"}, "helper program"),
        ({"url": "-u./x"}, "option"),
        ({"commit": "main"}, "branch"),
    ],
)
def test_what_cannot_be_had_is_told_by_what_git_says(
    lab: Lab, change: dict[str, str], why: str
) -> None:
    """R138: an unusable address is refused here as well, for a bucket can hold any."""
    with pytest.raises(CheckoutFailed, match=why):
        lab.check_out(lab.repo(lab.commits[0]).evolve(**change))
    assert not list((lab.folder / "cache").glob("*/*"))


def test_a_folder_of_the_commit_is_where_the_command_runs(lab: Lab) -> None:
    (lab.origin / "out").symlink_to("..")
    work = lab.check_out(lab.repo(lab.commit("x")))
    assert folder_within(work, "sub") == work / "sub"
    for folder in ("none", "file", "out"):
        with pytest.raises(CheckoutFailed, match="no folder"):
            folder_within(work, folder)


def test_no_hook_and_no_program_of_the_users_settings_is_run(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = lab.folder / "home"
    hooks = home / "hooks"
    hooks.mkdir(parents=True)
    marker = home / "marker"
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {marker}\n")
        (hooks / name).chmod(0o755)
    (home / ".gitconfig").write_text(
        f"[core]\n hooksPath = {hooks}\n askPass = touch {marker}\n"
        f"[init]\n templateDir = {home}\n[submodule]\n recurse = true\n"
        f'[url "ext::touch {marker} "]\n insteadOf = https://\n'
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    lab.check_out(lab.repo(lab.commits[0]))
    with pytest.raises(CheckoutFailed, match="transport 'ext' not allowed"):
        lab.check_out(lab.repo(lab.commits[0]).evolve(url="https://localhost/x"))
    assert not marker.exists()


def test_passwords_that_a_host_adds_to_addresses_are_not_logged() -> None:
    said: list[bytes] = []
    output = SetupOutput(lambda data: said.append(bytes(data)))
    for piece in (b"fatal: unable to access 'https://ada:sec", b"ret@host/x': no\rmore", b"\nend"):
        output(memoryview(piece))
    output.flush()
    assert b"".join(said) == b"fatal: unable to access 'https://host/x': no\rmore\nend\n"
    assert output.lines == ["fatal: unable to access 'https://host/x': no", "more", "end"]


# --- killed on the way, and two at once -----------------------------------------------------------


def test_a_host_recovers_from_a_checkout_that_was_killed_at_any_call(lab: Lab) -> None:
    """What is left is what a killed supervisor leaves: the calls so far, and git's own locks."""

    lab.check_out(lab.repo(lab.commits[0]))
    for at in range(10):
        commit, end = lab.commit(f"new {at}"), len(lab.calls) + at

        def die(_: Sequence[str], end: int = end) -> None:
            if len(lab.calls) == end:
                raise Killed

        lab.before = die
        try:
            lab.check_out(lab.repo(commit))
        except Killed:
            leave_locks(lab)
        else:
            assert at > 3
            return
        lab.before = lambda _: None
        assert (lab.check_out(lab.repo(commit)) / "file").read_text() == f"new {at}"
    raise AssertionError("it never came to its end")


class Killed(BaseException):
    """The supervisor is gone."""


def leave_locks(lab: Lab) -> None:
    (kept,) = (lab.folder / "cache").glob("*/repo.git")
    for name in ("shallow.lock", "config.lock", "HEAD.lock", "refs/stado/x.lock"):
        (kept / name).parent.mkdir(exist_ok=True, parents=True)
        (kept / name).touch()
    (kept / "objects" / "pack" / "tmp_pack_x").write_bytes(b"half")


def _packs(kept: Path) -> list[Path]:
    return list(kept.glob("objects/pack/*.pack"))


def _cut_packs(kept: Path) -> None:
    for pack_file in _packs(kept):
        pack_file.chmod(0o600)
        os.truncate(pack_file, pack_file.stat().st_size // 2)


def _lose_packs(kept: Path) -> None:
    for pack_file in _packs(kept):
        pack_file.unlink()


@pytest.mark.parametrize(
    "damage",
    [
        _cut_packs,
        _lose_packs,
        lambda kept: (kept / "HEAD").unlink(),
        lambda kept: (kept / "config").write_text("[core"),
        lambda kept: next(kept.glob("refs/stado/*")).write_text(""),
        lambda kept: shutil.rmtree(kept / "objects"),
    ],
    ids=["cut", "lost", "head", "config", "reference", "half removed"],
)
def test_a_damaged_repository_of_the_host_is_fetched_anew(
    lab: Lab, damage: Callable[[Path], object]
) -> None:
    """R138: once, and by whoever comes first."""
    lab.check_out(lab.repo(lab.commits[0]))
    (kept,) = (lab.folder / "cache").glob("*/repo.git")
    damage(kept)
    for _ in range(2):
        work = lab.check_out(lab.repo(lab.commits[0]))
        assert (work / "file").read_text() == "0\n"
        assert (git(work, "status", "--porcelain"), git(work, "fsck")) == ("", "")
    assert lab.fetches <= 3
    assert [path.name for path in kept.parent.iterdir()] == ["repo.git"]


def test_what_can_be_had_neither_here_nor_there_fails_with_gits_words(lab: Lab) -> None:
    lab.check_out(lab.repo(lab.commits[0]))
    (kept,) = (lab.folder / "cache").glob("*/repo.git")
    _cut_packs(kept)
    lab.origin.rename(lab.folder / "moved")
    with pytest.raises(CheckoutFailed, match="does not appear to be a git repository"):
        lab.check_out(lab.repo(lab.commits[0]))


def test_a_kill_while_something_is_dropped_leaves_no_half_of_it_under_its_name(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of a repository nor of what has to make room; and it goes another time."""
    lab.check_out(lab.repo(lab.commits[0]))
    (kept,) = (lab.folder / "cache").glob("*/repo.git")
    _cut_packs(kept)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", _dies_half_way)
        with pytest.raises(Killed):
            lab.check_out(lab.repo(lab.commits[0]))
        assert not kept.exists() or not _is_half(kept)
        small = HostCache(lab.folder / "cache", LiveClock(), bytes_max=1)
        with pytest.raises(Killed):
            keep(small, "other", 100)
        assert not kept.parent.exists()
    assert (lab.check_out(lab.repo(lab.commits[0])) / "file").read_text() == "0\n"
    keep(small, "another", 100)
    left = sorted(path.name for path in (lab.folder / "cache").iterdir())
    assert left == ["another", "another.lock"]


def _dies_half_way(path: Path, **_: object) -> None:
    if path.exists():
        for found in path.rglob("HEAD"):
            found.unlink()
        raise Killed


def _is_half(kept: Path) -> bool:
    return not (kept / "HEAD").exists()


def test_a_kill_in_the_middle_of_a_clone_leaves_nothing_broken(lab: Lab) -> None:
    """R138: git itself is killed while it fetches some megabytes, at several moments."""
    (lab.origin / "big").write_bytes(os.urandom(8_000_000))
    commit = lab.commit("big")
    moments = iter((0.0, 0.02, 0.05, 0.1))
    run = lab.run

    def killing(argv: Sequence[str], folder: Path) -> GitAnswer:
        if str(lab.origin) not in argv or "fetch" not in argv:
            return run(argv, folder)
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env=git_environment(os.environ),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(next(moments))
        os.killpg(process.pid, signal.SIGKILL)
        return GitAnswer(process.wait(), [])

    lab.run = killing  # type: ignore[method-assign]
    for _ in range(4):
        try:
            lab.check_out(lab.repo(commit))
        except CheckoutFailed:
            continue
        except StopIteration:
            break
    lab.run = run  # type: ignore[method-assign]
    work = lab.check_out(lab.repo(commit))
    assert git(work, "rev-parse", "HEAD") == commit
    assert git(work, "status", "--porcelain") == ""
    assert git(work, "fsck") == ""


def test_two_at_once_share_what_the_host_has(lab: Lab) -> None:
    """R138"""
    results: list[str] = []

    def check_out(number: int) -> None:
        for commit in (lab.commits[number], lab.commits[2]):
            work = lab.check_out(lab.repo(commit))
            results.append((git(work, "rev-parse", "HEAD") == commit and commit) or "wrong")

    threads = [threading.Thread(target=check_out, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(results) == sorted([*lab.commits[:2], *[lab.commits[2]] * 2])
    assert lab.fetches == 3


# --- as a process of the job ----------------------------------------------------------------------

COMMIT = hashlib.sha1(b"x", usedforsecurity=False).hexdigest()


@pytest.fixture
def checking_out(tmp_path: Path) -> Scene:
    """A job whose checkout is made of scripted processes: each call of git takes ten seconds."""
    spec = Spec(command="", repo=GitRepo(url="/srv/lab.git", commit=COMMIT))
    scene = Scene(tmp_path, spec)
    scene.script(Script(seconds=5))
    calls = scene.processes.start

    def start(command: object) -> object:
        argv = command.argv  # type: ignore[attr-defined]
        if argv[0] == "git":
            scene.processes.scripts[argv[-1]] = Script(seconds=10, log=b"fetching\n", last_log=b"")
        return calls(command)  # type: ignore[arg-type]

    scene.processes.start = start  # type: ignore[assignment, method-assign]
    return scene


def test_a_checkout_is_no_start_and_its_output_is_in_the_log(checking_out: Scene) -> None:
    """R138: the job says that it prepares until then."""
    scene = checking_out
    phases = []
    for second in (5, 25, 45):
        scene.clock.at(second, lambda: phases.append(scene.heartbeat()))
    scene.run(scene.claim())
    assert {(beat.phase, beat.started_at) for beat in phases} == {(Phase.PREPARING, None)}
    assert (scene.ending.verdict, scene.final.starts) == (Verdict.COMPLETED, 1)
    log = scene.log(1)
    assert log.startswith(b"[stado] checking out /srv/lab.git at " + COMMIT[:12].encode())
    assert log.endswith(b"fetching\nbegun\nended\n")
    assert scene.commands[-1] == "train"


def test_a_cancel_ends_a_checkout(checking_out: Scene) -> None:
    scene = checking_out
    scene.clock.at(12, lambda: cancel(scene.world.repo, scene.job, by="ada"))
    scene.run(scene.claim())
    assert (scene.ending.reason, scene.final.starts) == (Reason.CANCELLED, 0)
    assert "being prepared" in (scene.ending.detail or "")
    assert "train" not in scene.commands
    assert not any(run.process.living() for run in scene.processes.executions)


def test_a_worker_that_is_fenced_while_it_checks_out_adopts_nothing(checking_out: Scene) -> None:
    """A checkout is no command that could go on under another epoch: the next one starts anew,
    and counts its start."""
    scene = checking_out
    scene.clock.at(12, scene.seal)
    scene.run(scene.claim())
    assert "train" not in scene.commands
    assert not any(run.process.living() for run in scene.processes.executions)
    scene.entry = scene.world.entries()[0]
    scene.run(scene.claim())
    assert scene.ending.verdict is Verdict.COMPLETED
    assert (scene.final.starts, scene.final.epoch) == (1, 2)


def test_a_checkout_that_fails_ends_the_job_with_gits_words(checking_out: Scene) -> None:
    scene = checking_out
    start = scene.processes.start

    def failing(command: object) -> object:
        started = start(command)  # type: ignore[arg-type]
        if "fetch" in command.argv:  # type: ignore[attr-defined]
            started._script = Script(  # type: ignore[attr-defined]
                exit_code=128, last_log=b"fatal: no such thing\nPlease look\n"
            )
        return started

    scene.processes.start = failing  # type: ignore[assignment, method-assign]
    scene.run(scene.claim())
    assert (scene.ending.reason, scene.final.starts) == (Reason.INPUT_UNAVAILABLE, 0)
    assert scene.ending.detail == "its repository cannot be had: fatal: no such thing"
    assert b"Please look\n[stado] its repository cannot be had" in scene.log(1)
