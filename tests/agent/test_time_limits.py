"""What ends a job for its time, on its host: docs/clocks.md, cell by cell."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import Ending, Phase
from stado.core.settings import DeploymentSettings, Limits
from stado.core.spec import Spec
from stado.core.states import Reason, State, Verdict
from stado.jobs.changes import cancel
from stado.jobs.claim import Claimed
from stado.jobs.reaping import Reaper
from stado.reports import PROGRESS_NAME
from stado.storage.faults import FaultKind
from tests.agent.fakes import Script
from tests.agent.scene import FaultAt, Scene
from tests.agent.test_clocks import SlowBeats
from tests.agent.test_job_run import Numbered
from tests.jobs.world import LEASE

GRACE = 30.0
LATE = 1.0
"""A supervisor looks each half second."""

FOR_EVER = Script(seconds=3000, files={"checkpoints/model": b"weights"})


def scene_of(folder: Path, **stated: object) -> Scene:
    scene = Scene(folder, Spec(command="", **stated))  # type: ignore[arg-type]
    scene.script(FOR_EVER)
    return scene


def told(ending: Ending) -> tuple[Verdict, Reason | None]:
    return ending.verdict, ending.reason


def ended_after(scene: Scene) -> float:
    """Seconds from the claim to the moment when the command was told to end."""
    (execution,) = scene.processes.executions
    return execution.process.signalled_at[0]


TIMED_OUT = (Verdict.TIMED_OUT, Reason.ORG_RUNTIME_LIMIT_EXCEEDED)
DEADLINE = (Verdict.TIMED_OUT, Reason.DEADLINE_PASSED)
CEILING = (Verdict.FAILED, Reason.TIMEOUT)
PREPARATION = (Verdict.FAILED, Reason.PRE_RUNNING_DEADLINE)
HUNG = (Verdict.FAILED, Reason.BODY_HUNG)


# --- each limit ---------------------------------------------------------------------------


def test_a_job_is_ended_at_its_own_limit(tmp_path: Path) -> None:
    """R94, R95, R96, T14: TERM first; what it saved by then stays."""
    scene = scene_of(tmp_path, timeout_seconds=600)
    scene.run(scene.claim())
    assert told(scene.ending) == TIMED_OUT
    assert scene.world.states(scene.job) == {State.TIMED_OUT}
    assert scene.ending.detail is not None
    assert "its own time limit of 10m" in scene.ending.detail
    assert scene.ending.exit_code is None
    assert 600 <= ended_after(scene) <= 600 + LATE
    assert scene.world.names(keys.checkpoints_folder(scene.job))
    assert (scene.final.starts, scene.final.lease_losses) == (1, 0)


def test_a_job_is_ended_at_the_limit_of_its_deployment(tmp_path: Path) -> None:
    """R84, R91: the lower of the two; as it was at the claim."""
    scene = scene_of(tmp_path, timeout_seconds=900)
    scene.rules = DeploymentSettings(limits=Limits(runtime_seconds=300))
    scene.run(scene.claim())
    assert told(scene.ending) == TIMED_OUT
    assert scene.final.runtime_limit_seconds == 300
    assert scene.ending.detail is not None
    assert "the deployment's time limit of 5m" in scene.ending.detail
    assert 300 <= ended_after(scene) <= 300 + LATE


def test_a_running_job_is_ended_at_its_deadline(tmp_path: Path) -> None:
    """R136."""
    scene = Scene(tmp_path)
    deadline = scene.world.repo.now() + timedelta(seconds=200)
    scene = scene_of(tmp_path, deadline_at=deadline)
    scene.run(scene.claim())
    assert told(scene.ending) == DEADLINE
    assert 200 <= ended_after(scene) <= 200 + LATE


def test_a_host_has_a_limit_of_its_own(tmp_path: Path) -> None:
    """R83, R97."""
    scene = scene_of(tmp_path)
    scene.max_run_seconds = 400
    scene.run(scene.claim())
    assert told(scene.ending) == CEILING
    assert scene.ending.detail == "its host lets nothing run for longer than 400s"
    assert 400 <= ended_after(scene) <= 400 + LATE


def test_a_job_that_nothing_limits_runs_on(tmp_path: Path) -> None:
    """Nobody's training dies of a default."""
    scene = scene_of(tmp_path)
    scene.run(scene.claim())
    assert scene.ending.verdict is Verdict.COMPLETED


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(pre_running_seconds=200), PREPARATION),
        (Limits(runtime_seconds=200), TIMED_OUT),
        (Limits(runtime_seconds=200, pre_running_seconds=200), TIMED_OUT),
    ],
    ids=["preparation", "time limit", "both"],
)
def test_a_job_that_is_not_started_in_time_is_never_started(
    tmp_path: Path, limits: Limits, expected: tuple[Verdict, Reason]
) -> None:
    """R44, T9: here nothing may start, for each sign of life takes too long."""
    scene = scene_of(tmp_path)
    scene.rules = DeploymentSettings(limits=limits)
    scene.watch(seconds=4 * LEASE)
    scene.run(scene.claim(), faults=SlowBeats(scene.clock, seconds=0.8 * LEASE, end=500))
    assert told(scene.ending) == expected
    assert scene.commands == []
    assert (scene.ending.started_at, scene.final.starts) == (None, 0)


def test_the_limit_of_a_preparation_is_over_with_the_start(tmp_path: Path) -> None:
    scene = scene_of(tmp_path)
    scene.rules = DeploymentSettings(limits=Limits(pre_running_seconds=60))
    scene.script(Script(seconds=1000))
    scene.run(scene.claim())
    assert scene.ending.verdict is Verdict.COMPLETED


# --- how it ends --------------------------------------------------------------------------


def test_what_heeds_no_term_is_killed_after_the_grace(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, timeout_seconds=600)
    scene.script(Script(seconds=3000, deaf=True))
    scene.run(scene.claim())
    assert told(scene.ending) == TIMED_OUT
    (execution,) = scene.processes.executions
    assert execution.process.signals[:2] == [signal.SIGTERM, signal.SIGKILL]
    assert execution.process.signalled_at[1] == pytest.approx(ended_after(scene) + GRACE, abs=1)


def test_a_command_that_ends_by_itself_just_before_keeps_its_outcome(tmp_path: Path) -> None:
    """T20."""
    scene = scene_of(tmp_path, timeout_seconds=600)
    scene.script(Script(seconds=599.9, exit_code=3))
    scene.run(scene.claim())
    assert told(scene.ending) == (Verdict.FAILED, Reason.JOB_FAILED)
    assert scene.ending.exit_code == 3


def test_a_verify_command_has_what_is_left(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, timeout_seconds=600, verify="check")
    scene.script(Script(seconds=500))
    scene.script(Script(seconds=500), "check")
    scene.run(scene.claim())
    assert told(scene.ending) == TIMED_OUT
    assert scene.commands == ["train", "check"]


@pytest.mark.parametrize("stated", [{"timeout_seconds": 50}, {"idle_timeout_seconds": 50}])
def test_a_cancel_goes_before_every_limit(tmp_path: Path, stated: dict[str, int]) -> None:
    """Also one that nobody had seen when the time was up."""
    scene = scene_of(tmp_path, **stated)
    scene.clock.at(49.9, lambda: cancel(scene.world.repo, scene.job, by="ada"))
    scene.run(scene.claim())
    assert scene.ending.verdict is Verdict.CANCELLED


def test_the_time_limit_goes_before_that_of_the_host(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, timeout_seconds=400)
    scene.max_run_seconds = 400
    scene.run(scene.claim())
    assert told(scene.ending) == TIMED_OUT


# --- what each survives -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stated", "ceiling", "expected"),
    [
        ({"timeout_seconds": 600}, None, TIMED_OUT),
        ({}, 600, CEILING),
        ({"idle_timeout_seconds": 600}, None, HUNG),
    ],
    ids=["time limit", "host's limit", "silence"],
)
def test_an_adoption_stops_no_clock(
    tmp_path: Path,
    stated: dict[str, int],
    ceiling: int | None,
    expected: tuple[Verdict, Reason],
) -> None:
    scene = scene_of(tmp_path, **stated)
    scene.max_run_seconds = ceiling
    scene.clock.at(300, scene.give_back)
    scene.run(scene.claim())
    assert told(scene.ending) == expected
    assert (scene.final.epoch, scene.final.starts) == (2, 1)
    assert 600 <= ended_after(scene) <= 600 + LATE


@pytest.mark.parametrize(
    ("stated", "limits", "ceiling", "seconds"),
    [
        ({"timeout_seconds": 600}, Limits(), None, 600),
        ({}, Limits(runtime_seconds=600), None, 600),
        ({}, Limits(), 600, None),
    ],
    ids=["own", "deployment's", "host's"],
)
def test_another_host_has_what_is_left_of_the_time_limit_and_its_own_anew(
    tmp_path: Path,
    stated: dict[str, int],
    limits: Limits,
    ceiling: int | None,
    seconds: int | None,
) -> None:
    """R93. The first host died; `seconds`: when the clock that was stated ends, since the start."""
    scene = scene_of(tmp_path, **stated)
    scene.rules = DeploymentSettings(limits=limits)
    scene.max_run_seconds = ceiling
    begun = scene.clock.monotonic()
    first = scene.claim()
    scene.world.lose(Reaper(scene.world.repo, by="coordinator"))
    assert first.record.picked_up_at is not None
    scene.entry = scene.world.entries()[0]
    scene.rules = DeploymentSettings(
        limits=Limits(runtime_seconds=5)
    )  # of which a later claim takes no notice
    second = scene.claim()
    started = scene.clock.monotonic()
    scene.run(second)
    ends_at = begun + seconds if seconds is not None else started + 600
    assert ended_after(scene) == pytest.approx(ends_at, abs=2)
    assert told(scene.ending) == (TIMED_OUT if ceiling is None else CEILING)


def test_the_limit_of_a_preparation_begins_anew_on_another_host(tmp_path: Path) -> None:
    scene = scene_of(tmp_path)
    scene.rules = DeploymentSettings(limits=Limits(pre_running_seconds=60))
    scene.script(Script(seconds=20))
    scene.lose_epoch_one()
    scene.run(scene.claim())
    assert (scene.ending.verdict, scene.final.epoch) == (Verdict.COMPLETED, 2)


def test_another_host_has_all_of_its_silence(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, idle_timeout_seconds=100)
    scene.lose_epoch_one()
    begun = scene.clock.monotonic()
    scene.run(scene.claim())
    assert told(scene.ending) == HUNG
    assert ended_after(scene) == pytest.approx(begun + 100, abs=LATE)


def test_a_supervisor_that_finds_itself_declared_dead_after_its_time_stops_its_job(
    tmp_path: Path,
) -> None:
    """It is the first to give the verdict, and does not give the job back."""
    scene = scene_of(tmp_path, timeout_seconds=600)
    scene.clock.at(590, scene.seal)
    slow = SlowBeats(scene.clock, seconds=30, begin=580, end=620)
    scene.run(scene.claim(), faults=slow)
    assert told(scene.ending) == TIMED_OUT
    assert scene.final.epoch <= 2
    assert not scene.processes.executions[0].process.living()


# --- silence ------------------------------------------------------------------------------


def test_a_command_that_is_silent_for_too_long_is_ended(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, idle_timeout_seconds=300)
    scene.clock.at(100, lambda: scene.processes.executions[0].process.print(b"still here\n"))
    scene.run(scene.claim())
    assert told(scene.ending) == HUNG
    assert scene.ending.detail == "it printed, saved and reported nothing for 300 s"
    assert ended_after(scene) == pytest.approx(400, abs=LATE)


def prints(scene: Scene, number: int) -> None:
    scene.processes.executions[0].process.print(b"%d\n" % number)


def saves(scene: Scene, number: int) -> None:
    folder = scene.folder.workspace(scene.job, 1).checkpoints
    (folder / "model").write_bytes(b"weights" * number)


def reports(scene: Scene, number: int) -> None:
    folder = scene.folder.workspace(scene.job, 1).report
    (folder / PROGRESS_NAME).write_text(f'{{"fraction": 0.{number}}}')


@pytest.mark.parametrize("sign", [prints, saves, reports])
def test_any_sign_of_work_is_enough(tmp_path: Path, sign: Callable[[Scene, int], None]) -> None:
    scene = scene_of(tmp_path, idle_timeout_seconds=300)
    scene.script(Script(seconds=1100))
    for number in range(1, 5):
        scene.clock.at(250.0 * number, lambda number=number: sign(scene, number))
    scene.run(scene.claim())
    assert scene.ending.verdict is Verdict.COMPLETED


def test_a_job_that_is_being_ended_says_so(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, timeout_seconds=600)
    scene.script(Script(seconds=3000, deaf=True))
    seen: list[Phase] = []
    scene.clock.at(620, lambda: seen.append(scene.heartbeat().phase))
    scene.run(scene.claim())
    assert seen == [Phase.STOPPING]


# --- each request, each fault ---------------------------------------------------------------


def runs_again_until_its_time_is_up(folder: Path) -> Scene:
    scene = scene_of(folder, timeout_seconds=50, body_retries=9)
    scene.script(Script(seconds=20, exit_code=3, files={"output/result": b"42"}))
    return scene


@pytest.mark.parametrize(
    "kind", [FaultKind.LOST_REQUEST, FaultKind.LOST_ANSWER, FaultKind.UNAVAILABLE]
)
def test_one_failed_request_changes_nothing_of_how_it_ends(tmp_path: Path, kind: FaultKind) -> None:
    numbered = Numbered(runs_again_until_its_time_is_up, tmp_path)
    while True:
        scene = numbered.scene()
        faults = FaultAt(scene.clock, kind, at=numbered.count - 1)
        process = scene.run(scene.claim(), faults=faults)
        if faults.met is None:
            break
        assert process.exit_code == 0, faults.met
        assert scene.heal() == [], faults.met
        assert told(scene.ending) == TIMED_OUT, faults.met
        assert (scene.commands, scene.ending.runs) == (["train"] * 3, 3), faults.met
        assert (scene.final.epoch, scene.final.starts) == (1, 1), faults.met
        assert scene.output(1, "result") == b"42", faults.met
    assert numbered.count > 10


def test_a_store_that_is_away_when_the_time_is_up_hears_of_it_later(tmp_path: Path) -> None:
    """What was started is ended at its time, whatever the store does; no reaper is faster."""
    numbered = Numbered(runs_again_until_its_time_is_up, tmp_path)
    while True:
        scene = numbered.scene()
        claimed = scene.claim()
        scene.watch(seconds=400)
        faults = FaultAt(scene.clock, FaultKind.UNAVAILABLE, at=numbered.count - 1, seconds=60)
        scene.run(claimed, faults=faults)
        if faults.met is None:
            break
        assert scene.heal() == [], faults.met
        assert told(scene.ending) == TIMED_OUT, faults.met
        assert scene.final.epoch == 1, faults.met
        assert not any(one.process.living() for one in scene.processes.executions), faults.met
        for execution in scene.processes.executions:
            ended_at = (execution.process.signalled_at or [execution.at + 20])[0]
            assert ended_at - claimed_at(claimed, scene) <= 50 + LATE, faults.met


def claimed_at(claimed: Claimed, scene: Scene) -> float:
    """On the clock of the scene."""
    assert claimed.record.picked_up_at is not None
    ago = scene.world.clock.now() - claimed.record.picked_up_at
    return scene.clock.monotonic() - ago.total_seconds()
