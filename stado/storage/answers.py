"""Answers that are not the store's: a proxy's page, a portal's, one that was cut off, or none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime

from stado.errors import Ambiguous, Unavailable

NOT_THE_STORES = "is there a proxy before it, or something else at this address?"
_CAUSES_MAX = 10


@contextmanager
def answer_errors(key: str, *, writing: bool) -> Iterator[None]:
    """For taking an answer apart: what lacks a part that every answer of the service has says
    nothing about the object."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = f"the answer is not one of the store's ({error!r}): {NOT_THE_STORES}"
        raise (Ambiguous if writing else Unavailable)(key, why) from error


def check_length_told(headers: Mapping[str, str]) -> None:
    """Of an answer that was cut off in its headers nothing tells where its body ends: whatever has
    come of it would be taken for all of it. Raises `ValueError`."""
    if "content-length" not in headers and "chunked" not in headers.get("transfer-encoding", ""):
        raise ValueError("nothing tells how long it is")


def part_of(data: bytes, headers: Mapping[str, str], start: int, length: int) -> bytes:
    """What was asked for with a range. A server that does not know ranges sends the whole. Raises
    `ValueError` for another part."""
    told = headers.get("content-range", "")
    if not told:
        return data[start : start + length]
    if not told.startswith(f"bytes {start}-") or len(data) > length:
        raise ValueError(f"it is another part: {told}")
    return data


def find_date(headers: Mapping[str, str]) -> datetime | None:
    """What an answer says of the time (RFC 9110, 5.6.7). None when it says nothing, or was cut off
    there: half a date can be read as a whole one."""
    date = headers.get("date", "")
    return parsedate_to_datetime(date) if date.endswith("GMT") else None


def why_not_reached(error: BaseException) -> str:
    """What the operating system said of a connection that was not made; else the error's kind."""
    cause: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if cause is None:
            break
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__
