"""What the product asks of the machine it runs on: time, randomness, concurrency, processes.

The live adapters are in `stado.system`; the simulation brings its own. Nothing outside
`stado.system` reads a clock, draws a random number, starts a thread or a process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
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

    name: str
    """For logs: plain characters."""
    argv: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    sink: Callable[[memoryview], None]
    """Gets what the command prints to stdout and stderr, piece by piece, on a thread of its own.
    The memory is used again after the call; the command waits for no more than this call."""
    memory_bytes: int | None = None
    """What all its processes together may have; None: no limit of its own."""


@dataclass(frozen=True, slots=True)
class Resistance:
    """A process that could not be signalled."""

    process: ProcessIdentity
    error: str


class JobProcess(Protocol):
    """A started command, with whatever it started: the leader of a process group of its own, in
    an enclosure where the host offers one."""

    @property
    def identity(self) -> ProcessIdentity: ...

    @property
    def enclosure(self) -> Sequence[Path]:
        """What keeps its processes together (folders of control groups), for who has to end it
        when we are gone. Empty where the host offers none. A forked process is in there itself,
        and mostly has the same for all its commands."""
        ...

    def wait(self, timeout_seconds: float) -> int | None:
        """Exit code of the leader (negative: the signal), or None when the time is over, or when
        somebody has called `wake` since the last wait."""
        ...

    def wake(self) -> None:
        """Ends the wait that is under way, or the next one, at once. For other threads."""
        ...

    def living(self) -> list[ProcessIdentity]:
        """Every process of the command that still lives, zombies apart: in its group, in its
        enclosure, or left to us by parents that have died."""
        ...

    def signal_all(self, signal_number: int) -> list[Resistance]:
        """Signals all of `living`; what could not be signalled."""
        ...

    def memory_exceeded(self) -> str | None:
        """A sentence once it has been found above its memory (`Command.memory_bytes`), or was
        ended by the kernel for want of memory; before and after its end."""
        ...

    def close(self, timeout_seconds: float) -> bool:
        """Once nothing of it lives: gives the rest of the output to the sink, and gives up the
        enclosure (which is not used again if something in it lives). False when something still
        holds the output open when the time is over: then no more of it is read. Again: the same
        answer."""
        ...


@dataclass(frozen=True, slots=True)
class Containment:
    """What this host offers for a job's processes."""

    contains_by: str
    """`cgroup-v2`, `cgroup-v1`, or `process-tree`: groups, and orphans left to the supervisor."""
    limits_memory_by: str
    """`cgroup-v2`, `cgroup-v1`, or `watchdog`: the memory in use is looked at now and then."""


@dataclass(frozen=True, slots=True)
class Family:
    """By what the processes of one job are known."""

    supervisor: ProcessIdentity
    """A forked process: what descends from it, and its session."""
    enclosure: Sequence[Path] = ()
    """Of its command (`JobProcess.enclosure`)."""
    containers: Sequence[str] = ()
    """Ids that the container engine gave."""


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
        """Starts a command in a process group of its own. Raises `OSError` when it cannot.

        One at a time in a forked process: the orphans that it adopts are taken for the running
        command's."""
        ...

    def own_identity(self) -> ProcessIdentity: ...

    def identify(self, pid: int) -> ProcessIdentity | None:
        """The identity of a living process, or None."""
        ...

    def alive(self, identity: ProcessIdentity) -> bool: ...

    def kill_session(self, leader: ProcessIdentity, enclosure: Sequence[Path] = ()) -> bool:
        """SIGKILL to all that a forked process which is gone had started: in its session, and in
        the enclosure of its command (`JobProcess.enclosure`), which is removed. Whether nothing
        of it lives any more."""
        ...

    def find_owners(self, pids: Iterable[int], families: Mapping[str, Family]) -> dict[int, str]:
        """By pid the name of the family that it belongs to; pids of no family are left out, and
        so are those that this process may not look at."""
        ...

    def containment(self) -> Containment:
        """What this host offers, tried out. Before the first fork; costs some milliseconds. Also
        removes what killed processes left of their enclosures, if nothing lives in it."""
        ...

    def describe(self, process: ProcessIdentity) -> str:
        """For people: `process 4711 (python, in uninterruptible sleep)`."""
        ...


@dataclass(frozen=True, slots=True)
class HostProcess:
    """A process of this host that a job started: its environment names the job."""

    identity: ProcessIdentity
    job_id: str
    """As it stands there: anybody can write that into an environment."""
    epoch: int | None
    program: str
    """What it was called by, without its folder."""
    names: frozenset[str]
    """All that somebody may mean it by: that, its path, what the kernel calls it."""
    started_at: float
    """Seconds since 1970."""
    uid: int
    held_by: str | None
    """Who answers for it, in words: `supervisor 4711`, `unit web.service`. None: nobody."""


class ReapEnd(StrEnum):
    """What became of a process that was to be ended."""

    ENDED = "ended"
    GONE = "gone"
    """It had ended before."""
    HELD = "held"
    """Somebody answers for it by now: it was left alone."""
    DENIED = "denied"
    """It is another account's."""
    STAYS = "stays"
    """It was killed, and is still there."""


class HostProcesses(Protocol):
    """Processes of this host that jobs started, whoever's agent ran them."""

    def look(self) -> tuple[list[HostProcess], int]:
        """Those that there are, the oldest first, and how many processes could not be looked at,
        as they are another account's. Raises `Refused` where the system tells no environments."""
        ...

    def end(self, found: Sequence[HostProcess], *, grace_seconds: float) -> list[ReapEnd]:
        """TERM, and KILL to what is still there after the grace. Each is looked at again before
        each signal: one that somebody answers for by then, or that is another by now, gets none.
        Returns after some seconds more at most."""
        ...


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """A container engine that has answered."""

    name: str
    """For people: `docker 28.2.2`."""
    as_us: bool
    """Whether its root is our own user (a rootless engine): no other user is to be stated then."""


@dataclass(frozen=True, slots=True)
class ContainerState:
    """What an engine says of one container."""

    lives: bool
    """Whether something of it runs, or may at any moment."""
    was_started: bool
    exit_code: int
    """Of its command, once it has ended."""
    out_of_memory: bool
    """Whether the kernel ended a process of it at its limit of memory."""
    error: str
    """Why it was not started; "" when there is nothing to say."""


class Engine(Protocol):
    """The container engine of this host. Each call is a short one with a time limit, and raises
    `EngineFailed` when there is no answer: that never means that something is gone."""

    @property
    def program(self) -> str:
        """Its client, for calls that take long: they are processes of the job."""
        ...

    def facts(self) -> EngineFacts: ...

    def find_image(self, image: str) -> str | None:
        """The exact name of an image that is there, by its content; None when it is not."""
        ...

    def containers(self, label: str, *, telling: str) -> dict[str, str]:
        """Of all with `NAME=VALUE` among their labels, whatever their state: by id what their
        label `telling` says."""
        ...

    def state(self, container: str) -> ContainerState | None:
        """None for one that is not there. By id: ids are not used again."""
        ...

    def signal(self, container: str, signal_number: int) -> None:
        """To its first process. Of one that does not run: nothing."""
        ...

    def remove(self, container: str) -> None:
        """With its processes, by KILL, and its volumes. Returns once nothing of it lives. Of one
        that is not there: nothing."""
        ...


@dataclass(frozen=True, slots=True)
class AcceleratorProcess:
    """A process that has something of an accelerator, whoever's it is."""

    pid: int
    vram_mib: int | None
    """None where the driver does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """What can be given to a job as one device: a card, or a part of one that counts as a device
    of its own. Figures of one moment; of one that ails they may be old, or 0."""

    uuid: str
    """Visible ASCII without blanks: by this a job is confined to it."""
    kind: str
    """Its model as a word of [a-z0-9.+-]: `a100-sxm4-80gb`."""
    index: int
    """Of the card, as the driver counts."""
    vram_total_mib: int
    """Without what its driver keeps for itself."""
    vram_used_mib: int
    vram_free_mib: int
    utilisation: float | None = None
    """0 to 1, of late; None where the driver does not tell."""
    processes: tuple[AcceleratorProcess, ...] | None = None
    """None: who uses it cannot be told here."""
    ailment: str | None = None
    """Why no job must have it: a phrase."""


class Hardware(Protocol):
    """What this host has and what of it is in use."""

    def host_name(self) -> str: ...

    def cpu_count(self) -> float:
        """Cores that this process may use (affinity and cgroup quota counted)."""
        ...

    def memory_total_bytes(self) -> int: ...

    def memory_available_bytes(self) -> int: ...

    def disk_free_bytes(self, folder: Path) -> int: ...

    def disk_total_bytes(self, folder: Path) -> int: ...

    def accelerators(self) -> list[Accelerator]:
        """All that this host has, those that ail too. Takes two seconds at most: of a driver that
        takes longer the last answer counts for a while, and then everything ails.

        Raises `AcceleratorsUnknown` when there is a driver, and what it drives is not known."""
        ...

    def boot_id(self) -> str | None:
        """New each time the host starts; None where it does not tell."""
        ...


class Messenger(Protocol):
    """The channels on which people are told of jobs, as this machine's owner has set them up."""

    @property
    def channels(self) -> frozenset[str]:
        """Their names."""
        ...

    def send(self, channel: str, body: bytes) -> None:
        """Returns once it was taken. Raises `SendFailed`, also after a bounded time; a message that
        it raised for may have been taken all the same."""
        ...
