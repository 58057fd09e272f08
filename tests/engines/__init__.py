"""A container engine that needs no right and no image: what runs in its containers are processes
of this machine. What it cannot show is what only a kernel's namespaces do.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PROGRAM = Path(__file__).with_name("docker.py")
_START_SECONDS_MAX = 20.0


class StandIn:
    """A running one. `client` is the program that stands for `docker`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.client = folder / "docker"
        program = _PROGRAM.read_text(encoding="utf-8")
        self.client.write_text(f"#!{sys.executable} -SE\n{program}", encoding="utf-8")
        self.client.chmod(0o755)
        for name in ("images", "registry"):
            (folder / f"{name}.json").write_text("{}")
        self._process = self._start()

    # --- images -------------------------------------------------------------------------

    def add_image(self, name: str, **behaviour: Any) -> str:
        """One that the engine has; its id. `oom`: what runs in it meets its limit of memory;
        `path`: of its programs; `no_shell`; `refuses`, `unstartable`: why no container of it can be
        made, or started."""
        return self._add("images", name, behaviour)

    def offer_image(self, name: str, **behaviour: Any) -> str:
        """One that it can pull, in `pull_seconds`."""
        return self._add("registry", name, behaviour)

    def _add(self, where: str, name: str, behaviour: dict[str, Any]) -> str:
        path = self._folder / f"{where}.json"
        known = json.loads(path.read_text())
        image_id = f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
        path.write_text(json.dumps(known | {name: {"id": image_id, **behaviour}}))
        return image_id

    # --- what happens to it -------------------------------------------------------------

    def freeze(self) -> None:
        """It answers nobody; what runs goes on."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    @contextmanager
    def out_of_reach(self) -> Iterator[None]:
        """Its client cannot be executed."""
        hidden = self.client.with_name("hidden")
        self.client.rename(hidden)
        try:
            yield
        finally:
            hidden.rename(self.client)

    @property
    def answers(self) -> bool:
        return self._process.poll() is None

    # --- looking ------------------------------------------------------------------------

    def calls(self, *words: str) -> list[list[str]]:
        """Arguments of the calls that began with these."""
        try:
            lines = (self._folder / "calls").read_text().splitlines()
        except FileNotFoundError:
            return []
        calls: list[list[str]] = [json.loads(line) for line in lines]
        return [call for call in calls if tuple(call[: len(words)]) == words]

    def containers(self) -> list[str]:
        """The ids of all, whatever their state."""
        told = subprocess.run(
            [str(self.client), "container", "ls", "--filter", "all", "--format", "{{.ID}}"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        return told.stdout.split()

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-SE", str(_PROGRAM), "serve", str(self._folder)],
            stdout=subprocess.DEVNULL,  # Whoever reads ours shall not wait for its end.
            start_new_session=True,
        )
        deadline = time.monotonic() + _START_SECONDS_MAX
        while not (self._folder / "socket").exists():
            assert time.monotonic() < deadline, "the stand-in for an engine does not start"
            assert process.poll() is None
            time.sleep(0.005)
        return process


@contextmanager
def run_stand_in() -> Iterator[StandIn]:
    """In a folder with a short name: a socket's may not be long. What runs in its containers at the
    end is killed."""
    folder = Path(tempfile.mkdtemp(prefix="stado-d-"))
    stand_in = StandIn(folder)
    try:
        yield stand_in
    finally:
        stand_in.thaw()
        for container in stand_in.containers() if stand_in.answers else []:
            removal = [str(stand_in.client), "container", "rm", container]
            subprocess.run(removal, timeout=20, check=False, stdout=subprocess.DEVNULL)
        stand_in.stop()
        shutil.rmtree(folder, ignore_errors=True)
