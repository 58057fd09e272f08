"""Docker, asked by its client: short calls with a time limit, each a process of its own.

Whatever the client says when it exits with another code than 0 is an error here: "no such
container" and "no answer" differ in words alone, and words change. That something is gone is
believed of a list alone, which came with a success.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

from stado.errors import EngineFailed
from stado.ports import ContainerState, EngineFacts

_SECONDS_MAX = 10.0
_FACTS_SECONDS_MAX = 5.0
_REMOVE_FACTOR = 3.0
"""So much longer a removal may take: it waits for the container's processes to be gone."""

_FACTS = "{{.ServerVersion}}\t{{.OSType}}\t{{json .SecurityOptions}}"
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+~-]{0,40}")
_ID = re.compile(r"[0-9a-f]{64}")
_IMAGE_ID = re.compile(r"sha256:[0-9a-f]{64}")
_LIVING = frozenset({"running", "paused", "restarting"})
_NEVER = "0001-01-01T"
"""How the engine writes an instant that has not come."""

_COMPLAINT_MAX = 300


class _Complaint(EngineFailed):
    """The client's answer, which may be that something is not there. Everything else is none."""


class DockerEngine:
    """`program`: the client, by name or path. `environment`: what says where its engine is."""

    def __init__(
        self,
        program: str,
        environment: Mapping[str, str],
        *,
        seconds_max: float = _SECONDS_MAX,
    ) -> None:
        self._program = program
        self._environment = dict(environment)
        self._seconds_max = seconds_max

    @property
    def program(self) -> str:
        return self._program

    def facts(self) -> EngineFacts:
        seconds_max = min(_FACTS_SECONDS_MAX, self._seconds_max)
        answer = self._ask("info", "--format", _FACTS, seconds_max=seconds_max)
        version, _, rest = answer.strip("\n").partition("\t")
        system, _, options = rest.partition("\t")
        if not _VERSION.fullmatch(version) or system != "linux":
            raise EngineFailed("docker info tells of no engine for Linux containers")
        return EngineFacts(f"docker {version}", as_us="name=rootless" in options)

    def find_image(self, image: str) -> str | None:
        """Lists know images by fewer names than `inspect` does. Who takes one for missing that is
        there pulls it, and gets the same; so an engine that answers otherwise is enough."""
        try:
            told = self._ask("image", "inspect", "--format", "{{.Id}}", "--", image).strip()
        except _Complaint:
            self.facts()
            return None
        if not _IMAGE_ID.fullmatch(told):
            raise EngineFailed("docker names an image in a way that is not known")
        return told

    def containers(self, label: str, *, telling: str) -> dict[str, str]:
        columns = f'{{{{.ID}}}}\t{{{{.Label "{telling}"}}}}'
        told = self._list(f"label={label}", columns)
        found = dict(line.partition("\t")[::2] for line in told)
        if not all(map(_ID.fullmatch, found)):
            raise EngineFailed("docker lists containers in a way that is not known")
        return found

    def state(self, container: str) -> ContainerState | None:
        try:
            told = self._ask("container", "inspect", "--format", "{{json .State}}", container)
        except _Complaint:
            if self._is_there(container):
                raise
            return None
        return _state(told)

    def signal(self, container: str, signal_number: int) -> None:
        name = signal.Signals(signal_number).name
        try:
            self._ask("container", "kill", "--signal", name, container)
        except _Complaint:
            found = self.state(container)
            if found is not None and found.lives:
                raise

    def remove(self, container: str) -> None:
        try:
            self._ask(
                *("container", "rm", "--force", "--volumes", container),
                seconds_max=_REMOVE_FACTOR * self._seconds_max,
            )
        except _Complaint:
            if self._is_there(container):
                raise

    def _is_there(self, container: str) -> bool:
        return container in self._list(f"id={container}", "{{.ID}}")

    def _list(self, which: str, columns: str) -> list[str]:
        """A line each."""
        options = ("--all", "--no-trunc", "--filter", which, "--format", columns)
        return self._ask("container", "ls", *options).splitlines()

    def _ask(self, *arguments: str, seconds_max: float | None = None) -> str:
        seconds = self._seconds_max if seconds_max is None else seconds_max
        try:
            answer = subprocess.run(
                [self._program, *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            what = " ".join(word for word in arguments[:2] if not word.startswith("-"))
            raise EngineFailed(f"docker {what} has not answered within {seconds:g} s") from None
        except OSError as error:
            raise EngineFailed(f"{self._program}: {error.strerror or error}") from None
        if answer.returncode != 0:
            raise _Complaint(_complaint(answer.stderr))
        return answer.stdout.decode("utf-8", "replace")


def find_docker(program: str, environment: Mapping[str, str]) -> DockerEngine | None:
    """None when there is no such program. Whether an engine answers it is another question."""
    path = shutil.which(program, path=environment.get("PATH"))
    return None if path is None else DockerEngine(os.path.abspath(path), environment)


def _complaint(stderr: bytes) -> str:
    lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines()]
    told = next((line for line in lines if line), "docker failed without a word")
    return told[:_COMPLAINT_MAX]


def _state(told: str) -> ContainerState:
    try:
        fields: dict[str, Any] = json.loads(told)
        status, started = fields["Status"], fields["StartedAt"]
        return ContainerState(
            lives=status in _LIVING,
            was_started=bool(started) and not started.startswith(_NEVER),
            exit_code=int(fields["ExitCode"]),
            out_of_memory=bool(fields["OOMKilled"]),
            error=str(fields.get("Error") or ""),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineFailed(
            f"docker says what is not understood of a container: {error!r}"
        ) from None
