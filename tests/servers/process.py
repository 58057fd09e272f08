"""One server process: started on free ports, waited for, and certainly stopped."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 1.5
"""Then it is killed: its data is thrown away in any case."""

_POLL_SECONDS = 0.1
_LOG_TAIL_BYTES = 4000
_PR_SET_PDEATHSIG = 1


class ServerFailed(Exception):
    """A server did not come up; the text has the end of its log."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    name: str
    scheme: str
    """`s3` or `gs`."""

    endpoint: str
    environment: Mapping[str, str]
    """What a client's process needs in its environment (keys, region)."""

    make_bucket: Callable[[str], None]
    pid: int


def free_ports(count: int, *, also_above: int = 0) -> list[int]:
    """Ports that are free now, and (unless 0) those `also_above` higher, too."""
    ports: list[int] = []
    for _ in range(1000):
        if len(ports) == count:
            return ports
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port: int = probe.getsockname()[1]
        if port in ports or (also_above and not _is_free(port + also_above)):
            continue
        ports.append(port)
    raise ServerFailed("no free ports")


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Gone at the end, whatever a dying server still writes into it."""
    folder = Path(tempfile.mkdtemp(prefix="stado-server-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running(
    argv: Sequence[str], environment: Mapping[str, str], folder: Path, is_ready: Callable[[], bool]
) -> Iterator[int]:
    """The pid of the server's process, which leads a group of its own, once `is_ready`."""
    log_path = folder / "server.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            argv,
            env={**os.environ, **environment},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
    try:
        _wait_ready(process, is_ready, log_path)
        yield process.pid
    finally:
        _stop(process)


def _is_free(port: int) -> bool:
    if port > 65535:
        return False
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _die_with_parent() -> None:
    """So that not even a killed test run leaves a server behind (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_ready(
    process: subprocess.Popen[bytes], is_ready: Callable[[], bool], log_path: Path
) -> None:
    end = time.monotonic() + START_SECONDS_MAX
    while not is_ready():
        if process.poll() is not None:
            raise ServerFailed(
                f"{log_path.parent}: the server ended with {process.returncode}:\n{_tail(log_path)}"
            )
        if time.monotonic() > end:
            raise ServerFailed(f"{log_path.parent}: the server does not answer:\n{_tail(log_path)}")
        time.sleep(_POLL_SECONDS)


def _tail(path: Path) -> str:
    return path.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends the whole group; a second Ctrl-C meanwhile does not save it."""
    try:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS_MAX)
    finally:
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)
