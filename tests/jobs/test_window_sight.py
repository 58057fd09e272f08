"""Windows of time in which jobs may start: where a claim meets them, and as people see them."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from stado.core import keys
from stado.core.records import Record
from stado.core.settings import DeploymentSettings, WindowSettings
from stado.core.spec import Spec
from stado.core.states import State
from stado.jobs.claim import claim
from stado.jobs.fitting import GateName
from stado.jobs.limit_sight import LimitSight
from stado.jobs.settings import change_setting
from stado.jobs.waiting import explain, waits_of, why_queued
from stado.jobs.windows import WindowClosed
from stado.storage.observe import CountingStore
from tests.jobs.broadcasts import Agent
from tests.jobs.world import ALICE, World, give_back

GROUP = Spec(command="", group="big")
NIGHT = "daily@22:00-06:00@Europe/Berlin"
"""The world begins on Thursday, 2026-01-01, at midnight in UTC."""

DAY = "daily@08:00-20:00@UTC"


def stated(*rules: str) -> DeploymentSettings:
    return DeploymentSettings(windows=WindowSettings(rules=list(rules)))


def queued(world: World, spec: Spec = GROUP) -> Record:
    return world.record(State.QUEUED, world.submit(spec=spec))


@pytest.mark.parametrize("whose", ["all", "group.big", "user.ada"])
def test_nothing_is_claimed_and_nothing_written_while_no_window_is_open(
    world: World, whose: str
) -> None:
    """R4, R64: a job that waits for its window waits in the queue."""
    record = queued(world)
    counting = CountingStore(world.store, world.tasks)
    repo, (entry,) = world.repo_over(counting), world.entries()
    with pytest.raises(WindowClosed) as closed:
        claim(repo, entry, ALICE, stated(f"{whose}:{DAY}"))
    assert closed.value.restriction.name == whose
    asked = counting.snapshot()
    assert (asked.reads, asked.writes, asked.deletes, asked.lists) == (1, 0, 0, 0)
    assert world.names(keys.QUOTA) == []
    world.clock.sleep(8 * 3600)
    claimed = claim(world.repo, entry, ALICE, stated(f"{whose}:{DAY}"))
    assert claimed is not None
    assert claimed.record.id == record.id


def test_a_job_that_was_given_back_passes_its_window_again(world: World) -> None:
    """R19, R51: what is retried, resumed or lost has to wait for it, too."""
    world.submit(spec=GROUP)
    settings = stated(f"group.big:{NIGHT}")
    claimed = claim(world.repo, world.entries()[0], ALICE, settings)
    assert claimed is not None
    world.clock.sleep(10 * 3600)
    give_back(world, claimed.record.id)
    with pytest.raises(WindowClosed):
        claim(world.repo, world.entries()[0], ALICE, settings)


def test_others_are_not_held_up_by_windows_of_a_group(world: World) -> None:
    world.submit()
    assert claim(world.repo, world.entries()[0], ALICE, stated(f"group.big:{DAY}"))


@pytest.mark.parametrize("whose", ["all", "group.big", "user.ada"])
def test_a_job_that_waits_for_its_window_is_told_when_it_opens(world: World, whose: str) -> None:
    """R4, R14, R39, R47: before hosts are looked at, in each place where a wait is told."""
    change_setting(world.repo, "windows.rules", [f"{whose}:{DAY}"], by="operator")
    record = queued(world)
    told = explain(world.repo, record)
    called = {"all": "the deployment", "group.big": "group big", "user.ada": "ada"}[whose]
    assert told.wait.code == "waiting_window"
    assert told.wait.text == (
        f"jobs of {called} start daily 08:00-20:00 (UTC) alone: next at Thu 2026-01-01 08:00Z"
    )
    assert told.wait.until is not None
    assert told.wait.until.startswith("at Thu 2026-01-01 08:00Z, when a window opens: ")
    names = [gate.name for gate in told.gates]
    assert names.index(GateName.WINDOW) < names.index(GateName.WORKERS)
    sight = LimitSight(world.repo)
    (listed,) = waits_of([record], [], 0, paused=False, unread=0, limits=sight).values()
    assert listed.code == "waiting_window"
    assert why_queued(world.repo, record.spec, record.id, user="ada").code == "waiting_window"


def test_the_time_on_the_wall_is_told_with_that_of_the_store(world: World) -> None:
    change_setting(world.repo, "windows.rules", [f"group.big:{NIGHT}"], by="operator")
    world.clock.sleep(10 * 3600)
    wait = LimitSight(world.repo).wait_of(GROUP, user="ada", job_id=None)
    assert wait is not None
    assert wait.text.endswith("next at Thu 2026-01-01 21:00Z (22:00 in Europe/Berlin)")


def test_a_limit_goes_before_a_window(world: World) -> None:
    """R14: quota, window, hosts."""
    change_setting(world.repo, "windows.rules", [f"group.big:{DAY}"], by="operator")
    change_setting(world.repo, "groups.limits", {"big": 0}, by="operator")
    told = explain(world.repo, queued(world))
    assert told.wait.code == "waiting_quota"
    closed = [gate.name for gate in told.gates if gate.wait is not None]
    assert closed[:2] == [GateName.QUOTA, GateName.WINDOW]


def test_an_open_window_is_an_open_gate(world: World) -> None:
    change_setting(world.repo, "windows.rules", [f"group.big:{NIGHT}"], by="operator")
    gate = next(one for one in explain(world.repo, queued(world)).gates if one.name == "window")
    assert (gate.wait, gate.text) == (
        None,
        "a window is open: jobs of group big start daily 22:00-06:00 (Europe/Berlin)",
    )
    gates = explain(world.repo, queued(world, Spec(command=""))).gates
    assert GateName.WINDOW not in {gate.name for gate in gates}


def test_a_deadline_before_the_window_opens_is_told_with_the_remedy(world: World) -> None:
    """At once, and not when it has passed."""
    change_setting(world.repo, "windows.rules", [f"group.big:{DAY}"], by="operator")
    deadline = world.repo.now() + timedelta(hours=7)
    wait = why_queued(world.repo, GROUP.evolve(deadline_at=deadline), user="ada")
    assert wait.until is None
    assert wait.text.endswith("next at Thu 2026-01-01 08:00Z, and its deadline is before that")
    assert wait.remedy == "submit it with a later --deadline-at"


@pytest.mark.parametrize(
    ("rules", "text", "remedy"),
    [
        (
            ["group.big:daily@00:00-24:00@Mars/Olympus_Mons"],
            "this host does not know the time zone Mars/Olympus_Mons",
            "pip install -U tzdata",
        ),
        (
            ["group.big:mon@08:00-09:00@UTC", "all:tue@08:00-09:00@UTC"],
            "not all of its windows are open at the same time",
            "stado settings set windows.rules",
        ),
    ],
)
def test_a_window_that_never_opens_says_so(
    world: World, rules: list[str], text: str, remedy: str
) -> None:
    change_setting(world.repo, "windows.rules", rules, by="operator")
    wait = why_queued(world.repo, GROUP, user="ada")
    assert (wait.code, text in wait.text, remedy in (wait.remedy or "")) == (
        "waiting_window",
        True,
        True,
    )


def test_when_windows_open_is_worked_out_once_for_all_who_fall_under_them(world: World) -> None:
    """A list of thousands; it is milliseconds for each otherwise."""
    rules = ["group.big:sat@10:00-12:00@Europe/Berlin", "all:sun@10:00-12:00@UTC"]
    change_setting(world.repo, "windows.rules", rules, by="operator")
    sight, began = LimitSight(world.repo), time.process_time()
    for _ in range(2000):
        assert sight.wait_of(GROUP, user="ada", job_id=None) is not None
    assert time.process_time() - began < 3


def test_what_is_open_now_is_open_at_each_moment_of_the_minute(world: World) -> None:
    change_setting(world.repo, "windows.rules", [f"group.big:{NIGHT}"], by="operator")
    sight, now = LimitSight(world.repo), world.repo.now()
    for seconds in (30, 10, 50):
        at = now + timedelta(seconds=seconds)
        assert sight.opens_at(GROUP, "ada", at) == at
    closed = now + timedelta(hours=5, seconds=20)
    for seconds in (0, -10, 30):
        at = closed + timedelta(seconds=seconds)
        assert sight.opens_at(GROUP, "ada", at) == now + timedelta(hours=21)


def test_a_window_costs_a_look_nothing_beside_the_settings(world: World) -> None:
    change_setting(world.repo, "windows.rules", [f"user.ada:{DAY}"], by="operator")
    records = [queued(world) for _ in range(5)]
    Agent(world).broadcast()
    counting = CountingStore(world.store, world.tasks)
    sight = LimitSight(world.repo_over(counting))
    waits = waits_of(records, [], 0, paused=False, unread=0, limits=sight)
    assert {wait.code for wait in waits.values()} == {"waiting_window"}
    asked = counting.snapshot()
    assert (asked.reads, asked.lists) == (1, 0)
