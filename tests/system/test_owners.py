"""Whose a pid is: of a supervisor's job, however its processes have parted, or nobody's here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stado.ports import Channel, Family, Peer, ProcessIdentity
from stado.system.owners import find_owners
from stado.system.processes import LiveProcesses
from tests.system.commands import MECHANISMS, WAIT_SECONDS, eventually, kill, read_pid, shell

NOBODY = ProcessIdentity(pid=2**22 + 1, started=1)
"""No kernel gives such a pid."""

PARTING = "sleep 60 & echo $! >child; setsid sh -c 'sleep 60 & echo $! >daemon' & wait"


def start_parting(
    processes: LiveProcesses, folder: Path
) -> tuple[Peer, dict[str, int], dict[str, Any]]:
    """A supervisor with a job whose processes part; their pids, and what it says of itself."""
    folder.mkdir()

    def supervise(channel: Channel) -> None:
        job = shell(processes, folder, PARTING)
        channel.send({"leader": job.identity.pid, "enclosure": list(map(str, job.enclosure))})
        channel.receive(None)
        kill(job)
        channel.send({})

    peer = processes.fork(supervise)
    told = peer.channel.receive(WAIT_SECONDS)
    assert told is not None
    names = ("child", "daemon")
    return peer, {"leader": told["leader"]} | {n: read_pid(folder / n) for n in names}, told


def finish(peer: Peer) -> None:
    peer.channel.send({})
    assert peer.channel.receive(WAIT_SECONDS) == {}
    assert eventually(lambda: peer.poll() is not None)
    peer.channel.close()


@pytest.mark.usefixtures("no_descriptor_leaks", "no_groups_left")
def test_all_processes_of_a_job_are_its_own_and_no_others(tmp_path: Path) -> None:
    """R179: a daemon too, which is in a session of its own and has lost its parent."""
    processes = LiveProcesses()
    first, first_pids, _ = start_parting(processes, tmp_path / "a")
    second, second_pids, _ = start_parting(processes, tmp_path / "b")
    with subprocess.Popen(["sleep", "60"]) as foreign:
        pids = [*first_pids.values(), *second_pids.values(), foreign.pid, os.getpid(), NOBODY.pid]
        families = {"a": Family(first.identity), "b": Family(second.identity)}
        owners = processes.find_owners(pids, families)
        foreign.kill()
    assert owners == dict.fromkeys(first_pids.values(), "a") | dict.fromkeys(
        second_pids.values(), "b"
    )
    of_earlier = Family(ProcessIdentity(first.identity.pid, first.identity.started - 1))
    assert processes.find_owners(pids, {"earlier": of_earlier}) == {}
    finish(first)
    finish(second)


@pytest.mark.parametrize("mechanism", ["found", "process-tree"])
def test_what_a_dead_supervisor_left_is_still_its_jobs(tmp_path: Path, mechanism: str) -> None:
    """By its session, and where the host has control groups by those."""
    processes = LiveProcesses(cgroups=MECHANISMS[mechanism]())
    has_groups = processes.containment().contains_by.startswith("cgroup")
    peer, pids, told = start_parting(processes, tmp_path / "a")
    peer.kill()
    assert eventually(lambda: peer.poll() is not None)
    enclosure = [Path(folder) for folder in told["enclosure"]]
    owners = processes.find_owners(pids.values(), {"a": Family(peer.identity, enclosure)})
    assert {pids["leader"], pids["child"]} <= owners.keys()
    assert (pids["daemon"] in owners) == has_groups
    assert processes.kill_session(peer.identity, enclosure)
    if not has_groups:
        os.kill(pids["daemon"], 9)
    peer.channel.close()


@pytest.mark.parametrize(
    "groups",
    [
        "0::/system.slice/docker-{}.scope\n",
        "4:memory:/docker/{}\n0::/\n",
        "0::/../{}\n",
        "0::/user.slice/user@1000.service/libpod-{}.scope/container\n",
    ],
)
def test_what_is_in_a_container_is_its_jobs(tmp_path: Path, groups: str) -> None:
    """Its forebears are the engine's."""
    container = "4f" * 32
    (tmp_path / str(NOBODY.pid)).mkdir()
    (tmp_path / str(NOBODY.pid) / "cgroup").write_text(groups.format(container))
    families = {
        "other": Family(NOBODY, containers=["", "5e" * 32]),
        "a": Family(NOBODY, containers=[container]),
    }
    pids = [NOBODY.pid, NOBODY.pid + 1]
    owners = find_owners(pids, families, lambda enclosure: [], proc=tmp_path)
    assert owners == {NOBODY.pid: "a"}
