"""Real processes: what a fork, a channel and a process group do when something dies."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stado.errors import ChannelClosed
from stado.ports import Channel, Peer, ProcessIdentity
from stado.system.cgroups import Cgroups
from stado.system.processes import LiveProcesses
from tests.system.commands import WAIT_SECONDS, command, eventually, in_supervisor, kill, shell

pytestmark = pytest.mark.usefixtures("no_descriptor_leaks", "no_groups_left")


@pytest.fixture
def processes() -> LiveProcesses:
    return LiveProcesses()


def finish(peer: Peer) -> int:
    assert eventually(lambda: peer.poll() is not None)
    peer.channel.close()
    code = peer.poll()
    assert code is not None
    return code


def echo(channel: Channel) -> None:
    while True:
        message = channel.receive(None)
        assert message is not None
        channel.send(message)


# Forks and channels


def test_a_forked_process_answers_over_its_channel(processes: LiveProcesses) -> None:
    peer = processes.fork(echo)
    peer.channel.send({"job": "a", "text": "zażółć\n"})
    assert processes.wait([peer], WAIT_SECONDS) == [peer]
    assert peer.channel.receive(WAIT_SECONDS) == {"job": "a", "text": "zażółć\n"}
    peer.kill()
    assert finish(peer) == -signal.SIGKILL


def test_messages_keep_their_order_and_bounds(processes: LiveProcesses) -> None:
    def count(channel: Channel) -> None:
        for number in range(500):
            channel.send({"number": number, "filler": "x" * number})

    peer = processes.fork(count)
    numbers = [peer.channel.receive(WAIT_SECONDS) for _ in range(500)]
    assert [message["number"] for message in numbers if message] == list(range(500))
    with pytest.raises(ChannelClosed):
        peer.channel.receive(WAIT_SECONDS)
    assert finish(peer) == 0


def test_receive_gives_none_when_nothing_comes_in_time(processes: LiveProcesses) -> None:
    peer = processes.fork(echo)
    assert peer.channel.receive(0.01) is None
    assert processes.wait([peer], 0.01) == []
    assert peer.poll() is None
    peer.kill()
    finish(peer)


def test_the_channel_of_a_killed_child_closes(processes: LiveProcesses) -> None:
    peer = processes.fork(echo)
    peer.kill()
    assert processes.wait([peer], WAIT_SECONDS) == [peer]
    with pytest.raises(ChannelClosed):
        peer.channel.receive(WAIT_SECONDS)
    assert peer.poll() == -signal.SIGKILL
    with pytest.raises(ChannelClosed):
        peer.channel.send({})
    peer.kill()
    peer.channel.close()


def test_the_channel_of_a_child_closes_when_its_parent_is_killed(
    processes: LiveProcesses, tmp_path: Path
) -> None:
    # The parent has a second child, which must hold no copy of the first one's channel.
    witness = tmp_path / "closed"

    def grandchild(channel: Channel) -> None:
        with pytest.raises(ChannelClosed):
            channel.receive(WAIT_SECONDS)
        witness.write_text("yes")

    def parent(channel: Channel) -> None:
        own = LiveProcesses()
        own.fork(grandchild)
        sibling = own.fork(echo)
        channel.send({"sibling": sibling.identity.pid})
        channel.receive(None)

    peer = processes.fork(parent)
    assert peer.channel.receive(WAIT_SECONDS) is not None
    peer.kill()
    assert eventually(witness.exists)
    finish(peer)


def test_a_child_holds_none_of_its_parents_other_channels(processes: LiveProcesses) -> None:
    def sockets(channel: Channel) -> None:
        links = [os.readlink(f"/proc/self/fd/{name}") for name in _descriptors()]
        channel.send({"sockets": [link for link in links if link.startswith("socket:")]})

    def _descriptors() -> list[str]:
        names = os.listdir("/proc/self/fd")
        return [name for name in names if os.path.exists(f"/proc/self/fd/{name}")]

    def foreign(links: list[str]) -> set[str]:
        return set(links) & {
            f"socket:[{os.fstat(peer.channel.descriptor).st_ino}]"  # type: ignore[attr-defined]
            for peer in (first, second)
        }

    first = processes.fork(echo)
    second = processes.fork(sockets)
    message = second.channel.receive(WAIT_SECONDS)
    assert message is not None
    assert message["sockets"]
    assert not foreign(message["sockets"])
    finish(second)
    first.kill()
    finish(first)


def test_a_process_with_two_threads_does_not_fork(processes: LiveProcesses) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="second")
    thread.start()
    try:
        with pytest.raises(RuntimeError, match="second"):
            processes.fork(echo)
    finally:
        done.set()
        thread.join()


def test_a_child_that_fails_logs_why_and_leaves_with_1(
    processes: LiveProcesses, tmp_path: Path
) -> None:
    def fail(channel: Channel) -> None:
        raise ValueError("no such luck")

    handler = logging.FileHandler(tmp_path / "log")
    logging.getLogger().addHandler(handler)
    try:
        peer = processes.fork(fail)
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
    assert finish(peer) == 1
    log = (tmp_path / "log").read_text()
    assert f"forked process failed pid={peer.identity.pid}" in log
    assert "no such luck" in log


def test_a_child_never_runs_its_parents_code(processes: LiveProcesses, tmp_path: Path) -> None:
    witness = tmp_path / "unwound"
    ours = os.getpid()
    try:
        peer = processes.fork(lambda channel: sys.exit(3))
    finally:
        if os.getpid() != ours:
            witness.write_text("yes")
            os._exit(0)
    assert finish(peer) == 1
    assert not witness.exists()


def test_a_child_leads_a_session_of_its_own(processes: LiveProcesses) -> None:
    peer = processes.fork(lambda channel: channel.send({"session": os.getsid(0)}))
    assert peer.channel.receive(WAIT_SECONDS) == {"session": peer.identity.pid}
    finish(peer)


def test_a_child_dies_of_sigterm_whatever_its_parent_handles_and_ignores_sigint(
    processes: LiveProcesses,
) -> None:
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        peer = processes.fork(echo)
    finally:
        signal.signal(signal.SIGTERM, before)
    os.kill(peer.identity.pid, signal.SIGINT)
    peer.channel.send({"still": "here"})
    assert peer.channel.receive(WAIT_SECONDS) == {"still": "here"}
    os.kill(peer.identity.pid, signal.SIGTERM)
    assert finish(peer) == -signal.SIGTERM


def test_a_job_that_a_child_starts_can_be_interrupted(
    processes: LiveProcesses, tmp_path: Path
) -> None:
    def supervise(channel: Channel) -> None:
        job = shell(LiveProcesses(), tmp_path, "kill -INT $$; exit 7")
        channel.send({"code": job.wait(WAIT_SECONDS)})
        job.close(WAIT_SECONDS)

    peer = processes.fork(supervise)
    assert peer.channel.receive(WAIT_SECONDS) == {"code": -signal.SIGINT}
    finish(peer)


def test_a_wait_ends_when_a_signal_was_handled(processes: LiveProcesses) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    ours = os.getpid()

    def disturb(channel: Channel) -> None:
        os.kill(ours, signal.SIGUSR1)
        channel.receive(None)

    peer = processes.fork(disturb)
    try:
        began = time.monotonic()
        while not seen and time.monotonic() - began < WAIT_SECONDS:
            processes.wait([peer], WAIT_SECONDS)
        assert seen == [signal.SIGUSR1]
        assert time.monotonic() - began < WAIT_SECONDS / 2
    finally:
        signal.signal(signal.SIGUSR1, before)
        peer.kill()
        finish(peer)


def test_a_signal_to_a_child_does_not_wake_its_parent(processes: LiveProcesses) -> None:
    processes.wait([], 0)
    peer = processes.fork(echo)
    os.kill(peer.identity.pid, signal.SIGINT)
    peer.channel.send({})
    assert peer.channel.receive(WAIT_SECONDS) == {}
    began = time.monotonic()
    assert processes.wait([peer], 0.05) == []
    assert time.monotonic() - began >= 0.05
    peer.kill()
    finish(peer)


def test_a_peer_that_reads_nothing_counts_as_gone(
    processes: LiveProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stado.system.channel.SEND_TIMEOUT_SECONDS", 0.05)
    peer = processes.fork(echo)
    os.kill(peer.identity.pid, signal.SIGSTOP)
    with pytest.raises(ChannelClosed, match="reads nothing"):
        for _ in range(10_000):
            peer.channel.send({"filler": "x" * 10_000})
    peer.kill()
    finish(peer)


def test_a_peer_of_another_maker_is_refused(processes: LiveProcesses) -> None:
    with pytest.raises(TypeError):
        processes.wait([object()], 0)  # type: ignore[list-item]


# Sessions


def test_a_session_of_a_pid_that_was_given_away_is_spared(
    processes: LiveProcesses, tmp_path: Path
) -> None:
    job = shell(processes, tmp_path, "exec sleep 60")
    earlier = ProcessIdentity(job.identity.pid, job.identity.started - 1)
    assert processes.kill_session(earlier)
    assert not processes.alive(earlier)
    assert processes.alive(job.identity)
    assert job.wait(0.01) is None
    assert kill(job) == -signal.SIGKILL


def test_a_dead_peer_leaves_nothing_of_its_session(
    processes: LiveProcesses, tmp_path: Path
) -> None:
    def main(channel: Channel) -> None:
        own = LiveProcesses()
        job = shell(own, tmp_path, "sleep 60 & exec sleep 60")
        channel.send({"leader": job.identity.pid, "enclosure": [str(x) for x in job.enclosure]})
        channel.receive(None)

    peer = processes.fork(main)
    told = peer.channel.receive(WAIT_SECONDS)
    assert told is not None
    peer.kill()
    assert eventually(lambda: peer.poll() is not None)
    assert processes.identify(told["leader"]) is not None
    assert processes.kill_session(peer.identity, [Path(name) for name in told["enclosure"]])
    assert processes.identify(told["leader"]) is None
    peer.channel.close()


def leave_in_session(*, own_group: bool) -> tuple[int, int]:
    """A session whose leader is gone, and a process in it: forked twice, as daemons are."""
    reader, writer = os.pipe()
    leader = os.fork()
    if leader == 0:
        os.setsid()
        group = {"process_group": 0} if own_group else {}
        left = subprocess.Popen(["sleep", "60"], **group)  # type: ignore[call-overload]
        os.write(writer, str(left.pid).encode())
        os._exit(0)
    os.waitpid(leader, 0)
    left_pid = int(os.read(reader, 20))
    os.close(reader)
    os.close(writer)
    return leader, left_pid


@pytest.mark.parametrize(
    ("own_group", "started"),
    [(False, 1), (True, 1 << 60)],
    ids=["a daemon", "older than the supervisor"],
)
def test_strangers_in_a_session_that_got_the_number_later_are_spared(
    processes: LiveProcesses, own_group: bool, started: int
) -> None:
    """A command is in a group of its own from its first instruction on; a daemon is in that of
    its session's leader."""
    leader, stranger = leave_in_session(own_group=own_group)
    try:
        assert processes.kill_session(ProcessIdentity(leader, started))
        assert processes.identify(stranger) is not None
    finally:
        os.kill(stranger, signal.SIGKILL)
    assert eventually(lambda: processes.identify(stranger) is None)


def test_what_a_dead_supervisor_left_in_groups_of_their_own_is_killed(
    processes: LiveProcesses,
) -> None:
    """R203: on any host, by the number of the session alone."""
    leader, left = leave_in_session(own_group=True)
    assert processes.kill_session(ProcessIdentity(leader, 1))
    assert processes.identify(left) is None


# Identities


@pytest.mark.parametrize("number", [errno.ESRCH, errno.EPERM, errno.EACCES, errno.ENOENT])
def test_a_process_that_is_gone_or_hidden_by_the_kernel_is_not_there(number: int) -> None:
    """Some mounts of /proc refuse to show what is another account's, and a process may end at
    any moment."""

    def work() -> bool:
        path = f"/proc/{os.getppid()}/stat"

        def refuse(event: str, told: tuple[object, ...]) -> None:
            if event == "open" and told[0] == path:
                raise OSError(number, os.strerror(number))

        assert LiveProcesses().identify(os.getppid()) is not None
        sys.addaudithook(refuse)
        return LiveProcesses().identify(os.getppid()) is None

    assert in_supervisor(work)


def test_a_living_process_has_an_identity_that_lasts(processes: LiveProcesses) -> None:
    ours = processes.identify(os.getpid())
    assert ours is not None
    assert processes.alive(ours)
    assert not processes.alive(ProcessIdentity(ours.pid, ours.started + 1))
    assert processes.identify(os.getpid()) == ours


def test_a_dead_process_has_none(processes: LiveProcesses) -> None:
    child = subprocess.Popen(["true"])
    assert eventually(lambda: processes.identify(child.pid) is None)  # A zombie is dead.
    child.wait()
    assert processes.identify(child.pid) is None


def test_identities_without_proc_tell_processes_apart_too(
    processes: LiveProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stado.system.identity._HAS_PROC", False)
    job = shell(LiveProcesses(cgroups=Cgroups(())), tmp_path, "sleep 60 & exit 0")
    assert processes.identify(os.getpid()) == processes.identify(os.getpid())
    assert job.wait(WAIT_SECONDS) == 0
    assert not processes.alive(job.identity)
    assert len(job.living()) == 1
    kill(job)


def test_the_name_of_a_command_cannot_mislead_the_reader_of_proc(
    processes: LiveProcesses, tmp_path: Path
) -> None:
    program = tmp_path / ") Z 1 2"
    program.symlink_to("/bin/sleep")
    job = processes.start(command(tmp_path, str(program), "60"))
    assert processes.identify(job.identity.pid) == job.identity
    kill(job)
