"""Forked peers with a channel, and the commands of jobs.

A fork copies one thread only. Whatever lock another thread holds stays locked in the copy for
ever, so this module must never fork a process that has a second thread.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from stado.ports import Channel, Command, Containment, Family, JobProcess, Peer, ProcessIdentity
from stado.system.cgroups import Cgroups
from stado.system.channel import SocketChannel, close_inherited, open_pair
from stado.system.control_group import ControlGroup, Kill
from stado.system.descendants import adopt_orphans
from stado.system.description import describe_process
from stado.system.identity import ProcessStatus, all_processes, find_process
from stado.system.job_process import start_command
from stado.system.owners import find_owners
from stado.system.signal_wakeup import SignalWakeup
from stado.system.standing_group import (
    forget_standing_groups,
    leave_standing_groups,
    remove_standing_groups,
)
from stado.system.waiting import open_exit_watch, poll_timeout, wait_ready

_logger = logging.getLogger(__name__)

_EXIT_GRACE_SECONDS = 1.0
"""The kernel closes a dying process's channel shortly before it has an exit code for us."""

_EXIT_CODE_UNKNOWN = 255
"""For a peer that somebody else in this process has waited for."""

_KILL_LOOK_SECONDS = 0.005

_ALL_SIGNALS = signal.valid_signals()

_wakeup = SignalWakeup()


class LiveProcesses:
    """Processes of this host. Everything but `start` and the look-ups is for the main thread."""

    def __init__(
        self,
        *,
        cgroups: Cgroups | None = None,
        kill: Kill = os.kill,
        kill_seconds_max: float = 5.0,
    ) -> None:
        """All that the host offers, unless stated. `kill_seconds_max` is how long what was killed
        may take to be gone."""
        self._cgroups = cgroups or Cgroups()
        self._kill = kill
        self._kill_seconds_max = kill_seconds_max

    def fork(self, main: Callable[[Channel], None]) -> Peer:
        if threading.active_count() != 1:
            names = ", ".join(thread.name for thread in threading.enumerate())
            raise RuntimeError(f"a process with several threads must not fork: {names}")
        _keep_exit_codes()
        _flush_standard_streams()
        leave_standing_groups()
        ours, theirs = open_pair()
        handled = _find_handled_signals()
        # A signal that came between the fork and the child's reset would run our handlers there.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, handled)
        try:
            pid = os.fork()
            if pid == 0:
                ours.close()
                _run_child(main, theirs, handled, mask)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()
        return LivePeer(pid, SocketChannel(ours))

    def wait(self, peers: Sequence[Peer], timeout_seconds: float) -> list[Peer]:
        known = [_as_live(peer) for peer in peers]
        ready = [peer for peer in known if peer.channel.has_message() or peer.channel.ended]
        if not ready:
            ready = _poll_channels(known, timeout_seconds)
        return list(ready)

    def start(self, command: Command) -> JobProcess:
        _keep_exit_codes()
        return start_command(command, cgroups=self._cgroups, kill=self._kill)

    def own_identity(self) -> ProcessIdentity:
        found = self.identify(os.getpid())
        if found is None:
            raise ChildProcessError("this process does not find itself")
        return found

    def identify(self, pid: int) -> ProcessIdentity | None:
        found = find_process(pid)
        return None if found is None or found.zombie else found.identity

    def alive(self, identity: ProcessIdentity) -> bool:
        return self.identify(identity.pid) == identity

    def kill_session(self, leader: ProcessIdentity, enclosure: Sequence[Path] = ()) -> bool:
        """Folders that are no groups of commands are left alone."""
        groups = self._cgroups.groups_at(enclosure) + self._cgroups.groups_of(leader)
        deadline = time.monotonic() + self._kill_seconds_max
        while _kill_all(leader, groups, self._kill):
            if time.monotonic() > deadline:
                return False
            time.sleep(_KILL_LOOK_SECONDS)
        for group in groups:
            group.remove()
        return True

    def find_owners(self, pids: Iterable[int], families: Mapping[str, Family]) -> dict[int, str]:
        return find_owners(pids, families, self._cgroups.groups_at)

    def containment(self) -> Containment:
        return self._cgroups.containment()

    def describe(self, process: ProcessIdentity) -> str:
        return describe_process(process)


class LivePeer:
    """A forked process, seen from its parent."""

    def __init__(self, pid: int, channel: SocketChannel) -> None:
        found = find_process(pid)
        if found is None:
            raise ChildProcessError(f"process {pid} was taken by somebody else's wait")
        self._identity = found.identity
        self._channel = channel
        self._exit_code: int | None = None
        self._grace_taken = False

    @property
    def identity(self) -> ProcessIdentity:
        return self._identity

    @property
    def channel(self) -> SocketChannel:
        return self._channel

    def poll(self) -> int | None:
        """After the end of the channel it waits once, for a moment, for the end of the process."""
        if self._exit_code is None:
            if self._channel.ended and not self._grace_taken:
                self._grace_taken = True
                _wait_for_exit(self._identity.pid, _EXIT_GRACE_SECONDS)
            self._exit_code = _find_exit_code(self._identity.pid)
        return self._exit_code

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self._identity.pid, signal.SIGKILL)


def _kill_all(leader: ProcessIdentity, groups: Sequence[ControlGroup], kill: Kill) -> bool:
    """Whether there was anything to kill."""
    populated = [group for group in groups if group.populated()]
    for group in populated:
        group.kill(kill)
    in_session = _living_in_session(leader)
    for pid in in_session:
        with suppress(OSError):
            kill(pid, signal.SIGKILL)
    return bool(populated or in_session)


def _living_in_session(leader: ProcessIdentity) -> list[int]:
    """None are ours when the pid is another process's by now: then the session is gone, since the
    kernel gives no pid away that still names one.

    When the leader is gone, the session may be a later one of the same number. What commands
    consist of is younger than the leader and in process groups of their own; a daemon that was
    forked twice is in the group of its session's leader, and is no command's."""
    found = find_process(leader.pid)
    if found is not None and found.identity != leader:
        return []
    return [
        status.identity.pid
        for status in all_processes()
        if status.session == leader.pid
        and not status.zombie
        and (found is not None or _may_be_of_command(status, leader))
    ]


def _may_be_of_command(status: ProcessStatus, leader: ProcessIdentity) -> bool:
    return status.identity.started >= leader.started and status.group != leader.pid


def _as_live(peer: Peer) -> LivePeer:
    if not isinstance(peer, LivePeer):
        raise TypeError(f"{peer!r} was not forked here")
    return peer


def _poll_channels(peers: Sequence[LivePeer], timeout_seconds: float) -> list[LivePeer]:
    poller = select.poll()
    by_descriptor = {peer.channel.descriptor: peer for peer in peers}
    for descriptor in by_descriptor:
        poller.register(descriptor, select.POLLIN)
    signalled = _wakeup.descriptor()
    if signalled is not None:
        poller.register(signalled, select.POLLIN)
    ready = [descriptor for descriptor, _ in poller.poll(poll_timeout(timeout_seconds))]
    if signalled in ready:
        _wakeup.clear()
    return [by_descriptor[descriptor] for descriptor in ready if descriptor != signalled]


def _wait_for_exit(pid: int, timeout_seconds: float) -> None:
    watch = open_exit_watch(pid)
    if watch is not None:
        wait_ready(watch, select.POLLIN, timeout_seconds)
        os.close(watch)


def _find_exit_code(pid: int) -> int | None:
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return _EXIT_CODE_UNKNOWN
    return os.waitstatus_to_exitcode(status) if ended else None


def _keep_exit_codes() -> None:
    """A process may inherit an ignored SIGCHLD; its children's exit codes would be lost, and
    Python would report 0 for a command that failed."""
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
    ):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _flush_standard_streams() -> None:
    """What is still buffered would be written twice, by us and by the copy."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()


def _find_handled_signals() -> list[int]:
    """Asked before the fork: whatever the child touches costs it a page."""
    return [number for number in _ALL_SIGNALS if callable(signal.getsignal(number))]


def _run_child(
    main: Callable[[Channel], None],
    end: socket.socket,
    handled: Sequence[int],
    mask: set[int | signal.Signals],
) -> NoReturn:
    """Never returns: the parent's stack above the fork is not the child's to unwind."""
    code = 1
    try:
        # What was alive at the fork stays so: the collector would copy its pages for nothing.
        gc.freeze()
        os.setsid()
        adopt_orphans()
        close_inherited()
        forget_standing_groups()
        _wakeup.forget()
        _reset_signal_handlers(handled)
        channel = SocketChannel(end)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        main(channel)
        code = 0
    except BaseException:
        _logger.exception("forked process failed pid=%d", os.getpid())
    finally:
        _leave(code)


def _reset_signal_handlers(handled: Sequence[int]) -> None:
    for number in handled:
        signal.signal(number, signal.SIG_DFL)
    # Not SIG_IGN: a job's command would inherit that, and could never be interrupted.
    signal.signal(signal.SIGINT, _ignore_signal)


def _ignore_signal(number: int, frame: FrameType | None) -> None:
    """SIGINT is a person's word to the parent; the child outlives it."""


def _leave(code: int) -> NoReturn:
    try:
        remove_standing_groups()
        _flush_standard_streams()
    except (OSError, ValueError):
        code = code or 1
    finally:
        os._exit(code)
