"""Folders as jobs leave them, of any depth: walked, made and removed without recursion, which the
depth would exhaust.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def walk_files(folder: Path, on_error: Callable[[OSError], None]) -> Iterator[tuple[Path, int]]:
    """All that is no folder below one, with its mode; links are not followed. `on_error` hears of
    what cannot be looked at."""
    pending = [folder]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                paths = [Path(entry.path) for entry in entries]
        except OSError as error:
            on_error(error)
            continue
        for path in paths:
            try:
                mode = path.lstat().st_mode
            except OSError as error:
                on_error(error)
                continue
            if stat.S_ISDIR(mode):
                pending.append(path)
            else:
                yield path, mode


def make_folder(folder: Path) -> list[Path]:
    """With all above it that is missing; what was, from the top. Raises `OSError`."""
    missing = list(itertools.takewhile(lambda path: not path.is_dir(), [folder, *folder.parents]))
    missing.reverse()
    for path in missing:
        path.mkdir(exist_ok=True)
    return missing


@contextmanager
def folder_for(folder: Path) -> Iterator[None]:
    """Makes a folder for what is done meanwhile. When that fails, what was made goes again unless
    it holds something."""
    made = make_folder(folder)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for path in reversed(made):
                path.rmdir()
        raise


def remove_folder(folder: Path) -> None:
    """With all that is in it, as far as the host goes along; nothing is said of the rest."""
    import shutil  # with all its kinds of archives: who only looks needs none of it

    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        _remove_deep(folder)


def _remove_deep(folder: Path) -> None:
    """Brings each folder right below the top before it is looked into: no path grows long."""
    import shutil

    numbers = itertools.count()
    pending = [folder]
    while pending:
        for path in _listed(pending.pop()):
            if path.is_symlink() or not path.is_dir():
                with suppress(OSError):
                    path.unlink()
                continue
            raised = folder / f".removed-{os.getpid()}-{next(numbers)}"
            with suppress(OSError):
                path.chmod(0o700)
                path.rename(raised)
                pending.append(raised)
    shutil.rmtree(folder, ignore_errors=True)


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
