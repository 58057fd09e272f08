"""What tests of processes need around them, and must leave behind: nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from stado.system.cgroup_mounts import find_hierarchies
from stado.system.processes import LiveProcesses
from tests.system.commands import NAME_PREFIX


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
    LiveProcesses().wait([], 0)  # Makes what a process makes once.
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def no_groups_left() -> Iterator[None]:
    """Of this process and its forks; workers beside it may have some at any time."""
    yield
    for hierarchy in find_hierarchies():
        assert not list(hierarchy.own.glob(f"stado-{NAME_PREFIX}*"))
