"""What the deployment decides, as an agent goes by it."""

from __future__ import annotations

import itertools
from datetime import timedelta
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.states import Reason, State, Verdict
from stado.errors import Denied
from stado.jobs.settings import change_setting
from stado.storage.observe import Operation
from stado_agent.rules import Rules
from tests.agent.test_agent import Host
from tests.jobs.actors import GuardedStore

RUNTIME = "limits.runtime_seconds"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def set_limit(host: Host, seconds: int | None) -> None:
    change_setting(host.world.repo, RUNTIME, seconds, by="operator")


def test_a_limit_of_the_deployment_ends_what_is_claimed_from_then_on(host: Host) -> None:
    set_limit(host, 60)
    host.script(3000)
    (job,) = host.submit("true")
    host.step_until_at_rest(job)
    record = host.world.record(State.TIMED_OUT, job)
    assert record.ending is not None
    assert record.ending.reason is Reason.ORG_RUNTIME_LIMIT_EXCEEDED
    assert record.runtime_limit_seconds == 60


def test_a_change_counts_within_two_minutes_and_not_for_what_runs(host: Host) -> None:
    host.script(300)
    (first,) = host.submit("true")
    host.step_to_start()
    set_limit(host, 60)
    host.step_for(125)
    (second,) = host.submit("true")
    host.step_until_at_rest(second)
    host.step_until_at_rest(first)
    assert host.world.states(first) == {State.COMPLETED}
    assert host.world.states(second) == {State.TIMED_OUT}


def test_settings_are_read_rarely_and_not_for_each_job(host: Host) -> None:
    asked: list[float] = []

    def note(operation: Operation, key: str) -> None:
        if key == keys.SETTINGS:
            asked.append(host.clock.monotonic())

    host.on_key = note
    host.script(1)
    for number in range(3):
        host.submit(*["true"] * 4)
        host.step_for(100 + number)
    assert len(asked) == 3
    assert all(later - earlier >= 120 for earlier, later in itertools.pairwise(asked))


def test_nothing_is_claimed_before_the_limits_are_known(host: Host) -> None:
    """Nonsense there is told as a hindrance, and what is mended is found."""
    host.world.store.create(keys.SETTINGS, b"nonsense")
    host.script(1)
    (job,) = host.submit("true")
    host.step_for(40)
    assert host.hindrance == "settings_unknown"
    assert host.world.states(job) == {State.QUEUED}
    host.world.store.delete(keys.SETTINGS, None)
    host.step_until_at_rest(job)
    host.step_for(20)
    assert host.hindrance is None


def test_what_was_read_last_holds_while_it_cannot_be_read(host: Host) -> None:
    set_limit(host, 60)
    host.agent.step()
    host.settings_trouble.on = True
    host.script(3000)
    host.step_for(150)
    (job,) = host.submit("true")
    host.step_until_at_rest(job)
    assert host.world.states(job) == {State.TIMED_OUT}
    assert host.hindrance is None


def test_a_limit_of_the_host_is_broadcast_and_counts(host: Host) -> None:
    """R83, R97."""
    host.agent = host.new_agent(max_run_seconds=50)
    host.script(3000)
    (job,) = host.submit("true")
    host.step_until_at_rest(job)
    ending = host.world.record(State.FAILED, job).ending
    assert ending is not None
    assert (ending.verdict, ending.reason) == (Verdict.FAILED, Reason.TIMEOUT)
    assert host.capacity().max_run_seconds == 50


def test_an_agent_ends_the_jobs_in_the_queue_whose_time_is_up(host: Host) -> None:
    """T16: with no coordinator, and though nothing of it would fit here."""
    deadline = host.world.repo.now() + timedelta(seconds=20)
    host.submit(*["true"] * 6, deadline_at=deadline, cpu=64)
    host.step_for(15)
    assert len(host.world.names(keys.prefix(State.QUEUED))) == 6
    host.step_for(15)
    assert len(host.world.names(keys.prefix(State.TIMED_OUT))) == 6
    assert host.world.names(keys.READY) == []


def test_what_cannot_be_read_of_the_rules_is_named(host: Host) -> None:
    """Of budgets that are not read it is not the settings that have to be mended."""
    repo = host.world.repo
    change_setting(repo, "budgets.rules", ["all:1usd/day"], by="operator")

    def deny(_: Operation, key: str) -> None:
        if key == keys.BUDGETS:
            raise Denied("it is denied")

    guarded = host.world.repo_over(GuardedStore(host.world.store, before=deny))
    rules = Rules(guarded, now=guarded.now)
    rules.refresh_when_due()
    assert rules.settings is None
    assert rules.hindrance is not None
    assert f"mend {keys.BUDGETS}, or let this agent read it" in rules.hindrance.detail
    assert "stado doctor --role agent" in rules.hindrance.detail
