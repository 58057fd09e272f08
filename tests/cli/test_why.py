"""`stado job why`: the answer first, then everything that was looked at."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from stado.core.records import Hindrance, Phase
from stado.core.states import Reason, Verdict
from stado.jobs.asking import ask_to_yield
from tests.cli.conftest import Program, World, report
from tests.cli.terminal import Terminal


def submit(stado: Program, *options: str, run_id: str = "it") -> str:
    return stado.ok("submit", "--run-id", run_id, *options, "run")


def test_a_job_without_a_worker(stado: Program, world: World) -> None:
    """R14, R208: in one line, and what to do."""
    job_id = submit(stado)
    lines = stado.ok("job", "why", job_id).splitlines()
    assert lines[0] == f"job {job_id} waits: no worker is at work"
    assert lines[1] == "  -> `stado up` here, or `stado agent run` on a host, starts one"
    assert lines[3:6] == [
        "  open    queue     the queue is open",
        "  open    deadline  it has no deadline",
        "  CLOSED  workers   no worker is there",
    ]


def test_of_a_batch_the_reasons_are_counted(stado: Program, world: World) -> None:
    report(world, "full@box", cpu_free=0)
    batch = ("submit", "--run-id", "sweep", "--batch", "-", "--cpu", "2")
    first, second, third = stado.ok(*batch, stdin=b"one\ntwo\nthree\n").splitlines()
    world.complete(first)
    shown = stado("job", "why", "sweep")
    assert shown.exit_code == 0
    base = first.partition("-")[0]
    lines = shown.stdout.splitlines()
    assert lines[0] == f"batch {base}: 2 queued, 1 completed"
    assert lines[2].startswith(f"2 wait (waiting_capacity), such as {second}: full@box is busy")
    assert f"one of them: `stado job why {second}`" in shown.stderr
    told = stado.json("job", "why", "sweep")
    assert (told["batch_id"], told["states"]) == (base, {"queued": 2, "completed": 1})
    ((code, count, job_id),) = [(one["code"], one["count"], one["job_id"]) for one in told["waits"]]
    assert (code, count) == ("waiting_capacity", 2)
    assert job_id in (second, third)


def test_a_job_that_runs_tells_whether_it_may_be_put_back(stado: Program, world: World) -> None:
    job_id = submit(stado, "--yieldable", "--max-yields", "2")
    claimed = world.claim(job_id)
    world.beat(claimed, Phase.RUNNING)
    shown = stado.ok("job", "why", job_id)
    assert "yields    it may be put back for a more urgent job, 2 more times" in shown
    ask_to_yield(world.repo, job_id, 1, by="local@box", note="job y with priority 5 waits for room")
    shown = " ".join(stado.ok("job", "why", job_id).split())
    assert "yields asked for by local@box" in shown
    assert '("job y with priority 5 waits for room"): stopped, saved and queued again' in shown
    run = stado.json("job", "why", job_id)["run"]
    assert (run["yields_left"], run["yield_asked_by"]) == (2, "local@box")


def test_a_job_without_yields_tells_nothing_of_them(stado: Program, world: World) -> None:
    world.beat(world.claim(submit(stado)), Phase.RUNNING)
    assert "yields" not in stado.ok("job", "why", "it")


def test_without_an_id_it_is_the_newest_of_mine(stado: Program, world: World) -> None:
    submit(stado, run_id="old")
    newest = submit(stado, run_id="new")
    assert stado.json("job", "why")["job_id"] == newest


def test_each_cause_is_named_with_hosts_counted_by_cause(stado: Program, world: World) -> None:
    """A78: six jobs, each held by something else; R47: the code is the first wait reason."""
    hindrance = Hindrance(code="disk_full", detail="free 3 GiB", since=world.repo.now())
    report(world, "drains@box", draining=True)
    report(world, "full@box", cpu_free=0)
    report(world, "gone@box", age_seconds=5 * 3600)
    report(world, "large@box", cpu_total=32, cpu_free=32, hindrance=hindrance)
    yesterday = (world.repo.now() - timedelta(days=1)).isoformat()
    jobs = {
        "large": submit(stado, "--cpu", "99", run_id="large"),
        "late": submit(stado, "--deadline-at", yesterday, run_id="late"),
        "room": submit(stado, run_id="room"),
        "disk": submit(stado, "--cpu", "16", run_id="disk"),
    }
    told = {name: stado.json("job", "why", job_id) for name, job_id in jobs.items()}
    codes = {name: document["wait_reasons"][0] for name, document in told.items()}
    assert codes == {
        "large": "no_eligible_worker",
        "late": "deadline_passed",
        "room": "waiting_capacity",
        "disk": "no_eligible_worker",
    }
    assert "the largest has 32 cores" in told["large"]["answer"]
    assert told["large"]["hosts"]["causes"] == {"too_small": 3, "stale": 1}
    assert told["room"]["hosts"]["causes"] == {
        "draining": 1,
        "full": 1,
        "stale": 1,
        "disk_full": 1,
    }
    assert told["disk"]["hosts"]["causes"] == {"too_small": 2, "stale": 1, "disk_full": 1}
    assert told["disk"]["waiting"]["remedy"] == "large@box: free 3 GiB"
    assert "hosts     4 hosts: 2 too small, 1 stale, 1 disk full" in stado.ok(
        "job", "why", jobs["disk"]
    )
    stado.ok("queue", "pause")
    document = stado.json("job", "why", jobs["late"])
    assert document["wait_reasons"][:2] == ["queue_paused", "deadline_passed"]
    closed = [gate["gate"] for gate in document["gates"] if not gate["open"]]
    assert closed[:2] == ["queue", "deadline"]


def test_what_stands_before_a_job_is_counted(stado: Program, world: World) -> None:
    report(world, "a@box", cpu_free=0)
    first, second = submit(stado, run_id="1"), submit(stado, run_id="2")
    assert "before it no job: it is the first" in stado.ok("job", "why", first)
    assert "before it 1 job in the order" in stado.ok("job", "why", second)
    assert stado.json("job", "why", second)["before_it"] == {"count": 1, "at_least": False}


def test_a_job_that_was_lost_says_of_whom_and_why(stado: Program, world: World) -> None:
    """A04"""
    job_id = submit(stado)
    detail = "worker local@box was not heard for 120 s, its last beat was at 2026-01-01T00:00:00Z"
    world.end(world.claim(job_id), Verdict.LOST, reason=Reason.LEASE_EXPIRED, detail=detail)
    for command in ("why", "show"):
        shown = stado.ok("job", command, job_id)
        assert f"lost (lease_expired): {detail}" in shown


def test_a_running_job_says_what_it_does_and_when_it_was_heard(
    stado: Program, world: World
) -> None:
    """A04: worker, last proof of life and age."""
    job_id = submit(stado)
    claimed = world.claim(job_id)
    assert "its folder is being made ready" in stado.ok("job", "why", job_id)
    beat_at = world.repo.now() - timedelta(seconds=30)
    started_at = world.repo.now() - timedelta(seconds=192)
    world.beat(claimed, Phase.UPLOADING, at=beat_at, started_at=started_at)
    answer, heard, *_ = stado.ok("job", "why", job_id).splitlines()
    assert answer.startswith(f"job {job_id} has run on local@box for 3m 1")
    assert answer.endswith(": what it left is being uploaded")
    assert heard.startswith(f"heard     local@box was last heard {beat_at:%Y-%m-%d %H:%M:%SZ} (3")
    assert ", its lease of 120 s lasts 1m 2" in heard
    assert "local@box was last heard" in stado.ok("job", "show", job_id)
    run = stado.json("job", "why", job_id)["run"]
    assert run["lease_left_seconds"] == pytest.approx(90, abs=20)


def test_a_cancel_that_does_not_get_through_says_so(stado: Program, world: World) -> None:
    """A24: the state stays, with what is tried and how often."""
    job_id = submit(stado)
    claimed = world.claim(job_id)
    stado.ok("cancel", job_id, "--no-wait")
    trouble = "process 17 does not end: KILL sent 14 times"
    world.beat(claimed, Phase.STOPPING, trouble=trouble)
    shown = stado.ok("job", "why", job_id)
    assert "it is being cancelled" in shown
    assert f"trouble   {trouble}" in shown
    assert "cancel    asked for by ada" in shown
    document = stado.json("job", "why", job_id)
    assert (document["status"], document["doing"]) == ("running", "stopping")
    assert document["trouble"] == trouble
    result = stado("status")
    assert result.stdout.splitlines()[1].split()[1] == "cancelling"
    assert f"{job_id} is cancelling: {trouble}" in result.stderr


def test_a_silent_worker_is_not_said_to_run_the_job(stado: Program, quick_world: World) -> None:
    """A34"""
    job_id = submit(stado)
    claimed = quick_world.claim(job_id)
    quick_world.beat(claimed, Phase.RUNNING)
    end = time.monotonic() + 20
    while "nothing has been heard of it" not in stado.ok("job", "why", job_id):
        assert time.monotonic() < end
    assert "longer than its lease of 1 s" in stado.ok("job", "why", job_id)
    assert "silent" in stado.ok("status")


def test_a_job_at_rest_says_how_it_ended(stado: Program, world: World) -> None:
    job_id = submit(stado)
    world.fail(job_id, 3)
    first, *_ = stado.ok("job", "why", job_id).splitlines()
    assert first.startswith(f"job {job_id} failed: exit 3 after ")
    assert first.endswith(": the command exited with 3 (job_failed)")
    document = stado.json("job", "why", job_id)
    assert (document["wait_reasons"], document["waiting"], document["run"]) == ([], None, None)


def test_an_unknown_job_is_refused(stado: Program, world: World) -> None:
    assert "there is no job 'zzzz'" in stado.refused("job", "why", "zzzz")
    assert "submitted nothing here yet" in stado.refused("job", "why")


@pytest.mark.parametrize("columns", [80, 140])
def test_no_line_is_wider_than_the_terminal(
    stado: Program, environment: dict[str, str], world: World, columns: int
) -> None:
    report(world, "a@box")
    job_id = submit(stado, "--cpu", "99")
    terminal = Terminal("job", "why", job_id, environment=environment, columns=columns)
    assert terminal.end() == 0
    assert max(map(len, terminal.text.splitlines())) <= columns
    assert "\x1b[31mCLOSED\x1b[0m" in terminal.raw


@pytest.mark.parametrize("off", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_can_be_declined(
    stado: Program, environment: dict[str, str], world: World, off: dict[str, str]
) -> None:
    submit(stado)
    for command in (["job", "why"], ["status"], ["hosts"]):
        terminal = Terminal(*command, environment=environment | off)
        assert terminal.end() == 0
        assert "\x1b[" not in terminal.raw


def test_an_empty_no_color_declines_nothing(
    stado: Program, environment: dict[str, str], world: World
) -> None:
    submit(stado)
    terminal = Terminal("job", "why", environment=environment | {"NO_COLOR": ""})
    assert terminal.end() == 0
    assert "\x1b[31mCLOSED\x1b[0m" in terminal.raw
