"""What jobs execute on simulated hosts, and the `Processes` port that starts it."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stado.core.sidecar import NAME as SIDECAR
from stado.core.spec import CARDS_VARIABLE
from stado.ports import (
    Channel,
    Command,
    Containment,
    Family,
    JobProcess,
    Peer,
    ProcessIdentity,
    Resistance,
)
from tests.simulation.kernel import Door
from tests.simulation.process import SimChannel, SimHost, SimProcess

VERIFY = "verify"
"""The verify command of every job that has one."""

FAILURE = 7
"""What a run ends with that another one follows, if it may."""

RESULT = "result.txt"
"""The file that a command writes, if it writes any."""


@dataclass(frozen=True)
class Script:
    """What a command does."""

    seconds: float
    exit_code: int = 0
    failures: int = 0
    """So many runs of an epoch fail before one ends with the exit code."""
    print_every: float = 0.0
    """Seconds between its lines; 0: it prints at its start and its end alone."""
    checkpoint_every: float = 0.0
    writes_output: bool = False
    deaf: bool = False
    """Heeds no TERM."""


def result_of(job_id: str) -> str:
    return f"result of {job_id}\n"


class SimCommand:
    """A started command with what it started. It lives until its script ends or a signal does."""

    def __init__(self, owner: SimProcess, script: Script, command: Command) -> None:
        self.owner = owner
        self.host = owner.host
        self.command = command
        self.script = script
        self.job_id = command.environment["STADO_JOB_ID"]
        self.epoch = int(command.environment["STADO_EPOCH"])
        self.run = int(command.environment["STADO_BODY_RUN"])
        named = command.environment.get(CARDS_VARIABLE, "")
        self.cards = tuple(named.split(",")) if named else ()
        """UUIDs of those that it sees."""
        self.started_at = self.host.kernel.now
        self.exit_code: int | None = None
        self.stopped = False
        """Whether the system itself has told it to end."""
        self.printed = bytearray()
        self.is_verify = command.argv[-1] == VERIFY
        self.on_end: Callable[[SimCommand], None] = lambda _: None
        self._kernel = self.host.kernel
        self._identity = ProcessIdentity(self.host.new_pid(), 1)
        self._stirred = Door(self._kernel)
        self._woken = False
        self._put_off: list[Callable[[], None]] = []

    def begin(self) -> None:
        self._print(f"begun {self.job_id} {self.epoch}\n")
        if self.script.writes_output:
            self._write("output", RESULT, result_of(self.job_id))
        if self.script.print_every:
            self._again(self.script.print_every, lambda: self._print("a line\n"))
        if self.script.checkpoint_every:
            self._again(self.script.checkpoint_every, self._save)
        self._kernel.after(self.script.seconds, lambda: self._act(self._end))

    # --- what it does -------------------------------------------------------------------

    def _again(self, every: float, what: Callable[[], None]) -> None:
        def turn() -> None:
            if self.exit_code is None:
                what()
                self._kernel.after(every, lambda: self._act(turn))

        self._kernel.after(every, lambda: self._act(turn))

    def _act(self, what: Callable[[], None]) -> None:
        """Nothing is done on a host that stands still; it is made up for."""
        if self.host.frozen:
            self._put_off.append(what)
        elif self.exit_code is None:
            what()

    def release(self) -> None:
        put_off, self._put_off = self._put_off, []
        for what in put_off:
            self._act(what)

    def _end(self) -> None:
        self._print(f"ended {self.job_id} {self.epoch}\n")
        fails = self.run <= self.script.failures and not self.is_verify
        self.die(FAILURE if fails else self.script.exit_code)

    def _print(self, text: str) -> None:
        """What nobody reads, since the supervisor is dead, goes nowhere. What a frozen one has not
        read yet waits in the pipe, which is all the same here."""
        if self.owner.gone:
            return
        self.printed += text.encode()
        self.command.sink(memoryview(text.encode()))

    def _save(self) -> None:
        seconds = round(self._kernel.now - self.started_at)
        self._write("checkpoints", "state", f"{self.job_id} {self.epoch} {seconds}\n")
        said = {"step": seconds, "value": seconds * 7 % 11}
        self._write("checkpoints", SIDECAR, json.dumps(said))

    def _write(self, folder: str, name: str, text: str) -> None:
        root = Path(self.command.environment["STADO_OUTPUT_DIR"]).parent / folder
        if not root.is_dir():  # the workspace was removed under it
            return
        path = root / name
        partial = root.parent / f"{name}.partial"
        partial.write_text(text)
        stamp = round(self._kernel.now * 1e9)
        os.utime(partial, ns=(stamp, stamp))
        os.replace(partial, path)

    def die(self, exit_code: int) -> None:
        if self.exit_code is None:
            self.exit_code = exit_code
            self.host.commands.remove(self)
            self._stirred.open()
            self.on_end(self)

    # --- as a `JobProcess` --------------------------------------------------------------

    @property
    def identity(self) -> ProcessIdentity:
        return self._identity

    @property
    def enclosure(self) -> Sequence[Path]:
        return ()

    def wait(self, timeout_seconds: float) -> int | None:
        self._kernel.wait_until(
            lambda: self.exit_code is not None or self._woken,
            timeout_seconds / self.host.rate,
            self._stirred,
        )
        self._woken = False
        return self.exit_code

    def wake(self) -> None:
        self._woken = True
        self._stirred.open()

    def living(self) -> list[ProcessIdentity]:
        return [self._identity] if self.exit_code is None else []

    def signal_all(self, signal_number: int) -> list[Resistance]:
        self.stopped = True
        if signal_number == signal.SIGKILL or not self.script.deaf:
            self.die(-signal_number)
        return []

    def memory_exceeded(self) -> str | None:
        return None

    def close(self, timeout_seconds: float) -> bool:
        return True


class SimProcesses:
    """Processes of one simulated host."""

    def __init__(
        self,
        host: SimHost,
        *,
        script_of: Callable[[str], Script],
        on_start: Callable[[SimCommand], None],
    ) -> None:
        self._host = host
        self._kernel = host.kernel
        self._script_of = script_of
        self._on_start = on_start

    def fork(self, main: Callable[[Channel], None]) -> Peer:
        ours, theirs = SimChannel.pair(self._kernel)
        process = self._host.new_process("supervisor")
        process.start(lambda: main(theirs), ends=(ours, theirs))
        return process

    def wait(self, peers: Sequence[Peer], timeout_seconds: float) -> list[Peer]:
        channels = [peer.readable for peer in peers if isinstance(peer, SimProcess)]
        self._kernel.wait_until(
            lambda: any(channel.ready for channel in channels),
            timeout_seconds / self._host.rate,
            *(channel.stirred for channel in channels),
        )
        return [p for p in peers if isinstance(p, SimProcess) and p.readable.ready]

    def start(self, command: Command) -> JobProcess:
        if self._host.disk_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(command.folder))
        owner = self._kernel.running.process
        started = SimCommand(owner, self._script_of(command.argv[-1]), command)
        self._host.commands.append(started)
        owner.commands.append(started)
        self._on_start(started)
        started.begin()
        return started

    def own_identity(self) -> ProcessIdentity:
        return self._kernel.running.process.identity

    def identify(self, pid: int) -> ProcessIdentity | None:
        process = self._host.processes.get(pid)
        return process.identity if process is not None else None

    def alive(self, identity: ProcessIdentity) -> bool:
        return self.identify(identity.pid) == identity

    def kill_session(self, leader: ProcessIdentity, enclosure: Sequence[Path] = ()) -> bool:
        process = self._host.processes.get(leader.pid)
        if process is not None and process.identity == leader:
            process.kill()
        for command in list(self._host.commands):
            if command.owner.identity == leader:
                command.die(-signal.SIGKILL)
        return True

    def find_owners(self, pids: Iterable[int], families: Mapping[str, Family]) -> dict[int, str]:
        owners = {family.supervisor: name for name, family in families.items()}
        commands = {command.identity.pid: command.owner for command in self._host.commands}
        return {
            pid: owners[commands[pid].identity]
            for pid in pids
            if pid in commands and commands[pid].identity in owners
        }

    def containment(self) -> Containment:
        return Containment(contains_by="process-tree", limits_memory_by="watchdog")

    def describe(self, process: ProcessIdentity) -> str:
        return f"process {process.pid} (simulated)"
