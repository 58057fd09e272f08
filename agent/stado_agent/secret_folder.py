"""Secrets in a folder of the host: `ITEM/FIELD`, a file each, that nobody else may read or write.

No link is followed, so that whatever is named lies in the folder.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from stado_agent.secrets import SecretRefused, SecretUnreachable

_FILE_BYTES_MAX = 131_072
_OTHERS = 0o077
_WRITABLE_BY_OTHERS = 0o022


class SecretFolder:
    """`root` may be a link; nothing below it is."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, item: str, field: str) -> str:
        """The file as text, without one line end behind it."""
        parts = [*item.split("/"), field]
        if any(part in ("", ".", "..") for part in parts):
            raise SecretRefused("its name leads out of the folder of secrets: name it plainly")
        try:
            data = self._read(parts)
        except FileNotFoundError:
            raise SecretRefused("there is no such file in this host's folder of secrets") from None
        except OSError as error:
            raise SecretUnreachable(f"its file cannot be read: {error.strerror}") from None
        return _text_of(data)

    def _read(self, parts: list[str]) -> bytes:
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _check_folder(folder, "the folder of secrets")
            for number, part in enumerate(parts[:-1], start=1):
                below = _open_below(folder, part, os.O_DIRECTORY)
                os.close(folder)
                folder = below
                _check_folder(folder, f"the folder {'/'.join(parts[:number])}")
            file = _open_below(folder, parts[-1], os.O_NONBLOCK)
        finally:
            os.close(folder)
        try:
            _check_file(file, "/".join(parts))
            return os.read(file, _FILE_BYTES_MAX)
        finally:
            os.close(file)


def _open_below(folder: int, name: str, flags: int) -> int:
    """Raises `SecretRefused` for a link."""
    try:
        return os.open(name, flags | os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            raise SecretRefused(
                f"{name} in this host's folder of secrets is a link, and none is followed"
            ) from None
        raise


def _check_folder(descriptor: int, name: str) -> None:
    found = os.fstat(descriptor)
    if found.st_uid not in (os.geteuid(), 0) or found.st_mode & _WRITABLE_BY_OTHERS:
        raise SecretRefused(f"{name} can be written by others: chmod go-w, or chown it")


def _check_file(descriptor: int, name: str) -> None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise SecretRefused(f"{name} in this host's folder of secrets is no file")
    if found.st_uid != os.geteuid():
        raise SecretRefused(f"its file {name} belongs to another user than the agent's: chown it")
    if found.st_mode & _OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        raise SecretRefused(f"its file {name} is open to others (mode {mode:04o}): chmod 0600")


def _text_of(data: bytes) -> str:
    """As bytes that are no UTF-8 reach an environment unchanged, too."""
    text = data.decode(errors="surrogateescape")
    return text.removesuffix("\n").removesuffix("\r")
