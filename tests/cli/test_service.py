"""Processes of jobs on this host, listed and ended by hand."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import string
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from stado.core import keys
from tests.cli.conftest import Program, World, report
from tests.system.orphans import need_orphans

HOST = socket.gethostname()
_LOOKS = 400


class Leaving:
    """Processes of a job whose supervisor is gone, of a program that only this test has."""

    def __init__(self, folder: Path) -> None:
        letters = [secrets.choice(string.ascii_lowercase) for _ in range(16)]
        self.job_id = "".join(letters)
        self.program = f"left-{self.job_id}"
        self.path = folder / self.program
        shutil.copy("/bin/sleep", self.path)

    def leave(self, count: int = 1) -> None:
        script = f"{self.path} 60 & " * count
        subprocess.run(
            ["/bin/sh", "-c", script],
            env={"PATH": "/usr/bin:/bin", "STADO_JOB_ID": self.job_id, "STADO_EPOCH": "1"},
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=20,
        )

    def end(self) -> None:
        for name in os.listdir("/proc"):
            with suppress(OSError):
                if name.isdigit() and os.readlink(f"/proc/{name}/exe").startswith(str(self.path)):
                    os.kill(int(name), signal.SIGKILL)


@pytest.fixture
def leaving(tmp_path: Path) -> Iterator[Leaving]:
    need_orphans()
    made = Leaving(tmp_path)
    yield made
    made.end()


def unowned(stado: Program, leaving: Leaving, count: int) -> list[dict[str, Any]]:
    """Once there are so many."""
    for _ in range(_LOOKS):
        found = stado.json("service", "list", "--unowned")["processes"]
        ours = [one for one in found if one["program"] == leaving.program]
        if len(ours) == count:
            return ours
        time.sleep(0.05)
    raise AssertionError(found)


def test_what_jobs_left_is_listed_without_a_store(
    stado: Program, leaving: Leaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R204"""
    monkeypatch.delenv("STADO_STORE")
    leaving.leave()
    (found,) = unowned(stado, leaving, 1)
    assert (found["job_id"], found["epoch"], found["held_by"]) == (leaving.job_id, 1, None)
    result = stado("service", "list", "--unowned")
    (line,) = [line for line in result.stdout.splitlines() if leaving.program in line]
    assert line.split()[:3] == [str(found["pid"]), leaving.program, leaving.job_id]
    assert line.endswith("  nobody")
    assert f"next: stado service reap --host {HOST} --command PROGRAM" in result.stderr


def test_what_somebody_answers_for_is_listed_and_not_among_the_unowned(
    stado: Program, world: World, leaving: Leaving
) -> None:
    """R204"""
    environment = {"STADO_JOB_ID": leaving.job_id}
    with subprocess.Popen([leaving.path, "60"], env=environment) as held:
        try:
            unowned(stado, leaving, 0)
            shown = stado.ok("service", "list")
            (line,) = [line for line in shown.splitlines() if leaving.program in line]
            assert f"process {os.getpid()} (" in line
            words = ("service", "reap", "--host", HOST, "--command", leaving.program, "--apply")
            result = stado(*words)
            assert result.exit_code == 0
            assert f"1 process of {leaving.program} would be left alone: process" in result.stderr
            assert held.poll() is None
        finally:
            held.kill()


def test_nothing_is_ended_unless_that_is_said(
    stado: Program, world: World, leaving: Leaving
) -> None:
    """R204"""
    leaving.leave(2)
    unowned(stado, leaving, 2)
    words = ("service", "reap", "--host", HOST, "--command", leaving.program)
    result = stado(*words)
    assert result.exit_code == 0
    assert len([line for line in result.stdout.splitlines() if leaving.program in line]) == 2
    assert "2 processes would be ended: --apply does it" in result.stderr
    assert len(stado.json(*words)["processes"]) == 2
    unowned(stado, leaving, 2)
    assert not world.repo.store.list(keys.HOST_REAPS)


@pytest.mark.parametrize("by", ["name", "path"])
def test_what_is_named_is_ended_and_who_did_it_is_kept(
    stado: Program, world: World, leaving: Leaving, by: str
) -> None:
    """R204, R217"""
    leaving.leave(2)
    pids = {one["pid"] for one in unowned(stado, leaving, 2)}
    named = leaving.program if by == "name" else str(leaving.path)
    result = stado("service", "reap", "--host", HOST, "--command", named, "--apply")
    assert result.exit_code == 0
    assert {int(line.split()[0]) for line in result.stdout.splitlines()} == pids
    assert {line.split()[1] for line in result.stdout.splitlines()} == {"ended"}
    assert f"ended 2 processes of {named}, as ada; 0 left" in result.stderr
    unowned(stado, leaving, 0)
    (kept,) = stado.json("service", "reaped")["reaps"]
    assert (kept["by"], kept["host"], kept["command"]) == ("ada", HOST, named)
    assert {one["outcome"] for one in kept["processes"]} == {"ended"}
    assert {one["job_id"] for one in kept["processes"]} == {leaving.job_id}
    assert stado.ok("service", "reaped").splitlines()[1].endswith("2 ended")


def test_another_program_is_left_alone(stado: Program, world: World, leaving: Leaving) -> None:
    """R204"""
    leaving.leave()
    unowned(stado, leaving, 1)
    other = f"{leaving.program}-2"
    result = stado("service", "reap", "--host", HOST, "--command", other, "--apply")
    assert result.exit_code == 0
    assert f"no earlier job left a process of {other} on this host" in result.stderr
    unowned(stado, leaving, 1)
    assert "nothing was ended on any host yet" in stado("service", "reaped").stderr


def test_the_host_is_named_by_its_name_or_its_agents(
    stado: Program, world: World, leaving: Leaving
) -> None:
    """R204: what is on another host is not looked for here."""
    report(world, "gpu-worker", host=HOST)
    report(world, "other", host="lab-9")
    for name in (HOST, f"local@{HOST}", "gpu-worker"):
        assert stado("service", "reap", "--host", name, "--command", leaving.program).exit_code == 0
    for name in ("lab-9", "other", "local@lab-9", ""):
        said = stado.refused("service", "reap", "--host", name, "--command", "sleep", "--apply")
        assert f"is not this host, which is {HOST}: processes are ended where they are" in said


def test_who_acts_is_told_as_in_all_records(
    stado: Program, world: World, leaving: Leaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R217: USER, else LOGNAME, else the account; and nothing is done for nobody."""
    leaving.leave()
    unowned(stado, leaving, 1)
    words = ("service", "reap", "--host", HOST, "--command", leaving.program, "--apply")
    monkeypatch.setitem(os.environ, "USER", "\udcff")
    assert stado.refused(*words).startswith("USER cannot be read: ")
    unowned(stado, leaving, 1)
    monkeypatch.delenv("USER")
    monkeypatch.setenv("LOGNAME", "bob")
    assert stado(*words).exit_code == 0
    (kept,) = stado.json("service", "reaped")["reaps"]
    assert kept["by"] == "bob"
