"""A store server that can be killed, and started again over the same data on the same ports."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from tests.servers import Server


class MortalServer:
    """Of a server that somebody else has started: what its process says of itself is enough to
    start it again."""

    def __init__(self, server: Server) -> None:
        own = Path(f"/proc/{server.pid}")
        self._argv = (own / "cmdline").read_text().split("\0")[:-1]
        self._folder = (own / "cwd").readlink()
        self._pid = server.pid
        self._process: subprocess.Popen[bytes] | None = None

    def take_away(self) -> None:
        """All of it, as a host that loses its power, but for what the kernel has yet to write."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def bring_back(self) -> None:
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._argv,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._pid = self._process.pid

    @property
    def log(self) -> str:
        return (self._folder / "server.log").read_text(errors="replace")
