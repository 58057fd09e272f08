"""A host that operators have closed, opened, labelled: what its agent does, and what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import HostOrder
from stado.core.states import Reason, State
from stado.jobs.host_orders import close_host, label_host, open_host
from tests.agent.test_agent import NAME, Host

BEAT = 20


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def close(host: Host, order: HostOrder = HostOrder.CORDON) -> None:
    close_host(host.world.repo, NAME, order, by="ada", reason="new driver")


def test_a_cordoned_host_takes_nothing_more_and_what_runs_there_goes_on(host: Host) -> None:
    """A34: it says who has closed it, when, why, and what opens it."""
    host.script(100)
    (running,) = host.submit("true")
    host.step_to_start()
    close(host)
    host.step_for(BEAT)
    (waiting,) = host.submit("true")
    host.step_until_at_rest(running)
    host.step_for(BEAT)
    assert host.world.states(running) == {State.COMPLETED}
    assert host.world.states(waiting) == {State.QUEUED}
    found = host.capacity().hindrance
    assert found is not None
    assert found.code == "cordoned"
    assert found.detail == (
        f"ada has closed it (new driver): `stado hosts uncordon {NAME}` lets it take jobs again"
    )
    open_host(host.world.repo, NAME, by="ada")
    host.step_until_at_rest(waiting)
    host.step_for(BEAT)
    assert host.hindrance is None


def test_a_host_that_drains_is_drained_once_nothing_runs_there(host: Host) -> None:
    host.script(100)
    (job,) = host.submit("true")
    host.step_to_start()
    close(host, HostOrder.DRAIN)
    host.step_for(BEAT)
    assert host.hindrance == "draining"
    host.step_until_at_rest(job)
    host.step_for(BEAT)
    assert host.hindrance == "drained"


def test_an_agent_that_starts_on_a_cordoned_host_takes_nothing_first(host: Host) -> None:
    close(host)
    host.agent = host.new_agent()
    host.script(1)
    (job,) = host.submit("true")
    host.step_for(BEAT)
    assert host.world.states(job) == {State.QUEUED}


def test_nothing_is_taken_while_it_is_not_known_what_operators_say(host: Host) -> None:
    host.world.store.create(keys.host_orders(NAME), b"nonsense")
    host.script(1)
    (job,) = host.submit("true")
    host.step_for(40)
    assert host.hindrance == "orders_unknown"
    assert host.world.states(job) == {State.QUEUED}
    host.world.store.delete(keys.host_orders(NAME), None)
    host.step_until_at_rest(job)


@pytest.mark.parametrize("closed", [False, True])
def test_what_was_read_last_holds_while_it_cannot_be_read(host: Host, closed: bool) -> None:
    if closed:
        close(host)
    host.agent.step()
    host.orders_trouble.on = True
    if closed:
        open_host(host.world.repo, NAME, by="ada")
    else:
        close(host)
    host.script(1)
    (job,) = host.submit("true")
    host.step_for(60)
    assert host.world.states(job) == {State.QUEUED if closed else State.COMPLETED}
    assert host.hindrance == ("cordoned" if closed else None)


def test_what_operators_say_of_a_host_goes_before_what_its_agent_was_started_with(
    host: Host,
) -> None:
    host.agent = host.new_agent(labels=("zone=a", "rack=7"))
    host.step_for(BEAT)
    assert host.capacity().labels == ["rack=7", "zone=a"]
    label_host(host.world.repo, NAME, {"zone": "b", "row": "2"}, by="ada")
    host.step_for(BEAT)
    assert host.capacity().labels == ["rack=7", "row=2", "zone=b"]
    label_host(host.world.repo, NAME, {"zone": None}, by="ada")
    host.step_for(BEAT)
    assert host.capacity().labels == ["rack=7", "row=2", "zone=a"]


def test_an_agent_tells_its_last_claim_and_since_when_its_jobs_run(host: Host) -> None:
    host.script(100)
    (job,) = host.submit("true")
    host.step_to_start()
    host.step_for(BEAT)
    capacity = host.capacity()
    assert capacity.last_claim is not None
    assert capacity.last_claim.job_id == job
    (report,) = capacity.jobs
    assert report.began_at is not None
    assert capacity.last_claim.at <= report.began_at <= capacity.at
    host.step_until_at_rest(job)
    host.step_for(BEAT)
    (end,) = host.capacity().recent_ends
    assert (end.job_id, end.verdict, end.reason) == (job, "completed", None)
    assert end.ran_seconds == pytest.approx(100, abs=5)


def test_what_still_runs_when_a_drain_is_over_is_put_back_at_its_old_place(host: Host) -> None:
    """Whatever it says of yields; the host is drained then."""
    host.script(1000)
    (job,) = host.submit("true")
    host.step_to_start()
    before = host.world.record(State.RUNNING, job).queued_ms
    close_host(
        host.world.repo, NAME, HostOrder.DRAIN, by="ada", reason="rack 7", deadline_seconds=100
    )
    host.step_for(80)
    assert host.world.states(job) == {State.RUNNING}
    found = host.capacity().hindrance
    assert found is not None
    assert "is put back: `stado hosts uncordon" in found.detail
    host.step_for(80)
    record = host.world.record(State.QUEUED, job)
    assert (record.epoch, record.queued_ms, record.yields) == (2, before, 0)
    end = host.world.repo.find_end(job, 1)
    assert end is not None
    assert end.ending.reason is Reason.HOST_CLOSED
    assert host.hindrance == "drained"


def test_a_host_that_is_opened_in_time_puts_nothing_back(host: Host) -> None:
    host.script(300)
    (job,) = host.submit("true")
    host.step_to_start()
    close_host(host.world.repo, NAME, HostOrder.DRAIN, by="ada", reason=None, deadline_seconds=100)
    host.step_for(60)
    open_host(host.world.repo, NAME, by="ada")
    host.step_until_at_rest(job)
    assert host.world.record(State.COMPLETED, job).epoch == 1


def test_a_job_that_asks_for_a_label_starts_once_operators_say_it(host: Host) -> None:
    host.script(1)
    (job,) = host.submit("true", labels=["zone=b"])
    host.step_for(BEAT)
    assert host.world.states(job) == {State.QUEUED}
    label_host(host.world.repo, NAME, {"zone": "b"}, by="ada")
    host.step_until_at_rest(job)
    assert host.world.states(job) == {State.COMPLETED}
