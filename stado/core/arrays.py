"""One command as many jobs: which numbers there are, and how many of the jobs may run at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stado.core.spec import (
    ARRAY_INDEX_MAX,
    BATCH_COUNT_MAX,
    ArrayPlace,
    Request,
    Spec,
    make_request,
)
from stado.errors import Refused

INDEX = "{index}"
"""What stands for its number in the command of each."""

_FORM = re.compile(r"([0-9,:-]+)(?:%([1-9][0-9]{0,5}))?")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([1-9][0-9]{0,8}))?)?")
_EXAMPLES = "write 0-99, 0-99:10 (each tenth) or 1,3,7; with %5 behind it five run at a time"


@dataclass(frozen=True, slots=True)
class Array:
    """`indices`: in order. `at_a_time` None: as many as there is room for."""

    indices: list[int]
    at_a_time: int | None = None


def parse_array(text: str) -> Array:
    """Raises `Refused`, naming the value and what it has to be."""
    form = _FORM.fullmatch(text.strip())
    ranges = [] if form is None else [_range(part) for part in form[1].split(",")]
    if form is None or not all(ranges):
        raise Refused("array_invalid", f"--array {text!r} names no numbers: {_EXAMPLES}")
    indices = sorted({index for one in ranges for index in one or ()})
    if sum(len(one or ()) for one in ranges) != len(indices):
        raise Refused("array_invalid", f"--array {text!r} names a number twice")
    return Array(indices, None if form[2] is None else int(form[2]))


def _range(part: str) -> range | None:
    """None for what is none, has nothing in it, or is too large."""
    found = _RANGE.fullmatch(part)
    if found is None:
        return None
    first, last = int(found[1]), int(found[2] or found[1])
    numbers = range(first, last + 1, int(found[3] or 1))
    return numbers if last <= ARRAY_INDEX_MAX and len(numbers) <= BATCH_COUNT_MAX else None


def make_array(command: str, array: Array, shared: Spec) -> Request:
    """A batch with a job a number. Raises `Refused`."""
    commands = [command.replace(INDEX, str(index)) for index in array.indices]
    place = ArrayPlace(at_a_time=array.at_a_time)
    request = make_request(commands, shared.evolve(array=place), batch=True)
    return request.evolve(indices=array.indices)
