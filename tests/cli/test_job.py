"""One job: its story, its log, another one like it; and what people call it."""

from __future__ import annotations

import os
import pty
import random
import signal
import subprocess
import sys
from datetime import timedelta

import pytest

from stado.core import keys
from stado.core.records import LateResult, LogAccount, Manifest, Phase
from stado.core.states import Reason, Verdict
from tests.cli.conftest import Program, World, run_each


def submit(stado: Program, run_id: str, command: str = "run") -> str:
    return stado.ok("submit", "--run-id", run_id, command)


def lose(world: World, job_id: str) -> None:
    world.end(
        world.claim(job_id),
        Verdict.LOST,
        reason=Reason.LEASE_EXPIRED,
        detail="worker local@box was not heard for 120 s",
        started_at=world.repo.now(),
    )


# What people call a job


def test_a_job_is_named_by_id_run_id_part_or_last(stado: Program, world: World) -> None:
    submit(stado, "first")
    job_id = submit(stado, "second")
    for text in (job_id, job_id[-5:], "second", "last"):
        assert stado.json("job", "show", text)["job_id"] == job_id


def test_an_unknown_job_is_refused_by_name_with_near_ones(stado: Program, world: World) -> None:
    """A54 R124"""
    job_id = submit(stado, "nope-2")
    for command in (["show"], ["watch"], ["watch", "--follow"], ["rerun"]):
        sentence = stado.refused("job", *command, "nope")
        assert sentence.startswith("there is no job 'nope', nor a batch or run of that name, in ")
        assert f"{world.path}; did you mean nope-2?" in sentence
    typo = job_id[:-2] + job_id[-1] + job_id[-2]
    if typo != job_id:
        assert f"did you mean {job_id}" in stado.refused("job", "show", typo)


def test_an_unknown_job_without_near_ones_names_the_list(stado: Program, world: World) -> None:
    assert stado.refused("job", "show", "zzzz") == (
        f"there is no job 'zzzz', nor a batch or run of that name, in {world.path}; "
        "`stado status` lists the newest"
    )


def test_an_ambiguous_part_lists_what_it_could_mean(stado: Program, world: World) -> None:
    ids = [submit(stado, f"run-{number}") for number in range(10)]
    part = ids[0][:5]
    sentence = stado.refused("job", "show", part)
    assert f"{part!r} could mean 10 of them: " in sentence
    assert sentence.count(part) == sentence.count(" (queued)") + 1 == 1 + 8
    assert ", 2 more; type more of the id" in sentence


def test_a_batch_is_no_single_job(stado: Program, world: World) -> None:
    ids = stado.ok("submit", "--run-id", "b", "--batch", "-", stdin=b"one\ntwo\n").splitlines()
    for text in ("b", ids[0][:16], ids[0][8:16], "last"):
        for command in ("job show", "job watch", "job watch --follow", "job logs", "logs"):
            assert (
                f"batch of 2 jobs: name one of them, such as `stado {command} {ids[0]}`"
            ) in stado.refused(*command.split(), text)
    assert stado.json("job", "show", ids[1])["command"] == "two"


def test_last_without_a_submission_is_refused(stado: Program, world: World) -> None:
    assert "ada has submitted nothing here yet" in stado.refused("job", "show", "last")


# Its story


def test_the_story_tells_each_epoch_who_held_it_and_how_it_ended(
    stado: Program, world: World
) -> None:
    job_id = submit(stado, "story")
    lose(world, job_id)
    late = LateResult(
        job_id=job_id,
        epoch=1,
        consumer="local@box",
        at=world.repo.now(),
        exit_code=0,
        detail="it had gone on",
    )
    world.repo.create(keys.late(job_id, 1), late)
    world.fail(job_id, 3)
    shown = stado.ok("job", "show", job_id)
    assert "status    failed after 0s, epoch 2, started 2 times" in shown
    assert "epoch 1   local@box since" in shown
    assert "lost (lease_expired): worker local@box was not heard" in shown
    assert "late result of epoch 1, from local@box: exit code 0: it had gone on" in shown
    assert "failed (job_failed): the command exited with 3" in shown
    document = stado.json("job", "show", job_id)
    assert (document["status"], document["epoch"], document["starts"]) == ("failed", 2, 2)
    assert [epoch["verdict"] for epoch in document["epochs"]] == ["lost", "failed"]
    assert [epoch["worker"] for epoch in document["epochs"]] == ["local@box"] * 2
    assert document["epochs"][0]["late"]["exit_code"] == 0


def test_the_story_of_a_queued_and_of_a_running_job(stado: Program, world: World) -> None:
    job_id = submit(stado, "story")
    assert "waits     no worker is at work; `stado up` here" in stado.ok("job", "show", job_id)
    world.claim(job_id)
    assert "goes on" in stado.ok("job", "show", job_id)
    stado.ok("cancel", job_id, "--no-wait")
    assert stado.json("job", "show", job_id)["cancel_asked_by"] == "ada"


def test_an_epoch_that_runs_counts_among_the_starts(stado: Program, world: World) -> None:
    """R170: with what it has begun, and not before."""
    job_id = submit(stado, "story")
    lose(world, job_id)
    claimed = world.claim(job_id)
    assert "epoch 2, preparing, started 1 time" in stado.ok("job", "show", job_id)
    world.beat(claimed, Phase.RUNNING)
    assert "epoch 2, started 2 times" in stado.ok("job", "show", job_id)


def test_who_asked_for_a_cancel_is_told_once_it_is_over(stado: Program, world: World) -> None:
    """A24"""
    job_id = submit(stado, "story")
    claimed = world.claim(job_id)
    stado.ok("cancel", job_id, "--no-wait")
    world.end(claimed, Verdict.CANCELLED, reason=Reason.CANCELLED)
    assert "cancelled (cancelled), asked for by ada" in stado.ok("job", "show", job_id)
    (epoch,) = stado.json("job", "show", job_id)["epochs"]
    assert (epoch["ended_by"], epoch["cancel_asked_by"]) == ("local@box", "ada")


def test_a_story_tells_how_long_the_command_ran_and_plain_amounts(
    stado: Program, world: World
) -> None:
    """R170"""
    options = ("--cpu", "64", "--deadline-at", "2100-01-01T02:00:00+02:00")
    job_id = stado.ok("submit", "--run-id", "story", *options, "run")
    started_at = world.repo.now() - timedelta(seconds=192)
    world.end(world.claim(job_id), Verdict.FAILED, exit_code=3, started_at=started_at)
    shown = stado.ok("job", "show", job_id)
    assert "status    failed after 3m 12s, epoch 1" in shown
    assert "ago), after 3m 12s" in shown
    assert "cpu       64 cores" in shown
    assert "deadline  2100-01-01 00:00:00Z" in shown


def test_a_story_tells_of_limits_and_runs(stado: Program, world: World) -> None:
    limits = ("--timeout", "2h", "--idle-timeout", "10m", "--body-retries", "3")
    job_id = stado.ok("submit", "--run-id", "story", *limits, "run")
    shown = stado.ok("job", "show", job_id)
    assert "time      at most 2h from when it is picked up" in shown
    assert "idle      ended after 10m without a sign of work" in shown
    assert "retries   run 4 times at most on its host" in shown
    assert stado.json("job", "show", job_id)["time_is_up_at"] is None
    claimed = world.claim(job_id)
    world.beat(claimed, Phase.RUNNING, runs=2)
    assert "run 2 of 4" in stado.ok("job", "show", job_id)
    fields = stado.json("job", "show", job_id)
    assert (fields["timeout_seconds"], fields["body_retries"], fields["runs"]) == (7200, 3, 2)
    assert fields["picked_up_at"] < fields["time_is_up_at"]
    detail = "it reached its own time limit of 2h, counted from when it was picked up first"
    reason = Reason.ORG_RUNTIME_LIMIT_EXCEEDED
    world.end(claimed, Verdict.TIMED_OUT, reason=reason, detail=detail, runs=2, exit_code=None)
    shown = stado.ok("job", "show", job_id)
    assert f"timed_out (org_runtime_limit_exceeded): {detail}" in shown
    assert "its command was run 2 times" in shown
    assert "timed_out" in stado.ok("status")
    assert "org_runtime_limit_exceeded" in stado.ok("status")


def test_each_kind_of_again_has_its_own_counter(stado: Program, world: World) -> None:
    """R17, R21, R75: run again, tried again by itself, lost, retried by somebody; `retry_count` is
    of the second and the last."""
    job_id = stado.ok("submit", "--run-id", "again", "--retries", "5", "--body-retries", "2", "run")
    world.fail(job_id, 3)
    for _ in range(2):
        stado.ok("job", "retry", job_id)
        world.fail(job_id, 3)
    stado.ok("job", "retry", job_id)
    for reason in (Reason.LEASE_EXPIRED, Reason.SUPERVISOR_DIED):
        world.end(world.claim(job_id), Verdict.LOST, reason=reason)
    tried = {"reason": Reason.JOB_FAILED, "started_at": world.repo.now(), "runs": 2}
    world.end(world.claim(job_id), Verdict.RETRYING, retry_at=world.repo.now(), **tried)
    world.end(world.claim(job_id), Verdict.FAILED, **tried | {"runs": 3})
    fields = stado.json("job", "show", job_id)
    again = ("runs", "auto_retries", "lease_losses", "manual_retries", "retry_count")
    assert [fields[name] for name in again] == [3, 1, 2, 3, 4]
    shown = stado.ok("job", "show", job_id)
    assert "retried 3 times, tried again 1 time by itself, lost 2 times" in shown
    assert shown.count("its command was run ") == 2


def test_values_of_the_environment_are_not_shown(stado: Program, world: World) -> None:
    job_id = stado.ok("submit", "--run-id", "x", "--env", "KEY=hidden-value", "run")
    for args in (["show", job_id], ["show", job_id, "--json"]):
        shown = stado.ok("job", *args)
        assert "KEY" in shown
        assert "hidden-value" not in shown


# Its log


def test_a_log_comes_out_byte_by_byte(stado: Program, world: World) -> None:
    """A43"""
    data = random.Random(7).randbytes(1_000_000) + "🚲".encode()
    job_id = submit(stado, "bytes")
    for number in range(0, len(data), 300_001):
        world.log(job_id, data[number : number + 300_001], offset=number)
    for follow in ([], ["--follow"]):
        if follow:
            world.complete(job_id)
        result = stado("job", "watch", job_id, *follow)
        assert result.exit_code == 0
        assert result.stdout_bytes == data


def test_a_terminal_gets_marks_for_what_is_no_text(stado: Program, world: World) -> None:
    """A43"""
    job_id = submit(stado, "bytes")
    bicycle = "🚲".encode()
    world.log(job_id, b"a\xff" + bicycle[:2])
    world.log(job_id, bicycle[2:] + b"\xf0\x9f", offset=4)
    world.complete(job_id)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "stado.cli.main", "job", "watch", job_id, "--follow"],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    process.communicate(timeout=60)
    os.close(theirs)
    shown = os.read(ours, 10_000)
    os.close(ours)
    assert process.returncode == 0
    assert shown.decode() == "a\ufffd🚲\ufffd\r\n"


def test_watching_a_queued_job_says_so_and_ends(stado: Program, world: World) -> None:
    job_id = submit(stado, "waits")
    result = stado("job", "watch", job_id)
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"job {job_id} is queued: no worker is at work; " in result.stderr


def test_watching_shows_what_all_epochs_printed(stado: Program, world: World) -> None:
    job_id = submit(stado, "again")
    world.log(job_id, b"first\n", epoch=1)
    lose(world, job_id)
    result = stado("job", "watch", job_id)
    assert result.stdout == "first\n"
    assert f"epoch 2 of job {job_id} begins: epoch 1 lost" in result.stderr
    world.log(job_id, b"second\n", epoch=2)
    assert stado.ok("job", "watch", job_id) == "first\nsecond"
    assert stado.ok("logs", job_id, "--tail", "1") == "second"


@pytest.mark.parametrize(("exit_code", "expected"), [(0, 0), (3, 3), (-15, 1), (127, 1)])
def test_following_ends_with_the_code_of_the_job(
    stado: Program, world: World, exit_code: int, expected: int
) -> None:
    """R195"""
    job_id = submit(stado, "follow")
    world.log(job_id, b"out\n")
    if exit_code == 0:
        world.complete(job_id)
    else:
        world.fail(job_id, exit_code)
    result = stado("job", "watch", job_id, "--follow")
    assert (result.exit_code, result.stdout) == (expected, "out\n")
    assert f"job {job_id} " in result.stderr


def test_following_a_cancelled_job_ends_with_3(stado: Program, world: World) -> None:
    job_id = submit(stado, "follow")
    stado.ok("cancel", job_id)
    assert stado("job", "watch", job_id, "--follow").exit_code == 3


def test_following_a_job_that_timed_out_ends_with_124(stado: Program, world: World) -> None:
    job_id = submit(stado, "follow")
    world.end(world.claim(job_id), Verdict.TIMED_OUT)
    assert stado("job", "watch", job_id, "--follow").exit_code == 124


def test_a_failed_verify_is_1_whatever_the_command_ended_with(stado: Program, world: World) -> None:
    job_id = submit(stado, "follow")
    world.end(world.claim(job_id), Verdict.FAILED, reason=Reason.VERIFY_FAILED, exit_code=5)
    assert stado("job", "watch", job_id, "--follow").exit_code == 1


def test_following_announces_a_new_epoch_and_prints_both_logs(stado: Program, world: World) -> None:
    """R195"""
    job_id = submit(stado, "follow")
    claimed = world.claim(job_id)
    process = stado.start("job", "watch", job_id, "--follow")
    assert process.stdout is not None
    world.log(job_id, b"one\n", epoch=1)
    assert process.stdout.readline() == b"one\n"
    world.log(job_id, b"two\n", epoch=1, offset=4)
    world.end(claimed, Verdict.LOST, reason=Reason.LEASE_EXPIRED, detail="not heard")
    world.log(job_id, b"three\n", epoch=2)
    world.complete(job_id)
    ((code, out, err),) = run_each([process])
    assert code == 0
    assert out == b"two\nthree\n"
    assert (
        f"epoch 2 of job {job_id} begins: epoch 1 lost (lease_expired): not heard" in err.decode()
    )


def test_ctrl_c_says_that_the_job_goes_on_and_changes_nothing(stado: Program, world: World) -> None:
    job_id = submit(stado, "goes-on")
    process = stado.start("job", "watch", job_id, "--follow")
    assert process.stderr is not None
    assert b"is queued" in process.stderr.readline()
    before = stado.json("job", "show", job_id)
    process.send_signal(signal.SIGINT)
    ((code, _, err),) = run_each([process])
    assert code == 130
    assert b"Traceback" not in err
    assert f"job {job_id} goes on" in err.decode()
    assert f"stado job watch {job_id} --follow" in err.decode()
    assert f"stado cancel {job_id}" in err.decode()
    assert stado.json("job", "show", job_id) == before


# Another one like it


def test_a_rerun_is_a_new_job_of_the_same_spec(stado: Program, world: World) -> None:
    """R207"""
    job_id = stado.ok("submit", "--run-id", "x", "--priority", "5", "--env", "A=1", "run me")
    first, second = stado.ok("job", "rerun", job_id), stado.ok("job", "rerun", job_id)
    assert len({job_id, first, second}) == 3
    again = stado.json("job", "show", first)
    assert (again["command"], again["priority"], again["rerun_of"]) == ("run me", 5, job_id)
    assert again["environment_names"] == ["A"]


def test_a_rerun_with_a_run_id_happens_once(stado: Program, world: World) -> None:
    job_id = submit(stado, "x")
    first = stado.json("job", "rerun", job_id, "--run-id", "y")
    again = stado.json("job", "rerun", job_id, "--run-id", "y")
    assert first["job_id"] == again["job_id"]
    assert (first["created"], again["created"]) == (True, False)
    assert first["rerun_of"] == job_id


@pytest.mark.parametrize("command", ["show", "watch"])
def test_a_batch_is_refused_with_the_same_command_for_one_of_its_jobs(
    stado: Program, world: World, command: str
) -> None:
    lines = stado.ok("submit", "--run-id", "b", "--batch", "-", stdin=b"1\n2\n").splitlines()
    assert f"such as `stado job {command} {lines[0]}`" in stado.refused("job", command, "b")


def test_a_rerun_of_a_batch_is_told_how_one_is_made(stado: Program, world: World) -> None:
    lines = stado.ok("submit", "--run-id", "b", "--batch", "-", stdin=b"1\n2\n").splitlines()
    base = lines[0].partition("-")[0]
    told = stado.refused("job", "rerun", "b")
    assert f"`stado job rerun {base} --only failed,timed_out` submits those" in told
    assert f"`stado job rerun {lines[0]}` one of them" in told


def test_tries_that_are_left_are_not_told_before_they_are_fixed(
    stado: Program, world: World
) -> None:
    """R21: what the deployment allows counts as of the first claim."""
    job_id = stado.ok("submit", "--run-id", "x", "--retries", "2", "run")
    assert stado.json("job", "show", "x")["auto_retries_left"] is None
    world.claim(job_id)
    assert stado.json("job", "show", "x")["auto_retries_left"] == 2


def test_a_log_of_which_the_middle_is_gone_is_told_by_the_story(
    stado: Program, world: World
) -> None:
    job_id = stado.ok("submit", "--run-id", "x", "run")
    world.complete(job_id)
    assert stado.json("job", "show", "x")["log"] is None
    account = LogAccount(written=5 * 2**20, kept=2**20, dropped=4 * 2**20)
    manifest = Manifest(job_id=job_id, epoch=1, partial=False, files=[], log=account)
    world.repo.store.put(keys.output_manifest(job_id, 1), manifest.encode())
    assert stado.json("job", "show", "x")["log"] == account.plain()
    shown = " ".join(stado.ok("job", "show", "x").split())
    assert "log 1.0 MB of 5.2 MB are kept: 4.2 MB between its beginning and its end" in shown
