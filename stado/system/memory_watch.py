"""What tells that a command has used more memory than it may: the kernel's counters where it has
a group that counts, and otherwise a look at its processes now and then.

Its answer outlives the group.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stado.ports import ProcessIdentity
from stado.sizes import in_words
from stado.system.control_group import read_of_group, write_to_group

_logger = logging.getLogger(__name__)

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_NEARLY = 0.95

_CORE_SHARE_MAX = 0.01
"""Of one core, for looks at the processes: where there are thousands, one look costs much."""
_PAUSE_SECONDS_MAX = 10.0
_GROWTH = 0.05
_SHARING_SECONDS = 30.0

_HOST_IS_OUT = "the host ran out of memory, and the kernel ended a process of it"


class MemoryWatch:
    """Of one command. `group` is the folder of a group that counts its memory, if there is one."""

    def __init__(self, *, limit_bytes: int | None, group: Path | None) -> None:
        self._limit_bytes = limit_bytes
        self._group = group
        self._enforced = False
        self._answer: str | None = None
        self._next_look_at = float("-inf")
        self._shares = _Sharing()

    def limit(self) -> None:
        """Lets the kernel enforce the limit; where it refuses, looks have to do."""
        if self._group is None or self._limit_bytes is None:
            return
        try:
            _set_limit(self._group, self._limit_bytes)
            self._enforced = True
        except OSError as error:
            _logger.warning("event=no_memory_limit group=%s error=%s", self._group, error)

    def look(self, living: Callable[[], Iterable[ProcessIdentity]]) -> str | None:
        """A sentence from the first look on that found it guilty."""
        if self._answer is None:
            self._answer = self._read_counters() or self._weigh(living)
        return self._answer

    def look_last(self) -> None:
        """Before the group is removed."""
        self.look(lambda: ())

    def _read_counters(self) -> str | None:
        if self._group is None or not _counted(self._group, "oom_kill"):
            return None
        ours = self._limit_bytes is not None and _was_reached(self._limit_bytes, self._group)
        return self._too_much() if ours else _HOST_IS_OUT

    def _weigh(self, living: Callable[[], Iterable[ProcessIdentity]]) -> str | None:
        if self._limit_bytes is None or self._enforced or time.monotonic() < self._next_look_at:
            return None
        began = time.thread_time()
        pids = [process.pid for process in living()]
        exceeded = self._exceeds(pids, self._limit_bytes)
        cost_seconds = time.thread_time() - began
        pause_seconds = min(cost_seconds / _CORE_SHARE_MAX, _PAUSE_SECONDS_MAX)
        self._next_look_at = time.monotonic() + pause_seconds
        return self._too_much() if exceeded else None

    def _exceeds(self, pids: Sequence[int], limit_bytes: int) -> bool:
        resident = sum(map(_resident_bytes, pids))
        if resident <= limit_bytes or not self._shares.in_doubt(resident, limit_bytes):
            return False
        # Pages that forked workers share count in each of them; only this is exact, and slow.
        exceeded = sum(map(_proportional_bytes, pids)) > limit_bytes
        if not exceeded:
            self._shares = _Sharing(resident, time.monotonic())
        return exceeded

    def _too_much(self) -> str:
        assert self._limit_bytes is not None
        return f"it used more than the {in_words(self._limit_bytes)} of memory that it stated"


@dataclass(frozen=True, slots=True)
class _Sharing:
    """How much was resident when it was last found that the processes share enough of it."""

    resident_bytes: int = 0
    found_at: float = float("-inf")
    """Monotonic."""

    def in_doubt(self, resident_bytes: int, limit_bytes: int) -> bool:
        """What is shared can also become each one's own without being more."""
        grown = resident_bytes - self.resident_bytes >= _GROWTH * limit_bytes
        return grown or time.monotonic() - self.found_at >= _SHARING_SECONDS


def _set_limit(group: Path, limit_bytes: int) -> None:
    """Swap counts as memory, or is not given at all: otherwise a command that uses too much
    would crawl instead of being ended."""
    limit = str(limit_bytes).encode()
    if (group / "memory.max").exists():
        write_to_group(f"{group}/memory.max", limit)
        swap = (f"{group}/memory.swap.max", b"0")
    else:
        write_to_group(f"{group}/memory.limit_in_bytes", limit)
        swap = (f"{group}/memory.memsw.limit_in_bytes", limit)
    if os.path.exists(swap[0]):
        write_to_group(*swap)


def _counted(group: Path, name: str) -> int:
    """A counter of the group, by either version's file."""
    text = read_of_group(f"{group}/memory.events") or read_of_group(f"{group}/memory.oom_control")
    for line in text.decode().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _was_reached(limit_bytes: int, group: Path) -> bool:
    """Or was it a limit of a group around this one, or of the host? Version 1 says only how much
    it was at most, and newer kernels stop some pages short of the limit."""
    if _counted(group, "oom"):
        return True
    names = ("memory.max_usage_in_bytes", "memory.memsw.max_usage_in_bytes")
    most = max(int(read_of_group(f"{group}/{name}") or 0) for name in names)
    return most >= _NEARLY * limit_bytes


def _resident_bytes(pid: int) -> int:
    if not os.path.exists("/proc/self/statm"):
        return _resident_bytes_by_psutil(pid)
    fields = _read_of_process(pid, "statm").split()
    return int(fields[1]) * _PAGE_BYTES if fields else 0


def _proportional_bytes(pid: int) -> int:
    """Where it may not be read, what the process shares with nobody's files."""
    for line in _read_of_process(pid, "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    fields = _read_of_process(pid, "statm").split()
    if not fields:
        return 0 if os.path.exists("/proc/self/statm") else _resident_bytes_by_psutil(pid)
    return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES


def _resident_bytes_by_psutil(pid: int) -> int:
    import psutil

    try:
        resident: int = psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return 0
    return resident


def _read_of_process(pid: int, name: str) -> str:
    """ "" when the process is gone, or not ours to look into."""
    try:
        with open(f"/proc/{pid}/{name}") as file:
            return file.read()
    except OSError:
        return ""
