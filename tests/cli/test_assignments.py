"""`stado coordinator assignments`."""

from __future__ import annotations

from datetime import timedelta

from stado.core.runtimes import no_run_time_text
from stado.jobs.assignments import Assigner, read_assignments
from tests.cli.conftest import Program, World, report
from tests.cli.terminal import Terminal


def submit(stado: Program, run_id: str, *options: str) -> str:
    return stado.ok("submit", "--run-id", run_id, *options, "run")


def test_without_a_coordinator_it_says_that_all_jobs_are_for_all(
    stado: Program, world: World
) -> None:
    result = stado("coordinator", "assignments")
    assert result.stdout == ""
    assert "every job can be taken by every host" in result.stderr
    assert stado.json("coordinator", "assignments")["in_force"] is False


def test_what_is_assigned_and_what_is_left_to_all(stado: Program, world: World) -> None:
    """R162, R166"""
    report(world, "lab-7", disk_left_gb=9)
    known = submit(stado, "known", "--runtime-seconds-estimate", "7200")
    submit(stado, "bert-1", "--model", "bert", "--type", "eval")
    submit(stado, "bert-2", "--model", "bert", "--type", "eval")
    plain = submit(stado, "plain", "--priority", "9")
    Assigner(world.repo, by="coordinator@box:1").turn()
    lines = stado.ok("coordinator", "assignments").splitlines()
    assert lines[0].startswith("1 job of 1 planned is assigned; the last should end 20")
    assert lines[3].startswith("HOST   JOB")
    assert lines[4].split()[:2] == ["lab-7", known]
    assert "left to all hosts: 3 jobs" in lines
    assert [line.split()[:3] for line in lines[-2:]] == [
        ["2", "bert", "eval"],
        ["1", "(none)", "job"],
    ]
    told = stado.json("coordinator", "assignments")
    assert (told["in_force"], told["assigned"], told["skipped"]) == (True, 1, 3)
    (host,) = told["hosts"]
    assert [(job["job_id"], job["run_seconds"]) for job in host["jobs"]] == [(known, 7200)]
    assert [(one["model"], one["type"], one["count"]) for one in told["groups_skipped"]] == [
        ("bert", "eval", 2),
        (None, "job", 1),
    ]
    last = told["groups_skipped"][1]
    assert last["example"] == plain
    assert last["text"] == no_run_time_text("any host that could run it")


def test_on_a_terminal_the_titles_of_its_tables_are_bold(
    stado: Program, environment: dict[str, str], world: World
) -> None:
    submit(stado, "bert", "--model", "bert")
    Assigner(world.repo, by="coordinator@box:1").turn()
    terminal = Terminal("coordinator", "assignments", environment=environment)
    assert terminal.end() == 0
    assert "\x1b[1mJOBS" in terminal.raw
    assert "[1m" not in terminal.text


def test_what_nobody_goes_by_any_more_is_told_so(stado: Program, world: World) -> None:
    report(world, "lab-7", disk_left_gb=9)
    submit(stado, "known", "--runtime-seconds-estimate", "60")
    Assigner(world.repo, by="coordinator@box:1").turn()
    found = read_assignments(world.repo)
    assert found is not None
    spent = found.evolve(expires_at=world.repo.now() - timedelta(seconds=1))
    world.repo.store.put(spent.own_key(), spent.encode())
    assert "this has expired" in stado("coordinator", "assignments").stderr
