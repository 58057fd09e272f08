"""Tags: words by which people find jobs again. Nothing else goes by them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

import msgspec

from stado.errors import Refused

TAGS_MAX = 16

_PATTERN = re.compile(r"[a-z0-9._-]{1,64}")

Tag = Annotated[str, msgspec.Meta(pattern=rf"\A{_PATTERN.pattern}\Z")]
Tags = Annotated[list[Tag], msgspec.Meta(max_length=TAGS_MAX)]


def tag_list(words: Iterable[object]) -> list[str]:
    """Each once, in order, whatever the order in which they were stated. Raises `Refused`."""
    stated = list(words)
    for word in stated:
        if not (isinstance(word, str) and _PATTERN.fullmatch(word)):
            raise Refused(
                "tag_invalid",
                f"tag {word!r} must be 1 to 64 characters, of small letters, digits and . _ -",
            )
    found = sorted({word for word in stated if isinstance(word, str)})
    if len(found) > TAGS_MAX:
        raise Refused(
            "tags_too_many", f"{len(found)} tags are stated and at most {TAGS_MAX} are taken"
        )
    return found
