"""Which submissions are a user's, as far as an agent needs it: a name in the queue's index says
which submission a job is of, and not whose."""

from __future__ import annotations

import itertools
import logging

from stado.errors import StoreError
from stado.jobs.ownership import bases_of
from stado.jobs.repository import Repository

log = logging.getLogger(__name__)

_BASES_MAX = 1000
"""A page of a listing. Older ones are met one by one."""


def known_bases(repo: Repository, user: str) -> frozenset[str]:
    """The newest ones. A listing; none where it fails."""
    try:
        return frozenset(itertools.islice(bases_of(repo, user), _BASES_MAX))
    except StoreError as error:
        log.warning("event=submissions_not_listed error=%r", str(error))
        return frozenset()
