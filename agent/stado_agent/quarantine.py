"""Keeps a host on which everything fails at once from drawing the queue through itself.

A few failures in a row make it suspect: it claims nothing until other hosts show what the same work
does with them. If they fare better it is quarantined, which lasts, over restarts, until somebody
releases it. Whose fault it is, `stado.core.early_failures` decides.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime

from stado.core import early_failures
from stado.core.early_failures import EARLY, IN_A_ROW, UNTOLD, Elsewhere, Fault, Running
from stado.core.ids import base_of
from stado.core.records import RECENT_ENDS_MAX, Hindrance, JobEnd
from stado.errors import StoreError
from stado.jobs.health import AgentSight, AgentState, Fleet
from stado.jobs.repository import Repository
from stado_agent.workspace import HostFolder

log = logging.getLogger(__name__)

_ACQUITTED_MAX = 1000
_NAMED_MAX = 5


class Quarantine:
    """Of one agent. `folder`: where it is written down."""

    def __init__(self, repo: Repository, consumer: str, folder: HostFolder) -> None:
        self._consumer = consumer
        self._folder = folder
        self._now = repo.now
        self._ends: list[JobEnd] = []
        self._row: list[JobEnd] = []
        self._acquitted: list[str] = []
        """Submissions whose failures say nothing of this host."""
        self._suspected_at: datetime | None = None
        self._fleet = Fleet(repo)
        self._quarantine = _written_down(folder)

    @property
    def recent_ends(self) -> list[JobEnd]:
        """For others to compare with, oldest first."""
        return list(self._ends[-RECENT_ENDS_MAX:])

    @property
    def suspect(self) -> bool:
        return self._suspected_at is not None

    def hindrance(self) -> Hindrance | None:
        if self._quarantine is not None:
            return self._quarantine
        if self._suspected_at is None:
            return None
        minutes = f"{UNTOLD.total_seconds() / 60:g} minutes"
        return Hindrance(
            code="suspect",
            detail=f"{_told(self._row)}; it waits, for {minutes} at most, for what other hosts "
            f"make of such jobs; `stado hosts release {self._consumer}` lets it go on at once",
            since=self._suspected_at,
        )

    def starts_left(self, young: int) -> int | None:
        """How many more may be begun now, while so many are that have not shown yet whether they
        fail at once; None: any number."""
        return max(0, IN_A_ROW - len(self._row) - young) if self._row else None

    def note_end(self, end: JobEnd) -> None:
        self._ends = [*self._ends, end][-RECENT_ENDS_MAX:]
        if base_of(end.job_id) in self._acquitted and early_failures.failed_early(end):
            return
        self._row = early_failures.in_a_row([*self._row, end])
        if self.suspect and not self._row:
            self._go_on("a job that ended since ran well")
        if len(self._row) >= IN_A_ROW and not self.suspect and self._quarantine is None:
            self._suspected_at = self._now()
            log.warning("event=suspect why=%r", _told(self._row))

    def note_running(self, began_at: Iterable[datetime]) -> None:
        """Of what runs here: a command that began since the row did, and lives, speaks for the
        host."""
        if self._row and self._quarantine is None:
            since, now = self._row[0].at, self._now()
            if any(one >= since and now - one >= EARLY for one in began_at):
                self._go_on("jobs that were started since run here")

    def look(self) -> None:
        """While suspect: at what other hosts tell. One listing, and a read for each report that
        is new."""
        if self._suspected_at is None or self._quarantine is not None:
            return
        try:
            sights = self._fleet.look()
        except StoreError as error:
            log.warning("event=others_not_seen error=%r", str(error))
            return
        others = [_elsewhere(one) for one in sights if one.capacity.consumer != self._consumer]
        fault = early_failures.whose_fault(self._row, others)
        if fault is Fault.HOST:
            self._begin()
        elif fault is Fault.JOBS:
            self._acquit("other hosts do no better, or there is none")
        elif self._now() - self._suspected_at >= UNTOLD:
            self._acquit("no other host has shown what it makes of such jobs")

    def release(self, at: datetime) -> None:
        """By somebody, at that moment: what began later stays."""
        begun = self._quarantine.since if self._quarantine is not None else self._suspected_at
        if begun is None or at < begun:
            return
        self._quarantine = None
        try:
            self._folder.remove_quarantine()
        except OSError as error:
            log.warning("event=quarantine_left error=%r", str(error))
        self._go_on("it was released")

    def _begin(self) -> None:
        told = f"{_told(self._row)}, and other hosts run such jobs"
        log.error("event=quarantined why=%r", told)
        detail = f"{told}: mend it, then `stado hosts release {self._consumer}`"
        self._quarantine = _quarantined(detail, self._now())
        self._suspected_at = None
        try:
            self._folder.write_quarantine(detail=detail, since=self._quarantine.since)
        except OSError as error:
            log.warning("event=quarantine_not_written error=%r", str(error))

    def _acquit(self, why: str) -> None:
        """These submissions are not counted any more."""
        bases = {base_of(end.job_id) for end in self._row}
        self._acquitted = [*self._acquitted, *sorted(bases)][-_ACQUITTED_MAX:]
        self._go_on(why)

    def _go_on(self, why: str) -> None:
        if self.suspect or self._row:
            log.info("event=not_suspect why=%r", why)
        self._row = []
        self._suspected_at = None


def _elsewhere(sight: AgentSight) -> Elsewhere:
    one = sight.capacity
    return Elsewhere(
        at=one.at,
        takes_jobs=sight.state is AgentState.WORKING,
        quarantined=one.hindrance is not None and one.hindrance.code == "quarantined",
        ends=one.recent_ends,
        running=[Running(job.job_id, job.began_at) for job in one.jobs if job.began_at is not None],
    )


def _told(row: Sequence[JobEnd]) -> str:
    """`3 jobs in a row failed here within 30 s: a, b, c (job_failed)`."""
    named = row[:_NAMED_MAX]
    reasons = ", ".join(sorted({str(end.reason) for end in named}))
    jobs = ", ".join(end.job_id for end in named)
    seconds = EARLY.total_seconds()
    return f"{len(row)} jobs in a row failed here within {seconds:g} s: {jobs} ({reasons})"


def _quarantined(detail: str, since: datetime) -> Hindrance:
    return Hindrance(code="quarantined", detail=detail, since=since)


def _written_down(folder: HostFolder) -> Hindrance | None:
    """By an earlier agent of this name. What cannot be read is told, and is none."""
    try:
        found = folder.read_quarantine()
    except (OSError, ValueError) as error:
        log.warning("event=quarantine_unreadable error=%r", str(error))
        return None
    return None if found is None else _quarantined(*found)
