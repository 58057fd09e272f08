"""Removing what agents that are gone have said of themselves, which would pile up for ever where
each host or container has a name of its own.

Nothing hangs on such a document: one that is deleted too early is written again by its agent.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from stado.core.records import Capacity
from stado.errors import Conflict, StoreError
from stado.jobs.repository import Repository
from stado.storage.port import Entry

log = logging.getLogger(__name__)

_SILENT_LEASES = 50
_SILENT_MIN = timedelta(days=1)
"""People shall still find the host that went away over night."""

_AT_A_TIME = 20
_FAILURES_MAX = 3
"""Documents that may fail in one turn before it is the store that fails."""


@dataclass(frozen=True, slots=True)
class AgentReport:
    """An agent's document, and when it was written by the store's time."""

    entry: Entry
    capacity: Capacity


def forget_departed(repo: Repository, reports: Sequence[AgentReport]) -> list[str]:
    """Deletes the documents of agents that have left or are silent for long, 20 at most; their
    names. `reports` are of agents whom no running record names. At most two requests each."""
    now = repo.now()
    gone = [report for report in reports if _is_gone(repo, report, now)]
    begin = int(repo.entropy.uniform(0, len(gone)))
    forgotten: list[str] = []
    failures = 0
    for report in (gone[begin:] + gone[:begin])[:_AT_A_TIME]:
        try:
            repo.store.delete(report.entry.key, report.entry.version)
            forgotten.append(report.capacity.consumer)
        except Conflict:
            continue  # it is back
        except StoreError as error:
            log.warning("event=forget_failed key=%s error=%r", report.entry.key, str(error))
            failures += 1
            if failures == _FAILURES_MAX:
                raise
    return forgotten


def _is_gone(repo: Repository, report: AgentReport, now: datetime) -> bool:
    """A farewell stays for a lease, so that whoever looks now and then sees it."""
    lease = timedelta(seconds=repo.deployment.lease_seconds)
    silence = now - report.entry.modified_at
    if report.capacity.stopped:
        return silence > lease
    return silence > max(_SILENT_LEASES * lease, _SILENT_MIN)
