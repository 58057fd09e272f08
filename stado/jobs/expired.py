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
from stado.core.states import Leftover, State
from stado.errors import Ambiguous, Conflict, Refused, Unreadable
from stado.jobs.outputs import find_present_manifest
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
    """For who would show what a job left, and found nothing, or not all: whether it has gone. Who
    found all of it need not ask: a mark that its rule was to go does not say that it went.

    Of one that has ended within a day nothing can have gone: nothing is asked. Otherwise a listing,
    and a read for each mark. Raises `Refused` (`log_expired`, `outputs_expired`), `Unreadable`."""
    if not _may_have_gone(repo, record):
        return
    of_last_alone = kind is Leftover.OUTPUTS and record.state is State.COMPLETED
    epoch = record.epoch if of_last_alone else 1
    for key in reversed(_marks(repo, kind, record.id, epoch)):
        found = repo.find(Expired, key)
        if found is not None and found.value.left:
            raise refusal(found.value)


def gone_of(repo: Repository, record: Record) -> list[Expired]:
    """What of a job has gone, or is about to. For one that ended a day ago or longer a listing for
    each kind, and a read for each that has; else nothing is asked."""
    found = [_find(repo, record, kind) for kind in PARTS]
    return [one for one in found if one is not None]


def going_text(repo: Repository, record: Record, kind: Leftover) -> str | None:
    """For who found something of a job, and cannot see whether it is all: that somebody began to
    let it go. None: nobody did, or it cannot be read."""
    found = _find(repo, record, kind)
    return gone_sentence(found) if found is not None and not found.gone else None


def _find(repo: Repository, record: Record, kind: Leftover) -> Expired | None:
    """None also where there was nothing, or the mark cannot be read."""
    if not _may_have_gone(repo, record):
        return None
    try:
        found = find_expired(repo, kind, record.id, epoch=record.epoch)
    except Unreadable as error:
        repo.tell_unreadable(error)
        return None
    return found if found is not None and found.left else None


def _may_have_gone(repo: Repository, record: Record) -> bool:
    ending = record.ending
    if not record.state.terminal or ending is None:
        return False
    return (repo.now() - ending.ended_at).total_seconds() >= AGE_SECONDS_MIN


@contextmanager
def told_expired(repo: Repository, record: Record) -> Iterator[None]:
    """For who fetches what a job left: says that it has gone, be it before or meanwhile. Raises
    `Refused` (`outputs_expired`) where there is no manifest, and instead of what a file raises that
    is missing. Of a job that ended a day ago or longer the manifest is read once more for it."""
    if (
        _may_have_gone(repo, record)
        and find_present_manifest(repo, record.id, record.epoch, record.state) is None
    ):
        check_there(repo, record, Leftover.OUTPUTS)
    with told_missing(repo, record):
        yield


@contextmanager
def told_missing(repo: Repository, record: Record) -> Iterator[None]:
    """The same of files alone."""
    try:
        yield
    except Conflict:
        check_there(repo, record, Leftover.OUTPUTS)
        raise


def refusal(found: Expired) -> Refused:
    code = LOG_EXPIRED if found.kind is Leftover.LOG else OUTPUTS_EXPIRED
    return Refused(code, gone_sentence(found))


def gone_sentence(found: Expired) -> str:
    """`the log of job zzz is not kept any more: it went at … by retention.logs 90d (ada)`; where
    that was begun: `… may not be whole any more: it was to go at …`"""
    several = found.kind is Leftover.CHECKPOINTS
    what = "output" if found.kind is Leftover.OUTPUTS else found.kind.value
    named = f"{what} of job {found.job_id}" if several else f"the {what} of job {found.job_id}"
    it = "they" if several else "it"
    at = f"at {found.at:%Y-%m-%d %H:%M} UTC by {found.rule} ({found.by})"
    if found.gone:
        return f"{named} {'are' if several else 'is'} not kept any more: {it} went {at}"
    return f"{named} may not be whole any more: {it} {'were' if several else 'was'} to go {at}"
