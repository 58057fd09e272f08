"""Says why jobs are queued that somebody waits for: at first, and whenever it is something else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stado.cli import render, views
from stado.core.states import State
from stado.errors import Unreadable
from stado.jobs.sight import find_present
from stado.jobs.waiting import STARTING, why_queued

if TYPE_CHECKING:
    from stado.cli.following import Patience
    from stado.core.records import Record
    from stado.jobs.repository import Repository

_FIRST_SECONDS = 5.0
"""Of what starts soon nobody has to be told why it waits."""

_GROWTH = 2.0
_SECONDS_MAX = 120.0


class WaitReasons:
    """Looks seldom, for a look costs two listings and a read an agent. Of several jobs the first is
    looked at. `told`: the code of what was told already."""

    def __init__(self, repo: Repository, patience: Patience, *, told: str | None = None) -> None:
        self._repo = repo
        self._patience = patience
        self._told = told
        self._seconds = _FIRST_SECONDS
        self._due_at = repo.clock.monotonic() + self._seconds

    def look(self, queued: Sequence[str]) -> None:
        """Of the jobs that are queued now; none: they have to be told anew when some are."""
        now = self._repo.clock.monotonic()
        if not queued:
            self._told = None
            self._begin()
        elif now >= self._due_at:
            self._seconds = min(_SECONDS_MAX, self._seconds * _GROWTH)
            self._due_at = now + self._seconds
            self._patience.call(lambda: self._tell_if_new(queued[0], len(queued) - 1))

    def note(self, code: str) -> None:
        """Somebody has told this just now."""
        self._told = code
        self._begin()

    def _begin(self) -> None:
        self._seconds = _FIRST_SECONDS
        self._due_at = self._repo.clock.monotonic() + self._seconds

    def _tell_if_new(self, job_id: str, others: int) -> None:
        """What cannot be read keeps nobody from waiting."""
        try:
            record = find_present(self._repo, job_id)
            if record is None or record.state is not State.QUEUED:
                return
            self._tell_reason(record, others)
        except Unreadable:
            return

    def _tell_reason(self, record: Record, others: int) -> None:
        wait = why_queued(self._repo, record.spec, record.id, user=record.submitter)
        if wait.code == self._told or (self._told is None and wait.code == STARTING):
            return
        self._told = wait.code
        more = f" (and {render.plural(others, 'other')})" if others else ""
        render.tell(f"job {record.id}{more} is queued: {views.wait_text(wait)}")
