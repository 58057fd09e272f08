"""How documents are stored: JSON objects with a schema number, frozen once read.

A reader keeps the fields that it does not know, so that an older program that rewrites a
record loses nothing that a newer one put there.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_args

import msgspec

from stado.errors import Unreadable

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""An aware instant, written as RFC 3339."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a document."""

    unknown_fields: dict[str, Any] = msgspec.field(default_factory=dict)
    """What a newer program wrote here: kept, never looked at, and written beside the others."""

    def evolve(self, **changes: Any) -> Self:
        """A copy with some fields changed; unknown fields stay.

        The caller gives values of the right types: they are not validated again."""
        return msgspec.structs.replace(self, **changes)

    def plain(self) -> dict[str, Any]:
        """As it is stored: text, numbers, lists and mappings only."""
        fields: dict[str, Any] = _flattened(msgspec.to_builtins(self))
        return fields


class Document(Part, frozen=True, kw_only=True):
    """A JSON object of its own in the store."""

    SCHEMA: ClassVar[int] = 1
    schema_number: int = msgspec.field(default=1, name="schema")

    def encode(self) -> bytes:
        return msgspec.json.encode(self.plain())


AnyPart = TypeVar("AnyPart", bound=Part)
AnyDocument = TypeVar("AnyDocument", bound=Document)


def decode(kind: type[AnyDocument], key: str, data: bytes) -> AnyDocument:
    """The document stored under `key`. Raises `Unreadable` for anything else."""
    try:
        fields = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(key, f"it is no JSON document: {error}") from None
    _check_schema(kind, key, fields)
    try:
        return from_plain(kind, fields)
    except msgspec.ValidationError as error:
        raise Unreadable(key, str(error)) from None


def from_plain(kind: type[AnyPart], fields: Any) -> AnyPart:
    """The opposite of `plain`. Raises `msgspec.ValidationError`."""
    return msgspec.convert(_with_unknown_apart(kind, fields), kind)


def _check_schema(kind: type[Document], key: str, fields: Any) -> None:
    """A newer schema explains whatever else is wrong, so it is looked at first."""
    schema = fields.get("schema") if isinstance(fields, dict) else None
    if isinstance(schema, int) and schema > kind.SCHEMA:
        raise Unreadable(
            key, f"it has schema {schema} and this stado knows up to {kind.SCHEMA}: upgrade stado"
        )


def canonical(fields: Mapping[str, Any]) -> bytes:
    """One way to write equal values: for digests."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


# --- unknown fields -------------------------------------------------------------------------


@functools.cache
def _known_fields(kind: type[Part]) -> dict[str, type[Part] | None]:
    """Stored name of each field; the kind of part that it holds, be it one or a list of them."""
    return {
        field.encode_name: next(_parts_in(field.type), None)
        for field in msgspec.structs.fields(kind)
        if field.name != "unknown_fields"
    }


def _parts_in(annotation: Any) -> Iterator[type[Part]]:
    if isinstance(annotation, type) and issubclass(annotation, Part):
        yield annotation
    for argument in get_args(annotation):
        yield from _parts_in(argument)


def _with_unknown_apart(kind: type[Part], value: Any) -> Any:
    """What is not a mapping is left for the validation to refuse."""
    if isinstance(value, list):
        return [_with_unknown_apart(kind, item) for item in value]
    if not isinstance(value, dict):
        return value
    known = _known_fields(kind)
    apart: dict[str, Any] = {"unknown_fields": {}}
    for name, content in value.items():
        if name not in known:
            apart["unknown_fields"][name] = content
            continue
        part = known[name]
        apart[name] = content if part is None else _with_unknown_apart(part, content)
    return apart


def _flattened(value: Any) -> Any:
    if isinstance(value, list):
        return [_flattened(item) for item in value]
    if not isinstance(value, dict):
        return value
    unknown = value.pop("unknown_fields", None) or {}
    return {name: _flattened(content) for name, content in value.items()} | unknown
