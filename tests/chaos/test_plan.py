"""A plan follows from its seed, and has something of everything."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.chaos.evidence import read_traces
from tests.chaos.plan import FaultKind, Job, Plan, Work, make_plan


def _plan(seed: int = 1, *, server: bool = True) -> Plan:
    return make_plan(seed=seed, seconds=180, jobs=300, server=server)


def test_the_same_seed_makes_the_same_plan() -> None:
    assert _plan() == _plan()
    assert _plan() != _plan(2)


def test_all_jobs_are_submitted_while_there_are_faults() -> None:
    plan = _plan()
    assert sum(len(submission.jobs) for submission in plan.submissions) == 300
    assert all(0 <= submission.at < 180 for submission in plan.submissions)
    assert len({submission.run_id for submission in plan.submissions}) == len(plan.submissions)


@pytest.mark.parametrize("seed", range(5))
def test_every_kind_of_job_and_of_fault_is_there(seed: int) -> None:
    plan = _plan(seed)
    jobs = [job for submission in plan.submissions for job in submission.jobs]
    assert {job.work for job in jobs} == set(Work)
    assert any(job.exit_code for job in jobs)
    assert min(job.seconds for job in jobs) < 0.2
    assert max(job.seconds for job in jobs) >= 15
    assert {fault.kind for fault in plan.faults} == set(FaultKind)
    assert plan.cancels
    assert any(submission.killed_after for submission in plan.submissions)
    assert any(submission.twice for submission in plan.submissions)


def test_a_directory_has_no_ways_to_it_that_could_be_cut() -> None:
    kinds = {fault.kind for fault in _plan(server=False).faults}
    assert FaultKind.OUTAGE_OF_ONE not in kinds
    assert FaultKind.OUTAGE_OF_ALL in kinds


@pytest.mark.parametrize(
    ("job", "lines"),
    [
        (Job(Work.PLAIN, 0.05, 0, 0), [b"line 1"]),
        (Job(Work.FILES, 1, 7, 0), [b"line 1", b"line 2"]),
        (Job(Work.DEAF, 1, 0, 0), [b"line 1", b"line 2"]),
        (Job(Work.CHECKPOINTS, 1, 0, 0), [b"line 2"]),
    ],
)
def test_a_job_notes_what_it_does(tmp_path: Path, job: Job, lines: list[bytes]) -> None:
    """One with checkpoints goes on where it was."""
    folders = {name: tmp_path / name for name in ("traces", "output", "checkpoints")}
    for folder in folders.values():
        folder.mkdir()
    (folders["checkpoints"] / "step").write_text("2\n")
    environment = {
        "STADO_JOB_ID": "job",
        "STADO_EPOCH": "3",
        "STADO_OUTPUT_DIR": str(folders["output"]),
        "STADO_CHECKPOINT_DIR": str(folders["checkpoints"]),
        "PATH": "/usr/bin:/bin",
    }
    command = job.command(folders["traces"])
    done = subprocess.run(
        ["/bin/sh", "-c", command], env=environment, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == job.exit_code
    assert done.stdout.splitlines() == lines
    assert (folders["output"] / "result").read_text() == f"job {job.work}\n"
    traces = read_traces(folders["traces"] / "job")
    assert [trace.what for trace in traces] == ["started", *["lives"] * len(lines), "ended"]
    assert {trace.epoch for trace in traces} == {3}
    assert len({trace.pid for trace in traces}) == 1
    assert traces[-1].exit_code == job.exit_code
    assert traces[0].uptime <= traces[-1].uptime
