"""The console entry point: from here on Ctrl-C ends in silence, or with a sentence.

Imports nothing but what the interpreter has loaded by itself.
"""

from __future__ import annotations

import os
import signal

_INTERRUPTED = 130


def run() -> None:
    """`stado`. While it is being loaded there is nothing to say about an interruption. Where
    somebody has Ctrl-C ignored it stays so."""
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:
        signal.signal(signal.SIGINT, _leave)
    from stado.cli.main import run as run_commands

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_commands()


def _leave(*_: object) -> None:
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    run()
