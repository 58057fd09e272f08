"""A small disk of one agent: a file system in memory, in a mount namespace that outlives the agent,
as a host's disk outlives what runs there (Linux).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.fleet import wait_for

_FILLER = "filler"


class SmallDisk:
    """Mounted over `folder` for those who enter it."""

    def __init__(self, folder: Path, holder: subprocess.Popen[bytes]) -> None:
        self._folder = folder
        self._holder = holder

    @property
    def seen_from_outside(self) -> Path:
        return Path(f"/proc/{self._holder.pid}/root{self._folder}")

    def entering(self, argv: list[str]) -> list[str]:
        """What starts a program that sees the disk."""
        namespaces = ["--mount"] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        if os.geteuid() != 0:
            namespaces.append("--mount")
        return ["nsenter", f"--target={self._holder.pid}", *namespaces, "--", *argv]

    def fill(self) -> None:
        """To the last byte."""
        with (
            contextlib.suppress(OSError),
            (self.seen_from_outside / _FILLER).open("wb", buffering=0) as file,
        ):
            while True:
                file.write(bytes(64 * 1024))

    def free(self) -> None:
        (self.seen_from_outside / _FILLER).unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, *, megabytes: int) -> Iterator[SmallDisk]:
    folder.mkdir(parents=True, exist_ok=True)
    namespaces = ["unshare", "--mount"]
    if os.geteuid() != 0:
        namespaces += ["--user", "--map-root-user"]
    mount = f'mount -t tmpfs -o size={megabytes}m tmpfs "$0" && echo && exec sleep infinity'
    holder = subprocess.Popen(
        [*namespaces, "sh", "-c", mount, str(folder)],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n", "this host lets nobody mount a small disk"
        disk = SmallDisk(folder, holder)
        wait_for(disk.seen_from_outside.is_dir)
        yield disk
    finally:
        holder.kill()
        holder.wait()
