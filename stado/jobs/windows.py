"""Windows of time in which jobs may start, where a claim asks for them."""

from __future__ import annotations

from stado.core.records import Record
from stado.core.settings import DeploymentSettings
from stado.core.windows import Restriction, first_closed
from stado.errors import StadoError
from stado.jobs.repository import Repository


class WindowClosed(StadoError):
    """None of the windows is open in which such jobs may start."""

    def __init__(self, restriction: Restriction) -> None:
        super().__init__(f"no window of {restriction.name} is open")
        self.restriction = restriction


def is_open_for(repo: Repository, record: Record, settings: DeploymentSettings) -> bool:
    """Whether this job may start now, on the store's clock. No request."""
    return _closed(repo, record, settings) is None


def check_windows(repo: Repository, record: Record, settings: DeploymentSettings | None) -> None:
    """Raises `WindowClosed`. No request."""
    closed = None if settings is None else _closed(repo, record, settings)
    if closed is not None:
        raise WindowClosed(closed)


def _closed(repo: Repository, record: Record, settings: DeploymentSettings) -> Restriction | None:
    return first_closed(record.spec, user=record.submitter, settings=settings, at=repo.now())
