"""What a job leaves, on its way up and down: beside what the SDK alone reaches on the same server,
and with very many files and a very large one: memory, and whether the job beats meanwhile.

`python -m tests.bench.transfers [--files N] [--gigabytes N] [--bucket]` is the second part alone.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import boto3.session
import psutil
from botocore.config import Config

from stado.core.states import State
from stado.jobs.downloads import Wanted, download
from stado.jobs.outputs import SMALL_TRANSFERS, OutputPublisher, find_manifest
from stado.jobs.status import states_of
from stado.settings import Settings
from stado_agent.workspace import HostFolder
from tests.bench.deployment import Bench, bench_deployment
from tests.bench.figures import Figure, show
from tests.servers import Server, run_seaweedfs

_ROUNDS = 5
_LEASE_SECONDS = 8.0
_MB = 1_000_000
_MIB = 1 << 20
_SMALL_BYTES = 2000
_RATIO_MIN = 0.8
_MEMORY_MAX_MB = 300


def measure(folder: Path, server: Server, *, large_mib: int, small_files: int) -> list[Figure]:
    """The SDK as it comes (`upload_file`, `download_file`), with as many threads for small files
    as we have. Each pair is measured turn by turn, for the machine has other work."""
    settings = Settings("s3://bench/transfers", server.endpoint)
    with bench_deployment(folder, settings) as bench:
        return _beside_the_sdk(bench, _sdk(server), large_mib=large_mib, small_files=small_files)


def _beside_the_sdk(bench: Bench, client: Any, *, large_mib: int, small_files: int) -> list[Figure]:
    folder, store = bench.folder, bench.repo.store
    large = _random_file(folder / "large", large_mib * _MIB)
    small = [_random_file(folder / f"small-{n}", _SMALL_BYTES) for n in range(small_files)]
    store.upload("warm", small[0])
    client.upload_file(str(small[0]), "bench", "warm")

    def fetch_by_sdk(path: Path) -> None:
        client.download_file("bench", f"s/{path.name}", into(path))

    def at_once(work: Callable[[Path], object]) -> None:
        with ThreadPoolExecutor(SMALL_TRANSFERS) as pool:
            list(pool.map(work, small))

    def into(path: Path) -> str:
        return str(folder / f"came-{path.name}")

    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        f"upload of {large_mib} MiB": (
            lambda: client.upload_file(str(large), "bench", "sdk/large"),
            lambda: store.upload("large", large),
        ),
        f"download of {large_mib} MiB": (
            lambda: client.download_file("bench", "sdk/large", into(large)),
            lambda: store.download("large", Path(into(large))),
        ),
        f"`stado results` of {large_mib} MiB": (
            lambda: client.download_file("bench", "sdk/large", into(large)),
            _results_of(bench, large),
        ),
        f"upload of {small_files} small files": (
            lambda: at_once(lambda path: client.upload_file(str(path), "bench", f"s/{path.name}")),
            lambda: at_once(lambda path: store.upload(path.name, path)),
        ),
        f"download of {small_files} small files": (
            lambda: at_once(
                lambda path: client.download_file("bench", f"s/{path.name}", into(path))
            ),
            lambda: at_once(lambda path: store.download(path.name, Path(into(path)))),
        ),
    }
    return [
        Figure(f"{what}, of the SDK's speed", _ratio(*pair), "x", _RATIO_MIN, at_least=True)
        for what, pair in pairs.items()
    ]


def _results_of(bench: Bench, large: Path) -> Callable[[], object]:
    """Downloads a job's one file into a new folder each time, as `stado results` does."""
    job_id, left = "a" * 16, bench.folder / "left"
    left.mkdir()
    (left / large.name).hardlink_to(large)
    publisher = OutputPublisher(bench.repo, job_id=job_id, epoch=1, folder=left)
    publisher.publish(partial=False)
    numbers = itertools.count(1)

    def fetch() -> None:
        folder = bench.folder / f"results-{next(numbers)}"
        wanted = Wanted(only=[large.name])
        download(bench.repo, job_id=job_id, epoch=1, folder=folder, wanted=wanted)
        shutil.rmtree(folder)

    return fetch


def _ratio(theirs: Callable[[], object], ours: Callable[[], object]) -> float:
    return statistics.median(_seconds(theirs) / _seconds(ours) for _ in range(_ROUNDS))


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _sdk(server: Server) -> Any:
    config = Config(
        s3={"addressing_style": "path"},
        max_pool_connections=64,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return boto3.session.Session().client("s3", endpoint_url=server.endpoint, config=config)


def _random_file(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        for begin in range(0, size, _MIB):
            file.write(os.urandom(min(_MIB, size - begin)))
    return path


# --- very many, very large ----------------------------------------------------------------


def measure_masses(
    folder: Path,
    settings: Settings | None = None,
    environment: dict[str, str] | None = None,
    *,
    files: int,
    gigabytes: float,
) -> list[Figure]:
    """One job on an agent leaves so many files and one so large; then `stado results`."""
    with bench_deployment(
        folder / "masses", settings, environment, lease_seconds=_LEASE_SECONDS
    ) as bench:
        go = bench.folder / "go"
        made = f"{sys.executable} -c '{_MAKE}' {files} {round(gigabytes * 1e9)}"
        with bench.agent("--cpu", "1", "--memory-gb", "8"):
            (job_id,) = bench.submit([f"{made}; while [ ! -e {go} ]; do sleep 0.1; done"]).job_ids
            watch = _Watch(bench, job_id)
            before = watch.wait_for_supervisor(bench.folder / "host")
            _wait(lambda: (bench.folder / "host").rglob("made"))
            began = time.perf_counter()
            go.touch()
            longest_gap, peak = watch.to_the_end()
            uploaded = time.perf_counter() - began
        manifest = find_manifest(bench.repo, job_id, 1)
        assert manifest is not None
        assert len(manifest.files) == files + 2
        downloaded, memory = _download(bench, job_id)
    what = f"{files:,} files and one of {gigabytes:g} GB"
    return [
        Figure(f"upload of {what}", uploaded, "s"),
        Figure("  memory of the supervisor, growth", (peak - before) / _MB, "MB", _MEMORY_MAX_MB),
        Figure("  longest time between two beats", longest_gap, "s", _LEASE_SECONDS / 2),
        Figure(f"download of {what}", downloaded, "s"),
        Figure("  memory of the command, peak", memory / _MB, "MB", _MEMORY_MAX_MB),
    ]


_MAKE = """
import os, sys
files, size = map(int, sys.argv[1:])
out = os.environ["STADO_OUTPUT_DIR"]
for number in range(files):
    folder = f"{out}/{number // 1000:03d}"
    if number % 1000 == 0:
        os.mkdir(folder)
    with open(f"{folder}/{number:06d}", "w") as file:
        file.write(str(number))
block = os.urandom(1 << 20)
with open(f"{out}/large", "wb") as file:
    for begin in range(0, size, 1 << 20):
        file.write(block[: size - begin])
open(f"{out}/made", "w").close()
"""


class _Watch:
    """Looks at a job's beats and at the memory of its supervisor."""

    def __init__(self, bench: Bench, job_id: str) -> None:
        self._bench = bench
        self._job_id = job_id
        self._process: psutil.Process | None = None

    def wait_for_supervisor(self, host: Path) -> int:
        """Its memory before it uploads."""

        def find() -> bool:
            for folder in host.glob("*"):
                for note in HostFolder(host, folder.name).notes():
                    self._process = psutil.Process(note.supervisor.pid)
            return self._process is not None

        _wait(find)
        time.sleep(2)
        assert self._process is not None
        rss: int = self._process.memory_info().rss
        return rss

    def to_the_end(self) -> tuple[float, int]:
        """The longest gap between two beats, in seconds, and the most memory, in bytes."""
        beats = [time.monotonic()]
        peak, version = 0, None
        stop = threading.Event()
        while not stop.is_set():
            entry = self._bench.repo.find_heartbeat(self._job_id)
            if entry is not None and entry.version != version:
                version = entry.version
                beats.append(time.monotonic())
            peak = max(peak, self._memory())
            if states_of(self._bench.repo, self._job_id).get(self._job_id) is State.COMPLETED:
                stop.set()
            time.sleep(0.1)
        return max(later - earlier for earlier, later in pairwise(beats)), peak

    def _memory(self) -> int:
        assert self._process is not None
        try:
            rss: int = self._process.memory_info().rss
        except psutil.NoSuchProcess:
            return 0
        return rss


def _wait(condition: Callable[[], object], seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not _holds(condition()):
        if time.monotonic() > deadline:
            raise TimeoutError("it did not come true")
        time.sleep(0.1)


def _holds(found: object) -> bool:
    return next(iter(found), None) is not None if hasattr(found, "__iter__") else bool(found)


def _download(bench: Bench, job_id: str) -> tuple[float, int]:
    """Seconds, and the most memory of the command."""
    began = time.perf_counter()
    command = subprocess.Popen(
        [sys.executable, "-m", "stado.cli.main", "results", job_id, str(bench.folder / "came")],
        env={**os.environ, **bench.environment},
        stdout=subprocess.DEVNULL,
    )
    process, peak = psutil.Process(command.pid), 0
    while command.poll() is None:
        try:
            peak = max(peak, process.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.05)
    if command.wait() != 0:
        raise RuntimeError("the download failed")
    return time.perf_counter() - began, peak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.transfers")
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--bucket", action="store_true")
    options = parser.parse_args()
    with ExitStack() as exits:
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="stado-bench-")))
        settings, environment = None, None
        if options.bucket:
            server = exits.enter_context(run_seaweedfs())
            server.make_bucket("bench")
            settings = Settings("s3://bench/queue", server.endpoint)
            environment = dict(server.environment)
            os.environ.update(environment)
        figures = measure_masses(
            folder, settings, environment, files=options.files, gigabytes=options.gigabytes
        )
        show("SeaweedFS" if options.bucket else "Directory", figures)
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
