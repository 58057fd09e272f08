"""A job that failed is queued again by itself (R20, T13), by its holder's verdict alone."""

from __future__ import annotations

from pathlib import Path

from stado.core import keys
from stado.core.retries import RetrySettings
from stado.core.settings import DeploymentSettings
from stado.core.spec import Spec
from stado.core.states import Reason, State, Verdict
from stado.jobs.changes import cancel, retry
from stado.jobs.claim import claim
from stado.jobs.listings import newest
from stado.storage.observe import Operation
from tests.agent.fakes import Script
from tests.agent.scene import Scene
from tests.jobs.world import ALICE

FAILS = Script(seconds=20, exit_code=3, log=b"no luck\n", last_log=b"")
DELAY = 40


def scene_of(folder: Path, script: Script = FAILS, **stated: object) -> Scene:
    spec = {"retries": 2, "retry_delay_seconds": DELAY, **stated}
    scene = Scene(folder, Spec(command="", **spec))  # type: ignore[arg-type]
    scene.script(script)
    return scene


def run_next(scene: Scene) -> None:
    """The next try, once it is due."""
    (scene.entry,) = scene.world.entries()
    assert scene.entry.due_ms is not None
    wait_ms = scene.entry.due_ms - scene.world.repo.now_ms()
    scene.clock.sleep(max(0, wait_ms) / 1000)
    scene.run(scene.claim())


def test_a_job_that_fails_is_tried_again_until_its_tries_are_used_up(tmp_path: Path) -> None:
    """R18, R20, R21, T13: one job, three epochs; the last failure is the end."""
    scene = scene_of(tmp_path)
    scene.run(scene.claim())
    assert scene.world.states(scene.job) == {State.QUEUED}
    assert scene.ending_of(1).verdict is Verdict.RETRYING
    run_next(scene)
    run_next(scene)
    assert (scene.ending.verdict, scene.ending.reason) == (Verdict.FAILED, Reason.JOB_FAILED)
    assert (scene.final.epoch, scene.final.starts, scene.final.auto_retries) == (3, 3, 2)
    assert scene.log(1) == scene.log(2) == b"no luck\n"


def test_what_waits_for_its_next_try_is_not_to_be_had_before(tmp_path: Path) -> None:
    scene = scene_of(tmp_path)
    scene.run(scene.claim())
    (entry,) = scene.world.entries()
    assert claim(scene.world.repo, entry, ALICE) is None
    assert not scene.world.has(keys.record(State.RUNNING, scene.job))
    scene.clock.sleep(DELAY * 1.25)
    assert claim(scene.world.repo, entry, ALICE) is not None


def test_the_next_try_finds_the_last_checkpoint(tmp_path: Path) -> None:
    """R18"""
    saves = Script(seconds=20, exit_code=1, files={"checkpoints/model": b"weights"})
    scene = scene_of(tmp_path, saves)
    scene.run(scene.claim())
    seen: list[bytes] = []
    model = scene.folder.workspace(scene.job, 2).checkpoints / "model"
    (entry,) = scene.world.entries()
    assert entry.due_ms is not None
    begin = scene.clock.monotonic() + (entry.due_ms - scene.world.repo.now_ms()) / 1000
    scene.clock.at(begin + 10, lambda: seen.append(model.read_bytes()))
    run_next(scene)
    assert seen == [b"weights"]


def test_a_cancel_that_comes_too_late_for_the_verdict_ends_the_next_epoch(tmp_path: Path) -> None:
    """R22"""
    scene = scene_of(tmp_path)

    def before(operation: Operation, key: str) -> None:
        if (operation, key) == (Operation.CREATE, keys.end_cell(scene.job, 1)):
            cancel(scene.world.repo, scene.job, by="ada")

    scene.run(scene.claim(), before=before)
    assert scene.ending_of(1).verdict is Verdict.RETRYING
    assert (scene.final.state, scene.final.epoch) == (State.CANCELLED, 2)


def test_a_cancel_closes_a_try_that_waits(tmp_path: Path) -> None:
    """R55, R22: also while it waits for its time."""
    scene = scene_of(tmp_path)
    scene.run(scene.claim())
    cancel(scene.world.repo, scene.job, by="ada")
    assert (scene.final.state, scene.final.epoch) == (State.CANCELLED, 2)
    assert len(scene.commands) == 1


def test_the_deployment_can_say_it_for_all(tmp_path: Path) -> None:
    """R54"""
    scene = scene_of(tmp_path, retries=None, retry_delay_seconds=None)
    scene.rules = DeploymentSettings(retries=RetrySettings(default=1, delay_seconds=5))
    scene.run(scene.claim())
    run_next(scene)
    assert (scene.final.state, scene.final.auto_retries) == (State.FAILED, 1)


def test_a_command_that_could_not_be_started_is_not_tried_again(tmp_path: Path) -> None:
    """R53"""
    refused = FileNotFoundError(2, "No such file or directory", "/nowhere")
    scene = scene_of(tmp_path, Script(refused=refused), host_dir="/nowhere")
    scene.run(scene.claim())
    assert scene.ending.reason is Reason.LAUNCH_FAILED
    assert scene.final.auto_retries == 0


def test_a_job_that_somebody_retries_is_the_same_job(tmp_path: Path) -> None:
    """R52: one row, its run id, the places of its output and its checkpoints; one more retry."""
    saves = Script(seconds=20, exit_code=1, files={"checkpoints/model": b"weights"})
    scene = scene_of(tmp_path, saves, retries=0)
    scene.run(scene.claim())
    before = scene.final
    retry(scene.world.repo, scene.job, by="ada")
    (scene.entry,) = scene.world.entries()
    scene.script(Script(seconds=20, files={"output/result": b"42"}))
    seen: list[bytes] = []
    model = scene.folder.workspace(scene.job, 2).checkpoints / "model"
    scene.clock.at(scene.clock.monotonic() + 10, lambda: seen.append(model.read_bytes()))
    scene.run(scene.claim())
    assert (scene.final.id, scene.final.run_id) == (before.id, before.run_id)
    assert (scene.final.manual_retries, scene.final.epoch) == (1, 2)
    assert [environment["STADO_JOB_ID"] for environment in scene.environments] == [scene.job] * 2
    assert seen == [b"weights"]
    assert scene.output(2, "result") == b"42"
    assert [row.job_id for row in newest(scene.world.repo, limit=20).rows] == [scene.job]
