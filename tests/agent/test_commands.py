"""The commands of a job, one after another, and what a failing one leaves in its verdict."""

from __future__ import annotations

import errno
import re
from pathlib import Path

from stado.core.spec import Spec
from stado.core.states import Reason, Verdict
from stado.jobs.claim import Place
from stado_agent.environment import command_environment
from tests.agent.fakes import Script
from tests.agent.scene import Scene
from tests.architecture.source import REPOSITORY


def scene_of(folder: Path, **spec: object) -> Scene:
    return Scene(folder, Spec(command="").evolve(**spec))


def test_a_pre_command_runs_before_the_command_in_the_same_start(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, pre_command="prepare", verify="check")
    scene.run(scene.claim())
    assert scene.commands == ["prepare", "train", "check"]
    assert scene.ending.verdict is Verdict.COMPLETED
    assert (scene.final.starts, scene.log(1)) == (1, b"begun\nended\n" * 3)


def test_a_pre_command_that_fails_fails_the_job_and_says_so(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, pre_command="prepare", verify="check")
    scene.script(Script(exit_code=3), "prepare")
    scene.run(scene.claim())
    assert scene.commands == ["prepare"]
    ending = scene.ending
    assert (ending.verdict, ending.reason) == (Verdict.FAILED, Reason.JOB_FAILED)
    assert (ending.detail, ending.exit_code) == ("the pre-command exited with 3", 3)
    assert scene.final.starts == 1


def host_with_bash(scene: Scene, folder: Path) -> None:
    bash = folder / "bin" / "bash"
    bash.parent.mkdir()
    bash.touch(mode=0o755)
    scene.environment["PATH"] = str(bash.parent)


def test_the_failing_line_of_a_strict_shell_is_in_the_verdict(tmp_path: Path) -> None:
    """A75"""
    scene = scene_of(tmp_path, strict_shell=True, verify="check")
    host_with_bash(scene, tmp_path)
    scene.script(Script(exit_code=9, files={"strict/failed-line": b"1 \n"}))
    scene.run(scene.claim())
    assert scene.ending.detail == "the command exited with 9 in line 1: train"


def test_a_line_that_an_earlier_command_left_is_not_named(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, strict_shell=True, pre_command="prepare")
    host_with_bash(scene, tmp_path)
    scene.script(Script(files={"strict/failed-line": b"1 \n"}), "prepare")
    scene.script(Script(exit_code=9))
    scene.run(scene.claim())
    assert scene.ending.detail == "the command exited with 9"


def test_a_host_without_bash_says_that_a_strict_shell_needs_it(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, strict_shell=True)
    scene.environment["PATH"] = str(tmp_path)
    scene.run(scene.claim())
    assert scene.commands == []
    assert scene.ending.reason is Reason.LAUNCH_FAILED
    assert "--strict-shell takes bash, and this host has none" in (scene.ending.detail or "")


def test_an_environment_that_the_host_does_not_take_is_told_by_its_sizes(tmp_path: Path) -> None:
    """A73"""
    scene = scene_of(tmp_path, environment={"MINE": "x" * 1000})
    scene.environment["AGENTS"] = "y" * 2_000_000
    scene.script(Script(refused=OSError(errno.E2BIG, "Argument list too long", "/bin/sh")))
    scene.run(scene.claim())
    assert scene.ending.reason is Reason.LAUNCH_FAILED
    detail = scene.ending.detail or ""
    assert "the largest: AGENTS with 2,000,008 bytes, MINE with 1,006," in detail
    assert "of which the agent's own is 2,000,018" in detail
    assert "xxx" not in detail


# --- the environment ------------------------------------------------------------------------


def environment_of(scene: Scene, **host: str) -> dict[str, str]:
    record = scene.claim().record
    return command_environment(host, record, scene.folder.workspace(scene.job, 1))


def test_a_job_that_asks_for_no_card_finds_none(tmp_path: Path) -> None:
    """Whatever its host says."""
    environment = environment_of(scene_of(tmp_path), CUDA_VISIBLE_DEVICES="0,1")
    assert environment["CUDA_VISIBLE_DEVICES"] == ""


def test_a_job_finds_the_cards_that_it_was_given(tmp_path: Path) -> None:
    """R183"""
    scene = scene_of(tmp_path)
    record = scene.claim(place=Place(cards=("GPU-1", "GPU-7"))).record
    environment = command_environment({}, record, scene.folder.workspace(scene.job, 1))
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-7"
    assert record.holder is not None
    assert (record.holder.gpus, record.holder.cards) == (2, ["GPU-1", "GPU-7"])


def test_the_page_names_each_variable_that_a_job_finds(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "environment.md").read_text(encoding="utf-8")
    table = page.partition("## Variables that a job finds")[2].partition("\n## ")[0]
    named = set(re.findall(r"^\| `([A-Z_]+)` \|", table, re.MULTILINE))
    scene = Scene(tmp_path)
    found = set(environment_of(scene))
    of_batches = {"STADO_BATCH_ID", "STADO_ARRAY_INDEX"}  # which this job, of none, has not
    assert named == found | of_batches
