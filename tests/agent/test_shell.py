"""What a strict shell does with a command, and says of the line that failed. Real shells."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from stado_agent.shell import StrictShell


def strict(folder: Path) -> StrictShell:
    bash = shutil.which("bash")
    assert bash is not None
    return StrictShell(bash, folder / "it's a 'place'")


def run(shell: StrictShell, command: str) -> subprocess.CompletedProcess[str]:
    shell.prepare()
    folder = shell.failure.parent
    return subprocess.run(
        shell.argv(command), cwd=folder, capture_output=True, text=True, timeout=20, check=False
    )


@pytest.mark.parametrize(
    ("command", "code", "line"),
    [
        ("false; echo done", 1, "in line 1: false; echo done"),
        ("echo one\n(exit 4)\necho done", 4, "in line 2: (exit 4)"),
        ("# a comment\n\nfalse | cat\necho done", 1, "in line 3: false | cat"),
        ("x=$(false)\necho done", 1, "in line 1: x=$(false)"),
        ("f() {\n  false\n  echo done\n}\nf", 1, "in line 2: false"),
        ("cat <<X\n1\n2\nX\nno-such-program\necho done", 127, "in line 5: no-such-program"),
        (". ./sourced\necho done", 1, "in line 2 of ./sourced"),
    ],
)
def test_the_line_that_fails_ends_the_command_and_is_named(
    tmp_path: Path, command: str, code: int, line: str
) -> None:
    """A75"""
    (tmp_path / "sourced").write_text("true\nfalse\n")
    shell = strict(tmp_path)
    ended = run(shell, command)
    assert ended.returncode == code
    assert "done" not in ended.stdout
    assert f"stado: line {line.split()[2].rstrip(':')} failed with exit code {code}: " in (
        ended.stderr
    )
    assert shell.failed_line(command) == line


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("false || true\nif false; then :; fi\n! true\necho $# $0", 0),
        ("set +e\nfalse\nexit 3", 3),
        ("trap - ERR; exit 5", 5),
    ],
)
def test_what_is_no_failure_names_no_line(tmp_path: Path, command: str, code: int) -> None:
    shell = strict(tmp_path)
    assert run(shell, command).returncode == code
    assert shell.failed_line(command) is None


@pytest.mark.parametrize("written", [b"", b"x", b"9 \n", b"0 \n", b"1" * 5000, b"\xff \n"])
def test_what_the_command_itself_wrote_there_names_no_line(tmp_path: Path, written: bytes) -> None:
    shell = strict(tmp_path)
    shell.failure.write_bytes(written)
    assert shell.failed_line("one\ntwo") is None


def test_a_line_is_shown_without_control_characters_and_cut(tmp_path: Path) -> None:
    shell = strict(tmp_path)
    shell.failure.write_bytes(b"1 \n")
    shown = shell.failed_line("\x1b[31m" + "x" * 300)
    assert shown is not None
    assert shown == "in line 1: [31m" + "x" * 195 + "…"


def test_what_a_command_put_in_the_place_of_its_failed_line_keeps_nobody(tmp_path: Path) -> None:
    """A pipe that nobody writes to, and a link to a file of the host."""
    shell = StrictShell("/bin/bash", tmp_path / "failed-line")
    os.mkfifo(shell.failure)
    assert shell.failed_line("one") is None
    shell.failure.unlink()
    (tmp_path / "other").write_text("1 \n")
    shell.failure.symlink_to(tmp_path / "other")
    assert shell.failed_line("one") is None
