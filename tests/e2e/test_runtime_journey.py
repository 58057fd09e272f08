"""What a run time is good for, on a journey with a real agent and a real coordinator:
`report.json` tells of each step.

The agent tells what it has, and is killed before anything is submitted: its last report is what the
coordinator goes by. A report that goes stale before the jobs are assigned fails the journey.

`$STADO_TEST_WORKER_POLL_SECONDS`, `$STADO_TEST_COORDINATOR_INTERVAL_SECONDS`,
`$STADO_TEST_POSITIVE_PRIORITY` and `$STADO_TEST_RUNTIME_SECONDS` change its figures.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from stado.core import keys
from stado.core.hints import Assignments
from stado.core.order import parse_entry
from stado.core.records import Capacity
from stado.core.runtimes import no_run_time_text
from stado.core.states import State
from stado.jobs.assignments import read_assignments
from stado.jobs.health import agents
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import SMALL, Fleet, wait_for
from tests.e2e.journey import Journey, report_folder

WORKER = "measured-worker"
_TICKS_OF_A_LEASE = 8


def _figure(name: str, default: str) -> str:
    return os.environ.get(f"STADO_TEST_{name}", default)


def publication(fleet: Fleet) -> Capacity | None:
    found = fleet.repo.find(Capacity, keys.capacity(WORKER))
    return None if found is None else found.value


def rested(fleet: Fleet) -> bool:
    """Whether the agent has told that it has room for everything again."""
    told = publication(fleet)
    return told is not None and not told.jobs and told.cpu_free == told.cpu_total


def travel(fleet: Fleet, journey: Journey) -> None:
    worker = fleet.agent(WORKER, "--poll-seconds", _figure("WORKER_POLL_SECONDS", "0.2"))
    measured = fleet.submit("true", spec=SMALL.evolve(model="tiny"))
    assert set(fleet.wait_at_rest(measured).values()) == {State.COMPLETED}
    wait_for(lambda: rested(fleet), what=lambda: f"it tells {publication(fleet)}")
    worker.kill()
    journey.facts["worker_exit"] = fleet.expect_failure(worker)
    told = publication(fleet)
    assert told is not None
    journey.facts["publication"] = told.plain()

    seconds = _figure("RUNTIME_SECONDS", "60")
    declared = journey.submit("declared", "--runtime-seconds-estimate", seconds)
    known = journey.submit("known", "--model", "tiny")
    plain = journey.submit("plain")
    urgent = journey.submit("urgent", "--priority", _figure("POSITIVE_PRIORITY", "7"))
    journey.facts["before"] = state_of(journey)
    assert journey.facts["before"]["assignments"]["assigned"] == 0

    fleet.coordinator()
    found = wait_for_assignments(fleet, journey)
    journey.facts["after"] = state_of(journey)

    (host,) = found.hosts
    assert (host.consumer, host.incarnation) == (WORKER, told.incarnation)
    assert host.counter == told.counter
    entries = {job.entry: job.seconds for job in host.jobs}
    assert {job_of(name): run_seconds for name, run_seconds in entries.items()} == {
        declared: int(seconds),
        known: 1,
    }
    (group,) = found.skipped
    assert (group.code, group.count) == ("no_run_time", 2)
    assert group.text == no_run_time_text("any host that could run it")
    assert group.example in (plain, urgent)
    states = {job["job_id"]: job["status"] for job in journey.facts["after"]["jobs"]}
    assert {states[job] for job in (declared, known, plain, urgent)} == {"queued"}


def job_of(name: str) -> str:
    entry = parse_entry(name)
    assert entry is not None
    return entry.job_id


def wait_for_assignments(fleet: Fleet, journey: Journey) -> Assignments:
    """The first that there are. Fails as soon as the agent's last report is no longer one to go
    by: a coordinator clears what it made of it then."""
    seen: list[Assignments] = []

    def assigned() -> bool:
        (sight,) = agents(fleet.repo)
        found = read_assignments(fleet.repo)
        journey.facts["report_age_seconds"] = sight.age_seconds
        if found is not None and found.hosts:
            seen.append(found)
        else:
            assert sight.alive, f"its report expired: {sight.age_seconds:.1f} s"
        return bool(seen)

    wait_for(assigned, what=lambda: "nothing is assigned")
    journey.facts["assignments"] = seen[0].plain()
    return seen[0]


def state_of(journey: Journey) -> dict[str, Any]:
    return {
        "jobs": journey.answer("status", "--all")["jobs"],
        "hosts": journey.answer("hosts")["hosts"],
        "assignments": journey.answer("coordinator", "assignments"),
    }


def test_declared_and_measured_run_times_alone_assign_jobs(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """R160, R162, R164, R167"""
    interval = float(_figure("COORDINATOR_INTERVAL_SECONDS", "20"))
    fleet = make_fleet(lease_seconds=_TICKS_OF_A_LEASE * interval)
    journey, passed = Journey(tmp_path / "store"), False
    try:
        travel(fleet, journey)
        passed = True
    finally:
        report = journey.report(passed=passed)
        logs = {path.stem: path.read_text(errors="replace") for path in tmp_path.glob("*.log")}
        folder = report_folder("runtime", tmp_path)
        (folder / "report.json").write_text(json.dumps({**report, "logs": logs}, indent=2))
    assert {one["exit_code"] for one in report["commands"]} == {0}
    assert "event=assigned jobs=2 skipped=2" in logs["coordinator"]
