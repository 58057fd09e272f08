"""Sessions of declared kinds: jobs with a host of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stado.core.records import Record
from stado.core.states import State
from stado.jobs.finding import find_job
from tests.cli.conftest import Program, World, report


@pytest.fixture
def kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of kinds that counts, with one in it."""
    path = tmp_path / "mine" / "kinds"
    path.mkdir(parents=True)
    monkeypatch.setenv("WC_PROFILES_DIR", str(path.parent))
    write(path, "agent", command="exec agent", cpu=2, memory_gb=4, tag=["a"], env={"A": "1"})
    return path


def write(kinds: Path, name: str, **stated: Any) -> None:
    (kinds / f"{name}.json").write_text(json.dumps(stated))


def record_of(world: World, job_id: str) -> Record:
    found = find_job(world.repo, job_id)
    assert found is not None
    return found.record


def test_a_session_is_sized_by_its_kind_and_pinned_where_there_is_room(
    stado: Program, world: World, kinds: Path
) -> None:
    """R126"""
    report(world, "small", cpu_free=1.0)
    report(world, "large", memory_free_gb=50)
    report(world, "gone", age_seconds=4 * 3600)
    result = stado("workload", "start", "agent")
    assert result.exit_code == 0
    record = record_of(world, result.stdout.strip())
    spec = record.spec
    assert (spec.command, spec.cpu, spec.memory_gb, spec.tags) == ("exec agent", 2, 4, ["a"])
    assert (spec.pinned_host, spec.workload_kind) == ("large", "agent")
    assert record.run_id.startswith("agent.")
    assert f"session {record.id} is placed on large (run {record.run_id}); it should" in (
        result.stderr
    )
    assert f"next: stado job watch {record.id} --follow, stado workload stop" in result.stderr


def test_what_is_typed_wins_over_the_kind(stado: Program, world: World, kinds: Path) -> None:
    """R126, R172"""
    report(world, "one")
    words = ("workload", "start", "agent", "--cpu", "1", "--env", "B=2", "exec another")
    spec = record_of(world, stado.ok(*words)).spec
    assert (spec.command, spec.cpu, spec.memory_gb) == ("exec another", 1, 4)
    assert spec.environment == {"A": "1", "B": "2"}
    report(world, "two")
    asked = ("workload", "start", "agent", "--pinned-host", "two")
    assert record_of(world, stado.ok(*asked)).spec.pinned_host == "two"


def test_where_there_is_no_room_it_is_refused_with_what_is_in_the_way(
    stado: Program, world: World, kinds: Path
) -> None:
    """R126"""
    start = ("workload", "start", "agent")
    assert "no worker has room for it: no worker is at work; `stado up`" in stado.refused(*start)
    report(world, "busy", cpu_free=1.0)
    assert "busy is busy with 0 jobs: it needs 2 cores and 4 GiB" in stado.refused(*start)
    said = stado.refused(*start, "--pinned-host", "away")
    assert "it is pinned to worker away, which was never seen" in said
    assert "so large" in stado.refused(*start, "--cpu", "64")
    assert not list(world.repo.walk_records(State.QUEUED))


def test_two_that_are_started_at_once_do_not_get_the_same_room(
    stado: Program, world: World, kinds: Path
) -> None:
    """R126: the second is seen to have a place before its worker has reported it."""
    report(world, "one", cpu_free=3.0)
    stado.ok("workload", "start", "agent")
    said = stado.refused("workload", "start", "agent")
    assert "what is free on one is for jobs that are pinned there and wait" in said


def test_starting_again_under_the_same_run_id_answers_the_same_session(
    stado: Program, world: World, kinds: Path
) -> None:
    """R126, R130: also where another host would be chosen by now."""
    report(world, "one")
    job_id = stado.ok("workload", "start", "agent", "--run-id", "mine")
    report(world, "one", cpu_free=0.5)
    report(world, "two")
    again = stado("workload", "start", "agent", "--run-id", "mine")
    assert again.stdout == f"{job_id}\n"
    assert f"session {job_id} was started before, on one (run mine): queued" in again.stderr
    document = stado.json("workload", "start", "agent", "--run-id", "mine")
    assert (document["job_id"], document["worker"], document["created"]) == (job_id, "one", False)
    stado.ok("submit", "--run-id", "plain", "run")
    said = stado.refused("workload", "start", "agent", "--run-id", "plain")
    assert "run id plain belongs to another request" in said


def test_sessions_are_listed_and_other_jobs_are_not(
    stado: Program, world: World, kinds: Path
) -> None:
    """R128"""
    assert "there is no session now" in stado("workload", "sessions").stderr
    report(world, "one", cpu_total=8, cpu_free=8)
    stado.ok("submit", "--run-id", "plain", "run")
    ended, held, waits = (stado.ok("workload", "start", "agent") for _ in range(3))
    world.complete(ended)
    world.claim(held)
    lines = stado.ok("workload", "sessions").splitlines()
    assert lines[0].split() == ["JOB", "KIND", "STATUS", "WORKER", "USER", "AGE", "RUN"]
    assert [line.split()[:5] for line in lines[1:]] == [
        [waits, "agent", "queued", "one", "ada"],
        [held, "agent", "running", "one", "ada"],
    ]
    found = stado.json("workload", "sessions", "--all")["jobs"]
    assert [job["job_id"] for job in found] == [waits, held, ended]
    assert {job["workload_kind"] for job in found} == {"agent"}
    stado.ok("workload", "sessions", "--all")


def test_all_that_is_for_jobs_is_for_sessions(stado: Program, world: World, kinds: Path) -> None:
    """R127"""
    report(world, "one")
    job_id = stado.ok("workload", "start", "agent", "--run-id", "mine")
    assert "workload  agent" in stado.ok("job", "show", "mine")
    assert stado.json("job", "show", job_id)["workload_kind"] == "agent"
    assert "one has room" in stado.ok("job", "why", job_id)
    claimed = world.claim(job_id)
    world.log(job_id, b"hello\n")
    assert stado.ok("job", "watch", job_id) == "hello"
    again = stado.ok("job", "rerun", job_id)
    assert record_of(world, again).spec == claimed.record.spec
    assert stado.ok("cancel", again) == f"{again}  cancelled"


def test_stopping_is_for_sessions_alone(stado: Program, world: World, kinds: Path) -> None:
    """R127"""
    report(world, "one")
    job_id = stado.ok("workload", "start", "agent", "--run-id", "mine")
    plain = stado.ok("submit", "--run-id", "plain", "run")
    said = stado.refused("workload", "stop", "plain")
    assert said == f"job {plain} is no workload: `stado cancel {plain}` ends it"
    assert stado.ok("workload", "stop", "mine") == f"{job_id}  cancelled"
    assert record_of(world, plain).state is State.QUEUED
    assert stado("workload", "stop", "mine").exit_code == 1


def test_kinds_are_listed_shown_and_refused_with_their_file(
    stado: Program, world: World, kinds: Path
) -> None:
    """R126"""
    write(kinds, "bad", command="run", cpu=1)
    report(world, "one")
    lines = stado.ok("workload", "kinds").splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", "agent", "bad"]
    assert "refused: " in lines[2]
    assert json.loads(stado.ok("workload", "kinds", "agent"))["command"] == "exec agent"
    found = stado.json("workload", "kinds")["kinds"]
    assert [one["refused"] is None for one in found] == [True, False]
    said = stado.refused("workload", "start", "bad")
    flaw = "field memory_gb is missing: a kind of workload declares how much room it takes"
    assert said == f"{kinds / 'bad.json'}: {flaw}"
    assert "there is no kind of workload 'ageny' in" in stado.refused("workload", "start", "ageny")


def test_the_kinds_that_come_with_it_can_be_started(
    stado: Program, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R126"""
    monkeypatch.delenv("WC_PROFILES_DIR", raising=False)
    report(world, "one", cpu_free=8)
    names = [one["name"] for one in stado.json("workload", "kinds")["kinds"]]
    assert names == ["hold", "jeden-session", "notebook"]
    started = [stado.ok("workload", "start", name) for name in names]
    assert [record_of(world, job_id).spec.workload_kind for job_id in started] == names
