"""Two agents as processes, on one of which every command fails as soon as it starts."""

from __future__ import annotations

from pathlib import Path

from stado.core.states import State
from stado.jobs.health import agents
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import SMALL, Fleet, wait_for

JOBS = 40


def test_a_bad_host_touches_three_jobs_and_all_complete_on_the_other(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """A33: each is tried once more by itself. The host says why it stopped, is released once it is
    mended, and works again."""
    fleet = make_fleet(lease_seconds=8)
    fleet.agent("good", "--cpu", "2")
    broken = _break_program(tmp_path, "expr")
    fleet.find_programs_in(broken)
    fleet.agent("bad", "--cpu", "0.1")
    wait_for(lambda: len(agents(fleet.repo)) == 2)
    spec = SMALL.evolve(retries=1, retry_delay_seconds=2)
    submission = fleet.submit(*["expr 1 + 1; sleep 0.2; expr 1 + 1"] * JOBS, spec=spec)
    assert set(fleet.wait_at_rest(submission).values()) == {State.COMPLETED}
    records = [fleet.story(job_id).record for job_id in submission.job_ids]
    assert {record.holder.consumer for record in records if record.holder} == {"good"}
    assert 1 <= sum(record.auto_retries for record in records) <= 3
    wait_for(lambda: _word(fleet, "bad") == "quarantined")
    told = fleet.stado("hosts", "bad")
    assert "failed here within 30 s: " in told.stdout
    assert "(job_failed), and other hosts run such jobs" in " ".join(told.stdout.split())
    assert "`stado hosts release bad`" in " ".join(told.stdout.split())
    (broken / "expr").unlink()
    assert fleet.stado("hosts", "release", "bad").returncode == 0
    assert fleet.stado("hosts", "drain", "good", "--reason", "done").returncode == 0
    wait_for(lambda: (_word(fleet, "bad"), _word(fleet, "good")) == ("working", "drained"))
    last = fleet.submit("expr 1 + 1")
    assert set(fleet.wait_at_rest(last).values()) == {State.COMPLETED}
    holder = fleet.story(last.job_ids[0]).record.holder
    assert holder is not None
    assert holder.consumer == "bad"


def _break_program(folder: Path, name: str) -> Path:
    broken = folder / "broken"
    broken.mkdir()
    program = broken / name
    program.write_text("#!/bin/sh\nkill -9 $PPID\n")
    program.chmod(0o755)
    return broken


def _word(fleet: Fleet, name: str) -> str | None:
    return next((one.word for one in agents(fleet.repo) if one.capacity.consumer == name), None)
