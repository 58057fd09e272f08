"""Several coordinators, and none."""

from __future__ import annotations

import os
import signal

from stado.core import keys
from stado.core.records import CoordinatorLease
from stado.core.states import State
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import wait_for


def test_one_coordinator_acts_and_another_takes_over_when_it_dies(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(lease_seconds=2)
    first = fleet.coordinator("first")
    wait_for(lambda: "event=leading" in fleet.log("first"))
    fleet.coordinator("second")
    wait_for(lambda: "event=standing_by" in fleet.log("second"))
    first.kill()
    wait_for(lambda: "event=leading" in fleet.log("second"))


def test_a_coordinator_that_is_stopped_lets_the_next_one_act_at_once(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(lease_seconds=60)
    first = fleet.coordinator("first")
    wait_for(lambda: "event=leading" in fleet.log("first"))
    first.terminate()
    assert first.wait(20) == 0
    lease = fleet.repo.read(CoordinatorLease, keys.COORDINATOR_LEASE).value
    assert lease.released


def test_agents_give_lost_jobs_back_when_there_is_no_coordinator(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(lease_seconds=2)
    agent = fleet.agent("first")
    submission = fleet.submit("[ $STADO_EPOCH = 2 ] || sleep 300")
    (job_id,) = submission.job_ids
    started = fleet.started("first", job_id)
    os.kill(agent.pid, signal.SIGKILL)
    started.kill()
    fleet.agent("second")
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}


def test_a_coordinator_from_cron_gives_lost_jobs_back(make_fleet: MakeFleet) -> None:
    """`--once` has watched nothing: it compares the store's own times."""
    fleet = make_fleet(lease_seconds=2)
    agent = fleet.agent("first")
    submission = fleet.submit("sleep 300")
    (job_id,) = submission.job_ids
    started = fleet.started("first", job_id)
    assert fleet.coordinator("early", "--once").wait(30) == 0
    assert fleet.states(submission) == {job_id: State.RUNNING}
    started = fleet.started("first", job_id)
    os.kill(agent.pid, signal.SIGKILL)
    started.kill()
    heartbeat = fleet.repo.store.head(keys.heartbeat(job_id))
    wait_for(lambda: (fleet.repo.now() - heartbeat.modified_at).total_seconds() > 2.5)
    assert fleet.coordinator("late", "--once").wait(30) == 0
    assert fleet.states(submission) == {job_id: State.QUEUED}
