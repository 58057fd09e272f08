"""A store that is away for a while: what runs goes on, nothing is lost, nothing runs twice."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stado.core.spec import Spec
from stado.core.states import State
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


@pytest.fixture
def fleet(proxy: Proxy, make_fleet: MakeFleet) -> Fleet:
    """Its processes reach the store through the proxy; the test itself goes straight to it."""
    made = make_fleet("seaweedfs", lease_seconds=LEASE_SECONDS)
    made.reach_store_by(replace(made.settings, endpoint=proxy.endpoint))
    return made


def test_a_store_that_is_stopped_amid_twenty_jobs_costs_none_of_them(
    fleet: Fleet, proxy: Proxy, tmp_path: Path
) -> None:
    """For several leases. Each job is executed once, and nobody prints a traceback."""
    fleet.coordinator()
    for name in ("one", "two"):
        fleet.agent(name, "--cpu", "1", "--poll-seconds", "0.5")
    traces = [tmp_path / f"trace-{number}" for number in range(20)]
    submission = fleet.submit(
        *(
            f"echo start >> {trace}; for i in 1 2 3 4 5 6; do echo line $i; sleep 0.5; done"
            for trace in traces
        )
    )
    wait_for(lambda: sum(trace.exists() for trace in traces) >= 5)
    proxy.cut()
    time.sleep(4 * LEASE_SECONDS)
    proxy.restore()
    states = fleet.wait_at_rest(submission, seconds=90)
    assert set(states.values()) == {State.COMPLETED}
    assert [trace.read_text() for trace in traces] == ["start\n"] * 20
    for job_id in submission.job_ids:
        told = fleet.story(job_id)
        assert told.record.starts == 1
        log = b"".join(stored_log(fleet.repo, job_id, n + 1) for n in range(told.record.epoch))
        assert log == b"".join(b"line %d\n" % n for n in range(1, 7))
    for name in ("one", "two", "coordinator"):
        assert "Traceback" not in fleet.log(name)


def test_a_second_signal_does_not_wait_for_a_store_that_does_not_answer(
    fleet: Fleet, proxy: Proxy, tmp_path: Path
) -> None:
    """A48: the agent leaves within five seconds; what its job printed reaches the store all the
    same, and the job is executed once."""
    agent = fleet.agent("one")
    trace, gate = tmp_path / "trace", tmp_path / "gate"
    submission = fleet.submit(
        f"echo start | tee -a {trace}; while [ ! -e {gate} ]; do sleep 0.1; done; echo end"
    )
    (job_id,) = submission.job_ids
    wait_for(trace.exists)
    proxy.stall()
    wait_for(lambda: proxy.holds_something)
    agent.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    began = time.monotonic()
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(20) == 0
    assert time.monotonic() - began < 5
    gate.touch()
    proxy.resume()
    proxy.cut()
    proxy.restore()
    fleet.agent("one")
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    told = fleet.story(job_id)
    log = b"".join(stored_log(fleet.repo, job_id, n + 1) for n in range(told.record.epoch))
    assert log == b"start\nend\n"
    assert trace.read_text() == "start\n"
    assert "Traceback" not in fleet.log("one")


def test_what_agent_and_supervisor_left_behind_is_uploaded_at_the_next_start(
    fleet: Fleet, proxy: Proxy, tmp_path: Path
) -> None:
    """A48: the spool on the host survives both."""
    agent = fleet.agent("one")
    ready, printed = tmp_path / "ready", tmp_path / "printed"
    spec = Spec(command="", cpu=0.1, max_lease_losses=0)
    submission = fleet.submit(
        f"while [ ! -e {ready} ]; do sleep 0.05; done; echo unsent; touch {printed}; sleep 300",
        spec=spec,
    )
    (job_id,) = submission.job_ids
    started = fleet.started("one", job_id)
    proxy.cut()
    ready.touch()
    wait_for(printed.exists)
    agent.kill()
    agent.wait()
    started.kill()
    proxy.restore()
    fleet.agent("one")
    wait_for(lambda: stored_log(fleet.repo, job_id, 1) == b"unsent\n")
    assert fleet.wait_at_rest(submission) == {job_id: State.FAILED}
    jobs = tmp_path / "hosts" / "one" / "jobs"
    wait_for(lambda: not list(jobs.iterdir()))


def test_jobs_that_end_while_the_store_is_away_are_reported_once_it_is_back(
    fleet: Fleet, proxy: Proxy, tmp_path: Path
) -> None:
    """R37: with their own outcome, whatever became of their leases."""
    fleet.agent("one")
    fleet.coordinator()
    trace, gate = tmp_path / "trace", tmp_path / "gate"
    submission = fleet.submit(
        f"echo start >> {trace}; while [ ! -e {gate} ]; do sleep 0.1; done; exit 7", spec=SMALL
    )
    (job_id,) = submission.job_ids
    wait_for(trace.exists)
    proxy.cut()
    gate.touch()
    time.sleep(2 * LEASE_SECONDS)
    proxy.restore()
    assert fleet.wait_at_rest(submission) == {job_id: State.FAILED}
    ending = fleet.story(job_id).record.ending
    assert ending is not None
    assert ending.exit_code == 7
    assert trace.read_text() == "start\n"
