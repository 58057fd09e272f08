"""Checks of this host, as an agent of it would find it: its disk, its accelerators."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from stado.cli.findings import Finding

if TYPE_CHECKING:
    from stado.ports import Hardware

_SHARE_MIN = 0.05
_BYTES_MIN = 1 << 30
"""What an agent leaves free unless it is told otherwise: the smaller of the two."""


def host_findings(hardware: Hardware, work_dir: Path) -> Iterator[Finding]:
    yield _disk_finding(hardware, work_dir)
    yield from _accelerator_findings(hardware)


def _disk_finding(hardware: Hardware, work_dir: Path) -> Finding:
    """Of the file system that the folder is on, or will be on once an agent makes it."""
    from stado.cli.render import size_text

    there = next((one for one in (work_dir, *work_dir.parents) if one.is_dir()), Path("/"))
    try:
        free, total = hardware.disk_free_bytes(there), hardware.disk_total_bytes(there)
    except OSError as error:
        text = f"the disk of {work_dir} cannot be looked at: {error.strerror}"
        return Finding("host", "disk_unknown", text, unknown=True)
    text = f"{size_text(free)} of {size_text(total)} are free below {work_dir}"
    if free < min(_BYTES_MIN, total * _SHARE_MIN):
        remedy = "free some, or name another folder with --work-dir: an agent takes no jobs so"
        return Finding("host", "disk_full", text, remedy)
    return Finding("host", "disk_free", text)


def _accelerator_findings(hardware: Hardware) -> Iterator[Finding]:
    from stado.cli.render import plural
    from stado.errors import AcceleratorsUnknown

    try:
        found = hardware.accelerators()
    except AcceleratorsUnknown as error:
        yield Finding(
            "host",
            "driver_silent",
            f"this host has a driver for GPUs, and what it drives is not known: {error.strerror}",
            "`nvidia-smi` should answer within seconds: load the driver anew, or reboot the host",
        )
        return
    ailing = [one for one in found if one.ailment is not None]
    for one in ailing:
        yield Finding(
            "host",
            "accelerator_ails",
            f"GPU {one.index} of this host is not given to jobs: {one.ailment}",
            "mend it; jobs get it again by themselves",
        )
    if not ailing:
        text = f"{plural(len(found), 'GPU')} of this host can be given to jobs"
        yield Finding("host", "accelerators_known", text)
