"""Waiting for a descriptor or for a process to end, at once when it happens."""

from __future__ import annotations

import math
import os
import select

_MILLISECONDS_MAX = 2**31 - 1


def poll_timeout(seconds: float | None) -> int | None:
    """What `poll` wants: milliseconds, rounded up so that no caller spins."""
    if seconds is None:
        return None
    return min(max(0, math.ceil(seconds * 1000)), _MILLISECONDS_MAX)


def wait_ready(descriptor: int, events: int, timeout_seconds: float | None) -> bool:
    poller = select.poll()
    poller.register(descriptor, events)
    return bool(poller.poll(poll_timeout(timeout_seconds)))


def open_exit_watch(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None where the kernel has none."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
