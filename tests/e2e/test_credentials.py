"""Credentials that are exchanged, or wrong for a while, under processes that run on."""

from __future__ import annotations

from pathlib import Path

import pytest

from stado.core.records import Phase
from stado.core.states import State
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import Fleet, wait_for
from tests.jobs.world import stored_log
from tests.servers.catalogue import ACCESS_KEY, SECRET_KEY

LEASE_SECONDS = 3.0


def write(file: Path, secret: str) -> None:
    """As a program that rotates them: in place."""
    lines = ("[default]", f"aws_access_key_id = {ACCESS_KEY}", f"aws_secret_access_key = {secret}")
    file.write_text("\n".join(lines) + "\n")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "credentials"
    write(file, SECRET_KEY)
    return file


@pytest.fixture
def fleet(make_fleet: MakeFleet, file: Path) -> Fleet:
    """Its coordinator keeps its own credentials; what is started later uses the file."""
    made = make_fleet("seaweedfs", lease_seconds=LEASE_SECONDS)
    made.coordinator()
    made.authenticate_by(file)
    return made


def test_a_host_whose_credentials_are_refused_for_a_while_executes_nothing_twice(
    fleet: Fleet, file: Path, tmp_path: Path
) -> None:
    """A60, A61, A66: the job ends while they are refused, for several leases; as soon as the file
    is right again its log, its files and its outcome are delivered, without any restart."""
    fleet.agent("one")
    trace, gate = tmp_path / "trace", tmp_path / "gate"
    submission = fleet.submit(
        f"echo start | tee -a {trace}; while [ ! -e {gate} ]; do sleep 0.1; done; "
        "echo result > $STADO_OUTPUT_DIR/result; echo end"
    )
    (job_id,) = submission.job_ids
    wait_for(trace.exists)
    write(file, "wrong")
    wait_for(lambda: "event=beat_failed" in fleet.log("one"))
    gate.touch()
    wait_for(lambda: fleet.story(job_id).record.epoch == 2, seconds=60)
    write(file, SECRET_KEY)
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    assert trace.read_text() == "start\n"
    told = fleet.story(job_id)
    assert told.record.starts == 1
    log = b"".join(stored_log(fleet.repo, job_id, n + 1) for n in range(told.record.epoch))
    assert log == b"start\nend\n"
    assert "Traceback" not in fleet.log("one")
    assert SECRET_KEY not in fleet.log("one")


def test_credentials_that_are_exchanged_under_a_running_job_are_used_at_once(
    fleet: Fleet, file: Path, tmp_path: Path
) -> None:
    """A61: a new file, put in place of the old one, costs nobody a beat."""
    fleet.agent("one")
    gate = tmp_path / "gate"
    submission = fleet.submit(f"while [ ! -e {gate} ]; do sleep 0.1; done")
    (job_id,) = submission.job_ids
    fleet.started("one", job_id)
    wait_for(lambda: _phase(fleet, job_id) is Phase.RUNNING)
    write(file, "wrong")
    fresh = tmp_path / "fresh"
    write(fresh, SECRET_KEY)
    fresh.replace(file)
    before = fleet.repo.find_heartbeat(job_id)
    wait_for(lambda: fleet.repo.find_heartbeat(job_id) != before)
    gate.touch()
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    assert fleet.story(job_id).record.epoch == 1


def _phase(fleet: Fleet, job_id: str) -> Phase | None:
    found = fleet.repo.find_heartbeat(job_id)
    return found.value.phase if found is not None else None
