"""Several coordinators, and none."""

from __future__ import annotations

import os
import signal
import time

from stado.core import keys
from stado.core.records import CoordinatorLease, Phase
from stado.core.states import State, Verdict
from stado.jobs.claim import Claimant, claim
from stado.jobs.life import LifeSigns
from stado.jobs.queue_index import read_page
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import Fleet, wait_for


def test_one_coordinator_acts_and_another_takes_over_when_it_dies(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(lease_seconds=2)
    first = fleet.coordinator("first")
    wait_for(lambda: "event=leading" in fleet.log("first"))
    fleet.coordinator("second")
    wait_for(lambda: "event=standing_by" in fleet.log("second"))
    first.kill()
    wait_for(lambda: "event=leading" in fleet.log("second"))


class GoneWorker:
    """Holds all that is queued, and beats only when it is told to."""

    def __init__(self, fleet: Fleet) -> None:
        self._repo = fleet.repo
        claimant = Claimant("gone", "gone-1", "gone-host")
        self._signs = [
            LifeSigns(self._repo, claimed.record)
            for entry in read_page(self._repo).entries
            if (claimed := claim(self._repo, entry, claimant)) is not None
        ]

    def beat(self) -> bool:
        return all(signs.beat(Phase.RUNNING, self._repo.now()) for signs in self._signs)


def test_a_coordinator_that_is_killed_amid_a_reap_leaves_it_to_the_next(
    make_fleet: MakeFleet,
) -> None:
    """A09: the other one leads within a lease, and gives back what is left: each job once."""
    lease_seconds = 3.0
    fleet = make_fleet(lease_seconds=lease_seconds)
    submission = fleet.submit(*["true"] * 120)
    worker = GoneWorker(fleet)
    first = fleet.coordinator("first")
    wait_for(lambda: worker.beat() and "event=leading" in fleet.log("first"))
    fleet.coordinator("second")
    wait_for(lambda: worker.beat() and "event=standing_by" in fleet.log("second"))
    # Of a job that is being settled the running record is the last to go.
    wait_for(lambda: len(fleet.repo.store.list(keys.prefix(State.QUEUED))) > 2)
    first.kill()
    killed_at = time.monotonic()
    first.wait()
    states = list(fleet.states(submission).values())
    assert 0 < states.count(State.RUNNING) < len(states)
    wait_for(lambda: "event=leading" in fleet.log("second"))
    # A tick is an eighth of the lease; the rest is what busy processes are late by.
    assert time.monotonic() - killed_at < lease_seconds * (1 + 1 / 8) + 2
    wait_for(lambda: set(fleet.states(submission).values()) == {State.QUEUED}, seconds=60)
    for job_id in submission.job_ids:
        record = fleet.repo.find_record(State.QUEUED, job_id)
        assert record is not None
        assert (record.value.epoch, record.value.lease_losses) == (2, 1)
        cell = fleet.repo.find_end(job_id, 1)
        assert cell is not None
        assert cell.ending.verdict is Verdict.LOST
    entries = [(entry.job_id, entry.epoch) for entry in read_page(fleet.repo).entries]
    assert sorted(entries) == sorted((job_id, 2) for job_id in submission.job_ids)


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
