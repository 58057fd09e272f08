"""What a job counts for: from the start of its command until nothing of it lives."""

from __future__ import annotations

from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import Ran
from stado.core.spec import Spec
from stado.core.states import State, Verdict
from stado.core.usage import Use, parse_use
from stado.jobs.changes import cancel
from stado.jobs.claim import Claimed
from stado.storage.faults import FaultKind
from tests.agent.fakes import Script
from tests.agent.scene import Scene, Trouble

CHECKED = Spec(command="", verify="check")


def scene_of(folder: Path, *, seconds: float = 50, exit_code: int = 0) -> Scene:
    scene = Scene(folder, CHECKED)
    scene.script(Script(seconds=seconds, exit_code=exit_code, files={"output/result": b"42"}))
    scene.script(Script(seconds=20), "check")
    return scene


def on_gpus(scene: Scene, gpus: int) -> Claimed:
    """As a claim on a host that has some."""
    claimed = scene.claim()
    assert claimed.record.holder is not None
    record = claimed.record.evolve(holder=claimed.record.holder.evolve(gpus=gpus))
    key = keys.record(State.RUNNING, scene.job)
    version = scene.world.store.replace(key, record.encode(), claimed.running_version)
    return Claimed(record, version)


def ran(scene: Scene, epoch: int = 1) -> Ran:
    found = scene.ending_of(epoch).ran
    assert found is not None
    return found


def seconds(ran: Ran) -> float:
    return ran.wall_ms / 1000


def uses(scene: Scene) -> list[Use]:
    names = [key.rpartition("/")[2] for key in scene.world.names(keys.USAGE)]
    return [use for use in map(parse_use, names) if use is not None]


def test_the_verify_command_counts_and_the_upload_does_not(tmp_path: Path) -> None:
    """R26, R63: the store takes no files for a while."""
    scene = scene_of(tmp_path)
    claimed = on_gpus(scene, 2)
    away = Trouble(FaultKind.UNAVAILABLE, lambda _, key: "/output/" in key)
    scene.clock.at(100, lambda: setattr(away, "on", False))
    scene.run(claimed, faults=away)
    assert seconds(ran(scene)) == pytest.approx(70, abs=1)
    assert scene.clock.monotonic() >= 100
    (use,) = uses(scene)
    assert (use.gpus, use.wall_ms, use.estimated) == (2, ran(scene).wall_ms, False)
    assert scene.final.usage.gpu_ms == 2 * ran(scene).wall_ms


def test_a_command_that_is_stopped_counts_until_nothing_of_it_lives(tmp_path: Path) -> None:
    scene = scene_of(tmp_path)
    claimed = scene.claim()
    scene.clock.at(30, lambda: cancel(scene.world.repo, scene.job, by="ada"))
    scene.run(claimed)
    assert scene.ending.verdict is Verdict.CANCELLED
    assert 30 <= seconds(ran(scene)) < 50


def test_what_could_not_be_started_counts_for_nothing(tmp_path: Path) -> None:
    """R25"""
    scene = Scene(tmp_path, Spec(command="", host_dir="/nowhere/at/all"))
    scene.script(Script(refused=FileNotFoundError(2, "No such file", "/nowhere/at/all")))
    scene.run(scene.claim())
    assert scene.ending.verdict is Verdict.FAILED
    assert scene.ending.ran is None
    assert uses(scene) == []


def test_an_adopted_command_counts_once(tmp_path: Path) -> None:
    """Two epochs, one command on end: it keeps the GPUs that it was given."""
    scene = scene_of(tmp_path, seconds=100)
    claimed = on_gpus(scene, 3)
    scene.clock.at(40, scene.give_back)
    scene.run(claimed)
    first, second = ran(scene, 1), ran(scene, 2)
    assert (first.estimated, second.estimated) == (True, False)
    assert second.began_at == first.ended_at
    assert seconds(first) + seconds(second) == pytest.approx(120, abs=1)
    assert [use.gpus for use in uses(scene)] == [3, 3]


@pytest.mark.parametrize("given_back_at", [60.0, 90.0])
def test_an_outcome_that_is_carried_over_counts_once(tmp_path: Path, given_back_at: float) -> None:
    """The command ended while the store was away."""
    scene = scene_of(tmp_path, exit_code=3)
    claimed = scene.claim()
    away = Trouble(FaultKind.DENIED, lambda *_: True)
    away.on = False
    scene.clock.at(49, lambda: setattr(away, "on", True))
    scene.clock.at(given_back_at, scene.give_back)
    scene.clock.at(100, lambda: setattr(away, "on", False))
    scene.run(claimed, faults=away)
    assert scene.final.epoch == 2
    assert ran(scene, 2).began_at == ran(scene, 1).ended_at
    assert sum(use.wall_ms for use in uses(scene)) == pytest.approx(50_000, abs=1_000)
    assert scene.final.usage.wall_ms == sum(use.wall_ms for use in uses(scene))
