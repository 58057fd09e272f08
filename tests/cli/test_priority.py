"""A queued job's priority, changed by the command line."""

from __future__ import annotations

import json

import pytest

from stado.core.spec import PRIORITY_MAX
from tests.cli.conftest import Program, World


def submit(stado: Program, run_id: str, *options: str) -> str:
    return stado.ok("submit", "--run-id", run_id, *options, "run")


def test_a_queued_job_gets_another_place(stado: Program, world: World) -> None:
    """R143: named as in every command; who reads what comes next learns where it stands."""
    submit(stado, "x")
    job_id = submit(stado, "y", "--priority", "3")
    told = stado("job", "set-priority", "y", str(PRIORITY_MAX))
    assert (told.exit_code, told.stdout) == (0, f"{job_id}  {PRIORITY_MAX}\n")
    assert told.stderr.splitlines() == [
        "the job starts sooner: its priority was 3",
        f"next: stado job why {job_id}",
    ]
    later = stado("job", "set-priority", "y", "0")
    assert later.stderr.startswith(f"the job starts later: its priority was {PRIORITY_MAX}\n")
    again = stado("job", "set-priority", "y", "0")
    assert again.stderr.startswith("the priority of the job is that already\n")


def test_the_receipt_can_be_read_by_programs_and_stays_on_the_timeline(
    stado: Program, world: World
) -> None:
    """R143, R146, T2"""
    job_id = submit(stado, "x", "--priority", "3")
    receipt = json.loads(stado.ok("job", "set-priority", "x", "5", "--json"))
    assert {name: receipt[name] for name in ("job_id", "status", "epoch", "from", "to", "by")} == {
        "job_id": job_id,
        "status": "queued",
        "epoch": 1,
        "from": 3,
        "to": 5,
        "by": "ada",
    }
    assert (receipt["changed_now"], receipt["refused"]) == (True, None)
    world.complete(job_id)
    story = json.loads(stado.ok("job", "show", "x", "--section", "events", "--json"))
    (event,) = (one for one in story["events"] if one["kind"] == "priority_set")
    assert event["at"] == receipt["at"]
    assert (event["actor"], event["text"]) == ("ada", "ada set its priority to 5; it was 3")


def test_a_submission_without_a_priority_shows_the_one_that_it_has(
    stado: Program, world: World
) -> None:
    """R152"""
    submit(stado, "x")
    assert json.loads(stado.ok("job", "show", "x", "--json"))["priority"] == 0


@pytest.mark.parametrize("value", ["-1", "-9223372036854775808", "-9223372036854775809"])
def test_a_negative_priority_is_refused_in_the_words_of_the_interface(
    stado: Program, world: World, value: str
) -> None:
    """R144"""
    submit(stado, "x")
    refusal = stado.refused("job", "set-priority", "x", value)
    assert refusal == f"job priority {value} must be nonnegative"


def test_a_job_that_is_not_queued_is_refused_with_its_state(stado: Program, world: World) -> None:
    """R145, R146: in words, and for programs with the state as a word."""
    job_id = submit(stado, "x")
    world.complete(job_id)
    told = stado("job", "set-priority", "x", "5", "--json")
    assert told.exit_code == 2
    sentence = f"job {job_id} is completed, and not queued: its priority stays as it is"
    assert told.stderr == f"stado: {sentence}\n"
    refusal = json.loads(told.stdout)
    assert refusal["refused"] == {"code": "job_not_queued", "text": sentence}
    assert (refusal["status"], refusal["changed_now"]) == ("completed", False)
    assert (refusal["from"], refusal["to"]) == (0, 0)
