"""Whose fault is it that jobs fail as soon as they have started: the host's, or their own?

A host alone cannot tell. It stops after a few in a row and compares: what became of the same work
on other hosts, by what their agents report. In doubt it is the jobs: a batch of broken jobs must
not close one host after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto

from stado.core.ids import base_of
from stado.core.records import JobEnd
from stado.core.states import Reason, Verdict

IN_A_ROW = 3
"""So many different jobs that fail at once make a host suspect."""

EARLY = timedelta(seconds=30)
"""A command that ran for longer has shown that the host can run it."""

UNTOLD = timedelta(seconds=120)
"""So long a suspect host waits for others to show what the same work does with them."""

_MUCH_BETTER = 10
_MUCH_WORSE = 0.5

_FAILURES = frozenset({Verdict.FAILED, Verdict.RETRYING})
_OF_HOSTS_TOO = frozenset(
    {
        Reason.JOB_FAILED,
        Reason.VERIFY_FAILED,
        Reason.LAUNCH_FAILED,
        Reason.INPUT_UNAVAILABLE,
        Reason.DECLARED_OUTPUT_MISSING,
        Reason.NO_CHECKPOINT_SAVED,
    }
)
"""Failures that a host can be the cause of; what a job refuses or takes too much of is its own."""


class Fault(Enum):
    """Whose it is."""

    HOST = auto()
    JOBS = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class Running:
    """A command that another host runs."""

    job_id: str
    began_at: datetime


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What another host has reported."""

    at: datetime
    """When, by the store's clock."""
    takes_jobs: bool
    quarantined: bool
    ends: Sequence[JobEnd]
    """Its last ones."""
    running: Sequence[Running]


def failed_early(end: JobEnd) -> bool:
    """Whether it failed within seconds, or was not started at all, by what may be its host's
    fault."""
    if end.reason == Reason.SUPERVISOR_DIED:
        return end.ran_seconds is None
    return (
        end.verdict in _FAILURES
        and end.reason in _OF_HOSTS_TOO
        and (end.ran_seconds or 0.0) < EARLY.total_seconds()
    )


def went_well(end: JobEnd) -> bool:
    """Whether it has shown that its host can run jobs, be its outcome what it may."""
    ran_seconds = end.ran_seconds or 0.0
    return end.verdict == Verdict.COMPLETED or ran_seconds >= EARLY.total_seconds()


def in_a_row(ends: Iterable[JobEnd]) -> list[JobEnd]:
    """Of a host's ends, oldest first, the last that failed early with none between that went well:
    each job once, by its last end. What was cancelled, or failed by what is its own fault alone,
    says nothing either way."""
    row: dict[str, JobEnd] = {}
    for end in ends:
        if went_well(end):
            row.clear()
        elif failed_early(end):
            row.pop(end.job_id, None)
            row[end.job_id] = end
    return list(row.values())


def whose_fault(row: Sequence[JobEnd], others: Sequence[Elsewhere]) -> Fault:
    """Of a row of early failures on one host, by what all other hosts report.

    Compared are jobs of the same submissions, the same jobs among them; where no other host has
    any, jobs of the same users, which have to speak more clearly. Of what went well only what began
    since the row did is counted: a batch may be broken from somewhere on. Never are there more
    hosts in quarantine than at work."""
    if not any(other.takes_jobs for other in others):
        return Fault.JOBS  # nobody to compare with, and nobody else to do the work
    bases = {base_of(end.job_id) for end in row}
    since = min(end.at - _lasted(end) for end in row)
    same = [_of_submissions(other, bases, since) for other in others]
    well, badly = (sum(counts) for counts in zip(*same, strict=True))
    found = _compared(well, badly) if well or badly else _by_users(row, others, since)
    if found is Fault.HOST and not _may_close_another(others):
        return Fault.UNKNOWN
    return found


def _compared(well: int, badly: int) -> Fault:
    if badly >= _MUCH_WORSE * well:
        return Fault.JOBS
    return Fault.HOST if well >= _MUCH_BETTER * badly else Fault.UNKNOWN


def _by_users(row: Sequence[JobEnd], others: Sequence[Elsewhere], since: datetime) -> Fault:
    """Of work that no other host has had: as many submissions of the same users have to have gone
    well elsewhere, and none badly."""
    users = {end.user for end in row if end.user is not None}
    theirs = [end for other in others for end in other.ends if end.user in users]
    if any(failed_early(end) for end in theirs):
        return Fault.JOBS
    well = {base_of(e.job_id) for e in theirs if went_well(e) and _began_since(e, since)}
    return Fault.HOST if len(well) >= IN_A_ROW else Fault.UNKNOWN


def _of_submissions(other: Elsewhere, bases: set[str], since: datetime) -> tuple[int, int]:
    """How many of their jobs went well on a host, and how many failed early."""
    ends = [end for end in other.ends if base_of(end.job_id) in bases]
    well = sum(went_well(end) and _began_since(end, since) for end in ends)
    runs = sum(
        base_of(one.job_id) in bases and one.began_at >= since and other.at - one.began_at >= EARLY
        for one in other.running
    )
    return well + runs, sum(failed_early(end) for end in ends)


def _may_close_another(others: Sequence[Elsewhere]) -> bool:
    at_work = sum(other.takes_jobs for other in others)
    return at_work > sum(other.quarantined for other in others)


def _began_since(end: JobEnd, since: datetime) -> bool:
    """Reports can hold any instant: none is computed from them."""
    return end.at - since >= _lasted(end)


def _lasted(end: JobEnd) -> timedelta:
    return timedelta(seconds=end.ran_seconds or 0.0)
