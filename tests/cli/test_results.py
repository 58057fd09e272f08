"""Downloads: whole, checked, and never into somebody's other files."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from stado.core import keys
from stado.core.documents import parse
from stado.core.records import LogAccount, Manifest
from stado.core.states import Reason, Verdict
from stado.jobs.outputs import OutputPublisher, publish
from tests.cli.conftest import ROOT, Program, World


def leave(world: World, job_id: str, tmp_path: Path, files: dict[str, bytes]) -> None:
    folder = tmp_path / f"left-by-{job_id}"
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    publish(world.repo, job_id=job_id, epoch=1, folder=folder, partial=False)


def finished_batch(stado: Program, world: World, tmp_path: Path, run_id: str = "b") -> list[str]:
    ids = stado.ok("submit", "--run-id", run_id, "--batch", "-", stdin=b"one\ntwo\n").splitlines()
    for job_id in ids:
        leave(world, job_id, tmp_path, {"name": job_id.encode()})
        world.complete(job_id)
    return ids


def test_the_files_the_log_and_the_manifest_arrive(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """R200, R201"""
    job_id = stado.ok("submit", "--run-id", "x", "run")
    leave(world, job_id, tmp_path, {"model.bin": b"\0\1" * 1000, "deep/er/a.txt": b"a"})
    world.log(job_id, b"line\n")
    world.fail(job_id, 3)
    out = tmp_path / "out"
    result = stado("results", job_id, str(out))
    assert (result.exit_code, result.stdout) == (0, f"{out}\n")
    assert "2 files, 2.0 kB, and the log" in result.stderr
    assert (out / "model.bin").read_bytes() == b"\0\1" * 1000
    assert (out / "deep/er/a.txt").read_bytes() == b"a"
    assert (out / "log.txt").read_bytes() == b"line\n"


def test_the_document_names_each_file_with_its_digest(
    stado: Program, world: World, tmp_path: Path
) -> None:
    job_id = stado.ok("submit", "--run-id", "x", "run")
    leave(world, job_id, tmp_path, {"a": b"data"})
    world.complete(job_id)
    (job,) = stado.json("results", "x", str(tmp_path / "out"))["jobs"]
    assert job["files"] == [{"path": "a", "size": 4, "sha256": hashlib.sha256(b"data").hexdigest()}]
    assert (job["job_id"], job["status"], job["partial"]) == (job_id, "completed", False)


def test_a_batch_arrives_job_by_job(stado: Program, world: World, tmp_path: Path) -> None:
    ids = finished_batch(stado, world, tmp_path)
    for number, text in enumerate(("b", ids[0][:16], "last")):
        out = tmp_path / f"out-{number}"
        assert stado.ok("results", text, str(out)).splitlines() == [str(out / one) for one in ids]
        assert [(out / one / "name").read_text() for one in ids] == ids


def test_one_job_of_a_batch_arrives_in_the_folder_itself(
    stado: Program, world: World, tmp_path: Path
) -> None:
    ids = finished_batch(stado, world, tmp_path)
    for number, text in enumerate((ids[1], ids[1][-5:])):
        out = tmp_path / f"out-{number}"
        assert stado.ok("results", text, str(out)) == str(out)
        assert (out / "name").read_text() == ids[1]


def test_downloading_again_is_no_error(stado: Program, world: World, tmp_path: Path) -> None:
    finished_batch(stado, world, tmp_path)
    for _ in range(2):
        stado.ok("results", "b", str(tmp_path / "out"))


def test_a_folder_with_other_files_is_refused_before_anything_is_fetched(
    stado: Program, world: World, tmp_path: Path
) -> None:
    ids = finished_batch(stado, world, tmp_path)
    out = tmp_path / "out"
    (out / ids[1]).mkdir(parents=True)
    (out / ids[1] / "mine").write_text("mine")
    assert f"{out / ids[1]} holds other files ('mine', 1 in all)" in stado.refused(
        "results", "b", str(out)
    )
    assert not (out / ids[0]).exists()
    (out / "thesis.tex").write_text("mine")
    assert f"{out} holds other files ('thesis.tex', 1 in all)" in stado.refused(
        "results", "b", str(out)
    )
    assert stado("results", ids[0], str(out)).exit_code == 2
    assert (out / ids[1] / "mine").read_text() == "mine"


def test_a_file_in_place_of_the_folder_is_refused(
    stado: Program, world: World, tmp_path: Path
) -> None:
    finished_batch(stado, world, tmp_path)
    (tmp_path / "file").write_text("mine")
    assert "is a file: name a folder" in stado.refused("results", "b", str(tmp_path / "file"))


def test_a_damaged_file_is_not_taken_for_the_right_one(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """R200"""
    job_id = stado.ok("submit", "--run-id", "x", "run")
    leave(world, job_id, tmp_path, {"a": b"data"})
    world.complete(job_id)
    (world.path / keys.output_file(job_id, 1, "a")).write_bytes(b"DATA")
    sentence = stado.refused("results", job_id, str(tmp_path / "out"), code=1)
    assert "SHA-256" in sentence
    assert not (tmp_path / "out/a").exists()


def test_a_file_that_is_missing_is_no_refusal(stado: Program, world: World, tmp_path: Path) -> None:
    """R200: a download is not what its manifest says."""
    job_id = stado.ok("submit", "--run-id", "x", "run")
    leave(world, job_id, tmp_path, {"a": b"data"})
    world.complete(job_id)
    (world.path / keys.output_file(job_id, 1, "a")).unlink()
    sentence = stado.refused("results", job_id, str(tmp_path / "out"), code=1)
    assert "a is missing" in sentence


def test_of_a_batch_a_damaged_job_costs_none_of_the_others(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """R200: each is named, and the exit code says that it is not all."""
    ids = finished_batch(stado, world, tmp_path)
    ids += finished_batch(stado, world, tmp_path, run_id="c")
    damaged, unreadable = min(ids), max(ids)
    (world.path / keys.output_file(damaged, 1, "name")).unlink()
    (world.path / keys.output_manifest(unreadable, 1)).write_bytes(b"{")
    whole = sorted(set(ids) - {damaged, unreadable})
    out = tmp_path / "out"
    result = stado("results", "all", str(out))
    assert result.exit_code == 1
    assert sorted(result.stdout.split()) == [str(out / job_id) for job_id in whole]
    told = [line for line in result.stderr.splitlines() if line.startswith("stado: ")]
    key = keys.output_manifest(unreadable, 1)
    missing = "name is missing, though the manifest names it"
    broken = "it is no JSON document: Input data was truncated"
    assert sorted(told) == [
        f"stado: not fetched: {damaged}: {missing} (results_damaged)",
        f"stado: not fetched: {unreadable}: {key} is unreadable: {broken} (results_unreadable)",
    ]
    again = stado("results", "all", str(out), "--json")
    assert again.exit_code == 1
    refused = {one["job_id"]: one["code"] for one in json.loads(again.stdout)["refused"]}
    assert refused == {damaged: "results_damaged", unreadable: "results_unreadable"}


def test_of_a_batch_a_folder_that_cannot_be_written_keeps_none_of_the_others_back(
    stado: Program, world: World, tmp_path: Path
) -> None:
    first, *others = sorted(finished_batch(stado, world, tmp_path))
    out = tmp_path / "out"
    stado.ok("results", "b", str(out))
    in_the_way = out / first / ".stado-partial"
    in_the_way.write_text("mine")
    result = stado("results", "b", str(out))
    assert result.exit_code == 1
    assert result.stdout.split() == [str(out / job_id) for job_id in others]
    assert f"not fetched: {first}: {in_the_way} cannot be written: File exists" in result.stderr
    assert in_the_way.read_text() == "mine"


def test_a_job_that_still_runs_says_that_more_may_come(
    stado: Program, world: World, tmp_path: Path
) -> None:
    job_id = stado.ok("submit", "--run-id", "x", "run")
    world.claim(job_id)
    assert "still running: more may come" in stado("results", "x", str(tmp_path / "out")).stderr


def test_an_unknown_job_is_refused_and_no_folder_is_made(
    stado: Program, world: World, tmp_path: Path
) -> None:
    assert "there is no job 'nope'" in stado.refused("results", "nope", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


# The log


def manifest_of(folder: Path) -> Manifest:
    return parse(Manifest, "manifest.json", (folder / "manifest.json").read_bytes())


def test_the_log_has_a_line_where_bytes_were_dropped_and_the_manifest_counts_them(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """R201: also where the holder left no word of it."""
    job_id = stado.ok("submit", "--run-id", "x", "run")
    world.log(job_id, b"head\nhal")
    world.log(job_id, b"tail\n", offset=1_008)
    world.complete(job_id)
    out = tmp_path / "out"
    result = stado("results", job_id, str(out))
    assert "and the log (1,000 of its 1,013 bytes were dropped)" in result.stderr
    assert (out / "log.txt").read_bytes() == (
        b"head\nhal\n[stado: 1,000 bytes of the log were dropped here]\ntail\n"
    )
    counted = LogAccount(written=1_013, kept=13, dropped=1_000)
    assert manifest_of(out).log == counted
    (job,) = stado.json("results", job_id, str(out))["jobs"]
    assert job["log"] == {"written": 1_013, "kept": 13, "dropped": 1_000}


def test_a_failed_job_leaves_its_files_and_its_log_marked_as_partial(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """A67, R201"""
    job_id = stado.ok("submit", "--run-id", "x", "run")
    left = tmp_path / "left"
    left.mkdir()
    for name in ("a", "b"):
        (left / name).write_text(name)
    log = LogAccount(written=20, kept=4, dropped=16)
    OutputPublisher(world.repo, job_id=job_id, epoch=1, folder=left).publish(partial=True, log=log)
    world.log(job_id, b"out\n")
    world.fail(job_id, 1)
    out = tmp_path / "out"
    (job,) = stado.json("results", job_id, str(out))["jobs"]
    assert job["partial"] is True
    assert sorted(path.name for path in out.iterdir()) == ["a", "b", "log.txt", "manifest.json"]
    assert (out / "log.txt").read_text() == (
        "out\n[stado: 16 bytes of the log were dropped here, at its end]\n"
    )
    assert manifest_of(out).partial
    assert manifest_of(out).log == log


def test_a_failed_job_that_left_nothing_but_its_log_is_partial_too(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """A67"""
    job_id = stado.ok("submit", "--run-id", "x", "run")
    world.log(job_id, b"out\n")
    world.fail(job_id, 1)
    stado.ok("results", job_id, str(tmp_path / "out"))
    assert manifest_of(tmp_path / "out").partial


def test_a_job_that_was_cancelled_while_it_waited_again_has_the_log_that_there_was(
    stado: Program, world: World, tmp_path: Path
) -> None:
    job_id = stado.ok("submit", "--run-id", "x", "run")
    world.log(job_id, b"first\n", epoch=1)
    world.end(world.claim(job_id), Verdict.LOST, reason=Reason.LEASE_EXPIRED)
    stado.ok("cancel", job_id)
    stado.ok("results", job_id, str(tmp_path / "out"))
    assert (tmp_path / "out/log.txt").read_text() == (
        f"first\n[stado: epoch 2 of job {job_id} begins: epoch 1 lost (lease_expired)]\n"
    )


def test_all_are_the_jobs_of_mine_that_have_ended(
    stado: Program, world: World, tmp_path: Path
) -> None:
    assert "no job of ada has ended yet" in stado.refused("results", "all", str(tmp_path / "no"))
    ended = [stado.ok("submit", "--run-id", name, "run") for name in ("a", "b")]
    for job_id in ended:
        world.complete(job_id)
    stado.ok("submit", "--run-id", "c", "run")
    out = tmp_path / "out"
    shown = stado.ok("results", "all", str(out)).splitlines()
    assert sorted(shown) == sorted(str(out / job_id) for job_id in ended)


# Very many files

MANY = 5_000
MEMORY_MAX = 300 * 1000 * 1000
MANY_FILES = """
import sys
from pathlib import Path
from stado.jobs.downloads import download
from stado.jobs.outputs import OutputPublisher
from tests.cli.conftest import make_world

def peak_bytes():
    # Of this program alone: the resource usage of a child begins with its parent's.
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024

world = make_world(Path(sys.argv[1]))
publisher = OutputPublisher(world.repo, job_id="a" * 16, epoch=1, folder=Path(sys.argv[2]))
manifest = publisher.publish(partial=False)
uploader = peak_bytes()
fetched = download(world.repo, job_id="a" * 16, epoch=1, folder=Path(sys.argv[3])).manifest
both = peak_bytes()
assert fetched.files == manifest.files
print(len(manifest.files), uploader, both)
"""


def test_thousands_of_files_go_up_and_come_down_in_little_memory(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """A63: `tests.bench.transfers` does it with 20,000, and one of 5 GB."""
    left = tmp_path / "left"
    for number in range(MANY):
        folder = left / f"{number // 1000:02d}"
        if number % 1000 == 0:
            folder.mkdir(parents=True)
            (tmp_path / folder.name).write_text(folder.name)
        os.link(tmp_path / folder.name, folder / f"{number:05d}.txt")
    arguments = [str(tmp_path / name) for name in ("store", "left", "out")]
    done = subprocess.run(
        [sys.executable, "-c", MANY_FILES, *arguments],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=110,
    )
    count, uploader, both = map(int, done.stdout.split())
    assert count == MANY
    assert uploader < MEMORY_MAX
    assert both < MEMORY_MAX
    some = manifest_of(tmp_path / "out").files[3_210]
    assert some.path == "03/03210.txt"
    assert some.sha256 == hashlib.sha256(b"03").hexdigest()
    assert (tmp_path / "out" / some.path).read_text() == "03"


def test_a_job_that_printed_nothing_has_no_log(
    stado: Program, world: World, tmp_path: Path
) -> None:
    job_id = stado.ok("submit", "--run-id", "x", "run")
    told = stado("results", job_id, str(tmp_path / "out")).stderr
    assert told.startswith(f"{job_id}: 0 files, 0 bytes, and no log; the job is still queued")


def test_downloading_again_replaces_nothing_that_somebody_changed(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """R200"""
    job_id = stado.ok("submit", "--run-id", "x", "run")
    leave(world, job_id, tmp_path, {"a": b"data"})
    world.log(job_id, b"line\n")
    world.complete(job_id)
    out = tmp_path / "out"
    stado.ok("results", job_id, str(out))
    for name in ("log.txt", "mine"):
        (out / name).write_text("mine")
    stado.ok("results", job_id, str(out))
    contents = [(out / name).read_text() for name in ("a", "log.txt", "mine")]
    assert contents == ["data", "line\n", "mine"]
    (out / "a").write_text("mine")
    assert stado.refused("results", job_id, str(out)) == (
        f"{out / 'a'}: not as the job left it, and would be replaced: move it away, or name "
        "another folder"
    )
    assert (out / "a").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_refused(stado: Program, world: World) -> None:
    stado.ok("submit", "--run-id", "x", "run")
    sentence = stado.refused("results", "x", "/proc/foo")
    assert sentence == "/proc/foo cannot be written: No such file or directory: name another folder"
