"""The ledger: what ended epochs used, in segments that never change, and the index that says which
of them count. Pure.

A use is in the folder `usage/` until a segment that the index names has it. Whoever reads lists
that folder first and gets the index after it, so that it misses none; what it meets twice it counts
once.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from stado.core import keys
from stado.core.documents import Count, Document, Instant, Part
from stado.core.records import Line, Milliseconds
from stado.core.usage import Use
from stado.errors import Unreadable

SEGMENT_ROWS_MAX = 5_000
SEGMENTS_MAX = 20_000
"""That an index names: a hundred million uses."""

_SCHEMA = 2
"""Programs that know 1 alone would lose fields when they write a segment anew: what was asked of
the store, and the group."""
_PLAIN_BYTES_MAX = 1 << 26
"""Of a segment that is unpacked: ten times what the largest has."""

_NAME = r"\A[0-9]{13}-[a-z0-9]{1,64}\Z"
SegmentName = Annotated[str, msgspec.Meta(pattern=_NAME)]


class SegmentRef(Part, frozen=True, kw_only=True):
    """A segment that counts, with the ends of the first and last use in it."""

    name: SegmentName
    rows: Count
    first_ms: Milliseconds
    last_ms: Milliseconds

    def reaches(self, from_ms: int, until_ms: int) -> bool:
        """Whether it may have something that ended between these moments."""
        return self.last_ms >= from_ms and self.first_ms <= until_ms


class LedgerIndex(Document, frozen=True, kw_only=True):
    """`ledger/index.json`: the segments that count, the one that was written last at the end."""

    counter: Count
    """One more with each write: no two of them are the same."""
    at: Instant
    by: Line
    segments: Annotated[list[SegmentRef], msgspec.Meta(max_length=SEGMENTS_MAX)] = msgspec.field(
        default_factory=list
    )

    def own_key(self) -> str:
        return keys.LEDGER

    def flaw(self) -> str | None:
        names = {segment.name for segment in self.segments}
        return "it names a segment twice" if len(names) != len(self.segments) else None


class _Segment(msgspec.Struct):
    schema: int
    rows: msgspec.Raw


class NewerSegment(Unreadable):
    """A newer program wrote it: nothing is wrong with it, and nobody may drop it."""


def in_order(uses: Iterable[Use]) -> list[Use]:
    """By the end: the order in a segment."""
    return sorted(uses, key=lambda use: (use.ended_ms, use.job_id, use.epoch))


def is_segment_name(name: str) -> bool:
    """Whether an index can name it: 13 digits of the first end, and a token."""
    return re.match(_NAME, name) is not None


def segment_of(uses: Sequence[Use], *, token: str) -> SegmentRef:
    """`uses`: in order, at least one."""
    first_ms, last_ms = uses[0].ended_ms, uses[-1].ended_ms
    return SegmentRef(
        name=f"{first_ms:013d}-{token}", rows=len(uses), first_ms=first_ms, last_ms=last_ms
    )


def encode_segment(uses: Iterable[Use]) -> bytes:
    """JSON, packed by zlib."""
    segment = {"schema": _SCHEMA, "rows": list(uses)}
    return zlib.compress(msgspec.json.encode(segment), 6)


def decode_segment(name: str, data: bytes) -> list[Use]:
    """Raises `NewerSegment` for a schema that we do not know, whatever its rows are; else
    `Unreadable`."""
    key = keys.ledger_segment(name)
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(data, _PLAIN_BYTES_MAX)
    except zlib.error as error:
        raise Unreadable(key, f"it cannot be unpacked: {error}") from None
    if not unpacking.eof:
        raise Unreadable(key, "it is cut off, or larger than a segment can be")
    try:
        segment = msgspec.json.decode(plain, type=_Segment)
        if segment.schema > _SCHEMA:
            raise NewerSegment(
                key,
                f"it has schema {segment.schema} and this stado knows up to {_SCHEMA}: "
                "upgrade stado",
            )
        return msgspec.json.decode(segment.rows, type=list[Use])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(key, f"it is no segment: {error}") from None


def open_segment(index: LedgerIndex | None, *, more: int, rows_max: int) -> SegmentRef | None:
    """The last one, where it has room for so many more: it is written anew together with them."""
    if index is None or not index.segments:
        return None
    last = index.segments[-1]
    return last if last.rows + more <= rows_max else None
