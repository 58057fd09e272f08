"""Making files and folders outlive a power cut."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ONE_BY_ONE_MAX = 16
"""Above so many files one sync of the whole file system is cheaper than one each."""


def sync_path(path: Path) -> None:
    """Flushes one file or folder. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_paths(paths: Sequence[Path]) -> None:
    """Flushes files or folders of one file system. Raises `OSError`."""
    syncfs = _find_syncfs() if len(paths) > ONE_BY_ONE_MAX else None
    if syncfs is not None:
        _sync_file_system(paths[0], syncfs)
        return
    for path in paths:
        sync_path(path)


@functools.cache
def _find_syncfs() -> Callable[[int], Any] | None:
    """None where there is none. Imports what most programs need not."""
    import ctypes

    try:
        return ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):  # not Linux
        return None


def _sync_file_system(path: Path, syncfs: Callable[[int], Any]) -> None:
    import ctypes

    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)
