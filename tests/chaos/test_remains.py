"""What is left on a machine is found: processes, folders, control groups, tracebacks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stado.ports import ProcessIdentity
from tests.chaos import remains
from tests.chaos.disks import small_disk
from tests.chaos.processes import (
    HOST_VARIABLE,
    RUN_VARIABLE,
    kill_all,
    leaders,
    marked,
    supervisors,
)
from tests.chaos.shifted_clock import FILE_VARIABLE
from tests.e2e.fleet import ROOT
from tests.system.commands import eventually


@pytest.fixture
def run() -> Iterator[str]:
    name = f"test-{os.getpid()}"
    yield name
    kill_all(name)
    assert eventually(lambda: not marked(name))


def _start(run: str, script: str, **variables: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, RUN_VARIABLE: run, HOST_VARIABLE: "one", **variables}
    return subprocess.Popen(["sh", "-c", script], env=environment)


def test_a_process_of_a_job_is_found_wherever_it_went(run: str) -> None:
    shell = _start(run, "setsid sleep 60 & exit 0", STADO_JOB_ID="job-1")
    shell.wait()
    assert eventually(lambda: [one.what for one in remains.processes_of_jobs(run)] == ["job-1"])
    assert [one.what for one in remains.processes(run)] == ["one"]


def test_nothing_is_found_of_another_run_or_when_all_have_ended(run: str) -> None:
    other = _start(f"{run}-other", "exec sleep 60", STADO_JOB_ID="job-1")
    gone = _start(run, "exit 0", STADO_JOB_ID="job-2")
    gone.wait()
    assert remains.processes(run) == []
    other.kill()
    other.wait()


def test_agents_supervisors_and_commands_are_told_apart(run: str) -> None:
    """As they are: an agent is started by the run, its supervisors by the agent."""
    job = f"STADO_JOB_ID=job-1 setsid {sys.executable} -c 'import time; time.sleep(60)'"
    agent = _start(run, f'sh -c "{job} & wait" & wait')
    assert eventually(lambda: len(marked(run)) == 3)
    found = marked(run)
    (supervisor,) = supervisors("one", found)
    assert supervisor.pid != agent.pid
    assert supervisors("two", found) == []
    assert eventually(lambda: [one.job_id for one in leaders(supervisor, marked(run))] == ["job-1"])
    for one in found:
        one.send(signal.SIGKILL)
    agent.wait()


def test_folders_of_jobs_that_are_over_are_found(tmp_path: Path) -> None:
    for name in ("jobs/a.1", "supervisors"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "lock").touch()
    (tmp_path / "supervisors" / "7.json").touch()
    found = remains.folders([tmp_path])
    assert [Path(one.what).name for one in found] == ["a.1", "7.json"]


def test_control_groups_are_found_by_who_made_them(tmp_path: Path) -> None:
    for name in ("a/stado-7-100-3", "a/stado-7-101", "stado-7-100", "stado-agent"):
        (tmp_path / name).mkdir(parents=True)
    found = remains.groups({ProcessIdentity(7, 100)}, [tmp_path])
    assert sorted(Path(one.what).name for one in found) == ["stado-7-100", "stado-7-100-3"]


def test_a_traceback_is_found_and_shown(tmp_path: Path) -> None:
    bad, good = tmp_path / "bad.log", tmp_path / "good.log"
    bad.write_text("event=begun\nTraceback (most recent call last):\n  line\nKeyError: 'x'\n")
    good.write_text("event=begun\n")
    (found,) = remains.tracebacks([bad, good])
    assert found.what == "bad.log"
    assert "KeyError: 'x'" in found.text


def test_a_small_disk_is_full_until_it_is_freed(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", megabytes=1) as disk:
        file = disk.seen_from_outside / "file"
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            file.write_bytes(b"1")
        disk.free()
        write = ["sh", "-c", f"echo seen > {tmp_path}/disk/file"]
        subprocess.run(disk.entering(write), check=True)
        assert file.read_text() == "seen\n"
        assert list((tmp_path / "disk").iterdir()) == []


@pytest.mark.parametrize("ahead", [-3600, 0, 240])
def test_a_shifted_clock_shifts_what_stado_and_the_sdk_read(tmp_path: Path, ahead: int) -> None:
    (tmp_path / "clock").write_text(str(ahead))
    code = (
        "from tests.chaos.shifted_clock import install\n"
        "install()\n"
        "import time\n"
        "from botocore.compat import get_current_datetime\n"
        "from stado.system.clock import LiveClock\n"
        "print(time.time(), LiveClock().now().timestamp())\n"
        "print(get_current_datetime(remove_tzinfo=False).timestamp())\n"
    )
    environment = {
        **os.environ,
        FILE_VARIABLE: str(tmp_path / "clock"),
        "STADO_STORE": "s3://bucket",
        "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in (".", "agent", "coordinator")),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True
    )
    now = datetime.now(UTC).timestamp()
    for read in done.stdout.split():
        assert abs(float(read) - now - ahead) < 30
