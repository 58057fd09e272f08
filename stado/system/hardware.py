"""What this host has: the part of it that this process may use, limits of a container counted.

It must never import psutil before a number is asked for: a command that shows a job needs none.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path


class LiveHardware:
    """Figures of this host. Where control groups (version 2) set a limit, it counts."""

    def __init__(
        self,
        *,
        cgroup_root: Path = Path("/sys/fs/cgroup"),
        cgroup_membership: Path = Path("/proc/self/cgroup"),
    ) -> None:
        self._cgroup_root = cgroup_root
        self._cgroup_membership = cgroup_membership

    def host_name(self) -> str:
        return platform.node()

    def cpu_count(self) -> float:
        quotas = (_read_cpu_quota(group / "cpu.max") for group in self._groups())
        return min([_usable_cores(), *(quota for quota in quotas if quota is not None)])

    def memory_total_bytes(self) -> int:
        import psutil

        limits = (_read_limit(group / "memory.max") for group in self._groups())
        total: int = psutil.virtual_memory().total
        return min([total, *(limit for limit in limits if limit is not None)])

    def memory_available_bytes(self) -> int:
        import psutil

        left = (_read_memory_left(group) for group in self._groups())
        available: int = psutil.virtual_memory().available
        return max(0, min([available, *(bytes_ for bytes_ in left if bytes_ is not None)]))

    def disk_free_bytes(self, folder: Path) -> int:
        """Free for this account on the file system of an existing folder."""
        status = os.statvfs(folder)
        return status.f_bavail * status.f_frsize

    def _groups(self) -> Iterator[Path]:
        """The control group of this process and all above it: the tightest limit holds."""
        path = self._find_own_group()
        if path is None:
            return
        for part in (path, *path.parents):
            yield self._cgroup_root / part.relative_to("/")

    def _find_own_group(self) -> Path | None:
        for line in _read_text(self._cgroup_membership).splitlines():
            # The one line of version 2; those of version 1 name a controller.
            if line.startswith("0::/"):
                return Path(line.removeprefix("0::"))
        return None


def _usable_cores() -> float:
    if hasattr(os, "sched_getaffinity"):
        return float(len(os.sched_getaffinity(0)))
    return float(os.cpu_count() or 1)


def _read_cpu_quota(path: Path) -> float | None:
    """`cpu.max` holds microseconds of CPU time (or "max") in a period of microseconds."""
    quota, _, period = _read_text(path).strip().partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _read_memory_left(group: Path) -> int | None:
    limit = _read_limit(group / "memory.max")
    used = _read_limit(group / "memory.current")
    if limit is None or used is None:
        return None
    return limit - used + _read_reclaimable(group / "memory.stat")


def _read_reclaimable(path: Path) -> int:
    """File cache that the kernel gives up before it runs out: used, and yet available."""
    for line in _read_text(path).splitlines():
        name, _, value = line.partition(" ")
        if name == "inactive_file":
            return int(value)
    return 0


def _read_limit(path: Path) -> int | None:
    text = _read_text(path).strip()
    return int(text) if text.isdigit() else None


def _read_text(path: Path) -> str:
    """ "" where the kernel offers no such file: no control groups, or no such controller."""
    try:
        return path.read_text()
    except OSError:
        return ""
