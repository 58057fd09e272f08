"""What an error of the operating system means for an object in a directory."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stado.errors import Ambiguous, Denied, Misconfigured, StoreError, Unavailable

_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_FULL = {errno.ENOSPC, errno.EDQUOT}
_TOO_MANY_OPEN = {errno.EMFILE, errno.ENFILE}
_WRONG_SHAPE = {errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}
_GONE = {errno.ESTALE, errno.ENOTCONN, errno.EHOSTDOWN, errno.ENODEV, errno.ENXIO}


@contextmanager
def store_errors(key: str, *, writing: bool, folder: Path) -> Iterator[None]:
    """Turns any `OSError` into a `StoreError` about the store in `folder`. Absence is the caller's
    to handle, inside; so is what fails when the object is in its place already."""
    try:
        yield
    except OSError as error:
        raise _translated(key, error, folder, writing=writing) from error


def _translated(key: str, error: OSError, folder: Path, *, writing: bool) -> StoreError:
    why = error.strerror or str(error)
    number = error.errno
    if number in _DENIED:
        return Denied(key, f"{why}: check who owns {folder}, and its mount options")
    if number in _FULL:
        return Unavailable(key, f"{why}: free some space (or quota) at {folder}")
    if number in _TOO_MANY_OPEN:
        return Unavailable(key, f"{why}: raise the limit (`ulimit -n`)")
    if number == errno.EFBIG:
        return Misconfigured(key, f"{why}: raise the limit (`ulimit -f`), or move {folder}")
    if number in _WRONG_SHAPE:
        return Misconfigured(key, f"{why}: a key cannot be both an object and a folder")
    remedy = f"is the file system of {folder} mounted" if number in _GONE else f"look at {folder}"
    if writing:
        # EIO and ESTALE among them: a write that reached a network disk may well be there.
        return Ambiguous(key, f"{why}: {remedy}")
    return Unavailable(key, f"{why}: {remedy}")
