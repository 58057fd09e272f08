"""The jobs that somebody submitted: theirs alone, unless everybody's are asked for."""

from __future__ import annotations

from stado.core.spec import Spec, make_request
from stado.jobs.submit import submit as submit_request
from tests.cli.conftest import Program, World


def submit(stado: Program, run_id: str, *options: str) -> str:
    return stado.ok("submit", "--run-id", run_id, *options, "run")


def submit_as_bob(world: World, run_id: str) -> str:
    request = make_request(["run"], Spec(command=""), batch=False)
    return submit_request(world.repo, run_id=run_id, request=request, submitter="bob").base_id


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()[1:]]


def test_jobs_are_ones_own_newest_first_and_org_is_everybodys(stado: Program, world: World) -> None:
    """R122"""
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
    assert "there are more: these are the first 20 (--limit N, --all)" in result.stderr
    assert len(rows(stado.ok("jobs", "--all"))) == 26
    document = stado.json("jobs", "--limit", "3")
    assert document["jobs"][0]["job_id"] == alone
    assert (len(document["jobs"]), document["more"]) == (3, True)


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
    assert "there are no such jobs of yours: `--org` lists everybody's" in result.stderr
