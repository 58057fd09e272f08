"""Simulated hosts and their processes: what can be killed, frozen, cut off and started again."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stado.errors import ChannelClosed
from stado.ports import Channel, ProcessIdentity
from tests.simulation.hardware import HostPlan
from tests.simulation.kernel import Door, Kernel, Strand

if TYPE_CHECKING:
    from tests.simulation.commands import SimCommand
    from tests.simulation.weather import Fate


class SimProcess:
    """A process of a host; a `Peer` for who forked it."""

    def __init__(self, host: SimHost, name: str, pid: int) -> None:
        self.host = host
        self.name = name
        self.kernel = host.kernel
        self._identity = ProcessIdentity(pid, pid * 1000)
        self.exit_code: int | None = None
        self.frozen = False
        self.commands: list[SimCommand] = []
        self.ended = Door(host.kernel)
        self.store_clock: tuple[float, float] | None = None
        """The store's time as it was measured, and when by the monotonic clock."""
        self.underway: list[Fate] = []
        """Of its requests that have not reached the store."""
        self.main: Strand | None = None
        self._held: list[Strand] = []
        self._ends: tuple[SimChannel, SimChannel] | None = None
        self._on_end: list[Callable[[], None]] = []

    @property
    def identity(self) -> ProcessIdentity:
        return self._identity

    @property
    def gone(self) -> bool:
        return self.exit_code is not None

    @property
    def still(self) -> bool:
        """Whether it executes nothing for the time being."""
        return self.frozen or self.host.frozen

    # --- its strands --------------------------------------------------------------------

    def start(
        self, work: Callable[[], None], *, ends: tuple[SimChannel, SimChannel] | None
    ) -> None:
        """`ends`: the parent's and its own end of the channel between them."""
        self._ends = ends

        def main() -> None:
            work()
            self.end(0)

        self.main = self.kernel.spawn(self, self.name, main)

    def admit(self, strand: Strand) -> None:
        """A strand of ours could go on."""
        if self.gone:
            return
        if self.still:
            self._held.append(strand)
        else:
            self.kernel.make_ready(strand)

    def note_error(self, strand: Strand, error: BaseException) -> None:
        """A strand ended by an error; that of the main strand ends the process."""
        self.host.on_error(self, strand, error)
        if strand is self.main:
            self.end(1)

    # --- what happens to it -------------------------------------------------------------

    def end(self, exit_code: int) -> None:
        """With all its strands, wherever they are."""
        if self.gone:
            return
        self.exit_code = exit_code
        self._held.clear()
        if self._ends is not None:
            self._ends[1].close()
        self.host.forget(self)
        self.ended.open()
        for happening in self._on_end:
            happening()

    def kill(self) -> None:
        if self.order is not None and not self.gone:
            self.host.supervisors_died += 1
        self.end(-signal.SIGKILL)

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        if self.frozen:
            self.frozen = False
            self.release()

    def release(self) -> None:
        """Lets on who was held, if nothing holds it any more."""
        if not self.still:
            held, self._held = self._held, []
            for strand in held:
                self.admit(strand)

    def when_ended(self, happening: Callable[[], None]) -> None:
        self._on_end.append(happening)

    # --- as a peer ----------------------------------------------------------------------

    @property
    def channel(self) -> Channel:
        assert self._ends is not None, "nobody forked it"
        return self._ends[0]

    @property
    def readable(self) -> SimChannel:
        assert self._ends is not None, "nobody forked it"
        return self._ends[0]

    @property
    def order(self) -> Order | None:
        """What its agent has told it to run, until the agent has heard that it is idle."""
        return self._ends[1].order if self._ends is not None else None

    def poll(self) -> int | None:
        """As the live one: once the channel is closed it waits for a moment."""
        if self.readable.ended:
            self.kernel.wait_until(lambda: self.gone, 1.0, self.ended)
        return self.exit_code


@dataclass(frozen=True, slots=True)
class Order:
    """A job that an agent has let in: by which process, when."""

    by: SimProcess
    at: float
    entry: str


class SimChannel:
    """One end of a pair."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._messages: deque[dict[str, Any]] = deque()
        self._other: SimChannel | None = None
        self.closed = False
        self.stirred = Door(kernel)
        """Opened when there is something to read, or nothing more can come."""
        self.order: Order | None = None
        """Of the supervisor at this end."""

    @classmethod
    def pair(cls, kernel: Kernel) -> tuple[SimChannel, SimChannel]:
        one, other = cls(kernel), cls(kernel)
        one._other, other._other = other, one
        return one, other

    @property
    def ready(self) -> bool:
        return bool(self._messages) or self.ended

    @property
    def ended(self) -> bool:
        assert self._other is not None  # `pair` makes both
        return self._other.closed or self.closed

    def send(self, message: Mapping[str, Any]) -> None:
        assert self._other is not None  # `pair` makes both
        if self.ended:
            raise ChannelClosed
        if message.get("do") == "run":
            by = self._kernel.running.process
            self._other.order = Order(by, self._kernel.now, message["entry"])
            by.host.orders.append(self._other.order)
        self._other._messages.append(dict(message))
        self._other.stirred.open()

    def receive(self, timeout_seconds: float | None) -> dict[str, Any] | None:
        seconds = float("inf") if timeout_seconds is None else timeout_seconds
        if not self._kernel.wait_until(lambda: self.ready, seconds, self.stirred):
            return None
        if not self._messages:
            raise ChannelClosed
        message = self._messages.popleft()
        if message.get("event") == "idle" and self._other is not None:
            self._other.order = None
        return message

    def close(self) -> None:
        assert self._other is not None  # `pair` makes both
        self.closed = True
        self._other.stirred.open()
        self.stirred.open()


def _ignore(process: SimProcess, strand: Strand, error: BaseException) -> None:
    """For hosts that nobody watches."""


@dataclass(eq=False)
class SimHost:
    """A machine: clocks of its own, a folder, and what runs there."""

    kernel: Kernel
    name: str
    folder: Path
    rate: float = 1.0
    """Seconds of its clocks in a second of true time."""
    skew_seconds: float = 0.0
    """Of its wall clock; stepped by operators."""
    plan: HostPlan = field(default_factory=HostPlan)
    """What it has."""
    on_error: Callable[[SimProcess, Strand, BaseException], None] = _ignore

    boots: int = 1
    frozen: bool = False
    """Suspended: its monotonic clock stands still, its wall clock goes on."""
    cut_off: bool = False
    """Whether nothing reaches the store from here, nor the other way."""
    disk_full: bool = False
    ailing: dict[str, float] = field(default_factory=dict)
    """UUIDs of cards that no job must have, and since when."""
    ailed_at: float = -inf
    """When one of its cards fell ill or got well last."""
    vanished: bool = False
    """Never to be seen again."""
    up: bool = True
    processes: dict[int, SimProcess] = field(default_factory=dict)
    commands: list[SimCommand] = field(default_factory=list)
    """Those that live, whoever started them."""
    orders: list[Order] = field(default_factory=list)
    """All that its agents have let in, in order."""
    supervisors_died: int = 0
    """By force, with a job in hand."""
    _pids: int = 100
    _booted_at: float = 0.0
    _frozen_at: float = 0.0
    _frozen_seconds: float = 0.0
    """In this boot, up to the last thaw."""

    def monotonic(self) -> float:
        now = self._frozen_at if self.frozen else self.kernel.now
        return 1000.0 + (now - self._booted_at - self._frozen_seconds) * self.rate

    def wall(self) -> float:
        """Seconds since the true beginning, as its wall clock has them."""
        return self.kernel.now * self.rate + self.skew_seconds

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boots}"

    def new_process(self, name: str) -> SimProcess:
        process = SimProcess(self, name, self.new_pid())
        self.processes[process.identity.pid] = process
        return process

    def new_pid(self) -> int:
        self._pids += 1
        return self._pids

    def forget(self, process: SimProcess) -> None:
        self.processes.pop(process.identity.pid, None)

    def fall_ill(self, card: str) -> None:
        self.ailing[card] = self.ailed_at = self.kernel.now

    def get_well(self, card: str) -> None:
        if self.ailing.pop(card, None) is not None:
            self.ailed_at = self.kernel.now

    def freeze(self) -> None:
        """All of it, as a machine that is suspended."""
        if not self.frozen:
            self.frozen, self._frozen_at = True, self.kernel.now

    def thaw(self) -> None:
        if not self.frozen:
            return
        self.frozen = False
        self._frozen_seconds += self.kernel.now - self._frozen_at
        for process in list(self.processes.values()):
            process.release()
        for command in list(self.commands):
            command.release()

    def go_down(self) -> None:
        """Everything on it ends at once."""
        self.up = False
        self.frozen = False
        for process in list(self.processes.values()):
            process.kill()
        for command in list(self.commands):
            command.die(-signal.SIGKILL)

    def come_up(self) -> None:
        """A new life: new boot id, monotonic clock from the start."""
        self.up = True
        self.boots += 1
        self._booted_at = self.kernel.now
        self._frozen_seconds = 0.0


def consumer_on(host: SimHost) -> str:
    """Name in the store of the agent there."""
    return f"agent@{host.name}"
