"""A command's memory: limited by the kernel, or looked at; and what is said of it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from stado.ports import Containment, ProcessIdentity
from stado.system.cgroups import Cgroups
from stado.system.memory_watch import MemoryWatch
from stado.system.processes import LiveProcesses
from tests.system.commands import (
    MECHANISMS,
    WAIT_SECONDS,
    Printed,
    command,
    eventually,
    in_supervisor,
    kill,
)

MIB = 1 << 20


def python(script: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", script)


@pytest.fixture(params=MECHANISMS)
def each(request: pytest.FixtureRequest) -> LiveProcesses:
    """On each mechanism in turn."""
    return LiveProcesses(cgroups=MECHANISMS[request.param]())


@pytest.mark.usefixtures("no_descriptor_leaks", "no_groups_left")
def test_a_command_above_its_memory_is_found_out_with_all_that_it_printed(
    each: LiveProcesses, tmp_path: Path
) -> None:
    """A49: ended for its memory right after it printed 64 KiB."""
    printed = Printed()
    script = (
        "import sys, time\n"
        "sys.stdout.write('x' * 65536)\n"
        "sys.stdout.flush()\n"
        "kept = b'y' * (300 << 20)\n"
        "time.sleep(60)\n"
    )
    order = command(tmp_path, *python(script), sink=printed, memory_bytes=96 * MIB)
    job = each.start(order)
    assert eventually(lambda: job.memory_exceeded() is not None)
    assert kill(job) == -signal.SIGKILL
    assert job.memory_exceeded() == "it used more than the 96 MiB of memory that it stated"
    assert printed.data == b"x" * 65_536


@pytest.mark.usefixtures("no_descriptor_leaks", "no_groups_left")
def test_a_command_within_its_memory_is_left_alone(each: LiveProcesses, tmp_path: Path) -> None:
    job = each.start(command(tmp_path, "true", memory_bytes=96 * MIB))
    assert job.memory_exceeded() is None
    assert job.wait(WAIT_SECONDS) == 0
    assert job.close(WAIT_SECONDS)
    assert job.memory_exceeded() is None


@pytest.mark.usefixtures("no_descriptor_leaks", "no_groups_left")
@pytest.mark.parametrize(("script", "exit_code"), [("kill -9 $$", -9), ("sh -c 'kill -9 $$'", 137)])
def test_a_kill_for_another_reason_is_no_want_of_memory(
    each: LiveProcesses, tmp_path: Path, script: str, exit_code: int
) -> None:
    """R82: signal 9 and exit code 137 say nothing of that, whatever keeps the command's memory."""
    order = command(tmp_path, "sh", "-c", f"{script}; exit $?", memory_bytes=96 * MIB)
    job = each.start(order)
    assert job.wait(WAIT_SECONDS) == exit_code
    assert job.memory_exceeded() is None
    assert job.close(WAIT_SECONDS)
    assert job.memory_exceeded() is None


def memory_groups(pid: int) -> set[str]:
    """Where the threads of a process are in the hierarchy of version 1, if there is one."""
    threads = Path(f"/proc/{pid}/task").glob("*/cgroup")
    lines = [line for thread in threads for line in thread.read_text().splitlines()]
    return {line for line in lines if ":memory:" in line}


@pytest.mark.usefixtures("no_descriptor_leaks", "no_groups_left")
def test_a_limit_of_memory_moves_one_thread_of_the_supervisor_and_only_for_a_moment(
    tmp_path: Path,
) -> None:
    """To move the whole process would make every process of the host wait."""

    def work() -> None:
        processes = LiveProcesses()
        separate = processes.containment() == Containment("cgroup-v2", "cgroup-v1")
        before = memory_groups(os.getpid())
        during: list[set[str]] = []
        over = threading.Event()
        beside = threading.Thread(target=over.wait)
        beside.start()
        sys.addaudithook(
            lambda event, told: (
                during.append(memory_groups(os.getpid())) if event == "subprocess.Popen" else None
            )
        )
        job = processes.start(command(tmp_path, "sleep", "60", memory_bytes=96 * MIB))
        assert memory_groups(os.getpid()) == before
        if separate:
            assert len(job.enclosure) == 2
            assert memory_groups(job.identity.pid) == during[0] - before
            assert len(during[0]) == 2
            assert job.enclosure[1].name in memory_groups(job.identity.pid).pop()
        kill(job)
        over.set()
        beside.join()

    in_supervisor(work)


@pytest.mark.usefixtures("no_descriptor_leaks", "no_groups_left")
def test_a_limit_is_for_its_command_alone(each: LiveProcesses, tmp_path: Path) -> None:
    """The supervisor is back where it stays, and the next command has no limit."""

    def work() -> None:
        first = each.start(command(tmp_path, "true"))
        assert first.wait(WAIT_SECONDS) == 0
        assert first.close(WAIT_SECONDS)
        stays = Path("/proc/self/cgroup").read_text()
        limited = each.start(command(tmp_path, "sleep", "60", memory_bytes=96 * MIB))
        assert Path("/proc/self/cgroup").read_text() == stays
        assert limited.living() == [limited.identity]
        counts = each.containment().limits_memory_by != "watchdog"
        assert (limited.enclosure != first.enclosure) == counts
        assert kill(limited) == -signal.SIGKILL
        next_one = each.start(command(tmp_path, *python("kept = b'y' * (150 << 20)")))
        assert next_one.enclosure == first.enclosure
        assert next_one.wait(WAIT_SECONDS) == 0
        assert next_one.memory_exceeded() is None
        assert next_one.close(WAIT_SECONDS)

    in_supervisor(work)


@pytest.mark.parametrize(
    ("limit_mib", "answer"),
    [(200, None), (60, "it used more than the 60 MiB of memory that it stated")],
)
def test_what_forked_workers_share_counts_once(
    tmp_path: Path, limit_mib: int, answer: str | None
) -> None:
    """Four processes with 100 MiB in common: 400 by one count, 100 in truth."""
    script = (
        "import os, time\n"
        "shared = b'y' * (100 << 20)\n"
        "workers = [0] * 3\n"
        "for number in range(3):\n"
        "    if os.fork() == 0: time.sleep(60)\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )

    def work() -> str | None:
        processes, printed = LiveProcesses(cgroups=Cgroups(())), Printed()
        order = command(tmp_path, *python(script), sink=printed, memory_bytes=limit_mib * MIB)
        job = processes.start(order)
        assert eventually(lambda: printed.text == "ready\n")
        assert len(job.living()) == 4
        told = job.memory_exceeded()
        kill(job)
        return told

    assert in_supervisor(work) == answer


# What it costs to look


def test_the_looks_are_the_rarer_the_more_one_costs() -> None:
    """A host with thousands of processes is not kept busy by reading its table."""
    looked: list[float] = []

    def living() -> list[ProcessIdentity]:
        looked.append(time.monotonic())
        began = time.thread_time()
        while time.thread_time() - began < 0.003:
            pass
        return []

    watch = MemoryWatch(limit_bytes=MIB, group=None)
    began = time.monotonic()
    while time.monotonic() - began < 0.05:
        assert watch.look(living) is None
    assert len(looked) == 1
    assert eventually(lambda: watch.look(living) is None and len(looked) == 2)
    assert looked[1] - looked[0] >= 0.25


def test_a_command_that_is_known_to_share_is_weighed_again_only_when_it_has_grown(
    tmp_path: Path,
) -> None:
    """The exact figure makes the kernel walk through all its pages."""
    script = (
        "import os, time\n"
        "shared = b'y' * (100 << 20)\n"
        "for number in range(3):\n"
        "    if os.fork() == 0: time.sleep(60)\n"
        "print('ready', flush=True)\n"
        "input_ = open('gate').read()\n"
        "more = b'z' * (150 << 20)\n"
        "print('grown', flush=True)\n"
        "time.sleep(60)\n"
    )

    def work() -> None:
        os.mkfifo(tmp_path / "gate")
        processes, printed = LiveProcesses(cgroups=Cgroups(())), Printed()
        weighed: list[str] = []

        def count(event: str, told: tuple[object, ...]) -> None:
            if event == "open" and str(told[0]).endswith("/smaps_rollup"):
                weighed.append(str(told[0]))

        sys.addaudithook(count)
        order = command(tmp_path, *python(script), sink=printed, memory_bytes=200 * MIB)
        job = processes.start(order)
        assert eventually(lambda: printed.text == "ready\n")
        watch = MemoryWatch(limit_bytes=200 * MIB, group=None)
        looks: list[int] = []

        def living() -> list[ProcessIdentity]:
            looks.append(1)
            return job.living()

        assert eventually(lambda: watch.look(living) is None and len(looks) >= 4)
        assert len(weighed) == 4
        (tmp_path / "gate").write_text("")
        assert eventually(lambda: watch.look(living) is not None)
        kill(job)

    in_supervisor(work)


# The kernel's files of version 2, as plain files


def group(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_version_2_limits_memory_and_gives_no_swap(tmp_path: Path) -> None:
    folder = group(tmp_path, memory__max="max\n", memory__swap__max="max\n")
    MemoryWatch(limit_bytes=2 << 30, group=folder).limit()
    assert int((folder / "memory.max").read_bytes().split()[0]) == 2 << 30
    assert (folder / "memory.swap.max").read_bytes()[:1] == b"0"


@pytest.mark.parametrize(
    ("limit_bytes", "events", "answer"),
    [
        (2 << 30, "oom 0\noom_kill 0\n", None),
        (2 << 30, "oom 1\noom_kill 0\n", None),
        (
            2 << 30,
            "oom 3\noom_kill 1\n",
            "it used more than the 2 GiB of memory that it stated",
        ),
        (
            2 << 30,
            "oom 0\noom_kill 1\n",
            "the host ran out of memory, and the kernel ended a process of it",
        ),
        (
            None,
            "oom 0\noom_kill 1\n",
            "the host ran out of memory, and the kernel ended a process of it",
        ),
        (None, "", None),
    ],
)
def test_the_counters_of_version_2_tell_whose_limit_it_was(
    tmp_path: Path, limit_bytes: int | None, events: str, answer: str | None
) -> None:
    folder = group(tmp_path, memory__max="max\n", memory__events=events)
    watch = MemoryWatch(limit_bytes=limit_bytes, group=folder)
    watch.limit()
    assert watch.look(list) == answer
    (folder / "memory.events").unlink()
    assert watch.look(list) == answer


def test_a_limit_that_the_kernel_refuses_is_watched_instead(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    processes = LiveProcesses(cgroups=Cgroups(()))
    watch = MemoryWatch(limit_bytes=MIB, group=tmp_path / "absent")
    watch.limit()
    assert "event=no_memory_limit" in caplog.text
    assert watch.look(list) is None
    assert eventually(lambda: watch.look(lambda: [processes.own_identity()]) is not None)
    assert watch.look(list) == "it used more than the 1 MiB of memory that it stated"
