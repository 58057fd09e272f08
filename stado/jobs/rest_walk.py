"""Looking for jobs that two prefixes at rest hold.

A record at rest that somebody was slow to write can land after the job was taken out of that rest
and has come to another. The next end of the job removes it; one that lands later than that is found
here.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from stado.core import ids, keys
from stado.core.states import State
from stado.errors import Unreadable
from stado.jobs.endings import remove_record
from stado.jobs.repository import Repository
from stado.storage.port import LIST_LIMIT_MAX

_AT_REST = tuple(state for state in State if state.at_rest)


class RestWalk:
    """A walk through all prefixes at rest side by side, a page of each in a turn, round and round;
    keep it between turns."""

    def __init__(
        self, repo: Repository, *, page_size: int = LIST_LIMIT_MAX, once: bool = False
    ) -> None:
        """`once`: for a process that makes one turn, which begins anywhere then."""
        self._repo = repo
        self._page_size = page_size
        self._begins_anywhere = once
        self._after = ""

    def turn(self) -> list[str]:
        """Job ids of which a record was removed. A listing for each prefix, and a few reads and a
        delete for each such job."""
        if self._begins_anywhere:
            self._after, self._begins_anywhere = _some_name(self._repo), False
        pages = {state: self._page(state) for state in _AT_REST}
        full = [names[-1] for names in pages.values() if len(names) == self._page_size]
        end = min(full, default=None)
        counts = Counter(name for names in pages.values() for name in names)
        self._after = end or ""
        doubled = [
            name for name, count in counts.items() if count > 1 and (end is None or name <= end)
        ]
        return [job_id for job_id in map(keys.job_of_record, doubled) if self._mend(job_id)]

    def _page(self, state: State) -> list[str]:
        """Names below the prefix, in order: the same for the same job in each."""
        prefix = keys.prefix(state)
        start_after = f"{prefix}{self._after}" if self._after else ""
        listed = self._repo.store.list(prefix, start_after=start_after, limit=self._page_size)
        return [entry.key.removeprefix(prefix) for entry in listed]

    def _mend(self, job_id: str) -> bool:
        """The record of the highest epoch stays."""
        try:
            found = {state: self._repo.find_record(state, job_id) for state in _AT_REST}
        except Unreadable as error:
            self._repo.tell_unreadable(error)
            return False
        epochs = {state: stored.value.epoch for state, stored in found.items() if stored}
        highest = max(epochs.values(), default=0)
        stale = [state for state, epoch in epochs.items() if epoch < highest]
        for state in stale:
            remove_record(self._repo, state, job_id, below_epoch=highest)
        return bool(stale)


def _some_name(repo: Repository) -> str:
    """Behind which the jobs begin that were submitted before some moment of this deployment."""
    begin, now = repo.deployment.created_at, repo.now()
    age_seconds = max(0.0, (now - begin).total_seconds())
    moment = begin + timedelta(seconds=repo.entropy.uniform(0, age_seconds))
    return ids.new_base(moment, "a" * ids.random_letters_needed())
