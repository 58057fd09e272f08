"""Puts back what still runs on a host that was to be empty by now: its supervisors are asked to, as
for a more urgent job, and save first."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from stado.core.records import HostClosing
from stado.errors import StoreError, Unreadable
from stado.jobs.asking import ask_to_yield
from stado.jobs.repository import Repository
from stado_agent.workspace import SupervisorNote

log = logging.getLogger(__name__)


class Evictions:
    """Of one agent. Each epoch is asked once."""

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._asked: set[tuple[str, int]] = set()

    def turn(self, closing: HostClosing, running: Iterable[SupervisorNote]) -> None:
        """`running`: what supervisors of this host have in hand. A read and a write for each that
        was not asked yet; what the store does not take is asked again at the next turn."""
        present = {(note.job_id, note.epoch) for note in running}
        self._asked &= present
        for job_id, epoch in sorted(present - self._asked):
            try:
                self._ask(job_id, epoch, closing)
            except Unreadable as error:
                self._repo.tell_unreadable(error)
            except StoreError as error:
                log.warning("event=eviction_delayed job=%s error=%r", job_id, str(error))
                return
            self._asked.add((job_id, epoch))

    def _ask(self, job_id: str, epoch: int, closing: HostClosing) -> None:
        note = closing.reason or "its host is drained"
        ask_to_yield(self._repo, job_id, epoch, by=closing.by, note=note, evict=True)
        log.info("event=evicted job=%s epoch=%d by=%s", job_id, epoch, closing.by)
