"""Processes in words."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from stado.ports import ProcessIdentity
from stado.system.processes import LiveProcesses
from tests.system.commands import Printed, command, eventually, kill


def test_a_process_is_told_by_its_number_and_name(tmp_path: Path) -> None:
    processes = LiveProcesses()
    job = processes.start(command(tmp_path, "sleep", "60"))
    pid = job.identity.pid
    assert eventually(lambda: processes.describe(job.identity) == f"process {pid} (sleep)")
    os.kill(pid, signal.SIGSTOP)
    told = f"process {pid} (sleep, stopped)"
    assert eventually(lambda: processes.describe(job.identity) == told)
    os.kill(pid, signal.SIGKILL)
    told = f"process {pid} (sleep, a zombie)"
    assert eventually(lambda: processes.describe(job.identity) == told)
    kill(job)
    assert processes.describe(job.identity) == f"process {pid} (gone)"


def test_a_pid_that_was_given_away_is_not_described_as_its_new_owner() -> None:
    processes = LiveProcesses()
    ours = processes.own_identity()
    earlier = ProcessIdentity(ours.pid, ours.started - 1)
    assert processes.describe(earlier) == f"process {ours.pid} (gone)"


def test_a_name_that_would_garble_a_terminal_is_shown_harmless(tmp_path: Path) -> None:
    program = tmp_path / "a\x1b[31m\nb"
    program.symlink_to("/bin/sleep")
    processes = LiveProcesses()
    job = processes.start(command(tmp_path, str(program), "60"))
    told = f"process {job.identity.pid} (a?[31m?b)"
    assert eventually(lambda: processes.describe(job.identity) == told)
    kill(job)


def test_an_account_is_named_when_it_is_not_ours(tmp_path: Path) -> None:
    """Only root can start what is not its own; for others the account is left out."""
    script = (
        "import os, time\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "print(os.getuid(), flush=True)\n"
        "time.sleep(60)\n"
    )
    printed = Printed()
    processes = LiveProcesses()
    job = processes.start(command(tmp_path, sys.executable, "-S", "-c", script, sink=printed))
    assert eventually(lambda: printed.text.endswith("\n"))
    told = processes.describe(job.identity)
    assert told.endswith(", uid 65534)" if printed.text == "65534\n" else ")")
    assert ("uid" in told) == (printed.text != f"{os.getuid()}\n")
    kill(job)
