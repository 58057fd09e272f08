"""A cancel with real processes: nothing of the job lives when it is reported."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from stado.core.states import Reason, State, Verdict
from stado.jobs.changes import cancel, pause
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import wait_for
from tests.system.commands import stuck

ESCAPE = """
import os, signal, subprocess, sys, time
trace = sys.argv[1]
child = [sys.executable, "-c", "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
         "time.sleep(300)", trace]
subprocess.Popen(child, start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, child)
    os._exit(0)
subprocess.Popen(child)
open(trace, "w").close()
"""


def _living(marker: str) -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        ended = process.info["status"] == psutil.STATUS_ZOMBIE
        if not ended and marker in (process.info["cmdline"] or []):
            found.append(process.pid)
    return found


@pytest.mark.parametrize(
    ("last", "ask", "state"),
    [
        ("sleep 300", cancel, State.CANCELLED),
        ("wait; sleep 300", pause, State.PAUSED),
    ],
)
def test_children_that_left_group_and_session_do_not_survive_a_cancel_or_a_pause(
    make_fleet: MakeFleet, tmp_path: Path, last: str, ask: Callable[..., object], state: State
) -> None:
    """A21, A22, R205: one by setsid, one by a double fork, one in the group, all deaf to TERM."""
    fleet = make_fleet()
    fleet.agent("one")
    script, trace = tmp_path / "escape.py", tmp_path / "trace"
    script.write_text(ESCAPE)
    submission = fleet.submit(f"{sys.executable} {script} {trace}; {last}")
    (job_id,) = submission.job_ids
    wait_for(lambda: trace.exists() and len(_living(str(trace))) == 3)
    ask(fleet.repo, job_id, by="ada")
    assert fleet.wait_at_rest(submission) == {job_id: state}
    assert _living(str(trace)) == []


def test_a_shell_that_exits_at_once_takes_its_children_along(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """A21, R203: they end with it, as what a command leaves running."""
    fleet = make_fleet()
    fleet.agent("one")
    script, trace = tmp_path / "escape.py", tmp_path / "trace"
    script.write_text(ESCAPE)
    submission = fleet.submit(f"{sys.executable} {script} {trace}; echo done")
    (job_id,) = submission.job_ids
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    assert trace.exists()
    assert _living(str(trace)) == []
    assert "ended the processes its job left running in process group" in fleet.log("one")


def test_children_that_left_the_session_do_not_survive_their_supervisor(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """A21: agent and supervisor are killed; the next agent ends what it finds in the note."""
    fleet = make_fleet(lease_seconds=2)
    agent = fleet.agent("one")
    script, trace = tmp_path / "escape.py", tmp_path / "trace"
    script.write_text(ESCAPE)
    submission = fleet.submit(
        f"[ $STADO_EPOCH = 2 ] || {{ {sys.executable} {script} {trace}; sleep 300; }}"
    )
    (job_id,) = submission.job_ids
    wait_for(lambda: trace.exists() and len(_living(str(trace))) == 3)
    started = fleet.started("one", job_id)
    agent.kill()
    agent.wait()
    os.kill(started.supervisor, signal.SIGKILL)
    contained = "contains_by=cgroup" in fleet.log("one")
    fleet.agent("one")
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    first = fleet.story(job_id).epochs[0].end
    assert first is not None
    assert (first.ending.verdict, first.ending.reason) == (Verdict.LOST, Reason.SUPERVISOR_DIED)
    left = _living(str(trace))
    # Without control groups nobody can tell whose children these were.
    assert left == [] if contained else len(left) <= 2
    for pid in left:
        os.kill(pid, signal.SIGKILL)


def test_a_cancel_waits_for_what_is_stuck_in_the_kernel_and_names_it(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """A22, A24: `status` says cancelling, with the process and how often it was killed, and never
    cancelled while it lives. Where this host lets us make nothing stuck, it ends at once."""
    fleet = make_fleet(lease_seconds=4)
    fleet.agent("one")
    fleet.coordinator()
    own = tmp_path / "pid"
    submission = fleet.submit(f"setsid sh -c 'echo $$ > {own}; exec sleep 300' & sleep 300")
    (job_id,) = submission.job_ids
    wait_for(lambda: own.exists() and own.read_text().endswith("\n"))
    pid = int(own.read_text())
    with stuck(pid) as held:
        cancel(fleet.repo, job_id, by="ada")
        if held:
            wait_for(lambda: "still alive" in fleet.stado("status", submission.run_id).stderr)
            told = fleet.stado("status", submission.run_id)
            assert "cancelling" in told.stdout
            named = rf"killed \d+ times and still alive: process {pid} \(sleep, in uninterruptible"
            assert re.search(named, told.stderr)
            time.sleep(2 * fleet.repo.deployment.lease_seconds)
            assert fleet.states(submission) == {job_id: State.RUNNING}
    assert fleet.wait_at_rest(submission) == {job_id: State.CANCELLED}
    assert fleet.story(job_id).record.epoch == 1
    assert not Path(f"/proc/{pid}").exists()


def test_a_cancel_takes_a_check_in_and_what_the_command_needs(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """R102: ten of them, on an idle store; the command needs 0.2 s."""
    fleet = make_fleet(lease_seconds=8)
    fleet.agent("one")
    command = "trap 'sleep 0.2; exit 3' TERM; while :; do sleep 0.02; done"
    submission = fleet.submit(*[command] * 10)
    wait_for(lambda: set(fleet.states(submission).values()) == {State.RUNNING})
    began = time.monotonic()
    for job_id in submission.job_ids:
        cancel(fleet.repo, job_id, by="ada")
    assert set(fleet.wait_at_rest(submission).values()) == {State.CANCELLED}
    check_in = fleet.repo.deployment.tick_seconds
    assert time.monotonic() - began < check_in + 0.2 + 1.5
