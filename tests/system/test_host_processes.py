"""What jobs have left on a host: real processes, in whatever session and group."""

from __future__ import annotations

import os
import secrets
import signal
import string
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from stado.ports import Channel, HostProcess, ProcessIdentity, ReapEnd
from stado.system.cgroup_mounts import find_hierarchies
from stado.system.host_processes import LiveHostProcesses
from stado.system.identity import find_process
from stado.system.processes import LiveProcesses
from tests.system.commands import WAIT_SECONDS, eventually, kill, shell
from tests.system.orphans import need_orphans

HOLDS = LiveHostProcesses()

IGNORING = "trap '' TERM; while :; do sleep 0.1; done"


@pytest.fixture
def job() -> Iterator[str]:
    """An id that no other job on this machine has; what is left of it is ended."""
    need_orphans()
    job_id = "".join(secrets.choice(string.ascii_lowercase) for _ in range(16))
    yield job_id
    for one in of(job_id):
        with suppress(ProcessLookupError):
            os.kill(one.identity.pid, signal.SIGKILL)


def of(job_id: str) -> list[HostProcess]:
    return [one for one in HOLDS.look()[0] if one.job_id == job_id]


def leave(job_id: str, script: str, **environment: str) -> None:
    """Runs it as a job's command, whose supervisor is gone at once."""
    code = "import os, sys; os.fork() or os.execv('/bin/sh', ['sh', '-c', sys.argv[1]])"
    subprocess.run(
        [sys.executable, "-c", code, script],
        env={"PATH": "/usr/bin:/bin", "STADO_JOB_ID": job_id, "STADO_EPOCH": "2", **environment},
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=WAIT_SECONDS,
    )


def left(job_id: str, count: int) -> list[HostProcess]:
    """Once there are so many, which nobody answers for."""
    assert eventually(lambda: [one.held_by for one in of(job_id)] == [None] * count), of(job_id)
    return of(job_id)


def gone(job_id: str) -> Callable[[], bool]:
    return lambda: not of(job_id)


@pytest.mark.parametrize(
    ("script", "count"),
    [
        ("exec sleep 60", 1),
        ("exec setsid sleep 60", 1),
        ("setsid sh -c 'setsid sleep 60 & exit' & exec sleep 60", 2),
        ("(sleep 60 & sleep 60 &) ; exec nohup sleep 60", 3),
    ],
    ids=["plain", "session", "double-fork", "several"],
)
def test_what_a_job_left_is_found_and_ended_however_it_parted(
    job: str, script: str, count: int
) -> None:
    """R204"""
    leave(job, script)
    found = left(job, count)
    assert {one.program for one in found} == {"sleep"}
    assert {one.epoch for one in found} == {2}
    assert {one.uid for one in found} == {os.getuid()}
    assert all("sleep" in one.names and "/usr/bin/sleep" in one.names for one in found)
    assert HOLDS.end(found, grace_seconds=WAIT_SECONDS) == [ReapEnd.ENDED] * count
    assert not of(job)


def test_what_does_not_heed_term_is_killed(job: str) -> None:
    """R204"""
    leave(job, IGNORING)
    assert eventually(lambda: any(one.program == "sh" for one in of(job)))
    shells = [one for one in of(job) if one.program == "sh"]
    assert HOLDS.end(shells, grace_seconds=0.3) == [ReapEnd.ENDED]
    assert eventually(gone(job))


def test_a_parent_that_ends_meanwhile_holds_nothing(job: str) -> None:
    """R204: all of a tree go at once, the first of which leaves the others to somebody else."""
    leave(job, "sleep 60 & (sleep 60 & wait) & wait")
    assert eventually(lambda: len(of(job)) == 4)
    found = of(job)
    assert HOLDS.end(found, grace_seconds=WAIT_SECONDS) == [ReapEnd.ENDED] * 4


def test_what_a_living_supervisor_has_is_held_and_never_signalled(job: str, tmp_path: Path) -> None:
    """R204"""
    processes = LiveProcesses()
    tmp_path = tmp_path / "a"
    tmp_path.mkdir()

    def supervise(channel: Channel) -> None:
        os.environ["STADO_JOB_ID"] = job
        command = shell(processes, tmp_path, "sleep 60 & setsid sh -c 'sleep 60 & exit' & wait")
        channel.send({"group": bool(command.enclosure)})
        channel.receive(None)
        kill(command)
        channel.send({})

    peer = processes.fork(supervise)
    told = peer.channel.receive(WAIT_SECONDS)
    assert told is not None
    assert eventually(lambda: len(of(job)) == 3)
    assert eventually(lambda: all(one.held_by for one in of(job)))
    found = of(job)
    pid = peer.identity.pid
    if told["group"]:
        assert {one.held_by for one in found} == {f"supervisor {pid}"}
    else:
        assert all(str(one.held_by).startswith(f"process {pid} (") for one in found)
    assert HOLDS.end(found, grace_seconds=0.1) == [ReapEnd.HELD] * 3
    assert len(of(job)) == 3
    peer.channel.send({})
    assert peer.channel.receive(WAIT_SECONDS) == {}
    assert eventually(lambda: peer.poll() is not None)
    peer.channel.close()


def test_what_another_process_has_started_is_held_by_that(job: str) -> None:
    """R204: another job's id in an environment is no proof."""
    other = "".join(reversed(job))
    environment = {"PATH": "/usr/bin:/bin", "STADO_JOB_ID": job}
    inner = f"STADO_JOB_ID={other} sleep 60"
    with subprocess.Popen(["/bin/sh", "-c", f"{inner} & wait"], env=environment) as started:
        assert eventually(lambda: len(of(other)) == 1)
        (found,) = of(other)
        (above,) = of(job)
        assert found.held_by == f"process {started.pid} (sh)"
        assert str(above.held_by).startswith(f"process {os.getpid()} (")
        assert HOLDS.end([found, above], grace_seconds=0.1) == [ReapEnd.HELD] * 2
        os.kill(found.identity.pid, signal.SIGKILL)


def _unit_folders() -> Iterator[Path]:
    """Where a control group can be made that is called as a unit of systemd."""
    for hierarchy in find_hierarchies():
        if hierarchy.kind == "cgroup-v2":
            yield hierarchy.own
    yield Path("/sys/fs/cgroup/systemd")


def test_what_a_declared_unit_holds_is_never_signalled(job: str) -> None:
    """R204"""
    leave(job, "exec sleep 60")
    (found,) = left(job, 1)
    for base in _unit_folders():
        unit = base / f"held-{found.identity.pid}.service"
        with suppress(OSError):
            unit.mkdir()
            (unit / "cgroup.procs").write_text(str(found.identity.pid))
            break
    else:
        pytest.skip("no control group can be made here")
    try:
        (held,) = of(job)
        assert held.held_by == f"unit {unit.name}"
        assert HOLDS.end([found], grace_seconds=0.1) == [ReapEnd.HELD]
        assert find_process(found.identity.pid) is not None
    finally:
        os.kill(found.identity.pid, signal.SIGKILL)
        assert eventually(gone(job))
        eventually(lambda: _removed(unit))


def _removed(folder: Path) -> bool:
    with suppress(OSError):
        folder.rmdir()
    return not folder.exists()


def test_a_pid_that_is_another_process_by_now_gets_no_signal(job: str) -> None:
    """R204"""
    leave(job, "exec sleep 60")
    (found,) = left(job, 1)
    before = ProcessIdentity(found.identity.pid, found.identity.started - 1)
    never = ProcessIdentity(2**22 + 1, 1)
    ends = HOLDS.end(
        [replace(found, identity=before), replace(found, identity=never)], grace_seconds=0.1
    )
    assert ends == [ReapEnd.GONE] * 2
    assert HOLDS.end([replace(found, job_id="x")], grace_seconds=0.1) == [ReapEnd.HELD]
    assert len(of(job)) == 1


def test_a_process_without_a_job_is_none(job: str) -> None:
    with subprocess.Popen(["sleep", "60"], env={"NOT_STADO_JOB_ID": job}) as started:
        assert all(one.identity.pid != started.pid for one in HOLDS.look()[0])
        started.kill()


def test_a_process_that_ends_while_it_is_looked_at_is_passed_over(tmp_path: Path) -> None:
    """Its environment could still be read, and nothing after that."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "environ").touch()
    (tmp_path / "stat").write_text("btime 1\n")
    (tmp_path / str(os.getpid())).mkdir()
    (tmp_path / str(os.getpid()) / "environ").write_bytes(b"STADO_JOB_ID=abcdefghijklmnop\0")
    assert LiveHostProcesses(tmp_path).look() == ([], 0)
