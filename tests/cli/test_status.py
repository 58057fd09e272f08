"""The list of jobs: newest first, whatever is in the store, and whoever reads it."""

from __future__ import annotations

import re
import shlex
import signal
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest

import stado as library
from stado.cli.failures import guarded
from stado.cli.render import instant_text
from stado.core import keys
from stado.core.records import Phase, Progress
from stado.core.states import Reason, State, Verdict
from stado.jobs.listings import newest
from stado.jobs.repository import Repository
from stado.storage.observe import CountingStore
from tests.cli.conftest import Program, World, report, run_each
from tests.cli.terminal import Terminal


def submit(stado: Program, run_id: str, command: str = "run") -> str:
    return stado.ok("submit", "--run-id", run_id, command)


def submit_batch(stado: Program, run_id: str, count: int) -> list[str]:
    lines = "".join(f"job {number}\n" for number in range(count)).encode()
    return stado.ok("submit", "--run-id", run_id, "--batch", "-", stdin=lines).splitlines()


def test_an_empty_store_is_an_empty_list(stado: Program, world: World) -> None:
    result = stado("status")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "there are no jobs yet" in result.stderr
    document = stado.json("status")
    assert document["jobs"] == []
    assert document["queue_paused"] is False


def test_one_row_a_line_newest_first(stado: Program, world: World) -> None:
    ids = [submit(stado, f"run-{number}") for number in range(3)]
    header, *rows = stado.ok("status").splitlines()
    assert header.split() == ["JOB", "STATUS", "AGE", "TIME", "RUN", "COMMAND"]
    assert [row.split()[0] for row in rows] == list(reversed(ids))


def test_a_reason_has_a_column_when_some_job_has_one(stado: Program, world: World) -> None:
    """R76"""
    failed = submit(stado, "bad")
    world.fail(failed, 3)
    header, row = stado.ok("status").splitlines()
    assert header.split() == ["JOB", "STATUS", "AGE", "TIME", "RUN", "REASON", "COMMAND"]
    assert row.split()[5:7] == ["job_failed", "3"]


def test_the_fields_of_a_job_in_json(stado: Program, world: World) -> None:
    """R77"""
    job_id = submit(stado, "bad")
    world.fail(job_id, 3)
    (job,) = stado.json("status")["jobs"]
    told = {name: job[name] for name in ("job_id", "status", "epoch", "starts", "exit_code")}
    assert told == {
        "job_id": job_id,
        "status": "failed",
        "epoch": 1,
        "starts": 1,
        "exit_code": 3,
    }
    assert job["status_reason"] == "job_failed"
    assert job["status_detail"] == "the command exited with 3"
    assert (job["batch_id"], job["run_id"], job["rerun_of"]) == (None, "bad", None)
    assert (job["worker"], job["host"], job["submitter"]) == ("local@box", "box", "ada")


def test_a_job_that_is_queued_again_says_why(stado: Program, world: World) -> None:
    job_id = submit(stado, "lost")
    world.end(world.claim(job_id), Verdict.LOST, reason=Reason.LEASE_EXPIRED, detail="not heard")
    (job,) = stado.json("status", job_id)["jobs"]
    assert (job["status"], job["epoch"], job["lease_losses"]) == ("queued", 2, 1)
    assert (job["status_reason"], job["status_detail"]) == ("lease_expired", "not heard")


def test_a_batch_is_summed_up_by_state(stado: Program, world: World) -> None:
    """R170"""
    ids = submit_batch(stado, "sweep", 24)
    submit(stado, "other")
    world.complete(ids[0])
    world.claim(ids[1])
    for name in ("sweep", ids[0][:16]):
        lines = stado.ok("status", name).splitlines()
        assert lines[-4:] == [
            f"batch {ids[0][:16]}: 24 jobs",
            *("queued     22", "running     1", "completed   1"),
        ]
        assert len(lines) == 1 + 20 + 1 + 4
    document = stado.json("status", "sweep", "--limit", "20")
    assert document["batch"] == {
        "batch_id": ids[0][:16],
        "count": 24,
        "states": {"queued": 22, "running": 1, "completed": 1},
    }
    assert document["more"] is True


def test_of_a_batch_what_runs_comes_first_then_what_failed_and_what_waits(
    stado: Program, world: World
) -> None:
    """R170: the end of a large one is not hidden by its beginning."""
    ids = submit_batch(stado, "sweep", 30)
    for job_id in ids[:22]:
        world.complete(job_id)
    world.fail(ids[22], 3)
    world.beat(world.claim(ids[29]), Phase.RUNNING)
    newer = submit(stado, "newer")
    expected = [ids[29], ids[22], *ids[23:29], *ids[:22]]
    listed = [job["job_id"] for job in stado.json("status", "sweep")["jobs"]]
    assert listed == expected
    listed = [job["job_id"] for job in stado.json("status", "--limit", "20")["jobs"]]
    assert listed == [newer, *expected[:19]]


def test_the_filter_is_a_part_of_an_id_a_run_id_or_last(stado: Program, world: World) -> None:
    """R170"""
    first, second = submit(stado, "first"), submit(stado, "second")
    for text in (second, second[-6:], second.upper()[-6:], "second", "last"):
        assert [job["job_id"] for job in stado.json("status", text)["jobs"]] == [second]
    assert [job["job_id"] for job in stado.json("status", "first")["jobs"]] == [first]
    assert stado.json("status", "nothing-like-it")["jobs"] == []


@pytest.mark.parametrize(
    ("words", "states"),
    [
        (["failed"], {"failed"}),
        (["SUCCEEDED"], {"completed"}),
        (["Completed", "queued"], {"completed", "queued"}),
        (["STOPPED"], {"cancelled"}),
        (["RUNNING"], {"running"}),
    ],
)
def test_a_state_narrows_the_list_in_either_spelling(
    stado: Program, world: World, words: list[str], states: set[str]
) -> None:
    """R170: C1's words too, in upper or lower case."""
    world.fail(submit(stado, "failed"), 3)
    world.complete(submit(stado, "completed"))
    world.claim(submit(stado, "running"))
    stado.ok("cancel", submit(stado, "cancelled"))
    submit(stado, "queued")
    options = [part for word in words for part in ("--state", word)]
    document = stado.json("status", *options)
    assert {job["status"] for job in document["jobs"]} == states
    assert len(document["jobs"]) == len(states)
    assert document["counts"] == dict.fromkeys(
        ("queued", "running", "completed", "failed", "cancelled"), 1
    )


def test_an_unknown_state_is_refused_with_those_that_there_are(
    stado: Program, world: World
) -> None:
    assert "'done' is no state: queued, running, paused, " in stado.refused(
        "status", "--state", "done"
    )
    assert "no job is failed" in stado("status", "--state", "failed").stderr


def test_help_names_every_state(stado: Program) -> None:
    shown = " ".join(stado.ok("status", "--help").split())
    assert f"(repeatable): {', '.join(State)}." in shown


def test_all_jobs_are_counted_by_state_up_to_a_thousand_each(stado: Program, world: World) -> None:
    world.complete(submit(stado, "x"))
    submit_batch(stado, "sweep", 1001)
    assert "1,000+ queued, 1 completed" in stado("status").stderr


@pytest.mark.parametrize("filter_text", [[], ["sweep"]])
def test_all_is_more_than_a_page_of_a_listing(
    stado: Program, world: World, filter_text: list[str]
) -> None:
    submit_batch(stado, "sweep", 1001)
    document = stado.json("status", "--all", *filter_text)
    assert (len(document["jobs"]), document["more"]) == (1001, False)
    assert document["total"] == {"count": 1001, "at_least": False}
    assert set(document["counts"].values()) <= {1000}


def test_json_says_what_a_running_job_does_as_the_list_does(stado: Program, world: World) -> None:
    job_id = submit(stado, "x")
    started_at = world.repo.now() - timedelta(seconds=60)
    world.beat(world.claim(job_id), Phase.STOPPING, started_at=started_at)
    stado.ok("cancel", job_id, "--no-wait")
    assert stado.ok("status").splitlines()[1].split()[1] == "cancelling"
    for document in (stado.json("status")["jobs"][0], stado.json("job", "show", job_id)):
        assert (document["phase"], document["doing"]) == ("RUNNING", "stopping")
        assert document["cancel_asked_by"] == "ada"
        assert document["started_at"] == instant_text(started_at)


def test_a_job_is_cancelling_as_soon_as_that_is_asked(stado: Program, world: World) -> None:
    """A24: with the time that its command has, wherever it is looked at."""
    job_id = submit(stado, "x")
    world.beat(world.claim(job_id), Phase.RUNNING)
    stado.ok("cancel", job_id, "--no-wait")
    then = "TERM with its worker's next check-in, then KILL after 30s"
    result = stado("status")
    assert result.stdout.splitlines()[1].split()[1] == "cancelling"
    assert f"cancelling: {then}" in result.stderr
    why = stado.ok("job", "why", job_id)
    assert why.splitlines()[0].endswith(": it is being cancelled")
    assert re.search(rf"cancel    asked for by ada .* ago\): {then}", why)


def test_an_upload_goes_on_though_a_cancel_is_asked(stado: Program, world: World) -> None:
    """A24: its command has ended, there is nothing to stop."""
    job_id = submit(stado, "x")
    world.beat(world.claim(job_id), Phase.UPLOADING)
    stado.ok("cancel", job_id, "--no-wait")
    result = stado("status")
    assert result.stdout.splitlines()[1].split()[1] == "uploading"
    assert "KILL" not in result.stderr


def test_a_row_tells_how_long_it_waited_or_ran(stado: Program, world: World) -> None:
    started_at = world.repo.now() - timedelta(seconds=192)
    world.beat(world.claim(submit(stado, "runs")), Phase.RUNNING, started_at=started_at)
    world.end(
        world.claim(submit(stado, "ran")),
        Verdict.COMPLETED,
        exit_code=0,
        started_at=world.repo.now() - timedelta(seconds=60),
    )
    rows = {row.split()[4]: row.split()[3] for row in stado.ok("status").splitlines()[1:]}
    assert rows["ran"] == "1m"
    assert rows["runs"].startswith("3m1")


@pytest.mark.parametrize("phase", ["uploading", "verifying", "preparing", "stopping"])
def test_a_running_job_shows_what_its_holder_does(stado: Program, world: World, phase: str) -> None:
    """Nobody asked for a cancel: stopping it is the holder's own decision."""
    world.beat(world.claim(submit(stado, "x")), Phase(phase))
    assert stado.ok("status").splitlines()[1].split()[1] == phase
    (job,) = stado.json("status")["jobs"]
    assert (job["status"], job["doing"]) == ("running", phase)


def test_what_a_job_reports_of_its_progress_is_shown_wherever_it_is_looked_at(
    stado: Program, world: World
) -> None:
    job_id = submit(stado, "x")
    claimed = world.claim(job_id)
    world.beat(claimed, Phase.RUNNING)
    assert "PROGRESS" not in stado.ok("status")
    world.beat(
        claimed, Phase.RUNNING, progress=Progress(fraction=0.429, text="round 3 of\x1b[2J 7")
    )
    submit(stado, "queued")
    title, waits, runs = stado.ok("status").splitlines()[:3]
    at = title.index("PROGRESS")
    assert (waits[at:].split()[0], runs[at:].split("  ")[0]) == ("run", "42%: round 3 of[2J 7")
    for command in ("show", "why"):
        assert "progress  42%: round 3 of[2J 7" in stado.ok("job", command, job_id).splitlines()
        told = stado.json("job", command, job_id)["progress"]
        assert told == {"fraction": 0.429, "text": "round 3 of\x1b[2J 7"}
    assert "runs on local@box, 42%: round 3 of[2J 7" in stado("job", "watch", job_id).stderr
    world.repo.store.put(keys.heartbeat(job_id), b"{")
    assert f"job {job_id} runs on local@box;" in stado("job", "watch", job_id).stderr


def test_a_queued_job_shows_what_is_its_own_to_wait_for(stado: Program, world: World) -> None:
    """R47: what holds all of them is said once."""
    large = stado.ok("submit", "--run-id", "large", "--cpu", "99", "run")
    submit(stado, "small")
    assert "no_eligible_worker" not in stado.ok("status")
    report(world, "a@box")
    rows = stado.ok("status").splitlines()[1:]
    assert ["no_eligible_worker" in row for row in rows] == [False, True]
    reasons = {job["run_id"]: job["wait_reasons"] for job in stado.json("status")["jobs"]}
    assert reasons == {"large": ["no_eligible_worker"], "small": ["starting"]}
    stado.ok("queue", "pause")
    assert stado.json("status", large)["jobs"][0]["wait_reasons"] == ["queue_paused"]


def test_a_list_costs_eight_listings_and_a_read_a_row_and_two_more_a_row_that_runs(
    stado: Program, world: World
) -> None:
    submit_batch(stado, "sweep", 30)
    world.complete(submit(stado, "done"))
    for number in range(3):
        world.beat(world.claim(submit(stado, f"runs-{number}")), Phase.RUNNING)
    store = CountingStore(world.repo.store, world.repo.tasks)
    repo = Repository(
        store,
        world.repo.deployment,
        clock=world.repo.clock,
        entropy=world.repo.entropy,
        tasks=world.repo.tasks,
    )
    before = store.snapshot()
    listing = newest(repo, limit=20)
    made = store.since(before)
    assert len(listing.rows) == 20
    assert (made.lists, made.reads, made.writes) == (8, 20 + 2 * 3, 0)


def test_watching_redraws_in_place_and_keeps_the_notes_on_a_small_terminal(
    stado: Program, environment: dict[str, str], world: World
) -> None:
    submit_batch(stado, "sweep", 30)
    terminal = Terminal("status", "--watch", environment=environment, lines=12)
    terminal.wait_for("30 queued", times=2)
    frame = terminal.raw.split("\x1b[H")[2]
    assert len(frame.splitlines()) <= 12
    assert "more lines" in frame
    world.complete(submit(stado, "later"))
    terminal.wait_for("1 completed")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.end() == 130
    assert terminal.raw.count("\x1b[2J") == 1
    assert "\x1b[?25h" in terminal.raw


def test_one_job_of_a_batch_is_not_the_batch(stado: Program, world: World) -> None:
    ids = submit_batch(stado, "sweep", 12)
    document = stado.json("status", ids[0])
    assert [job["job_id"] for job in document["jobs"]] == [ids[0]]
    assert "batch" not in document


def test_more_jobs_than_the_limit_are_said(stado: Program, world: World) -> None:
    submit_batch(stado, "sweep", 5)
    result = stado("status", "--limit", "2")
    assert len(result.stdout.splitlines()) == 3
    assert "showing 2 of 5 jobs: --limit N, --all" in result.stderr
    assert "showing 2 of 5 jobs" in stado("status", "--limit", "2", "sweep").stderr


@pytest.mark.parametrize("left", [{"stopped": True}, {"age_seconds": 5 * 3600}])
def test_a_job_that_runs_where_nobody_is_at_work_is_told_so(
    stado: Program, world: World, left: dict[str, Any]
) -> None:
    """A34"""
    world.beat(world.claim(submit(stado, "x")), Phase.RUNNING)
    report(world, "local@box", **left)
    assert "no host is at work" in stado("status").stderr


@pytest.mark.parametrize("state", State)
def test_every_command_tells_the_state_that_is_kept(
    stado: Program, world: World, state: State
) -> None:
    """R1, R32, R35: lists, the story of a job, why it is so, its pipeline, and Python."""
    job_id = stado.ok("submit", "--run-id", "x", "--then", "eval=./eval", "run")
    if state is not State.QUEUED:
        claimed = world.claim(job_id)
        if state.at_rest:
            world.end(claimed, Verdict(state), started_at=world.repo.now())
    assert world.repo.find_record(state, job_id) is not None
    fields = [
        *(one for command in ("status", "jobs") for one in stado.json(command)["jobs"]),
        *(stado.json("job", command, job_id) for command in ("show", "status", "why")),
        stado.json("pipeline", "show", job_id)["root"],
    ]
    told = {one["status"] for one in fields if one["job_id"] == job_id}
    assert told == {state.value}
    assert len([one for one in fields if one["job_id"] == job_id]) == 6
    assert library.job(job_id).status().state == state.value


def test_an_unreadable_record_costs_its_own_row_only(stado: Program, world: World) -> None:
    """R3, A19"""
    good, bad, worse = (submit(stado, name) for name in ("good", "bad", "worse"))
    (world.path / keys.record(State.QUEUED, bad)).write_bytes(b'{"schema": 1, "id')
    (world.path / keys.record(State.QUEUED, worse)).write_bytes(b"\xff\xfe")
    result = stado("status")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 4
    assert f"{bad} cannot be read: queue/{bad}.json is unreadable" in result.stderr
    assert f"{worse} cannot be read" in result.stderr
    jobs = {job["job_id"]: job for job in stado.json("status")["jobs"]}
    assert jobs[good]["problem"] is None
    assert "is unreadable" in jobs[bad]["problem"]


def test_a_paused_queue_is_said(stado: Program, world: World) -> None:
    submit(stado, "x")
    stado.ok("queue", "pause")
    assert "the queue is paused" in stado("status").stderr
    assert stado.json("status")["queue_paused"] is True
    stado.ok("queue", "resume")
    assert stado.json("status")["queue_paused"] is False


def test_a_command_cannot_drive_the_terminal(stado: Program, world: World) -> None:
    submit(stado, "evil", "printf '\x1b]0;owned\x07'\n\trm \u202e x")
    shown = stado.ok("status")
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert len(shown.splitlines()) == 2
    assert "printf ']0;owned'  rm  x" in shown
    assert stado("status", "--json").stdout.isascii()


def test_a_store_that_is_not_there_is_refused(stado: Program, environment: dict[str, str]) -> None:
    sentence = stado.refused("status", "--store", "/nowhere/at/all")
    assert "there is no store at /nowhere/at/all" in sentence
    assert "stado init" in sentence


def test_a_folder_that_is_no_store_is_refused(stado: Program, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    sentence = stado.refused("status", "--store", str(tmp_path / "empty"))
    assert "is not a stado store yet: run `stado init" in sentence


def test_an_address_of_an_unknown_kind_is_refused(stado: Program, world: World) -> None:
    assert "ftp://" in stado.refused("status", "--store", "ftp://host/path")


def test_a_store_that_cannot_be_reached_is_69(
    stado: Program, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("boto3")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    store = ("--store", "s3://bucket/prefix", "--region", "us-east-1")
    nobody = f"http://127.0.0.1:{unused_port()}"
    assert nobody in stado.refused("status", *store, "--endpoint", nobody, code=69)


def unused_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def test_a_reader_that_goes_away_ends_it_quietly(stado: Program, world: World) -> None:
    submit_batch(stado, "sweep", 300)
    process = stado.start("status", "--json")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    ((code, _, err),) = run_each([process])
    assert err == b""
    assert code == 141


@pytest.mark.parametrize("closed", ["1", "2"])
def test_a_stream_that_is_closed_is_nobody_who_reads(
    stado: Program, world: World, environment: dict[str, str], closed: str
) -> None:
    submit(stado, "x")
    program = shlex.join([sys.executable, "-m", "stado.cli.main", "status"])
    done = subprocess.run(
        ["/bin/sh", "-c", f"{program} {closed}>&-"],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    assert bool(done.stdout) == (closed == "2")


def test_an_account_without_a_home_needs_none(
    stado: Program, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose user the host has chosen."""

    def unknown(uid: int) -> NoReturn:
        raise KeyError(uid)

    submit(stado, "x")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert len(stado.json("status")["jobs"]) == 1


def test_an_unforeseen_error_is_one_line_unless_asked(
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert guarded(lambda: 1 / 0) == 70
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("stado: ZeroDivisionError: division by zero")
    assert "STADO_DEBUG=1" in said.err
    monkeypatch.setenv("STADO_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        guarded(lambda: 1 / 0)


def test_steps_of_a_batch_are_looked_up_when_they_are_asked_for(
    stado: Program, world: World
) -> None:
    """Each costs requests, and a batch can have many."""
    then = ("--then", "export=./export")
    stado.ok("submit", "--run-id", "b", *then, "--batch", "-", stdin=b"./a\n./b\n")
    ids = [job["job_id"] for job in stado.json("status", "b")["jobs"]]
    world.complete(ids[0])
    plain, looked_up = stado("status", "b"), stado("status", "b", "--steps")
    assert "STEPS" not in plain.stdout
    assert "steps follow these jobs: --steps looks them up" in plain.stderr
    assert "./export" not in plain.stdout
    assert "./export" in looked_up.stdout
    assert "steps follow these jobs" not in looked_up.stderr
