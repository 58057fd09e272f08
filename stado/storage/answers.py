"""Answers that are not the store's: a proxy's page, a portal's, or one that was cut off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stado.errors import Ambiguous, Unavailable


@contextmanager
def answer_errors(key: str, *, writing: bool) -> Iterator[None]:
    """For taking an answer apart: what lacks a part that every answer of the service has says
    nothing about the object."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = f"the answer is not one of the store's ({error!r}): is there a proxy before it?"
        raise (Ambiguous if writing else Unavailable)(key, why) from error
