"""The newest jobs at rest in one object, for lists: each record as it was read, with the version
that it had. Pure.

Whoever lists has the versions from the listing anyway: a row whose version is another one is old,
and does not count. So nothing can be told that is not so, whatever is in the object.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from stado.core import keys
from stado.errors import Unreadable

ROWS_MAX = 500
"""Twice what a list shows at most."""

_SCHEMA = 1
_NONE = b"null"
_PLAIN_BYTES_MAX = 1 << 27
ROW_BYTES_MAX = 1 << 16
"""A larger record is left out, and read by itself."""


@dataclass(frozen=True, slots=True)
class RestRow:
    """A job that has ended."""

    key: str
    """Of its record."""
    version: str
    record: bytes
    seal: bytes | None = None
    """Of a train job: its policy."""


_Row = tuple[str, str, msgspec.Raw, msgspec.Raw]
"""Key, version, record, policy or null."""


class _Rows(msgspec.Struct):
    schema: int
    rows: list[_Row]


class _Packed(msgspec.Struct):
    """The same before anything is said of its rows: those of a newer schema are others."""

    schema: int
    rows: msgspec.Raw


def encode_rows(rows: Iterable[RestRow]) -> bytes:
    """JSON, packed by zlib."""
    fields = [
        (
            row.key,
            row.version,
            msgspec.Raw(row.record),
            msgspec.Raw(_NONE if row.seal is None else row.seal),
        )
        for row in rows
    ]
    return zlib.compress(msgspec.json.encode(_Rows(_SCHEMA, fields)), 6)


def decode_rows(data: bytes) -> dict[str, RestRow]:
    """By the keys of their records. Raises `Unreadable`."""
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(data, _PLAIN_BYTES_MAX)
        found = msgspec.json.decode(plain, type=_Packed)
        if found.schema > _SCHEMA:
            raise Unreadable(
                keys.REST_ROWS,
                f"it has schema {found.schema} and this stado knows up to {_SCHEMA}: upgrade stado",
            )
        rows = msgspec.json.decode(found.rows, type=list[_Row])
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(keys.REST_ROWS, f"it has no rows: {error}") from None
    return {
        key: RestRow(key, version, bytes(record), _given(seal))
        for key, version, record, seal in rows
    }


def _given(seal: msgspec.Raw) -> bytes | None:
    return None if bytes(seal) == _NONE else bytes(seal)
