"""A deployment that is measured, with an agent when one is wanted."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from stado.composition import live_machine, open_repository, open_store_of
from stado.core.records import LEASE_SECONDS_DEFAULT, Proof
from stado.core.spec import Spec, make_request
from stado.jobs.deployments import make_deployment
from stado.jobs.repository import Repository
from stado.jobs.status import states_of
from stado.jobs.submit import Submission, submit
from stado.settings import Settings

ROOT = Path(__file__).parents[2]
SPEC = Spec(command="", cpu=1)
_POLL_SECONDS = 0.2


@dataclass(slots=True)
class Bench:
    """An opened deployment."""

    repo: Repository
    settings: Settings
    folder: Path
    environment: dict[str, str]
    runs: int = field(default=0)

    def submit(self, commands: list[str]) -> Submission:
        self.runs += 1
        request = make_request(commands, SPEC, batch=len(commands) > 1)
        return submit(self.repo, run_id=f"bench-{self.runs}", request=request, submitter="bench")

    def wait(self, submission: Submission) -> None:
        """Until all jobs of it are at rest; at most five minutes."""
        deadline = time.monotonic() + 300
        while True:
            states = states_of(self.repo, submission.base_id)
            if len(states) == len(submission.job_ids) and all(s.at_rest for s in states.values()):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{submission.run_id} did not end")
            time.sleep(_POLL_SECONDS)

    @contextmanager
    def agent(self, *options: str) -> Iterator[None]:
        """An agent that is ready; stopped in good order at the end."""
        ready = self.folder / "agent.log"
        with ready.open("wb") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "stado_agent.main"),
                    *("--work-dir", str(self.folder / "host"), *options),
                ],
                env={**os.environ, **self.environment},
                stderr=log,
            )
        try:
            while b"agent_started" not in ready.read_bytes():
                if process.poll() is not None:
                    raise RuntimeError(ready.read_text())
                time.sleep(0.02)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


@contextmanager
def bench_deployment(
    folder: Path,
    settings: Settings | None = None,
    environment: dict[str, str] | None = None,
    *,
    lease_seconds: float = LEASE_SECONDS_DEFAULT,
) -> Iterator[Bench]:
    """On a directory below `folder`, or where `settings` says."""
    folder.mkdir(parents=True)
    chosen = settings or Settings(store=str(folder / "store"))
    path = os.pathsep.join(str(ROOT / name) for name in (".", "agent", "coordinator"))
    machine = live_machine()
    store = open_store_of(chosen, machine, create=True)
    proof = Proof(create_if_absent=True, compare_and_swap=True, conditional_delete=True)
    make_deployment(
        store, entropy=machine.entropy, proof=proof, by="bench", lease_seconds=lease_seconds
    )
    store.close()
    repo = open_repository(chosen, machine)
    try:
        yield Bench(
            repo,
            chosen,
            folder,
            {**(environment or {}), **chosen.environment(), "PYTHONPATH": path},
        )
    finally:
        repo.store.close()


def children_cpu_seconds() -> float:
    """CPU of all processes that this one has waited for, and those that they waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
