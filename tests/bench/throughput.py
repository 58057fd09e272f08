"""How many jobs a second, how much CPU a job, how soon after the submit; beside the floor: the
same durable creates and a spawned `true`, in a bare loop.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from stado.core import keys
from stado.core.records import ClaimCell
from stado.settings import Settings
from tests.bench.deployment import Bench, bench_deployment, children_cpu_seconds
from tests.bench.figures import Figure

_AT_ONCE = 8
_CREATES_A_JOB = 5
"""Running record, claim cell, heartbeat, verdict, record at rest."""
_RECORD_BYTES = 1000
_FLOOR_SECONDS = 4.0


def measure_directory(folder: Path, jobs: int) -> list[Figure]:
    floor = _floor(folder / "floor")
    with bench_deployment(folder / "directory") as bench:
        rate, cpu_ms = _run_trues(bench, jobs)
        latency = _start_latency(bench)
    return [
        Figure("floor: 5 durable creates + true, 8 processes", floor, "jobs/s"),
        Figure(f"{jobs} x true, one agent, 8 at a time", rate, "jobs/s", 100, at_least=True),
        Figure("  of the floor", rate / floor, "x"),
        Figure("  CPU of agent and supervisors", cpu_ms, "ms a job", 12),
        Figure("start latency on an idle agent, p50", latency, "s", 0.5),
    ]


def measure_bucket(
    folder: Path, settings: Settings, environment: dict[str, str], jobs: int
) -> list[Figure]:
    with bench_deployment(folder / "bucket", settings, environment) as bench:
        began = time.perf_counter()
        bench.submit(["true"] * 1000)
        submitted = time.perf_counter() - began
    fewer = Settings(f"{settings.store}-run", settings.endpoint, settings.region)
    with bench_deployment(folder / "bucket-run", fewer, environment) as bench:
        rate, cpu_ms = _run_trues(bench, jobs)
    return [
        Figure("submit of a batch of 1,000", submitted, "s", 15),
        Figure(f"{jobs} x true, one agent, 8 at a time", rate, "jobs/s", 15, at_least=True),
        Figure("  CPU of agent and supervisors", cpu_ms, "ms a job", 40),
    ]


def measure_batch(folder: Path, jobs: int) -> list[Figure]:
    """A large batch, beside as many durable creates by 32 writers."""
    with bench_deployment(folder / "batch") as bench:
        began = time.perf_counter()
        bench.submit(["true"] * jobs)
        submitted = time.perf_counter() - began
    floor = _durable_creates(folder / "creates", jobs, writers=32)
    return [
        Figure(f"{jobs} durable creates, 32 writers", floor, "s"),
        Figure(f"submit of a batch of {jobs}", submitted, "s", max(15.0, 1.5 * floor)),
        Figure("  of the creates", submitted / floor, "x"),
    ]


def _run_trues(bench: Bench, jobs: int) -> tuple[float, float]:
    """Jobs a second from the first claim to the last end, and CPU ms a job: that of the agent
    from its start on, and of its supervisors, without what `true` itself takes."""
    command_cpu = _command_cpu_seconds()
    submission = bench.submit(["true"] * jobs)
    cpu_before = children_cpu_seconds()
    with bench.agent("--cpu", str(_AT_ONCE), "--memory-gb", "8"):
        bench.wait(submission)
    cpu = children_cpu_seconds() - cpu_before
    claims = [_claim(bench, job_id) for job_id in (submission.job_ids[0], submission.job_ids[-1])]
    ends = [bench.repo.find_end(job_id, 1) for job_id in submission.job_ids[-_AT_ONCE:]]
    last = max(end.ending.ended_at for end in ends if end is not None)
    return jobs / ((last - claims[0].at) / timedelta(seconds=1)), (cpu / jobs - command_cpu) * 1000


def _command_cpu_seconds(rounds: int = 200) -> float:
    """Of one `/bin/sh -c true`, beside which our own is to be seen."""
    before = children_cpu_seconds()
    for _ in range(rounds):
        subprocess.run(["/bin/sh", "-c", "true"], check=True)
    return (children_cpu_seconds() - before) / rounds


def _claim(bench: Bench, job_id: str) -> ClaimCell:
    return bench.repo.read(ClaimCell, keys.claim_cell(job_id, 1)).value


def _start_latency(bench: Bench, rounds: int = 15) -> float:
    """Seconds from the submit to the start of the command."""
    waits = []
    with bench.agent("--cpu", "2", "--memory-gb", "8"):
        bench.wait(bench.submit(["true"]))
        for _ in range(rounds):
            time.sleep(bench.repo.entropy.uniform(1.5, 2.0))  # long enough to be idle
            began = time.time()
            marker = bench.folder / f"marker-{began}"
            submission = bench.submit([f"date +%s.%N > {marker}"])
            bench.wait(submission)
            waits.append(float(marker.read_text()) - began)
    return statistics.median(waits)


def _floor(folder: Path) -> float:
    """Jobs a second of processes that do nothing but the creates and the `true`."""
    folder.mkdir(parents=True)
    began = time.perf_counter()
    loops = [
        subprocess.Popen(
            [sys.executable, "-c", _FLOOR_LOOP, str(folder), str(number)], stdout=subprocess.PIPE
        )
        for number in range(_AT_ONCE)
    ]
    done = sum(int(loop.communicate()[0]) for loop in loops)
    return done / (time.perf_counter() - began)


_FLOOR_LOOP = f"""
import os, subprocess, sys, time
folder, name = sys.argv[1:]
folder = os.path.join(folder, name)
os.mkdir(folder)
def create(path):
    temporary = path + ".tmp"
    handle = os.open(temporary, os.O_CREAT | os.O_WRONLY)
    os.write(handle, b"x" * {_RECORD_BYTES})
    os.fsync(handle)
    os.close(handle)
    os.link(temporary, path)
    os.unlink(temporary)
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
done, end = 0, time.monotonic() + {_FLOOR_SECONDS}
while time.monotonic() < end:
    for part in range({_CREATES_A_JOB}):
        create(os.path.join(folder, f"{{done}}-{{part}}"))
    subprocess.run(["/bin/sh", "-c", "true"])
    done += 1
print(done)
"""


def _durable_creates(folder: Path, count: int, *, writers: int) -> float:
    """Seconds for as many files, each durable on its own."""
    folder.mkdir(parents=True)

    def create(number: int) -> None:
        temporary = folder / f".{number}"
        handle = os.open(temporary, os.O_CREAT | os.O_WRONLY)
        os.write(handle, b"x" * _RECORD_BYTES)
        os.fsync(handle)
        os.close(handle)
        os.link(temporary, folder / str(number))
        os.unlink(temporary)
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)

    began = time.perf_counter()
    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(create, range(count)))
    return time.perf_counter() - began
