"""`stado schedule`: what people type, and what they read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.schedules import Schedule
from stado.core.spec import Spec
from stado.core.states import State
from stado.jobs.firing import Firing
from stado.jobs.schedules import find_schedule, list_schedules
from stado.jobs.sight import present_record
from tests.cli.conftest import Program, World
from tests.cli.terminal import Terminal

NIGHTLY = ("--name", "nightly", "--cron", "30 2 * * *", "--tz", "Europe/Berlin")


def created(stado: Program, *options: str) -> str:
    return stado.ok("schedule", "create", *options)


def schedule(world: World, name: str = "nightly") -> Schedule:
    return find_schedule(world.repo, name)


def let_be_due(world: World, name: str) -> None:
    """As if a minute had passed."""
    there = schedule(world, name)
    ago = world.repo.now().replace(second=0, microsecond=0)
    world.repo.store.put(keys.schedule(name), there.evolve(next_at=ago).encode())


def fire(world: World) -> None:
    Firing(world.repo, by="coordinator").turn()


def test_a_schedule_is_made_with_all_that_a_submission_may_ask_for(
    stado: Program, world: World
) -> None:
    """R212, R214: the options of jobs are those of `submit`."""
    job = ("--cpu", "2", "--priority", "5", "--env", "A=b", "--secret-env", "T=item#field")
    result = stado("schedule", "create", *NIGHTLY, *job, "--tag", "x", "python nightly.py")
    assert (result.exit_code, result.stdout) == (0, "nightly\n")
    assert "schedule nightly: due next " in result.stderr
    assert "02:30 CE" in result.stderr
    made = schedule(world)
    assert made.request.commands == ["python nightly.py"]
    assert made.request.shared == Spec(
        command="",
        cpu=2,
        priority=5,
        environment={"A": "b"},
        secrets={"T": "item#field"},
        tags=["x"],
    )
    assert (made.cron, made.zone, made.created_by) == ("30 2 * * *", "Europe/Berlin", "ada")
    again = stado("schedule", "create", *NIGHTLY, *job, "--tag", "x", "python nightly.py")
    assert "there already: schedule nightly" in again.stderr


def test_every_option_of_submit_is_one_of_a_schedule() -> None:
    """R212: but for those that name a submission, or wait for its end."""
    from stado.cli.schedule_creation import create
    from stado.cli.submit import submit

    of_submit = {name for option in submit.params for name in option.opts}
    of_create = {name for option in create.params for name in option.opts}
    assert of_submit - of_create == {"--run-id", "--wait"}
    assert of_create - of_submit == {
        *("--cron", "--name", "--tz", "--overlap-policy", "--missed", "--start-at", "--end-at")
    }


def test_a_batch_and_an_array_are_submitted_again_and_again(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """R212"""
    (tmp_path / "lines").write_text("a\nb\n")
    created(stado, *NIGHTLY, "--batch", str(tmp_path / "lines"))
    created(stado, "--name", "parts", "--cron", "@daily", "--array", "0-2%1", "run {index}")
    assert len(stado.ok("schedule", "run", "nightly").splitlines()) == 2
    jobs = stado.ok("schedule", "run", "parts").splitlines()
    assert [present_record(world.repo, job).spec.command for job in jobs] == [
        *("run 0", "run 1", "run 2")
    ]


def test_without_a_name_it_gets_one_that_nobody_else_has(stado: Program, world: World) -> None:
    """R214"""
    names = [created(stado, "--cron", "@daily", "true") for _ in range(2)]
    assert len(set(names)) == 2
    assert [row.name for row in list_schedules(world.repo, limit=9).rows] == sorted(names)


def test_it_is_the_account_that_made_it_whose_jobs_these_are(
    stado: Program, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R215: USER, else LOGNAME; who has it submitted by hand changes nothing of that."""
    monkeypatch.delenv("USER")
    monkeypatch.setenv("LOGNAME", "gustaw")
    created(stado, *NIGHTLY, "true")
    monkeypatch.setenv("USER", "maja")
    job = stado.ok("schedule", "run", "nightly")
    stado.ok("schedule", "pause", "nightly")
    made = schedule(world)
    assert (made.created_by, made.changed_by) == ("gustaw", "maja")
    assert made.paused is not None
    assert made.paused.by == "maja"
    assert present_record(world.repo, job).submitter == "gustaw"


@pytest.mark.parametrize("command", ["create", "pause nightly", "resume nightly", "run nightly"])
def test_an_account_that_cannot_be_read_is_refused_and_nothing_is_stored(
    stado: Program, world: World, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """R216, R217: whatever changes a schedule names who did it."""
    created(stado, *NIGHTLY, "true")
    before = schedule(world)
    monkeypatch.setenv("USER", "ma\udcffja")
    words = command.split()
    if words == ["create"]:
        words += ["--name", "other", "--cron", "@daily", "true"]
    assert stado.refused("schedule", *words).startswith("USER cannot be read: ")
    assert schedule(world) == before
    assert [row.name for row in list_schedules(world.repo, limit=9).rows] == ["nightly"]


def test_an_account_that_nobody_knows_is_refused(
    stado: Program, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R216"""
    monkeypatch.delenv("USER")
    monkeypatch.delenv("LOGNAME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 3_999_999_999)
    assert stado.refused("schedule", "create", *NIGHTLY, "true") == (
        "neither USER nor LOGNAME is set and the user database holds no account for uid 3999999999"
    )
    assert list_schedules(world.repo, limit=9).rows == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--cron", "61 * * * *", "true"), "'61' is no minute"),
        (("--cron", "* * * * * *", "true"), "6 fields instead of five"),
        (("--cron", "@daily", "--tz", "Berlin", "true"), "did you mean Europe/Berlin?"),
        (("--cron", "@daily", "--name", "a b", "true"), "1 to 64 letters"),
        (("--cron", "@daily"), "no command: stado schedule create --cron"),
        (("--cron", "@daily", "two", "words"), "quote all of it"),
        (("--cron", "@daily", "--priority", "-1", "true"), "priority -1 must be nonnegative"),
        (("--cron", "@daily", "--end-at", "2020-01-01T00:00:00Z", "true"), "would never be due"),
        (("--cron", "@daily", "--end-at", "9999-01-01T00:00:00Z", "true"), "years 1971 to 9000"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_stored(
    stado: Program, world: World, options: tuple[str, ...], told: str
) -> None:
    """R214"""
    assert told in stado.refused("schedule", "create", *options)
    assert list_schedules(world.repo, limit=9).rows == []


def test_what_is_typed_wrong_is_a_usage_error(stado: Program, world: World) -> None:
    for options in (("true",), ("--cron", "@daily", "--overlap-policy", "wait", "true")):
        assert stado("schedule", "create", *options).exit_code == 2


def test_coming_times_are_by_the_clocks_of_its_zone(stado: Program, world: World) -> None:
    """R214: over a change of the clock, and also while it is paused."""
    created(stado, *NIGHTLY, "--start-at", "2030-10-26T00:00:00Z", "true")
    lines = stado.ok("schedule", "next", "nightly", "--count", "3").splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "Sat 2030-10-26 02:30 CEST",
        "Sun 2030-10-27 02:30 CEST",
        "Mon 2030-10-28 02:30 CET",
    ]
    assert stado.json("schedule", "next", "night", "--count", "2")["next"] == [
        "2030-10-26T02:30:00+02:00",
        "2030-10-27T02:30:00+02:00",
    ]
    stado.ok("schedule", "pause", "nightly")
    result = stado("schedule", "next", "nightly")
    assert len(result.stdout.splitlines()) == 5
    assert "it is paused" in result.stderr


def test_what_is_over_says_so(stado: Program, world: World) -> None:
    end = datetime.now(UTC) + timedelta(minutes=2)
    created(stado, "--name", "short", "--cron", "* * * * *", "--end-at", end.isoformat(), "true")
    assert "never due after that" in stado("schedule", "next", "short").stderr
    there = schedule(world, "short")
    world.repo.store.put(keys.schedule("short"), there.evolve(next_at=None).encode())
    assert "never due again" in stado("schedule", "next", "short").stderr
    assert "over" in stado.ok("schedule", "list")


def test_pause_resume_run_and_rm_say_what_they_did(stado: Program, world: World) -> None:
    """R214, R220, R221, R222"""
    created(stado, *NIGHTLY, "true")
    assert "nothing is submitted until it is resumed" in stado("schedule", "pause", "night").stderr
    assert "was paused already" in stado("schedule", "pause", "nightly").stderr
    assert stado.json("schedule", "pause", "nightly")["changed_now"] is False
    run = stado("schedule", "run", "nightly")
    job = run.stdout.strip()
    assert "(run nightly@" in run.stderr
    resumed = stado("schedule", "resume", "nightly")
    assert "the schedule goes on: due next" in resumed.stderr
    assert "was not paused" in stado("schedule", "resume", "nightly").stderr
    told = stado.refused("schedule", "rm", "night")
    assert "there is no schedule 'night'" in told
    assert "has to be named in full: `stado schedule rm nightly`" in told
    assert stado.ok("schedule", "rm", "nightly") == "nightly"
    assert present_record(world.repo, job).state is State.QUEUED
    for command in ("show", "next", "pause", "resume", "run", "rm", "history"):
        assert "there is no schedule" in stado.refused("schedule", command, "nightly")


def test_a_list_says_when_each_is_due_what_came_of_it_and_which_are_paused(
    stado: Program, world: World
) -> None:
    """R214"""
    created(stado, *NIGHTLY, "python nightly.py")
    created(stado, "--name", "busy", "--cron", "* * * * *", "true")
    created(stado, "--name", "asleep", "--cron", "@daily", "true")
    stado.ok("schedule", "pause", "asleep")
    let_be_due(world, "busy")
    fire(world)
    world.fail(next(iter(jobs_of(world, "busy"))), 3)
    stado.ok("schedule", "run", "busy")
    let_be_due(world, "busy")
    fire(world)
    title, asleep, busy, nightly = stado.ok("schedule", "list").splitlines()
    assert title.split() == [
        *("SCHEDULE", "CRON", "ZONE", "NEXT", "LAST", "SKIPPED", "BY", "COMMAND")
    ]
    assert asleep.split()[:4] == ["asleep", "@daily", "UTC", "paused"]
    assert " queued 0s ago" in busy or " queued 1s ago" in busy
    assert "  in " in nightly
    assert nightly.endswith("python nightly.py")
    rows = {row["schedule"]: row for row in stado.json("schedule", "list")["schedules"]}
    assert rows["busy"]["skipped"]["reason"] == "overlap"
    assert [job["status"] for job in rows["busy"]["last"]["jobs"]] == ["queued"]
    assert rows["asleep"]["paused_by"] == "ada"


def jobs_of(world: World, name: str) -> Iterator[str]:
    for entry in world.repo.store.list(keys.runs_of_schedule(name)):
        run = world.repo.find_run(keys.run_of_key(entry.key))
        assert run is not None
        yield run.value.base_id


def test_a_list_that_is_neglected_says_so(stado: Program, world: World) -> None:
    created(stado, *NIGHTLY, "true")
    assert "nobody submits" not in stado("schedule", "list").stderr
    ago = world.repo.now() - timedelta(hours=1)
    late = schedule(world).evolve(next_at=ago)
    world.repo.store.put(keys.schedule("nightly"), late.encode())
    result = stado("schedule", "list")
    assert "1h late" in result.stdout
    assert "nobody submits what is due" in result.stderr


def test_a_schedule_that_cannot_be_read_is_told_and_costs_its_row(
    stado: Program, world: World
) -> None:
    created(stado, *NIGHTLY, "true")
    world.repo.store.put(keys.schedule("broken"), b"{")
    result = stado("schedule", "list")
    assert result.exit_code == 0
    assert "nightly" in result.stdout
    assert "schedule broken cannot be read" in result.stderr


def test_its_story_tells_what_was_asked_but_no_values_of_variables(
    stado: Program, world: World
) -> None:
    """R214"""
    created(
        stado, *NIGHTLY, "--env", "TOKEN=hidden", "--cpu", "2", "--overlap-policy", "queue", "x"
    )
    job = stado.ok("schedule", "run", "nightly")
    text = stado.ok("schedule", "show", "nightly")
    assert "hidden" not in text
    for line in ("cron      30 2 * * *  (Europe/Berlin)", "overlap   queue", "command   x"):
        assert line in text.splitlines()
    assert f"asked for, job {job}" in text
    assert "with      environment=TOKEN, cpu=2.0" in text
    document = stado.json("schedule", "show", "nightly")
    assert "hidden" not in json.dumps(document)
    assert document["options"] == {"environment": ["TOKEN"], "cpu": 2.0}


def test_a_job_says_which_schedule_has_submitted_it(stado: Program, world: World) -> None:
    """R208"""
    created(stado, *NIGHTLY, "true")
    let_be_due(world, "nightly")
    fire(world)
    (job,) = jobs_of(world, "nightly")
    text = stado.ok("job", "show", job)
    assert "schedule  nightly, due " in text
    assert stado.json("job", "show", job)["schedule"] == "nightly"


def test_its_history_tells_what_became_of_each(stado: Program, world: World) -> None:
    """R214: by the clocks of its zone."""
    created(stado, *NIGHTLY, "true")
    assert "nothing was submitted yet" in stado("schedule", "history", "nightly").stderr
    job = stado.ok("schedule", "run", "nightly")
    world.complete(job)
    title, row = stado.ok("schedule", "history", "nightly").splitlines()
    assert title.split() == ["DUE", "STATUS", "JOB", "RUN"]
    assert row.startswith("asked ")
    assert " CE" in row
    assert f"completed  {job}  nightly@" in row
    (one,) = stado.json("schedule", "history", "nightly")["submissions"]
    assert (one["due_at"], one["jobs"]) == (None, [{"job_id": job, "status": "completed"}])


@pytest.mark.parametrize("columns", [80, 140])
def test_a_list_keeps_to_the_width_of_a_terminal(
    stado: Program, world: World, environment: dict[str, str], columns: int
) -> None:
    created(stado, *NIGHTLY, f"python nightly.py {'--flag ' * 40}")
    created(stado, "--name", "n" * 60, "--cron", "0,15,30,45 8-18 * * MON-FRI", "sync " * 30)
    stado.ok("schedule", "run", "nightly")
    terminal = Terminal("schedule", "list", environment=environment, columns=columns)
    assert terminal.end() == 0
    lines = terminal.text.splitlines()
    assert len(lines) == 3
    assert all(len(line) <= columns for line in lines)
    assert ("ZONE" in lines[0]) is (columns == 140)
    assert "python n" in lines[1]
