"""A shell on a real terminal of its own, at which somebody types."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tests.docs.screen import Screen
from tests.docs.terminal import environment_of, kill_all_of

_PROMPT = "$ "


class Session:
    """`home` is as for a page's terminal, `folder` in it where the shell is. `columns` wide,
    `height` lines high. `environment`: over that of a page."""

    def __init__(
        self,
        home: Path,
        *,
        folder: str = ".",
        columns: int,
        height: int = 40,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._home = home
        self.screen = Screen(columns, height)
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, columns, 0, 0))
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "--noediting", "-i"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=home / folder,
            env={
                **environment_of(home),
                "TERM": "xterm-256color",
                "PS1": f"\n{_PROMPT}",
                "PS2": "> ",
                **environment,
            },
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(theirs)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._wait(60)

    def type(self, command: str, *, seconds: float = 60) -> None:
        """And waits until the shell asks for more. Raises `TimeoutError`."""
        os.write(self._ours, f"{command}\n".encode())
        self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        """Until there is a prompt, and nothing comes behind it for a moment."""
        end = time.monotonic() + seconds
        while self._read() or self.screen.prompt != _PROMPT:
            if time.monotonic() > end:
                shown = "\n".join(self.screen.text[-10:])
                raise TimeoutError(f"no prompt within {seconds:g} s:\n{shown}")

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], 0.2)[0]:
            return False
        text = self._decoder.decode(os.read(self._ours, 1 << 16))
        text = text.replace(str(self._home), "/home/ada")
        self._rest = self.screen.feed(self._rest + text)
        return True

    def close(self) -> None:
        """Kills the shell and all that was started from it."""
        kill_all_of(self._home)
        self._shell.kill()
        self._shell.wait()
        with contextlib.suppress(OSError):
            os.close(self._ours)


def _take_terminal() -> None:
    """In the new process: its stdin is its controlling terminal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
