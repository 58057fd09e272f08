"""What an error of the operating system means for an object in a directory."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from stado.errors import Ambiguous, Denied, Misconfigured, StoreError, Unavailable

_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_FULL = {errno.ENOSPC, errno.EDQUOT}
_WRONG_SHAPE = {errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}


@contextmanager
def store_errors(key: str, *, writing: bool) -> Iterator[None]:
    """Turns any `OSError` into a `StoreError`. Absence is the caller's to handle, inside."""
    try:
        yield
    except OSError as error:
        raise _translated(key, error, writing=writing) from error


def _translated(key: str, error: OSError, *, writing: bool) -> StoreError:
    why = error.strerror or str(error)
    if error.errno in _DENIED:
        return Denied(key, f"{why}: check who owns the store's directory, and its mount options")
    if error.errno in _FULL:
        return Unavailable(key, f"{why}: free space (or quota) where the store's directory is")
    if error.errno in _WRONG_SHAPE:
        return Misconfigured(key, f"{why}: a key cannot be both an object and a folder")
    if writing:
        # EIO and ESTALE among them: a write that reached a network disk may well be there.
        return Ambiguous(key, why)
    return Unavailable(key, why)
