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

_FORM = re.compile(r"([0-9,:-]+)(?:%(0|[1-9][0-9]{0,5}))?")
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
    if form is None:
        raise _refused(text, f"names no numbers: {_EXAMPLES}")
    ranges = [_range(text, part) for part in form[1].split(",")]
    count = sum(map(len, ranges))
    if count > BATCH_COUNT_MAX:
        most = f"{BATCH_COUNT_MAX:,} at most are taken"
        raise _refused(text, f"is {count:,} jobs, and {most}: split it")
    indices = sorted({index for one in ranges for index in one})
    if count != len(indices):
        raise _refused(text, "names a number twice")
    if form[2] == "0":
        raise _refused(text, "lets no job run at a time: state %1 or more behind it, or none")
    return Array(indices, None if form[2] is None else int(form[2]))


def _range(text: str, part: str) -> range:
    found = _RANGE.fullmatch(part)
    if found is None:
        raise _refused(text, f"names no numbers: {_EXAMPLES}")
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first:
        raise _refused(text, f"has {part!r}, which counts down: write the smaller number first")
    if last > ARRAY_INDEX_MAX:
        raise _refused(text, f"has {last:,}: numbers go up to {ARRAY_INDEX_MAX:,}")
    return range(first, last + 1, int(found[3] or 1))


def _refused(text: str, why: str) -> Refused:
    return Refused("array_invalid", f"--array {text!r} {why}")


def make_array(command: str, array: Array, shared: Spec) -> Request:
    """A batch with a job a number. Raises `Refused`."""
    commands = [command.replace(INDEX, str(index)) for index in array.indices]
    place = ArrayPlace(at_a_time=array.at_a_time)
    request = make_request(commands, shared.evolve(array=place), batch=True)
    return request.evolve(indices=array.indices)
