"""What is told to people on a terminal: whole words, and a fresh line after Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

from tests.cli.conftest import ROOT, Program, World
from tests.cli.terminal import Terminal


def test_an_error_breaks_between_words_and_commands_stay_whole(
    world: World, environment: dict[str, str]
) -> None:
    terminal = Terminal("job", "show", "nope", environment=environment, columns=44)
    assert terminal.end() == 2
    lines = terminal.text.splitlines()
    assert all(len(line) <= 44 or " " not in line for line in lines), lines
    assert str(world.path) in terminal.text
    assert "`stado status`" in terminal.text
    joined = " ".join(lines)
    assert joined.startswith("stado: there is no job 'nope', nor a batch or run of that name, in ")


def test_what_happens_meanwhile_breaks_between_words(
    stado: Program, world: World, environment: dict[str, str]
) -> None:
    job_id = stado.ok("submit", "--run-id", "x", "true")
    world.claim(job_id)
    terminal = Terminal("cancel", job_id, environment=environment, columns=44)
    terminal.wait_for("stops the waiting, not the cancel)".rpartition(" ")[2])
    assert all(len(line) <= 44 for line in terminal.text.splitlines())
    terminal.process.send_signal(signal.SIGINT)
    # CPython ends by the signal itself where it came while a module was defining a record: shells
    # call both 130.
    assert terminal.end() in (130, -signal.SIGINT), terminal.text


def test_ctrl_c_in_the_midst_of_a_line_begins_a_fresh_one(
    stado: Program, world: World, environment: dict[str, str]
) -> None:
    job_id = stado.ok("submit", "--run-id", "x", "true")
    world.claim(job_id)
    world.log(job_id, b"half a line")
    terminal = Terminal("job", "logs", job_id, environment=environment)
    terminal.wait_for("half a line")
    terminal.press(b"\x03")
    assert terminal.end() == 130, terminal.text
    assert terminal.text.splitlines() == [
        "half a line^C",
        f"stado: no longer watching; job {job_id} goes on",
        f"look again: `stado job watch {job_id} --follow`",
        f"stop it: `stado cancel {job_id}`",
    ]


def test_ctrl_c_while_it_is_being_loaded_ends_in_silence(
    environment: dict[str, str], tmp_path: Path
) -> None:
    slow = tmp_path / "click.py"
    slow.write_text("import pathlib, time\npathlib.Path('loading').touch()\ntime.sleep(60)\n")
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["stado"].partition(":")
    process = subprocess.Popen(
        [sys.executable, "-c", f"from {module} import {function}\n{function}()"],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": f"{tmp_path}:{environment['PYTHONPATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        for _ in range(300):
            if (tmp_path / "loading").exists():
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, said) == (130, b"")


def test_where_ctrl_c_is_ignored_it_stays_so(environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [
            "sh",
            "-c",
            (
                f"trap '' INT; exec {sys.executable} -c 'import atexit, signal\n"
                "atexit.register(lambda: print(signal.getsignal(signal.SIGINT)))\n"
                "from stado.cli.entry import run\nrun()' version"
            ),
        ],
        env=environment,
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1] == str(signal.SIG_IGN)


def test_the_log_of_a_program_that_runs_on_has_our_events_and_not_those_of_libraries() -> None:
    code = (
        "import logging\n"
        "from stado.composition import log_to_stderr\n"
        "log_to_stderr()\n"
        "logging.getLogger('botocore.credentials').info('Found credentials')\n"
        "logging.getLogger('botocore').warning('event=theirs')\n"
        "try:\n"
        "    1 / 0\n"
        "except ZeroDivisionError:\n"
        "    logging.getLogger('urllib3.connection').warning('event=caught', exc_info=True)\n"
        "for name in ('stado.jobs.claim', 'stado_agent.agent', 'stado_coordinator.main'):\n"
        "    logging.getLogger(name).info('event=ours')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    assert [line.rpartition(" ")[2] for line in done.stderr.splitlines()] == [
        "event=theirs",
        "event=caught",
        *["event=ours"] * 3,
    ]


def test_a_coordinator_says_what_it_did_and_that_it_leaves(stado: Program, world: World) -> None:
    once = stado.start("coordinator", "run", "--once")
    _, said = once.communicate(timeout=60)
    assert (once.returncode, b"event=ticked ok=True" in said) == (0, True)
    process = stado.start("coordinator", "run")
    assert process.stderr is not None
    while b"event=leading" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"event=leaving" in said


def test_a_command_beside_a_batch_is_said_to_be_ignored(stado: Program, world: World) -> None:
    """R169"""
    result = stado("submit", "--run-id", "b", "--batch", "-", "echo x", stdin=b"true\n")
    assert result.exit_code == 0
    assert "stado: --batch is given: the command 'echo x' is not submitted\n" in result.stderr
