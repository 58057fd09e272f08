"""Whether what is left behind on this machine is nobody's: elsewhere a unit of systemd holds all
that tests start, or another process gets the orphans."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from stado.system.identity import find_process
from stado.system.units import declared_unit


@cache
def _who_gets_orphans() -> str | None:
    unit = declared_unit(Path("/proc/self/cgroup").read_text())
    if unit is not None:
        return f"unit {unit} holds what is started here"
    told = subprocess.run(
        ["/bin/sh", "-c", "sleep 60 >&- 2>&- & echo $!"],
        stdout=subprocess.PIPE,
        check=True,
        timeout=20,
    )
    pid = int(told.stdout)
    try:
        found = find_process(pid)
        return f"process {found.parent} gets orphans" if found and found.parent > 1 else None
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def need_orphans() -> None:
    """Skips a test that leaves something behind where that is somebody's."""
    who = _who_gets_orphans()
    if who is not None:
        pytest.skip(f"{who}: nothing is left behind as nobody's")
