"""What the supervisors of one agent share on their host, so that it is fetched once: entries in
folders, each used by one at a time, the least recently used removed beyond a limit.

A lock ends with the process that holds it. What a killed process left in an entry is for the next
one to judge.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stado.jobs.folders import make_folder, remove_folder, walk_files
from stado.ports import Clock
from stado_agent.file_lock import try_to_lock

BYTES_MAX_DEFAULT = 2 * 1024**3
_LOOK_SECONDS = 0.1
_LOCK = ".lock"
_ASIDE = ".gone"
_ENTRIES_MAX = 1000


class HostCache:
    """One folder of entries."""

    def __init__(self, folder: Path, clock: Clock, *, bytes_max: int = BYTES_MAX_DEFAULT) -> None:
        self._folder = folder
        self._clock = clock
        self._bytes_max = bytes_max

    @contextmanager
    def entry(self, name: str, between: Callable[[], None]) -> Iterator[Path]:
        """The folder of an entry, ours alone while the context is entered; what lies in it is
        kept for the next. `between` is called while another one has it, and ends the wait by what
        it raises. Raises `OSError`."""
        make_folder(self._folder)
        descriptor = self._lock(name, between)
        try:
            folder = self._folder / name
            folder.mkdir(mode=0o700, exist_ok=True)
            yield folder
            os.utime(self._lock_path(name))
        finally:
            os.close(descriptor)
        self._trim(keep=name)

    def _lock(self, name: str, between: Callable[[], None]) -> int:
        while True:
            descriptor = try_to_lock(self._lock_path(name))
            if descriptor is not None:
                return descriptor
            between()
            self._clock.sleep(_LOOK_SECONDS)

    def _trim(self, *, keep: str) -> None:
        """Removes what was not used for longest, as far as nobody has it and the host lets us."""
        used = self._by_use()
        sizes = {name: self._size(name) for name in used}
        excess = sum(sizes.values()) - self._bytes_max
        for number, name in enumerate(used):
            if excess <= 0 and len(used) - number <= _ENTRIES_MAX:
                return
            if name != keep and self._remove(name):
                excess -= sizes[name]

    def _by_use(self) -> list[str]:
        found = []
        for path in self._folder.glob(f"*{_LOCK}"):
            with suppress(OSError):
                found.append((path.stat().st_mtime_ns, path.name.removesuffix(_LOCK)))
        return [name for _, name in sorted(found)]

    def _remove(self, name: str) -> bool:
        with suppress(OSError):
            descriptor = try_to_lock(self._lock_path(name))
            if descriptor is not None:
                try:
                    remove_folder(set_aside(self._folder / name))
                    self._lock_path(name).unlink(missing_ok=True)
                finally:
                    os.close(descriptor)
                return True
        return False

    def _size(self, name: str) -> int:
        """With what a killed process could not remove any more."""
        folder = self._folder / name
        return _size(folder) + _size(_aside(folder))

    def _lock_path(self, name: str) -> Path:
        return self._folder / f"{name}{_LOCK}"


def set_aside(folder: Path) -> Path:
    """Takes its name from a folder that is to be removed, and says where it is now: whoever is
    killed on the way leaves no half of it under the name that counts."""
    aside = _aside(folder)
    remove_folder(aside)
    with suppress(FileNotFoundError):
        folder.rename(aside)
    return aside


def _aside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{_ASIDE}")


def _size(folder: Path) -> int:
    """In bytes; what vanishes meanwhile has none."""
    size = 0
    for path, _ in walk_files(folder, lambda _: None):
        with suppress(OSError):
            size += path.lstat().st_size
    return size
