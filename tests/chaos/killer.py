"""Carries out the faults of a plan, each when it is due, and takes them back when they are over."""

from __future__ import annotations

import heapq
import itertools
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from tests.chaos.disks import SmallDisk
from tests.chaos.ledger import Ledger
from tests.chaos.members import Member, Members
from tests.chaos.plan import Fault, FaultKind
from tests.chaos.processes import Marked, leaders, marked, supervisors
from tests.chaos.proxy import FaultyProxy

Target = TypeVar("Target")

_LATELY_SECONDS = 30.0


class StorePower(Protocol):
    """Takes the store away from all, and brings it back."""

    def take_away(self) -> None: ...

    def bring_back(self) -> None: ...


@dataclass
class Stage:
    """Whom the killer may hurt."""

    run: str
    members: Members
    proxies: list[FaultyProxy]
    disk: SmallDisk
    store: StorePower | None
    """A server, or a directory that can be moved away."""


@dataclass(order=True)
class _Due:
    at: float
    number: int
    act: Callable[[], None] = field(compare=False)


class Killer:
    """`turn` is to be called again and again, from one thread."""

    def __init__(self, stage: Stage, faults: Sequence[Fault], ledger: Ledger) -> None:
        self._stage = stage
        self._ledger = ledger
        self._numbers = itertools.count()
        self._began = time.monotonic()
        self._away = False
        self._back_at = float("-inf")
        self._due: list[_Due] = []
        self._acts: dict[FaultKind, Callable[[Fault], bool]] = {
            FaultKind.KILL_AGENT: self._kill_agent,
            FaultKind.FREEZE_AGENT: self._freeze_agent,
            FaultKind.DRAIN_AGENT: self._drain_agent,
            FaultKind.LEAVE_AGENT: self._leave_agent,
            FaultKind.KILL_SUPERVISOR: self._kill_supervisor,
            FaultKind.FREEZE_SUPERVISOR: self._freeze_supervisor,
            FaultKind.TERM_SUPERVISOR: self._term_supervisor,
            FaultKind.KILL_COMMAND: self._kill_command,
            FaultKind.CUT_POWER: self._cut_power,
            FaultKind.FREEZE_HOST: self._freeze_host,
            FaultKind.KILL_COORDINATOR: self._kill_coordinator,
            FaultKind.FREEZE_COORDINATOR: self._freeze_coordinator,
            FaultKind.TERM_COORDINATOR: self._term_coordinator,
            FaultKind.SHIFT_CLOCK: self._shift_clock,
            FaultKind.FILL_DISK: self._fill_disk,
            FaultKind.OUTAGE_OF_ONE: self._outage_of_one,
            FaultKind.OUTAGE_OF_ALL: self._outage_of_all,
            FaultKind.RESTART_STORE: self._restart_store,
        }
        for fault in faults:
            self._at(self._began + fault.at, partial(self._commit, fault))

    def turn(self) -> None:
        while self._due and self._due[0].at <= time.monotonic():
            heapq.heappop(self._due).act()

    def heal(self) -> None:
        """Takes back whatever is not over yet; what has not begun never does. Then all that lives
        goes on, every clock is right, every way is open."""
        for due in sorted(self._due):
            if due.number < 0:
                due.act()
        self._due.clear()
        for member in self._stage.members.all:
            member.shift_clock(0)
        for proxy in self._stage.proxies:
            proxy.calm()
        for one in marked(self._stage.run):
            one.send(signal.SIGCONT)

    @property
    def store_was_away_lately(self) -> bool:
        """So lately that a program may have looked for it then."""
        return self._away or time.monotonic() - self._back_at < _LATELY_SECONDS

    # --- time ---------------------------------------------------------------------------

    def _at(self, at: float, act: Callable[[], None], *, taking_back: bool = False) -> None:
        number = next(self._numbers)
        heapq.heappush(self._due, _Due(at, -1 - number if taking_back else number, act))

    def _after(self, fault: Fault, act: Callable[[], None]) -> None:
        """What takes a fault back."""
        self._at(time.monotonic() + fault.seconds, act, taking_back=True)

    def _commit(self, fault: Fault) -> None:
        """Counted when there was somebody to suffer it."""
        if self._acts[fault.kind](fault):
            self._ledger.count(fault.kind.value)

    # --- whom ---------------------------------------------------------------------------

    def _agent(self, fault: Fault) -> Member:
        return _pick(self._stage.members.agents, fault)

    def _coordinator(self, fault: Fault) -> Member:
        return _pick(self._stage.members.coordinators, fault)

    def _find_supervisor(self, fault: Fault) -> Marked | None:
        found = marked(self._stage.run)
        names = [member.name for member in self._stage.members.agents]
        all_of_them = [one for name in names for one in supervisors(name, found)]
        return _pick(all_of_them, fault) if all_of_them else None

    # --- agents and coordinators --------------------------------------------------------

    def _kill_agent(self, fault: Fault) -> bool:
        return self._agent(fault).send(signal.SIGKILL)

    def _freeze_agent(self, fault: Fault) -> bool:
        return self._freeze_member(self._agent(fault), fault)

    def _drain_agent(self, fault: Fault) -> bool:
        return self._agent(fault).send(signal.SIGTERM)

    def _leave_agent(self, fault: Fault) -> bool:
        agent = self._agent(fault)
        self._at(time.monotonic() + 0.5, lambda: _send(agent, signal.SIGTERM))
        return agent.send(signal.SIGTERM)

    def _kill_coordinator(self, fault: Fault) -> bool:
        return self._coordinator(fault).send(signal.SIGKILL)

    def _freeze_coordinator(self, fault: Fault) -> bool:
        return self._freeze_member(self._coordinator(fault), fault)

    def _term_coordinator(self, fault: Fault) -> bool:
        return self._coordinator(fault).send(signal.SIGTERM)

    def _freeze_member(self, member: Member, fault: Fault) -> bool:
        self._after(fault, lambda: _send(member, signal.SIGCONT))
        return member.send(signal.SIGSTOP)

    def _shift_clock(self, fault: Fault) -> bool:
        member = _pick(self._stage.members.all, fault)
        member.shift_clock(fault.amount)
        self._after(fault, lambda: member.shift_clock(0))
        return True

    # --- what agents start --------------------------------------------------------------

    def _kill_supervisor(self, fault: Fault) -> bool:
        found = self._find_supervisor(fault)
        return found is not None and found.send(signal.SIGKILL)

    def _term_supervisor(self, fault: Fault) -> bool:
        found = self._find_supervisor(fault)
        return found is not None and found.send(signal.SIGTERM)

    def _freeze_supervisor(self, fault: Fault) -> bool:
        found = self._find_supervisor(fault)
        return found is not None and self._freeze([found], fault)

    def _kill_command(self, fault: Fault) -> bool:
        """The leader alone: its supervisor sees a command that a signal has ended."""
        everybody = marked(self._stage.run)
        found = [
            leader
            for agent in self._stage.members.agents
            for supervisor in supervisors(agent.name, everybody)
            for leader in leaders(supervisor, everybody)
        ]
        if not found:
            return False
        leader = _pick(found, fault)
        self._ledger.note_killed_command(leader.job_id or "")
        return leader.send(signal.SIGKILL)

    def _freeze_host(self, fault: Fault) -> bool:
        """Commands go on, as they do when a host's control programs starve."""
        agent = self._agent(fault)
        frozen = supervisors(agent.name, marked(self._stage.run, host=agent.name))
        self._freeze_member(agent, fault)
        return self._freeze(frozen, fault)

    def _cut_power(self, fault: Fault) -> bool:
        """Everything of one host; it is back some seconds later."""
        agent = self._agent(fault)
        agent.start_at = time.monotonic() + fault.seconds
        agent.send(signal.SIGKILL)
        for number in (signal.SIGSTOP, signal.SIGKILL):  # so that nothing notes the others' death
            for one in marked(self._stage.run, host=agent.name):
                one.send(number)
        return True

    def _freeze(self, frozen: list[Marked], fault: Fault) -> bool:
        def thaw() -> None:
            for one in frozen:
                one.send(signal.SIGCONT)

        self._after(fault, thaw)
        return [one for one in frozen if one.send(signal.SIGSTOP)] != []

    # --- disk and store -----------------------------------------------------------------

    def _fill_disk(self, fault: Fault) -> bool:
        self._after(fault, self._stage.disk.free)
        self._stage.disk.fill()
        return True

    def _outage_of_one(self, fault: Fault) -> bool:
        self._outage([_pick(self._stage.proxies, fault)], fault)
        return True

    def _outage_of_all(self, fault: Fault) -> bool:
        if self._stage.proxies:
            self._outage(self._stage.proxies, fault)
            return True
        return self._restart_store(fault)

    def _outage(self, proxies: list[FaultyProxy], fault: Fault) -> None:
        def restore() -> None:
            for proxy in proxies:
                proxy.restore()

        for proxy in proxies:
            proxy.refuse() if fault.amount > 0 else proxy.stall()
        self._after(fault, restore)

    def _restart_store(self, fault: Fault) -> bool:
        store = self._stage.store
        if store is None or self._away:
            return False
        self._away = True

        def bring_back() -> None:
            store.bring_back()
            self._away = False
            self._back_at = time.monotonic()

        store.take_away()
        self._after(fault, bring_back)
        return True


def _pick(found: Sequence[Target], fault: Fault) -> Target:
    return found[int(fault.target * len(found))]


def _send(member: Member, number: signal.Signals) -> None:
    """Whoever was started in the meantime is not meant, and not hurt by it."""
    member.send(number)
