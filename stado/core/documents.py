"""How documents are stored: JSON objects with a schema number, frozen once read.

A reader keeps the fields that it does not know, so that an older program that rewrites a
record loses nothing that a newer one put there.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stado.errors import Unreadable


class Part(BaseModel):
    """A piece of a document."""

    model_config = ConfigDict(
        frozen=True, extra="allow", validate_by_name=True, validate_by_alias=True, defer_build=True
    )

    def evolve(self, **changes: Any) -> Self:
        """A copy with some fields changed; unknown fields stay.

        The caller gives values of the right types: they are not validated again."""
        return self.model_copy(update=changes)


class Document(Part):
    """A JSON object of its own in the store."""

    SCHEMA: ClassVar[int] = 1
    schema_number: int = Field(default=1, alias="schema")

    def encode(self) -> bytes:
        return self.model_dump_json(by_alias=True).encode()


AnyDocument = TypeVar("AnyDocument", bound=Document)


def decode(kind: type[AnyDocument], key: str, data: bytes) -> AnyDocument:
    """The document stored under `key`. Raises `Unreadable` for anything else."""
    try:
        document = kind.model_validate_json(data)
    except ValidationError as error:
        raise Unreadable(key, _explain(kind, data, error)) from None
    if document.schema_number > kind.SCHEMA:
        raise Unreadable(
            key,
            f"it has schema {document.schema_number} and this stado knows up to {kind.SCHEMA}: "
            "upgrade stado",
        )
    return document


def _explain(kind: type[Document], data: bytes, error: ValidationError) -> str:
    schema = _schema_number(data)
    if schema is not None and schema > kind.SCHEMA:
        return f"it has schema {schema} and this stado knows up to {kind.SCHEMA}: upgrade stado"
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])


def _schema_number(data: bytes) -> int | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    number = value.get("schema") if isinstance(value, dict) else None
    return number if isinstance(number, int) else None
