"""Arrays: one command as many jobs, and those of a batch that failed run again."""

from __future__ import annotations

from tests.cli.conftest import Program, World


def array(stado: Program, numbers: str, *options: str) -> list[str]:
    command = ("submit", "--run-id", "parts", "--array", numbers, *options, "part {index}")
    return stado.ok(*command).splitlines()


def test_an_array_is_a_batch_whose_jobs_know_their_numbers(stado: Program, world: World) -> None:
    jobs = array(stado, "0-9:4%2")
    assert len(jobs) == 3
    told = stado.json("job", "show", jobs[2])
    assert (told["array_index"], told["array_at_a_time"]) == (8, 2)
    shown = stado.ok("job", "show", jobs[2])
    assert "part 8" in shown
    assert "index 8; 2 of it at a time" in shown
    assert array(stado, "0-9:4%2") == jobs
    refused = stado("submit", "--run-id", "parts", "--array", "0-9:4%3", "part {index}")
    assert "array" in refused.stderr
    assert stado("submit", "--run-id", "x", "--array", "0-1", "--batch", "-", "x").exit_code == 2


def test_those_of_a_batch_that_failed_are_run_again(stado: Program, world: World) -> None:
    jobs = array(stado, "0-4%2")
    world.fail(jobs[1], 3)
    world.complete(jobs[2])
    world.fail(jobs[3], 3)
    result = stado("job", "rerun", "parts", "--only", "failed", "--run-id", "again")
    again = result.stdout.splitlines()
    assert "submitted 2 jobs as batch" in result.stderr
    told = [stado.json("job", "show", job) for job in again]
    assert [(one["command"], one["array_index"]) for one in told] == [("part 1", 1), ("part 3", 3)]
    assert {one["array_at_a_time"] for one in told} == {2}
    assert {one["rerun_of"] for one in told} == {jobs[0][:16]}
    repeated = stado.json("job", "rerun", "parts", "--only", "failed", "--run-id", "again")
    assert (repeated["job_ids"], repeated["created"]) == (again, False)
    assert "no job of" in stado.refused("job", "rerun", "parts", "--only", "timed_out")
    assert "no job ends as 'queued'" in stado("job", "rerun", "parts", "--only", "queued").stderr
    assert "is one job" in stado("job", "rerun", jobs[0], "--only", "failed").stderr
