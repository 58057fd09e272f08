"""A shell completes commands, options and names of contexts, at once and without a word."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import PYTHON_PATH, Program
from tests.cli.test_help import HEAVY

OURS = ("stado_agent", "stado_coordinator", "stado.cli.job", "stado.composition", "stado.storage")


@pytest.fixture
def home(environment: dict[str, str]) -> Path:
    """Of a user with two contexts, whose store cannot be reached."""
    config = Path(environment["HOME"], ".config/stado/config.toml")
    config.parent.mkdir(parents=True)
    config.write_text(
        'context = "lab"\n[contexts.lab]\nstore = "s3://lab"\nendpoint = "http://127.0.0.1:9"\n'
        '[contexts.later]\nstore = "/nowhere"\n'
    )
    return config.parents[2]


def asked(home: Path, words: str, code: str = "") -> tuple[str, str]:
    """What a shell gets on stdout and on stderr that asks for the last of these words."""
    begin = "import sys\nfrom stado.cli.main import run\ntry:\n    run()\nfinally:\n    pass\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{begin}    {code}"],
        env={
            "PYTHONPATH": PYTHON_PATH,
            "HOME": str(home),
            "PATH": "/usr/bin:/bin",
            "_STADO_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        },
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def completed(home: Path, words: str) -> list[str]:
    out, err = asked(home, words)
    assert err == ""
    return [line.partition(",")[2] for line in out.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("stado con", ["context", "config"]),
        ("stado jo", ["jobs", "job"]),
        ("stado job wa", ["watch"]),
        ("stado status --li", ["--limit"]),
        ("stado status --context ", ["lab", "later"]),
        ("stado submit --context lat", ["later"]),
        ("stado agent run --context lat", ["later"]),
        ("stado context use la", ["lab", "later"]),
        ("stado submit --profile py", ["pytorch-1gpu", "pytorch-ddp"]),
        ("stado profiles show eva", ["evaluation"]),
        ("stado workload start ho", ["hold"]),
        ("stado context remove lat", ["later"]),
        ("stado config set s", ["store"]),
        ("stado status --state c", ["completed", "cancelled"]),
        ("stado completion f", ["fish"]),
        ("stado submit --cpu many --lim", []),
        ("stado context use 'la", ["lab", "later"]),
    ],
)
def test_words_are_completed_and_nothing_else_is_said(
    home: Path, words: str, completions: list[str]
) -> None:
    assert completed(home, words) == completions


@pytest.mark.parametrize("words", ["stado nothing ", "stado nothing at all", "stado job nothing "])
def test_an_unknown_command_is_no_mistake_while_it_is_typed(home: Path, words: str) -> None:
    assert asked(home, words)[1] == ""


def test_the_path_of_a_folder_is_left_to_the_shell(home: Path) -> None:
    assert asked(home, "stado status --store ./qu") == ("dir,./qu\n", "")
    assert asked(home, "stado init ./qu") == ("dir,./qu\n", "")


def test_a_broken_config_file_completes_to_nothing_silently(home: Path) -> None:
    (home / ".config/stado/config.toml").write_text("context = \n")
    assert completed(home, "stado status --context ") == []
    assert completed(home, "stado context use ") == []


@pytest.mark.parametrize("words", ["stado jo", "stado ", "stado job ", "stado agent ", "stado --v"])
def test_completing_a_command_imports_none(home: Path, words: str) -> None:
    _, err = asked(
        home, words, "import json; print(json.dumps(list(sys.modules)), file=sys.stderr)"
    )
    modules = json.loads(err)
    assert not {name.partition(".")[0] for name in modules} & set(HEAVY)
    assert not [name for name in modules if name.startswith(OURS)]


def test_completing_a_context_imports_little(home: Path) -> None:
    _, err = asked(
        home,
        "stado status --context ",
        "import json; print(json.dumps(list(sys.modules)), file=sys.stderr)",
    )
    modules = {name.partition(".")[0] for name in json.loads(err)}
    assert not modules & (set(HEAVY) - {"tomllib"})


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_the_one_of_the_shell(
    stado: Program, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = stado.ok("completion", shell)
    assert f"_STADO_COMPLETE={shell}_complete" in script
    monkeypatch.setenv("SHELL", f"/usr/local/bin/{shell}")
    assert stado.ok("completion") == script


def test_a_shell_that_is_not_known_is_answered_with_those_that_are(
    stado: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/bin/dash")
    assert stado.refused("completion") == (
        "SHELL names 'dash': name one of bash, zsh, fish, as `stado completion bash`"
    )
    monkeypatch.delenv("SHELL")
    assert stado.refused("completion").startswith("SHELL is not set: name one of")
    assert "'tcsh' is not one of" in stado.refused("completion", "tcsh")


def test_a_real_bash_completes_after_it_has_read_the_script(home: Path, tmp_path: Path) -> None:
    """The words as bash splits them, and what it would offer."""
    program = tmp_path / "bin/stado"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m stado.cli.main "$@"\n')
    program.chmod(0o755)
    script = """
        eval "$(stado completion bash)"
        offer() {
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
            $(complete -p stado | sed 's/.*-F \\([^ ]*\\) .*/\\1/') stado
            echo "${COMPREPLY[@]}"
        }
        offer stado jo
        offer stado status --context la
        offer stado config get ''
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={
            "PYTHONPATH": PYTHON_PATH,
            "HOME": str(home),
            "PATH": f"{program.parent}:/usr/bin:/bin",
        },
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "jobs job",
        "lab later",
        "store endpoint region context",
    ]
