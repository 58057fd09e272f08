"""Workers that are cut off from the store for leases, while their command goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.states import Reason, State, Verdict
from stado.jobs.submit import Submission
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import SMALL, Fleet, wait_for
from tests.jobs.world import stored_log
from tests.servers import Server
from tests.servers.proxy import Proxy, proxy_of

LEASE_SECONDS = 3.0


@pytest.fixture
def proxy(seaweedfs: Server) -> Iterator[Proxy]:
    with proxy_of(seaweedfs.endpoint) as found:
        yield found


class Scene:
    """A coordinator and a test that always reach the store, and a worker that can be cut off."""

    def __init__(self, fleet: Fleet, proxy: Proxy, folder: Path) -> None:
        self.fleet = fleet
        self._proxy = proxy
        self.trace, self.gate = folder / "trace", folder / "gate"
        fleet.coordinator()
        fleet.reach_store_by(replace(fleet.settings, endpoint=proxy.endpoint))
        fleet.agent("cut")
        fleet.reach_store_by(fleet.settings)

    def submit(self, **stated: int) -> Submission:
        """A job that says which epoch it is, and waits for the gate."""
        submission = self.fleet.submit(
            f"echo $STADO_EPOCH | tee -a {self.trace} > $STADO_OUTPUT_DIR/who; "
            f"echo begun; while [ ! -e {self.gate} ]; do sleep 0.1; done",
            spec=SMALL.evolve(**stated),
        )
        wait_for(lambda: self.trace.exists() and self.trace.read_text())
        return submission

    def cut_off_until_judged(self, job_id: str) -> None:
        """The epoch is over when this returns; nobody on the host can know."""
        self._proxy.cut()
        wait_for(lambda: self.fleet.repo.find_end(job_id, 1) is not None, seconds=60)

    def reconnect(self) -> None:
        self._proxy.restore()


@pytest.fixture
def scene(proxy: Proxy, make_fleet: MakeFleet, tmp_path: Path) -> Scene:
    return Scene(make_fleet("seaweedfs", lease_seconds=LEASE_SECONDS), proxy, tmp_path)


def test_a_job_that_may_not_be_lost_fails_and_what_its_worker_says_later_is_kept(
    scene: Scene,
) -> None:
    """A12: no second execution, before or after it is heard again, though it may be tried again."""
    submission = scene.submit(max_lease_losses=0, retries=3)
    (job_id,) = submission.job_ids
    leader = scene.fleet.started("cut", job_id).leader
    scene.cut_off_until_judged(job_id)
    assert scene.fleet.wait_at_rest(submission) == {job_id: State.FAILED}
    assert Path(f"/proc/{leader}").exists()
    scene.reconnect()
    wait_for(lambda: scene.fleet.story(job_id).epochs[0].late is not None, seconds=60)
    wait_for(lambda: not Path(f"/proc/{leader}").exists())
    marker = scene.fleet.submit("true")
    scene.fleet.wait_at_rest(marker)
    told = scene.fleet.story(job_id)
    assert told.record.ending is not None
    assert told.record.ending.reason is Reason.LEASE_EXPIRED_MAX_ATTEMPTS
    assert (told.record.state, told.record.epoch) == (State.FAILED, 1)
    assert scene.trace.read_text() == "1\n"
    assert "late result of epoch 1, from cut: " in scene.fleet.stado("job", "show", job_id).stdout


def test_a_worker_that_was_cut_off_carries_its_job_on_if_nobody_else_has_it(scene: Scene) -> None:
    """A13"""
    submission = scene.submit()
    (job_id,) = submission.job_ids
    scene.cut_off_until_judged(job_id)
    scene.reconnect()
    wait_for(lambda: scene.fleet.repo.cells(job_id).claims == {1, 2}, seconds=60)
    scene.gate.touch()
    assert scene.fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    told = scene.fleet.story(job_id)
    assert (told.record.epoch, told.record.starts) == (2, 1)
    assert scene.trace.read_text() == "1\n"


def test_a_worker_that_was_cut_off_stops_when_another_has_its_job(scene: Scene) -> None:
    """A13: what it left stays below its own epoch; the result is the other's."""
    submission = scene.submit()
    (job_id,) = submission.job_ids
    leader = scene.fleet.started("cut", job_id).leader
    scene.cut_off_until_judged(job_id)
    scene.fleet.agent("other")
    wait_for(lambda: scene.trace.read_text() == "1\n2\n")
    scene.reconnect()
    wait_for(lambda: scene.fleet.story(job_id).epochs[0].late is not None, seconds=60)
    wait_for(lambda: not Path(f"/proc/{leader}").exists())
    assert scene.fleet.states(submission) == {job_id: State.RUNNING}
    scene.gate.touch()
    assert scene.fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    told = scene.fleet.story(job_id)
    assert (told.record.epoch, told.record.starts) == (2, 2)
    verdicts = [epoch.end.ending.verdict for epoch in told.epochs if epoch.end]
    assert verdicts == [Verdict.LOST, Verdict.COMPLETED]
    store = scene.fleet.repo.store
    assert store.get(keys.output_file(job_id, 2, "who")).data == b"2\n"
    wait_for(lambda: stored_log(scene.fleet.repo, job_id, 1) == b"begun\n")  # after the note
    assert stored_log(scene.fleet.repo, job_id, 2) == b"begun\n"
