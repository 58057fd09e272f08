"""What a job left, looked at: the list, the result, the recordings; downloads that go on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import Checkpoint, CheckpointFile, JobWarning
from stado.core.states import Reason, Verdict, WarningCode
from stado.jobs.outputs import publish
from tests.cli.conftest import Program, World
from tests.cli.terminal import Terminal
from tests.system.commands import eventually

FILES = {
    "model.npz": b"weights",
    "recordings/one.mcap": b"1",
    "recordings/deep/two.mcap": b"22",
    "result.json": b'{"score": 0.5, "name": "\xc5\xbc\\u0007"}',
}


ENDLESS = 8 * 1000**3
"""So large is a file without content whose download takes until it is stopped."""


def leave(world: World, job_id: str, tmp_path: Path, files: dict[str, bytes] = FILES) -> None:
    folder = tmp_path / f"left-by-{job_id}"
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    publish(world.repo, job_id=job_id, epoch=1, folder=folder, partial=False)


@pytest.fixture
def job(stado: Program, world: World, tmp_path: Path) -> str:
    """One that has completed, and left `FILES` and a checkpoint."""
    job_id = stado.ok("submit", "--run-id", "x", "run")
    leave(world, job_id, tmp_path)
    part = keys.checkpoint_part(job_id, 1, 3, 0)
    file = CheckpointFile(path="weights", size=5, sha256="ab" * 32, parts=[part])
    checkpoint = Checkpoint(job_id=job_id, epoch=1, sequence=3, at=world.repo.now(), files=[file])
    world.repo.store.put(keys.checkpoint_manifest(job_id, 1, 3), checkpoint.encode())
    world.complete(job_id)
    return job_id


# --- outputs --------------------------------------------------------------------------------


def test_checkpoints_recordings_and_files_are_listed_together(stado: Program, job: str) -> None:
    """R118"""
    result = stado("outputs", job)
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["KIND", "SIZE", "SHA256", "NAME"]
    assert [(row[0], row[-1]) for row in rows[1:]] == [
        ("checkpoint", "1.3/weights"),
        ("recording", "recordings/deep/two.mcap"),
        ("recording", "recordings/one.mcap"),
        ("file", "model.npz"),
        ("result", "result.json"),
    ]
    assert rows[1][3] == "abababababab"
    assert "4 files, 44 bytes, and 1 checkpoint" in result.stderr


def test_the_document_of_outputs_has_whole_digests(stado: Program, job: str) -> None:
    """R118"""
    document = stado.json("outputs", job)
    assert {one["kind"] for one in document["outputs"]} == {"file", "recording", "result"}
    assert all(len(one["sha256"]) == 64 for one in document["outputs"])
    (checkpoint,) = document["checkpoints"]
    assert (checkpoint["epoch"], checkpoint["sequence"]) == (1, 3)
    assert checkpoint["files"] == [{"path": "weights", "size": 5, "sha256": "ab" * 32}]
    assert (document["job_id"], document["partial"], document["skipped"]) == (job, False, [])


def test_a_job_that_left_nothing_has_no_table(stado: Program, world: World) -> None:
    job_id = stado.ok("submit", "--run-id", "x", "run")
    result = stado("outputs", "x")
    assert result.stdout == ""
    assert result.stderr == (
        f"{job_id}: 0 files; the job is still queued: its files come when it ends\n"
    )


def test_names_in_a_list_drive_no_terminal(stado: Program, world: World, tmp_path: Path) -> None:
    job_id = stado.ok("submit", "--run-id", "x", "run")
    leave(world, job_id, tmp_path, {"a\nb\x1b[2J": b"1"})
    world.complete(job_id)
    shown = stado.ok("outputs", "x")
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 2


@pytest.mark.parametrize("command", ["outputs", "result", "recordings", "results"])
def test_a_job_of_somebody_else_is_looked_at_by_its_id(
    stado: Program, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """R123: and one's own newest is another matter."""
    monkeypatch.setenv("USER", "bob")
    monkeypatch.chdir(tmp_path)
    target = [str(tmp_path / "out")] if command == "results" else []
    stado.ok(command, job, *target)
    if command != "results":
        assert "bob has submitted nothing" in stado.refused(command)


@pytest.mark.parametrize("command", ["outputs", "result", "recordings"])
def test_without_an_id_it_is_the_newest_job_which_is_named_first(
    stado: Program, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """R116"""
    monkeypatch.chdir(tmp_path)
    result = stado(command)
    assert result.exit_code == 0
    assert result.stderr.startswith(f"job {job}, your newest\n")


# --- the result -----------------------------------------------------------------------------


def test_the_result_is_printed_as_it_was_written(stado: Program, job: str) -> None:
    """R116: in plain characters."""
    printed = stado.ok("result", job)
    assert printed == '{"score": 0.5, "name": "\\u017c\\u0007"}'
    assert stado.json("result", job)["result"] == json.loads(printed)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "is no JSON: Expecting value"),
        (b"\xff", "is no JSON: 'utf-8' codec"),
        (b'{"a": NaN}', "is no JSON: it says NaN"),
        (b"[1e999]", "is no JSON: no number is as large as 1e999"),
        (b"[" * 100_000, "is no JSON: too many brackets within each other"),
        (b'"' + b"a" * 1024 * 1024 + b'"', "has 1,048,578 bytes and at most 1,048,576 count"),
    ],
)
def test_what_is_no_result_is_refused_with_the_reason(
    stado: Program, world: World, tmp_path: Path, data: bytes, told: str
) -> None:
    """R116"""
    job_id = stado.ok("submit", "--run-id", "x", "run")
    leave(world, job_id, tmp_path, {"result.json": data})
    world.complete(job_id)
    sentence = stado.refused("result", "x")
    assert sentence.startswith(f"result.json of job {job_id} {told}")
    assert sentence.endswith(f"; `stado results {job_id} DIR` fetches it")


def test_a_job_without_a_result_says_why(stado: Program, world: World, tmp_path: Path) -> None:
    """R116, R69: not at rest, no success, no file."""
    job_id = stado.ok("submit", "--run-id", "x", "run")
    leave(world, job_id, tmp_path)
    assert f"job {job_id} is queued: it has no result yet" in stado.refused("result", "x")
    world.fail(job_id, 3)
    assert "is failed (job_failed): only a completed job has a result" in stado.refused(
        "result", "x"
    )
    other = stado.ok("submit", "--run-id", "y", "run")
    world.complete(other)
    assert f"job {other} left no result.json at the top of its output folder" in stado.refused(
        "result", "y"
    )


def test_a_result_that_was_damaged_is_none(stado: Program, world: World, job: str) -> None:
    (world.path / keys.output_file(job, 1, "result.json")).write_bytes(b'{"score": 1}')
    assert stado.refused("result", job, code=1).endswith(
        f"result.json of job {job} is not what its manifest says"
    )


def test_a_result_that_is_missing_is_named_with_its_job(
    stado: Program, world: World, job: str
) -> None:
    """R116"""
    key = keys.output_file(job, 1, "result.json")
    (world.path / key).unlink()
    assert stado.refused("result", job, code=1) == (
        f"{key}: result.json of job {job} is missing, though its manifest names it"
    )


def test_a_result_that_did_not_come_is_not_called_none(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """R116: left out of what was delivered, or not delivered with all the rest."""
    folder = tmp_path / "left"
    folder.mkdir()
    (folder / "result.json").symlink_to("elsewhere")
    left_out, undelivered = (stado.ok("submit", "--run-id", name, "run") for name in "xy")
    publish(world.repo, job_id=left_out, epoch=1, folder=folder, partial=False)
    world.complete(left_out)
    warning = JobWarning(code=WarningCode.OUTPUT_UNDELIVERED, detail="its output is too odd")
    world.end(world.claim(undelivered), Verdict.COMPLETED, exit_code=0, warnings=[warning])
    assert stado.refused("result", left_out) == (
        f"job {left_out} completed, and its result did not come: result.json: not a regular file"
    )
    assert stado.refused("result", undelivered) == (
        f"job {undelivered} completed, and its result did not come: its output is too odd"
    )


# --- recordings and patterns ----------------------------------------------------------------


def test_recordings_arrive_in_the_folder_itself(
    stado: Program, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R117"""
    out = tmp_path / "out"
    for _ in range(2):
        assert stado.ok("recordings", job, str(out)) == str(out)
        assert (out / "one.mcap").read_bytes() == b"1"
        assert (out / "deep/two.mcap").read_bytes() == b"22"
        assert sorted(os.listdir(out)) == ["deep", "manifest.json", "one.mcap"]
    monkeypatch.chdir(tmp_path)
    assert stado.ok("recordings", job) == f"recordings-{job}"


def test_recordings_of_a_job_without_any_are_refused(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """R117, R106: also those of a cancelled job that an earlier epoch had left."""
    job_id = stado.ok("submit", "--run-id", "x", "run")
    leave(world, job_id, tmp_path)
    world.end(world.claim(job_id), Verdict.LOST, reason=Reason.LEASE_EXPIRED)
    stado.ok("cancel", job_id)
    out = tmp_path / "out"
    assert "its output has no recordings/ folder" in stado.refused("recordings", "x", str(out))
    assert not out.exists()
    stado.ok("results", "x", str(out))
    assert sorted(os.listdir(out)) == ["log.txt", "manifest.json", "model.npz", "result.json"]


def test_only_what_a_pattern_names_arrives(stado: Program, job: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = stado("results", job, str(out), "--only", "**/*.mcap", "--only", "result.json")
    assert result.stderr == f"{job}: 3 files, 37 bytes\n"
    assert sorted(os.listdir(out)) == ["manifest.json", "recordings", "result.json"]
    assert "no output is named so" in stado.refused("results", job, str(out), "--only", "nope")
    assert "names nothing in the output folder" in stado.refused(
        "results", job, str(out), "--only", "../x"
    )
    whole = stado("results", job, str(out))
    assert "3 of them were there already" in whole.stderr


# --- downloads that go on -------------------------------------------------------------------


def test_what_is_there_is_not_fetched_again(
    stado: Program, world: World, job: str, tmp_path: Path
) -> None:
    """R200: the store has lost all but one file by then."""
    out = tmp_path / "out"
    stado.ok("results", job, str(out))
    (out / "model.npz").unlink()
    for path in FILES:
        if path != "model.npz":
            (world.path / keys.output_file(job, 1, path)).unlink()
    (fetched,) = stado.json("results", job, str(out))["jobs"]
    assert fetched["fetched"] == 1
    assert (out / "model.npz").read_bytes() == b"weights"


def test_a_download_that_was_killed_goes_on(
    stado: Program, world: World, job: str, tmp_path: Path
) -> None:
    """R200: with nothing there but whole files, and what marks the folder as ours."""
    out = tmp_path / "out"
    stored = world.path / keys.output_file(job, 1, "recordings/one.mcap")
    content = stored.read_bytes()
    os.truncate(stored, ENDLESS)
    command = stado.start("results", job, str(out))
    for path in FILES.keys() - {"recordings/one.mcap"}:
        eventually((out / path).exists)
    command.kill()
    command.communicate()
    assert not (out / "manifest.json").exists()
    assert not (out / "recordings/one.mcap").exists()
    stored.write_bytes(content)
    assert "3 of them were there already" in stado("results", job, str(out)).stderr
    assert sorted(os.listdir(out)) == [
        *("log.txt", "manifest.json", "model.npz", "recordings", "result.json"),
    ]
    for path, data in FILES.items():
        assert (out / path).read_bytes() == data


def test_ctrl_c_is_a_sentence_and_the_same_command_goes_on(
    stado: Program, world: World, job: str, tmp_path: Path
) -> None:
    """R200, A82"""
    out = tmp_path / "out"
    stored = world.path / keys.output_file(job, 1, "recordings/one.mcap")
    content = stored.read_bytes()
    os.truncate(stored, ENDLESS)
    command = stado.start("results", job, str(out))
    eventually((out / "result.json").exists)
    command.send_signal(signal.SIGINT)
    stdout, stderr = command.communicate(timeout=60)
    assert command.returncode == 130
    assert (stdout, stderr) == (
        b"",
        b"stado: interrupted: what is whole stays; the same command goes on from here\n",
    )
    stored.write_bytes(content)
    stado.ok("results", job, str(out))
    assert (out / "recordings/one.mcap").read_bytes() == b"1"


def test_a_newer_epochs_files_take_the_place_of_an_older_ones(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """They are what an earlier download put there, although the job has gone on since."""
    job_id = stado.ok("submit", "--run-id", "x", "run")
    out = tmp_path / "out"
    leave(world, job_id, tmp_path, {"a": b"old", "b": b"same", "c": b"old", "d": b"old"})
    stado.ok("results", job_id, str(out))
    (out / "d").write_bytes(b"mine")
    world.end(world.claim(job_id), Verdict.LOST, reason=Reason.LEASE_EXPIRED)
    folder = tmp_path / "second"
    folder.mkdir()
    (folder / "a").write_bytes(b"new")
    (folder / "b").write_bytes(b"same")
    publish(world.repo, job_id=job_id, epoch=2, folder=folder, partial=False)
    world.complete(job_id)
    told = stado("results", job_id, str(out)).stderr
    assert f"1 file of an earlier try went; {out / 'd'} of an earlier try, changed since," in told
    assert (out / "a").read_bytes() == b"new"
    assert sorted(os.listdir(out)) == ["a", "b", "d", "log.txt", "manifest.json"]
    (again,) = stado.json("results", job_id, str(out))["jobs"]
    assert (again["epoch"], again["fetched"], again["removed"]) == (2, 0, 0)


# --- warnings -------------------------------------------------------------------------------


def test_warnings_and_what_was_left_are_in_the_story_and_in_the_list(
    stado: Program, world: World
) -> None:
    """R199"""
    job_id = stado.ok("submit", "--run-id", "x", "--output-uri", "s3://lab-models/x", "run")
    assert "WARNING" not in stado.ok("status")
    warning = JobWarning(code=WarningCode.OUTPUT_URI_FAILED, detail="no route")
    world.end(
        world.claim(job_id),
        Verdict.COMPLETED,
        exit_code=0,
        output_files=2,
        output_bytes=1500,
        warnings=[warning],
    )
    shown = stado.ok("job", "show", "x")
    assert "left 2 files, 1.5 kB" in shown
    assert "warning: output_uri_failed: no route" in shown
    assert "copy to   s3://lab-models/x" in shown
    listed = stado.ok("status").splitlines()
    assert "WARNING" in listed[0]
    assert "output_uri_failed" in listed[1]
    document = stado.json("job", "show", "x")
    assert document["warnings"] == [{"code": "output_uri_failed", "detail": "no route"}]
    assert (document["output_files"], document["output_bytes"]) == (2, 1500)


def test_on_a_terminal_a_bar_shows_bytes_and_files_in_one_line(
    world: World, job: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    stored = world.path / keys.output_file(job, 1, "recordings/one.mcap")
    os.truncate(stored, ENDLESS)
    terminal = Terminal("results", job, str(tmp_path / "out"), environment=environment)
    terminal.wait_for("3/4 files")
    terminal.press(b"\x03")
    assert terminal.end() == 130
    drawn = [line for line in terminal.text.replace("\r", "\n").splitlines() if "files" in line]
    assert drawn
    assert max(map(len, drawn)) <= 80
    assert any("bytes" in line for line in drawn)
    assert "stado: interrupted: what is whole stays; the same command goes on" in terminal.text
