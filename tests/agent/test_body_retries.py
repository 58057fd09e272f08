"""A command that failed is run again by the same supervisor, in the same epoch (R75, T10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from stado.core.spec import Spec
from stado.core.states import Reason, Verdict
from stado.jobs.changes import cancel
from stado.reports import REFUSAL_NAME, REFUSED_EXIT_CODE
from stado.storage.faults import FaultKind
from tests.agent.fakes import Script
from tests.agent.scene import Scene, Trouble
from tests.jobs.world import LEASE


def script_of(scripts: Sequence[Script]) -> Script:
    """One run after another; the last one's goes on."""
    first, *rest = scripts
    return replace(first, then=script_of(rest)) if rest else first


def scene_of(folder: Path, *scripts: Script, **stated: object) -> Scene:
    spec = {"body_retries": 2, **stated}
    scene = Scene(folder, Spec(command="", **spec))  # type: ignore[arg-type]
    scene.script(script_of(scripts))
    return scene


FAILS = Script(seconds=20, exit_code=3)
LATE_FAILURE = Script(seconds=80, exit_code=3)
BACK_AT = 10 + LEASE


def away(scene: Scene) -> Trouble:
    """A store that is away from before the end of the first run until long after it."""
    clock = scene.clock
    return Trouble(FaultKind.UNAVAILABLE, lambda *_: 10 <= clock.monotonic() < BACK_AT)


SUCCEEDS = Script(seconds=20)


def test_a_command_that_failed_is_run_again_and_succeeds(tmp_path: Path) -> None:
    """R75, T10: one epoch, one claim, one start."""
    scene = scene_of(tmp_path, FAILS, FAILS, SUCCEEDS)
    scene.run(scene.claim())
    assert scene.commands == ["train", "train", "train"]
    assert (scene.ending.verdict, scene.ending.exit_code) == (Verdict.COMPLETED, 0)
    assert scene.ending.runs == 3
    assert (scene.final.epoch, scene.final.starts, scene.final.lease_losses) == (1, 1, 0)


def test_after_its_last_run_a_command_has_failed(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, FAILS)
    scene.run(scene.claim())
    assert len(scene.commands) == 3
    assert (scene.ending.reason, scene.ending.exit_code) == (Reason.JOB_FAILED, 3)
    assert scene.ending.runs == 3


def test_a_command_is_run_once_where_nothing_else_was_asked_for(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, FAILS, body_retries=0)
    scene.run(scene.claim())
    assert (len(scene.commands), scene.ending.runs) == (1, 1)


def test_a_line_between_two_runs_says_why(tmp_path: Path) -> None:
    """At the beginning of a line, wherever the run before stopped in one."""
    broken_off = Script(seconds=20, exit_code=3, log=b"epoch 1\n", last_log=b"epoch 2: lo")
    scene = scene_of(tmp_path, broken_off, SUCCEEDS)
    scene.run(scene.claim())
    assert scene.log(1) == (
        b"epoch 1\nepoch 2: lo\n"
        b"[stado] run 1 of 3 failed: the command exited with 3; it is run again\n"
        b"begun\nended\n"
    )


def test_each_run_knows_its_number(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, FAILS, SUCCEEDS, pre_command="prepare", verify="check")
    scene.run(scene.claim())
    told = [(one.text, one.environment["STADO_BODY_RUN"]) for one in scene.processes.executions]
    assert told == [("prepare", "1"), ("train", "1"), ("train", "2"), ("check", "2")]


def test_the_next_run_finds_what_the_one_before_left(tmp_path: Path) -> None:
    """Also a checkpoint that was written since the last save: it is newer than what was saved."""
    saves = Script(seconds=20, exit_code=1, files={"checkpoints/model": b"weights"})
    seen: list[bytes] = []
    scene = scene_of(tmp_path, saves, SUCCEEDS)
    model = scene.folder.workspace(scene.job, 1).checkpoints / "model"
    scene.clock.at(30, lambda: seen.append(model.read_bytes()))
    scene.run(scene.claim())
    assert seen == [b"weights"]
    assert scene.ending.verdict is Verdict.COMPLETED


def test_beats_count_the_runs(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, FAILS, Script(seconds=60))
    seen: list[int] = []
    for at in (10, 50):
        scene.clock.at(at, lambda: seen.append(scene.heartbeat().runs))
    scene.run(scene.claim())
    assert seen[1] == 2


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            Script(
                seconds=20,
                exit_code=REFUSED_EXIT_CODE,
                files={f"report/{REFUSAL_NAME}": b"it is trained already"},
            ),
            Reason.JOB_REFUSED,
        ),
        (
            Script(seconds=20, exit_code=-9, over_memory="it took more than 1 GiB"),
            Reason.MEMORY_LIMIT_EXCEEDED,
        ),
    ],
    ids=["refused", "memory"],
)
def test_what_would_only_happen_again_is_not_run_again(
    tmp_path: Path, script: Script, reason: Reason
) -> None:
    scene = scene_of(tmp_path, script)
    scene.run(scene.claim())
    assert (scene.commands, scene.ending.reason) == (["train"], reason)


@pytest.mark.parametrize(
    ("stated", "ceiling", "reason"),
    [
        ({"timeout_seconds": 50}, None, Reason.ORG_RUNTIME_LIMIT_EXCEEDED),
        ({}, 50, Reason.TIMEOUT),
    ],
    ids=["time limit", "host's limit"],
)
def test_all_runs_share_one_budget_of_time(
    tmp_path: Path, stated: dict[str, int], ceiling: int | None, reason: Reason
) -> None:
    """(f) 26. What a limit ended is not run again."""
    scene = scene_of(tmp_path, FAILS, body_retries=100, **stated)
    scene.max_run_seconds = ceiling
    scene.run(scene.claim())
    assert (len(scene.commands), scene.ending.reason) == (3, reason)
    assert scene.processes.executions[-1].process.signalled_at[0] == pytest.approx(50, abs=1)


def test_a_silent_run_is_not_run_again(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, Script(seconds=3000), idle_timeout_seconds=30)
    scene.run(scene.claim())
    assert (scene.commands, scene.ending.reason) == (["train"], Reason.BODY_HUNG)


def test_each_run_has_all_of_its_silence(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, FAILS, FAILS, SUCCEEDS, idle_timeout_seconds=25)
    scene.run(scene.claim())
    assert (len(scene.commands), scene.ending.verdict) == (3, Verdict.COMPLETED)


def test_a_deadline_is_that_of_all_runs(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    deadline = scene.world.repo.now() + timedelta(seconds=50)
    scene = scene_of(tmp_path, FAILS, body_retries=100, deadline_at=deadline)
    scene.run(scene.claim())
    assert (len(scene.commands), scene.ending.reason) == (3, Reason.DEADLINE_PASSED)


def test_a_pre_command_and_a_verify_command_are_not_run_again(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, SUCCEEDS, verify="check")
    scene.script(FAILS, "check")
    scene.run(scene.claim())
    assert scene.commands == ["train", "check"]
    assert scene.ending.reason is Reason.VERIFY_FAILED


def test_a_pre_command_that_fails_is_not_run_again(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, SUCCEEDS, pre_command="prepare")
    scene.script(FAILS, "prepare")
    scene.run(scene.claim())
    assert (scene.commands, scene.ending.runs) == (["prepare"], None)


def test_a_cancel_ends_the_runs(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, FAILS, body_retries=100)
    scene.clock.at(50, lambda: cancel(scene.world.repo, scene.job, by="ada"))
    scene.run(scene.claim())
    assert scene.ending.verdict is Verdict.CANCELLED
    assert len(scene.commands) <= 4


def test_nothing_is_run_again_by_who_was_declared_dead(tmp_path: Path) -> None:
    """Another agent has the job by then: this one learns of it before its next run."""
    scene = scene_of(tmp_path, LATE_FAILURE)
    scene.clock.at(100, scene.give_to_bob)
    scene.run(scene.claim(), faults=away(scene))
    assert scene.commands == ["train"]
    late = scene.late(1)
    assert late is not None
    assert late.exit_code is None


def test_a_run_that_was_carried_into_the_next_epoch_goes_on_counting(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, FAILS, Script(seconds=100, exit_code=3), SUCCEEDS)
    scene.clock.at(50, scene.give_back)
    scene.run(scene.claim())
    assert scene.commands == ["train", "train", "train"]
    assert (scene.ending.verdict, scene.ending.runs) == (Verdict.COMPLETED, 3)
    assert (scene.final.epoch, scene.final.starts) == (2, 1)


def test_no_run_begins_without_a_fresh_sign_of_life(tmp_path: Path) -> None:
    """The store is away when the first one ends: the second waits for it."""
    scene = scene_of(tmp_path, LATE_FAILURE, SUCCEEDS)
    scene.run(scene.claim(), faults=away(scene))
    _, second = scene.processes.executions
    assert second.at >= BACK_AT
    assert scene.ending.verdict is Verdict.COMPLETED
