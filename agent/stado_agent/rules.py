"""What the deployment decides, as an agent knows it: read at its start, and then now and then.

A claim fixes for its job what was known then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from stado.core import keys
from stado.core.budgets import Spending
from stado.core.records import Hindrance
from stado.core.settings import WORKERS_LOOK_SECONDS, DeploymentSettings
from stado.errors import StoreError, Unreadable
from stado.jobs.budgets import read_budgets
from stado.jobs.repository import Repository
from stado.jobs.settings import read_settings

log = logging.getLogger(__name__)

_TRY_AGAIN_SECONDS = 10.0


class Rules:
    """`settings` is None until they could be read once: what is not known is not guessed, so
    nothing is claimed until then. Later, what was read last holds."""

    def __init__(self, repo: Repository, *, now: Callable[[], datetime]) -> None:
        self._repo = repo
        self._now = now
        self._due_at = float("-inf")
        self._ailing = False
        self._reading = keys.SETTINGS
        self.settings: DeploymentSettings | None = None
        self.budgets: Spending | None = None
        """What is spent, where a budget is set and a coordinator has worked it out."""
        self.hindrance: Hindrance | None = None
        """Why nothing can be claimed."""

    def refresh_when_due(self) -> None:
        now = self._repo.clock.monotonic()
        if now < self._due_at:
            return
        try:
            self._reading = keys.SETTINGS
            settings = read_settings(self._repo)
            budgets = self._spent_of(settings)
        except (StoreError, Unreadable) as error:
            self._due_at = now + _TRY_AGAIN_SECONDS
            self._note_failure(error)
        else:
            self._due_at = now + WORKERS_LOOK_SECONDS
            self._ailing, self.hindrance = False, None
            self.settings, self.budgets = settings, budgets

    def _spent_of(self, settings: DeploymentSettings) -> Spending | None:
        """What is not heard changes nothing: what was read last is a lower bound. Before the first
        time it is unknown, which is not nothing: then it raises `StoreError`."""
        if not settings.budgets.rules:
            return None
        self._reading = keys.BUDGETS
        try:
            return read_budgets(self._repo) or self.budgets
        except StoreError as error:
            if self.settings is None:
                raise
            log.warning("event=budgets_unknown error=%r", str(error))
            return self.budgets

    def _note_failure(self, error: Exception) -> None:
        """One line an outage."""
        if not self._ailing:
            log.warning("event=settings_unknown error=%r", str(error))
        self._ailing = True
        if self.settings is None and self.hindrance is None:
            detail = (
                f"the deployment's limits cannot be read: {error}: mend {self._reading}, or let "
                "this agent read it (`stado doctor --role agent` names the policy)"
            )
            self.hindrance = Hindrance(
                code="settings_unknown", detail=detail[:1024], since=self._now()
            )
