"""Jobs that are put back into the queue for the sake of others."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.events import EventKind
from stado.core.records import Ending
from stado.core.spec import Spec
from stado.core.states import Reason, State, Verdict
from stado.jobs.asking import ask_to_yield
from stado.jobs.changes import cancel, pause
from stado.jobs.events import events_of
from tests.agent.fakes import Script
from tests.agent.scene import Scene
from tests.agent.test_job_run import FILES, scene_of

WHY = "job z with priority 9 waits"


def ask(scene: Scene, *, evict: bool = False, epoch: int = 1) -> None:
    ask_to_yield(scene.world.repo, scene.job, epoch, by="lab-7", note=WHY, evict=evict)


def run_and_ask(tmp_path: Path, *, evict: bool = False, times: int = 1, **stated: object) -> Scene:
    scene = scene_of(tmp_path, Spec(command="train", **stated))  # type: ignore[arg-type]
    for epoch in range(1, times + 1):
        scene.script(Script(seconds=500, files=FILES))
        claimed = scene.claim()
        at = scene.clock.monotonic() + 40
        scene.clock.at(at, lambda epoch=epoch: ask(scene, evict=evict, epoch=epoch))
        scene.run(claimed)
    return scene


def first_ending(scene: Scene) -> Ending:
    end = scene.world.repo.find_end(scene.job, 1)
    assert end is not None
    return end.ending


def test_a_job_that_may_yield_is_saved_and_queued_at_its_old_place(tmp_path: Path) -> None:
    """R157, T28"""
    scene = scene_of(tmp_path, Spec(command="train", yieldable=True, max_yields=2))
    before = scene.world.record(State.QUEUED, scene.job)
    scene.script(Script(seconds=500, files=FILES))
    claimed = scene.claim()
    scene.clock.at(40, lambda: ask(scene))
    scene.run(claimed)
    assert scene.processes.executions[0].process.signals == [signal.SIGTERM]
    assert scene.world.states(scene.job) == {State.QUEUED}
    after = scene.world.record(State.QUEUED, scene.job)
    assert (after.epoch, after.queued_ms, after.yields) == (2, before.queued_ms, 1)
    assert (after.yields_left, after.lease_losses, after.given_back) == (1, 0, 0)
    ending = first_ending(scene)
    assert (ending.verdict, ending.reason) == (Verdict.YIELDED, Reason.YIELDED)
    assert ending.detail == f"put back into the queue by lab-7: {WHY}"
    assert scene.world.names(keys.checkpoints_folder(scene.job))


def test_with_its_budget_spent_a_job_is_protected(tmp_path: Path) -> None:
    """R157"""
    scene = run_and_ask(tmp_path, times=2, yieldable=True, max_yields=1)
    assert scene.world.states(scene.job) == {State.COMPLETED}
    assert (scene.final.yields, scene.final.epoch, scene.final.starts) == (1, 2, 2)


@pytest.mark.parametrize("stated", [{}, {"yieldable": True}, {"yieldable": True, "max_yields": 0}])
def test_a_job_that_states_no_budget_is_protected(
    tmp_path: Path, stated: dict[str, object]
) -> None:
    """R157"""
    scene = run_and_ask(tmp_path, **stated)
    assert scene.world.states(scene.job) == {State.COMPLETED}
    assert scene.final.epoch == 1


def test_a_host_that_is_closed_puts_back_whatever_runs_there(tmp_path: Path) -> None:
    """It costs the job no yield."""
    scene = run_and_ask(tmp_path, evict=True)
    assert scene.world.states(scene.job) == {State.QUEUED}
    assert first_ending(scene).reason is Reason.HOST_CLOSED
    assert scene.world.record(State.QUEUED, scene.job).yields == 0


@pytest.mark.parametrize(
    ("asks", "state"), [(cancel, State.CANCELLED), (pause, State.PAUSED)], ids=["cancel", "pause"]
)
def test_a_cancel_and_a_pause_go_before(tmp_path: Path, asks: object, state: State) -> None:
    scene = scene_of(tmp_path, Spec(command="train", yieldable=True, max_yields=2))
    scene.script(Script(seconds=500))
    claimed = scene.claim()

    def ask_both() -> None:
        ask(scene)
        asks(scene.world.repo, scene.job, by="ada")  # type: ignore[operator]

    scene.clock.at(40, ask_both)
    scene.run(claimed)
    assert scene.world.states(scene.job) == {state}


def test_a_command_that_has_ended_by_itself_is_not_put_back(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, Spec(command="train", yieldable=True, max_yields=2, verify="check"))
    scene.script(Script(seconds=40))
    scene.script(Script(seconds=100), "check")
    claimed = scene.claim()
    scene.clock.at(60, lambda: ask(scene))
    scene.run(claimed)
    assert scene.world.states(scene.job) == {State.COMPLETED}


def test_the_story_tells_who_asked_for_room_and_for_whom(tmp_path: Path) -> None:
    """T28"""
    scene = run_and_ask(tmp_path, yieldable=True, max_yields=1)
    told = {event.kind: event for event in events_of(scene.world.repo, scene.job).events}
    asked, yielded = told[EventKind.YIELD_ASKED], told[EventKind.YIELDED]
    assert (asked.text, asked.actor, asked.note) == ("lab-7 asked it to make room", "lab-7", WHY)
    assert yielded.reason is Reason.YIELDED
    assert "epoch 2 follows" in yielded.text
