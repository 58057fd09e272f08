"""Lets forks be tested in a worker of pytest-xdist."""

from __future__ import annotations

import os
import threading

import pytest


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
