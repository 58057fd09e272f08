"""What Docker's client is asked, and what is believed of its answers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stado.errors import EngineFailed
from stado.ports import EngineFacts
from stado.system.engine import DockerEngine, find_docker
from tests.engines import StandIn, run_stand_in

NOBODY = "f" * 64


@pytest.fixture
def docker() -> Iterator[StandIn]:
    with run_stand_in() as stand_in:
        yield stand_in


def engine_of(docker: StandIn, *, seconds_max: float = 20.0) -> DockerEngine:
    return DockerEngine(str(docker.client), {}, seconds_max=seconds_max)


def scripted(folder: Path, script: str) -> DockerEngine:
    program = folder / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return DockerEngine(str(program), {"PATH": "/bin:/usr/bin"}, seconds_max=20)


def test_an_engine_that_answers_is_named_with_its_version(docker: StandIn) -> None:
    assert engine_of(docker).facts() == EngineFacts("docker 27.5.1", as_us=False)


def test_a_rootless_engine_is_told_apart(tmp_path: Path) -> None:
    """Its root is the agent's own user."""
    engine = scripted(tmp_path, """printf '28.2.2\\tlinux\\t["name=rootless"]\\n'""")
    assert engine.facts() == EngineFacts("docker 28.2.2", as_us=True)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo 'Cannot connect to the Docker daemon at unix:///x.' >&2; exit 1", "Cannot connect"),
        ("printf '\\t\\tnull\\n'", "no engine for Linux containers"),
        ("printf '28.0\\twindows\\t[]\\n'", "no engine for Linux containers"),
        ("printf '\\033[2J\\tlinux\\t[]\\n'", "no engine for Linux containers"),
        ("exit 9", "without a word"),
    ],
)
def test_what_does_not_answer_as_an_engine_is_none(tmp_path: Path, script: str, told: str) -> None:
    with pytest.raises(EngineFailed, match=told):
        scripted(tmp_path, script).facts()


def test_an_image_is_found_by_its_name_and_told_by_its_content(docker: StandIn) -> None:
    image_id = docker.add_image("lab/train:1")
    assert engine_of(docker).find_image("lab/train:1") == image_id
    assert engine_of(docker).find_image("lab/train:2") is None


def test_what_an_engine_that_is_away_has_is_not_known(docker: StandIn) -> None:
    """Absence and silence differ, whatever is asked."""
    docker.stop()
    engine = engine_of(docker)
    for ask in (
        lambda: engine.find_image("lab/train:1"),
        lambda: engine.containers("a=b", telling="a"),
        lambda: engine.state(NOBODY),
        lambda: engine.signal(NOBODY, signal.SIGTERM),
        lambda: engine.remove(NOBODY),
    ):
        with pytest.raises(EngineFailed, match="Cannot connect"):
            ask()


def test_an_engine_that_does_not_answer_is_not_waited_for(docker: StandIn) -> None:
    docker.freeze()
    engine = engine_of(docker, seconds_max=0.1)
    with pytest.raises(EngineFailed, match=r"docker info has not answered within 0\.1 s"):
        engine.facts()
    with pytest.raises(EngineFailed, match=r"docker container kill has not answered"):
        engine.signal(NOBODY, signal.SIGTERM)
    with pytest.raises(EngineFailed, match=r"docker container rm has not answered within 0\.3 s"):
        engine.remove(NOBODY)


def test_what_is_not_there_is_gone_by_the_engines_own_list(docker: StandIn) -> None:
    engine = engine_of(docker)
    assert engine.containers("a=b", telling="a") == {}
    assert engine.state(NOBODY) is None
    engine.signal(NOBODY, signal.SIGTERM)
    engine.remove(NOBODY)


def test_a_host_without_the_program_has_no_engine(tmp_path: Path) -> None:
    assert find_docker("docker", {"PATH": str(tmp_path)}) is None
