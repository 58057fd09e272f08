"""What a supervisor costs the job in its hands: the rate at which it prints, an idle one's memory
and CPU, and how soon a cancel has been obeyed.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil

from stado.core.states import State
from stado.jobs.changes import cancel
from stado.jobs.status import states_of
from stado.jobs.submit import Submission
from stado_agent.workspace import HostFolder
from tests.bench.deployment import Bench, bench_deployment
from tests.bench.figures import Figure

_PRINTED_BYTES = 2_000_000_000
_BYTES_A_SECOND = 200_000_000
_ROUNDS = 3
_IDLE_SECONDS = 60.0
_IDLE_SECONDS_QUICK = 10.0
_CANCELS = 20
_LOOK_SECONDS = 0.01
_END_SECONDS = 0.1
_CHECK_IN_SECONDS = 2.0

_PRINT = """
import os, sys, time
chunk = (b"x" * 127 + b"\\n") * 2048
paced, total, report = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
began = time.monotonic()
for number in range(total // len(chunk)):
    os.write(1, chunk)
    if paced:
        ahead = number * len(chunk) / paced - (time.monotonic() - began)
        if ahead > 0:
            time.sleep(ahead)
with open(report, "w") as file:
    print(total / (time.monotonic() - began) / 1e6, file=file)
"""


def measure(folder: Path, *, quick: bool) -> list[Figure]:
    with bench_deployment(folder / "supervision") as bench, bench.agent("--cpu", "32"):
        figures = [
            *_printing(bench, quick=quick),
            *_idling(bench, _IDLE_SECONDS_QUICK if quick else _IDLE_SECONDS),
        ]
    brief = bench_deployment(folder / "cancelling", lease_seconds=8 * _CHECK_IN_SECONDS)
    with brief as bench, bench.agent("--cpu", "32"):
        return [*figures, *_cancelling(bench, 5 if quick else _CANCELS)]


def _printing(bench: Bench, *, quick: bool) -> list[Figure]:
    """Both programs in turn, so that both meet the same disturbances."""
    script = bench.folder / "print.py"
    script.write_text(_PRINT)
    figures = []
    for name, paced in (("200 MB/s", _BYTES_A_SECOND), ("as fast as it can", 0)):
        total = _PRINTED_BYTES // (4 if quick else 1)
        ours, of_cat = [], []
        for number in range(1 if quick else _ROUNDS):
            report = bench.folder / f"rate-{paced}-{number}"
            argv = f"{sys.executable} {script} {paced} {total} {report}"
            subprocess.run(f"{argv} | cat > /dev/null", shell=True, check=True)
            of_cat.append(float(report.read_text()))
            bench.wait(bench.submit([argv]))
            ours.append(float(report.read_text()))
        rate, floor = statistics.median(ours), statistics.median(of_cat)
        limit = 0.8 if paced else None
        figures += [
            Figure(f"prints {name} into `cat > /dev/null`", floor, "MB/s"),
            Figure("  as a job, of that", rate / floor, "x", limit, at_least=True),
        ]
    return figures


def _idling(bench: Bench, seconds: float) -> list[Figure]:
    """Of a supervisor whose command sleeps."""
    gate = bench.folder / "gate"
    submission = bench.submit([f"while [ ! -e {gate} ]; do sleep 1; done"])
    supervisor = psutil.Process(_supervisor_of(bench, submission))
    time.sleep(2)
    before = supervisor.cpu_times()
    time.sleep(seconds)
    after = supervisor.cpu_times()
    spent = after.user + after.system - before.user - before.system
    memory = supervisor.memory_full_info()
    gate.touch()
    bench.wait(submission)
    return [
        Figure("idle supervisor: memory of its own", memory.uss / 1e6, "MB", 30),
        Figure("  with what it shares with its agent", memory.rss / 1e6, "MB"),
        Figure("  of a core", spent / seconds * 100, "%", 0.2),
    ]


def _cancelling(bench: Bench, count: int) -> list[Figure]:
    """From the request to the verdict, of commands that need a tenth of a second to end; one
    after another, each asked at a moment of its own between two check-ins."""
    command = f"trap 'sleep {_END_SECONDS}; exit 1' TERM; while :; do sleep 0.01; done"
    waits = []
    submission = bench.submit([command] * count)
    _wait_for(bench, submission, State.RUNNING)
    for job_id in submission.job_ids:
        time.sleep(bench.repo.entropy.uniform(0, _CHECK_IN_SECONDS))
        began = time.monotonic()
        cancel(bench.repo, job_id, by="bench")
        while bench.repo.find_end(job_id, 1) is None:
            time.sleep(_LOOK_SECONDS)
        waits.append(time.monotonic() - began)
    _wait_for(bench, submission, State.CANCELLED)
    check_in = bench.repo.deployment.tick_seconds
    p95 = sorted(waits)[round(0.95 * (len(waits) - 1))]
    return [Figure("cancel of a running job, p95", p95, "s", check_in + _END_SECONDS)]


def _supervisor_of(bench: Bench, submission: Submission) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for host in (bench.folder / "host").iterdir():
            for note in HostFolder(bench.folder / "host", host.name).notes():
                if note.job_id in submission.job_ids:
                    return note.supervisor.pid
        time.sleep(_LOOK_SECONDS)
    raise TimeoutError("no supervisor has the job")


def _wait_for(bench: Bench, submission: Submission, state: State) -> None:
    deadline = time.monotonic() + 60
    while set(states_of(bench.repo, submission.base_id).values()) != {state}:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the jobs are not {state.value}")
        time.sleep(_LOOK_SECONDS)
