"""What a job leaves when its supervisor and its agent are gone for good."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from stado.cli.main import cli
from stado.core.states import State
from stado.system.host_processes import LiveHostProcesses
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import SMALL, wait_for
from tests.system.orphans import need_orphans


def test_leavings_of_a_dead_agent_are_found_and_ended_and_those_of_a_living_one_are_not(
    make_fleet: MakeFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R204: an agent and its supervisor are killed, and never come back; its job's processes go on,
    in sessions of their own."""
    need_orphans()
    monkeypatch.setenv("USER", "ada")
    fleet = make_fleet(lease_seconds=600)
    for name, value in fleet.settings.environment().items():
        monkeypatch.setenv(name, value)
    program = f"left-{os.getpid()}-{tmp_path.name}"
    path = tmp_path / program
    shutil.copy("/bin/sleep", path)
    command = f"setsid {path} 300 & (setsid sh -c '{path} 301 & exit' &) ; exec {path} 302"
    agent = fleet.agent("one", "--poll-seconds", "0.1")
    gone_job, held_job = (
        fleet.submit(command, spec=SMALL.evolve(pinned_host=name)).job_ids[0]
        for name in ("one", "two")
    )
    fleet.agent("two", "--poll-seconds", "0.1")

    def of(job_id: str) -> list[str | None]:
        found = LiveHostProcesses().look()[0]
        return [one.held_by for one in found if one.job_id == job_id and one.program == program]

    def run(*words: str) -> str:
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    try:
        started = fleet.started("one", gone_job)
        wait_for(lambda: len(of(gone_job)) == 3 and len(of(held_job)) == 3)
        assert all(of(gone_job))
        agent.kill()
        agent.wait()
        os.kill(started.supervisor, signal.SIGKILL)
        wait_for(lambda: of(gone_job) == [None] * 3)
        listed = [
            line for line in run("service", "list", "--unowned").splitlines() if program in line
        ]
        assert {line.split()[2] for line in listed} == {gone_job}
        reap = ("service", "reap", "--host", socket.gethostname(), "--command", program)
        assert run(*reap).count(gone_job) == 3
        ended = run(*reap, "--apply")
        assert (ended.count("  ended  "), ended.count(gone_job)) == (3, 3)
        assert of(gone_job) == []
        assert len(of(held_job)) == 3
        assert all(of(held_job))
        assert fleet.story(held_job).record.state is State.RUNNING
    finally:
        for one in LiveHostProcesses().look()[0]:
            if one.program == program:
                with suppress(ProcessLookupError):
                    os.kill(one.identity.pid, signal.SIGKILL)
