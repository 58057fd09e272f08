"""Limits that a deployment shares, as people see them."""

from __future__ import annotations

import pytest

from stado.core import keys
from stado.core.arrays import make_array, parse_array
from stado.core.spec import Spec
from stado.core.states import State
from stado.jobs.claim import Claimed, claim
from stado.jobs.fitting import GateName
from stado.jobs.limit_sight import LimitSight, look_at_limits
from stado.jobs.settings import change_setting, read_settings
from stado.jobs.submit import submit
from stado.jobs.waiting import explain, waits_of, why_queued
from stado.storage.observe import CountingStore
from tests.jobs.broadcasts import Agent
from tests.jobs.world import ALICE, World

GROUP = Spec(command="", group="licences")


def start(world: World) -> Claimed:
    claimed = claim(world.repo, world.entries()[0], ALICE, read_settings(world.repo))
    assert claimed is not None
    return claimed


def limit(world: World, name: str, value: object) -> None:
    change_setting(world.repo, name, value, by="operator")


@pytest.mark.parametrize(
    ("name", "value", "code", "text"),
    [
        ("groups.limits", {"licences": 1}, "waiting_quota", "jobs of group licences run"),
        ("quotas.running_jobs_per_user", 1, "waiting_quota", "jobs of ada run"),
        ("quotas.running_jobs", 1, "org_running_limit_reached", "jobs of the deployment run"),
    ],
)
def test_a_job_that_waits_for_a_limit_is_told_which_and_who_has_its_places(
    world: World, name: str, value: object, code: str, text: str
) -> None:
    """R14, R47: before hosts are looked at, in each place where a wait is told."""
    limit(world, name, value)
    running = world.submit(spec=GROUP)
    start(world)
    job = world.submit(spec=GROUP)
    record = world.record(State.QUEUED, job)
    told = explain(world.repo, record)
    assert told.wait.code == code
    assert told.wait.text == f"as many {text} as may at a time (1): job {running}"
    names = [gate.name for gate in told.gates]
    assert names.index(GateName.QUOTA) < names.index(GateName.WORKERS)
    sight = LimitSight(world.repo)
    (listed,) = waits_of([record], [], 0, paused=False, unread=0, limits=sight).values()
    assert listed.code == code
    assert why_queued(world.repo, record.spec, job, user="ada").code == code


def test_a_limit_with_room_is_an_open_gate(world: World) -> None:
    limit(world, "groups.limits", {"licences": 2})
    world.submit(spec=GROUP)
    start(world)
    record = world.record(State.QUEUED, world.submit(spec=GROUP))
    gate = next(one for one in explain(world.repo, record).gates if one.name is GateName.QUOTA)
    assert (gate.wait, gate.text) == (
        None,
        "running under its limits: 1 of 2 of group licences",
    )
    other = world.record(State.QUEUED, world.submit())
    assert GateName.QUOTA not in {gate.name for gate in explain(world.repo, other).gates}


def test_a_limit_of_none_names_the_setting(world: World) -> None:
    limit(world, "groups.limits", {"licences": 0})
    wait = LimitSight(world.repo).wait_of(GROUP, user="ada", job_id=None)
    assert wait is not None
    assert wait.text == "the deployment lets none of group licences start"
    assert wait.remedy == "`stado settings set groups.limits` allows more"


def test_a_list_of_many_that_wait_lists_the_places_of_each_limit_once(world: World) -> None:
    limit(world, "groups.limits", {"licences": 1})
    world.submit(spec=GROUP)
    start(world)
    base = world.submit(*["true"] * 20, spec=GROUP)
    jobs = [entry.job_id for entry in world.entries() if entry.job_id.startswith(base)]
    records = [world.record(State.QUEUED, job) for job in jobs]
    counting = CountingStore(world.store, world.tasks)
    sight = LimitSight(world.repo_over(counting))
    waits = waits_of(records, [], 0, paused=False, unread=0, limits=sight)
    assert {wait.code for wait in waits.values()} == {"waiting_quota"}
    made = counting.snapshot()
    assert (made.reads, made.lists) == (1, 1)


def test_no_limit_is_passed_over_where_many_are_looked_at(world: World) -> None:
    """R14: of more than fifty the whole folder is listed once."""
    groups = {f"g{number:02d}": 1 for number in range(70)}
    limit(world, "groups.limits", groups)
    records = []
    for group in groups:
        world.store.create(keys.slot(f"group.{group}", 0), b"x")
        job = world.submit(spec=Spec(command="", group=group))
        records.append(world.record(State.QUEUED, job))
    counting = CountingStore(world.store, world.tasks)
    sight = LimitSight(world.repo_over(counting))
    waits = waits_of(records, [], 0, paused=False, unread=0, limits=sight)
    assert [wait.code for wait in waits.values()] == ["waiting_quota"] * 70
    assert counting.snapshot().lists == 51


def test_a_limit_that_was_not_looked_at_is_not_said_to_have_room(world: World) -> None:
    """R14: behind ten thousand places of others."""
    limit(world, "groups.limits", {f"g{number:02d}": 1 for number in range(60)})
    for number in range(10_001):
        world.store.create(keys.slot("group.aaa", number), b"x")
    sight = LimitSight(world.repo)
    waits = [
        sight.wait_of(Spec(command="", group=f"g{number:02d}"), user="ada", job_id=None)
        for number in range(60)
    ]
    assert waits[:50] == [None] * 50
    for number, wait in enumerate(waits[50:], 50):
        assert wait is not None
        assert wait.code == "waiting_quota"
        assert f"of group g{number} is taken was not looked at" in wait.text
        assert wait.until is not None


def test_settings_that_cannot_be_read_limit_nothing_that_is_shown(world: World) -> None:
    world.store.put(keys.SETTINGS, b"nonsense")
    assert LimitSight(world.repo).wait_of(GROUP, user="ada", job_id=None) is None


def test_who_has_which_places(world: World) -> None:
    limit(world, "groups.limits", {"licences": 2, "big": 1})
    limit(world, "quotas.running_jobs_per_user", 5)
    running = world.submit(spec=GROUP)
    start(world)
    limit(world, "quotas.running_jobs_per_user", None)
    world.store.create(keys.slot("group.licences", 7), b"nonsense")
    told = [
        (one.name, one.limit, [token.job_id for token in one.held], one.more)
        for one in look_at_limits(world.repo)
    ]
    assert told == [
        ("group.big", 1, [], 0),
        ("group.licences", 2, [running], 1),
        ("user.ada", None, [running], 0),
    ]


def test_a_job_whose_limit_has_room_waits_for_what_comes_next(world: World) -> None:
    limit(world, "quotas.running_jobs", 1)
    Agent(world).broadcast()
    record = world.record(State.QUEUED, world.submit(spec=Spec(command="", cpu=999)))
    assert explain(world.repo, record).wait.code == "no_eligible_worker"


def test_an_array_is_told_how_many_of_it_may_run(world: World) -> None:
    request = make_array("part", parse_array("0-3%1"), Spec(command=""))
    base = submit(world.repo, run_id="parts", request=request, submitter="ada").base_id
    running = start(world).record.id
    (told,) = look_at_limits(world.repo)
    assert (told.name, told.limit, told.taken) == (f"run.{base}", 1, 1)
    record = world.record(State.QUEUED, f"{base}-2")
    text = f"as many jobs of array {base} run as may at a time (1): job {running}"
    assert explain(world.repo, record).wait.text == text
