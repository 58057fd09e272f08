"""A command on a terminal of its own, of a size that the test says."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """`stado` with stdout and stderr on it."""

    def __init__(
        self,
        *args: str,
        environment: Mapping[str, str],
        columns: int = 80,
        lines: int = 24,
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        values = {
            name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stado.cli.main", *args],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={"TERM": "xterm-256color", **values},
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(theirs)
        self._seen = b""

    @property
    def raw(self) -> str:
        """All that was sent to it so far."""
        return self._seen.decode(errors="replace")

    @property
    def text(self) -> str:
        """Without control codes."""
        return _CONTROL.sub("", self.raw).replace("\r\n", "\n")

    def press(self, keys: bytes) -> None:
        """As somebody does at the keyboard: Ctrl-C is `\x03`."""
        os.write(self._ours, keys)

    def wait_for(self, text: str, *, times: int = 1, seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while self.text.count(text) < times:
            assert time.monotonic() < end, f"no {text!r} in {self.text!r}"
            self._read(0.2)

    def end(self, seconds: float = 30) -> int:
        """Its exit code, once it has ended and all was read."""
        end = time.monotonic() + seconds
        while self._read(0.2):
            assert time.monotonic() < end, self.text
        code = self.process.wait(timeout=seconds)
        os.close(self._ours)
        return code

    def _read(self, seconds: float) -> bool:
        """False once nobody can write to it any more."""
        if not select.select([self._ours], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:
            return False
        self._seen += data
        return bool(data)


def _take_terminal() -> None:
    """In the new process: its stdin is its controlling terminal, whose keys signal it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
