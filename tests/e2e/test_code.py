"""Code that goes along, from a submitter's disk to a worker's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from stado.core.states import Reason, State
from stado.jobs.archives import pack
from stado.jobs.downloads import download
from stado.system.source_tree import read_source_tree
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import Fleet

SMALL = ("--cpu", "0.1", "--memory-gb", "0.05")

DESCRIBE = """
import hashlib, json, os, sys
def describe(path):
    if os.path.islink(path):
        return ["link", os.readlink(path)]
    with open(path, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    return ["executable" if os.access(path, os.X_OK) else "file", digest]
found = {
    os.path.relpath(os.path.join(place, name), "."): describe(os.path.join(place, name))
    for place, folders, names in os.walk(".")
    for name in names + [name for name in folders if os.path.islink(os.path.join(place, name))]
}
json.dump(found, open(os.path.join(os.environ["STADO_OUTPUT_DIR"], "found"), "w"))
"""
"""What a job sees of its working folder, by other code than ours."""


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=ada", "-c", "user.email=a@b", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def make_tree(folder: Path) -> Path:
    """A work tree with what has been shipped wrong elsewhere."""
    folder.mkdir()
    git(folder, "init", "-q")
    for setting in ("diff.noprefix=true", "core.autocrlf=true", "core.quotepath=true"):
        git(folder, "config", *setting.split("="))
    for name in ("same", "edited", "staged", "deleted", "removed"):
        (folder / name).write_text(f"{name}\n")
    (folder / ".gitignore").write_text("ignored\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    (folder / "edited").write_text("edited again, not staged\n")
    (folder / "staged").write_text("staged\n")
    git(folder, "add", "staged")
    (folder / "staged").write_text("staged, then edited\n")
    (folder / "deleted").unlink()
    git(folder, "rm", "-q", "removed")
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "untracked").write_text("x")
    (folder / "binary").write_bytes(bytes(range(256)) * 100)
    (folder / "crlf").write_bytes(b"one\r\ntwo\r\n")
    (folder / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("deep/er/untracked")
    (folder / 'odd "ü"\n name').write_text("x")
    (folder / "ignored").write_text("x")
    return folder


def submit(fleet: Fleet, *arguments: str) -> str:
    done = fleet.stado("submit", *SMALL, *arguments, "--wait")
    assert done.stdout, done.stderr
    return done.stdout.strip()


def found_by(fleet: Fleet, job_id: str, folder: Path) -> dict[str, list[str]]:
    download(fleet.repo, job_id=job_id, epoch=1, folder=folder)
    found: dict[str, list[str]] = json.loads((folder / "found").read_text())
    return found


def test_the_worker_has_the_tree_that_the_submitter_has(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """A69: and the digest of what the worker has is the one that was computed at the submit."""
    fleet = make_fleet()
    fleet.agent("one")
    tree = make_tree(tmp_path / "tree")
    script = tmp_path / "describe.py"
    script.write_text(DESCRIBE)
    describe = f"{sys.executable} {script}"
    job = submit(fleet, "--run-id", "one", "--workdir", str(tree), f"./run.sh && {describe}")
    there = found_by(fleet, job, tmp_path / "out")
    subprocess.run(
        [sys.executable, str(script)],
        cwd=tree,
        env={"STADO_OUTPUT_DIR": str(tmp_path)},
        check=True,
    )
    here = json.loads((tmp_path / "found").read_text())
    here = {name: about for name, about in here.items() if not name.startswith(".git/")}
    assert here.pop("ignored")
    assert there == here
    record = fleet.story(job).record
    assert record.state is State.COMPLETED
    snapshot = record.spec.snapshot
    assert snapshot is not None
    sizes = read_source_tree(tree).sizes
    assert snapshot.digest == pack(tree, sizes, tmp_path / "archive").digest
    assert (snapshot.commit, snapshot.dirty) == (git(tree, "rev-parse", "HEAD"), True)
    assert b"ran\n" in (tmp_path / "out" / "log.txt").read_bytes()
    assert (
        submit(fleet, "--run-id", "one", "--workdir", str(tree), f"./run.sh && {describe}") == job
    )


def test_what_was_deleted_before_a_submission_is_not_there_for_its_job(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """A70: on the host that had it for the job before."""
    fleet = make_fleet()
    fleet.agent("one")
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("kept", "old"):
        (tree / name).write_text(name)
    command = "ls > $STADO_OUTPUT_DIR/found"
    first = submit(fleet, "--run-id", "one", "--workdir", str(tree), command)
    (tree / "old").unlink()
    second = submit(fleet, "--run-id", "two", "--workdir", str(tree), command)
    for job, names in ((first, "kept\nold\n"), (second, "kept\n")):
        download(fleet.repo, job_id=job, epoch=1, folder=tmp_path / job)
        assert (tmp_path / job / "found").read_text() == names
    refused = fleet.stado("submit", *SMALL, "--run-id", "one", "--workdir", str(tree), command)
    assert refused.returncode == 2
    assert "run id one belongs to another request: snapshot: " in refused.stderr


def test_a_job_whose_checkout_fails_ends_with_the_error_and_its_log(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """A55: whoever watches or reads its log is told and released."""
    fleet = make_fleet()
    fleet.agent("one")
    commit = "0" * 40
    done = fleet.stado(
        *("submit", *SMALL, "--run-id", "one", "--repo", str(tmp_path / "no-repo")),
        *("--repo-ref", commit, "--wait", "true"),
    )
    assert done.returncode == 1
    (job,) = done.stdout.split()
    for command in (("job", "watch", job, "--follow"), ("logs", job, "--follow"), ("logs", job)):
        told = fleet.stado(*command)
        assert "[stado] checking out" in told.stdout
        assert "does not appear to be a git repository" in told.stdout
        assert "and the repository exists." in told.stdout
        assert "input_unavailable" in told.stderr
    record = fleet.story(job).record
    assert record.ending is not None
    assert (record.state, record.ending.reason) == (State.FAILED, Reason.INPUT_UNAVAILABLE)
    assert record.starts == 0


def test_a_commit_is_checked_out_on_the_host_and_the_command_runs_in_it(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """R138: the verify command runs there, too."""
    fleet = make_fleet()
    fleet.agent("one")
    tree = make_tree(tmp_path / "tree")
    commit = git(tree, "rev-parse", "HEAD")
    job = submit(
        fleet,
        *("--run-id", "one", "--repo", str(tree), "--repo-ref", commit),
        *("--verify", "test -f made && test -f deleted"),
        "git rev-parse HEAD && ls && touch made",
    )
    record = fleet.story(job).record
    assert record.state is State.COMPLETED, record.ending
    download(fleet.repo, job_id=job, epoch=1, folder=tmp_path / "out")
    log = (tmp_path / "out" / "log.txt").read_text()
    assert log.splitlines()[1:] == [commit, "deleted", "edited", "removed", "same", "staged"]
    assert os.listdir(fleet.folder / "hosts" / "one" / "jobs") == []
