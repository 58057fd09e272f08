"""`stado retention`, and what is told of what has gone."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import Manifest, OutputFile
from stado.core.states import State, Verdict
from stado.core.usage import Use, use_key
from stado.jobs.log_segments import write_segment
from tests.cli.conftest import Program, World


def ended(stado: Program, world: World, run_id: str, *, days_ago: float = 40) -> str:
    """A job that completed so long ago, with a log and a file."""
    job = stado.ok("submit", "--run-id", run_id, "true").split()[0]
    claimed = world.claim(job)
    write_segment(world.repo, job, 1, 0, b"printed\n")
    key = keys.output_file(job, 1, "data")
    world.repo.store.create(key, b"data")
    file = OutputFile(
        path="data",
        key=key,
        size=4,
        sha256="3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7",
    )
    manifest = Manifest(job_id=job, epoch=1, partial=False, files=[file])
    world.repo.store.create(manifest.own_key(), manifest.encode())
    world.end(claimed, Verdict.COMPLETED)
    _age(world, job, days_ago)
    return job


def _age(world: World, job: str, days: float) -> None:
    record = world.path / keys.record(State.COMPLETED, job)
    at = world.repo.now() - timedelta(days=days)
    fields = json.loads(record.read_text())
    fields["ending"]["ended_at"] = at.isoformat()
    record.write_text(json.dumps(fields))
    os.utime(record, (at.timestamp(), at.timestamp()))


def rules(stado: Program, **ages: str) -> None:
    for name, age in {"keep_newest": "0", **ages}.items():
        stado.ok("settings", "set", f"retention.{name}", age)


def test_without_a_rule_everything_is_kept(stado: Program, world: World) -> None:
    """R270"""
    ended(stado, world, "old")
    assert stado.ok("retention", "show").startswith("no retention rule is set")
    done = stado("retention", "run", "--apply", "--yes")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "everything is kept" in done.stderr


def test_a_run_lists_and_deletes_nothing_until_it_is_told_to(stado: Program, world: World) -> None:
    """R270, R272"""
    old, young = ended(stado, world, "old"), ended(stado, world, "young", days_ago=10)
    kept = ended(stado, world, "kept")
    stado.ok("artifact", "publish", kept, "--name", "data")
    rules(stado, logs="30d", outputs="30d")
    looked = stado("retention", "run")
    assert f"{old}  log" in looked.stdout
    assert young not in looked.stdout
    assert "its output is published as an artifact" in looked.stderr
    assert "nothing was deleted: add --apply" in looked.stderr
    assert stado.ok("logs", old) == "printed"
    asked = stado("retention", "run", "--apply")
    assert asked.exit_code == 2
    assert "say --yes where nobody can be asked" in asked.stderr
    fields = stado.json("retention", "run", "--apply", "--yes", "--verbose")
    assert fields["applied"]
    assert {kind: one["jobs"] for kind, one in fields["goes"].items()} == {"log": 2, "outputs": 1}
    assert fields["kept"] == [{"kind": "outputs", "reason": "published", "jobs": 1}]
    assert {one["job_id"] for one in fields["each"]} == {old, kept}
    assert stado.ok("logs", young) == "printed"
    assert stado.json("retention", "run")["goes"] == {}
    assert stado.json("retention", "show")["rules"]["retention.logs"] == 30 * 86_400


def test_what_has_gone_is_told_by_every_command_that_shows_it(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """R273"""
    job = ended(stado, world, "old")
    rules(stado, logs="30d", outputs="30d")
    stado.ok("retention", "run", "--apply", "--yes")
    for command in (
        ("logs", job),
        ("job", "logs", job),
        ("job", "watch", job),
        ("outputs", job),
        ("result", job),
        ("results", job, str(tmp_path / "here")),
        ("submit", "--run-id", "next", "--input-artifact", f"data={job}", "true"),
        ("artifact", "publish", job, "--name", "data"),
    ):
        done = stado(*command)
        assert (done.exit_code, done.stdout) == (2, ""), command
        assert "is not kept any more: it went at 20" in done.stderr, command
    assert "gone      the log of job" in stado.ok("job", "show", job)
    assert [one["kind"] for one in stado.json("job", "show", job)["gone"]] == ["log", "outputs"]


def test_jobs_go_with_all_that_they_left(stado: Program, world: World) -> None:
    """R270"""
    job = ended(stado, world, "old")
    rules(stado, jobs="30d")
    stado.ok("retention", "run", "--apply", "--yes")
    done = stado("job", "show", job)
    assert done.exit_code == 2
    assert "deleted" in done.stderr
    again = stado("submit", "--run-id", "old", "true")
    assert again.exit_code == 2
    assert "was deleted" in again.stderr


def test_nothing_is_done_unasked_where_there_was_nothing_to_ask(
    stado: Program, world: World
) -> None:
    """R270: something may have become old enough since."""
    job = ended(stado, world, "old")
    rules(stado, checkpoints="30d")
    done = stado("retention", "run", "--apply")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "nothing is to go" in done.stderr
    folder = world.path / keys.expired_folder("checkpoints")
    assert not list(folder.glob("*"))
    stado.ok("retention", "run", "--apply", "--yes")
    assert [one.name for one in folder.glob("*")] == [f"{job}.000001"]


def test_a_store_that_fails_on_the_way_leaves_an_account(stado: Program, world: World) -> None:
    """R274"""
    job = ended(stado, world, "old")
    rules(stado, logs="30d")
    (world.path / keys.expiring("log", job, 1)).mkdir(parents=True)
    done = stado("retention", "run", "--apply", "--yes")
    assert done.exit_code != 0
    assert "deleted nothing so far, or some more; the same command" in done.stderr


@pytest.mark.parametrize("age", ["3h", "0", "86399", "for ever"])
def test_an_age_below_a_day_is_refused(stado: Program, age: str) -> None:
    """R271"""
    done = stado("settings", "set", "retention.jobs", age)
    assert done.exit_code == 2
    assert f"retention.jobs {age!r} must be an age of at least 1d" in done.stderr


def test_results_without_their_log_say_so(stado: Program, world: World, tmp_path: Path) -> None:
    """R273: in the folder, too."""
    job = ended(stado, world, "old")
    rules(stado, logs="30d")
    stado.ok("retention", "run", "--apply", "--yes")
    done = stado("results", job, str(tmp_path / "here"))
    assert done.exit_code == 0
    assert "its log is not kept any more" in done.stderr
    assert (tmp_path / "here" / "data").read_bytes() == b"data"
    assert "is not kept any more" in (tmp_path / "here" / "log.txt").read_text()


def test_outputs_go_by_size_and_what_stays_for_a_reason_is_told(
    stado: Program, world: World
) -> None:
    """R276"""
    first, second, kept = (
        ended(stado, world, name, days_ago=days) for name, days in (("a", 9), ("b", 8), ("c", 12))
    )
    for job in (first, second, kept):
        use = Use(job, 1, "ada", None, ended_ms=9, wall_ms=5, output_bytes=3_000_000)
        world.repo.store.create(use_key(use), b"")
    stado.ok("artifact", "publish", kept, "--name", "data")
    rules(stado, output_bytes="6MB")
    assert "retention.output_bytes 6MB" in stado.ok("retention", "show")
    looked = stado("retention", "run")
    assert "kept, though a rule lets it go: the outputs of 1 job: its output is" in looked.stderr
    assert f"{first}  outputs" in looked.stdout
    assert second not in looked.stdout
    assert "outputs of 2 jobs stay: 6.0 MB; 6MB may stay" in looked.stderr
    stado.ok("settings", "set", "retention.output_bytes", "1MB")
    done = stado("retention", "run", "--apply", "--yes")
    assert f"{second}  outputs  2 objects, 4 bytes: retention.output_bytes 1MB" in done.stdout
    assert "2.0 MB too much: all that may go went, or would; the rest is kept:" in done.stderr
    assert "3.0 MB: its output is published as an artifact" in done.stderr
    assert "went at 20" in stado("outputs", second).stderr
    fields = stado.json("retention", "run")
    assert fields["outputs"]["beyond"] == 2_000_000
    assert fields["rules"]["retention.output_bytes"] == 1_000_000


@pytest.mark.parametrize("size", ["500", "0GB", "all", "90d"])
def test_what_is_no_size_is_refused(stado: Program, size: str) -> None:
    """R276"""
    done = stado("settings", "set", "retention.output_bytes", size)
    assert done.exit_code == 2
    assert f"retention.output_bytes {size!r} must be a size with its unit" in done.stderr
