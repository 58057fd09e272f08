"""The command line by which a job's command gets into a container."""

from __future__ import annotations

import csv
import os
import shlex
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stado.core.records import Holder
from stado.core.spec import Spec
from stado.ports import ProcessIdentity
from stado_agent.container import (
    Belonging,
    ContainerCommand,
    ReadyImage,
    client_argv,
    client_environment,
    strict_argv,
    supervisor_name,
)
from tests.core.records import NOW, queued
from tests.engines.docker import parsed
from tests.search import examples
from tests.system.commands import eventually

IMAGE = "sha256:" + "0a" * 32
MARKER = "marker-4f7a-of-a-secret"
ROOT = Path("/w/jobs/x.1")


def contained(**changes: object) -> ContainerCommand:
    stated: dict[str, object] = {
        "image": ReadyImage(id=IMAGE, user="1000:100"),
        "argv": ("/bin/sh", "-c", "python train.py"),
        "environment": {"A": "1"},
        "mounts": [ROOT / "work", ROOT / "output"],
        "folder": ROOT / "work",
        "belonging": Belonging(
            record=queued(spec=Spec(command="python train.py")),
            supervisor=supervisor_name(ProcessIdentity(41, 99), "boot-1"),
            agent="local@host",
            number=1,
        ),
        "id_file": ROOT / "container-1",
        "begun": ROOT / "contained" / "begun-1",
        "memory_bytes": None,
        "shared_memory_bytes": 1024**3,
    }
    return ContainerCommand(**(stated | changes))  # type: ignore[arg-type]


def options_of(command: ContainerCommand) -> dict[str, list[str]]:
    program, run, *rest = client_argv("docker", command)
    assert (program, run) == ("docker", "run")
    options, image, _ = parsed(rest)
    assert image == IMAGE
    return options


def test_what_a_container_is_started_with() -> None:
    options = options_of(contained())
    assert options["--mount"] == [
        "type=bind,source=/w/jobs/x.1/work,target=/w/jobs/x.1/work",
        "type=bind,source=/w/jobs/x.1/output,target=/w/jobs/x.1/output",
    ]
    assert options["--workdir"] == ["/w/jobs/x.1/work"]
    assert options["--user"] == ["1000:100"]
    assert options["--entrypoint"] == ["/bin/sh"]
    assert options["--cidfile"] == ["/w/jobs/x.1/container-1"]
    assert (options["--pull"], options["--log-driver"]) == (["never"], ["none"])
    assert {"--init", "--no-healthcheck"} <= options.keys()


def test_whose_it_is_stands_in_its_labels() -> None:
    labels = dict(label.split("=", 1) for label in options_of(contained())["--label"])
    assert labels["stado.supervisor"] == "41.99.boot-1"
    assert labels["stado.agent"] == "local@host"
    assert labels["stado.epoch"] == "1"
    assert labels["stado.job"] == queued().id
    assert labels["stado.command"].endswith(".1.1@41.99.boot-1")


def test_it_gets_no_rights_and_nothing_else_of_the_host() -> None:
    options = options_of(contained())
    assert options["--security-opt"] == ["no-new-privileges"]
    refused = ("--privileged", "--cap-add", "--device", "--volume", "--pid", "--ipc", "--network")
    assert not set(refused) & options.keys()


def test_a_container_is_shown_the_cards_that_its_job_was_given_and_no_others() -> None:
    """R183"""
    assert "--gpus" not in options_of(contained())
    holder = Holder(
        token="t",
        consumer="c",
        incarnation="i",
        host="h",
        claimed_at=NOW,
        lease_seconds=120,
        cards=["GPU-1", "GPU-7"],
    )
    belonging = replace(contained().belonging, record=queued().evolve(holder=holder))
    options = options_of(contained(belonging=belonging))
    assert options["--gpus"] == ['"device=GPU-1,GPU-7"']


def test_the_memory_that_was_stated_is_its_limit_with_swap() -> None:
    assert "--memory" not in options_of(contained())
    options = options_of(contained(memory_bytes=2 * 1024**3))
    assert options["--memory"] == options["--memory-swap"] == [str(2 * 1024**3)]
    assert options_of(contained(memory_bytes=1))["--memory"] == [str(6 * 1024**2)]


def test_where_the_engines_root_is_ourselves_no_user_is_named() -> None:
    assert "--user" not in options_of(contained(image=ReadyImage(id=IMAGE, user=None)))


def test_a_folder_with_odd_letters_is_one_folder() -> None:
    """A comma would begin another option of the mount."""
    odd = Path('/w/a,readonly,"b"/work')
    (mount,) = options_of(contained(mounts=[odd]))["--mount"]
    (fields,) = csv.reader([mount])
    assert fields == ["type=bind", f"source={odd}", f"target={odd}"]


def test_no_value_of_a_variable_is_in_an_argument() -> None:
    environment = {"TOKEN": MARKER, "PATH": f"/{MARKER}", "UID": MARKER}
    argv = client_argv("docker", contained(environment=environment))
    assert MARKER not in "\0".join(argv)
    assert MARKER in client_environment({}, environment).values()


def test_no_variable_of_a_job_steers_the_client() -> None:
    """Whatever they are called."""
    host = {"PATH": "/bin", "HOME": "/home/ada"}
    steering = ("PATH", "HOME", "DOCKER_HOST", "DOCKER_CONFIG", "LD_PRELOAD", "HTTPS_PROXY")
    found = client_environment(host, dict.fromkeys(steering, MARKER))
    assert {name: value for name, value in found.items() if value != MARKER} == host
    assert not set(steering) & {name for name, value in found.items() if value == MARKER}


def parts_of(command: ContainerCommand) -> tuple[list[str], list[str], list[str]]:
    """Entry point, names of variables without values, arguments."""
    options, _, argv = parsed(client_argv("docker", command)[2:])
    names = [setting for setting in options["--env"] if "=" not in setting]
    return options["--entrypoint"], names, argv


def in_container(command: ContainerCommand) -> subprocess.CompletedProcess[bytes]:
    """What the engine would start, with the variables that the client would have passed on."""
    host = {"PATH": os.environ["PATH"]}
    passed = client_environment(host, command.environment)
    shell, names, argv = parts_of(command)
    inside = {"PATH": host["PATH"], **{name: passed[name] for name in names}}
    return subprocess.run([*shell, *argv], env=inside, capture_output=True, timeout=20, check=False)


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: name not in ("_", "PWD", "OLDPWD", "SHLVL") and not name.startswith("STADO_")
)
values = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@examples(40)
@given(st.dictionaries(names, values, max_size=4))
def test_every_variable_arrives_as_it_was_given(environment: dict[str, str]) -> None:
    """Line feeds, quotes and names that mean something to a shell included."""
    env = shutil.which("env")
    assert env is not None
    ended = in_container(contained(environment=environment, argv=(env, "-0")))
    assert ended.returncode == 0, ended.stderr
    found = dict(line.partition(b"=")[::2] for line in ended.stdout.split(b"\0") if line)
    for name, value in environment.items():
        assert found[name.encode()] == value.encode()
    assert not [name for name in found if name.startswith(b"STADO_VALUE_")]


def test_a_command_that_has_begun_leaves_a_mark_and_needs_none(tmp_path: Path) -> None:
    """Where the mark cannot be left it runs all the same."""
    for begun, is_there in ((tmp_path / "begun", True), (Path("/nowhere/begun"), False)):
        ended = in_container(contained(argv=("/bin/sh", "-c", "echo x"), begun=begun))
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"x\n", b"")
        assert begun.exists() == is_there


def test_a_command_is_given_to_the_shell_as_it_was_typed() -> None:
    command = "printf %s \"$1$0\"; printf ' %s' '*' \"$A\"; exit 3"
    ended = in_container(contained(argv=("/bin/sh", "-c", command), environment={"A": "x y\n"}))
    assert (ended.returncode, ended.stdout) == (3, b"/bin/sh * x y\n")


def test_what_is_still_ending_after_a_term_keeps_its_container(tmp_path: Path) -> None:
    """The shell before it ends at once, with whose end the container would."""
    begun = tmp_path / "begun"
    saves = f"trap 'sleep 0.3; echo saved; exit 3' TERM; : >{begun}; while :; do sleep 0.01; done"
    command = contained(argv=("/bin/sh", "-c", f"/bin/sh -c {shlex.quote(saves)}; true"))
    shell, _, argv = parts_of(command)
    process = subprocess.Popen(
        [*shell, *argv], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert eventually(begun.exists)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.stdout is not None
    assert process.stdout.readline() == b"saved\n"
    assert process.wait(20) == 128 + signal.SIGTERM


def test_what_a_command_leaves_running_ends_with_it_unless_it_was_told_to_end() -> None:
    command = contained(argv=("/bin/sh", "-c", "sleep 100 >/dev/null 2>&1 & echo $!; exit 4"))
    ended = in_container(command)
    os.kill(int(ended.stdout), signal.SIGKILL)
    assert ended.returncode == 4


@pytest.mark.parametrize("has_bash", [True, False])
def test_an_image_without_bash_is_found_out(tmp_path: Path, has_bash: bool) -> None:
    missing = tmp_path / "no-bash"
    path = os.environ["PATH"] if has_bash else "/nowhere"
    argv = strict_argv(("bash", "-c", "exit 4"), missing)
    ended = in_container(contained(argv=argv, environment={"PATH": path}))
    assert (ended.returncode, missing.exists()) == ((4, False) if has_bash else (127, True))
