"""Who has used what."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from stado.core import keys
from stado.core.ids import milliseconds
from stado.core.records import Phase, Ran
from stado.core.states import Reason, State, Verdict
from stado.core.usage import Use, use_key
from tests.cli.conftest import USER, Program, World

HOUR = timedelta(hours=1)
SUM = {"gpu_seconds", "gpu_share_seconds", "wall_seconds", "epochs", "running", "estimated"}


def submitted(stado: Program, run_id: str) -> str:
    return stado.ok("submit", "--run-id", run_id, "true")


def ran(
    world: World, job_id: str, *, hours: float, verdict: Verdict = Verdict.COMPLETED, **fields: Any
) -> None:
    now = world.repo.now()
    began_at = now - hours * HOUR
    span = Ran(began_at=began_at, ended_at=now, **fields)
    reason = None if verdict is Verdict.COMPLETED else Reason.LEASE_EXPIRED
    world.end(world.claim(job_id), verdict, started_at=began_at, ran=span, reason=reason)


def note(world: World, number: int, *, hours: float, days_ago: float = 0, **fields: Any) -> Use:
    """What some job used that is gone."""
    known = {"user": USER, "root": None, "share_milli": 1000 * fields.get("gpus", 0)}
    ended_ms = milliseconds(world.repo.now() - timedelta(days=days_ago))
    wall_ms = round(hours * 3_600_000)
    job_id = f"abcdefghijklmno{chr(97 + number)}"
    use = Use(job_id, 1, ended_ms=ended_ms, wall_ms=wall_ms, **{**known, **fields})
    world.repo.store.create(use_key(use), b"")
    return use


def test_a_row_for_each_of_your_jobs_and_what_runs_now(stado: Program, world: World) -> None:
    """R26, R27, R63: GPU-hours are time times GPUs."""
    small = note(world, 0, hours=2.0)
    large = note(world, 1, hours=1.5, gpus=4)
    note(world, 2, hours=1.0, user="eve")
    running = world.claim(submitted(stado, "one"))
    world.beat(running, Phase.RUNNING, started_at=world.repo.now() - HOUR)
    result = stado("usage")
    assert result.stdout.splitlines() == [
        "running now: 1 job on 0 GPUs",
        "JOB               GPU-HOURS    TIME  EPOCHS  RUNNING",
        f"{large.job_id}       6.00  1h 30m       1        0",
        f"{small.job_id}          0      2h       1        0",
        f"{running.record.id}          0      1h       1        1",
        "total                  6.00  4h 30m       3        1",
    ]
    assert f"used by {USER} since" in result.stderr
    assert "(30 days; --since WHEN for another time)" in result.stderr


def test_json_has_seconds_and_all_groups(stado: Program, world: World) -> None:
    note(world, 0, hours=1.0, gpus=2, share_milli=500)
    for number in range(1, 4):
        note(world, number, hours=0.1, user="eve")
    told = stado.json("usage", "--org")
    assert told.keys() == {
        *("schema", "since", "until", "user", "by", "running", "total", "groups", "unreadable"),
        "unreadable_segments",
    }
    assert (told["user"], told["by"]) == (None, "user")
    assert told["running"] == {"jobs": 0, "gpus": 0, "more": False}
    assert [group["user"] for group in told["groups"]] == [USER, "eve"]
    first = told["groups"][0]
    assert first.keys() == {"user", *SUM}
    assert (first["gpu_seconds"], first["gpu_share_seconds"]) == (7200.0, 1800.0)
    assert (first["wall_seconds"], first["estimated"]) == (3600.0, False)
    assert told["total"]["epochs"] == 4


def test_a_lost_host_makes_an_estimate_and_is_marked(stado: Program, world: World) -> None:
    job = submitted(stado, "one")
    ran(world, job, hours=2.0, verdict=Verdict.LOST, estimated=True)
    result = stado("usage")
    assert "~2h" in result.stdout
    assert "~ partly estimated: where a host was lost" in result.stderr
    assert stado.json("usage")["total"]["estimated"] is True
    assert "2h, partly estimated" in stado.ok("job", "show", job)


def test_shared_gpus_have_a_column_when_there_are_some(stado: Program, world: World) -> None:
    note(world, 0, hours=2.0, gpus=1, share_milli=250)
    title, row = stado.ok("usage").splitlines()[1:]
    assert title.split() == ["JOB", "GPU-HOURS", "OF", "SHARED", "TIME", "EPOCHS", "RUNNING"]
    assert row.split()[1:3] == ["2.00", "0.50"]


def test_days_and_pipelines(stado: Program, world: World) -> None:
    root = "abcdefghijklmnoz"
    note(world, 0, hours=20.0, root=root)
    note(world, 1, hours=1.0, root=root)
    note(world, 2, hours=1.0)
    by_day = stado.json("usage", "--by", "day")["groups"]
    assert [group["day"] for group in by_day] == sorted(
        (group["day"] for group in by_day), reverse=True
    )
    assert sum(group["wall_seconds"] for group in by_day) == 22 * 3600
    groups = stado.json("usage", "--by", "pipeline")["groups"]
    assert [(one["pipeline_id"], one["wall_seconds"]) for one in groups] == [
        (f"pipeline_{root}", 21 * 3600.0),
        (None, 3600.0),
    ]
    assert "(none)" in stado.ok("usage", "--by", "pipeline")


def test_models_and_what_they_ran_on(stado: Program, world: World) -> None:
    note(world, 0, hours=2.0, model="org/resnet", hardware="2x a100-sxm4-80gb")
    note(world, 1, hours=1.0, hardware="cpu")
    for by, names in (("model", ["org/resnet", None]), ("target", ["2x a100-sxm4-80gb", "cpu"])):
        groups = stado.json("usage", "--by", by)["groups"]
        assert [(one[by], one["wall_seconds"]) for one in groups] == [
            (names[0], 7200.0),
            (names[1], 3600.0),
        ]


def test_only_what_came_since_then_counts(stado: Program, world: World) -> None:
    note(world, 0, hours=3.0)
    note(world, 1, hours=0.1, days_ago=0.5)
    total = stado.json("usage", "--since", "90m")["total"]
    assert total["epochs"] == 1
    assert total["wall_seconds"] == pytest.approx(5400, abs=5)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--since", "soon"), "'soon' is neither a duration"),
        (("--since", "9999d"), "3,660 days are the longest"),
        (("--by", "colour"), "'colour' is not one of"),
        (("--org", "--user", "eve"), "state one of them"),
        (("--limit", "0"), "0 is not in the range"),
        (("--limit", "251"), "251 is not in the range"),
    ],
)
def test_what_cannot_be_asked(
    stado: Program, world: World, options: tuple[str, ...], text: str
) -> None:
    assert text in stado.refused("usage", *options)


def test_more_rows_than_are_shown_are_counted(stado: Program, world: World) -> None:
    for number in range(3):
        note(world, number, hours=1.0)
    result = stado("usage", "--limit", "2")
    assert len(result.stdout.splitlines()) == 1 + 1 + 2 + 1
    assert "the first 2 of 3 rows" in result.stderr
    assert len(stado.json("usage", "--limit", "2")["groups"]) == 2
    said = stado("usage", "--limit", "2", "--json").stderr
    assert said == "the first 2 of 3 rows: without --limit all of them\n"


def test_somebody_elses_use(stado: Program, world: World) -> None:
    note(world, 0, hours=1.0, user="Eve Müller")
    note(world, 1, hours=2.0)
    told = stado.json("usage", "--user", "Eve Müller")
    assert (told["user"], told["total"]["wall_seconds"]) == ("Eve Müller", 3600.0)


def test_a_job_tells_what_it_used_wherever_it_is_shown(stado: Program, world: World) -> None:
    job = submitted(stado, "one")
    running = world.claim(job)
    assert "used" not in stado.ok("job", "show", job)
    now = world.repo.now()
    world.beat(running, Phase.RUNNING, started_at=now - HOUR, at=now)
    for command in (("job", "show", job), ("status",)):
        told = stado.json(*command)
        fields = told["jobs"][0] if "jobs" in told else told
        assert (fields["wall_seconds"], fields["usage_estimated"]) == (3600.0, False)
    span = Ran(began_at=now - HOUR, ended_at=now)
    world.end(running, Verdict.COMPLETED, started_at=now - HOUR, ran=span, exit_code=0)
    told = stado.json("job", "show", job)
    assert (told["wall_seconds"], told["gpu_seconds"]) == (3600.0, 0.0)
    assert told["epochs"][0]["wall_seconds"] == 3600.0


def test_a_running_job_that_cannot_be_read_is_named(stado: Program, world: World) -> None:
    job = submitted(stado, "one")
    world.claim(job)
    world.repo.store.put(keys.record(State.RUNNING, job), b"{")
    result = stado("usage")
    assert f"{job} runs and cannot be read" in result.stderr
    assert stado.json("usage")["unreadable"] == [job]
