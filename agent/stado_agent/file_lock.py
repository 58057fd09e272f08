"""Locks of files that processes of a host share: the kernel's, which end with who holds them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def try_to_lock(path: Path) -> int | None:
    """A descriptor that holds the lock of a file, which is made; None when another one has it, or
    has just removed it. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if take_lock(descriptor) and _is_at(descriptor, path):
            return descriptor
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def take_lock(descriptor: int) -> bool:
    """Whether it is ours now, and nobody else's. Raises `OSError`."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    """A lock file is removed by who held it: the next one has another."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
