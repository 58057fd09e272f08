"""Which submissions are a user's, as far as an agent needs it: a name in the queue's index says
which submission a job is of, and not whose."""

from __future__ import annotations

import itertools
import logging

from stado.errors import StoreError
from stado.jobs.ownership import bases_of
from stado.jobs.repository import Repository

log = logging.getLogger(__name__)

_LISTED_MAX = 1000
"""A page of a listing. Older ones are met one by one."""

_LIST_SECONDS = 60.0
"""So often at most a user's submissions are listed."""

_KNOWN_MAX = 10_000
_USERS_MAX = 1000


class KnownBases:
    """Keep one an agent: what was learnt once stays known, whatever a later listing says."""

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._bases: dict[str, set[str]] = {}
        self._listed_at: dict[str, float] = {}

    def of(self, user: str) -> set[str]:
        return self._bases.get(user, set())

    def learn(self, user: str, base: str) -> None:
        """That this submission is the user's. Now and then with a listing of the newest others."""
        if base in self.of(user):
            return
        if user not in self._bases and len(self._bases) >= _USERS_MAX:
            self._bases.clear()
            self._listed_at.clear()
        known = self._bases.setdefault(user, set())
        if len(known) >= _KNOWN_MAX:
            known.clear()
        known.add(base)
        now = self._repo.clock.monotonic()
        if now - self._listed_at.get(user, float("-inf")) >= _LIST_SECONDS:
            self._listed_at[user] = now
            known.update(self._newest(user))

    def _newest(self, user: str) -> list[str]:
        try:
            return list(itertools.islice(bases_of(self._repo, user), _LISTED_MAX))
        except StoreError as error:
            log.warning("event=submissions_not_listed error=%r", str(error))
            return []
