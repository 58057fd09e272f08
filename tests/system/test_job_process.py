"""Real commands: what they print, when they end, and what they leave behind."""

from __future__ import annotations

import errno
import json
import logging
import os
import platform
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from stado.ports import Command, JobProcess, ProcessIdentity, Resistance
from stado.system.cgroup_mounts import V2, find_hierarchies
from stado.system.cgroups import Cgroups
from stado.system.control_group import write_to_group
from stado.system.processes import LiveProcesses
from tests.system.commands import (
    MECHANISMS,
    WAIT_SECONDS,
    Printed,
    command,
    eventually,
    in_supervisor,
    kill,
    only,
    pids_in,
    read_pid,
    shell,
    stuck,
)

pytestmark = pytest.mark.usefixtures("no_descriptor_leaks", "no_groups_left")

EXIT_NUMBER = {"x86_64": 60}.get(platform.machine(), 93)
"""Of the system call that ends one thread."""


SOFT_LIMIT, HARD_LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)


@pytest.fixture
def processes() -> LiveProcesses:
    return LiveProcesses()


@pytest.fixture(params=MECHANISMS)
def each(request: pytest.FixtureRequest) -> LiveProcesses:
    """On each mechanism in turn."""
    return LiveProcesses(cgroups=MECHANISMS[request.param]())


def end(job: JobProcess) -> int:
    """Waits for the end of a command that leaves nothing."""
    code = job.wait(WAIT_SECONDS)
    assert code is not None
    assert eventually(lambda: not job.living())
    assert job.close(WAIT_SECONDS)
    return code


def settle(job: JobProcess, count: int) -> list[ProcessIdentity]:
    """Once so many of a command live, and its leader does not."""
    assert job.wait(WAIT_SECONDS) is not None
    assert eventually(lambda: len(job.living()) == count)
    return job.living()


# Starting and waiting


def test_a_command_runs_in_its_folder_with_its_environment_alone(
    each: LiveProcesses, tmp_path: Path
) -> None:
    printed = Printed()
    environment = {"PATH": os.environ["PATH"], "COLOUR": "green"}
    script = 'pwd; echo "$COLOUR $HOME."; echo err >&2; cat; exit 3'
    name = command(tmp_path).name
    job = each.start(Command(name, ["sh", "-c", script], environment, tmp_path, printed))
    assert job.wait(WAIT_SECONDS) == 3
    assert job.wait(0) == 3
    assert job.close(WAIT_SECONDS)
    assert job.close(0)
    assert printed.text == f"{tmp_path}\ngreen .\nerr\n"


def test_a_command_that_does_not_exist_is_an_oserror_and_leaves_nothing(
    each: LiveProcesses, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        each.start(command(tmp_path, "stado-no-such-program"))
    with pytest.raises(OSError, match="nowhere"):
        each.start(command(tmp_path / "nowhere", "true"))


def test_a_wait_ends_at_the_word_of_another_thread(each: LiveProcesses, tmp_path: Path) -> None:
    """Also when the word came before the wait; the next wait is a whole one again."""
    job = shell(each, tmp_path, "sleep 60")
    began = time.monotonic()
    timer = threading.Timer(0.05, job.wake)
    timer.start()
    assert job.wait(WAIT_SECONDS) is None
    timer.join()
    job.wake()
    job.wake()
    assert job.wait(WAIT_SECONDS) is None
    assert time.monotonic() - began < WAIT_SECONDS / 2
    assert job.wait(0.02) is None
    kill(job)
    job.wake()


def test_a_wait_ends_promptly_when_the_command_does(
    processes: LiveProcesses, tmp_path: Path
) -> None:
    waited = []
    for _ in range(5):
        job = shell(processes, tmp_path, "sleep 0.05")
        began = time.monotonic()
        assert job.wait(WAIT_SECONDS) == 0
        waited.append(time.monotonic() - began)
        assert end(job) == 0
    # The best of five: a busy machine may delay some, polling at intervals would delay all.
    assert min(waited) < 0.15


def test_a_wait_without_pidfd_still_ends(
    processes: LiveProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    assert end(shell(processes, tmp_path, "exit 4")) == 4
    job = shell(processes, tmp_path, "exec sleep 60")
    assert job.wait(0.01) is None
    assert kill(job) == -signal.SIGKILL


def test_a_wait_gives_none_while_the_command_runs(each: LiveProcesses, tmp_path: Path) -> None:
    job = shell(each, tmp_path, "exec sleep 60")
    assert job.wait(0.01) is None
    assert job.living() == [job.identity]
    assert kill(job) == -signal.SIGKILL


def test_a_leader_that_ends_while_what_lives_is_looked_for_keeps_its_exit_code(
    tmp_path: Path,
) -> None:
    """It ends when `living` has found it running and is about to read the process table."""

    def work() -> int | None:
        os.mkfifo(tmp_path / "gate")
        job = shell(LiveProcesses(cgroups=Cgroups(())), tmp_path, "read line <gate; exit 3")
        ended: list[bool] = []

        def end_it(event: str, told: tuple[Any, ...]) -> None:
            if event == "os.listdir" and not ended:
                ended.append(True)
                (tmp_path / "gate").write_text("\n")
                stat = Path(f"/proc/{job.identity.pid}/stat")
                assert eventually(lambda: ") Z " in stat.read_text())

        sys.addaudithook(end_it)
        job.living()
        assert ended
        code = job.wait(WAIT_SECONDS)
        assert job.close(WAIT_SECONDS)
        return code

    assert in_supervisor(work) == 3


def test_an_ignored_sigchld_does_not_lose_an_exit_code(
    processes: LiveProcesses, tmp_path: Path
) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert end(shell(processes, tmp_path, "exit 5")) == 5
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_command_inherits_nothing_but_its_own_output(
    processes: LiveProcesses, tmp_path: Path
) -> None:
    beside = shell(processes, tmp_path, "exec sleep 60")
    reader, writer = os.pipe()
    printed = Printed()
    assert end(shell(processes, tmp_path, "ls -l /proc/self/fd", printed)) == 0
    links = [line.split(" -> ")[1] for line in printed.text.splitlines() if " -> " in line]
    pipes = [link for link in links if link.startswith("pipe:")]
    assert len(pipes) == 2
    assert len(set(pipes)) == 1
    assert not [link for link in links if link.startswith(("socket:", "anon_inode"))]
    os.close(reader)
    os.close(writer)
    kill(beside)


# Output


def test_a_command_that_opens_its_own_output_anew_loses_nothing(
    processes: LiveProcesses, tmp_path: Path
) -> None:
    """Output comes through a pipe: a redirection to it has nothing to truncate."""
    printed = Printed()
    script = "echo one; echo two > /dev/stderr; echo three >&2; echo four > /dev/stdout"
    assert end(shell(processes, tmp_path, script, printed)) == 0
    assert printed.text == "one\ntwo\nthree\nfour\n"


def test_what_a_command_printed_right_before_it_was_killed_is_all_there(
    each: LiveProcesses, tmp_path: Path
) -> None:
    """A49: the last 64 KiB of a command that is killed in the same moment."""
    printed = Printed()

    def slow_sink(piece: memoryview) -> None:
        time.sleep(0.02)
        printed(piece)

    script = "head -c 65536 /dev/zero | tr '\\0' x; kill -KILL $$"
    assert end(shell(each, tmp_path, script, slow_sink)) == -signal.SIGKILL
    assert printed.data == b"x" * 65_536


def test_a_sink_that_fails_does_not_stop_the_command(
    processes: LiveProcesses, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A57: it is said once, and the command goes on."""

    def full(piece: memoryview) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with caplog.at_level(logging.ERROR):
        assert end(shell(processes, tmp_path, "head -c 4000000 /dev/zero", full)) == 0
    assert caplog.text.count("event=output_lost") == 1


def test_a_survivor_that_prints_on_and_on_holds_up_neither_the_end_nor_the_reading(
    each: LiveProcesses, tmp_path: Path
) -> None:
    def work() -> None:
        printed = Printed()
        job = shell(each, tmp_path, "setsid sh -c 'while :; do echo x; done' & exit 0", printed)
        assert job.wait(WAIT_SECONDS) == 0
        before = len(printed.data)
        assert eventually(lambda: len(printed.data) > before + 1000)
        began = time.monotonic()
        assert job.close(0.05) is False
        assert job.close(WAIT_SECONDS) is False
        assert time.monotonic() - began < WAIT_SECONDS / 4
        job.signal_all(signal.SIGKILL)
        assert eventually(lambda: not job.living())

    in_supervisor(work)


# When descriptors run out


def descriptors() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd")]


def test_a_start_without_descriptors_fails_and_leaves_nothing(
    each: LiveProcesses, tmp_path: Path
) -> None:
    """With any number of free ones that is too small, no command goes on unseen."""

    def work() -> list[str]:
        assert end(shell(each, tmp_path, "true")) == 0
        order = command(tmp_path, "sleep", "60")
        failed = []
        highest = max(descriptors())
        while (filled := os.open("/dev/null", os.O_RDONLY)) < highest:
            pass  # So that a limit says how many are free.
        before = len(descriptors())
        for free in range(40):
            limit = filled + 1 + free
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, HARD_LIMIT))
            try:
                job = each.start(order)
            except OSError as error:
                failed.append(error.strerror or str(error))
            else:
                kill(job)
                break
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT_LIMIT, HARD_LIMIT))
            assert len(descriptors()) == before
            with pytest.raises(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
        return failed

    failed = in_supervisor(work)
    assert failed.count("Too many open files") == len(failed)
    assert len(failed) >= 4


def test_a_command_that_cannot_be_looked_at_is_ended(each: LiveProcesses, tmp_path: Path) -> None:
    """It has begun when the process table refuses to tell who it is."""

    def work() -> str:
        assert end(shell(each, tmp_path, "true")) == 0
        started: list[bool] = []

        def refuse(event: str, told: tuple[Any, ...]) -> None:
            if event == "subprocess.Popen":
                started.append(True)
            ours = str(told[0]).startswith(f"/proc/{os.getpid()}/") if told else False
            if event == "open" and started and not ours and str(told[0]).startswith("/proc/"):
                started.clear()
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        sys.addaudithook(refuse)
        before = len(descriptors())
        with pytest.raises(OSError, match="Too many") as raised:
            each.start(command(tmp_path, "sleep", "60"))
        assert len(descriptors()) == before
        with pytest.raises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        return str(raised.value)

    assert "Too many open files" in in_supervisor(work)


# What lives


def test_children_of_a_shell_that_is_gone_are_known_and_killed(
    each: LiveProcesses, tmp_path: Path
) -> None:
    """A21, R203: one in a session of its own, one forked twice, on each mechanism."""

    def work() -> list[int]:
        script = (
            "setsid sh -c 'echo $$ >first; exec sleep 60' &"
            "(setsid sh -c 'sh -c \"echo \\$\\$ >second; exec sleep 60\" & exit 0' &); exit 0"
        )
        job = shell(each, tmp_path, script)
        expected = {read_pid(tmp_path / "first"), read_pid(tmp_path / "second")}
        assert job.wait(WAIT_SECONDS) == 0
        assert eventually(lambda: {process.pid for process in job.living()} == expected)
        assert job.signal_all(signal.SIGKILL) == []
        assert eventually(lambda: not job.living())
        assert job.close(WAIT_SECONDS)
        return [pid for pid in expected if each.identify(pid)]

    assert in_supervisor(work) == []


@pytest.mark.parametrize(
    "script",
    [
        "setsid sleep 60 & exit 0",
        "timeout 60 sleep 60 & exit 0",
        "(setsid sh -c 'sleep 60 & exit 0' &) ; sleep 0.2; exit 0",
        "sleep 60 & exit 0",
    ],
    ids=["session", "group", "double fork", "plain"],
)
def test_whatever_a_command_left_is_found_and_can_be_ended(
    each: LiveProcesses, tmp_path: Path, script: str
) -> None:
    """R203: also what left its group or session, or was forked twice."""

    def work() -> int:
        job = shell(each, tmp_path, script)
        assert job.wait(WAIT_SECONDS) == 0
        assert eventually(lambda: len(job.living()) > 0)
        return kill(job)

    assert in_supervisor(work) == 0


def test_a_command_that_left_nothing_costs_no_look_at_the_process_table(
    each: LiveProcesses, tmp_path: Path
) -> None:
    def work() -> list[str]:
        each.containment()
        job = shell(each, tmp_path, "true")
        assert job.wait(WAIT_SECONDS) == 0
        listed: list[str] = []
        sys.addaudithook(
            lambda event, told: listed.append(str(told[0])) if event == "os.listdir" else None
        )
        assert job.living() == []
        assert job.close(WAIT_SECONDS)
        return listed

    assert in_supervisor(work) == []


def test_zombies_do_not_count(each: LiveProcesses, tmp_path: Path) -> None:
    # The child's parent never waits for it.
    script = (
        "import os, time\n"
        "if os.fork() == 0: os._exit(0)\n"
        "if os.fork() == 0:\n"
        "    if os.fork() == 0: os._exit(0)\n"
        "    open('keeper', 'w').write(f'{os.getpid()}\\n')\n"
        "    time.sleep(60)\n"
        "os._exit(0)\n"
    )

    def work() -> None:
        job = each.start(command(tmp_path, sys.executable, "-S", "-c", script))
        keeper = read_pid(tmp_path / "keeper")
        assert [process.pid for process in settle(job, 1)] == [keeper]
        assert kill(job) == 0

    in_supervisor(work)


def test_a_process_whose_first_thread_has_ended_counts(each: LiveProcesses, tmp_path: Path) -> None:
    script = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        f"ctypes.CDLL(None).syscall({EXIT_NUMBER}, 0)\n"
    )
    job = each.start(command(tmp_path, sys.executable, "-S", "-c", script))
    stat = Path(f"/proc/{job.identity.pid}/stat")
    assert eventually(lambda: ") Z " in stat.read_text())
    assert job.living() == [job.identity]
    assert kill(job) == -signal.SIGKILL


def test_a_process_whose_first_thread_has_ended_is_killed_wherever_it_went(
    each: LiveProcesses, tmp_path: Path
) -> None:
    """R203: a stroke against a whole control group passes such a process by."""
    script = (
        "import ctypes, os, threading, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "open('pid', 'w').write(f'{os.getpid()}\\n')\n"
        f"ctypes.CDLL(None).syscall({EXIT_NUMBER}, 0)\n"
    )

    def work() -> None:
        job = each.start(command(tmp_path, sys.executable, "-S", "-c", script))
        stat = Path(f"/proc/{read_pid(tmp_path / 'pid')}/stat")
        assert eventually(lambda: ") Z " in stat.read_text())
        assert len(settle(job, 1)) == 1
        assert kill(job) == 0

    in_supervisor(work)


def test_what_moved_into_a_group_of_its_own_below_is_ended_with_the_rest(
    each: LiveProcesses, tmp_path: Path
) -> None:
    def work() -> None:
        job = shell(each, tmp_path, "setsid sh -c 'echo $$ >pid; exec sleep 60' & exit 0")
        pid = read_pid(tmp_path / "pid")
        for folder in job.enclosure:
            (folder / "inner").mkdir()
            write_to_group(f"{folder}/inner/cgroup.procs", str(pid).encode())
        assert [process.pid for process in settle(job, 1)] == [pid]
        kill(job)

    in_supervisor(work)


def test_who_is_no_supervisor_is_no_part_of_the_enclosure(
    each: LiveProcesses, tmp_path: Path
) -> None:
    before = Path("/proc/self/cgroup").read_text()
    job = shell(each, tmp_path, "exec sleep 60")
    assert Path("/proc/self/cgroup").read_text() == before
    assert [process.pid for process in job.living()] == [job.identity.pid]
    kill(job)


# Signals


def test_a_signal_reaches_every_process_once(each: LiveProcesses, tmp_path: Path) -> None:
    loop = "trap 'echo got' TERM; echo ready; while :; do sleep 0.01; done"

    def work() -> str:
        printed = Printed()
        job = shell(each, tmp_path, f'(setsid sh -c "{loop}" &); {loop}', printed)
        assert eventually(lambda: printed.text.count("ready") == 2)
        job.signal_all(signal.SIGTERM)
        assert eventually(lambda: printed.text.count("got") >= 2)
        kill(job)
        return printed.text

    assert in_supervisor(work).count("got") == 2


def test_a_group_outlives_its_leader_and_can_be_killed_then(
    each: LiveProcesses, tmp_path: Path
) -> None:
    job = shell(each, tmp_path, "sleep 60 & exit 0")
    assert len(settle(job, 1)) == 1
    assert job.signal_all(0) == []
    assert kill(job) == 0
    assert job.signal_all(signal.SIGKILL) == []


def test_who_cannot_be_signalled_is_named_and_goes_on_living(tmp_path: Path) -> None:
    """A24: a kill that is refused is told, process by process."""

    def refuse(pid: int, signal_number: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    def work() -> None:
        processes = LiveProcesses(cgroups=Cgroups(()), kill=refuse)
        script = "(setsid sh -c 'echo $$ >pid; exec sleep 60' &); exec sleep 60"
        job = shell(processes, tmp_path, script)
        both = {job.identity.pid, read_pid(tmp_path / "pid")}
        assert eventually(lambda: {process.pid for process in job.living()} == both)
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            assert job.signal_all(signal_number) == [
                Resistance(process, "Operation not permitted") for process in job.living()
            ]
        assert len(job.living()) == 2
        for process in job.living():
            os.kill(process.pid, signal.SIGKILL)
        assert end(job) == -signal.SIGKILL

    in_supervisor(work)


def test_a_process_that_is_stuck_in_the_kernel_is_named_until_it_is_gone(
    each: LiveProcesses, tmp_path: Path
) -> None:
    """A22: killed, yet still there. Where nothing can be made stuck, it dies at once."""

    def work() -> None:
        job = shell(each, tmp_path, "setsid sh -c 'echo $$ >pid; exec sleep 60' & exit 0")
        pid = read_pid(tmp_path / "pid")
        (process,) = settle(job, 1)
        with stuck(pid) as held:
            assert job.signal_all(signal.SIGKILL) == []
            if held:
                deadline = time.monotonic() + 0.2
                while time.monotonic() < deadline:
                    assert job.living() == [process]
                assert each.describe(process) == (
                    f"process {pid} (sleep, in uninterruptible sleep)"
                )
                assert not LiveProcesses(kill_seconds_max=0.1).kill_session(process, job.enclosure)
        assert eventually(lambda: not job.living())
        assert job.close(WAIT_SECONDS)

    in_supervisor(work)


# Enclosures


def membership() -> str:
    return Path("/proc/self/cgroup").read_text()


def test_a_supervisor_stays_where_its_commands_are_born(
    each: LiveProcesses, tmp_path: Path
) -> None:
    """From its first command on it is moved no more, and is no part of any of them."""

    def work() -> None:
        contains = each.containment().contains_by != "process-tree"
        before = membership()
        first = shell(each, tmp_path, "exit 3")
        stays = membership()
        assert (stays != before) == contains
        assert end(first) == 3
        second = shell(each, tmp_path, "exec sleep 60")
        assert second.living() == [second.identity]
        assert second.enclosure == first.enclosure
        assert [os.getpid() in pids_in(folder) for folder in second.enclosure] == [True] * contains
        assert membership() == stays
        assert kill(second) == -signal.SIGKILL
        assert second.signal_all(signal.SIGKILL) == []
        assert (membership() == before) or not contains
        assert end(shell(each, tmp_path, "exit 4")) == 4
        assert membership() == stays

    in_supervisor(work)


def test_a_kill_that_meets_nobody_moves_nobody(each: LiveProcesses, tmp_path: Path) -> None:
    def work() -> bool:
        job = shell(each, tmp_path, "exit 3")
        stays = membership()
        assert job.wait(WAIT_SECONDS) == 3
        assert job.signal_all(signal.SIGKILL) == []
        assert job.close(WAIT_SECONDS)
        return membership() == stays

    assert in_supervisor(work)


def test_commands_at_the_same_time_are_kept_apart(each: LiveProcesses, tmp_path: Path) -> None:
    def work() -> None:
        first, second = (shell(each, tmp_path, "sleep 60 & exec sleep 60") for _ in range(2))
        for job in (first, second):
            assert eventually(lambda job=job: len(job.living()) == 2)  # type: ignore[misc]
        assert not set(first.enclosure) & set(second.enclosure)
        assert kill(first) == -signal.SIGKILL
        assert len(second.living()) == 2
        assert kill(second) == -signal.SIGKILL

    in_supervisor(work)


def test_what_outlives_a_command_does_not_count_as_the_next(
    each: LiveProcesses, tmp_path: Path
) -> None:
    """Where nothing but the process tree tells what belongs together, it does count."""

    def work() -> None:
        first = shell(each, tmp_path, "setsid sleep 60 >/dev/null 2>&1 & exit 0")
        assert len(settle(first, 1)) == 1
        assert first.close(WAIT_SECONDS)
        second = shell(each, tmp_path, "exec sleep 60")
        if each.containment().contains_by != "process-tree":
            assert second.living() == [second.identity]
        assert kill(second) == -signal.SIGKILL
        first.signal_all(signal.SIGKILL)
        assert eventually(lambda: not first.living())

    in_supervisor(work)


def test_a_fork_of_a_supervisor_is_not_born_where_that_stays(
    each: LiveProcesses, tmp_path: Path
) -> None:
    def work() -> None:
        before = membership()
        assert end(shell(each, tmp_path, "true")) == 0
        peer = each.fork(lambda channel: channel.send({"in": membership()}))
        assert peer.channel.receive(WAIT_SECONDS) == {"in": before}
        assert eventually(lambda: peer.poll() is not None)
        peer.channel.close()

    in_supervisor(work)


def test_a_standing_group_that_was_swept_away_is_made_anew(
    each: LiveProcesses, tmp_path: Path
) -> None:
    def work() -> None:
        first = shell(each, tmp_path, "exec sleep 60")
        assert kill(first) == -signal.SIGKILL
        for folder in first.enclosure:
            folder.rmdir()
        second = shell(each, tmp_path, "exec sleep 60")
        assert second.enclosure == first.enclosure
        assert kill(second) == -signal.SIGKILL

    in_supervisor(work)


def test_who_cannot_move_back_ends_the_command_and_says_so(tmp_path: Path) -> None:
    """Real groups: the one to go back to is removed while this process is elsewhere. It is no
    supervisor, which would stay with its command."""

    def fork() -> dict[str, Any]:
        pid = os.fork()
        if pid == 0:
            try:
                (tmp_path / "told").write_text(json.dumps(work()))
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        told: dict[str, Any] = json.loads((tmp_path / "told").read_text())
        return told

    def work() -> dict[str, Any]:
        own = [one for one in find_hierarchies() if one.kind == V2]
        base = own[0].own / f"base-{os.getpid()}" if own else tmp_path / "base"
        home = base / "stado-agent"
        try:
            home.mkdir(parents=True)
            write_to_group(f"{home}/cgroup.procs", b"0")
        except OSError:
            return {"tried": False}
        cgroups = Cgroups([one for one in find_hierarchies() if one.kind == V2])
        processes = LiveProcesses(cgroups=cgroups)
        try:
            assert processes.containment().contains_by == "cgroup-v2"
            write_to_group(f"{own[0].own}/cgroup.procs", b"0")
            home.rmdir()
            with pytest.raises(FileNotFoundError):
                processes.start(command(tmp_path, "sh", "-c", "echo $$ >pid; exec sleep 60"))
        finally:
            write_to_group(f"{own[0].own}/cgroup.procs", b"0")
            eventually(lambda: not _busy(base))
        started = (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()
        return {"tried": True, "alive": bool(started and processes.identify(int(started)))}

    told = in_supervisor(fork)
    assert told["tried"] == (only(V2).containment().contains_by == "cgroup-v2")
    assert not told.get("alive")


def _busy(base: Path) -> bool:
    for folder in [*base.glob("*/"), base]:
        try:
            folder.rmdir()
        except OSError:
            continue
    return base.exists()
