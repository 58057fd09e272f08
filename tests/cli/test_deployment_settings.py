"""`stado settings`: what the deployment decides for all of its jobs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from stado.core.settings import DeploymentSettings, NotifySettings
from tests.cli.conftest import Program, World

RUNTIME = "limits.runtime_seconds"


def test_the_list_tells_each_setting_and_what_is_so_without_it(
    stado: Program, world: World
) -> None:
    rows = [line.split("  ", 1) for line in stado.ok("settings", "list").splitlines()]
    assert [(name, *map(str.strip, rest.strip().split("  ", 1))) for name, rest in rows] == [
        (RUNTIME, "no limit", "how long a job may take, from its first pick-up"),
        ("limits.pre_running_seconds", "no limit", "how long a worker may prepare a job's start"),
        ("retries.default", "0", "how often jobs that state nothing are retried"),
        ("retries.most", "no limit", "how often a job may be retried by itself at most"),
        ("retries.on", "job_failed,body_hung", "after which failures, where a job does not say"),
        ("retries.delay_seconds", "1m", "how long a retry waits, where a job does not say"),
        ("quotas.running_jobs", "no limit", "how many jobs may run at a time"),
        (
            "quotas.running_jobs_per_user",
            "no limit",
            "how many jobs of one user may run at a time",
        ),
        ("quotas.running_gpus", "no limit", "how many cards the jobs that run may hold"),
        (
            "quotas.running_gpus_per_user",
            "no limit",
            "how many cards the jobs of one user may hold",
        ),
        (
            "groups.limits",
            "no limits",
            "how many jobs of a group (submit --group) may run at a time",
        ),
        ("groups.gpus", "no limits", "how many cards the jobs of a group may hold"),
        ("windows.rules", "always", "when jobs may start, of all, of a group, of a user"),
        (
            "budgets.rules",
            "no budget",
            "how much may be spent in a day or a month, of all, of a group, of a user",
        ),
        (
            "budgets.warn_percent",
            "80",
            "from how much of a budget on it is told that it will be spent",
        ),
        ("retention.logs", "for ever", "how long logs are kept, from when their jobs ended"),
        (
            "retention.outputs",
            "for ever",
            "how long output files are kept, from when their jobs ended",
        ),
        ("retention.checkpoints", "for ever", "how long checkpoints of completed jobs are kept"),
        ("retention.jobs", "for ever", "how long ended jobs are kept, with all that they left"),
        (
            "retention.output_bytes",
            "any amount",
            (
                "what output files of ended jobs may take together: "
                "beyond it those that ended first go"
            ),
        ),
        ("retention.keep_newest", "100", "how many of the newest ended jobs are never touched"),
        ("notify.rules", "none", "on which channels is told what becomes of any job"),
    ]
    assert len({line.rindex("  ") for line in stado.ok("settings", "list").splitlines()}) == 1
    assert stado.json("settings", "list")["settings"][RUNTIME] is None


def test_a_setting_is_set_read_and_unset(stado: Program, world: World) -> None:
    said = stado("settings", "set", RUNTIME, "2h").stderr
    assert said == (
        "limits.runtime_seconds: 2h; it counts for what workers pick up from now on; they look "
        "each two minutes\n"
    )
    assert stado.ok("settings", "get", RUNTIME) == "7200"
    document = stado.json("settings", "list")
    assert document["settings"][RUNTIME] == 7200
    assert document["changed_by"]
    assert stado("settings", "unset", RUNTIME).exit_code == 0
    answer = stado("settings", "get", RUNTIME)
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert answer.stderr == "stado: limits.runtime_seconds is not set: no limit\n"
    assert stado.json("settings", "get", RUNTIME)["value"] is None


@pytest.mark.parametrize("command", [("get",), ("set", "2h"), ("unset",)])
def test_a_setting_that_there_is_not_is_refused_with_the_nearest(
    stado: Program, world: World, command: tuple[str, ...]
) -> None:
    verb, *value = command
    assert stado.refused("settings", verb, "limits.runtime", *value) == (
        "there is no setting 'limits.runtime': did you mean limits.runtime_seconds?"
    )
    assert "there is limits.runtime_seconds, limits.pre" in stado.refused(
        "settings", verb, "xyzzy", *value
    )


@pytest.mark.parametrize("value", ["0", "1.5h", "soon", "true"])
def test_a_value_that_cannot_be_is_refused(stado: Program, world: World, value: str) -> None:
    assert stado.refused("settings", "set", RUNTIME, value) == (
        f"limits.runtime_seconds '{value}' must be a positive whole number of seconds, or one with "
        "s, m, h or d behind it: 30m, 2h"
    )


def test_a_document_that_cannot_be_read_is_told_and_not_written_over(
    stado: Program, world: World
) -> None:
    path = Path(world.path, "settings.json")
    path.write_text(json.dumps({"schema": 1, "limits": 3}))
    before = path.read_bytes()
    for command in (("list",), ("set", RUNTIME, "2h")):
        said = stado.refused("settings", *command, code=69)
        assert "settings.json is unreadable" in said
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "value", "range_told"),
    [
        ("retries.default", "-1", "a whole number from 0 to 100"),
        (RUNTIME, "-5", "a positive whole number of seconds"),
        (RUNTIME, "-5h", "a positive whole number of seconds"),
        ("notify.rules", "", "CHANNEL:WORD"),
    ],
)
def test_what_cannot_be_set_is_answered_with_what_can(
    stado: Program, world: World, name: str, value: str, range_told: str
) -> None:
    said = stado.refused("settings", "set", name, value, "--json")
    assert said.startswith(f"{name} '{value}' must be {range_told}")


def test_a_list_is_read_as_it_is_set(stado: Program, world: World) -> None:
    for name, value in [
        ("retries.on", "job_failed,body_hung"),
        ("notify.rules", "a:failed b:paused"),
    ]:
        stado.ok("settings", "set", name, value)
        assert stado.ok("settings", "get", name) == value


def test_an_empty_list_is_none(stado: Program, world: World) -> None:
    settings = DeploymentSettings(notify=NotifySettings(rules=[]))
    Path(world.path, "settings.json").write_bytes(settings.encode())
    assert re.search(r"notify\.rules +none", stado.ok("settings", "list"))
    answer = stado("settings", "get", "notify.rules")
    assert (answer.exit_code, answer.stdout) == (1, "")


def test_the_list_says_when_it_was_changed_as_other_lists_do(stado: Program, world: World) -> None:
    stado.ok("settings", "set", RUNTIME, "2h")
    assert re.search(
        r"changed last at [0-9-]{10} [0-9:]{8}Z by ada\n", stado("settings", "list").stderr
    )
