"""The settings of a deployment: read, and changed by compare-and-swap."""

from __future__ import annotations

import pytest

from stado.core import keys
from stado.core.settings import DeploymentSettings, Limits
from stado.errors import Refused, Unreadable
from stado.jobs.settings import change_setting, read_settings
from tests.jobs.actors import Actor
from tests.jobs.world import World

RUNTIME, PREPARING = "limits.runtime_seconds", "limits.pre_running_seconds"


def test_a_new_deployment_limits_nothing(world: World) -> None:
    assert read_settings(world.repo) == DeploymentSettings()
    assert read_settings(world.repo).limits == Limits()
    assert not world.has(keys.SETTINGS)


def test_a_setting_is_set_changed_and_unset(world: World) -> None:
    change_setting(world.repo, RUNTIME, 60, by="ada")
    change_setting(world.repo, PREPARING, 30, by="ada")
    changed = change_setting(world.repo, RUNTIME, 120, by="bob")
    assert read_settings(world.repo) == changed
    assert changed.limits == Limits(runtime_seconds=120, pre_running_seconds=30)
    assert changed.changed_by == "bob"
    change_setting(world.repo, RUNTIME, None, by="ada")
    assert read_settings(world.repo).limits == Limits(pre_running_seconds=30)


def test_what_is_so_already_is_not_written(world: World) -> None:
    first = change_setting(world.repo, RUNTIME, 60, by="ada")
    assert change_setting(world.repo, RUNTIME, 60, by="bob") == first


@pytest.mark.parametrize("stopped_after", range(4))
@pytest.mark.parametrize("there", [False, True], ids=["none", "one"])
def test_of_two_changes_at_once_both_have_their_effect(
    world: World, stopped_after: int, there: bool
) -> None:
    if there:
        change_setting(world.repo, RUNTIME, 1, by="ada")
    slow = Actor(
        world.store,
        lambda store: change_setting(world.repo_over(store), RUNTIME, 60, by="ada"),
    )
    slow.step(stopped_after)
    change_setting(world.repo, PREPARING, 30, by="bob")
    slow.finish()
    assert slow.error is None
    assert read_settings(world.repo).limits == Limits(runtime_seconds=60, pre_running_seconds=30)


def test_what_a_newer_program_wrote_there_stays(world: World) -> None:
    world.store.create(keys.SETTINGS, b'{"schema": 1, "limits": {"jobs": 3}, "window": "night"}')
    change_setting(world.repo, RUNTIME, 60, by="ada")
    assert b'"jobs":3' in world.store.get(keys.SETTINGS).data
    assert b'"window":"night"' in world.store.get(keys.SETTINGS).data


@pytest.mark.parametrize(
    "limits", ['{"runtime_seconds": 0}', '{"runtime_seconds": true}', '{"runtime_seconds": 1.5}']
)
def test_nonsense_is_neither_believed_nor_written_over(world: World, limits: str) -> None:
    data = f'{{"schema": 1, "limits": {limits}}}'.encode()
    world.store.create(keys.SETTINGS, data)
    with pytest.raises(Unreadable):
        read_settings(world.repo)
    with pytest.raises(Unreadable):
        change_setting(world.repo, PREPARING, 30, by="ada")
    assert world.store.get(keys.SETTINGS).data == data


def test_a_setting_that_there_is_not_is_refused(world: World) -> None:
    with pytest.raises(Refused, match=r"did you mean limits\.runtime_seconds"):
        change_setting(world.repo, "limit.runtime_second", 60, by="ada")
    assert not world.has(keys.SETTINGS)
