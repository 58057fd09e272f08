"""How documents are stored: JSON objects with a schema number, frozen once read.

A reader keeps the fields that it does not know, so that an older program that rewrites a
record loses nothing that a newer one put there.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_args

import msgspec

from stado.errors import Unreadable

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""An aware instant, written as RFC 3339."""

Text = Annotated[str, msgspec.Meta(pattern=r"\A[^\0]*\Z")]
"""Text that a command, an environment or a path can hold: no NUL."""

COUNT_MAX = 2**63 - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
Epoch = Annotated[int, msgspec.Meta(ge=1, le=999_999)]
"""Names of segments and checkpoints hold six digits of it."""

_DEPTH_MAX = 64
"""Brackets within brackets. What we write has six; more would end whoever walks over it."""

_WHY_MAX = 300


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
        return _flattened(type(self), msgspec.to_builtins(self))


class Document(Part, frozen=True, kw_only=True):
    """A JSON object of its own in the store."""

    SCHEMA: ClassVar[int] = 1
    schema_number: int = msgspec.field(default=1, name="schema")

    def encode(self) -> bytes:
        return msgspec.json.encode(self.plain())

    def own_key(self) -> str | None:
        """The key that it belongs under; None where its content does not say."""
        return None

    def flaw(self) -> str | None:
        """What in it contradicts itself, as a sentence; None when nothing does."""
        return None


AnyPart = TypeVar("AnyPart", bound=Part)
AnyDocument = TypeVar("AnyDocument", bound=Document)


def decode(kind: type[AnyDocument], key: str, data: bytes) -> AnyDocument:
    """The document stored under `key`. Raises `Unreadable` for anything else: also for a whole
    document that belongs under another key, which must not speak for this one."""
    document = parse(kind, key, data)
    own_key = document.own_key()
    if own_key not in (None, key):
        raise Unreadable(key, _clipped(f"it belongs under {own_key}"))
    return document


def parse(kind: type[AnyDocument], name: str, data: bytes) -> AnyDocument:
    """A document, wherever it was found; errors call it `name`. Raises `Unreadable`."""
    try:
        fields = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(name, f"it is no JSON document: {error}") from None
    _check_schema(kind, name, fields)
    if _brackets(data) > _DEPTH_MAX and _is_deeper(fields, _DEPTH_MAX):
        raise Unreadable(name, f"it has more than {_DEPTH_MAX} brackets within each other")
    try:
        document = from_plain(kind, fields)
    except msgspec.ValidationError as error:
        raise Unreadable(name, _clipped(str(error))) from None
    flaw = document.flaw()
    if flaw is not None:
        raise Unreadable(name, _clipped(flaw))
    return document


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


def _brackets(data: bytes) -> int:
    """Those that open, also within texts. Almost every document has fewer than may be within each
    other, and is not walked over."""
    return data.count(b"{") + data.count(b"[")


def _is_deeper(value: Any, levels: int) -> bool:
    """Without recursion, which is what a deep document would exhaust."""
    level = [value]
    for _ in range(levels):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return False
    return any(isinstance(value, dict | list) for value in level)


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _clipped(why: str) -> str:
    """A reason may quote what was found, which has any length."""
    return why if len(why) <= _WHY_MAX else f"{why[:_WHY_MAX]}…"


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


@functools.cache
def _fields_with_parts(kind: type[Part]) -> tuple[tuple[str, type[Part]], ...]:
    return tuple((name, part) for name, part in _known_fields(kind).items() if part is not None)


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
    known, apart = _known_fields(kind), dict(value)
    unknown = () if value.keys() <= known.keys() else [name for name in value if name not in known]
    apart["unknown_fields"] = {name: apart.pop(name) for name in unknown}
    for name, part in _fields_with_parts(kind):
        content = apart.get(name)
        if content is not None:
            apart[name] = _with_unknown_apart(part, content)
    return apart


def _flattened(kind: type[Part], fields: dict[str, Any]) -> dict[str, Any]:
    """Only parts have unknown fields: a variable of the environment may be called so, too."""
    unknown: dict[str, Any] = fields.pop("unknown_fields")
    for name, part in _fields_with_parts(kind):
        fields[name] = _flattened_each(part, fields[name])
    return fields | unknown


def _flattened_each(kind: type[Part], value: Any) -> Any:
    if isinstance(value, list):
        return [_flattened(kind, item) for item in value]
    return None if value is None else _flattened(kind, value)
