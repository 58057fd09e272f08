"""Troubles from the field once more, of jobs that are paused, tried again or retried meanwhile."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from stado.core.records import Phase
from stado.core.retries import RetrySettings
from stado.core.settings import DeploymentSettings
from stado.core.spec import Spec
from stado.core.states import Reason, State, Verdict
from stado.jobs.changes import cancel, pause, resume, retry
from stado.storage.faults import FaultKind
from tests.agent.fakes import Script
from tests.agent.scene import Scene, Trouble
from tests.jobs.world import LEASE

CUT_AT, BACK_AT = 15.0, 15 + 4 * LEASE
FAILS_MEANWHILE = Script(seconds=20, exit_code=3)
GOES_ON = Script(seconds=3000)


def scene_of(folder: Path, script: Script, **stated: object) -> Scene:
    scene = Scene(folder, Spec(command="", **stated))  # type: ignore[arg-type]
    scene.script(script)
    return scene


def run_cut_off(scene: Scene) -> None:
    """The worker hears and says nothing for four leases, while a reaper looks on."""
    now = scene.clock.monotonic
    cut = Trouble(FaultKind.UNAVAILABLE, lambda *_: CUT_AT <= now() < BACK_AT)
    scene.watch(seconds=BACK_AT)
    scene.run(scene.claim(), faults=cut)
    assert now() >= BACK_AT


# --- a worker that is cut off -------------------------------------------------------------


def test_a_job_that_may_not_be_lost_is_not_tried_again_for_its_loss(tmp_path: Path) -> None:
    """A12: automatic retries are for failures that were seen. What its worker saw is kept."""
    scene = scene_of(tmp_path, FAILS_MEANWHILE, retries=5, max_lease_losses=0)
    run_cut_off(scene)
    assert scene.ending.reason is Reason.LEASE_EXPIRED_MAX_ATTEMPTS
    assert (scene.final.epoch, scene.final.auto_retries) == (1, 0)
    late = scene.late(1)
    assert late is not None
    assert late.exit_code == 3
    assert scene.commands == ["train"]


def test_a_failure_while_it_was_cut_off_is_tried_again_if_nobody_has_the_job(
    tmp_path: Path,
) -> None:
    """A13: the loss and the failure are counted, each once, and the command as one start."""
    scene = scene_of(tmp_path, FAILS_MEANWHILE, retries=5)
    run_cut_off(scene)
    assert [scene.ending_of(n).verdict for n in (1, 2)] == [Verdict.LOST, Verdict.RETRYING]
    record = scene.world.record(State.QUEUED, scene.job)
    assert (record.epoch, record.starts) == (3, 1)
    assert (record.lease_losses, record.auto_retries) == (1, 1)
    assert scene.commands == ["train"]


def test_a_pause_while_it_is_cut_off_is_given_by_who_judges_and_stops_it_later(
    tmp_path: Path,
) -> None:
    """A13: it does not go on with what is paused, nor end it."""
    scene = scene_of(tmp_path, GOES_ON)
    scene.clock.at(30, lambda: pause(scene.world.repo, scene.job, by="ada"))
    run_cut_off(scene)
    assert scene.world.states(scene.job) == {State.PAUSED}
    assert (scene.ending.reason, scene.final.epoch) == (Reason.PAUSED_BY_USER, 1)
    assert scene.processes.executions[0].process.exit_code == -signal.SIGTERM
    assert scene.late(1) is not None
    resume(scene.world.repo, scene.job, by="ada")
    scene.script(Script(seconds=5))
    scene.run(scene.claim())
    assert (scene.final.state, scene.final.epoch) == (State.COMPLETED, 2)


def test_a_job_that_was_retried_meanwhile_is_not_taken_back(tmp_path: Path) -> None:
    """A13: somebody decided about it, and it has its time anew: nothing of before goes on."""
    scene = scene_of(tmp_path, GOES_ON, max_lease_losses=0)

    def retry_it() -> None:
        assert scene.world.states(scene.job) == {State.FAILED}
        retry(scene.world.repo, scene.job, by="ada")

    scene.clock.at(BACK_AT - 1, retry_it)
    run_cut_off(scene)
    assert scene.processes.executions[0].process.exit_code == -signal.SIGTERM
    assert scene.late(1) is not None
    record = scene.world.record(State.QUEUED, scene.job)
    assert (record.epoch, record.starts, record.manual_retries) == (2, 1, 1)


# --- what cannot be killed ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "stated", "verdict"),
    [
        (pause, {}, Verdict.PAUSED),
        (cancel, {"retries": 5}, Verdict.CANCELLED),
        (None, {"timeout_seconds": 20, "retries": 5}, Verdict.TIMED_OUT),
        (None, {"idle_timeout_seconds": 20, "retries": 5}, Verdict.RETRYING),
    ],
    ids=["pause", "cancel", "time limit", "silence"],
)
def test_nothing_is_said_to_be_stopped_while_a_process_of_it_lives(
    tmp_path: Path,
    ask: Callable[..., object] | None,
    stated: dict[str, int],
    verdict: Verdict,
) -> None:
    """A22, A24: it stays running, stopping, with the process that does not die."""
    scene = scene_of(tmp_path, Script(seconds=5000, resistance="stuck", log=b""), **stated)
    if ask is not None:
        scene.clock.at(20, lambda: ask(scene.world.repo, scene.job, by="ada"))
    scene.watch(seconds=330)

    def give_in() -> None:
        assert scene.world.states(scene.job) == {State.RUNNING}
        beat = scene.heartbeat()
        assert beat.phase is Phase.STOPPING
        assert "still alive: process" in (beat.trouble or "")
        scene.processes.executions[0].process.resistance = None

    scene.clock.at(330, give_in)
    scene.run(scene.claim())
    assert scene.clock.monotonic() >= 330
    assert scene.ending_of(1).verdict is verdict


# --- memory -------------------------------------------------------------------------------


@pytest.mark.parametrize("listed", [False, True])
def test_want_of_memory_is_tried_again_only_where_the_deployment_lists_it(
    tmp_path: Path, listed: bool
) -> None:
    """A49: whatever the job says; with the last that it printed."""
    last = b"m" * 65_535 + b"\n"
    script = Script(seconds=5, exit_code=-9, over_memory="too much", last_log=last)
    scene = scene_of(tmp_path, script, retries=1, retry_on=[Reason.MEMORY_LIMIT_EXCEEDED])
    allowed = [Reason.MEMORY_LIMIT_EXCEEDED] if listed else None
    scene.rules = DeploymentSettings(retries=RetrySettings(on=allowed))
    scene.run(scene.claim())
    ending = scene.ending_of(1)
    assert ending.reason is Reason.MEMORY_LIMIT_EXCEEDED
    assert ending.verdict is (Verdict.RETRYING if listed else Verdict.FAILED)
    assert scene.log(1).endswith(last)
