"""Artifacts and inputs as people type and read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stado.cli.artifacts import notes_of
from stado.core import keys
from stado.jobs.artifacts import Names
from tests.cli.conftest import Program, World
from tests.cli.test_results import leave

DIGEST = "ab" * 32


@pytest.fixture
def job(stado: Program, world: World, tmp_path: Path) -> str:
    """One that has left files."""
    job_id = stado.ok("submit", "--run-id", "source", "run")
    leave(world, job_id, tmp_path, {"note": b"hi", "model/w": b"weights"})
    world.complete(job_id)
    return job_id


def test_output_is_published_once_and_looked_at(stado: Program, job: str) -> None:
    result = stado("artifact", "publish", "source", "--name", "digits")
    assert (result.exit_code, result.stdout) == (0, "digits@1\n")
    assert f"published digits@1, 2 files, 9 bytes of job {job}" in result.stderr
    again = stado("artifact", "publish", job, "--name", "digits")
    assert again.stdout == "digits@1\n"
    assert "already published: digits@1" in again.stderr
    assert stado.ok("artifact", "publish", "last", "--name", "digits", "--path", "model/")
    listed = stado.ok("artifact", "list").splitlines()
    assert [line.split()[0] for line in listed] == ["ARTIFACT", "digits@2"]
    assert listed[1].split()[-1] == job
    shown = stado.ok("artifact", "show", "digits@1")
    assert "digits@1 (the newest is 2)" in shown
    assert f"job {job}, epoch 1" in shown
    assert "model/w  7 bytes" in shown
    assert "model of it" in stado.ok("artifact", "show", "digits")


def test_each_command_answers_in_one_document(stado: Program, job: str) -> None:
    made = stado.json("artifact", "publish", job, "--name", "digits")
    assert (made["version"], made["created"], made["job_id"]) == (1, True, job)
    shown = stado.json("artifact", "show", "digits")
    assert [file["path"] for file in shown["files"]] == ["model/w", "note"]
    assert shown["size"] == 9
    checked = stado.json("artifact", "verify", "digits@1")
    assert checked["damages"] == []
    (row,) = stado.json("artifact", "list", "dig")["artifacts"]
    assert (row["name"], row["version"], row["count"], row["size"]) == ("digits", 1, 2, 9)
    assert stado.json("artifact", "list", "nothing")["artifacts"] == []


def test_a_list_is_longer_than_a_page(stado: Program, job: str) -> None:
    for name in ("a", "b", "c"):
        stado.ok("artifact", "publish", job, "--name", name)
    result = stado("artifact", "list", "--limit", "2")
    assert "there are more: stado artifact list --after b" in result.stderr
    assert stado.ok("artifact", "list", "--after", "b").splitlines()[1].startswith("c@1")
    page = stado.json("artifact", "list", "--limit", "2")
    assert (page["more"], page["after"]) == (True, "b")


def test_a_search_that_goes_on_is_told_as_it_is_typed(stado: Program, job: str) -> None:
    for name in ("a.x", "b", "c.x"):
        stado.ok("artifact", "publish", job, "--name", name)
    result = stado("artifact", "list", ".x", "--limit", "1")
    assert "there are more: stado artifact list .x --after a.x" in result.stderr
    assert list(notes_of(Names(rows=[], after="m"), "dig it")) == [
        "nothing is published with 'dig it' in its name, up to m",
        "there are more: stado artifact list 'dig it' --after m",
    ]


def test_what_is_damaged_is_named_and_the_exit_code_says_so(
    stado: Program, world: World, job: str
) -> None:
    stado.ok("artifact", "publish", job, "--name", "digits")
    sound = stado("artifact", "verify", "digits")
    assert (sound.exit_code, sound.stdout) == (0, "")
    assert "digits@1 is as it was published: 2 files, 9 bytes" in sound.stderr
    world.repo.store.put(keys.output_file(job, 1, "note"), b"ho")
    world.repo.store.delete(keys.output_file(job, 1, "model/w"), None)
    damaged = stado("artifact", "verify", "digits")
    assert damaged.exit_code == 1
    lines = damaged.stdout.splitlines()
    assert lines[0].startswith("model/w: it is missing")
    assert lines[1].startswith("note: it has 2 bytes, SHA-256")
    assert "digits@1 is damaged: 2 of 2 files" in damaged.stderr


def test_refusals_name_what_helps(stado: Program, world: World, job: str) -> None:
    stado.ok("artifact", "publish", job, "--name", "digits")
    assert "did you mean digits?" in stado.refused("artifact", "show", "digit")
    assert "the newest is 1" in stado.refused("artifact", "verify", "digits@4")
    assert "versions are 1, 2, 3" in stado.refused("artifact", "show", "digits@x")
    assert "letter or digit" in stado.refused("artifact", "publish", job, "--name", "../x")
    assert "there is 'model'" in stado.refused(
        "artifact", "publish", job, "--name", "x", "--path", "modle"
    )
    failed = stado.ok("submit", "--run-id", "bad", "run")
    world.fail(failed, 3)
    assert "--partial" in stado.refused("artifact", "publish", "bad", "--name", "x")
    assert "there is no job 'nobody'" in stado.refused(
        "submit", "--run-id", "x", "--input-artifact", "data=nobody", "run"
    )
    assert world.repo.find_run("x") is None


def test_inputs_are_named_as_jobs_are_and_shown_with_their_pins(
    stado: Program, world: World, job: str
) -> None:
    """R139: what they mean is told at once where it could surprise."""
    stado.ok("artifact", "publish", job, "--name", "digits")
    result = stado(
        *("submit", "--run-id", "taking", "--input-artifact", "b=artifact:digits"),
        *("--input-artifact", "a=source/model", "--input-artifact", f"c={job[-6:]}"),
        *("--input-artifact", f"d=s3://lab/x.bin#sha256={DIGEST}", "run"),
    )
    assert result.exit_code == 0, result.stderr
    assert "input b: artifact digits@1, the newest" in result.stderr
    taking = result.stdout.strip()
    shown = stado.json("job", "show", taking)["inputs"]
    manifest = keys.output_manifest(job, 1)
    assert [(one["name"], one["source"], one["path"]) for one in shown] == [
        ("a", manifest, "model"),
        ("b", keys.artifact("digits", 1), ""),
        ("c", manifest, ""),
        ("d", "s3://lab/x.bin", ""),
    ]
    story = stado.ok("job", "show", taking)
    assert f"inputs    a: output of job {job}, epoch 1, model of it (SHA-256 " in story
    assert "b: artifact digits@1 (SHA-256 " in story
    assert f"d: s3://lab/x.bin (SHA-256 {DIGEST})" in story
    again = stado.ok("job", "rerun", taking)
    assert stado.json("job", "show", again)["inputs"] == shown


def test_a_submission_whose_input_has_moved_on_is_another_one(
    stado: Program, world: World, job: str, tmp_path: Path
) -> None:
    stado.ok("artifact", "publish", job, "--name", "digits")
    taking = ("submit", "--run-id", "taking", "--input-artifact", "data=artifact:digits", "run")
    first = stado.ok(*taking)
    assert stado.ok(*taking) == first
    other = stado.ok("submit", "--run-id", "other", "run")
    leave(world, other, tmp_path, {"note": b"ho"})
    world.complete(other)
    stado.ok("artifact", "publish", other, "--name", "digits")
    refused = stado(*taking)
    told = refused.stderr.splitlines()[-1]
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "stado: run id taking belongs to another request: input data: " in told
    assert "digits@000001" in told
