"""Three ways to a log: `job watch`, `job logs`, `logs`. Where each begins, and when it ends."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import LogAccount, Manifest
from stado.core.states import Verdict
from tests.cli.conftest import Program, World, run_each

LINES = 2_100


def submit(stado: Program, run_id: str = "x") -> str:
    return stado.ok("submit", "--run-id", run_id, "run")


def numbered(count: int, first: int = 0) -> bytes:
    return b"".join(b"%d\n" % number for number in range(first, count))


def finished(stado: Program, world: World) -> str:
    job_id = submit(stado)
    world.log(job_id, numbered(LINES))
    world.complete(job_id)
    return job_id


# Where they begin


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        ("job watch ID", LINES),
        ("job watch ID --follow", LINES),
        ("job watch ID --tail 3", 3),
        ("job watch ID --tail 3 --follow", 3),
        ("job watch ID --tail 0", 0),
        ("job watch ID -n 4", 4),
        ("job watch ID -f -n 0", LINES),
        ("job logs ID", 2_000),
        ("job logs ID -n 3", 3),
        ("job logs ID -n 0", LINES),
        ("job logs ID -n 0 --no-follow", LINES),
        ("job logs ID -f --tail 3", 3),
        ("job logs ID --tail 0", 0),
        ("job logs", 2_000),
        ("logs ID", LINES),
        ("logs ID --tail 0", 0),
        ("logs ID --tail 7", 7),
        ("logs ID -n 7", 7),
        ("logs ID -n 0", LINES),
        ("logs ID -f", 50),
        ("logs ID -f -n 0", LINES),
        ("logs ID --follow", 50),
        ("logs ID --follow --from-start", LINES),
        ("logs ID --follow --tail 2", 2),
        ("logs", LINES),
    ],
)
def test_each_begins_where_its_habit_says(
    stado: Program, world: World, command: str, lines: int
) -> None:
    """R29, R30, R34, R115, R119"""
    job_id = finished(stado, world)
    result = stado(*[job_id if word == "ID" else word for word in command.split()])
    assert result.exit_code == 0
    assert result.stdout_bytes == numbered(LINES, LINES - lines)
    named = result.stderr.startswith(f"job {job_id}, your newest\n")
    assert named == ("ID" not in command)
    assert result.stderr.splitlines()[-1].startswith(f"job {job_id} completed in ")


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("logs ID --tail 3 --from-start", "--from-start and --tail exclude each other"),
        ("logs ID -n 3 --from-start", "--from-start and --tail exclude each other, and so does -n"),
        ("logs ID -n 3 --tail 3", "-n and --tail exclude each other"),
        ("logs ID --tail -1", "-1 is not in the range"),
        ("job logs ID -n -1", "-1 is not in the range"),
        ("job logs ID --tail 3 -n 2", "-n and --tail exclude each other"),
        ("job watch ID --tail x", "'x' is not a valid integer"),
        ("job watch", "Missing argument 'ID'"),
    ],
)
def test_what_a_habit_does_not_know_is_refused(
    stado: Program, world: World, command: str, sentence: str
) -> None:
    assert sentence in stado.refused(*command.replace("ID", submit(stado)).split())


def test_an_unknown_job_ends_each_of_them_with_2(stado: Program, world: World) -> None:
    """A54"""
    submit(stado, "nope-2")
    for command in ("job watch", "job watch --follow", "job logs", "logs", "logs --follow"):
        assert "'nope'" in (sentence := stado.refused(*command.split(), "nope"))
        assert "did you mean nope-2?" in sentence


def test_without_a_submission_there_is_no_newest(stado: Program, world: World) -> None:
    for command in ("job logs", "logs"):
        assert "ada has submitted nothing here yet" in stado.refused(*command.split())


# When they end


def test_a_queued_job_is_said_to_be_queued_and_why_at_once(stado: Program, world: World) -> None:
    """A51: within two seconds in a process of its own, but for the interpreter's start."""
    job_id = submit(stado)
    for command in ("job watch ID --no-follow", "job logs ID --no-follow", "logs ID"):
        began = time.monotonic()
        process = stado.start(*command.replace("ID", job_id).split())
        ((code, out, err),) = run_each([process])
        assert (code, out) == (0, b"")
        assert re.search(rf"^job {job_id} is queued: .*worker", err.decode(), re.M), err
        assert b"there is no log yet" in err
        assert time.monotonic() - began < 2 + 3


def test_a_running_job_is_printed_as_far_as_it_has_come(stado: Program, world: World) -> None:
    job_id = submit(stado)
    world.claim(job_id)
    world.log(job_id, b"so far\nhalf a li")
    result = stado("logs", job_id)
    assert (result.exit_code, result.stdout) == (0, "so far\nhalf a li")
    assert result.stderr == f"job {job_id} runs on local@box; --follow goes on printing\n"


def test_a_finished_job_of_a_batch_whose_others_run_ends_at_once(
    stado: Program, world: World
) -> None:
    """A52"""
    ids = stado.ok("submit", "--run-id", "b", "--batch", "-", stdin=b"1\n2\n").splitlines()
    world.log(ids[0], b"out\n")
    world.fail(ids[0], 3)
    world.claim(ids[1])
    for command in ("job watch ID --follow", "job logs ID", "logs ID --follow"):
        result = stado(*command.replace("ID", ids[0]).split())
        assert (result.exit_code, result.stdout) == (3, "out\n")


def test_what_was_dropped_is_told_on_stderr_and_the_bytes_are_as_they_were(
    stado: Program, world: World
) -> None:
    job_id = submit(stado)
    world.log(job_id, b"head\nhal")
    world.log(job_id, b"tail\n", offset=1_008)
    log = LogAccount(written=2_013, kept=13, dropped=2_000)
    manifest = Manifest(job_id=job_id, epoch=1, partial=False, files=[], log=log)
    world.repo.store.put(keys.output_manifest(job_id, 1), manifest.encode())
    world.complete(job_id)
    result = stado("job", "watch", job_id, "--follow")
    assert result.stdout == "head\nhaltail\n"
    assert result.stderr.splitlines()[:2] == [
        "stado: 1,000 bytes of the log were dropped here (its limit)",
        "stado: 1,000 bytes of the log were dropped here, at its end",
    ]


def test_on_a_terminal_a_gap_begins_a_line(
    stado: Program, world: World, environment: dict[str, str]
) -> None:
    job_id = submit(stado)
    world.log(job_id, b"head\n\xf0\x9f")
    world.log(job_id, b"tail\n", offset=1_000)
    world.complete(job_id)
    ours, theirs = pty.openpty()
    subprocess.run(
        [sys.executable, "-m", "stado.cli.main", "logs", job_id],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        check=True,
        timeout=60,
    )
    os.close(theirs)
    shown = os.read(ours, 10_000).decode().splitlines()
    os.close(ours)
    assert shown[:4] == [
        "head",
        "\ufffd",
        "stado: 993 bytes of the log were dropped here (its limit)",
        "tail",
    ]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_gone_ends_it_without_a_word(
    stado: Program, world: World, environment: dict[str, str], unbuffered: str
) -> None:
    job_id = submit(stado)
    world.claim(job_id)
    world.log(job_id, numbered(200_000))
    done = subprocess.run(
        f"{sys.executable} -m stado.cli.main job logs -n 0 {job_id} | head -2; "
        'echo "${PIPESTATUS[0]}"',
        shell=True,
        executable="/bin/bash",
        env=environment | {"PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == b"0\n1\n141\n"
    assert done.stderr == b""


# Ctrl-C


def interrupted(process: subprocess.Popen[bytes], *, times: int = 2) -> tuple[int, bytes]:
    """Presses Ctrl-C so often in a row."""
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.002)
    ((code, _, err),) = run_each([process])
    return code, err


def assert_detached(job_id: str, code: int, err: bytes) -> None:
    assert code == 130, err
    assert b"Traceback" not in err
    assert err.decode().splitlines()[-3:] == [
        f"stado: no longer watching; job {job_id} goes on",
        f"look again: `stado job watch {job_id} --follow`",
        f"stop it: `stado cancel {job_id}`",
    ]


@pytest.mark.parametrize("times", [1, 2, 5])
def test_ctrl_c_however_often_leaves_the_job_alone(
    stado: Program, world: World, times: int
) -> None:
    """A82"""
    job_id = submit(stado)
    world.claim(job_id)
    world.log(job_id, b"line\n")
    before = stado.json("job", "show", job_id)["status"]
    process = stado.start("job", "logs", job_id)
    assert process.stdout is not None
    assert process.stdout.readline() == b"line\n"
    assert_detached(job_id, *interrupted(process, times=times))
    assert stado.json("job", "show", job_id)["status"] == before


def move(store: Path, *, away: bool) -> None:
    hidden = store.with_name("away")
    shutil.move(store if away else hidden, hidden if away else store)


def test_ctrl_c_while_the_store_is_away(stado: Program, world: World) -> None:
    """A82"""
    job_id = submit(stado)
    world.claim(job_id)
    world.log(job_id, b"line\n")
    process = stado.start("logs", job_id, "--follow")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"line\n"
    move(world.path, away=True)
    line = process.stderr.readline().decode()
    assert "the store does not answer" in line
    assert f"trying again in 1 s; job {job_id} goes on" in line
    code, err = interrupted(process)
    move(world.path, away=False)
    assert_detached(job_id, code, err)


def test_a_store_that_comes_back_is_gone_on_with(stado: Program, world: World) -> None:
    """R195"""
    job_id = submit(stado)
    claimed = world.claim(job_id)
    world.log(job_id, b"one\n")
    process = stado.start("job", "watch", job_id, "--follow")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"one\n"
    move(world.path, away=True)
    assert b"the store does not answer" in process.stderr.readline()
    move(world.path, away=False)
    world.log(job_id, b"two\n", offset=4)
    world.end(claimed, Verdict.COMPLETED, exit_code=0)
    ((code, out, err),) = run_each([process])
    assert (code, out) == (0, b"two\n")
    assert f"job {job_id} completed" in err.decode().splitlines()[-1]


# Which lines


def a_log_of_an_hour(stado: Program, world: World) -> str:
    """A line in a segment each ten minutes."""
    job_id = submit(stado)
    world.claim(job_id)
    now = time.time()
    for number in range(7):
        world.log(job_id, b"loss %d\n" % number, offset=number * 7)
        path = world.path / keys.log_segment(job_id, 1, number * 7)
        os.utime(path, (now - (6 - number) * 600 - 60,) * 2)
    return job_id


@pytest.mark.parametrize("command", ["logs", "job watch", "job logs --no-follow"])
def test_since_grep_and_timestamps_belong_to_each_of_them(
    stado: Program, world: World, command: str
) -> None:
    job_id = a_log_of_an_hour(stado, world)
    words = command.split()
    assert stado(*words, job_id, "--since", "15m").stdout == "loss 5\nloss 6\n"
    assert stado(*words, job_id, "--since", "1h30m", "--grep", "[3-5]$").stdout == (
        "loss 3\nloss 4\nloss 5\n"
    )
    dated = stado(*words, job_id, "--since", "5m", "--timestamps").stdout
    assert re.fullmatch(r"2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ loss 6\n", dated), dated
    instant = (datetime.now(UTC) - timedelta(minutes=25)).isoformat(timespec="seconds")
    assert stado(*words, job_id, "--since", instant).stdout == "loss 4\nloss 5\nloss 6\n"
    assert stado(*words, job_id, "--since", "30s").stdout == ""


def test_of_since_and_tail_the_later_one_counts(stado: Program, world: World) -> None:
    job_id = a_log_of_an_hour(stado, world)
    assert stado("logs", job_id, "--since", "25m", "--tail", "2").stdout == "loss 5\nloss 6\n"
    assert stado("logs", job_id, "--since", "15m", "--tail", "5").stdout == "loss 5\nloss 6\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--since", "yesterday"), "neither a duration (90s, 5m, 2h30m, 1d) nor an instant"),
        (("--since", ""), "neither a duration"),
        (("--since", "999999d"), "3,660 days are the longest"),
        (("--grep", "("), "no regular expression"),
        (("--grep", "x" * 1001), "longer than 1,000 characters"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    stado: Program, world: World, options: tuple[str, str], said: str
) -> None:
    result = stado("logs", submit(stado), *options)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
