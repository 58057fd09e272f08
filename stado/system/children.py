"""Programs of ours that run beside us, on our terminal."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

_PR_SET_PDEATHSIG = 1


class ChildProgram:
    """A started program: it shares our output, reads nothing, and is in a process group of its
    own, so that a terminal's Ctrl-C reaches it through its starter only, once. It gets TERM when
    its starter is gone, however that ended; what it starts itself does not."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            process_group=0,
            # Takes no lock and imports nothing, so that a thread of ours cannot make it hang.
            preexec_fn=_term_with(os.getpid()),  # noqa: PLW1509
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


def _term_with(starter: int) -> Callable[[], None]:
    """For the child, between fork and exec: prctl(2), which is looked up before the fork."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != starter:
            os.kill(os.getpid(), signal.SIGTERM)

    return ask
