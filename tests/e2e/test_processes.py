"""What a job may count on, and what it cannot leave behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from stado.core import keys
from stado.core.records import Capacity
from stado.core.spec import Spec
from stado.core.states import Reason, State
from stado.jobs.changes import cancel, pause_queue, resume_queue
from stado.jobs.downloads import download
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import SMALL, Fleet, wait_for
from tests.jobs.world import stored_log


def _reason(fleet: Fleet, job_id: str) -> Reason | None:
    ending = fleet.story(job_id).record.ending
    assert ending is not None
    return ending.reason


def _gone(pid_file: Path) -> bool:
    """A zombie has ended; whether it was waited for yet is its parent's business."""
    try:
        status = Path(f"/proc/{pid_file.read_text().strip()}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


def _running(marker: str) -> bool:
    """Whether any process that lives has this among its arguments, a job's shell apart."""
    for process in psutil.process_iter(["cmdline", "status"]):
        arguments = process.info["cmdline"] or []
        if marker in arguments and process.info["status"] != psutil.STATUS_ZOMBIE:
            return True
    return False


def test_what_a_command_leaves_running_in_its_group_is_ended_and_logged(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """R202, R203: the line of the log names the job and the process group."""
    fleet = make_fleet()
    fleet.agent("one")
    child = tmp_path / "child"
    submission = fleet.submit(f"sleep 300 & echo $! > {child}")
    (job_id,) = submission.job_ids
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    assert _gone(child)
    line = f"{job_id}: ended the processes its job left running in process group "
    assert fleet.log("one").count(line) == 1


@pytest.mark.parametrize(
    "escape",
    ["setsid sleep 300", "timeout 300 sleep 300", "sh -c 'setsid sleep 300 & :'"],
    ids=["session", "group", "double fork"],
)
def test_what_left_the_group_is_ended_too(
    make_fleet: MakeFleet, tmp_path: Path, escape: str
) -> None:
    """R203."""
    fleet = make_fleet()
    fleet.agent("one")
    marker = f"300.{abs(hash(str(tmp_path))) % 10**8}"
    submission = fleet.submit(f"{escape.replace('sleep 300', f'sleep {marker}')} & sleep 0.3")
    (job_id,) = submission.job_ids
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    assert not _running(marker)


def test_a_cancel_reaches_what_left_the_group(make_fleet: MakeFleet, tmp_path: Path) -> None:
    """R205: before the job is said to be cancelled."""
    fleet = make_fleet(lease_seconds=4)
    fleet.agent("one")
    marker = f"300.{abs(hash(str(tmp_path))) % 10**8}"
    submission = fleet.submit(f"timeout 300 sleep {marker}; setsid sleep {marker}")
    (job_id,) = submission.job_ids
    wait_for(lambda: _running(marker))
    cancel(fleet.repo, job_id, by="tests")
    assert fleet.wait_at_rest(submission, seconds=50) == {job_id: State.CANCELLED}
    assert not _running(marker)


def test_an_output_that_cannot_be_read_costs_itself_and_nothing_else(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """The job is not run again for it, and the rest is delivered."""
    fleet = make_fleet()
    fleet.agent("one")
    trace = tmp_path / "trace"
    submission = fleet.submit(
        f"echo ran >> {trace}; cd $STADO_OUTPUT_DIR; echo good > good; "
        "mkfifo pipe; ln -s nowhere link"
    )
    (job_id,) = submission.job_ids
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    assert trace.read_text() == "ran\n"
    manifest = download(fleet.repo, job_id=job_id, epoch=1, folder=tmp_path / "results").manifest
    assert [file.path for file in manifest.files] == ["good"]
    assert manifest.skipped == ["link: not a regular file", "pipe: not a regular file"]


def test_an_agent_goes_on_while_jobs_end_under_its_broadcasts(make_fleet: MakeFleet) -> None:
    """Broadcasts and ends of jobs meet all the time here."""
    fleet = make_fleet(lease_seconds=1)
    agent = fleet.agent("one", "--cpu", "4", "--poll-seconds", "0.1")
    submission = fleet.submit(*["true"] * 150, spec=Spec(command="", memory_gb=0.01))
    assert set(fleet.wait_at_rest(submission).values()) == {State.COMPLETED}
    assert agent.poll() is None


def test_a_command_that_leaves_nothing_gets_no_such_line(make_fleet: MakeFleet) -> None:
    """R202."""
    fleet = make_fleet()
    fleet.agent("one")
    fleet.wait_at_rest(fleet.submit("true"))
    assert "ended the processes" not in fleet.log("one")


def test_a_cancelled_job_is_stopped_with_all_its_children(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """R205: those that ignore TERM are killed; the record stays in `cancelled/`."""
    fleet = make_fleet(lease_seconds=4)
    fleet.agent("one")
    child = tmp_path / "child"
    submission = fleet.submit(f"trap '' TERM; sh -c 'trap \"\" TERM; echo $$ > {child}; sleep 300'")
    (job_id,) = submission.job_ids
    wait_for(child.exists)
    assert cancel(fleet.repo, job_id, by="tests").asked is not None
    assert fleet.wait_at_rest(submission, seconds=50) == {job_id: State.CANCELLED}
    assert _gone(child)
    assert _reason(fleet, job_id) is Reason.CANCELLED


def test_a_job_that_ends_by_itself_while_being_cancelled_keeps_its_outcome(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """R79: the natural outcome comes before the signal."""
    fleet = make_fleet(lease_seconds=60)
    fleet.agent("one")
    trace = tmp_path / "trace"
    submission = fleet.submit(f"echo > {trace}; sleep 0.5; exit 5")
    (job_id,) = submission.job_ids
    wait_for(trace.exists)
    cancel(fleet.repo, job_id, by="tests")
    assert fleet.wait_at_rest(submission) == {job_id: State.FAILED}
    assert _reason(fleet, job_id) is Reason.JOB_FAILED


def test_a_job_whose_verify_fails_has_failed(make_fleet: MakeFleet, tmp_path: Path) -> None:
    """R197: it is never seen completed."""
    fleet = make_fleet()
    fleet.agent("one")
    good = fleet.submit("echo 1 > result", spec=SMALL.evolve(verify="test -s result"))
    bad = fleet.submit("true", spec=SMALL.evolve(verify="test -s result"))
    unneeded = fleet.submit("exit 4", spec=SMALL.evolve(verify=f"touch {tmp_path}/verified"))
    assert set(fleet.wait_at_rest(good).values()) == {State.COMPLETED}
    assert set(fleet.wait_at_rest(bad).values()) == {State.FAILED}
    assert set(fleet.wait_at_rest(unneeded).values()) == {State.FAILED}
    assert _reason(fleet, bad.job_ids[0]) is Reason.VERIFY_FAILED
    assert _reason(fleet, unneeded.job_ids[0]) is Reason.JOB_FAILED
    assert not (tmp_path / "verified").exists()


def test_a_job_that_cannot_be_started_fails_with_the_reason(make_fleet: MakeFleet) -> None:
    """R196."""
    fleet = make_fleet()
    fleet.agent("one")
    submission = fleet.submit("true", spec=SMALL.evolve(host_dir="/does/not/exist"))
    (job_id,) = submission.job_ids
    assert fleet.wait_at_rest(submission) == {job_id: State.FAILED}
    ending = fleet.story(job_id).record.ending
    assert ending is not None
    assert ending.reason is Reason.LAUNCH_FAILED
    assert ending.detail is not None
    assert "/does/not/exist" in ending.detail
    assert ending.started_at is None


def test_a_job_gets_its_own_environment_and_none_of_the_keys_to_the_store(
    make_fleet: MakeFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A72"""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "marker-of-a-secret")
    fleet = make_fleet()
    fleet.agent("one")
    spec = SMALL.evolve(environment={"GREETING": "a 'b' \"c\"\n$(x) =ü "})
    submission = fleet.submit(f"env -0 > {tmp_path}/env; pwd > {tmp_path}/pwd", spec=spec)
    (job_id,) = submission.job_ids
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    pairs = (tmp_path / "env").read_bytes().decode().split("\0")
    environment = dict(pair.split("=", 1) for pair in pairs if pair)
    assert environment["GREETING"] == "a 'b' \"c\"\n$(x) =ü "
    assert environment["STADO_JOB_ID"] == job_id
    assert environment["STADO_EPOCH"] == "1"
    assert "AWS_SECRET_ACCESS_KEY" not in environment
    assert "STADO_STORE" not in environment
    wait_for(lambda: not Path((tmp_path / "pwd").read_text().strip()).exists())


def test_a_line_that_fails_amid_a_command_counts_with_a_strict_shell_only(
    make_fleet: MakeFleet,
) -> None:
    """A75: without it the job completes, and `--verify` can still fail it."""
    fleet = make_fleet()
    fleet.agent("one")
    command = "echo begun\nfalse\necho done"
    shells = {
        "strict": SMALL.evolve(strict_shell=True),
        "plain": SMALL,
        "verified": SMALL.evolve(verify="grep -q finished log"),
    }
    submissions = {name: fleet.submit(command, spec=spec) for name, spec in shells.items()}
    endings = {}
    for name, submission in submissions.items():
        (job_id,) = submission.job_ids
        fleet.wait_at_rest(submission)
        ending = fleet.story(job_id).record.ending
        assert ending is not None
        endings[name] = (ending.reason, ending.exit_code, ending.detail)
        log = stored_log(fleet.repo, job_id, 1)
        assert (b"stado: line 2 failed with exit code 1: false" in log) == (name == "strict")
        assert (b"done" in log) == (name != "strict")
    assert endings["strict"] == (Reason.JOB_FAILED, 1, "the command exited with 1 in line 2: false")
    assert endings["plain"] == (None, 0, None)
    assert endings["verified"][0] is Reason.VERIFY_FAILED


def test_an_agent_whose_own_environment_fills_what_a_host_takes_says_so(
    make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A73"""
    for number in range(15):
        monkeypatch.setenv(f"LARGE_{number}", "x" * 131_000)
    fleet = make_fleet()
    fleet.agent("one")
    submission = fleet.submit("true", spec=SMALL.evolve(environment={"MINE": "y" * 130_000}))
    assert fleet.wait_at_rest(submission) == {submission.job_ids[0]: State.FAILED}
    ending = fleet.story(submission.job_ids[0]).record.ending
    assert ending is not None
    assert ending.reason is Reason.LAUNCH_FAILED
    assert "the largest: LARGE_10 with 131,010 bytes" in (ending.detail or "")


def test_jobs_run_beside_each_other_until_the_host_is_full(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """R183, R184: a job that states nothing takes one core and one GiB."""
    fleet = make_fleet()
    fleet.agent("one", "--cpu", "3", "--memory-gb", "2.5")
    gate = tmp_path / "gate"
    command = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    submission = fleet.submit(command, command, command, spec=Spec(command=""))
    running = [State.RUNNING, State.RUNNING, State.QUEUED]
    wait_for(lambda: sorted(fleet.states(submission).values(), reverse=True) == running)
    small = fleet.submit(command, spec=SMALL)
    wait_for(lambda: State.RUNNING in fleet.states(small).values())
    assert sorted(fleet.states(submission).values(), reverse=True) == running
    gate.touch()
    fleet.wait_at_rest(submission)


def test_a_paused_queue_starts_nothing_until_it_is_resumed(make_fleet: MakeFleet) -> None:
    """R209."""
    fleet = make_fleet()
    pause_queue(fleet.repo, by="tests")
    fleet.agent("one", "--poll-seconds", "0.1")
    wait_for(lambda: "event=agent_started" in fleet.log("one"))
    submission = fleet.submit("true")
    other = fleet.agent("two", "--poll-seconds", "0.1")
    wait_for(lambda: "event=agent_started" in fleet.log("two"))
    other.terminate()
    other.wait()
    assert fleet.states(submission) == {submission.job_ids[0]: State.QUEUED}
    resume_queue(fleet.repo, by="tests")
    assert set(fleet.wait_at_rest(submission).values()) == {State.COMPLETED}


def test_an_agent_drains_on_term_and_leaves_at_once_on_a_second(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """A25: what runs goes on under its supervisor, and completes once; what waits is not
    claimed."""
    fleet = make_fleet(lease_seconds=3)
    agent = fleet.agent("one", "--cpu", "1")
    gate, trace = tmp_path / "gate", tmp_path / "trace"
    running = fleet.submit(
        f"echo >> {trace}; while [ ! -e {gate} ]; do sleep 0.05; done", spec=Spec(command="")
    )
    wait_for(trace.exists)
    waiting = fleet.submit("true", spec=Spec(command=""))
    agent.send_signal(signal.SIGTERM)
    wait_for(lambda: "event=draining" in fleet.log("one"))
    assert agent.poll() is None
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(5) == 0
    gate.touch()
    assert set(fleet.wait_at_rest(running).values()) == {State.COMPLETED}
    assert fleet.states(waiting) == {waiting.job_ids[0]: State.QUEUED}
    assert trace.read_text() == "\n"


def test_the_place_of_a_command_that_was_killed_is_free_at_the_next_poll(
    make_fleet: MakeFleet,
) -> None:
    """A40: long before any lease is over."""
    fleet = make_fleet(lease_seconds=600)
    fleet.agent("one", "--cpu", "1", "--poll-seconds", "0.5")
    killed = fleet.submit("sleep 300", spec=Spec(command=""))
    (job_id,) = killed.job_ids
    started = fleet.started("one", job_id)
    waiting = fleet.submit("true", spec=Spec(command=""))
    os.kill(started.leader, signal.SIGKILL)
    killed_at = time.monotonic()
    assert set(fleet.wait_at_rest(waiting).values()) == {State.COMPLETED}
    assert time.monotonic() - killed_at < 10
    assert fleet.wait_at_rest(killed) == {job_id: State.FAILED}
    ending = fleet.story(job_id).record.ending
    assert ending is not None
    assert ending.exit_code == -signal.SIGKILL
    wait_for(lambda: _capacity(fleet, "one").cpu_free == 1)


def _capacity(fleet: Fleet, agent: str) -> Capacity:
    return fleet.repo.read(Capacity, keys.capacity(agent)).value


def test_two_agents_of_one_name_on_one_host_are_refused(make_fleet: MakeFleet) -> None:
    """The second says what to do instead."""
    fleet = make_fleet()
    fleet.agent("one")
    wait_for(lambda: "event=agent_started" in fleet.log("one"))
    second = fleet.agent("one")
    assert fleet.expect_failure(second) != 0
    assert "an agent named one runs on this host already" in fleet.log("one")
