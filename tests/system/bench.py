"""Measures what the machine's adapters cost a job: `make bench`.

Each figure is the mean CPU of this process and of its children, in milliseconds.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from stado.errors import ChannelClosed
from stado.ports import Channel, Command
from stado.system.processes import LiveProcesses

WAIT_SECONDS = 10.0


def main() -> None:
    processes = LiveProcesses()
    print(f"{'':38}{'wall':>8}{'own CPU':>9}{'children':>9}")
    with tempfile.TemporaryDirectory() as name:
        measure("start `true`, wait, check its group", 200, lambda: run_job(processes, Path(name)))
    measure("fork, exit, poll", 200, lambda: run_fork(processes))
    measure_round_trip(processes)
    import_what_a_worker_has()
    measure("fork, exit, poll: with msgspec", 200, lambda: run_fork(processes))
    import_a_cloud_client()
    measure("fork, exit, poll: with an S3 client", 200, lambda: run_fork(processes))


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


def run_job(processes: LiveProcesses, folder: Path) -> None:
    job = processes.start(Command(["true"], dict(os.environ), folder, folder / "log"))
    assert job.wait(WAIT_SECONDS) == 0
    assert not job.group_alive()


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
