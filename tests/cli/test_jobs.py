"""The jobs that somebody submitted: theirs alone, unless everybody's are asked for."""

from __future__ import annotations

import json

import pytest

from stado.core.records import Phase, Progress
from stado.core.spec import Spec, make_request
from stado.jobs.submit import submit as submit_request
from tests.cli.conftest import Program, World, report
from tests.cli.terminal import Terminal


def submit(stado: Program, run_id: str, *options: str) -> str:
    return stado.ok("submit", "--run-id", run_id, *options, "run")


def submit_as_bob(world: World, run_id: str) -> str:
    request = make_request(["run"], Spec(command=""), batch=False)
    return submit_request(world.repo, run_id=run_id, request=request, submitter="bob").base_id


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()[1:]]


def test_jobs_are_ones_own_newest_first_and_org_is_everybodys(stado: Program, world: World) -> None:
    """R33, R122"""
    first = submit(stado, "first")
    other = submit_as_bob(world, "other")
    second = submit(stado, "second")
    for command in (("jobs",), ("job", "ls")):
        assert [row[0] for row in rows(stado.ok(*command))] == [second, first]
    assert [row[0] for row in rows(stado.ok("jobs", "--org"))] == [second, other, first]


def test_twenty_are_listed_and_more_when_asked_for(stado: Program, world: World) -> None:
    """R121"""
    lines = "".join(f"job {number}\n" for number in range(25)).encode()
    stado.ok("submit", "--run-id", "batch", "--batch", "-", stdin=lines)
    alone = submit(stado, "alone")
    result = stado("jobs")
    assert len(rows(result.stdout)) == 20
    assert rows(result.stdout)[0][0] == alone
    assert result.stderr == "showing 20 of 26 jobs: --limit N, --all\n"
    everything = stado("jobs", "--all")
    assert (len(rows(everything.stdout)), everything.stderr) == (26, "")
    assert len(rows(stado.ok("jobs", "--all", "--limit", "2"))) == 26


def test_a_document_has_all_jobs_unless_a_limit_cuts_it(stado: Program, world: World) -> None:
    """R121"""
    ids = [submit(stado, f"run-{number}") for number in range(25)]
    for command in (("jobs",), ("jobs", "--org"), ("status",), ("jobs", "--all", "--limit", "3")):
        result = stado(*command, "--json")
        document = json.loads(result.stdout)
        assert [job["job_id"] for job in document["jobs"]] == ids[::-1]
        assert (document["more"], result.stderr) == (False, "")
    cut = stado("jobs", "--limit", "3", "--json")
    assert [job["job_id"] for job in json.loads(cut.stdout)["jobs"]] == ids[:-4:-1]
    assert cut.stderr == "showing 3 of 25+ jobs: without --limit all of them\n"
    assert json.loads(cut.stdout)["total"] == {"count": 25, "at_least": True}


@pytest.mark.parametrize("limit", ["0", "251", "x"])
def test_a_limit_has_limits(stado: Program, world: World, limit: str) -> None:
    result = stado("jobs", "--limit", limit)
    assert (result.exit_code, result.stdout) == (2, "")


def test_a_note_names_only_options_that_show_more(stado: Program, world: World) -> None:
    lines = "".join(f"job {number}\n" for number in range(251)).encode()
    stado.ok("submit", "--run-id", "batch", "--batch", "-", stdin=lines)
    result = stado("status", "--limit", "250")
    assert "showing 250 of 251 jobs: --all\n" in result.stderr
    assert "showing" not in stado("status", "--all").stderr


def run_pipeline(stado: Program, world: World) -> tuple[str, str]:
    """Its root, which completes, and its first step, which fails; the second never starts."""
    steps = ("--then", "export=./export", "--then", "eval=./eval")
    root = stado.ok("submit", "--run-id", "night", *steps, "./train")
    world.complete(root)
    run = world.repo.find_run(f"{root}.1")
    assert run is not None
    world.fail(run.value.base_id, 3)
    return root, run.value.base_id


def test_a_pipeline_is_a_row_with_its_steps_counted(stado: Program, world: World) -> None:
    """R58, R61"""
    root, export = run_pipeline(stado, world)
    plain = submit(stado, "plain")
    for command in (("jobs",), ("status",)):
        result = stado(*command)
        header, *lines = result.stdout.splitlines()
        assert header.split()[:4] == ["JOB", "STATUS", "STEPS", "AGE"]
        assert [line.split()[0] for line in lines] == [plain, root]
        assert lines[1].split()[1:3] == ["partial", "0/2!"]
        assert "export: job_failed 3" in lines[1]
        told = f"1 submission stopped short: `stado pipeline show {root}`, or --steps"
        assert told in result.stderr
    below = rows(stado.ok("jobs", "--steps"))
    assert [row[:2] for row in below] == [["job", plain], ["job", root], ["export", export]]
    assert below[2][2:5] == ["failed", "1", "export"]


def test_a_pipeline_is_at_the_step_that_is_under_way(stado: Program, world: World) -> None:
    """R58: what holds it, or how it gets on, is the step's."""
    root = stado.ok("submit", "--run-id", "night", "--then", "eval=./eval", "--cpu", "1", "./train")
    world.complete(root)
    report(world, "local@box", cpu_total=0.5, cpu_free=0.5)
    (row,) = stado.ok("status").splitlines()[1:]
    assert row.split()[1:3] == ["queued", "0/1"]
    assert "eval: no_eligible_worker" in row
    run = world.repo.find_run(f"{root}.1")
    assert run is not None
    progress = Progress(fraction=0.5, text="half")
    beat = {"progress": progress, "trouble": "the disk is slow"}
    world.beat(world.claim(run.value.base_id), Phase.RUNNING, **beat)
    result = stado("status")
    (row,) = result.stdout.splitlines()[1:]
    assert row.split()[1:3] == ["running", "0/1"]
    assert "50%: half" in row
    assert f"{run.value.base_id} is running: the disk is slow" in result.stderr


def test_flat_and_in_a_document_each_job_has_its_own(stado: Program, world: World) -> None:
    """R58: as where somebody looks for what failed."""
    root, export = run_pipeline(stado, world)
    flat = rows(stado.ok("jobs", "--flat"))
    assert [row[1:3] for row in flat] == [[export, "failed"], [root, "completed"]]
    assert "is no state of a job, but of a pipeline" in stado.refused("jobs", "--status", "Partial")
    failed = rows(stado.ok("jobs", "--status", "failed"))
    assert [row[1:3] for row in failed] == [[export, "failed"]]
    told = [
        (job["job_id"], job["status"], job["pipeline_id"], job["step"], job["step_name"])
        for job in stado.json("jobs")["jobs"]
    ]
    name = f"pipeline_{root}"
    assert told == [
        (export, "failed", name, 1, "export"),
        (root, "completed", name, None, None),
    ]
    result = stado("jobs", "--flat", "--steps")
    assert (result.exit_code, result.stdout) == (2, "")


def test_what_was_launched_is_not_ones_newest(stado: Program, world: World) -> None:
    """R119: of a pipeline it is the job that somebody submitted."""
    root, _ = run_pipeline(stado, world)
    result = stado("job", "why")
    assert result.stderr.splitlines()[0] == f"job {root}, your newest"
    assert stado.json("job", "show", "last")["job_id"] == root


def test_jobs_are_found_by_type_and_by_all_of_their_tags(stado: Program, world: World) -> None:
    first = submit(stado, "first", "--tag", "nightly", "--tag", "v2", "--type", "eval")
    second = submit(stado, "second", "--tag", "nightly")
    submit(stado, "third")
    header, *lines = stado.ok("jobs").splitlines()
    assert "TAGS" in header.split()
    assert "nightly v2" in lines[-1]

    def found(*options: str) -> list[str]:
        return [job["job_id"] for job in stado.json("jobs", *options)["jobs"]]

    assert found("--tag", "nightly") == [second, first]
    assert found("--tag", "v2", "--tag", "nightly") == [first]
    assert found("--type", "EVAL") == [first]
    assert stado.json("job", "show", first)["tags"] == ["nightly", "v2"]
    assert "no such jobs of yours" in stado("jobs", "--tag", "none").stderr
    assert (
        "no job is queued, tagged none"
        in stado("status", "--status", "QUEUED", "--tag", "none").stderr
    )


@pytest.mark.parametrize("tag", ["", "Nightly", "a b", "x" * 65])
def test_a_tag_is_a_short_plain_word(stado: Program, world: World, tag: str) -> None:
    assert "must be 1 to 64 characters" in stado.refused(
        "submit", "--run-id", "x", "--tag", tag, "run"
    )
    assert "must be 1 to 64 characters" in stado.refused("jobs", "--tag", tag)


def test_type_status_and_policy_are_columns(stado: Program, world: World) -> None:
    """R114"""
    trained = submit(stado, "trained", "--type", "train")
    submit(stado, "plain")
    header, *cells = stado.ok("jobs").splitlines()
    assert header.split()[:3] == ["TYPE", "JOB", "STATUS"]
    assert [line.split()[0] for line in cells] == ["job", "train"]
    world.fail(trained, 3)
    header, *cells = stado.ok("jobs", "--state", "failed").splitlines()
    assert "POLICY" in header.split()
    assert [line.split()[1:3] for line in cells] == [[trained, "failed"]]


def test_nothing_of_ones_own_is_said(stado: Program, world: World) -> None:
    submit_as_bob(world, "other")
    result = stado("jobs")
    assert (result.exit_code, result.stdout) == (0, "")
    assert (
        "there are no jobs of yours yet: `stado submit --run-id NAME COMMAND` queues one, "
        "`--org` lists everybody's"
    ) in result.stderr


def test_the_list_is_drawn_again_and_again(
    stado: Program, environment: dict[str, str], world: World
) -> None:
    submit(stado, "first")
    terminal = Terminal("jobs", "--watch", environment=environment)
    terminal.wait_for("first")
    submit(stado, "second")
    terminal.wait_for("second")
    terminal.press(b"\x03")
    assert terminal.end() == 130
    assert "draws on a terminal" in stado.refused("jobs", "--watch")
