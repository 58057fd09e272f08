"""Agents and coordinators that are started again whenever they end, as a service manager would."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from stado.settings import Settings
from tests.chaos.disks import SmallDisk
from tests.chaos.ledger import Ledger
from tests.chaos.processes import HOST_VARIABLE
from tests.chaos.proxy import FaultyProxy
from tests.chaos.shifted_clock import FILE_VARIABLE
from tests.e2e.fleet import Fleet

_PAUSE_SECONDS = (0.2, 4.0)
_STOP_SECONDS_MAX = 60.0
_STARTING_SECONDS = 30.0
_REFUSED_BEYOND_SECONDS = 600.0
"""A store refuses requests that were signed at so wrong a time."""


class ChaosFleet(Fleet):
    """Each of its processes has a host's name, a clock, a way to the store, and perhaps a disk of
    its own: who shares a host speaks for the others there."""

    entered: SmallDisk | None = None
    """The disk that the next process sees."""

    @staticmethod
    def _argv(program: str, *options: str) -> list[str]:
        return [sys.executable, "-m", "tests.chaos.shifted_clock", program, "run", *options]

    def _run(self, name: str, argv: list[str]) -> subprocess.Popen[bytes]:
        argv = _as_host(name, argv, is_root=os.geteuid() == 0 or self.entered is not None)
        return super()._run(name, argv if self.entered is None else self.entered.entering(argv))

    @property
    def environment(self) -> dict[str, str]:
        return dict(self._environment)

    def set_environment(self, variables: Mapping[str, str]) -> None:
        """For processes that are started from here on."""
        self._environment |= variables


def _as_host(name: str, argv: list[str], *, is_root: bool) -> list[str]:
    """What starts a program that sees another name of its host (Linux)."""
    namespaces = ["--uts"] if is_root else ["--user", "--map-root-user", "--uts"]
    script = 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"'
    return ["unshare", *namespaces, "sh", "-c", script, f"host-{name}", *argv]


@dataclass
class Member:
    """One that is to be up: an agent or a coordinator."""

    name: str
    program: str
    options: tuple[str, ...]
    clock: Path
    proxy: FaultyProxy | None
    disk: SmallDisk | None = None
    process: subprocess.Popen[bytes] | None = None
    start_at: float = 0.0
    asked_to_end: bool = False
    log_began: int = 0
    """Where in its log its present life begins."""
    far_off_until: float = float("-inf")
    """Until when it may have read a time at which no store takes a request."""

    @property
    def is_agent(self) -> bool:
        return self.program == "agent"

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def send(self, number: signal.Signals) -> bool:
        """Whether it was there. Popen sends nothing to what it has seen end."""
        if self.process is None or not self.alive:
            return False
        self.asked_to_end |= number == signal.SIGTERM
        self.process.send_signal(number)
        return True

    @property
    def is_far_off(self) -> bool:
        return time.monotonic() < self.far_off_until

    def shift_clock(self, seconds: float) -> None:
        if self.is_far_off or abs(seconds) > _REFUSED_BEYOND_SECONDS:
            self.far_off_until = float("inf") if seconds else time.monotonic() + _STARTING_SECONDS
        self.clock.write_text(str(seconds))


class Members:
    """All of them. `may_refuse` tells whether one that starts now may find no store at all."""

    def __init__(
        self,
        fleet: ChaosFleet,
        members: list[Member],
        draw: random.Random,
        ledger: Ledger,
        may_refuse: Callable[[], bool] = lambda: False,
    ) -> None:
        self.all = members
        self._fleet = fleet
        self._draw = draw
        self._ledger = ledger
        self._may_refuse = may_refuse

    @property
    def agents(self) -> list[Member]:
        return [member for member in self.all if member.is_agent]

    @property
    def coordinators(self) -> list[Member]:
        return [member for member in self.all if not member.is_agent]

    def tend(self) -> None:
        """Starts again what has ended, after a pause."""
        now = time.monotonic()
        for member in self.all:
            if member.process is not None and not member.alive:
                self._note_end(member)
                member.process = None
                member.start_at = max(member.start_at, now + self._draw.uniform(*_PAUSE_SECONDS))
            if member.process is None and now >= member.start_at:
                self.start(member)

    def stop(self) -> None:
        """In good order: agents first, so that what they run ends while somebody watches."""
        for group in (self.agents, self.coordinators):
            for member in group:
                member.send(signal.SIGTERM)
            deadline = time.monotonic() + _STOP_SECONDS_MAX
            for member in group:
                self._wait(member, deadline)

    def _wait(self, member: Member, deadline: float) -> None:
        if member.process is None:
            return
        try:
            member.process.wait(max(0.1, deadline - time.monotonic()))
            self._note_end(member)
            member.process = None
        except subprocess.TimeoutExpired:
            self._ledger.note_surprise(f"{member.name} does not end after TERM")

    def start(self, member: Member) -> None:
        fleet = self._fleet
        if member.proxy is not None:
            fleet.reach_store_by(replace(fleet.settings, endpoint=member.proxy.endpoint))
        fleet.set_environment({FILE_VARIABLE: str(member.clock), HOST_VARIABLE: member.name})
        fleet.entered = member.disk
        log = fleet.log_path(member.name)
        member.log_began = log.stat().st_size if log.exists() else 0
        start = fleet.agent if member.is_agent else fleet.coordinator
        member.process = start(member.name, *member.options)
        member.asked_to_end = False
        self._ledger.count(f"started {member.program}")

    def _note_end(self, member: Member) -> None:
        assert member.process is not None
        code = member.process.returncode
        expected = {-signal.SIGKILL, 0 if member.asked_to_end else -signal.SIGKILL}
        if member.asked_to_end:
            expected.add(-signal.SIGTERM)  # before it could install its handlers
        if code in expected or (code == 2 and (self._may_refuse() or member.is_far_off)):
            return
        self._ledger.note_surprise(f"{member.name} ended by itself with {code}")


def settings_through(settings: Settings, proxy: FaultyProxy | None) -> Settings:
    return settings if proxy is None else replace(settings, endpoint=proxy.endpoint)
