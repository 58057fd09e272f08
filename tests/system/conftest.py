"""Lets forks be tested in a worker of pytest-xdist."""

from __future__ import annotations

import os
import threading

import pytest


@pytest.fixture(autouse=True)
def _uncounted_reader_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker has one thread more, which reads what the controller sends and holds no lock that
    a forked child needs."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    count = threading.active_count
    readers = count() - 1
    monkeypatch.setattr(threading, "active_count", lambda: count() - readers)
