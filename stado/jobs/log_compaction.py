"""A log that is complete, in a few objects instead of thousands.

Any number of processes may do this at once, and stop at any step: readers find each byte before,
during and after.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stado.core import keys
from stado.core.ids import milliseconds
from stado.core.records import LogIndex, LogRange, LogTime
from stado.jobs.log_segments import (
    LogListing,
    delete_covered,
    epochs_with_log,
    find_log_index,
    list_log,
)
from stado.jobs.logs import Gap, LogReader
from stado.jobs.repository import Repository

SEGMENTS_MAX = 16
"""What is not more than these stays as it is."""

BLOCK_BYTES = 16 * 1024 * 1024

_DIGEST_BYTES_MIN = 128 * 1024
_DIGESTS_MAX = 1024
"""Of pieces that are as small as can be; of a larger log they are larger: who reads a few lines
reads the index and one of them."""


def compact_log(
    repo: Repository,
    job_id: str,
    epoch: int,
    *,
    times: Sequence[LogTime] = (),
    segments_max: int = SEGMENTS_MAX,
    block_bytes: int = BLOCK_BYTES,
    between: Callable[[], None] = lambda: None,
) -> None:
    """Of an epoch of which nothing more is printed. `times`: as its holder saw them; without them
    those at which the segments were stored. `between` is called now and then.

    First the blocks, then the index, then the segments are deleted of which the index has each
    byte. A crash before the index leaves blocks that only take room, one after it segments that
    count for nothing; whoever compacts the epoch again deletes those. Of several indexes one is
    created; who comes second deletes the blocks of its own."""
    listing = list_log(repo, job_id, epoch)
    if len(listing.segments) <= segments_max and not (listing.indexed and listing.segments):
        return
    index = find_log_index(repo, job_id, epoch) if listing.indexed else None
    if index is None:
        sizes = _Sizes(block_bytes, _digest_bytes(block_bytes, listing))
        writer = _BlockWriter(repo, job_id, epoch, sizes, between)
        index = writer.write(list(times) or _times_of(listing))
    if index is not None:
        delete_covered(repo, index, listing.segments, between=between)


def compact_earlier_logs(
    repo: Repository,
    job_id: str,
    epoch: int,
    *,
    segments_max: int = SEGMENTS_MAX,
    between: Callable[[], None] = lambda: None,
) -> None:
    """Of the epochs before, whose holders are gone. What is left on their hosts may still come: it
    lies behind all that is there, and stays in segments."""
    for earlier in epochs_with_log(repo, job_id):
        if earlier < epoch:
            compact_log(repo, job_id, earlier, segments_max=segments_max, between=between)


def _digest_bytes(block_bytes: int, listing: LogListing) -> int:
    """Of which a block is a whole number."""
    held_bytes = sum(place.size for place in listing.segments)
    size = block_bytes
    while size % 2 == 0 and size // 2 >= max(_DIGEST_BYTES_MIN, held_bytes // _DIGESTS_MAX):
        size //= 2
    return size


@dataclass(frozen=True, slots=True)
class _Sizes:
    """In bytes."""

    block: int
    digest: int


class _BlockWriter:
    """Writes blocks of one size, and the index of them. Holds one of them in memory."""

    def __init__(
        self,
        repo: Repository,
        job_id: str,
        epoch: int,
        sizes: _Sizes,
        between: Callable[[], None],
    ) -> None:
        self._repo = repo
        self._job_id = job_id
        self._epoch = epoch
        self._sizes = sizes
        self._between = between
        self._token = repo.entropy.token()
        self._open = bytearray()
        self._blocks = 0
        self._digests: list[str] = []
        self._ranges: list[LogRange] = []

    def write(self, times: list[LogTime]) -> LogIndex | None:
        """The index that stands, ours or another's; None where no other's can be read."""
        reader = LogReader(self._repo, self._job_id, self._epoch)
        for piece in reader.read_new():
            if not isinstance(piece, Gap):
                self._between()
                self._add(reader.offset - len(piece), piece)
        if self._open:
            self._write_block(bytes(self._open))
        return self._commit(times) if self._ranges else None

    def _add(self, offset: int, data: bytes) -> None:
        last = self._ranges[-1] if self._ranges else None
        if last is not None and last.end == offset:
            self._ranges[-1] = last.evolve(size=last.size + len(data))
        else:
            self._ranges.append(LogRange(offset=offset, size=len(data)))
        self._open += data
        size = self._sizes.block
        while len(self._open) >= size:
            self._write_block(bytes(self._open[:size]))
            del self._open[:size]

    def _write_block(self, data: bytes) -> None:
        key = keys.log_block(self._job_id, self._epoch, self._token, self._blocks)
        self._repo.store.create(key, data)
        self._blocks += 1
        size = self._sizes.digest
        for start in range(0, len(data), size):
            self._digests.append(hashlib.sha256(data[start : start + size]).hexdigest())

    def _commit(self, times: list[LogTime]) -> LogIndex | None:
        index = LogIndex(
            job_id=self._job_id,
            epoch=self._epoch,
            token=self._token,
            block_bytes=self._sizes.block,
            digest_bytes=self._sizes.digest,
            digests=self._digests,
            ranges=self._ranges,
            times=times,
        )
        if self._repo.create(keys.log_index(self._job_id, self._epoch), index) is not None:
            return index
        standing = find_log_index(self._repo, self._job_id, self._epoch)
        if standing is not None and standing.token != self._token:
            self._take_back()
        return standing

    def _take_back(self) -> None:
        for part in range(self._blocks):
            key = keys.log_block(self._job_id, self._epoch, self._token, part)
            self._repo.store.delete(key, None)


def _times_of(listing: LogListing) -> list[LogTime]:
    return [
        LogTime(offset=place.offset, ms=milliseconds(place.stored_at))
        for place in listing.segments
        if place.stored_at is not None
    ]
