"""Windows of time in which jobs may start, as an agent and its supervisors go by them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stado.core import keys
from stado.core.states import State
from stado.storage.observe import Operation
from tests.agent.test_agent import Host
from tests.agent.test_shared_limits import limited_host

HOUR = 3600.0
SOON = "daily@00:30-01:30@UTC"
"""The host begins at midnight, in UTC."""


def host_with(folder: Path, rule: str, looked: list[str] | None = None) -> Host:
    def note(operation: Operation, key: str) -> None:
        if looked is not None and operation is Operation.GET and is_queued(key):
            looked.append(key)

    host = limited_host(folder, "windows.rules", [rule], before=note)
    host.script(20)
    return host


def is_queued(key: str) -> bool:
    return key.startswith(keys.prefix(State.QUEUED))


@pytest.mark.parametrize("whose", ["all", "group.big", "user.ada"])
def test_jobs_start_when_their_window_opens_and_are_left_alone_until_then(
    tmp_path: Path, whose: str
) -> None:
    """R64: no job is read to learn that it has to wait; of a user's one is."""
    looked: list[str] = []
    host = host_with(tmp_path, f"{whose}:{SOON}", looked)
    jobs = host.submit(*["true"] * 5, group="big")
    host.step_for(0.45 * HOUR)
    assert {state for job in jobs for state in host.world.states(job)} == {State.QUEUED}
    assert len(looked) == (1 if whose == "user.ada" else 0)
    host.step_for(0.1 * HOUR)
    for job in jobs:
        host.step_until_at_rest(job)
        (start,) = (one for one in [host.world.record(State.COMPLETED, job).holder] if one)
        assert (start.claimed_at.hour, start.claimed_at.minute) >= (0, 30)


def test_what_runs_when_its_window_closes_goes_on(tmp_path: Path) -> None:
    host = host_with(tmp_path, "all:daily@23:00-00:10@UTC")
    host.script(HOUR)
    (job,) = host.submit("true")
    host.step_to_start()
    host.step_for(0.5 * HOUR)
    assert host.running() == 1
    (later,) = host.submit("true")
    host.step_until_at_rest(job)
    assert host.world.states(later) == {State.QUEUED}


def test_a_job_of_no_window_passes_those_that_wait_for_theirs(tmp_path: Path) -> None:
    host = host_with(tmp_path, f"group.big:{SOON}")
    waiting = host.submit("true", "true", group="big", priority=9)
    (other,) = host.submit("true")
    host.step_until_at_rest(other)
    assert {state for job in waiting for state in host.world.states(job)} == {State.QUEUED}


def test_windows_of_one_user_hold_up_no_job_of_another(tmp_path: Path) -> None:
    """One of a submission is tried first, since names do not say whose it is."""
    host = host_with(tmp_path, f"user.bob:{SOON}")
    jobs = host.submit(*["true"] * 8, cpu=1)
    host.step_to_start(8)
    assert host.world.clock.monotonic() < 60
    for job in jobs:
        host.step_until_at_rest(job)


def test_no_room_is_made_for_a_job_whose_window_is_closed(tmp_path: Path) -> None:
    """Nothing yields for what could not start then."""
    host = host_with(tmp_path, f"group.big:{SOON}")
    host.script(0.3 * HOUR)
    (running,) = host.submit("true", cpu=8, yieldable=True, max_yields=2)
    host.step_to_start()
    host.submit("true", group="big", cpu=8, priority=9)
    host.step_until_at_rest(running)
    assert host.world.record(State.COMPLETED, running).epoch == 1
