"""Inputs of a job on a host: there and checked before its command, or it fails by their name."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.inputs import parse_wanted
from stado.core.records import Phase
from stado.core.spec import Input, Spec
from stado.core.states import Reason, State, Verdict
from stado.errors import Denied, Misconfigured, Unavailable
from stado.jobs.artifacts import publish
from stado.jobs.changes import cancel
from stado.jobs.inputs import pin_input
from stado.jobs.outputs import publish as leave
from stado.jobs.reaping import Reaper
from stado.storage.faults import FaultKind
from stado.storage.memory import MemoryStore
from stado.storage.observe import Operation
from stado.storage.port import Store
from stado.system.tasks import LiveTasks
from stado_agent.downloads import Pace, download
from stado_agent.elsewhere import Elsewhere
from stado_agent.environment import command_environment
from stado_agent.host import Host
from tests.agent.fakes import Script
from tests.agent.scene import Scene, Trouble
from tests.agent.slow_line import SlowLine
from tests.jobs.fakes import FakeClock
from tests.jobs.world import BOB

FILES = {"note": b"hi", "model/w": b"weights"}
CACHE_BYTES = 1000
MIB = 1024 * 1024


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class InputScene(Scene):
    """A job that takes along what another one has left, and whatever else a test names."""

    def __init__(self, folder: Path, *more: str) -> None:
        super().__init__(folder / "host")
        self.kept_bytes = 0
        self.other_stores: dict[str, Store | Exception] = {}
        self.seen: dict[str, bytes] = {}
        """What was in the folder of inputs when the command was started."""
        self.source = self.job
        self._leave(folder / "left")
        self.world.end(self.claim())
        publish(self.world.repo, job_id=self.source, name="digits", by="ada")
        self.queue(f"data={self.source}", *more)
        self.script(Script(seconds=5))

    def queue(self, *inputs: str) -> None:
        """A job with these inputs; the scene is about this one now."""
        pinned = [self.pinned(text) for text in inputs]
        self.job = self.world.submit("train", spec=Spec(command="", inputs=pinned))
        self.entry = self.world.entries()[0]

    def pinned(self, text: str) -> Input:
        wanted = parse_wanted(text)
        return pin_input(self.world.repo, wanted, job_named=lambda job: job, tell=lambda text: None)

    def _leave(self, folder: Path) -> None:
        for name, data in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        leave(self.world.repo, job_id=self.source, epoch=1, folder=folder, partial=False)

    def host(self) -> Host:
        host = super().host()
        return Host(
            self.processes,
            self.folder,
            host.claimant,
            host.environment,
            host.identity,
            cache_bytes=self.kept_bytes,
            open_store=self._open,
        )

    def _open(self, address: str, *, to_write: bool) -> Store:
        assert not to_write
        found = self.other_stores[address]
        if isinstance(found, Exception):
            raise found
        return found

    def bucket(self, address: str, objects: Mapping[str, bytes]) -> MemoryStore:
        store = MemoryStore(self.clock, self.world.tasks)
        for key, data in objects.items():
            store.put(key, data)
        self.other_stores[address] = store
        return store

    def look(self) -> None:
        """At what the command finds in its folder of inputs."""
        folder = self.folder.workspace(self.job, 1).inputs
        self.seen = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }

    def go(self, **options: object) -> None:
        self.clock.at(self.clock.monotonic() + 1, self.look)
        self.run(self.claim(), **options)  # type: ignore[arg-type]

    def file_key(self, path: str) -> str:
        return keys.output_file(self.source, 1, path)


def test_all_kinds_of_inputs_are_there_before_the_command(tmp_path: Path) -> None:
    """R139: an output, a part of one, an artifact, objects of other buckets, a file of the
    host."""
    local = tmp_path / "local file.csv"
    local.write_bytes(b"local")
    scene = InputScene(
        tmp_path,
        "part=artifact:digits@1/model",
        f"s3=s3://lab/deep/x.bin#sha256={digest_of(b'bucket')}",
        f"gs=gs://lab/y.bin#sha256={digest_of(b'other')}",
        f"local={local.as_uri()}#sha256={digest_of(b'local')}",
    )
    scene.bucket("s3://lab", {"deep/x.bin": b"bucket"})
    scene.bucket("gs://lab", {"y.bin": b"other"})
    scene.go()
    assert scene.final.state is State.COMPLETED
    assert scene.seen == {
        "data/note": b"hi",
        "data/model/w": b"weights",
        "part/w": b"weights",
        "s3/x.bin": b"bucket",
        "gs/y.bin": b"other",
        "local/local file.csv": b"local",
    }
    workspace = scene.folder.workspace(scene.job, 1)
    environment = command_environment({}, scene.final, workspace)
    assert environment["STADO_INPUT_DIR"] == str(workspace.inputs)
    assert not workspace.root.exists()


def test_a_second_job_of_the_host_fetches_no_file_again(tmp_path: Path) -> None:
    scene = InputScene(tmp_path)
    scene.kept_bytes = CACHE_BYTES
    scene.go()
    fetched = [one.key for one in scene.requests if one.operation is Operation.DOWNLOAD]
    assert sorted(fetched) == sorted(scene.file_key(path) for path in FILES)
    scene.requests.clear()
    scene.world.store.put(scene.file_key("note"), b"damaged since")
    scene.queue("again=artifact:digits")
    scene.go()
    assert scene.final.state is State.COMPLETED
    assert scene.seen == {"again/note": b"hi", "again/model/w": b"weights"}
    assert not [one for one in scene.requests if one.operation is Operation.DOWNLOAD]


# --- what cannot be had ---------------------------------------------------------------------


def _damage(scene: InputScene) -> None:
    scene.world.store.put(scene.file_key("note"), b"ho")


def _remove(scene: InputScene) -> None:
    scene.world.store.delete(scene.file_key("model/w"), None)


def _replace_manifest(scene: InputScene) -> None:
    key = keys.output_manifest(scene.source, 1)
    scene.world.store.put(key, scene.world.store.get(key).data + b"\n")


def _remove_manifest(scene: InputScene) -> None:
    scene.world.store.delete(keys.output_manifest(scene.source, 1), None)


@pytest.mark.parametrize(
    ("happen", "told"),
    [
        (_damage, "note (status/{job}/output/1/files/note): it has 2 bytes, SHA-256 "),
        (_remove, "model/w (status/{job}/output/1/files/model/w): it is not there"),
        (_replace_manifest, "was pinned at the submit"),
        (_remove_manifest, "it is not there any more"),
    ],
)
def test_an_input_that_is_not_what_was_pinned_fails_the_job_by_its_name(
    tmp_path: Path, happen: Callable[[InputScene], None], told: str
) -> None:
    """R139: nothing is started."""
    scene = InputScene(tmp_path)
    happen(scene)
    scene.go()
    assert (scene.final.state, scene.ending.reason) == (State.FAILED, Reason.INPUT_UNAVAILABLE)
    assert scene.ending.detail is not None
    assert scene.ending.detail.startswith("input data: ")
    assert told.format(job=scene.source) in scene.ending.detail
    assert scene.commands == []
    assert scene.ending.started_at is None


_OBJECT = f"x=s3://lab/x.bin#sha256={digest_of(b'bucket')}"


@pytest.mark.parametrize(
    ("objects", "told"),
    [
        ({}, "input x: s3://lab/x.bin: it is not there"),
        ({"x.bin": b"another"}, "s3://lab/x.bin: it has 7 bytes, SHA-256"),
        (Denied("s3://lab", "AccessDenied"), "AccessDenied"),
        (Misconfigured("s3://", "this needs boto3"), "this needs boto3"),
    ],
)
def test_an_object_elsewhere_that_cannot_be_had_fails_the_job(
    tmp_path: Path, objects: Mapping[str, bytes] | Exception, told: str
) -> None:
    scene = InputScene(tmp_path, _OBJECT)
    if isinstance(objects, Exception):
        scene.other_stores["s3://lab"] = objects
    else:
        scene.bucket("s3://lab", objects)
    scene.go()
    assert scene.ending.reason is Reason.INPUT_UNAVAILABLE
    assert told in str(scene.ending.detail)
    assert "input x: " in str(scene.ending.detail)


@pytest.mark.parametrize("kind", ["absent", "folder", "pipe"])
def test_what_is_no_file_of_the_host_is_named_and_keeps_nobody_waiting(
    tmp_path: Path, kind: str
) -> None:
    place = tmp_path / "place"
    if kind == "folder":
        place.mkdir()
    elif kind == "pipe":
        import os

        os.mkfifo(place)
    scene = InputScene(tmp_path, f"x={place.as_uri()}#sha256={digest_of(b'')}")
    scene.go()
    assert scene.ending.reason is Reason.INPUT_UNAVAILABLE
    assert "on this host" in str(scene.ending.detail)


def test_a_hostile_spec_leaves_the_folder_of_inputs_by_no_path(tmp_path: Path) -> None:
    scene = InputScene(tmp_path)
    scene.go()
    manifest = scene.world.repo.store.get(keys.output_manifest(scene.source, 1)).data
    hostile = manifest.replace(b'"model/w"', b'"../../w"')
    for source, data in {
        keys.output_manifest(scene.source, 1): hostile,
        keys.DEPLOYMENT: b"",
    }.items():
        scene.world.store.put(source, data or scene.world.store.get(source).data)
        pinned = Input(
            name="x", source=source, sha256=digest_of(scene.world.store.get(source).data)
        )
        scene.job = scene.world.submit("train", spec=Spec(command="", inputs=[pinned]))
        scene.entry = scene.world.entries()[0]
        scene.run(scene.world.claimed_of(scene.job))
        assert scene.ending.reason is Reason.INPUT_UNAVAILABLE
    assert not (scene.folder.root / "jobs" / "w").exists()


# --- stores that are away, and jobs that are not wanted any more -----------------------------


def test_a_store_that_is_away_is_waited_for_and_nothing_is_fetched_twice(tmp_path: Path) -> None:
    scene = InputScene(tmp_path)
    away = Trouble(
        FaultKind.UNAVAILABLE,
        lambda operation, key: operation is Operation.DOWNLOAD and key.endswith("/note"),
    )
    scene.clock.at(400, lambda: setattr(away, "on", False))
    seen: list[str | None] = []
    scene.clock.at(200, lambda: seen.append(scene.heartbeat().trouble))
    scene.run(scene.claim(), faults=away)
    assert scene.final.state is State.COMPLETED
    assert scene.ending.started_at is not None
    (trouble,) = seen
    assert trouble is not None
    assert "the store has refused it" in trouble
    fetched = [one.key for one in scene.requests if one.operation is Operation.DOWNLOAD]
    assert fetched.count(scene.file_key("model/w")) == 1


def test_a_cancel_ends_the_wait_for_another_bucket_at_once(tmp_path: Path) -> None:
    """A pause between two tries is half a minute by then."""
    scene = InputScene(tmp_path, _OBJECT)
    scene.other_stores["s3://lab"] = Unavailable("s3://lab", "no answer")
    phases: list[Phase] = []
    scene.clock.at(299, lambda: phases.append(scene.heartbeat().phase))
    scene.clock.at(300, lambda: cancel(scene.world.repo, scene.job, by="ada"))
    scene.run(scene.claim())
    assert scene.ending.verdict is Verdict.CANCELLED
    assert phases == [Phase.PREPARING]
    assert scene.commands == []
    assert scene.clock.monotonic() < 300 + scene.world.deployment.beat_seconds + 2


LARGE = random.Random(1).randbytes(10 * MIB)


def behind_slow_line(scene: InputScene, *, bytes_per_second: float) -> SlowLine:
    store = scene.bucket("s3://lab", {"x.bin": LARGE})
    line = SlowLine(store, scene.clock, bytes_per_second=bytes_per_second)
    scene.other_stores["s3://lab"] = line
    return line


_LARGE_OBJECT = f"x=s3://lab/x.bin#sha256={digest_of(LARGE)}"


def test_a_cancel_ends_a_long_download_within_seconds(tmp_path: Path) -> None:
    """However slowly it comes: here it would take another half a minute."""
    scene = InputScene(tmp_path, _LARGE_OBJECT)
    line = behind_slow_line(scene, bytes_per_second=2e5)
    scene.clock.at(20, lambda: cancel(scene.world.repo, scene.job, by="ada"))
    scene.run(scene.claim())
    assert scene.ending.verdict is Verdict.CANCELLED
    assert scene.clock.monotonic() < 20 + scene.world.deployment.beat_seconds + 5
    assert len(line.ranges) > 1


@pytest.mark.parametrize("bytes_per_second", [2e5, 1e9])
def test_a_large_object_comes_whole_and_in_the_fewer_ranges_the_faster(
    tmp_path: Path, bytes_per_second: float
) -> None:
    scene = InputScene(tmp_path, _LARGE_OBJECT)
    line = behind_slow_line(scene, bytes_per_second=bytes_per_second)
    scene.clock.at(100, scene.look)
    scene.script(Script(seconds=500))
    scene.run(scene.claim())
    assert scene.final.state is State.COMPLETED
    assert scene.seen["x/x.bin"] == LARGE
    assert sum(length for _, length in line.ranges) == len(LARGE)
    assert len(line.ranges) == (40 if bytes_per_second < 1e6 else 6)


def test_what_came_quickly_is_asked_for_at_once_the_next_time(tmp_path: Path) -> None:
    clock = FakeClock()
    store = MemoryStore(clock, LiveTasks())
    pace = Pace(clock)
    at_once = []
    for data in (LARGE[:MIB], LARGE, LARGE[:MIB]):
        store.put("x", data)
        line = SlowLine(store, clock, bytes_per_second=1e9)
        download(line, "x", tmp_path / "x", size=len(data), heed=lambda: None, pace=pace)
        assert (tmp_path / "x").read_bytes() == data
        at_once.append(bool(line.downloads))
    assert at_once == [False, False, True]


def test_a_line_that_becomes_slow_keeps_nobody_waiting(tmp_path: Path) -> None:
    """However quick it was before: what is asked for at once comes within ten seconds."""
    clock = FakeClock()
    store = MemoryStore(clock, LiveTasks())
    pace = Pace(clock)
    looks: list[float] = []

    def look() -> None:
        looks.append(clock.monotonic())

    for size, bytes_per_second in ((8 * MIB, 1e9), (32 * MIB, 1e9), (32 * MIB, 1e6)):
        store.put("x", bytes(size))
        line = SlowLine(store, clock, bytes_per_second=bytes_per_second)
        download(line, "x", tmp_path / "x", size=size, heed=look, pace=pace)
        look()
    assert max(late - early for early, late in pairwise(looks)) < 10


@pytest.mark.parametrize("size_is_said", [False, True])
def test_small_objects_teach_nothing_of_large_ones(tmp_path: Path, size_is_said: bool) -> None:
    """Also where they are smaller than was said."""
    clock = FakeClock()
    store = MemoryStore(clock, LiveTasks())
    store.put("x", b"x" * 1000)
    pace = Pace(clock)
    begun_with = pace.at_once_bytes
    for _ in range(9):
        size = pace.at_once_bytes if size_is_said else None
        download(store, "x", tmp_path / "x", size=size, heed=lambda: None, pace=pace)
    assert pace.at_once_bytes == begun_with


def test_a_holder_that_dies_while_it_fetches_costs_no_start(tmp_path: Path) -> None:
    scene = InputScene(tmp_path, _OBJECT)
    scene.other_stores["s3://lab"] = Unavailable("s3://lab", "no answer")

    def kill() -> None:
        scene.processes.forked[0].kill()

    scene.clock.at(50, kill)
    scene.run(scene.claim())
    scene.bucket("s3://lab", {"x.bin": b"bucket"})
    scene.world.lose(Reaper(scene.world.repo, by="coordinator"))
    scene.entry = scene.world.entries()[0]
    scene.run(scene.claim())
    assert scene.final.state is State.COMPLETED
    assert (scene.final.epoch, scene.final.starts) == (2, 1)


def test_an_epoch_that_others_have_is_left_though_its_inputs_have_not_come(tmp_path: Path) -> None:
    scene = InputScene(tmp_path, _OBJECT)
    scene.other_stores["s3://lab"] = Unavailable("s3://lab", "no answer")
    scene.clock.at(50, scene.give_back)
    scene.clock.at(51, lambda: scene.world.start(BOB))
    scene.run(scene.claim())
    assert scene.commands == []
    assert scene.world.states(scene.job) == {State.RUNNING}


def test_each_bucket_is_opened_once(tmp_path: Path) -> None:
    opened: list[str] = []
    scene = InputScene(tmp_path)
    lab = scene.bucket("s3://lab", {"a": b"1", "b": b"22"})

    def open_store(address: str, *, to_write: bool) -> Store:
        opened.append(address)
        return lab

    from stado.core.inputs import parse_place

    elsewhere = Elsewhere(scene.clock, open_store)
    assert [elsewhere.size(parse_place(f"s3://lab/{name}")) for name in "ab"] == [1, 2]
    elsewhere.close()
    assert opened == ["s3://lab"]
