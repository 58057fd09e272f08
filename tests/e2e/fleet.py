"""Real agents and coordinators as processes, on a store of their own, certainly ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from stado.composition import live_machine, open_repository, open_store_of
from stado.core.records import Proof
from stado.core.spec import Spec, make_request
from stado.core.states import State
from stado.jobs.deployments import make_deployment
from stado.jobs.repository import Repository
from stado.jobs.status import Story, states_of, story
from stado.jobs.submit import Submission, submit
from stado.settings import Settings
from stado_agent.workspace import HostFolder
from tests.engines.nvml import NvidiaStandIn

ROOT = Path(__file__).parents[2]
_POLL_SECONDS = 0.05
_STOP_SECONDS_MAX = 20.0
SMALL = Spec(command="", cpu=0.1, memory_gb=0.05)
"""A job that many fit beside."""


@dataclass(frozen=True)
class Started:
    """A job's processes: its supervisor, and the leader of its command's process group."""

    supervisor: int
    leader: int

    def kill(self) -> None:
        """Everything, at once, as a host that loses its power."""
        os.kill(self.supervisor, signal.SIGKILL)
        os.killpg(self.leader, signal.SIGKILL)


class Fleet:
    """A deployment with processes of ours on it."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        *,
        lease_seconds: float,
        environment: Mapping[str, str] | None = None,
        conditional_delete: bool = True,
    ) -> None:
        self.settings = settings
        self.folder = folder
        self._environment = {
            **os.environ,
            **(environment or {}),
            **settings.environment(),
            "PYTHONPATH": os.pathsep.join(
                str(ROOT / name) for name in (".", "agent", "coordinator")
            ),
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self._runs = 0
        machine = live_machine()
        store = open_store_of(settings, machine, create=True)
        make_deployment(
            store,
            entropy=machine.entropy,
            proof=Proof(
                create_if_absent=True,
                compare_and_swap=True,
                conditional_delete=conditional_delete,
            ),
            by="tests",
            lease_seconds=lease_seconds,
            cancel_grace_seconds=1.0,
        )
        store.close()
        self.repo: Repository = open_repository(settings, machine)

    def reach_store_by(self, settings: Settings) -> None:
        """How processes that are started from here on reach the store."""
        self._environment |= settings.environment()

    def live_in(self, time_zone: str) -> None:
        """Where processes that are started from here on are."""
        self._environment |= {"TZ": time_zone}

    def see_cards_of(self, nvidia: NvidiaStandIn) -> None:
        """Agents that are started from here on find a driver of NVIDIA's."""
        self._environment = nvidia.environment_over(self._environment)

    def find_programs_in(self, folder: Path) -> None:
        """Before all others, by processes that are started from here on."""
        self._environment |= {"PATH": f"{folder}{os.pathsep}{self._environment['PATH']}"}

    def be_services_of(self, address: str, *, watchdog_seconds: float) -> None:
        """Processes that are started from here on find a service manager."""
        told = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": str(round(watchdog_seconds * 1e6))}
        self._environment |= told

    def authenticate_by(self, file: Path) -> None:
        """Processes that are started from here on find their AWS credentials there alone."""
        kept = {n: v for n, v in self._environment.items() if not n.startswith("AWS_")}
        self._environment = kept | {
            "AWS_SHARED_CREDENTIALS_FILE": str(file),
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    # --- processes ----------------------------------------------------------------------

    def agent(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        work_dir = str(self.folder / "hosts")
        return self._start(name, "agent", "--consumer-id", name, "--work-dir", work_dir, *options)

    def agent_on_small_disk(self, name: str, *, megabytes: int) -> subprocess.Popen[bytes]:
        """Its work folder is a file system of this size that it alone sees (Linux)."""
        hosts = self.folder / "hosts"
        hosts.mkdir(exist_ok=True)
        namespace = ["unshare", "--mount"]
        if os.geteuid() != 0:
            namespace += ["--user", "--map-root-user"]
        mount = f'mount -t tmpfs -o size={megabytes}m tmpfs "$0" && exec "$@"'
        program = self._argv("agent", "--consumer-id", name, "--work-dir", str(hosts))
        return self._run(name, [*namespace, "sh", "-c", mount, str(hosts), *program])

    def coordinator(self, name: str = "coordinator", *options: str) -> subprocess.Popen[bytes]:
        return self._start(name, "coordinator", *options)

    def _start(self, name: str, program: str, *options: str) -> subprocess.Popen[bytes]:
        return self._run(name, self._argv(program, *options))

    @staticmethod
    def _argv(program: str, *options: str) -> list[str]:
        return [sys.executable, "-m", "stado.cli.main", program, "run", *options]

    def _run(self, name: str, argv: list[str]) -> subprocess.Popen[bytes]:
        with self.log_path(name).open("ab") as log:
            process = subprocess.Popen(
                argv,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def log_path(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def log(self, name: str) -> str:
        return self.log_path(name).read_text(errors="replace")

    def find_started(self, agent: str, job_id: str) -> Started | None:
        """The processes of a job, once its command was started."""
        for note in HostFolder(self.folder / "hosts", agent).notes():
            if note.job_id != job_id:
                continue
            supervisor = note.supervisor.pid
            for pid in _session(supervisor) - {supervisor}:
                if os.getpgid(pid) == pid:
                    return Started(supervisor, pid)
        return None

    def started(self, agent: str, job_id: str) -> Started:
        """Waits for the start of a job's command."""
        wait_for(lambda: self.find_started(agent, job_id), what=lambda: f"{job_id} has not started")
        found = self.find_started(agent, job_id)
        assert found is not None
        return found

    def stop(self) -> None:
        """TERM to all, KILL to who does not heed it, and to whatever supervisors are left.

        Fails when one had ended by itself."""
        failed = {
            process.args[-1]: process.poll() for process in self._processes if _failed(process)
        }
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS_MAX
        for process in self._processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for host in (self.folder / "hosts").glob("*"):
            for note in HostFolder(self.folder / "hosts", host.name).notes():
                for pid in _session(note.supervisor.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        self.repo.store.close()
        shutil.rmtree(self.folder / "hosts", ignore_errors=True)
        assert not failed, f"ended by themselves: {failed}"

    def stado(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command line, as a person calls it on a wide screen."""
        return subprocess.run(
            [sys.executable, "-m", "stado.cli.main", *arguments],
            env={**self._environment, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def expect_failure(self, process: subprocess.Popen[bytes]) -> int:
        """The exit code of one that is to end by itself."""
        code = process.wait(30)
        self._processes.remove(process)
        return code

    # --- jobs ---------------------------------------------------------------------------

    def submit(self, *commands: str, spec: Spec = SMALL) -> Submission:
        self._runs += 1
        batch = len(commands) > 1
        request = make_request(list(commands), spec, batch=batch)
        return submit(self.repo, run_id=f"run-{self._runs}", request=request, submitter="tests")

    def states(self, submission: Submission) -> dict[str, State]:
        return states_of(self.repo, submission.base_id)

    def story(self, job_id: str) -> Story:
        return story(self.repo, job_id)

    def wait_at_rest(self, submission: Submission, *, seconds: float = 60) -> dict[str, State]:
        """The states once all jobs are at rest."""
        states: dict[str, State] = {}

        def ended() -> bool:
            states.clear()
            states.update(self.states(submission))
            return len(states) == len(submission.job_ids) and all(
                state.at_rest for state in states.values()
            )

        wait_for(ended, seconds=seconds, what=lambda: f"the jobs are {states}")
        return states


def _failed(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() not in (None, 0, -signal.SIGKILL)


def _session(leader: int) -> set[int]:
    """The living processes of a supervisor's session."""
    found = set()
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(pid) == leader and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.add(pid)
    return found


def wait_for(
    condition: Callable[[], object],
    *,
    seconds: float = 30,
    every_seconds: float = _POLL_SECONDS,
    what: Callable[[], str] = lambda: "the condition did not come true",
) -> None:
    """Returns as soon as the condition holds; fails when the time is over."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"after {seconds} s {what()}"
        time.sleep(every_seconds)
