"""A tree of files in one archive: packed so that equal trees make equal archives, and unpacked so
that nothing but the tree itself comes of it, whoever made the archive.

An archive is a compressed tar of regular files and links in the order of their paths, without
owners, times or folders.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from stado.core.trees import EntryKind, TreeEntry, path_flaw, tree_digest
from stado.errors import Refused

_CHUNK_BYTES = 1 << 20
_COMPRESSION = 3
_MODES = {EntryKind.FILE: 0o644, EntryKind.EXECUTABLE: 0o755}
_HEADER_BYTES_MAX = 16 * 1024
"""Of tar, for one path of any length."""

_NOT_HELD = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.EEXIST, errno.ENOTDIR)
"""What a file system answers that cannot hold a name, or not beside another one."""


@dataclass(frozen=True, slots=True)
class PackedTree:
    """What an archive holds."""

    digest: str
    files: int
    """Links included."""
    bytes: int
    """Of the contents."""


class UnsafeArchive(Exception):
    """An archive is not what `pack` makes: nothing of it may be used."""


# --- packing ----------------------------------------------------------------------------


def pack(folder: Path, paths: Iterable[bytes], archive: Path) -> PackedTree:
    """Packs these files and links of a folder. Raises `Refused` (`tree_changed`) when one of them
    is not the same throughout, `OSError` when one cannot be read."""
    packing = _Packing(os.fsencode(folder))
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(
            filename="", mode="wb", compresslevel=_COMPRESSION, fileobj=raw, mtime=0
        ) as compressed,
        tarfile.TarFile(
            fileobj=compressed,
            mode="w",
            format=tarfile.GNU_FORMAT,
            encoding="utf-8",
            errors="surrogateescape",
            copybufsize=_CHUNK_BYTES,
        ) as tar,
    ):
        for path in sorted(set(paths)):
            packing.add(tar, path)
    packing.check_unchanged()
    return packing.packed()


class _Packing:
    """One tree on its way into an archive."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._entries: list[TreeEntry] = []
        self._states: list[tuple[bytes, tuple[int, ...]]] = []
        self._bytes = 0
        self._links: set[bytes] = set()

    def add(self, tar: tarfile.TarFile, path: bytes) -> None:
        """In the order of the paths. Nothing lies below a link."""
        if any(folder in self._links for folder in _folders(path)):
            raise _changed(path)
        with _noticing(path):
            status = os.lstat(os.path.join(self._root, path))
            self._states.append((path, _state(status)))
            if stat.S_ISLNK(status.st_mode):
                self._add_link(tar, path)
            elif stat.S_ISREG(status.st_mode):
                self._add_file(tar, path)
            else:
                raise _changed(path)

    def check_unchanged(self) -> None:
        """A file that was written after it was packed belongs to another tree than the rest."""
        for path, state in self._states:
            with _noticing(path):
                if _state(os.lstat(os.path.join(self._root, path))) != state:
                    raise _changed(path)

    def packed(self) -> PackedTree:
        return PackedTree(tree_digest(self._entries), len(self._entries), self._bytes)

    def _add_link(self, tar: tarfile.TarFile, path: bytes) -> None:
        target = os.readlink(os.path.join(self._root, path))
        header = _header(path)
        header.type, header.linkname, header.mode = tarfile.SYMTYPE, _text(target), 0o777
        tar.addfile(header)
        self._links.add(path)
        self._entries.append(TreeEntry(path, EntryKind.LINK, hashlib.sha256(target).hexdigest()))

    def _add_file(self, tar: tarfile.TarFile, path: bytes) -> None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        with open(os.open(os.path.join(self._root, path), flags), "rb") as file:
            status = os.fstat(file.fileno())
            if _state(status) != self._states[-1][1]:
                raise _changed(path)
            kind = EntryKind.EXECUTABLE if status.st_mode & stat.S_IXUSR else EntryKind.FILE
            header = _header(path)
            header.size, header.mode = status.st_size, _MODES[kind]
            source = _Source(file, status.st_size, path)
            tar.addfile(header, source)  # type: ignore[arg-type]  # reads it, and no more
            self._entries.append(TreeEntry(path, kind, source.sha256()))
            self._bytes += status.st_size


class _Source:
    """A file that has to be as long as it was, with the digest of what was read."""

    def __init__(self, file: IO[bytes], size: int, path: bytes) -> None:
        self._file = file
        self._left = size
        self._path = path
        self._digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        wanted = min(size, self._left)
        data = self._file.read(wanted)
        if len(data) < wanted:
            raise _changed(self._path)
        self._left -= len(data)
        self._digest.update(data)
        return data

    def sha256(self) -> str:
        return self._digest.hexdigest()


def _folders(path: bytes) -> Iterator[bytes]:
    """Those on the way to a path, the nearest first."""
    while path := path.rpartition(b"/")[0]:
        yield path


def _header(path: bytes) -> tarfile.TarInfo:
    header = tarfile.TarInfo(_text(path))
    header.mtime = 0
    return header


def _state(status: os.stat_result) -> tuple[int, ...]:
    """What changes when a file does."""
    return (
        *(status.st_mode, status.st_ino, status.st_dev, status.st_size),
        *(status.st_mtime_ns, status.st_ctime_ns),
    )


@contextmanager
def _noticing(path: bytes) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise _changed(path) from None
    except OSError as error:
        if error.errno == errno.ELOOP:  # it has become a link
            raise _changed(path) from None
        raise


def _changed(path: bytes) -> Refused:
    return Refused(
        "tree_changed",
        f"{_shown(path)} changed while it was packed: submit again when nothing writes there, or "
        "name it in .stadoignore",
    )


# --- unpacking --------------------------------------------------------------------------


def unpack(
    archive: Path,
    folder: Path,
    *,
    files_max: int,
    bytes_max: int,
    between: Callable[[], None] = lambda: None,
) -> PackedTree:
    """Makes an empty folder hold the tree of an archive, and says which tree that is. Files get
    mode 0644 or 0755 and the time at which they are written.

    Raises `UnsafeArchive` for anything that `pack` does not make or more than was announced,
    `OSError` of the host, and what `between` raises, which is called after each megabyte and each
    file. Whatever it raises, the folder may hold some of the tree then, and never anything
    outside of it."""
    limit = bytes_max + files_max * _HEADER_BYTES_MAX + _CHUNK_BYTES
    unpacking = _Unpacking(os.fsencode(folder), bytes_max=bytes_max, between=between)
    with _members(archive, limit) as (tar, members):
        for count, member in enumerate(members, start=1):
            if count > files_max:
                raise UnsafeArchive(f"it holds more than {files_max} files")
            unpacking.add(tar, member)
    unpacking.make_links()
    return unpacking.unpacked()


class _Unpacking:
    """One archive on its way into a folder. Links come last: nothing is ever written through
    one."""

    def __init__(self, root: bytes, *, bytes_max: int, between: Callable[[], None]) -> None:
        self._root = root
        self._between = between
        self._bytes_left = bytes_max
        self._bytes = 0
        self._entries: list[TreeEntry] = []
        self._taken: set[bytes] = set()
        self._folders = {b""}
        self._links: list[tuple[bytes, bytes]] = []

    def add(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        path = _bytes(member.name)
        self._check_place(path)
        if member.issym():
            self._note_link(path, _bytes(member.linkname))
        elif member.type == tarfile.REGTYPE and not member.issparse():
            self._write_file(tar, member, path)
        else:
            raise UnsafeArchive(f"{_shown(path)} is neither a file nor a link")
        self._taken.add(path)
        self._between()

    def make_links(self) -> None:
        for path, target in self._links:
            with _told_apart(path):
                self._make_folders(path)
                os.symlink(target, os.path.join(self._root, path))
        root = os.path.realpath(self._root)
        for path, target in self._links:
            reached = os.path.realpath(os.path.join(self._root, path))
            if target.startswith(b"/") or not (reached + b"/").startswith(root + b"/"):
                raise UnsafeArchive(f"{_shown(path)} leads out of the tree")

    def unpacked(self) -> PackedTree:
        return PackedTree(tree_digest(self._entries), len(self._entries), self._bytes)

    def _check_place(self, path: bytes) -> None:
        flaw = path_flaw(path)
        if flaw is not None:
            raise UnsafeArchive(f"it names {_shown(path)}: {flaw}")
        if self._entries and path <= self._entries[-1].path:
            raise UnsafeArchive(f"{_shown(path)} is out of order")
        parent = os.path.dirname(path)
        while parent:
            if parent in self._taken:
                raise UnsafeArchive(f"{_shown(path)} lies below a file")
            parent = os.path.dirname(parent)

    def _note_link(self, path: bytes, target: bytes) -> None:
        if not target or b"\0" in target:
            raise UnsafeArchive(f"{_shown(path)} leads nowhere")
        self._links.append((path, target))
        self._entries.append(TreeEntry(path, EntryKind.LINK, hashlib.sha256(target).hexdigest()))

    def _write_file(self, tar: tarfile.TarFile, member: tarfile.TarInfo, path: bytes) -> None:
        kind = next((kind for kind, mode in _MODES.items() if mode == member.mode), None)
        if kind is None:
            raise UnsafeArchive(f"{_shown(path)} has mode {member.mode:o}")
        if member.size > self._bytes_left:
            raise UnsafeArchive("it holds more than was announced")
        self._bytes_left -= member.size
        source = tar.extractfile(member)
        assert source is not None  # it is a regular file
        digest = hashlib.sha256()
        with self._created(path) as target:
            for data in _pieces(source, member.size, path):
                digest.update(data)
                target.write(data)
                self._between()
            os.fchmod(target.fileno(), member.mode)
        self._bytes += member.size
        self._entries.append(TreeEntry(path, kind, digest.hexdigest()))

    @contextmanager
    def _created(self, path: bytes) -> Iterator[IO[bytes]]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with _told_apart(path):
            self._make_folders(path)
            descriptor = os.open(os.path.join(self._root, path), flags, 0o600)
        with open(descriptor, "wb") as file:
            yield file

    def _make_folders(self, path: bytes) -> None:
        """All above a path. None of them is a link: there are no links yet, or only those that
        nothing lies below."""
        parent = os.path.dirname(path)
        if parent in self._folders:
            return
        parts = parent.split(b"/")
        for count in range(1, len(parts) + 1):
            above = b"/".join(parts[:count])
            if above not in self._folders:
                os.mkdir(os.path.join(self._root, above), 0o755)
                self._folders.add(above)


@contextmanager
def _members(
    archive: Path, limit: int
) -> Iterator[tuple[tarfile.TarFile, Iterator[tarfile.TarInfo]]]:
    with archive.open("rb") as raw, gzip.GzipFile(fileobj=raw, mode="rb") as unpacked:
        with _damage_told():
            tar = tarfile.open(  # noqa: SIM115 - closed below
                fileobj=_Limited(unpacked, limit),  # type: ignore[call-overload]  # reads only
                mode="r|",
                encoding="utf-8",
                errors="surrogateescape",
            )
        with tar:
            yield tar, _each(tar)


def _each(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while True:
        with _damage_told():
            member = tar.next()
        if member is None:
            return
        if member.pax_headers:
            raise UnsafeArchive("it has headers that no archive of ours has")
        yield member
        tar.members.clear()  # type: ignore[attr-defined]  # it would keep each


def _pieces(source: IO[bytes], size: int, path: bytes) -> Iterator[bytes]:
    while size:
        with _damage_told():
            data = source.read(min(_CHUNK_BYTES, size))
        if not data:
            raise UnsafeArchive(f"{_shown(path)} is cut off")
        size -= len(data)
        yield data


@contextmanager
def _damage_told() -> Iterator[None]:
    """Around what reads and parses an archive: whoever made it chose every byte."""
    try:
        yield
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UnsafeArchive(f"it is damaged: {error}") from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise UnsafeArchive(f"it is no archive: {error}") from None


@contextmanager
def _told_apart(path: bytes) -> Iterator[None]:
    """A name that this host's file systems cannot hold is the archive's fault, a full disk is
    not."""
    try:
        yield
    except OSError as error:
        if error.errno in _NOT_HELD:
            raise UnsafeArchive(f"this host cannot hold {_shown(path)}: {error.strerror}") from None
        raise


class _Limited:
    """What is read of an archive, up to a limit: a few bytes can unpack to any number."""

    def __init__(self, source: gzip.GzipFile, limit: int) -> None:
        self._source = source
        self._left = limit

    def read(self, size: int) -> bytes:
        data = self._source.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise UnsafeArchive("it holds more than was announced")
        return data


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _shown(path: bytes) -> str:
    return repr(path.decode("utf-8", "backslashreplace"))
