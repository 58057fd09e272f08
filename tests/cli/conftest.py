"""A deployment in a folder, the command line on it, and hands to move its jobs along."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stado.cli.main import cli
from stado.core import keys
from stado.core.records import Capacity, Ending, Heartbeat, Phase, Proof, Ran
from stado.core.states import Reason, Verdict
from stado.jobs.claim import Claimant, Claimed, claim
from stado.jobs.deployments import make_deployment
from stado.jobs.endings import give_verdict, settle, settle_own
from stado.jobs.log_segments import write_segment
from stado.jobs.queue_index import read_page
from stado.jobs.repository import Repository
from stado.storage.file import FileStore
from stado.system.clock import LiveClock
from stado.system.entropy import LiveEntropy
from stado.system.tasks import LiveTasks
from stado.version import VERSION

ROOT = Path(__file__).parents[2]
PYTHON_PATH = os.pathsep.join(str(ROOT / folder) for folder in (".", "agent", "coordinator"))
WORKER = Claimant(consumer="local@box", incarnation="i1", host="box")
USER = "ada"


@dataclass(frozen=True)
class World:
    """A deployment and who moves its jobs."""

    repo: Repository
    path: Path

    def claim(self, job_id: str) -> Claimed:
        """Claims a queued job as an agent does."""
        entry = next(entry for entry in read_page(self.repo).entries if entry.job_id == job_id)
        claimed = claim(self.repo, entry, WORKER)
        assert claimed is not None
        return claimed

    def beat(self, claimed: Claimed, phase: Phase, **fields: Any) -> None:
        """Writes a heartbeat as the holder does."""
        holder = claimed.record.holder
        assert holder is not None
        beat = Heartbeat(
            epoch=claimed.record.epoch,
            token=holder.token,
            by=holder.consumer,
            at=self.repo.now(),
            phase=phase,
            started_at=self.repo.now(),
        )
        data = beat.evolve(**fields).encode()
        self.repo.store.put(keys.heartbeat(claimed.record.id), data)

    def end(self, claimed: Claimed, verdict: Verdict, **fields: Any) -> None:
        """Ends a claimed epoch as its supervisor does."""
        now = self.repo.now()
        began_at = fields.get("started_at")
        if began_at is not None:
            fields = {"ran": Ran(began_at=began_at, ended_at=now)} | fields
        ending = Ending(verdict=verdict, ended_at=now, by=WORKER.consumer, **fields)
        cell, _ = give_verdict(self.repo, claimed.record, ending)
        if verdict is Verdict.LOST:
            settle(self.repo, claimed.record.id, claimed.record.epoch)
        else:
            settle_own(self.repo, cell, claimed.running_version)

    def complete(self, job_id: str) -> None:
        claimed = self.claim(job_id)
        self.end(claimed, Verdict.COMPLETED, exit_code=0, started_at=self.repo.now())

    def fail(self, job_id: str, exit_code: int) -> None:
        self.end(
            self.claim(job_id),
            Verdict.FAILED,
            reason=Reason.JOB_FAILED,
            detail=f"the command exited with {exit_code}",
            exit_code=exit_code,
            started_at=self.repo.now(),
        )

    def log(self, job_id: str, data: bytes, *, epoch: int = 1, offset: int = 0) -> None:
        write_segment(self.repo, job_id, epoch, offset, data)


class Program:
    """`stado`, in this process or in one of its own."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)

    def __call__(self, *args: str, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(cli, args, input=stdin)

    def ok(self, *args: str, stdin: bytes | None = None) -> str:
        """Its stdout, without the last line end."""
        result = self(*args, stdin=stdin)
        assert result.exit_code == 0, result.stderr
        return result.stdout.rstrip("\n")

    def json(self, *args: str) -> dict[str, Any]:
        """The one document on stdout, whatever the exit code."""
        document: dict[str, Any] = json.loads(self(*args, "--json").stdout)
        assert document["schema"] == 1
        return document

    def start(self, *args: str, **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "stado.cli.main", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment | options.pop("environment", {}),
            **options,
        )

    def refused(self, *args: str, stdin: bytes | None = None, code: int = 2) -> str:
        """The sentence on stderr of a command that must not succeed."""
        result = self(*args, stdin=stdin)
        assert result.exit_code == code, result.output
        assert result.stderr.startswith("stado: ")
        assert result.stdout == ""
        return result.stderr.removeprefix("stado: ").rstrip("\n")


def make_world(path: Path, lease_seconds: float = 120.0) -> World:
    path.mkdir()
    machine = LiveClock(), LiveEntropy(), LiveTasks()
    clock, entropy, tasks = machine
    store = FileStore(path, clock, entropy, durable=False)
    proof = Proof(create_if_absent=True, compare_and_swap=True, conditional_delete=True)
    deployment, _ = make_deployment(
        store, entropy=entropy, proof=proof, lease_seconds=lease_seconds, by=USER
    )
    return World(Repository(store, deployment, clock=clock, entropy=entropy, tasks=tasks), path)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Of a user who has no settings; `STADO_STORE` names the folder of `world`."""
    home = tmp_path / "home"
    home.mkdir()
    for name in [name for name in os.environ if name.startswith(("STADO_", "WC_"))]:
        monkeypatch.delenv(name)
    values = {
        "HOME": str(home),
        "USER": USER,
        "STADO_STORE": str(tmp_path / "store"),
        "PYTHONPATH": PYTHON_PATH,
        "COLUMNS": "100",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return dict(os.environ)


@pytest.fixture
def stado(environment: dict[str, str]) -> Program:
    return Program(environment)


@pytest.fixture
def world(environment: dict[str, str]) -> World:
    return make_world(Path(environment["STADO_STORE"]))


@pytest.fixture
def quick_world(environment: dict[str, str]) -> World:
    """A deployment whose lease is a second."""
    return make_world(Path(environment["STADO_STORE"]), lease_seconds=1.0)


def run_each(processes: Sequence[subprocess.Popen[bytes]]) -> list[tuple[int, bytes, bytes]]:
    """Waits for processes; exit code, stdout, stderr of each."""
    outputs = [process.communicate(timeout=100) for process in processes]
    return [
        (process.returncode, *output) for process, output in zip(processes, outputs, strict=True)
    ]


def report(world: World, consumer: str, *, age_seconds: float = 0.0, **changes: Any) -> None:
    """An agent's broadcast of so long ago and a second, as files' times lag by a clock's tick."""
    capacity = Capacity(
        consumer=consumer,
        incarnation="i1",
        host="box",
        at=world.repo.now(),
        counter=1,
        broadcast_seconds=3600,
        cpu_total=8,
        cpu_free=6.5,
        memory_total_gb=64,
        memory_free_gb=60,
        disk_free_gb=1234.5,
        version=VERSION,
        contains_by="cgroup-v2",
        limits_memory_by="watchdog",
    )
    world.repo.store.put(keys.capacity(consumer), capacity.evolve(**changes).encode())
    if age_seconds:
        then = time.time() - age_seconds - 1
        os.utime(world.path / keys.capacity(consumer), (then, then))
