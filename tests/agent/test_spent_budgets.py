"""Budgets that are spent, as an agent and its supervisors go by them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from stado.core import keys
from stado.core.costs import NO_CATALOG
from stado.core.states import State
from stado.core.usage import Use, use_key
from stado.errors import Denied
from stado.jobs.budget_keeping import BudgetKeeping
from stado.jobs.settings import change_setting
from stado.storage.observe import Operation
from stado_agent.rules import Rules
from tests.agent.test_agent import Host
from tests.agent.test_windows import is_queued
from tests.jobs.actors import GuardedStore

HOUR = 3600.0


def host_of(folder: Path, *rules: str, looked: list[str] | None = None) -> Host:
    """Three quarters of an hour before the day is over in UTC. Two GPU hours of ada's are spent, in
    group big, and two of bob's."""

    def note(operation: Operation, key: str) -> None:
        if looked is not None and operation is Operation.GET and is_queued(key):
            looked.append(key)

    host = Host(folder, cpu=8.0)
    world = host.world
    change_setting(world.repo, "budgets.rules", list(rules), by="operator")
    host.clock.sleep(23.25 * HOUR)
    now_ms, hour_ms = world.repo.now_ms(), 3_600_000
    use = Use("abcdefghijklmnop", 1, "ada", None, now_ms, hour_ms, gpus=2, group="big")
    for one in (use, replace(use, epoch=2, user="bob", group=None)):
        world.store.create(use_key(one), b"")
    BudgetKeeping(world.repo, by="coordinator", catalog=NO_CATALOG).turn()
    host.agent = host.new_agent(before=note)
    host.script(20)
    return host


def queued(host: Host, jobs: list[str]) -> bool:
    return {state for job in jobs for state in host.world.states(job)} == {State.QUEUED}


@pytest.mark.parametrize("whose", ["all", "group.big", "user.ada", "users"])
def test_jobs_whose_budget_is_spent_are_left_alone_until_the_next_period(
    tmp_path: Path, whose: str
) -> None:
    """R302: no job is read to learn that it has to wait; of a user's one is. No coordinator lives
    that would free them: midnight does."""
    looked: list[str] = []
    host = host_of(tmp_path, f"{whose}:2gpuh/day", looked=looked)
    jobs = host.submit(*["true"] * 5, group="big")
    host.step_for(0.7 * HOUR)
    assert queued(host, jobs)
    assert len(looked) == (1 if whose.startswith("user") else 0)
    host.step_for(0.1 * HOUR)
    for job in jobs:
        host.step_until_at_rest(job)
        (start,) = (one for one in [host.world.record(State.COMPLETED, job).holder] if one)
        assert start.claimed_at.day == 2


def test_a_larger_amount_frees_them_as_soon_as_it_is_known(tmp_path: Path) -> None:
    """R302: within two minutes, whatever the document says then."""
    host = host_of(tmp_path, "all:4gpuh/month")
    jobs = host.submit("true")
    host.step_for(300)
    assert queued(host, jobs)
    change_setting(host.world.repo, "budgets.rules", ["all:5gpuh/month"], by="operator")
    host.step_for(150)
    assert not queued(host, jobs)


def test_what_runs_when_its_budget_is_spent_goes_on(tmp_path: Path) -> None:
    """R302: it is never stopped, and the next one waits."""
    host = host_of(tmp_path, "all:100gpuh/month")
    host.script(HOUR)
    (job,) = host.submit("true")
    host.step_to_start()
    change_setting(host.world.repo, "budgets.rules", ["all:4gpuh/month"], by="operator")
    host.step_for(300)
    assert host.running() == 1
    (later,) = host.submit("true")
    host.step_until_at_rest(job)
    host.step_for(60)
    assert host.world.states(later) == {State.QUEUED}


def test_jobs_of_others_pass_those_that_wait_for_a_budget(tmp_path: Path) -> None:
    host = host_of(tmp_path, "group.big:1gpuh/month", "user.bob:1gpuh/month")
    waiting = host.submit("true", "true", group="big", priority=9)
    (other,) = host.submit("true")
    host.step_until_at_rest(other)
    assert queued(host, waiting)


def test_a_spent_budget_of_one_user_holds_up_no_job_of_another(tmp_path: Path) -> None:
    """R302: one of a submission is tried first, since names do not say whose it is."""
    host = host_of(tmp_path, "user.bob:2gpuh/month")
    began = host.clock.monotonic()
    jobs = host.submit(*["true"] * 8, cpu=1)
    host.step_to_start(8)
    assert host.clock.monotonic() - began < 60
    for job in jobs:
        host.step_until_at_rest(job)


def test_who_cannot_be_told_what_is_spent_goes_by_what_was(tmp_path: Path) -> None:
    """R302: unreachable is not unspent; an agent that has never heard it claims nothing."""
    host = host_of(tmp_path, "all:4gpuh/month")
    denied: list[str] = []

    def deny(_: Operation, key: str) -> None:
        if key == keys.BUDGETS and denied:
            raise Denied(key, "not allowed")

    rules = Rules(
        host.world.repo_over(GuardedStore(host.world.store, before=deny)), now=host.clock.now
    )
    rules.refresh_when_due()
    known = rules.budgets
    assert known is not None
    denied.append("")
    host.clock.sleep(121)
    change_setting(host.world.repo, "quotas.running_jobs", 3, by="operator")
    rules.refresh_when_due()
    assert rules.budgets is known
    assert rules.settings is not None
    assert rules.settings.quotas.running_jobs == 3
    new = Rules(
        host.world.repo_over(GuardedStore(host.world.store, before=deny)), now=host.clock.now
    )
    new.refresh_when_due()
    assert new.settings is None
    assert new.hindrance is not None
    assert keys.BUDGETS in new.hindrance.detail
    denied.clear()
    host.clock.sleep(11)
    new.refresh_when_due()
    assert new.hindrance is None
    assert new.budgets is not None


def test_no_room_is_made_for_a_job_whose_budget_is_spent(tmp_path: Path) -> None:
    """R302: nothing yields for what could not start then, though its name does not say whose it
    is."""
    host = host_of(tmp_path, "user.ada:100gpuh/month")
    host.script(0.4 * HOUR)
    (running,) = host.submit("true", cpu=8, yieldable=True, max_yields=2)
    host.step_to_start()
    change_setting(host.world.repo, "budgets.rules", ["user.ada:2gpuh/month"], by="operator")
    host.step_for(150)
    host.submit("true", cpu=8, priority=9)
    host.step_until_at_rest(running)
    assert host.world.record(State.COMPLETED, running).epoch == 1
