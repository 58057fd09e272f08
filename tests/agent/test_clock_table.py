"""What each clock does when a job comes to run again: docs/clocks.md, "What each survives"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from stado.core.retries import RetrySettings
from stado.core.settings import DeploymentSettings, Limits
from stado.core.spec import Spec
from stado.core.states import Reason, State, Verdict
from stado.jobs.changes import pause, resume, retry
from tests.agent.fakes import Script
from tests.agent.scene import Scene
from tests.agent.test_clocks import SlowBeats

BREAK_AT, BREAK_SECONDS = 100.0, 300.0
RETRY_SECONDS = 40
LATE = 2.0
FOR_EVER = Script(seconds=9000, files={"checkpoints/model": b"weights"})
FAILS_FIRST = Script(seconds=BREAK_AT, exit_code=3, then=FOR_EVER)

TIMED_OUT = (Verdict.TIMED_OUT, Reason.ORG_RUNTIME_LIMIT_EXCEEDED)
DEADLINE = (Verdict.TIMED_OUT, Reason.DEADLINE_PASSED)
CEILING = (Verdict.FAILED, Reason.TIMEOUT)
PREPARATION = (Verdict.FAILED, Reason.PRE_RUNNING_DEADLINE)


def fail_and_be_tried_again(scene: Scene) -> None:
    scene.script(FAILS_FIRST)
    scene.run(scene.claim())
    (entry,) = scene.world.entries()
    assert entry.due_ms is not None
    scene.clock.sleep((entry.due_ms - scene.world.repo.now_ms()) / 1000)


def be_paused_and_resumed(scene: Scene) -> None:
    scene.script(FOR_EVER)
    scene.clock.at(BREAK_AT, lambda: pause(scene.world.repo, scene.job, by="ada"))
    scene.run(scene.claim())
    assert scene.world.states(scene.job) == {State.PAUSED}
    scene.clock.sleep(BREAK_SECONDS)
    resume(scene.world.repo, scene.job, by="ada")


def fail_and_be_retried(scene: Scene) -> None:
    scene.script(FAILS_FIRST)
    scene.rules = scene.rules.evolve(retries=RetrySettings(most=0))
    scene.run(scene.claim())
    assert scene.world.states(scene.job) == {State.FAILED}
    scene.clock.sleep(BREAK_SECONDS)
    retry(scene.world.repo, scene.job, by="ada")


@dataclass(frozen=True)
class Story:
    """How a job comes to run a second time, and what that is to a time limit."""

    happen: Callable[[Scene], None]
    keeps_limit: bool
    stands_still: bool = False


STORIES = {
    "tried again": Story(fail_and_be_tried_again, keeps_limit=True),
    "paused": Story(be_paused_and_resumed, keeps_limit=True, stands_still=True),
    "retried": Story(fail_and_be_retried, keeps_limit=False),
}


@pytest.fixture(params=STORIES.values(), ids=STORIES)
def story(request: pytest.FixtureRequest) -> Story:
    found: Story = request.param
    return found


def scene_of(folder: Path, **stated: object) -> Scene:
    spec = {"retries": 1, "retry_delay_seconds": RETRY_SECONDS, **stated}
    return Scene(folder, Spec(command="", **spec))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Second:
    """The second stay of a job on a host."""

    begun: float
    """When the first one was claimed."""
    claimed: float
    ended: float
    """When its command was told to end."""


def twice(scene: Scene, story: Story) -> Second:
    begun = scene.clock.monotonic()
    story.happen(scene)
    first = scene.processes.executions.copy()
    (scene.entry,) = scene.world.entries()
    claimed, epoch = scene.clock.monotonic(), scene.claim()
    scene.run(epoch)
    (second,) = scene.processes.executions[len(first) :]
    return Second(begun, claimed, second.process.signalled_at[0])


def told(scene: Scene) -> tuple[Verdict, Reason | None]:
    return scene.ending.verdict, scene.ending.reason


@pytest.mark.parametrize("whose", ["own", "deployment's"])
def test_the_time_limit_goes_on_stands_still_or_begins_anew(
    tmp_path: Path, story: Story, whose: str
) -> None:
    """R93"""
    own = whose == "own"
    scene = scene_of(tmp_path, timeout_seconds=600 if own else None)
    scene.rules = DeploymentSettings(limits=Limits(runtime_seconds=None if own else 600))
    second = twice(scene, story)
    begun = second.begun if story.keeps_limit else second.claimed
    still = BREAK_SECONDS if story.stands_still else 0.0
    assert second.ended == pytest.approx(begun + still + 600, abs=LATE)
    assert told(scene) == TIMED_OUT


def test_a_deadline_is_the_same_instant(tmp_path: Path, story: Story) -> None:
    """R136"""
    deadline = Scene(tmp_path / "clock").world.repo.now() + timedelta(seconds=1000)
    scene = scene_of(tmp_path, deadline_at=deadline)
    assert twice(scene, story).ended == pytest.approx(1000, abs=LATE)
    assert told(scene) == DEADLINE


def test_the_limit_of_a_host_begins_anew(tmp_path: Path, story: Story) -> None:
    """R83"""
    scene = scene_of(tmp_path)
    scene.max_run_seconds = 600
    second = twice(scene, story)
    assert second.ended == pytest.approx(second.claimed + 600, abs=LATE)
    assert told(scene) == CEILING


def test_silence_begins_anew(tmp_path: Path, story: Story) -> None:
    """Whether or not the job has a try left for it."""
    scene = scene_of(tmp_path, idle_timeout_seconds=600)
    second = twice(scene, story)
    assert second.ended == pytest.approx(second.claimed + 600, abs=LATE)
    assert scene.ending_of(2).reason is Reason.BODY_HUNG


def test_the_limit_of_a_preparation_begins_anew(tmp_path: Path, story: Story) -> None:
    """R44: here the second start is kept from it, for each sign of life takes too long."""
    scene = scene_of(tmp_path)
    scene.rules = DeploymentSettings(limits=Limits(pre_running_seconds=200))
    story.happen(scene)
    (scene.entry,) = scene.world.entries()
    claimed, epoch = scene.clock.monotonic(), scene.claim()
    slow = SlowBeats(scene.clock, seconds=90, begin=claimed, end=claimed + 1000)
    scene.run(epoch, faults=slow)
    assert told(scene) == PREPARATION
    assert scene.clock.monotonic() >= claimed + 200
    assert len(scene.commands) == 1


@pytest.mark.parametrize(
    ("left", "verdict"), [(RETRY_SECONDS - 1, Verdict.FAILED), (90, Verdict.RETRYING)]
)
@pytest.mark.parametrize("whose", ["own", "deployment's", "deadline"])
def test_a_job_whose_pause_would_end_after_its_time_has_failed(
    tmp_path: Path, whose: str, left: float, verdict: Verdict
) -> None:
    """R20: at once, as it failed, and nobody waits for a try that could not be. `left`: when it
    fails, of its time."""
    seconds = int(BREAK_AT + left)
    deadline = Scene(tmp_path / "clock").world.repo.now() + timedelta(seconds=seconds)
    limits: dict[str, dict[str, object]] = {
        "own": {"timeout_seconds": seconds},
        "deployment's": {},
        "deadline": {"deadline_at": deadline},
    }
    scene = scene_of(tmp_path, **limits[whose])
    if whose == "deployment's":
        scene.rules = DeploymentSettings(limits=Limits(runtime_seconds=seconds))
    scene.script(FAILS_FIRST)
    scene.run(scene.claim())
    ending = scene.ending_of(1)
    assert (ending.verdict, ending.reason) == (verdict, Reason.JOB_FAILED)
