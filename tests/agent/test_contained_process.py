"""A command in a container, beside a client and an engine that fail: nothing is taken for its end
but what the engine says of it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stado.core.spec import Spec
from stado.ports import Command
from stado.system.clock import LiveClock
from stado.system.engine import DockerEngine
from stado.system.processes import LiveProcesses
from stado_agent.command_ending import CommandEnding
from stado_agent.contained_process import ContainedProcess, LastWords
from stado_agent.container import (
    Belonging,
    ContainerCommand,
    ReadyImage,
    client_argv,
    client_environment,
)
from tests.core.records import queued
from tests.engines import StandIn, run_stand_in
from tests.system.commands import WAIT_SECONDS, Printed, eventually


@pytest.fixture
def docker() -> Iterator[StandIn]:
    with run_stand_in() as stand_in:
        yield stand_in


class Started:
    """A command in a container of a stand-in."""

    def __init__(self, docker: StandIn, folder: Path, script: str, **image: object) -> None:
        self.docker = docker
        self.printed, self.said = Printed(), list[str]()
        self.troubles: list[str | None] = []
        record = queued(spec=Spec(command=script))
        command = ContainerCommand(
            image=ReadyImage(id=docker.add_image("lab/train:1", **image), user=None),
            argv=("/bin/sh", "-c", script),
            environment={"A": "1"},
            mounts=[folder],
            folder=folder,
            belonging=Belonging(record=record, supervisor="1.2.boot", agent="local@host", number=1),
            id_file=folder / "container-1",
            begun=folder / "begun-1",
            memory_bytes=None,
            shared_memory_bytes=1,
        )
        words = LastWords(self.printed)
        self.processes, self.clock = LiveProcesses(), LiveClock()
        self.client = self.processes.start(
            Command(
                name="test",
                argv=client_argv(str(docker.client), command),
                environment=client_environment({}, command.environment),
                folder=folder,
                sink=words,
            )
        )
        self.process = ContainedProcess(
            DockerEngine(str(docker.client), {}, seconds_max=WAIT_SECONDS),
            self.clock,
            self.client,
            command,
            words=words,
            say=self.said.append,
            tell=self.troubles.append,
        )

    def wait(self) -> int:
        code = None
        ends = self.clock.monotonic() + WAIT_SECONDS
        while code is None and self.clock.monotonic() < ends:
            code = self.process.wait(0.1)
        assert code is not None
        return code

    def wait_for_output(self, text: str) -> None:
        assert eventually(lambda: text in self.printed.text)

    def kill_client(self) -> None:
        os.kill(self.client.identity.pid, signal.SIGKILL)
        assert eventually(lambda: self.client.wait(0) is not None)

    def stop(self, grace_seconds: float, *, patience_seconds: float = WAIT_SECONDS) -> bool:
        ending = CommandEnding(
            self.clock, self.processes, self.process, job_id="x", tell=self.troubles.append
        )
        return ending.stop(grace_seconds=grace_seconds, patience_seconds=patience_seconds)

    def close(self) -> None:
        """And nothing of it is left."""
        assert self.process.close(WAIT_SECONDS)
        assert self.docker.containers() == []


@pytest.mark.parametrize("code", [0, 3, 125, 127])
def test_the_exit_code_is_the_commands_own(docker: StandIn, tmp_path: Path, code: int) -> None:
    """Also where it is one that the client uses for itself."""
    started = Started(docker, tmp_path, f'echo "A is $A, $OF_THE_IMAGE, in $PWD"; exit {code}')
    assert started.wait() == code
    assert started.process.never_started is None
    assert started.process.living() == []
    started.close()
    assert started.printed.text == f"A is 1, yes, in {tmp_path}\n"


def test_a_command_that_never_started_is_told_from_one_that_ended(
    docker: StandIn, tmp_path: Path
) -> None:
    """R2, R36"""
    started = Started(docker, tmp_path, "true", unstartable='exec: "/bin/sh": permission denied')
    assert started.wait() == 127
    never = started.process.never_started
    assert never is not None
    assert (never.why, never.by_job) == ('exec: "/bin/sh": permission denied', True)
    started.close()


def test_an_image_without_a_shell_is_told_from_a_command_that_is_not_found(
    docker: StandIn, tmp_path: Path
) -> None:
    """The engine's init exits with the same code as a shell: what has begun leaves a mark."""
    started = Started(docker, tmp_path, "true", no_shell=True)
    assert started.wait() == 127
    never = started.process.never_started
    assert never is not None
    assert never.by_job
    assert never.why.startswith("its image has no /bin/sh to execute it by: [FATAL tini")
    started.close()


def test_an_engine_that_makes_no_container_has_failed_itself(
    docker: StandIn, tmp_path: Path
) -> None:
    started = Started(docker, tmp_path, "true", refuses="no space left on device")
    assert started.wait() == 125
    never = started.process.never_started
    assert never is not None
    assert not never.by_job
    assert never.why == "Error response from daemon: no space left on device"
    started.close()


def test_an_engine_that_is_away_has_started_nothing_known(docker: StandIn, tmp_path: Path) -> None:
    """Until it says so."""
    docker.stop()
    started = Started(docker, tmp_path, "true")
    assert eventually(lambda: started.client.wait(0) is not None)
    assert started.process.wait(0.1) is None
    assert started.process.living() == [started.client.identity]
    assert started.client.close(WAIT_SECONDS)


def test_memory_is_told_by_the_engine_and_not_by_a_code(docker: StandIn, tmp_path: Path) -> None:
    started = Started(docker, tmp_path, "kill -9 $$", oom=True)
    assert started.wait() == 137
    assert started.process.memory_exceeded() is not None
    started.close()
    other = tmp_path / "other"
    other.mkdir()
    started = Started(docker, other, "kill -9 $$")
    assert started.wait() == 137
    assert started.process.memory_exceeded() is None
    started.close()


def test_term_reaches_the_command_through_the_engine(docker: StandIn, tmp_path: Path) -> None:
    script = "trap 'echo saving; exit 5' TERM; echo begun; while :; do sleep 0.01; done"
    started = Started(docker, tmp_path, script)
    started.wait_for_output("begun")
    assert started.stop(WAIT_SECONDS)
    assert started.wait() == 5
    started.close()
    assert started.printed.text.endswith("saving\n")


def test_what_heeds_no_term_is_killed_with_its_container(docker: StandIn, tmp_path: Path) -> None:
    started = Started(docker, tmp_path, "trap '' TERM; echo $$; while :; do sleep 0.01; done")
    started.wait_for_output("\n")
    pid = int(started.printed.text)
    assert started.stop(0.1)
    assert started.processes.identify(pid) is None
    assert started.wait() != 0
    started.close()


def test_a_client_that_dies_is_not_the_end_of_its_command(docker: StandIn, tmp_path: Path) -> None:
    """Nor its success: the command's own code is waited for."""
    go_on = tmp_path / "go-on"
    script = f"echo begun; until [ -e {go_on} ]; do sleep 0.01; done; exit 7"
    started = Started(docker, tmp_path, script)
    started.wait_for_output("begun")
    started.kill_client()
    assert started.process.wait(0.01) is None
    assert started.process.living() == [started.client.identity]
    go_on.touch()
    assert started.wait() == 7
    started.close()


def test_a_command_whose_client_died_is_stopped_all_the_same(
    docker: StandIn, tmp_path: Path
) -> None:
    started = Started(docker, tmp_path, "trap '' TERM; echo $$; while :; do sleep 0.01; done")
    started.wait_for_output("\n")
    pid = int(started.printed.text)
    started.kill_client()
    assert started.stop(0.05)
    assert started.processes.identify(pid) is None
    started.close()


def test_a_command_whose_engine_is_silent_counts_as_living(docker: StandIn, tmp_path: Path) -> None:
    """R2, R36: with client and command both gone: nobody knows, and that is told."""
    started = Started(docker, tmp_path, "echo $$; while :; do sleep 0.01; done")
    started.wait_for_output("\n")
    with docker.out_of_reach():
        started.kill_client()
        os.killpg(os.getpgid(int(started.printed.text)), signal.SIGKILL)
        assert not started.stop(0.0, patience_seconds=1.3)
        assert started.process.living() == [started.client.identity]
        assert started.process.wait(0) is None
    told = [text for text in started.troubles if text is not None]
    assert any(text.startswith("whether its container still runs is not known") for text in told)
    (killed,) = {text for text in told if text.startswith("killed 3 times and still alive")}
    assert ": container " in killed
    assert "No such file" in killed
    assert started.stop(0.0)
    assert started.wait() != 0
    started.close()


def test_a_container_that_somebody_removed_is_no_success(docker: StandIn, tmp_path: Path) -> None:
    """R3"""
    started = Started(docker, tmp_path, "echo begun; while :; do sleep 0.01; done")
    started.wait_for_output("begun")
    started.kill_client()
    (container,) = docker.containers()
    DockerEngine(str(docker.client), {}).remove(container)
    assert started.wait() != 0
    assert started.said == ["its container was removed by somebody: how it ended is not known"]
    assert started.process.never_started is None
    started.close()


def test_last_words_are_the_clients_complaint() -> None:
    words = LastWords(lambda _: None)
    words(memoryview(b"x" * 10_000 + b"\ndocker: Error response from daemon: no\n\nRun 'docker'\n"))
    assert words.line == "Error response from daemon: no"
    assert LastWords(lambda _: None).line == "docker failed without a word"
