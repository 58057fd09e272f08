"""Workers that are killed, frozen or restarted: nothing is lost, nothing runs twice unseen."""

from __future__ import annotations

import os
import re
import signal
import time
from datetime import timedelta
from pathlib import Path

from stado.core.spec import Spec
from stado.core.states import Reason, State, Verdict
from stado.jobs.changes import rerun
from stado.jobs.usage import Question, report_usage
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import SMALL, wait_for


def test_a_job_whose_agent_supervisor_and_command_are_killed_runs_again(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """A03, A25, R27, R189, R191: and its story tells what happened, and what it used."""
    fleet = make_fleet(lease_seconds=2)
    fleet.coordinator()
    agent = fleet.agent("first")
    trace = tmp_path / "trace"
    submission = fleet.submit(f"echo start >> {trace}; [ $STADO_EPOCH = 2 ] || sleep 300")
    (job_id,) = submission.job_ids
    wait_for(lambda: trace.exists() and trace.read_text())
    started = fleet.started("first", job_id)
    os.kill(agent.pid, signal.SIGKILL)
    started.kill()
    fleet.agent("second")
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    assert trace.read_text() == "start\nstart\n"
    told = fleet.story(job_id)
    assert told.record.starts == 2
    assert told.record.lease_losses == 1
    first, second = told.epochs
    assert first.end is not None
    assert first.end.ending.verdict is Verdict.LOST
    assert first.end.ending.reason is Reason.LEASE_EXPIRED
    assert first.claim is not None
    assert first.claim.by == "first"
    assert second.claim is not None
    assert second.claim.by == "second"
    question = Question(since=told.record.submitted_at, by="job")
    used = report_usage(fleet.repo, question).tally.groups[job_id]
    assert (used.epochs, used.running, used.estimated) == (2, 0, True)
    assert used.wall_ms == told.record.usage.wall_ms


def test_a_job_goes_on_when_its_agent_alone_is_killed(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """A03: the supervisor outlives its agent; the next agent counts it in."""
    fleet = make_fleet(lease_seconds=2)
    fleet.coordinator()
    agent = fleet.agent("one")
    trace, gate = tmp_path / "trace", tmp_path / "gate"
    submission = fleet.submit(
        f"echo start >> {trace}; while [ ! -e {gate} ]; do sleep 0.1; done", spec=Spec(command="")
    )
    (job_id,) = submission.job_ids
    wait_for(trace.exists)
    agent.kill()
    agent.wait()
    fleet.agent("one")
    wait_for(lambda: f"event=taken_back job={job_id}" in fleet.log("one"))
    first_version = fleet.repo.find_heartbeat(job_id)
    wait_for(lambda: fleet.repo.find_heartbeat(job_id) != first_version)
    gate.touch()
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    assert trace.read_text() == "start\n"
    assert fleet.story(job_id).record.starts == 1


def test_a_supervisor_that_dies_alone_is_noticed_by_its_agent_at_once(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """R203: what it was running is ended, and the job runs again long before its lease is over."""
    fleet = make_fleet(lease_seconds=600)
    fleet.agent("one")
    trace = tmp_path / "trace"
    submission = fleet.submit(f"echo $$ >> {trace}; [ $STADO_EPOCH = 2 ] || sleep 300")
    (job_id,) = submission.job_ids
    wait_for(lambda: trace.exists() and trace.read_text())
    started = fleet.started("one", job_id)
    os.kill(started.supervisor, signal.SIGKILL)
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    first = fleet.story(job_id).epochs[0]
    assert first.end is not None
    assert first.end.ending.reason is Reason.SUPERVISOR_DIED
    first_pid = int(trace.read_text().split()[0])
    wait_for(lambda: not Path(f"/proc/{first_pid}").exists())


def test_a_job_that_takes_its_supervisor_down_is_stopped_by_its_own_limit(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """R74: though it asks for more tries, which are for failures that its supervisor lives to
    see. The host goes on with other jobs."""
    fleet = make_fleet()
    fleet.agent("one")
    trace = tmp_path / "trace"
    poison = f"echo $STADO_EPOCH >> {trace}; kill -KILL $PPID; sleep 300"
    submission = fleet.submit(poison, spec=SMALL.evolve(max_lease_losses=1, retries=5))
    (job_id,) = submission.job_ids
    assert fleet.wait_at_rest(submission) == {job_id: State.FAILED}
    record = fleet.story(job_id).record
    assert record.ending is not None
    assert record.ending.reason is Reason.LEASE_EXPIRED_MAX_ATTEMPTS
    assert (record.epoch, record.starts, record.auto_retries) == (2, 2, 0)
    assert trace.read_text() == "1\n2\n"
    other = fleet.submit("true")
    assert set(fleet.wait_at_rest(other).values()) == {State.COMPLETED}


def test_a_job_longer_than_many_leases_runs_once(make_fleet: MakeFleet, tmp_path: Path) -> None:
    """A01, R191: three agents poll, nothing is started twice, no epoch is lost."""
    fleet = make_fleet(lease_seconds=1)
    fleet.coordinator()
    for name in ("one", "two", "three"):
        fleet.agent(name)
    trace = tmp_path / "trace"
    submission = fleet.submit(f"echo line >> {trace}; sleep 7")
    (job_id,) = submission.job_ids
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    assert trace.read_text() == "line\n"
    told = fleet.story(job_id)
    assert told.record.starts == 1
    assert [epoch.epoch for epoch in told.epochs] == [1]


def test_a_worker_in_another_time_zone_is_neither_dead_nor_off(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """A37: over several leases, with a deadline that is near."""
    fleet = make_fleet(lease_seconds=1)
    fleet.coordinator()
    fleet.live_in("Asia/Kolkata")
    fleet.agent("far")
    zone = tmp_path / "zone"
    deadline_at = fleet.repo.now() + timedelta(minutes=5)
    submission = fleet.submit(
        f"date +%z >> {zone}; sleep 4", spec=SMALL.evolve(deadline_at=deadline_at)
    )
    assert set(fleet.wait_at_rest(submission).values()) == {State.COMPLETED}
    assert zone.read_text() == "+0530\n"
    told = fleet.story(submission.job_ids[0])
    assert (told.record.epoch, told.record.starts) == (1, 1)
    assert abs(fleet.repo.now() - told.record.submitted_at) < timedelta(minutes=2)
    assert "clock" not in fleet.stado("doctor").stdout


def test_a_frozen_host_loses_its_job_and_stops_it_when_it_thaws(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """A04, R211: queued again within the lease and a tick, with its worker, its last sign of life
    and the age of that; the thawed worker ends what it ran."""
    fleet = make_fleet(lease_seconds=4)
    fleet.coordinator()
    agent = fleet.agent("frozen")
    trace = tmp_path / "trace"
    submission = fleet.submit(f"echo $$ >> {trace}; [ $STADO_EPOCH = 2 ] || sleep 300")
    (job_id,) = submission.job_ids
    wait_for(lambda: trace.exists() and trace.read_text())
    started = fleet.started("frozen", job_id)
    for pid in (agent.pid, started.supervisor):
        os.kill(pid, signal.SIGSTOP)
    frozen_at = time.monotonic()
    wait_for(lambda: fleet.states(submission) != {job_id: State.RUNNING})
    # A tick is an eighth of the lease; the rest is what busy processes are late by.
    assert time.monotonic() - frozen_at < 4 * (1 + 1 / 8) + 2
    lost = fleet.story(job_id).record.ending
    assert lost is not None
    assert re.fullmatch(
        r"worker frozen was not heard for \d+ s, its last beat was at .+", lost.detail or ""
    )
    fleet.agent("healthy")
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    assert Path(f"/proc/{started.leader}").exists()
    for pid in (agent.pid, started.supervisor):
        os.kill(pid, signal.SIGCONT)
    leader = started.leader
    wait_for(lambda: not Path(f"/proc/{leader}").exists())
    told = fleet.story(job_id)
    assert [epoch.end.ending.verdict for epoch in told.epochs if epoch.end] == [
        Verdict.LOST,
        Verdict.COMPLETED,
    ]
    wait_for(lambda: fleet.story(job_id).epochs[0].late is not None)


def test_a_worker_that_was_declared_lost_adopts_its_job_when_nobody_else_has_it(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """The living command is carried over into the next epoch and completes there, once."""
    fleet = make_fleet(lease_seconds=2)
    fleet.coordinator()
    agent = fleet.agent("only")
    trace, gate = tmp_path / "trace", tmp_path / "gate"
    submission = fleet.submit(
        f"echo start >> {trace}; while [ ! -e {gate} ]; do sleep 0.1; done; echo done"
    )
    (job_id,) = submission.job_ids
    wait_for(lambda: trace.exists() and trace.read_text())
    started = fleet.started("only", job_id)
    for pid in (agent.pid, started.supervisor):
        os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: fleet.repo.find_end(job_id, 1) is not None)
    os.kill(started.supervisor, signal.SIGCONT)
    wait_for(lambda: fleet.story(job_id).epochs[-1].claim is not None)
    os.kill(agent.pid, signal.SIGCONT)
    gate.touch()
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    assert trace.read_text() == "start\n"
    told = fleet.story(job_id)
    assert told.record.epoch == 2
    assert told.epochs[1].claim is not None
    assert told.epochs[1].claim.by == "only"


def test_completed_jobs_stay_completed_when_the_agent_starts_again(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """A10: with its old local state; no process is started, no record changes."""
    fleet = make_fleet()
    agent = fleet.agent("one", "--cpu", "8", "--poll-seconds", "0.1")
    trace = tmp_path / "trace"
    submission = fleet.submit(*(f"echo {number} >> {trace}" for number in range(20)))
    fleet.wait_at_rest(submission)
    before = {
        entry.key: fleet.repo.store.get(entry.key)
        for entry in fleet.repo.walk_records(State.COMPLETED)
    }
    agent.terminate()
    agent.wait()
    fleet.agent("one", "--poll-seconds", "0.1")
    marker = fleet.submit("true")
    fleet.wait_at_rest(marker)
    assert len(trace.read_text().split()) == 20
    assert {key: fleet.repo.store.get(key) for key in before} == before


def test_a_job_starts_again_from_its_last_checkpoint(make_fleet: MakeFleet, tmp_path: Path) -> None:
    """R211: the next epoch finds the files that the lost one had saved."""
    fleet = make_fleet(lease_seconds=2)
    fleet.coordinator()
    agent = fleet.agent("first")
    command = (
        "cat $STADO_CHECKPOINT_DIR/step; "
        "if [ ! -e $STADO_CHECKPOINT_DIR/step ]; then "
        "mkdir -p $STADO_CHECKPOINT_DIR/deep; echo 17 > $STADO_CHECKPOINT_DIR/step; "
        "echo x > $STADO_CHECKPOINT_DIR/deep/weights; sleep 300; fi; "
        "cp $STADO_CHECKPOINT_DIR/step $STADO_CHECKPOINT_DIR/deep/weights $STADO_OUTPUT_DIR"
    )
    submission = fleet.submit(command)
    (job_id,) = submission.job_ids
    folder = f"status/{job_id}/checkpoints/"
    wait_for(lambda: any("manifest" in entry.key for entry in fleet.repo.store.list(folder)))
    started = fleet.started("first", job_id)
    os.kill(agent.pid, signal.SIGKILL)
    started.kill()
    fleet.agent("second")
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    output = f"status/{job_id}/output/2/files/"
    assert fleet.repo.store.get(f"{output}step").data == b"17\n"
    assert fleet.repo.store.get(f"{output}weights").data == b"x\n"


def test_a_rerun_makes_a_new_job_and_leaves_the_old_one_alone(make_fleet: MakeFleet) -> None:
    """R207."""
    fleet = make_fleet()
    fleet.agent("one")
    submission = fleet.submit("exit 3")
    (job_id,) = submission.job_ids
    assert fleet.wait_at_rest(submission) == {job_id: State.FAILED}
    before = fleet.repo.find_record(State.FAILED, job_id)
    again = rerun(fleet.repo, job_id, run_id=None, submitter="tests")
    assert again.job_ids != submission.job_ids
    assert fleet.wait_at_rest(again) == {again.job_ids[0]: State.FAILED}
    assert fleet.repo.find_record(State.FAILED, job_id) == before
    assert fleet.story(again.job_ids[0]).record.rerun_of == job_id
    assert fleet.story(again.job_ids[0]).record.spec == SMALL.evolve(command="exit 3")
