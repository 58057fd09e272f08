"""Job ids: short, sortable newest first, and derived from the submission that made them.

A base id is ten letters of an inverted millisecond timestamp followed by six random ones; the
members of a batch add their number, padded to the batch's size. One listing of any prefix
therefore answers "the latest N", however many jobs there have been.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_TIME_LETTERS = 10
_RANDOM_LETTERS = 6
_TIME_MAX = len(_ALPHABET) ** _TIME_LETTERS - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

BASE_LENGTH = _TIME_LETTERS + _RANDOM_LETTERS
BASE_PATTERN = re.compile(rf"[a-z]{{{BASE_LENGTH}}}")
JOB_PATTERN = re.compile(rf"[a-z]{{{BASE_LENGTH}}}(-[0-9]{{1,6}})?")
RUN_PATTERN = re.compile(r"[A-Za-z0-9._@+-]{1,100}")


def milliseconds(instant: datetime) -> int:
    """Milliseconds since 1970, exact (no float on the way)."""
    return (instant - _EPOCH) // timedelta(milliseconds=1)


def new_base(submitted_at: datetime, random_letters: str) -> str:
    """The base id of a submission. `random_letters` are six characters of [a-z]."""
    value = _TIME_MAX - milliseconds(submitted_at)
    letters = []
    for _ in range(_TIME_LETTERS):
        value, digit = divmod(value, len(_ALPHABET))
        letters.append(_ALPHABET[digit])
    return "".join(reversed(letters)) + random_letters[:_RANDOM_LETTERS]


def random_letters_needed() -> int:
    return _RANDOM_LETTERS


def member(base: str, number: int, count: int) -> str:
    """The id of member `number` (1 to `count`) of a batch."""
    return f"{base}-{number:0{len(str(count))}d}"


def job_ids(base: str, *, count: int, batch: bool) -> list[str]:
    """The ids of a submission's jobs, in the order of its commands."""
    if not batch:
        return [base]
    return [member(base, number, count) for number in range(1, count + 1)]


def number_in(job_id: str, base: str) -> int:
    """Which member of its submission a job is; 1 where it is the only one."""
    suffix = job_id.removeprefix(base).removeprefix("-")
    return int(suffix) if suffix else 1


def base_of(job_id: str) -> str:
    return job_id[:BASE_LENGTH]


def is_job_id(text: str) -> bool:
    return JOB_PATTERN.fullmatch(text) is not None


def is_run_id(text: str) -> bool:
    return RUN_PATTERN.fullmatch(text) is not None
