"""What the product asks of the machine it runs on: time, randomness, concurrency, processes.

The live adapters are in `stado.system`; the simulation brings its own. Nothing outside
`stado.system` reads a clock, draws a random number, starts a thread or a process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Clock(Protocol):
    """Time on this machine. What orders or expires anything is on the store's clock instead."""

    def now(self) -> datetime:
        """Wall clock, aware UTC: for what is shown, never for a decision."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment: for waiting and for judging silence."""
        ...

    def sleep(self, seconds: float) -> None: ...


class Entropy(Protocol):
    """Randomness: tokens that no two attempts share, and jitter."""

    def token(self) -> str:
        """16 characters of [a-z2-7], unguessable, new at each call."""
        ...

    def letters(self, count: int) -> str:
        """`count` random characters of [a-z]."""
        ...

    def uniform(self, low: float, high: float) -> float: ...


class Event(Protocol):
    """A flag that threads wait for."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...

    def wait(self, timeout_seconds: float) -> bool:
        """True as soon as the flag is set, False when the time is over."""
        ...


class Task(Protocol):
    """A piece of work that runs beside its starter."""

    def join(self, timeout_seconds: float | None = None) -> bool:
        """True when it has ended, False when the time is over."""
        ...


class Tasks(Protocol):
    """Concurrency inside one process."""

    def start(self, name: str, work: Callable[[], None]) -> Task: ...

    def map(
        self, work: Callable[[Item], Result], items: Iterable[Item], *, limit: int
    ) -> list[Result]:
        """Results in the order of the items, at most `limit` at a time.

        When calls raise, the first error in item order is raised after all have ended."""
        ...

    def event(self) -> Event: ...

    def lock(self) -> AbstractContextManager[Any]:
        """A mutual exclusion that one thread at a time can enter."""
        ...


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process for ever: a pid alone is reused, a pid with its start time is not."""

    pid: int
    started: int
    """Start time in the kernel's own unit (clock ticks since boot on Linux)."""


class Channel(Protocol):
    """JSON messages between a process and the one that it forked."""

    def send(self, message: Mapping[str, Any]) -> None:
        """Raises `ChannelClosed` when the other end is gone."""
        ...

    def receive(self, timeout_seconds: float | None) -> dict[str, Any] | None:
        """The next message; None when none came in time (None waits for ever).

        Raises `ChannelClosed` when the other end is gone and nothing is left to read."""
        ...

    def close(self) -> None: ...


class Peer(Protocol):
    """A process that we forked, with the channel to it."""

    @property
    def identity(self) -> ProcessIdentity: ...

    @property
    def channel(self) -> Channel: ...

    def poll(self) -> int | None:
        """Exit code (negative: the signal), or None while it lives."""
        ...

    def kill(self) -> None:
        """SIGKILL, at once."""
        ...


@dataclass(frozen=True, slots=True)
class Command:
    """What to execute for a job."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    log_path: Path
    """Where stdout and stderr are appended, in bytes."""


class JobProcess(Protocol):
    """A started command: the leader of a process group of its own."""

    @property
    def identity(self) -> ProcessIdentity: ...

    def wait(self, timeout_seconds: float) -> int | None:
        """Exit code of the leader (negative: the signal), or None when the time is over."""
        ...

    def signal_group(self, signal_number: int) -> bool:
        """Signals the whole group; False when no process of it is left."""
        ...

    def group_alive(self) -> bool:
        """Whether any process of the group, zombies apart, still lives."""
        ...


class Processes(Protocol):
    """Processes of this host."""

    def fork(self, main: Callable[[Channel], None]) -> Peer:
        """Runs `main` in a copy of this process, which must be single-threaded, in a session
        of its own. The copy outlives us; its channel then reports `ChannelClosed`."""
        ...

    def wait(self, peers: Sequence[Peer], timeout_seconds: float) -> list[Peer]:
        """The peers with a message to read or a closed channel; waits until there is one,
        a signal has been handled, or the time is over."""
        ...

    def start(self, command: Command) -> JobProcess:
        """Starts a command in a process group of its own. Raises `OSError` when it cannot."""
        ...

    def own_identity(self) -> ProcessIdentity: ...

    def identify(self, pid: int) -> ProcessIdentity | None:
        """The identity of a living process, or None."""
        ...

    def alive(self, identity: ProcessIdentity) -> bool: ...

    def kill_session(self, leader: ProcessIdentity) -> None:
        """SIGKILL to all that a forked process which is gone had started and that did not make
        a session of its own."""
        ...

    def leftovers(self, leader: ProcessIdentity) -> list[ProcessIdentity]:
        """What a forked process is left with of the commands that it started, besides a
        command's own leader: also what left the leader's group or session."""
        ...

    def signal(self, process: ProcessIdentity, signal_number: int) -> None:
        """Nothing when the process is gone."""
        ...


class Hardware(Protocol):
    """What this host has and what of it is in use."""

    def host_name(self) -> str: ...

    def cpu_count(self) -> float:
        """Cores that this process may use (affinity and cgroup quota counted)."""
        ...

    def memory_total_bytes(self) -> int: ...

    def memory_available_bytes(self) -> int: ...

    def disk_free_bytes(self, folder: Path) -> int: ...
