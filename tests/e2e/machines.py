"""Machines of a small laboratory on this one, with nothing to share but their network.

Each is a set of namespaces (Linux, root): processes, network, host name, mounts; on a bridge with
the others, with an account and a home of its own. Its first process is all that holds it: when that
is killed everything goes that ran there, at once, as when a host loses its power; the home stays,
as a disk does. Where nobody may make namespaces a machine is an account (or, without root, a
folder) with a home of its own, and loses its power when all that has this home in its environment
is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from tests.e2e.fleet import wait_for

_FIRST_PROCESS = """\
import os, socket, subprocess, sys
name, boot = sys.argv[1:]
socket.sethostname(name)
subprocess.run(["mount", "--bind", boot, "/proc/sys/kernel/random/boot_id"], check=True)
print("up", flush=True)
keeper = os.fork()
if not keeper:
    os.execvp("sleep", ["sleep", "infinity"])
while os.wait()[0] != keeper:
    pass
"""
"""Takes leave of orphans, as the first process of a host does."""

_NAMESPACES = ("--net", "--uts", "--ipc", "--mount", "--pid")
_FIRST_ACCOUNT = 41_000
_SYSTEM_PATH = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CALL_SECONDS_MAX = 60.0
_PR_SET_PDEATHSIG = 1


class Boundary(Protocol):
    """What keeps a machine apart from the others."""

    address: str

    def up(self) -> None: ...

    def entering(self, argv: Sequence[str]) -> list[str]:
        """What starts a program there, under the machine's account."""

    def down(self) -> None:
        """Ends every process there, without a word to it."""


@dataclass
class Machine:
    """A host or a desk: lines of a shell, run there under its account in its home."""

    name: str
    home: Path
    account: int | None
    boundary: Boundary
    environment: dict[str, str] = field(default_factory=dict)
    profile: list[str] = field(default_factory=list)
    """Lines that each shell begins with."""

    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(
        self, line: str, *, seconds: float = _CALL_SECONDS_MAX
    ) -> subprocess.CompletedProcess[str]:
        """Waits for the line; fails when it does."""
        done = subprocess.run(
            self._argv(line),
            env=self._variables(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, (
            f"{self.name}$ {line}\nexit {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done

    def start(self, line: str, *, log: str) -> subprocess.Popen[bytes]:
        with (self.home / log).open("ab") as out:
            process = subprocess.Popen(
                self._argv(f"exec {line}"),
                env=self._variables(),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self._started.append(process)
        return process

    def power_off(self) -> None:
        self.boundary.down()
        for process in self._started:
            process.kill()
            process.wait(_CALL_SECONDS_MAX)
        self._started.clear()

    def power_on(self) -> None:
        self.boundary.up()

    def _argv(self, line: str) -> list[str]:
        return self.boundary.entering(
            ["/bin/sh", "-c", "\n".join(("set -e", "cd", *self.profile, line))]
        )

    def _variables(self) -> dict[str, str]:
        person = self.name.partition(".")[0]
        return {
            "PATH": _SYSTEM_PATH,
            "HOME": str(self.home),
            "USER": person,
            "LOGNAME": person,
            "LANG": "C.UTF-8",
            "COLUMNS": "200",
            **self.environment,
        }


class Laboratory(Protocol):
    """Where machines are made."""

    what: str
    """What its machines are, for people."""

    store_address: str

    def on_store(self, argv: Sequence[str]) -> list[str]:
        """What starts a program on the store's machine."""

    def machine(self, name: str) -> Machine: ...


@contextmanager
def laboratory(folder: Path) -> Iterator[Laboratory]:
    """With namespaces where they can be made. All that ran in it has ended at the end."""
    found = _Namespaces(folder) if may_make_namespaces() else _Accounts(folder)
    try:
        found.open()
        yield found
    finally:
        found.close()


def may_make_namespaces() -> bool:
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "ip", "mount"))):
        return False
    script = (
        "ip link add bridge0 type bridge && ip link add one type veth peer name two && "
        "mount --bind /dev/null /proc/sys/kernel/random/boot_id"
    )
    argv = ["unshare", *_NAMESPACES, "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]
    try:
        tried = subprocess.run(argv, capture_output=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return False
    return tried.returncode == 0


class _Made:
    """What both kinds have in common."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._machines: list[Machine] = []

    def _add(self, name: str, make: Callable[[Path, int | None], Boundary]) -> Machine:
        home = self._folder / name
        home.mkdir(mode=0o700)
        account = _FIRST_ACCOUNT + len(self._machines) if os.geteuid() == 0 else None
        if account is not None:
            os.chown(home, account, account)
        made = Machine(name, home, account, make(home, account))
        self._machines.append(made)
        made.power_on()
        return made

    def close(self) -> None:
        for machine in self._machines:
            machine.power_off()


class _Namespaces(_Made):
    what = "network, process and mount namespaces, each with an account of its own"
    store_address = "10.77.0.1"

    def open(self) -> None:
        self._store = _Namespace("store", self._folder, account=None, address=self.store_address)
        self._store.up()
        for words in (
            "link add bridge0 type bridge",
            f"addr add {self.store_address}/24 dev bridge0",
            "link set bridge0 up",
        ):
            self._store.ip(words)

    def on_store(self, argv: Sequence[str]) -> list[str]:
        return self._store.on_its_network(argv)

    def machine(self, name: str) -> Machine:
        address = f"10.77.0.{10 + len(self._machines)}"

        def make(home: Path, account: int | None) -> Boundary:
            return _Namespace(
                name, self._folder, account=account, address=address, cable=self._store
            )

        return self._add(name, make)

    def close(self) -> None:
        super().close()
        self._store.down()


class _Namespace:
    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        account: int | None,
        address: str,
        cable: _Namespace | None = None,
    ) -> None:
        self.address = address
        self._name = name
        self._boot = folder / f"{name}.boot"
        self._account = account
        self._cable = cable
        self._holder: subprocess.Popen[bytes] | None = None
        self._first = 0

    def up(self) -> None:
        self._boot.write_text(f"{uuid.uuid4()}\n")
        self._holder = subprocess.Popen(
            [
                *("unshare", *_NAMESPACES, "--fork", "--kill-child", "--mount-proc"),
                *(sys.executable, "-I", "-S", "-c", _FIRST_PROCESS, self._name, str(self._boot)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # It complains of how its child ended.
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"up\n", f"{self._name} does not start"
        (first,) = psutil.Process(self._holder.pid).children()
        self._first = first.pid
        self.ip("link set lo up")
        if self._cable is not None:
            port = f"to-{self._name}"[:15]
            self._cable.ip(f"link add {port} type veth peer name eth0 netns {self._first}")
            self._cable.ip(f"link set {port} master bridge0 up")
            self.ip(f"addr add {self.address}/24 dev eth0")
            self.ip("link set eth0 up")

    def down(self) -> None:
        if self._holder is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._first, signal.SIGKILL)
        self._holder.wait(_CALL_SECONDS_MAX)
        self._holder = None

    def ip(self, words: str) -> None:
        argv = self.on_its_network(["ip", *words.split()])
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 0, f"{self._name}: ip {words}: {done.stderr}"

    def on_its_network(self, argv: Sequence[str]) -> list[str]:
        return ["nsenter", f"--target={self._first}", "--net", "--", *argv]

    def entering(self, argv: Sequence[str]) -> list[str]:
        words = ["nsenter", f"--target={self._first}", *_NAMESPACES]
        if self._account is not None:
            words += [f"--setuid={self._account}", f"--setgid={self._account}"]
        return [*words, "--", *argv]


class _Accounts(_Made):
    store_address = "127.0.0.1"

    @property
    def what(self) -> str:
        if os.geteuid() == 0:
            return "accounts with separate folders: namespaces cannot be made here"
        return "separate folders of one account: namespaces cannot be made here"

    def open(self) -> None:
        """Nothing to prepare."""

    def on_store(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def machine(self, name: str) -> Machine:
        return self._add(name, _Account)


class _Account:
    address = "127.0.0.1"

    def __init__(self, home: Path, account: int | None) -> None:
        self._home = home
        self._account = account

    def up(self) -> None:
        """An account is always there."""

    def entering(self, argv: Sequence[str]) -> list[str]:
        if self._account is None:
            return list(argv)
        ids = (f"--reuid={self._account}", f"--regid={self._account}", "--clear-groups")
        return ["setpriv", *ids, "--", *argv]

    def down(self) -> None:
        wait_for(lambda: not self._kill_all(), what=lambda: f"{self._home}: still at work")

    def _kill_all(self) -> int:
        """How many there were. One that is killed while it forks leaves a child: look again."""
        count = 0
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("HOME") == str(self._home) and (
                    process.status() != psutil.STATUS_ZOMBIE
                ):
                    process.kill()
                    count += 1
        return count


def _die_with_parent() -> None:
    """So that not even a killed test run leaves a machine behind (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
