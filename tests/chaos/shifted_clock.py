"""Starts the command line with a wall clock that a file can shift while it runs:
`python -m tests.chaos.shifted_clock agent run ...`.

No clock of the machine is touched, and none of the kernel's: what is shifted is what this program,
and what it forks, read as the time of day, in stado and in the SDK that signs requests. Times of
files, other programs, and the monotonic clock are as they are.
"""

from __future__ import annotations

import datetime as real
import os
import sys
import time
from typing import Any

FILE_VARIABLE = "CHAOS_CLOCK"
"""Names the file; in it, seconds by which the clock is ahead."""

_real_time = time.time


def ahead_seconds() -> float:
    try:
        with open(os.environ[FILE_VARIABLE]) as file:
            return float(file.read() or 0)
    except (OSError, KeyError, ValueError):
        return 0.0


class _Shifted(real.datetime):
    """Asked for the time, it answers with a common datetime."""

    @classmethod
    def now(cls, tz: real.tzinfo | None = None) -> Any:
        return real.datetime.now(tz) + real.timedelta(seconds=ahead_seconds())


class _ShiftedModule:
    """`datetime`, as a module, for who imports it whole."""

    datetime = _Shifted

    def __getattr__(self, name: str) -> Any:
        return getattr(real, name)


def install() -> None:
    """Before anything of stado is loaded but its clock, and the SDK where the store needs it."""
    time.time = lambda: _real_time() + ahead_seconds()
    import stado.system.clock

    stado.system.clock.datetime = _Shifted  # type: ignore[attr-defined]
    if os.environ.get("STADO_STORE", "").startswith("s3://"):
        import botocore.compat

        botocore.compat.datetime = _ShiftedModule()  # type: ignore[attr-defined, assignment]


def main() -> None:
    install()
    from stado.cli.entry import run

    sys.argv[0] = "stado"
    run()


if __name__ == "__main__":
    main()
