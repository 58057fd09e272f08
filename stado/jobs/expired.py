"""What has gone for its age, or is about to: the marks of it, and what is said to who asks for it.

A mark is made before the first object goes and never taken back, and it speaks of the epochs up to
its own: what a job left in later ones is not touched by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stado.core import keys
from stado.core.records import Expired, Record
from stado.core.retention import AGE_SECONDS_MIN, PARTS
from stado.core.states import Leftover
from stado.errors import Ambiguous, Conflict, Refused
from stado.jobs.repository import Repository
from stado.storage.port import walk

LOG_EXPIRED = "log_expired"
OUTPUTS_EXPIRED = "outputs_expired"
"""The codes of who asks for what has gone."""


def find_expired(repo: Repository, kind: Leftover, job_id: str, *, epoch: int) -> Expired | None:
    """The mark of what this epoch left; None: it has not gone. A listing, and a read where there
    is one. Raises `Unreadable`."""
    for _ in repo.rounds():
        marks = _marks(repo, kind, job_id, epoch)
        if not marks:
            return None
        for key in marks:
            found = repo.find(Expired, key)
            if found is not None:
                return found.value
    raise Ambiguous(keys.expired_of(kind.value, job_id), "it changed at each look: try again")


def _marks(repo: Repository, kind: Leftover, job_id: str, epoch: int) -> list[str]:
    found = []
    for entry in walk(repo.store, keys.expired_of(kind.value, job_id)):
        parsed = keys.parse_expired(entry.key)
        if parsed is not None and parsed[0] == job_id and parsed[1] >= epoch:
            found.append(entry.key)
    return found


def check_there(repo: Repository, record: Record, kind: Leftover) -> None:
    """For who shows what a job left. Nothing is asked of one that has ended within a day, or has
    not: nothing of it can have gone. Raises `Refused` (`log_expired`, `outputs_expired`)."""
    found = _find(repo, record, kind)
    if found is not None:
        raise refusal(found)


def gone_of(repo: Repository, record: Record) -> list[Expired]:
    """What of a job has gone, or is about to. For one that ended a day ago or longer a listing for
    each kind, and a read for each that has; else nothing is asked."""
    found = [_find(repo, record, kind) for kind in PARTS]
    return [one for one in found if one is not None]


def _find(repo: Repository, record: Record, kind: Leftover) -> Expired | None:
    """None also where there was nothing."""
    ending = record.ending
    if not record.state.terminal or ending is None:
        return None
    if (repo.now() - ending.ended_at).total_seconds() < AGE_SECONDS_MIN:
        return None
    found = find_expired(repo, kind, record.id, epoch=record.epoch)
    return found if found is not None and found.left else None


@contextmanager
def told_expired(repo: Repository, record: Record) -> Iterator[None]:
    """For who reads what a job left: says that it has gone, be it before or meanwhile. Raises
    `Refused` (`outputs_expired`) instead of what a file raises that is missing."""
    check_there(repo, record, Leftover.OUTPUTS)
    try:
        yield
    except Conflict:
        check_there(repo, record, Leftover.OUTPUTS)
        raise


def refusal(found: Expired) -> Refused:
    code = LOG_EXPIRED if found.kind is Leftover.LOG else OUTPUTS_EXPIRED
    return Refused(code, gone_sentence(found))


def gone_sentence(found: Expired) -> str:
    """`the log of job zzz is not kept any more: it went at … by retention.logs 90d (ada)`"""
    what = "output" if found.kind is Leftover.OUTPUTS else found.kind.value
    if found.kind is Leftover.CHECKPOINTS:
        return f"checkpoints of job {found.job_id} are not kept any more: they {_went(found)}"
    return f"the {what} of job {found.job_id} is not kept any more: it {_went(found)}"


def _went(found: Expired) -> str:
    at = f"{found.at:%Y-%m-%d %H:%M} UTC"
    return f"went at {at} by {found.rule} ({found.by})"
