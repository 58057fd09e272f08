"""Limits that a whole deployment shares, as an agent and its supervisors go by them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.arrays import make_array, parse_array
from stado.core.settings import DeploymentSettings, Quotas
from stado.core.spec import Spec
from stado.core.states import State, Verdict
from stado.jobs.claim import claim
from stado.jobs.settings import change_setting
from stado.jobs.submit import submit
from stado.storage.observe import Operation
from tests.agent.fakes import Script
from tests.agent.scene import Scene
from tests.agent.test_agent import Host
from tests.agent.test_room import card
from tests.jobs.world import BOB

ONE = DeploymentSettings(quotas=Quotas(running_jobs=1))


def limited_host(folder: Path, name: str, value: object, **watched: object) -> Host:
    host = Host(folder, cpu=8.0)
    change_setting(host.world.repo, name, value, by="operator")
    host.agent = host.new_agent(**watched)  # type: ignore[arg-type]
    return host


def most_at_once(host: Host, jobs: list[str]) -> int:
    """Until all of them have ended."""
    most = 0

    def over() -> bool:
        nonlocal most
        most = max(most, host.running())
        return all(host.at_rest(job) for job in jobs)

    host.step_until(over)
    return most


def test_as_many_jobs_run_as_may_and_all_come_to_their_turn(tmp_path: Path) -> None:
    """R4, R39, R64: a host has room for eight, the deployment lets two run."""
    host = limited_host(tmp_path, "quotas.running_jobs", 2)
    host.script(20)
    jobs = host.submit(*["true"] * 5)
    assert most_at_once(host, jobs) == 2
    assert host.world.names(keys.QUOTA) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("groups.limits", {"licences": 1}), ("quotas.running_jobs_per_user", 1)],
)
def test_jobs_under_a_full_limit_are_left_alone_for_a_while(
    tmp_path: Path, name: str, value: object
) -> None:
    """R64: at most one of them is looked at each few seconds, however many there are."""
    looked: list[str] = []

    def note(operation: Operation, key: str) -> None:
        if operation is Operation.GET and key.startswith(keys.prefix(State.QUEUED)):
            looked.append(key)

    host = limited_host(tmp_path, name, value, before=note)
    host.script(60)
    host.submit(*["true"] * 20, group="licences")
    host.step_to_start()
    host.step_for(20)
    assert host.running() == 1
    assert 1 < len(looked) < 12


def test_a_job_of_no_group_passes_those_that_wait_for_theirs(tmp_path: Path) -> None:
    host = limited_host(tmp_path, "groups.limits", {"licences": 0})
    host.script(5)
    waiting = host.submit("true", "true", group="licences", priority=9)
    (other,) = host.submit("true")
    host.step_until_at_rest(other)
    assert {state for job in waiting for state in host.world.states(job)} == {State.QUEUED}


@pytest.mark.parametrize("taken", [False, True])
def test_what_lives_on_when_its_epoch_was_lost_needs_a_place_anew(
    tmp_path: Path, taken: bool
) -> None:
    """Where others have it by now, the command ends and the job waits for its turn."""
    scene = Scene(tmp_path)
    scene.rules = ONE
    scene.script(Script(seconds=100))
    claimed = scene.claim()
    meanwhile: Callable[[], None] = scene.give_back
    if taken:
        meanwhile = lambda: let_another_in(scene)  # noqa: E731
    scene.clock.at(40, meanwhile)
    scene.run(claimed)
    if taken:
        assert scene.world.states(scene.job) == {State.QUEUED}
        assert scene.processes.executions[-1].process.living() == []
    else:
        assert (scene.ending.verdict, scene.final.starts) == (Verdict.COMPLETED, 1)
        assert scene.world.names(keys.QUOTA) == []


def let_another_in(scene: Scene) -> None:
    scene.give_back()
    other = scene.world.submit()
    entry = next(one for one in scene.world.entries() if one.job_id == other)
    assert claim(scene.world.repo, entry, BOB, ONE)


def test_of_an_array_as_many_run_at_a_time_as_it_says(tmp_path: Path) -> None:
    """And each finds its number."""
    host = Host(tmp_path, cpu=8.0)
    host.script(20, "part")
    request = make_array("part", parse_array("3-7%2"), Spec(command=""))
    submission = submit(host.world.repo, run_id="parts", request=request, submitter="ada")
    assert most_at_once(host, submission.job_ids) == 2
    found = [one.environment["STADO_ARRAY_INDEX"] for one in host.processes.executions]
    assert sorted(found) == ["3", "4", "5", "6", "7"]
    assert host.world.names(keys.QUOTA) == []


# --- cards ----------------------------------------------------------------------------------


def cards_host(folder: Path, name: str, value: object, **watched: object) -> Host:
    host = limited_host(folder, name, value, **watched)
    host.hardware.devices = [card(f"GPU-{letter}") for letter in "abcd"]
    host.agent = host.new_agent(**watched)  # type: ignore[arg-type]
    return host


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("quotas.running_gpus", 2),
        ("quotas.running_gpus_per_user", 2),
        ("groups.gpus", {"licences": 2}),
    ],
)
def test_as_many_cards_are_held_as_may_be(tmp_path: Path, name: str, value: object) -> None:
    """R39, R64: the host has four; jobs without cards pass by."""
    host = cards_host(tmp_path, name, value)
    host.script(20)
    jobs = host.submit(*["true"] * 4, gpus=1, cpu=1, group="licences")
    assert most_at_once(host, jobs) == 2
    others = host.submit(*["true"] * 3, cpu=1, group="licences")
    jobs = host.submit(*["true"] * 2, gpus=2, cpu=1, group="licences")
    assert most_at_once(host, [*jobs, *others]) == 4
    assert host.world.names(keys.QUOTA) == []


@pytest.mark.parametrize("name", ["quotas.running_gpus", "quotas.running_gpus_per_user"])
def test_a_job_of_more_cards_than_there_may_be_is_in_nobodys_way(tmp_path: Path, name: str) -> None:
    """And nobody reads it again and again."""
    looked: list[str] = []

    def note(operation: Operation, key: str) -> None:
        if operation is Operation.GET and key.startswith(keys.prefix(State.QUEUED)):
            looked.append(key)

    host = cards_host(tmp_path, name, 2, before=note)
    host.script(20)
    (large,) = host.submit("true", gpus=3, cpu=1, priority=9)
    (small,) = host.submit("true", gpus=1, cpu=1)
    host.step_until_at_rest(small)
    assert host.world.states(large) == {State.QUEUED}
    assert len(looked) == 1


def test_smaller_jobs_do_not_keep_one_of_several_cards_from_its_turn(
    tmp_path: Path,
) -> None:
    """Once the limit was found full they are tried in the order of the queue, one after another."""
    host = cards_host(tmp_path, "quotas.running_gpus", 2)
    host.script(20)
    host.submit("true", gpus=1, cpu=1)
    host.step_to_start()
    (large,) = host.submit("true", gpus=2, cpu=1)
    small = host.submit(*["true"] * 6, gpus=1, cpu=1)
    host.step_until_at_rest(large)
    assert sum(host.at_rest(job) for job in small) <= 1
