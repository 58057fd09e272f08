"""What this host has: the part of it that this process may use, limits of a container counted.

It must never import psutil before a number is asked for: a command that shows a job needs none.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path

from stado.ports import Accelerator
from stado.system.cgroup_mounts import MEMORY_V1, V2, Hierarchy, find_hierarchies
from stado.system.nvidia import NvidiaAccelerators

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class LiveHardware:
    """Figures of this host. Where control groups set a limit, it counts: of memory in either
    version, of cores in version 2."""

    def __init__(
        self,
        *,
        hierarchies: Sequence[Hierarchy] | None = None,
        accelerators: NvidiaAccelerators | None = None,
    ) -> None:
        """Hierarchies: those that are mounted, unless stated."""
        self._hierarchies = hierarchies
        self._accelerators = accelerators

    def host_name(self) -> str:
        return platform.node()

    def cpu_count(self) -> float:
        quotas = (_read_cpu_quota(group / "cpu.max") for group in self._groups(V2))
        return min([_usable_cores(), *(quota for quota in quotas if quota is not None)])

    def memory_total_bytes(self) -> int:
        import psutil

        limits = (_read_memory_limit(group) for group in self._groups(V2, MEMORY_V1))
        total: int = psutil.virtual_memory().total
        return min([total, *(limit for limit in limits if limit is not None)])

    def memory_available_bytes(self) -> int:
        import psutil

        left = (_read_memory_left(group) for group in self._groups(V2, MEMORY_V1))
        available: int = psutil.virtual_memory().available
        return max(0, min([available, *(bytes_ for bytes_ in left if bytes_ is not None)]))

    def disk_free_bytes(self, folder: Path) -> int:
        """Free for this account on the file system of an existing folder."""
        status = os.statvfs(folder)
        return status.f_bavail * status.f_frsize

    def disk_total_bytes(self, folder: Path) -> int:
        status = os.statvfs(folder)
        return status.f_blocks * status.f_frsize

    def accelerators(self) -> list[Accelerator]:
        if self._accelerators is None:
            self._accelerators = NvidiaAccelerators()
        return self._accelerators.look()

    def boot_id(self) -> str | None:
        return _read_text(_BOOT_ID).strip() or None

    def _groups(self, *kinds: str) -> Iterator[Path]:
        """The control groups of this process and all above them: the tightest limit holds."""
        if self._hierarchies is None:
            self._hierarchies = find_hierarchies()
        for hierarchy in self._hierarchies:
            if hierarchy.kind in kinds:
                yield from hierarchy.own_and_above()


def _usable_cores() -> float:
    if hasattr(os, "sched_getaffinity"):
        return float(len(os.sched_getaffinity(0)))
    return float(os.cpu_count() or 1)


def _read_cpu_quota(path: Path) -> float | None:
    """`cpu.max` holds microseconds of CPU time (or "max") in a period of microseconds."""
    quota, _, period = _read_text(path).strip().partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _read_memory_left(group: Path) -> int | None:
    limit = _read_memory_limit(group)
    used = _read_number(group, "memory.current", "memory.usage_in_bytes")
    if limit is None or used is None:
        return None
    return limit - used + _read_reclaimable(group / "memory.stat")


def _read_reclaimable(path: Path) -> int:
    """File cache that the kernel gives up before it runs out: used, and yet available. Version 1
    counts a group alone under the plain name, and with all below it under the other."""
    figures = dict(line.split(" ", 1) for line in _read_text(path).splitlines())
    return int(figures.get("total_inactive_file", figures.get("inactive_file", 0)))


def _read_memory_limit(group: Path) -> int | None:
    return _read_number(group, "memory.max", "memory.limit_in_bytes")


def _read_number(group: Path, *names: str) -> int | None:
    """From the first of these files that holds one; a limit may also be "max"."""
    texts = (_read_text(group / name).strip() for name in names)
    return next((int(text) for text in texts if text.isdigit()), None)


def _read_text(path: Path) -> str:
    """ "" where the kernel offers no such file: no control groups, or no such controller."""
    try:
        return path.read_text()
    except OSError:
        return ""
