"""What a command has printed and the store does not have yet, in files of this host.

The files survive whoever wrote them. There is a limit to what they hold: what the command prints
is never kept waiting, neither by a store that is away nor by a disk that is full, and what finds
no room is dropped. The beginning and the end are kept, the middle goes.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stado.jobs.log_compaction import SEGMENTS_MAX
from stado.jobs.log_segments import SEGMENT_BYTES_MAX

log = logging.getLogger(__name__)

_PIECES_OF_LIMIT = 16
_NAME_DIGITS = 16
_LINE_ENDS = b"\n\r"
_HEAD_SHARE = 4


@dataclass(frozen=True, slots=True)
class LogLimit:
    """How many bytes of a log are kept, on the host as in the store."""

    total_bytes: int
    segments_max: int = SEGMENTS_MAX
    """More than these are put together once the log is complete."""

    @property
    def head_bytes(self) -> int:
        """Of its beginning."""
        return self.total_bytes // _HEAD_SHARE

    @property
    def tail_bytes(self) -> int:
        """Of its end."""
        return self.total_bytes - self.head_bytes

    @property
    def piece_bytes(self) -> int:
        """The largest file of the spool, and the largest segment in the store."""
        return max(1, min(SEGMENT_BYTES_MAX, self.total_bytes // _PIECES_OF_LIMIT))


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes that follow each other. Offsets count from the first byte ever printed."""

    offset: int
    data: bytes
    gap_after: bool
    """Whether what was printed next is not there any more."""
    begins_line: bool
    """Whether it certainly begins a line, whatever became of the line before."""

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


@dataclass(slots=True)
class _Chunk:
    """One file, named by the offset of its first byte."""

    path: Path
    start: int
    size: int
    begins_line: bool

    @property
    def end(self) -> int:
        return self.start + self.size


class LogSpool:
    """One job's spool. One thread appends, another one reads and discards."""

    def __init__(
        self,
        folder: Path,
        limit: LogLimit,
        lock: AbstractContextManager[Any],
        chunks: Iterable[_Chunk] = (),
    ) -> None:
        self._folder = folder
        self._limit = limit
        self._lock = lock
        self._chunk_bytes = limit.piece_bytes
        self._chunks = list(chunks)
        self._head_from = 0
        self._written = self._chunks[-1].end if self._chunks else 0
        self._open: int | None = None
        self._line_ended = not self._chunks
        self._ailing = False

    @classmethod
    def left_in(cls, folder: Path, limit: LogLimit, lock: AbstractContextManager[Any]) -> LogSpool:
        """With what somebody left there. Raises `OSError`."""
        return cls(folder, limit, lock, _chunks_in(folder))

    @property
    def written(self) -> int:
        """Bytes that were printed, whatever became of them."""
        return self._written

    @property
    def line_ended(self) -> bool:
        """Whether what is printed next begins a line."""
        return self._line_ended or not self._written

    def waiting_behind(self, offset: int) -> int:
        """Bytes that are there from `offset` on."""
        with self._lock:
            return sum(chunk.end - max(chunk.start, offset) for chunk in self._from(offset))

    def keep_head_from(self, offset: int) -> None:
        """A new beginning: of what is printed from here on, the first part is kept as well."""
        with self._lock:
            self._head_from = offset

    def append(self, data: memoryview) -> None:
        """Never raises `OSError`: what the disk does not take is dropped."""
        with self._lock:
            rest = data
            while rest:
                taken = self._append_some(rest)
                if taken == 0:
                    break
                rest = rest[taken:]
            if rest:
                self._count(rest)

    def read(self, offset: int, *, bytes_max: int) -> Piece:
        """What is there from `offset` on, or from the next byte behind it that is. Empty when
        there is nothing more. Raises `OSError`."""
        with self._lock:
            parts: list[bytes] = []
            start = position = offset
            for chunk in self._from(offset):
                if not parts:
                    start = position = max(offset, chunk.start)
                elif chunk.start > position or position - start >= bytes_max:
                    break
                parts.append(_read(chunk, position, bytes_max - (position - start)))
                position += len(parts[-1])
            data = b"".join(parts)
            first = next(iter(self._from(start)), None)
            begins_line = first is not None and first.start == start and first.begins_line
            following = next(iter(self._from(position)), None)
            next_start = self._written if following is None else max(following.start, position)
            gap_after = bool(data) and next_start > position
            return Piece(start, data, gap_after=gap_after, begins_line=begins_line)

    def discard(self, offset: int) -> None:
        """What lies before `offset` is not needed any more."""
        with self._lock:
            while self._chunks and self._chunks[0].end <= offset:
                if len(self._chunks) == 1:
                    self._close()
                self._remove(self._chunks.pop(0))

    def close(self) -> None:
        with self._lock:
            self._close()

    # --- under the lock -----------------------------------------------------------------

    def _append_some(self, data: memoryview) -> int:
        """Bytes that were taken; 0: the disk takes none."""
        try:
            chunk = self._current()
            part = data[: self._chunk_bytes - chunk.size]
            self._make_room(len(part))
            taken = os.write(self._descriptor(), part)
        except OSError as error:
            self._note_refusal(error)
            return 0
        chunk.size += taken
        self._count(part[:taken])
        self._ailing = False
        return taken

    def _count(self, data: memoryview) -> None:
        """As printed, whatever becomes of it."""
        self._written += len(data)
        self._line_ended = data[-1] in _LINE_ENDS

    def _current(self) -> _Chunk:
        last = self._chunks[-1] if self._chunks else None
        if self._open is not None and last is not None and last.size < self._chunk_bytes:
            return last
        self._close()
        path = self._folder / f"{self._written:0{_NAME_DIGITS}d}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._open = os.open(path, flags, 0o600)
        chunk = _Chunk(path, self._written, 0, self._line_ended)
        self._chunks.append(chunk)
        return chunk

    def _descriptor(self) -> int:
        assert self._open is not None  # `_current` has just opened it
        return self._open

    def _note_refusal(self, error: OSError) -> None:
        """One line an outage. What was open may hold half a piece: what follows begins anew."""
        self._close()
        if self._chunks and self._chunks[-1].size == 0:
            self._remove(self._chunks.pop())
        if not self._ailing:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            log.warning(
                "event=log_bytes_dropped folder=%s reason=%s error=%r",
                self._folder,
                "disk_full" if full else "disk_refuses",
                error.strerror or str(error),
            )
        self._ailing = True

    def _make_room(self, size: int) -> None:
        """For so many bytes more within the limit: the oldest chunks behind the head go, never
        the last one."""
        head_end = self._head_from + self._limit.head_bytes
        excess = sum(chunk.size for chunk in self._chunks) + size - self._limit.total_bytes
        while excess > 0:
            index = next(
                (i for i, chunk in enumerate(self._chunks[:-1]) if chunk.start >= head_end), None
            )
            if index is None:
                return
            chunk = self._chunks.pop(index)
            self._remove(chunk)
            excess -= chunk.size

    def _from(self, offset: int) -> Iterator[_Chunk]:
        return (chunk for chunk in self._chunks if chunk.size and chunk.end > offset)

    def _remove(self, chunk: _Chunk) -> None:
        try:
            chunk.path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("event=spool_file_left path=%s error=%r", chunk.path, str(error))

    def _close(self) -> None:
        if self._open is not None:
            os.close(self._open)
            self._open = None


def _chunks_in(folder: Path) -> Iterator[_Chunk]:
    """What somebody left there, in order."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.isdigit())
    except FileNotFoundError:
        return
    for name in names:
        path = folder / name
        yield _Chunk(path, int(name), path.stat().st_size, begins_line=int(name) == 0)


def _read(chunk: _Chunk, position: int, bytes_max: int) -> bytes:
    with chunk.path.open("rb") as file:
        file.seek(position - chunk.start)
        return file.read(min(bytes_max, chunk.end - position))
