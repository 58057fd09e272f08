"""Ending queued jobs whose time is up: by a claim cell that lets nobody run them.

Whoever meets one does it: an agent in its polls, a coordinator as it mends the queue.
"""

from __future__ import annotations

import logging

from stado.core.clocks import passed_limit
from stado.core.order import ReadyEntry
from stado.core.records import Intent, Record
from stado.core.states import State
from stado.jobs.endings import claim_for_intent, finish_intent
from stado.jobs.repository import Repository

log = logging.getLogger(__name__)


def expire_if_over(repo: Repository, record: Record, *, by: str) -> bool:
    """Whether the time of this queued record is up: then its epoch has been ended, or somebody
    else has it. No request as long as there is time.

    Claims the epoch, gives its verdict, settles: a crash after the claim leaves an intent, which
    whoever meets it finishes."""
    limit = passed_limit(record, repo.now_ms())
    if limit is None:
        return False
    claim = claim_for_intent(repo, record, intent=Intent.EXPIRE, by=by)
    if claim is not None:
        cell = finish_intent(repo, claim)
        log.info(
            "event=expired job=%s epoch=%d verdict=%s reason=%s",
            record.id,
            record.epoch,
            cell.ending.verdict,
            cell.ending.reason,
        )
    return True


def expire_entry(repo: Repository, entry: ReadyEntry, *, by: str) -> None:
    """What an entry says is no more than a hint: the queue record decides. One read besides."""
    queued = repo.find_record(State.QUEUED, entry.job_id)
    if queued is not None:
        expire_if_over(repo, queued.value, by=by)
