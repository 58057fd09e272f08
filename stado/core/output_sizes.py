"""What the outputs of ended jobs take, by what the ledger says, and how much has to go; pure.

For millions of jobs: of each epoch one number is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from stado.core.retention import Keeps
from stado.core.usage import Use

_EPOCH_BITS = 20
"""Epochs have six digits."""

_EPOCH_MASK = (1 << _EPOCH_BITS) - 1


@dataclass(frozen=True, slots=True)
class Left:
    """What the outputs of one job take."""

    size: int
    """In bytes, as far as it is known: not less than that is there."""
    is_known: bool


def size_of(use: Use) -> int | None:
    """In bytes; None where it is not known. Whoever says what it asked of the store says what it
    left, too, if it left anything: older programs said neither, nor does who ends a lost epoch."""
    if use.output_bytes is not None:
        return use.output_bytes
    return 0 if use.is_metered else None


class OutputSizes:
    """By job, out of the uses of its epochs. An epoch counts once, however often it is added."""

    def __init__(self) -> None:
        self._packed: dict[str, int | tuple[int, ...]] = {}
        """Of each epoch its size and one, or 0 where that is not known, before its number."""
        self.unreadable = 0
        """Segments of which nothing is here."""

    def add(self, use: Use) -> None:
        size = size_of(use)
        new = (0 if size is None else size + 1) << _EPOCH_BITS | use.epoch
        before = self._epochs(use.job_id)
        if any(one & _EPOCH_MASK == use.epoch for one in before):
            return
        self._packed[use.job_id] = (*before, new) if before else new

    def take(self, job_id: str, *, after_epoch: int, completed: bool) -> Left:
        """Of the epochs after this one; they are forgotten then. A job of which nothing is known
        has run nothing, and left nothing: but for one that completed, or where segments could not
        be read."""
        epochs = self._epochs(job_id)
        self._packed.pop(job_id, None)
        if not epochs:
            return Left(0, is_known=not completed and not self.unreadable)
        sizes = [one >> _EPOCH_BITS for one in epochs if one & _EPOCH_MASK > after_epoch]
        known = all(sizes) and not self.unreadable
        return Left(sum(size - 1 for size in sizes if size), is_known=known)

    def _epochs(self, job_id: str) -> tuple[int, ...]:
        packed = self._packed.get(job_id, ())
        return (packed,) if isinstance(packed, int) else packed


@dataclass(slots=True)
class Room:
    """The outputs of ended jobs, and what they may take together."""

    limit: int
    held: int = 0
    """Bytes that are there, as far as known: not less."""
    jobs: int = 0
    """That have an output, or may have."""
    unknown: int = 0
    """Of these, jobs of which it is not known how much that is."""
    kept: dict[Keeps, int] = field(default_factory=dict)
    """Bytes that were found to stay, by what keeps them."""
    is_whole: bool = True
    """False: not all jobs were looked at."""

    @property
    def beyond(self) -> int:
        """Bytes that are too many; nothing has to go where it is just at the limit."""
        return max(0, self.held - self.limit)

    def add(self, left: Left) -> None:
        self.held += left.size
        self.jobs += bool(left.size) or not left.is_known
        self.unknown += not left.is_known

    def keep(self, why: Keeps, size: int) -> None:
        self.kept[why] = self.kept.get(why, 0) + size

    def let_go(self, left: Left) -> None:
        self.held -= left.size
        self.jobs -= bool(left.size) or not left.is_known
        self.unknown -= not left.is_known


def enough(sizes: Iterable[int], beyond: int) -> int:
    """How many of these have to go, the first ones first, so that nothing is beyond any more. All
    that are not known count as 0: more is there than is known, so each of them has to."""
    count = 0
    for size in sizes:
        if beyond <= 0:
            break
        beyond -= size
        count += 1
    return count
