"""Measures what the machine's adapters cost a job: `make bench`.

Each figure is the mean CPU of this process and of its children, in milliseconds.
"""

from __future__ import annotations

import itertools
import os
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from stado.errors import ChannelClosed
from stado.ports import Channel, Command
from stado.system.cgroups import Cgroups
from stado.system.processes import LiveProcesses
from tests.system.commands import in_supervisor

WAIT_SECONDS = 60.0
OUTPUT_BYTES = 4_000_000_000

_numbers = itertools.count()


def main() -> None:
    processes = LiveProcesses()
    print(processes.containment())
    print(f"{'':38}{'wall':>8}{'own CPU':>9}{'children':>9}")
    in_supervisor(lambda: measure_jobs(processes))
    measure("fork, exit, poll", 200, lambda: run_fork(processes))
    measure_round_trip(processes)
    import_what_a_worker_has()
    measure("fork, exit, poll: with msgspec", 200, lambda: run_fork(processes))
    import_a_cloud_client()
    measure("fork, exit, poll: with an S3 client", 200, lambda: run_fork(processes))


def measure_jobs(processes: LiveProcesses) -> None:
    bare = LiveProcesses(cgroups=Cgroups(()))
    measure("a command from start to close", 200, lambda: run_job(processes))
    measure("the same with a limit of memory", 200, lambda: run_job(processes, 1 << 30))
    measure("the same without control groups", 200, lambda: run_job(bare))
    measure_output(processes)


def measure(name: str, times: int, act: Callable[[], None]) -> None:
    act()
    began, own, children = time.perf_counter(), _cpu(resource.RUSAGE_SELF), _children()
    for _ in range(times):
        act()
    figures = (
        time.perf_counter() - began,
        _cpu(resource.RUSAGE_SELF) - own,
        _children() - children,
    )
    wall, mine, theirs = (1000 * figure / times for figure in figures)
    print(f"{name:38}{wall:8.2f}{mine:9.2f}{theirs:9.2f}")


def run_job(processes: LiveProcesses, memory_bytes: int | None = None) -> None:
    order = command("/bin/sh -c true", lambda piece: None, memory_bytes)
    job = processes.start(order)
    assert job.wait(WAIT_SECONDS) == 0
    assert not job.living()
    assert job.close(WAIT_SECONDS)


def command(
    line: str, sink: Callable[[memoryview], None], memory_bytes: int | None = None
) -> Command:
    name = f"bench-{os.getpid()}-{next(_numbers)}"
    return Command(name, line.split(" "), dict(os.environ), Path("/"), sink, memory_bytes)


def measure_output(processes: LiveProcesses) -> None:
    """Beside a pipe to a program that does nothing with it: what the machine can do at all."""
    counted: list[int] = []
    for name, line in (
        ("into a sink", f"head -c {OUTPUT_BYTES} /dev/zero"),
        ("into `cat`", f"head -c {OUTPUT_BYTES} /dev/zero | cat >/dev/null"),
    ):
        began = time.perf_counter()
        order = command("sh -c", lambda piece: counted.append(len(piece)))
        job = processes.start(replace(order, argv=[*order.argv, line]))
        assert job.wait(WAIT_SECONDS) == 0
        assert job.close(WAIT_SECONDS)
        rate = OUTPUT_BYTES / (time.perf_counter() - began) / 1e6
        print(f"{f'output, MB a second, {name}':38}{rate:8.0f}")
    assert sum(counted) == OUTPUT_BYTES


def run_fork(processes: LiveProcesses) -> None:
    peer = processes.fork(lambda channel: None)
    while peer.poll() is None:
        processes.wait([peer], WAIT_SECONDS)
    peer.channel.close()


def measure_round_trip(processes: LiveProcesses) -> None:
    peer = processes.fork(_echo)

    def act() -> None:
        peer.channel.send({"phase": "running"})
        processes.wait([peer], WAIT_SECONDS)
        assert peer.channel.receive(WAIT_SECONDS) is not None

    measure("round trip over a channel", 2000, act)
    peer.kill()
    peer.channel.close()


def import_what_a_worker_has() -> None:
    import msgspec
    import tenacity

    assert msgspec.Struct is not None
    assert tenacity.Retrying is not None


def import_a_cloud_client() -> None:
    import boto3

    boto3.client("s3", region_name="x", aws_access_key_id="x", aws_secret_access_key="x")


def _echo(channel: Channel) -> None:
    try:
        while (message := channel.receive(None)) is not None:
            channel.send(message)
    except ChannelClosed:
        return


def _children() -> float:
    return _cpu(resource.RUSAGE_CHILDREN)


def _cpu(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
