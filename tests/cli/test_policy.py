"""`stado policy`, and what lists and stories say of checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from stado.core import keys
from stado.core.states import Verdict
from stado.jobs import checkpoints, saving
from stado.jobs.saving import Past
from stado.jobs.sidecars import write_sidecar
from tests.cli.conftest import Program, World


def submit(stado: Program, run_id: str, *options: str) -> str:
    return stado.ok("submit", "--run-id", run_id, *options, "true")


def train(stado: Program, world: World, run_id: str, folder: Path, *values: float | None) -> str:
    """A train job that saves once for each value, and completes."""
    job = submit(stado, run_id, "--type", "train")
    claimed = world.claim(job)
    folder = folder / run_id
    folder.mkdir()
    past = Past()
    for number, value in enumerate(values, start=1):
        (folder / "model").write_text(f"weights {number}")
        if value is not None:
            write_sidecar(folder, step=number, metric="reward", value=value)
        saved = saving.save(
            world.repo, job_id=job, epoch=1, sequence=number, folder=folder, past=past
        )
        assert saved is not None
        best = checkpoints.best_as_of(saved.checkpoint, saved.ref)
        past = Past([*past.kept, saved], saved.states, best)
    world.end(claimed, Verdict.COMPLETED, exit_code=0, started_at=world.repo.now())
    return job


def test_policies_are_listed_with_their_best_and_their_latest(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """R109"""
    job = train(stado, world, "learn", tmp_path, 9.0, 2.5)
    header, row = stado.ok("policy", "list").splitlines()
    assert header.split() == ["POLICY", "ENDED", "BEST", "LATEST", "SIZE"]
    assert row.startswith(f"policy_{job}")
    assert "step 1, reward 9 " in row
    assert "step 2, reward 2.5 " in row
    (policy,) = stado.json("policy", "list")["policies"]
    assert (policy["policy_id"], policy["best"]["step"]) == (f"policy_{job}", 1)
    assert len(policy["latest"]["sha256"]) == 64


def test_no_policy_yet_is_told(stado: Program, world: World) -> None:
    result = stado("policy", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "--type train makes one" in result.stderr


def test_a_checkpoint_is_downloaded_by_a_part_of_its_id(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """R110"""
    job = train(stado, world, "learn", tmp_path, 9.0, 2.5)
    target = tmp_path / "here"
    result = stado("policy", "get", f"policy_{job[-6:]}:best", str(target))
    assert (result.exit_code, result.stdout) == (0, f"{target}\n")
    assert f"policy_{job}:best: 2 files" in result.stderr
    assert "step 1, reward 9" in result.stderr
    assert (target / "model").read_text() == "weights 1"
    again = stado("policy", "get", f"policy_{job}:latest", str(target))
    assert again.exit_code == 2
    assert "name a new or an empty folder" in again.stderr


def test_a_checkpoint_is_exported(stado: Program, world: World, tmp_path: Path) -> None:
    """R112"""
    job = train(stado, world, "learn", tmp_path, 9.0)
    told = stado.json("policy", "export", f"policy_{job}:best", str(tmp_path / "it.tar.gz"))
    assert (told["policy_id"], told["step"]) == (f"policy_{job}", 1)
    assert (tmp_path / "it.tar.gz").stat().st_size > 0


@pytest.mark.parametrize(
    ("ref", "told"),
    [
        ("{job}:best", "policy_{job}:best"),
        ("policy_{job}", "policy_{job}:latest"),
        ("policy_{job}:best", "policy_{job}:latest is there"),
        ("policy_nothing:best", "`stado policy list`"),
    ],
)
def test_what_cannot_be_had_is_told_with_the_remedy(
    stado: Program, world: World, tmp_path: Path, ref: str, told: str
) -> None:
    """R113: by the same words wherever a checkpoint is named."""
    job = train(stado, world, "learn", tmp_path, None)
    ref, told = ref.format(job=job), told.format(job=job)
    for command in (
        ["policy", "get", ref, str(tmp_path / "here")],
        ["policy", "export", ref, str(tmp_path / "here")],
        ["submit", "--run-id", "next", "--from", ref, "true"],
    ):
        result = stado(*command)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("stado: ")
        assert told in result.stderr
    assert not (tmp_path / "here").exists()
    assert len(stado.json("status")["jobs"]) == 1


def test_a_checkpoint_that_is_damaged_leaves_no_folder(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """R110: only what was there before is there afterwards."""
    job = train(stado, world, "learn", tmp_path, 9.0)
    for part in (world.path / keys.checkpoints_folder(job)).glob("*.??????"):
        part.write_bytes(b"damaged")
    (tmp_path / "there").mkdir()
    for command, place in (
        ("get", "new/deep"),
        ("get", "there/deep"),
        ("export", "new/deep"),
        ("export", "there/new/model.tar"),
    ):
        result = stado("policy", command, f"policy_{job}:best", str(tmp_path / place))
        assert result.exit_code == 2
        assert f"a checkpoint of policy_{job} is gone or damaged" in result.stderr
    assert stado("policy", "get", f"policy_{job}:best", str(tmp_path / "there")).exit_code == 2
    assert not (tmp_path / "new").exists()
    assert list((tmp_path / "there").iterdir()) == []


def test_a_policy_of_a_job_that_runs_is_not_sealed(
    stado: Program, world: World, tmp_path: Path
) -> None:
    job = submit(stado, "learn", "--type", "train")
    world.claim(job)
    result = stado("policy", "get", f"policy_{job}:best", str(tmp_path / "here"))
    assert result.exit_code == 2
    assert f"policy_{job} is not sealed: its job is running" in result.stderr


def test_lists_tell_what_was_made_and_what_is_used(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """R120: the type first; columns that no row needs are not there."""
    job = train(stado, world, "learn", tmp_path, 9.0)
    empty = train(stado, world, "empty", tmp_path)
    played = submit(stado, "play", "--type", "play", "--from", f"policy_{job}:best")
    header, *rows = stado.ok("status").splitlines()
    assert header.split()[:6] == ["TYPE", "JOB", "STATUS", "AGE", "TIME", "RUN"]
    assert "POLICY" in header
    by_job = {row.split()[1]: row for row in rows}
    assert by_job[job].split()[0] == "train"
    assert f"made policy_{job}" in by_job[job]
    assert " none " in by_job[empty]
    assert f"uses policy_{job}:best" in by_job[played]
    jobs = {one["job_id"]: one for one in stado.json("status")["jobs"]}
    assert jobs[job]["policy"] == f"made policy_{job}"
    assert jobs[played]["start_from"]["kind"] == "best"
    assert jobs[played]["policy_id"] is None


def test_a_story_tells_of_checkpoints_and_of_a_sidecar_that_is_not_believed(
    stado: Program, world: World, tmp_path: Path
) -> None:
    job = submit(stado, "learn", "--type", "train", "--require-checkpoint")
    world.claim(job)
    folder = tmp_path / "it"
    folder.mkdir()
    (folder / "stado-checkpoint.json").write_text('{"value": "\x1b[31mhigh"}')
    saving.save(world.repo, job_id=job, epoch=1, sequence=1, folder=folder)
    text = stado.ok("job", "show", job)
    assert "type      train" in text
    assert "checkpoint_meta_invalid" in text
    assert "\x1b" not in text
    told = stado.json("job", "show", job)
    assert "malformed" in told["checkpoint"]["meta_invalid"]
    assert told["policy"] is None
    assert told["policy_id"] == f"policy_{job}"


def test_a_type_is_one_of_a_few_words(stado: Program, world: World) -> None:
    result = stado("submit", "--run-id", "x", "--type", "trian", "true")
    assert result.exit_code == 2
    assert "train" in result.stderr
    assert submit(stado, "y", "--type", "TRAIN")
