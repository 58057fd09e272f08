"""Commands as a supervisor starts them, on each mechanism that a host may offer."""

from __future__ import annotations

import itertools
import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stado.ports import Channel, Command, JobProcess
from stado.system.cgroup_mounts import FREEZER_V1, MEMORY_V1, V2, find_hierarchies
from stado.system.cgroups import Cgroups
from stado.system.control_group import read_of_group, write_to_group
from stado.system.processes import LiveProcesses

WAIT_SECONDS = 20.0
"""Far more than anything here takes: a bound, not a pause."""

_numbers = itertools.count()


def only(kind: str, *, kill_file: str = "cgroup.kill") -> Cgroups:
    found = [hierarchy for hierarchy in find_hierarchies() if hierarchy.kind == kind]
    return Cgroups(found, kill_file=kill_file)


MECHANISMS: dict[str, Callable[[], Cgroups]] = {
    "found": Cgroups,
    "v2": lambda: only(V2),
    "v2-without-kill": lambda: only(V2, kill_file="cgroup.absent"),
    "freezer": lambda: only(FREEZER_V1),
    "memory-v1": lambda: only(MEMORY_V1),
    "process-tree": lambda: Cgroups(()),
}
"""Where a host lacks one, or lets us not write there, the process tree takes its place."""


class Printed:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.data = bytearray()

    def __call__(self, piece: memoryview) -> None:
        self.data += piece

    @property
    def text(self) -> str:
        return self.data.decode()


def command(
    folder: Path,
    *argv: str,
    sink: Callable[[memoryview], None] = lambda piece: None,
    memory_bytes: int | None = None,
) -> Command:
    return Command(f"test-{next(_numbers)}", argv, dict(os.environ), folder, sink, memory_bytes)


def shell(
    processes: LiveProcesses,
    folder: Path,
    script: str,
    sink: Callable[[memoryview], None] = lambda piece: None,
) -> JobProcess:
    return processes.start(command(folder, "sh", "-c", script, sink=sink))


def kill(job: JobProcess) -> int:
    """Ends all of it for good; the leader's exit code."""
    assert eventually(lambda: not job.signal_all(9) and not job.living())
    code = job.wait(WAIT_SECONDS)
    assert code is not None
    assert job.close(WAIT_SECONDS)
    assert not any(pids_in(folder) - {os.getpid()} for folder in job.enclosure)
    return code


def pids_in(folder: Path) -> set[int]:
    """Of a control group, which may be gone."""
    return {int(pid) for pid in read_of_group(f"{folder}/cgroup.procs").split()}


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.005)
    return False


def read_pid(path: Path) -> int:
    """From a file that a command writes a line to."""
    assert eventually(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


@contextmanager
def stuck(pid: int) -> Iterator[bool]:
    """Holds a process as if it were stuck in the kernel, if this host lets us: no signal ends
    what is in a frozen group of version 1. It is another group than an enclosure's."""
    if only(FREEZER_V1).containment().contains_by != "cgroup-v1":
        yield False
        return
    (freezer,) = (one for one in find_hierarchies() if one.kind == FREEZER_V1)
    group = freezer.own / f"stuck-{os.getpid()}"
    group.mkdir()
    try:
        write_to_group(f"{group}/cgroup.procs", str(pid).encode())
        write_to_group(f"{group}/freezer.state", b"FROZEN")
        yield True
    finally:
        write_to_group(f"{group}/freezer.state", b"THAWED")
        assert eventually(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def in_supervisor(work: Callable[[], Any]) -> Any:
    """What `work` returns (JSON), run in a fork as supervisors are: it adopts orphans."""

    def main(channel: Channel) -> None:
        try:
            channel.send({"returned": work()})
        except BaseException:  # noqa: BLE001 - the test gets it
            channel.send({"failed": traceback.format_exc()})

    peer = LiveProcesses().fork(main)
    message = peer.channel.receive(2 * WAIT_SECONDS)
    assert eventually(lambda: peer.poll() is not None)
    peer.channel.close()
    assert message is not None
    assert "failed" not in message, message["failed"]
    return message["returned"]
