"""Programs of ours that run beside us, on our terminal."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence


class ChildProgram:
    """A started program: it shares our output, reads nothing, and is in a process group of its
    own, so that a terminal's Ctrl-C reaches it through its starter only, once."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            argv, env=environment, stdin=subprocess.DEVNULL, process_group=0
        )

    def poll(self) -> int | None:
        """Exit code (negative: the signal), or None while it lives."""
        return self._process.poll()

    def signal(self, signal_number: int) -> None:
        """Nothing happens when it has ended."""
        self._process.send_signal(signal_number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
