"""Files of variables, as `--env-file` reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stado.cli.variables_file import parse_variables
from stado.errors import Refused
from stado.jobs.finding import find_job
from tests.cli.conftest import Program, World


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=", ""),
        ("A=1", "1"),
        ("  A  =  two words \t", "two words"),
        ("export A=1", "1"),
        ("A=1\r", "1"),
        ("A=x=y # kept", "x=y # kept"),
        ("A=$HOME `x` $(y) \\n", "$HOME `x` $(y) \\n"),
        ("A='  kept ' # a comment", "  kept "),
        ("A='it has \"quotes\" \\n'", 'it has "quotes" \\n'),
        ("A='over\ntwo lines'", "over\ntwo lines"),
        ('A="a\\tb\\n\\"c\\" \\\\ \\$x"', 'a\tb\n"c" \\ $x'),
        ('A="over\n# two lines"', "over\n# two lines"),
        ("A=it's", "it's"),
        ("A=ü", "ü"),
        ("A=1\nA=2", "2"),
    ],
)
def test_a_value_is_what_its_line_says(line: str, value: str) -> None:
    data = f"# first\n\n{line}\nB=behind\n".encode()
    assert parse_variables(data, "f") == {"A": value, "B": "behind"}
    assert parse_variables(line.encode(), "f") == {"A": value}


def test_a_file_may_begin_with_a_mark_of_its_encoding() -> None:
    assert parse_variables(b"\xef\xbb\xbfA=1\n", "f") == {"A": "1"}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"A=1\nPATH\n", r"line 2 of f states no variable"),
        (b"A='\n\n'\n=x", r"line 4 of f states no variable"),
        (b"A=1\nB='secret", r"line 2 of f: the quote that the value of B begins with is open"),
        (b"A='x'secret", r"something stands behind the quoted value of A"),
        (b'A="\\q"', r"line 1 of f: \\q is no escape"),
        (b"A=1\nB=\xff", r"line 2 of f is not UTF-8"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_line_without_the_value(data: bytes, told: str) -> None:
    with pytest.raises(Refused, match=told) as caught:
        parse_variables(data, "f")
    assert "secret" not in caught.value.text


def test_variables_of_a_file_reach_the_job_and_single_ones_win(
    stado: Program, world: World, tmp_path: Path
) -> None:
    file = tmp_path / "train.env"
    file.write_text("LR=0.1\nDATA='a b'\n")
    options = ("--env", "LR=0.2", "--env-file", str(file), "--env", "X=1")
    found = find_job(world.repo, stado.ok("submit", "--run-id", "one", *options, "run"))
    assert found is not None
    assert found.record.spec.environment == {"LR": "0.2", "DATA": "a b", "X": "1"}


def test_a_file_that_cannot_be_read_is_refused_by_name(stado: Program, world: World) -> None:
    result = stado("submit", "--run-id", "one", "--env-file", "nowhere.env", "run")
    assert result.exit_code == 2
    assert "env file 'nowhere.env' cannot be read: No such file or directory" in result.stderr


def test_what_no_variable_may_be_is_refused_from_a_file_too(
    stado: Program, world: World, tmp_path: Path
) -> None:
    file = tmp_path / "bad.env"
    file.write_text("STADO_EPOCH=7\n")
    result = stado("submit", "--run-id", "one", "--env-file", str(file), "run")
    assert result.exit_code == 2
    assert "environment name STADO_EPOCH is reserved" in result.stderr
