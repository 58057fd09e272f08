"""What jobs started on this host, and who answers for it: found by what stands in the environments
of processes, which a child has from its parent unless it is given another.

A process of a job that runs descends from its supervisor, which adopts orphans. One that has lost
its supervisor descends from the host's first process, or from a user's systemd.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from stado.errors import Refused
from stado.ports import HostProcess, ReapEnd
from stado.system.identity import ProcessStatus, all_processes, find_process
from stado.system.units import declared_unit

_JOB_VARIABLE = b"STADO_JOB_ID"
_EPOCH_VARIABLE = b"STADO_EPOCH"
_ENVIRONMENT_BYTES_MAX = 8 * 1024 * 1024
_FOREBEARS_MAX = 200
_GROUP_OF_SUPERVISOR = re.compile(r"/stado-([0-9]+)-([0-9]+)(?=[-/\n]|$)")
_KILL_SECONDS = 5.0
_PAUSE_SECONDS = 0.05
_LOOKS = 5
"""At what somebody seems to answer for by now, before it is left alone."""


class LiveHostProcesses:
    """Of a Linux host."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def look(self) -> tuple[list[HostProcess], int]:
        if not (self._proc / "self" / "environ").exists():
            raise Refused(
                "processes_not_told",
                f"this system does not tell what stands in the environment of processes "
                f"({self._proc}): leftovers can be looked for on Linux alone",
            )
        boot_at = self._boot_at()
        found: list[HostProcess] = []
        unseen = 0
        for one in all_processes():
            try:
                environment = self._environment(one.identity.pid)
                seen = None if one.zombie else self._seen(one, environment, boot_at)
            except PermissionError:
                unseen += 1
                continue
            except OSError:
                continue  # It has ended, or is the kernel's.
            if seen is not None:
                found.append(seen)
        return sorted(found, key=lambda one: (one.started_at, one.identity.pid)), unseen

    def end(self, found: Sequence[HostProcess], *, grace_seconds: float) -> list[ReapEnd]:
        ends: dict[int, ReapEnd] = {}
        left = dict(enumerate(found))
        for number, seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, _KILL_SECONDS)):
            for index, one in list(left.items()):
                end = self._signal(one, number)
                if end is not None:
                    first = number == signal.SIGTERM
                    ends[index] = ReapEnd.ENDED if end is ReapEnd.GONE and not first else end
                    del left[index]
            self._wait_until_gone(left, ends, seconds)
        ends.update(dict.fromkeys(left, ReapEnd.STAYS))
        return [ends[index] for index in range(len(found))]

    def _wait_until_gone(
        self, left: dict[int, HostProcess], ends: dict[int, ReapEnd], seconds: float
    ) -> None:
        until = time.monotonic() + seconds
        while left:
            for index, one in list(left.items()):
                if not _lives(one):
                    ends[index] = ReapEnd.ENDED
                    del left[index]
            if not left or time.monotonic() >= until:
                return
            time.sleep(_PAUSE_SECONDS)

    def _signal(self, one: HostProcess, number: int) -> ReapEnd | None:
        """None: it was signalled. The pid is held while it is looked at, so that no other process
        can get it, and the signal, in between."""
        for _ in range(_LOOKS):
            end = self._signal_once(one, number)
            if end is not ReapEnd.HELD:
                return end
            time.sleep(_PAUSE_SECONDS)  # A process above it that is just ending says nothing true.
        return ReapEnd.HELD

    def _signal_once(self, one: HostProcess, number: int) -> ReapEnd | None:
        try:
            held = os.pidfd_open(one.identity.pid)
        except ProcessLookupError:
            return ReapEnd.GONE
        except (OSError, AttributeError):  # an old kernel: the moment in between stays
            return self._signal_if_same(one, lambda: os.kill(one.identity.pid, number))
        try:
            return self._signal_if_same(one, lambda: signal.pidfd_send_signal(held, number))
        finally:
            os.close(held)

    def _signal_if_same(self, one: HostProcess, send: Callable[[], None]) -> ReapEnd | None:
        status = find_process(one.identity.pid)
        if status is None or status.identity != one.identity or status.zombie:
            return ReapEnd.GONE
        try:
            seen = self._seen(status, self._environment(one.identity.pid), 0.0)
            if seen is None or seen.job_id != one.job_id or seen.held_by is not None:
                return ReapEnd.HELD
            send()
        except ProcessLookupError:
            return ReapEnd.GONE
        except PermissionError:
            return ReapEnd.DENIED
        except OSError:
            return ReapEnd.GONE  # its environment went with it
        return None

    # --- what one process is ----------------------------------------------------------------

    def _seen(self, one: ProcessStatus, environment: bytes, boot_at: float) -> HostProcess | None:
        """None: no job started it. Raises `OSError` when it has ended meanwhile."""
        job_id = _value(environment, _JOB_VARIABLE)
        if not job_id:
            return None
        pid = one.identity.pid
        epoch = _value(environment, _EPOCH_VARIABLE)
        program, names = self._names(pid)
        return HostProcess(
            identity=one.identity,
            job_id=job_id,
            epoch=int(epoch) if epoch and epoch.isdecimal() else None,
            program=program,
            names=names,
            started_at=boot_at + one.identity.started / os.sysconf("SC_CLK_TCK"),
            uid=(self._proc / str(pid)).stat().st_uid,
            held_by=self._holder(one, job_id),
        )

    def _holder(self, one: ProcessStatus, job_id: str) -> str | None:
        groups = self._read(one.identity.pid, "cgroup").decode("utf-8", "replace")
        for match in _GROUP_OF_SUPERVISOR.finditer(groups):
            supervisor = find_process(int(match[1]))
            if supervisor is not None and supervisor.identity.started == int(match[2]):
                return f"supervisor {supervisor.identity.pid}"
        unit = declared_unit(groups)
        if unit is not None:
            return f"unit {unit}"
        return self._forebear(one, job_id)

    def _forebear(self, one: ProcessStatus, job_id: str) -> str | None:
        """The first process above it that is not of the job; None: it is one that gets orphans."""
        parent = one.parent
        for _ in range(_FOREBEARS_MAX):
            if parent <= 1:
                return None
            above = find_process(parent)
            if above is None:
                return f"process {parent}, which cannot be looked at"
            if above.zombie:  # what it has started is about to be given to what is above it
                parent = above.parent
                continue
            try:
                if _value(self._environment(parent), _JOB_VARIABLE) != job_id:
                    name = self._names(parent)[0]
                    return None if name == "systemd" else f"process {parent} ({name})"
            except OSError:
                return f"process {parent}, which cannot be looked at"
            parent = above.parent
        return "more processes than are looked at"

    def _names(self, pid: int) -> tuple[str, frozenset[str]]:
        """What people call it, and all that they may call it. A program can call itself anything:
        only what can be shown is."""
        called = self._read(pid, "comm").decode("utf-8", "replace").removesuffix("\n")
        words = self._read(pid, "cmdline").decode("utf-8", "replace").split("\0")
        path = words[0]
        try:
            executed = os.readlink(self._proc / str(pid) / "exe").removesuffix(" (deleted)")
        except OSError:
            executed = ""
        program = os.path.basename(path).removeprefix("-") or called
        names = {program, called, path, executed, os.path.basename(executed)} - {""}
        return _shown(program), frozenset(map(_shown, names))

    def _environment(self, pid: int) -> bytes:
        with open(self._proc / str(pid) / "environ", "rb") as file:
            return file.read(_ENVIRONMENT_BYTES_MAX)

    def _read(self, pid: int, name: str) -> bytes:
        try:
            return (self._proc / str(pid) / name).read_bytes()
        except ProcessLookupError:
            return b""

    def _boot_at(self) -> float:
        for line in (self._proc / "stat").read_text().splitlines():
            if line.startswith("btime "):
                return float(line.split()[1])
        return 0.0


def _lives(one: HostProcess) -> bool:
    status = find_process(one.identity.pid)
    return status is not None and status.identity == one.identity and not status.zombie


def _values(environment: bytes) -> Iterator[tuple[bytes, bytes]]:
    for variable in environment.split(b"\0"):
        name, equals, value = variable.partition(b"=")
        if equals:
            yield name, value


def _value(environment: bytes, name: bytes) -> str | None:
    if name not in environment:
        return None
    found = next((value for one, value in _values(environment) if one == name), None)
    return None if found is None else _shown(found.decode("utf-8", "replace"))


def _shown(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:1000]
