"""`stado job show --section`: parts of what is known of a job, one at a time."""

from __future__ import annotations

from stado.cli.options import SECTIONS
from stado.core.states import Reason, Verdict
from tests.cli.conftest import Program, World


def paused_and_resumed(stado: Program, world: World) -> str:
    job = stado.ok("submit", "--run-id", "r", "run")
    stado.ok("job", "pause", job, "--reason", "the cluster\x1b[2J is needed")
    stado.ok("job", "resume", job)
    claimed = world.claim(job)
    world.end(
        claimed,
        Verdict.FAILED,
        reason=Reason.JOB_FAILED,
        detail="the command exited with 3",
        exit_code=3,
        started_at=world.repo.now(),
    )
    world.log(job, b"said\n", epoch=2)
    return job


def test_events_are_lines_with_instant_epoch_kind_and_sentence(
    stado: Program, world: World
) -> None:
    """R31: whatever a store holds, nothing drives a terminal."""
    job = paused_and_resumed(stado, world)
    lines = stado.ok("job", "show", job, "--section", "events").splitlines()
    told = [line[22:].split(maxsplit=2) for line in lines]
    assert [(epoch, kind) for epoch, kind, _ in told] == [
        ("1", "submitted"),
        ("1", "paused"),
        ("2", "resumed"),
        ("2", "claimed"),
        ("2", "started"),
        ("2", "failed"),
    ]
    assert told[1][2].startswith(
        "paused (paused_by_user): paused while it was queued, by ada: the cluster"
    )
    assert "\x1b" not in "".join(lines)
    assert told[-1][2] == "failed (job_failed): the command exited with 3"
    assert all(line[19:20] == "Z" for line in lines)


def test_the_document_of_events_is_complete(stado: Program, world: World) -> None:
    """R31"""
    job = paused_and_resumed(stado, world)
    document = stado.json("job", "show", job, "--section", "events")
    assert sorted(document) == ["earlier_epochs", "events", "job_id", "schema", "unreadable"]
    assert (document["earlier_epochs"], document["unreadable"]) == (0, [])
    failed = document["events"][-1]
    assert failed.pop("at").endswith("+00:00")
    assert failed == {
        "kind": "failed",
        "epoch": 2,
        "actor": "local@box",
        "host": "box",
        "status_reason": "job_failed",
        "reason": None,
        "retry_at": None,
        "text": "failed (job_failed): the command exited with 3",
    }


def test_several_sections_come_in_the_order_in_which_they_were_asked_for(
    stado: Program, world: World
) -> None:
    """R31"""
    job = paused_and_resumed(stado, world)
    text = stado.ok("job", "show", "r", "--section", "system,logs,diagnostics")
    system, rest = text.removeprefix("--- system\n").split("--- logs\n")
    log, diagnostics = rest.split("--- diagnostics\n")
    assert "host      local@box on box, since " in system
    assert log == "said\n"
    assert diagnostics.startswith(f"job {job} failed")
    document = stado.json("job", "show", job, "--section", "system,diagnostics")
    assert document["system"]["host"] == "box"
    assert document["diagnostics"]["status"] == "failed"


def test_an_unknown_section_is_refused_with_those_that_there_are(
    stado: Program, world: World
) -> None:
    """R31: before anything is read."""
    sentence = stado.refused("job", "show", "nope", "--section", "events,charts")
    assert "there is no section 'charts': " + ", ".join(SECTIONS) in sentence
    assert "leave out --json" in stado.refused("job", "show", "x", "--section", "logs", "--json")


def test_the_events_of_a_deleted_job_are_told_by_its_whole_id(stado: Program, world: World) -> None:
    """R31"""
    job = paused_and_resumed(stado, world)
    stado.ok("job", "delete", job, "--yes")
    assert "was deleted" in stado.refused("job", "show", job)
    lines = stado.ok("job", "show", job, "--section", "events").splitlines()
    assert " deleted by ada" in lines[-1]
