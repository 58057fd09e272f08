"""A host where nothing happens by itself: processes, their threads and their commands take turns
on one clock, always in the same order. Threads carry them, but only one ever runs."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stado.errors import AcceleratorsUnknown, ChannelClosed
from stado.ports import (
    Accelerator,
    Channel,
    Command,
    Containment,
    Event,
    Family,
    JobProcess,
    Peer,
    ProcessIdentity,
    Resistance,
    Task,
)
from tests.jobs.fakes import FakeClock, InlineTasks

_FOREVER = float("inf")
GIB = 1024**3


class Killed(BaseException):
    """The process is gone: nothing in it runs any more."""


# --- taking turns -----------------------------------------------------------------------


class Strand:
    """A thread of a process. It runs while it is resumed, until it waits for something."""

    def __init__(self, clock: TurnClock, process: FakeProcess, work: Callable[[], None]) -> None:
        self.process = process
        self.done = False
        self.deadline = clock.monotonic()
        self._condition: Callable[[], bool] = _never
        self._clock = clock
        self._work = work
        self._go = _taken_lock()
        self._rests = _taken_lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        return self.process.killed or self._condition()

    def resume(self) -> None:
        """By whoever gives out the turns."""
        self._go.release()
        self._rests.acquire()

    def wait_until(self, condition: Callable[[], bool], deadline: float) -> bool:
        """By the strand itself."""
        if self.process.killed:
            raise Killed
        if condition():
            return True
        self._condition, self.deadline = condition, deadline
        self._rests.release()
        self._go.acquire()
        if self.process.killed:
            raise Killed
        return condition()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self.process.killed:
                self._work()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.process.errors.append(error)
        finally:
            self.done = True
            self._rests.release()


class TurnClock(FakeClock):
    """Who waits lets the others have their turns; time moves to the next moment that anybody
    waits for. The test itself is one of those who wait."""

    def __init__(self) -> None:
        super().__init__()
        self._strands: list[Strand] = []
        self._happenings: list[tuple[float, Callable[[], object]]] = []
        self.running: Strand | None = None

    def at(self, seconds: float, happening: Callable[[], object]) -> None:
        """Something that happens at that moment, on its own."""
        self._happenings.append((seconds, happening))

    def spawn(self, process: FakeProcess, work: Callable[[], None]) -> Strand:
        strand = Strand(self, process, work)
        self._strands.append(strand)
        return strand

    def sleep(self, seconds: float) -> None:
        self.wait_until(_never, seconds)

    def wait_until(self, condition: Callable[[], bool], seconds: float = _FOREVER) -> bool:
        deadline = self._seconds + seconds
        if self.running is not None:
            return self.running.wait_until(condition, deadline)
        while not condition():
            if not self._give_a_turn(deadline):
                assert deadline < _FOREVER, "nothing will ever happen again"
                self._seconds = max(self._seconds, deadline)
                return condition()
        return True

    def _give_a_turn(self, deadline: float) -> bool:
        """Whether anybody was to move by then."""
        ready = [strand for strand in self._strands if strand.ready and not strand.process.frozen]
        if ready:
            self._resume(ready[0])
            return True
        strand = min(self._waiting(), key=lambda strand: strand.deadline, default=None)
        happening = min(self._happenings, key=lambda pair: pair[0], default=None)
        if happening is not None and (strand is None or happening[0] <= strand.deadline):
            if happening[0] > deadline:
                return False
            self._happenings.remove(happening)
            self._seconds = max(self._seconds, happening[0])
            happening[1]()
            return True
        if strand is None or strand.deadline > deadline or strand.deadline == _FOREVER:
            return False
        self._seconds = max(self._seconds, strand.deadline)
        self._resume(strand)
        return True

    def _waiting(self) -> list[Strand]:
        return [strand for strand in self._strands if not strand.process.frozen]

    def _resume(self, strand: Strand) -> None:
        assert self.running is None
        self._strands.remove(strand)
        self._strands.append(strand)
        self.running = strand
        try:
            strand.resume()
        finally:
            self.running = None
        if strand.done:
            self._strands.remove(strand)


def _never() -> bool:
    return False


def _taken_lock() -> threading.Lock:
    """Released by one thread to let another one on."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class _StrandTask:
    def __init__(self, clock: TurnClock, strand: Strand) -> None:
        self._clock = clock
        self._strand = strand

    def join(self, timeout_seconds: float | None = None) -> bool:
        seconds = _FOREVER if timeout_seconds is None else timeout_seconds
        return self._clock.wait_until(lambda: self._strand.done, seconds)


class _Done:
    def join(self, timeout_seconds: float | None = None) -> bool:
        return True


class _TurnEvent:
    def __init__(self, clock: TurnClock) -> None:
        self._clock = clock
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout_seconds: float) -> bool:
        return self._clock.wait_until(self.is_set, timeout_seconds)


class _TurnLock:
    def __init__(self, clock: TurnClock) -> None:
        self._clock = clock
        self._taken = False

    def __enter__(self) -> None:
        if self._taken:
            self._clock.wait_until(lambda: not self._taken)
        self._taken = True

    def __exit__(self, *_: object) -> None:
        self._taken = False


class TurnTasks(InlineTasks):
    """What is started runs beside its starter when that waits, and dies with its process."""

    def __init__(self, clock: TurnClock) -> None:
        self._clock = clock

    def start(self, name: str, work: Callable[[], None]) -> Task:
        if self._clock.running is None:  # the test's own thread, which is no process
            work()
            return _Done()
        strand = self._clock.spawn(self._clock.running.process, work)
        return _StrandTask(self._clock, strand)

    def event(self) -> Event:
        return _TurnEvent(self._clock)

    def lock(self) -> AbstractContextManager[Any]:
        return _TurnLock(self._clock)


# --- processes --------------------------------------------------------------------------


class FakeChannel:
    """One end of a pair."""

    def __init__(self, clock: TurnClock) -> None:
        self._clock = clock
        self._messages: deque[dict[str, Any]] = deque()
        self._other: FakeChannel | None = None
        self.closed = False

    @classmethod
    def pair(cls, clock: TurnClock) -> tuple[FakeChannel, FakeChannel]:
        one, other = cls(clock), cls(clock)
        one._other, other._other = other, one
        return one, other

    @property
    def ready(self) -> bool:
        return bool(self._messages) or self.ended

    @property
    def ended(self) -> bool:
        """Whether nothing more can come."""
        assert self._other is not None
        return self._other.closed or self.closed

    def send(self, message: Mapping[str, Any]) -> None:
        assert self._other is not None
        if self._other.closed or self.closed:
            raise ChannelClosed
        self._other._messages.append(dict(message))

    def receive(self, timeout_seconds: float | None) -> dict[str, Any] | None:
        seconds = _FOREVER if timeout_seconds is None else timeout_seconds
        if not self._clock.wait_until(lambda: self.ready, seconds):
            return None
        if self._messages:
            return self._messages.popleft()
        raise ChannelClosed

    def close(self) -> None:
        self.closed = True


class FakeProcess:
    """A forked process; a `Peer` for who forked it."""

    def __init__(
        self, clock: TurnClock, pid: int, channel: FakeChannel, own_channel: FakeChannel
    ) -> None:
        self._clock = clock
        self._identity = ProcessIdentity(pid, pid * 1000)
        self._channel = channel
        self._own_channel = own_channel
        self.errors: list[BaseException] = []
        self.commands: list[FakeCommand] = []
        self.exit_code: int | None = None
        self.killed = False
        self.frozen = False
        self.polled = False

    @property
    def identity(self) -> ProcessIdentity:
        return self._identity

    @property
    def channel(self) -> Channel:
        return self._channel

    @property
    def ready(self) -> bool:
        return self._channel.ready

    def poll(self) -> int | None:
        """Waits for a moment when the channel has been closed, as the live one does."""
        if self._channel.ended:
            self._clock.wait_until(lambda: self.exit_code is not None, 1.0)
        self.polled = self.exit_code is not None
        return self.exit_code

    def kill(self) -> None:
        self.end(-signal.SIGKILL)

    def end(self, exit_code: int) -> None:
        """With all its threads."""
        if self.exit_code is None:
            self.killed, self.frozen = True, False
            self.exit_code = exit_code
            self._own_channel.close()


@dataclass(frozen=True)
class Script:
    """What a command does: `log` and the files when it starts, `last_log` when it ends by
    itself. Files are named from its workspace on: `output/result`."""

    seconds: float = 60.0
    exit_code: int = 0
    log: bytes = b"begun\n"
    last_log: bytes = b"ended\n"
    files: Mapping[str, bytes] = field(default_factory=dict)
    deaf: bool = False
    """Heeds no TERM."""

    refused: OSError | None = None
    """What its start ends with."""

    resistance: str | None = None
    """Why it cannot be ended, until the test has it otherwise."""

    over_memory: str | None = None
    """What is said of its memory when it has ended."""

    then: Script | None = None
    """What the same command does when it is started the next time."""


@dataclass
class Execution:
    """A command that was started."""

    text: str
    epoch: int
    at: float
    process: FakeCommand
    environment: Mapping[str, str]


class FakeCommand:
    """A started command: it ends by its script, or by a signal."""

    def __init__(self, clock: TurnClock, pid: int, script: Script, command: Command) -> None:
        self._clock = clock
        self._identity = ProcessIdentity(pid, pid * 1000)
        self._script = script
        self._command = command
        self.exit_code: int | None = None
        self.signals: list[int] = []
        self.signalled_at: list[float] = []
        self._woken = False
        self.resistance: str | None = script.resistance
        self.over_memory: str | None = None
        self.closed = False
        self._write(script.log, script.files)
        clock.at(clock.monotonic() + script.seconds, self._end)

    @property
    def identity(self) -> ProcessIdentity:
        return self._identity

    def wait(self, timeout_seconds: float) -> int | None:
        self._clock.wait_until(lambda: self.exit_code is not None or self._woken, timeout_seconds)
        self._woken = False
        return self.exit_code

    def wake(self) -> None:
        self._woken = True

    @property
    def enclosure(self) -> Sequence[Path]:
        return (Path(f"/cgroup/stado-{self._command.name}"),)

    def living(self) -> list[ProcessIdentity]:
        if self.exit_code is None or self.lingers:
            return [self._identity]
        return []

    @property
    def lingers(self) -> bool:
        """Whether something of it lives that nobody can end."""
        return self.resistance is not None

    def signal_all(self, signal_number: int) -> list[Resistance]:
        if not self.living():
            return []
        self.signals.append(signal_number)
        self.signalled_at.append(self._clock.monotonic())
        if self.resistance is not None:
            return [Resistance(self._identity, self.resistance)]
        if signal_number == signal.SIGKILL or not self._script.deaf:
            self.exit_code = -signal_number
        return []

    def memory_exceeded(self) -> str | None:
        return self.over_memory

    def close(self, timeout_seconds: float) -> bool:
        self.closed = True
        return True

    def _end(self) -> None:
        if self.exit_code is None:
            self._write(self._script.last_log, {})
            self.exit_code = self._script.exit_code
            self.over_memory = self._script.over_memory

    def print(self, text: bytes) -> None:
        self._write(text, {})

    def _write(self, text: bytes, files: Mapping[str, bytes]) -> None:
        in_container = self._command.folder / "output"  # a client runs in the workspace itself
        output = Path(self._command.environment.get("STADO_OUTPUT_DIR", in_container))
        if not output.exists():  # the workspace was removed under it
            return
        self._command.sink(memoryview(text))
        for name, data in files.items():
            path = output.parent / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


class FakeProcesses:
    """Processes of one host. Commands follow `scripts`, by their text; others the default."""

    def __init__(self, clock: TurnClock) -> None:
        self._clock = clock
        self.scripts: dict[str, Script] = {}
        self.executions: list[Execution] = []
        self.forked: list[FakeProcess] = []
        self.ended_enclosures: list[Path] = []
        self.unkillable = False
        """Whether something of each session lives that nobody can end."""
        self.fork_error: OSError | None = None
        self.before_fork: Callable[[], object] = lambda: None
        self._pid = 100

    def fork(self, main: Callable[[Channel], None]) -> Peer:
        if self.fork_error is not None:
            raise self.fork_error
        self.before_fork()
        ours, theirs = FakeChannel.pair(self._clock)
        process = FakeProcess(self._clock, self._new_pid(), ours, theirs)
        self.forked.append(process)

        def work() -> None:
            code = 1
            try:
                main(theirs)
                code = 0
            finally:
                process.end(code)

        self._clock.spawn(process, work)
        return process

    def run(self, work: Callable[[], None], *, seconds_max: float = 4000.0) -> FakeProcess:
        """Does something in a process of its own, to its end."""
        self.fork(lambda _: work())
        process = self.forked[-1]
        ended = self._clock.wait_until(lambda: process.exit_code is not None, seconds_max)
        assert ended, "the process still runs"
        return process

    def wait(self, peers: Sequence[Peer], timeout_seconds: float) -> list[Peer]:
        known = [process for process in self.forked if process in peers]

        def ready() -> list[Peer]:
            return [process for process in known if process.ready]

        self._clock.wait_until(lambda: bool(ready()), timeout_seconds)
        return ready()

    def start(self, command: Command) -> JobProcess:
        text = command.argv[-1]
        script = self.scripts.get(text, Script())
        if script.refused is not None:
            raise script.refused
        if script.then is not None:
            self.scripts[text] = script.then
        started = FakeCommand(self._clock, self._new_pid(), script, command)
        epoch = int(command.name.split(".")[1])
        now = self._clock.monotonic()
        self.executions.append(Execution(text, epoch, now, started, command.environment))
        self._own().commands.append(started)
        return started

    def own_identity(self) -> ProcessIdentity:
        return self._own().identity

    def identify(self, pid: int) -> ProcessIdentity | None:
        found = (process.identity for process in self._living() if process.identity.pid == pid)
        return next(found, None)

    def alive(self, identity: ProcessIdentity) -> bool:
        return self.identify(identity.pid) == identity

    def kill_session(self, leader: ProcessIdentity, enclosure: Sequence[Path] = ()) -> bool:
        if self.unkillable:
            return False
        self.ended_enclosures += enclosure
        for process in self.forked:
            if process.identity == leader:
                process.kill()
                for command in process.commands:
                    command.signal_all(signal.SIGKILL)
        return True

    def find_owners(self, pids: Iterable[int], families: Mapping[str, Family]) -> dict[int, str]:
        """Commands of its supervisors, by their pids."""
        names = {family.supervisor: name for name, family in families.items()}
        return {
            command.identity.pid: names[process.identity]
            for process in self.forked
            for command in process.commands
            if process.identity in names and command.identity.pid in set(pids)
        }

    def containment(self) -> Containment:
        return Containment(contains_by="process-tree", limits_memory_by="watchdog")

    def describe(self, process: ProcessIdentity) -> str:
        return f"process {process.pid} (python)"

    def kill_self(self) -> None:
        """The process that runs now dies on the spot."""
        self._own().kill()
        raise Killed

    def _own(self) -> FakeProcess:
        assert self._clock.running is not None, "the test is no process of this host"
        return self._clock.running.process

    def _living(self) -> Iterable[FakeProcess]:
        return (process for process in self.forked if process.exit_code is None)

    def _new_pid(self) -> int:
        self._pid += 1
        return self._pid


class FakeHardware:
    """A small host."""

    def __init__(self, *, cpu: float = 4.0, memory_gb: float = 16.0) -> None:
        self.cpu = cpu
        self.memory_gb = memory_gb
        self.memory_available_gb: float | None = None
        """None: all of it."""
        self.disk_error: OSError | None = None
        self.disk_free = 100 * GIB
        self.boot = "boot-1"
        self.devices: list[Accelerator] = []
        self.devices_error: AcceleratorsUnknown | None = None

    def accelerators(self) -> list[Accelerator]:
        if self.devices_error is not None:
            raise self.devices_error
        return list(self.devices)

    def host_name(self) -> str:
        return "host-a"

    def cpu_count(self) -> float:
        return self.cpu

    def memory_total_bytes(self) -> int:
        return round(self.memory_gb * GIB)

    def memory_available_bytes(self) -> int:
        available = self.memory_available_gb
        return round((self.memory_gb if available is None else available) * GIB)

    def disk_free_bytes(self, folder: Path) -> int:
        if self.disk_error is not None:
            raise self.disk_error
        return self.disk_free

    def disk_total_bytes(self, folder: Path) -> int:
        return 100 * GIB

    def boot_id(self) -> str | None:
        return self.boot
