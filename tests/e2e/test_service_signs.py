"""Agents and coordinators as a service manager has them: what it hears, and how it stops them."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stado.core.spec import Spec
from stado.core.states import State
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import wait_for


class Ear:
    """The socket of a service manager, and what it has heard."""

    def __init__(self, path: Path) -> None:
        self.address = str(path)
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._line.bind(self.address)
        self._line.setblocking(False)
        self._heard: list[str] = []

    def heard(self, text: str) -> int:
        """How often so far."""
        try:
            while True:
                self._heard += self._line.recv(4096).decode().splitlines()
        except BlockingIOError:
            return self._heard.count(text)

    def close(self) -> None:
        self._line.close()


@pytest.fixture
def ear(tmp_path: Path) -> Iterator[Ear]:
    one = Ear(tmp_path / "notify")
    yield one
    one.close()


@pytest.mark.parametrize("program", ["agent", "coordinator"])
def test_a_program_is_ready_then_alive_then_leaving(
    program: str, make_fleet: MakeFleet, ear: Ear
) -> None:
    """R242: and while it does not go round, it is not alive."""
    fleet = make_fleet(lease_seconds=4)
    fleet.be_services_of(ear.address, watchdog_seconds=2)
    process = fleet.agent("one") if program == "agent" else fleet.coordinator("one")
    wait_for(lambda: ear.heard("READY=1") == 1)
    wait_for(lambda: ear.heard("WATCHDOG=1") >= 3)
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)  # What was under way when the signal came.
    before = ear.heard("WATCHDOG=1")
    time.sleep(3)
    assert ear.heard("WATCHDOG=1") == before
    process.send_signal(signal.SIGCONT)
    wait_for(lambda: ear.heard("WATCHDOG=1") > before)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert (ear.heard("READY=1"), ear.heard("STOPPING=1")) == (1, 1)


def test_an_agent_that_drains_is_not_yet_leaving(
    make_fleet: MakeFleet, ear: Ear, tmp_path: Path
) -> None:
    """R242: from when it says so, a service manager gives it seconds."""
    fleet = make_fleet(lease_seconds=4)
    fleet.be_services_of(ear.address, watchdog_seconds=2)
    agent = fleet.agent("one")
    gate = tmp_path / "gate"
    running = fleet.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done", spec=Spec(command=""))
    fleet.started("one", running.job_ids[0])
    agent.send_signal(signal.SIGTERM)
    wait_for(lambda: "event=draining" in fleet.log("one"))
    before = ear.heard("WATCHDOG=1")
    wait_for(lambda: ear.heard("WATCHDOG=1") > before)
    assert ear.heard("STOPPING=1") == 0
    gate.touch()
    assert agent.wait(20) == 0
    assert ear.heard("STOPPING=1") == 1


def test_quit_ends_an_agent_at_once_and_its_job_goes_on_to_the_next(
    make_fleet: MakeFleet, ear: Ear, tmp_path: Path
) -> None:
    """R241: and the job hears nothing of the service manager."""
    fleet = make_fleet(lease_seconds=4)
    fleet.be_services_of(ear.address, watchdog_seconds=60)
    agent = fleet.agent("one")
    gate, trace = tmp_path / "gate", tmp_path / "trace"
    command = (
        f'echo "begun ${{NOTIFY_SOCKET-}}${{WATCHDOG_USEC-}}" >> {trace}; '
        f"while [ ! -e {gate} ]; do sleep 0.05; done"
    )
    running = fleet.submit(command, spec=Spec(command=""))
    fleet.started("one", running.job_ids[0])
    wait_for(trace.exists)
    agent.send_signal(signal.SIGQUIT)
    assert agent.wait(6) == 0
    fleet.agent("one")
    wait_for(lambda: fleet.log("one").count("event=agent_started") == 2)
    gate.touch()
    assert set(fleet.wait_at_rest(running).values()) == {State.COMPLETED}
    assert trace.read_text() == "begun \n"


def test_quit_ends_an_agent_that_waits_for_its_store(tmp_path: Path) -> None:
    """R241"""
    import subprocess
    import sys

    from tests.cli.conftest import PYTHON_PATH

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # Nobody listens there.
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "stado.cli.main", "agent", "run"),
                *("--store", "s3://lab-jobs/stado", "--endpoint", endpoint, "--region", "here"),
                *("--work-dir", str(tmp_path / "work")),
            ],
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": str(tmp_path),
                "PYTHONPATH": PYTHON_PATH,
                "AWS_ACCESS_KEY_ID": "x",
                "AWS_SECRET_ACCESS_KEY": "x",
            },
            stderr=subprocess.PIPE,
        )
        try:
            assert process.stderr is not None
            assert b"event=" in process.stderr.readline()  # That the store does not answer.
            process.send_signal(signal.SIGQUIT)
            assert process.wait(10) == 0
        finally:
            process.kill()
            process.communicate()
