"""Output files as people name them: a path below the output folder, or a pattern of paths.

`*`, `?` and `[…]` stand for characters of one name, `**` for any number of folders. What names a
folder names all that is in it.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from typing import Annotated

import msgspec

from stado.errors import Refused

RECORDINGS_FOLDER = "recordings"
"""At the top of the output folder: what is in it is dropped when the job is cancelled."""

RESULT_NAME = "result.json"
"""At the top of the output folder: the result of a job that completed."""

PATTERNS_MAX = 100
PATTERN_LENGTH_MAX = 1024

Pattern = Annotated[str, msgspec.Meta(max_length=PATTERN_LENGTH_MAX)]
Patterns = Annotated[list[Pattern], msgspec.Meta(max_length=PATTERNS_MAX)]


class OutputPattern:
    """A checked pattern."""

    def __init__(self, text: str) -> None:
        self.text = text
        whole = f"{text}**" if text.endswith("/") else text
        self._literal = tuple(whole.split("/"))
        self._parts = [None if part == "**" else _compiled(part) for part in self._literal]

    def matches(self, path: str) -> bool:
        """Whether it names the file, or a folder that the file is in. A path that reads like the
        pattern itself is meant in any case."""
        parts = tuple(path.split("/"))
        return parts[: len(self._literal)] == self._literal or self._matches_parts(parts)

    def _matches_parts(self, parts: tuple[str, ...]) -> bool:
        """All places in the pattern at once, so that no pattern takes long."""
        places = self._opened({0})
        for part in parts:
            places = self._opened(set(self._steps(places, part)))
            if len(self._parts) in places:
                return True
        return False

    def _steps(self, places: set[int], part: str) -> Iterable[int]:
        for place in places - {len(self._parts)}:
            expected = self._parts[place]
            if expected is None:
                yield from (place, place + 1)
            elif expected.fullmatch(part):
                yield place + 1

    def _opened(self, places: set[int]) -> set[int]:
        """With those behind each `**` that stands for nothing, which the last one never does."""
        opened = set(places)
        for place in range(len(self._parts) - 1):
            if place in opened and self._parts[place] is None:
                opened.add(place + 1)
        return opened


def _compiled(part: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(part))


def check_pattern(text: str, option: str) -> None:
    """Raises `Refused` for what names no file below an output folder."""
    if not text or text.startswith("/") or ".." in text.split("/") or "\0" in text:
        raise Refused(
            "output_pattern_invalid",
            f"{option} {text!r} names nothing in the output folder: give a path below it, or a "
            "pattern such as 'models/*.npz'",
        )
    if len(text) > PATTERN_LENGTH_MAX:
        raise Refused(
            "output_pattern_invalid",
            f"{option} {text[:40]!r}… has {len(text)} characters and at most "
            f"{PATTERN_LENGTH_MAX} are taken",
        )


def is_recording(path: str) -> bool:
    return path.startswith(f"{RECORDINGS_FOLDER}/")
