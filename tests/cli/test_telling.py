"""What is told to people on a terminal: whole words, and a fresh line after Ctrl-C."""

from __future__ import annotations

import signal

from tests.cli.conftest import Program, World
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
    assert terminal.end() == 130


def test_ctrl_c_in_the_midst_of_a_line_begins_a_fresh_one(
    stado: Program, world: World, environment: dict[str, str]
) -> None:
    job_id = stado.ok("submit", "--run-id", "x", "true")
    world.claim(job_id)
    world.log(job_id, b"half a line")
    terminal = Terminal("job", "logs", job_id, environment=environment)
    terminal.wait_for("half a line")
    terminal.press(b"\x03")
    assert terminal.end() == 130
    assert terminal.text.splitlines() == [
        "half a line^C",
        f"stado: no longer watching; job {job_id} goes on",
        f"look again: `stado job watch {job_id} --follow`",
        f"stop it: `stado cancel {job_id}`",
    ]
