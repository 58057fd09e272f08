"""Help is instant, and says everything that there is."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import click
import pytest

from stado.cli.main import cli
from stado.cli.synonyms import MEANT
from tests.cli.conftest import PYTHON_PATH, Program, World

COMMANDS = (
    *("init", "submit", "status", "logs", "results", "cancel", "up", "doctor", "version"),
    *("hosts show", "hosts cordon", "hosts drain", "hosts uncordon", "hosts release"),
    *("hosts label", "hosts rm", "usage", "quota", "job why", "view"),
    *("job show", "job watch", "job logs", "job rerun", "queue pause", "queue resume"),
    *("config list", "config get"),
    *("workload start", "workload sessions", "workload stop", "service reap", "service reaped"),
)
OF_NO_STORE = (
    *("context list", "context add", "context use", "context show", "context remove"),
    *("config set", "config unset", "config path", "completion"),
    *("profiles show", "profiles check", "workload kinds", "service list"),
)
HEAVY = (
    *("boto3", "botocore", "google", "rich", "msgspec", "tenacity", "psutil"),
    *("asyncio", "concurrent", "logging", "subprocess", "tomlkit", "tomllib"),
)


def loaded_by(*args: str, home: str = "/nonexistent") -> set[str]:
    """The top-level packages that a command line loads in a process of its own."""
    code = (
        "import sys, json\n"
        "from stado.cli.main import cli\n"
        "try:\n"
        "    cli.main(sys.argv[1:])\n"
        "except SystemExit as end:\n"
        "    code = end.code\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})), file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        env={"PYTHONPATH": PYTHON_PATH, "HOME": home, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    "command", ["", "job", "queue", "hosts", "agent", "coordinator", *COMMANDS, *OF_NO_STORE]
)
def test_help_loads_nothing_heavy(command: str) -> None:
    assert not loaded_by(*command.split(), "--help") & set(HEAVY)


def test_the_version_loads_nothing_heavy() -> None:
    assert not loaded_by("--version") & set(HEAVY)


def test_what_changes_the_config_file_is_loaded_by_nothing_that_reads_it(
    stado: Program, world: World, environment: dict[str, str]
) -> None:
    stado.ok("context", "add", "lab", "--store", str(world.path), "--use")
    home = environment["HOME"]
    assert "tomllib" in loaded_by("config", "get", "store", home=home)
    for command in ("status", "config list", "context list"):
        assert "tomlkit" not in loaded_by(*command.split(), home=home)


def test_help_of_a_group_does_not_import_the_program_behind_it() -> None:
    assert not loaded_by("agent", "--help") & {"stado_agent"}
    assert not loaded_by("coordinator", "--help") & {"stado_coordinator"}


@pytest.mark.parametrize("command", [*COMMANDS, *OF_NO_STORE])
def test_each_command_says_what_it_is_for(stado: Program, command: str) -> None:
    shown = stado.ok(*command.split(), "--help")
    assert f"Usage: stado {command}" in shown
    assert len(shown.splitlines()) > 5


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "version"])
def test_each_command_takes_a_store(stado: Program, command: str) -> None:
    shown = stado.ok(*command.split(), "--help")
    assert all(option in shown for option in ("--store", "--endpoint", "--region", "--context"))


@pytest.mark.parametrize("command", ["submit", "status"])
def test_what_is_typed_most_has_examples_in_its_help(stado: Program, command: str) -> None:
    shown = stado.ok(command, "--help")
    assert f"    stado {command} -" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_amounts_of_a_job_are_named_as_those_of_a_host(stado: Program) -> None:
    shown = stado.ok("submit", "--help")
    assert "--cpu CORES " in shown
    assert "--memory-gb GIB " in shown


def test_each_command_stands_once_under_a_title(stado: Program) -> None:
    told = stado.ok("--help")
    names = [line.split()[0] for line in told.splitlines() if re.match(r"  [a-z]+  ", line)]
    context = click.Context(cli)
    assert sorted(names) == sorted(cli.list_commands(context))
    assert "\nCommands:" not in told
    assert told.index("\nBegin:") < told.index("\nJobs:") < told.index("\nSet-up:")


def test_the_list_of_commands_has_no_examples(stado: Program) -> None:
    told = stado.ok("--help")
    assert "List the agents, or show one: what it has free" in told
    assert "stado hosts drain" not in told
    assert "stado profiles check" not in told


def test_no_command_at_all_shows_the_help_and_is_a_usage_error(stado: Program) -> None:
    result = stado()
    assert result.exit_code == 2
    assert "Usage: stado" in result.stderr
    assert result.stdout == ""


def test_a_mistyped_command_is_answered_with_the_near_ones(stado: Program) -> None:
    assert "there is no command 'stauts'; did you mean 'status'" in stado.refused("stauts")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("why", "`stado job why`"),
        ("hosts undrain a", "`stado hosts uncordon`"),
        ("schedule delete nightly", "`stado schedule rm`"),
        ("workload list", "`stado workload sessions`"),
        ("profiles list", "`stado profiles`"),
        ("job cancel x", "`stado cancel`"),
    ],
)
def test_a_word_for_a_command_is_answered_with_the_command(
    stado: Program, typed: str, meant: str
) -> None:
    assert f"; did you mean {meant}?" in stado.refused(*typed.split())


def test_each_word_means_a_command_that_there_is_and_is_none_itself() -> None:
    for group, words in MEANT.items():
        there = group_of(group)
        for word, meant in words.items():
            assert word not in there.list_commands(context_of(there)), f"{group} {word}"
            command = cli
            for part in meant.split():
                if not isinstance(command, click.Group) or part.startswith("-"):
                    break
                found = command.get_command(context_of(command), part)
                assert found is not None, f"{group} {word}: {meant}"
                command = found


def group_of(name: str) -> click.Group:
    found = cli.get_command(context_of(cli), name) if name else cli
    assert isinstance(found, click.Group), name
    return found


def context_of(command: click.Command) -> click.Context:
    return click.Context(command)


def test_the_version_is_one_line_and_one_document(stado: Program) -> None:
    version = stado.json("version")["version"]
    assert stado.ok("version") == stado.ok("--version") == f"stado {version}"


@pytest.mark.parametrize("command", ["logs", "job logs", "job watch"])
def test_each_help_says_what_0_lines_are(stado: Program, command: str) -> None:
    words = stado.ok(*command.split(), "--help").split()
    told = " ".join(words)
    assert "-n N Begin N lines before the end; 0: at the beginning." in told
    assert "--tail N The same, but 0 is: show nothing of what is there." in told


@pytest.mark.parametrize("command", ["up", "agent run"])
def test_amounts_are_named_alike_wherever_a_host_is_described(stado: Program, command: str) -> None:
    shown = stado.ok(*command.split(), "--help")
    for option in ("--cpu CORES", "--memory-gb GIB", "--work-dir DIR", "--consumer-id NAME"):
        assert f"  {option}" in shown
    assert "FLOAT" not in shown
    assert f"\n    stado {command} " in shown or f"\n    stado {command}\n" in shown
