"""What tests of processes need around them, and must leave behind: nothing."""

from __future__ import annotations

import gc
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from stado.system.cgroup_mounts import find_hierarchies
from stado.system.identity import find_process
from stado.system.processes import LiveProcesses
from stado.system.standing_group import find_owner
from tests.system.commands import eventually

_FORKED = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # lives as long as the worker
"""The pids of all that this process and its forks have forked, a line each."""

os.register_at_fork(after_in_child=lambda: _FORKED.write(b"%d\n" % os.getpid()))


@pytest.fixture(autouse=True)
def _uncounted_threads_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may have threads of its own, and of tests that ran in it before. They hold no lock
    that a forked child needs, they end when they like, and the child has none of them."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    count, worker = threading.active_count, os.getpid()
    others = count() - 1

    def count_ours() -> int:
        return max(1, count() - others) if os.getpid() == worker else count()

    monkeypatch.setattr(threading, "active_count", count_ours)


@pytest.fixture
def no_descriptor_leaks() -> Iterator[None]:
    """What is open afterwards was open before. What tests before it in the worker left to the
    garbage collector may close meanwhile."""
    LiveProcesses().wait([], 0)  # Makes what a process makes once.
    before = _descriptors()
    yield
    if _descriptors() - before:
        gc.collect()  # Takes seconds in a process that has run thousands of tests.
    assert eventually(lambda: not _descriptors() - before), _descriptors() - before


def _descriptors() -> set[tuple[str, str]]:
    """Number and target of all that is open in this process."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # The one of the listing itself.
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found


@pytest.fixture
def no_groups_left() -> Iterator[None]:
    """Of this process and of its forks that have ended. What others on this machine do and leave
    is theirs."""
    before = set(_own_groups())
    yield
    left = set(_own_groups()) - before
    assert eventually(lambda: not any(folder.exists() for folder in left)), left


def _own_groups() -> Iterator[Path]:
    ended = {pid for pid in _forked() if find_process(pid) is None}
    for hierarchy in find_hierarchies():
        for folder in hierarchy.own.glob("stado-*/"):
            owner = find_owner(folder)
            if owner and (owner.pid == os.getpid() or owner.pid in ended):
                yield folder


def _forked() -> set[int]:
    size = os.fstat(_FORKED.fileno()).st_size
    return {int(line) for line in os.pread(_FORKED.fileno(), size, 0).split()}
