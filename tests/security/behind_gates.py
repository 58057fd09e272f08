"""A bucket that each role reaches through a gate with its policy, and the programs as people run
them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from stado.composition import live_machine, open_repository
from stado.core import keys
from stado.core.states import State
from stado.jobs.repository import Repository
from stado.settings import Settings
from stado.storage.observe import Operation
from stado_agent.workspace import HostFolder
from tests.cli.conftest import PYTHON_PATH
from tests.security.asking import Request
from tests.security.command_line import stado
from tests.security.gate import Gate, open_gate
from tests.security.policies import ROLES, s3_policy
from tests.servers import Server

_LEASE_SECONDS = 8
_SECONDS_MAX = 60
_POLL_SECONDS = 0.05
_STOP_SECONDS_MAX = 20


@dataclass
class Deployment:
    """One bucket, five gates."""

    gates: dict[str, Gate]
    bucket: str
    folder: Path
    environment: dict[str, str]
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def stado(self, role: str, *arguments: str, code: int = 0) -> str:
        """Its stdout."""
        done = stado(self._environment_of(role), *arguments)
        assert done.exit_code == code, f"{role}: stado {' '.join(arguments)}: {done.output}"
        return done.stdout.strip()

    def start(self, role: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{role}.log").open("ab") as log:
            process = subprocess.Popen(
                self._argv(*arguments),
                env=self._environment_of(role),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        return process

    def wait_running(self, job_id: str) -> None:
        self._wait_for_agent(Request(Operation.CREATE, keys.heartbeat(job_id)))

    def wait_at_rest(self, job_id: str) -> None:
        self._wait_for_agent(
            Request(Operation.DELETE, keys.record(State.RUNNING, job_id), versioned=True)
        )

    def _wait_for_agent(self, request: Request) -> None:
        """For something that the agent asks of the store. One that is refused goes on trying, so
        that nothing more can be waited for."""
        gate = self.gates["agent"]
        deadline = time.monotonic() + _SECONDS_MAX
        while request not in gate.requests:
            assert not gate.refused
            assert time.monotonic() < deadline, f"no agent asked for {request}"
            time.sleep(_POLL_SECONDS)

    def repository(self) -> Repository:
        """For the test itself, with a submitter's rights."""
        settings = Settings(store=f"s3://{self.bucket}", endpoint=self.gates["submitter"].endpoint)
        return open_repository(settings, live_machine())

    def stop(self) -> None:
        """Programs, and what supervisors still run when a test has failed."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(_STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for host in (self.folder / "hosts").glob("*"):
            for note in HostFolder(host.parent, host.name).notes():
                _kill_tree(note.supervisor.pid)

    @staticmethod
    def _argv(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "stado.cli.main", *arguments]

    def _environment_of(self, role: str) -> dict[str, str]:
        return {
            **self.environment,
            "STADO_STORE": f"s3://{self.bucket}",
            "STADO_ENDPOINT": self.gates[role].endpoint,
            "USER": role,
        }


def _kill_tree(pid: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        supervisor = psutil.Process(pid)
        for process in [*supervisor.children(recursive=True), supervisor]:
            process.kill()


@contextmanager
def deployment(server: Server, folder: Path, bucket: str) -> Iterator[Deployment]:
    """Made by its operator."""
    server.make_bucket(bucket)
    kept = {name: os.environ[name] for name in ("PATH",)}
    environment = {**kept, **server.environment, "HOME": str(folder), "PYTHONPATH": PYTHON_PATH}
    with ExitStack() as exits:
        gates = {
            role: exits.enter_context(open_gate(server.endpoint, s3_policy(role))) for role in ROLES
        }
        made = Deployment(gates, bucket, folder, {**environment, "COLUMNS": "200"})
        exits.callback(made.stop)
        lease = str(_LEASE_SECONDS)
        made.stado("operator", "init", f"s3://{bucket}", "--lease-seconds", lease)
        yield made
