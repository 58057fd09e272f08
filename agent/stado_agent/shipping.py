"""What a running command prints and saves, on its way to the store: on a thread of its own, so that
who watches over the command never waits for the store.
"""

from __future__ import annotations

import logging

from stado.errors import StoreError
from stado.jobs.repository import Repository
from stado.ports import Event, Task
from stado_agent.checkpoint_sync import CheckpointSync
from stado_agent.log_shipping import LogShipper

log = logging.getLogger(__name__)


class _Stopped(Exception):
    """Nothing more is to be begun."""


class Shipping:
    """Ships between `start` and `stop`, again and again if need be."""

    def __init__(
        self,
        repo: Repository,
        shipper: LogShipper,
        checkpoints: CheckpointSync,
        *,
        look_seconds: float,
    ) -> None:
        self._repo = repo
        self._shipper = shipper
        self._checkpoints = checkpoints
        self._look_seconds = look_seconds
        self._stopped: Event | None = None
        self._task: Task | None = None
        self._ailing = False

    def start(self) -> None:
        """Nothing when it ships already."""
        if self._task is None:
            self._stopped = self._repo.tasks.event()
            self._task = self._repo.tasks.start(f"shipping {self._shipper.of.job_id}", self._run)

    def stop(self) -> None:
        """Returns when nothing is shipped any more: at most after some segments, or one part of a
        checkpoint."""
        if self._stopped is not None and self._task is not None:
            self._stopped.set()
            self._task.join()
        self._task = None

    def _run(self) -> None:
        assert self._stopped is not None  # made by whoever started this
        while not self._stopped.wait(self._look_seconds):
            try:
                self._ship()
            except _Stopped:
                return
            except (StoreError, OSError) as error:
                self._note_delay(error)

    def _ship(self) -> None:
        of = self._shipper.of
        if self._shipper.ship_when_due():
            self._ailing = False
        self._checkpoints.save_when_due(of.job_id, of.epoch, between=self._raise_if_stopped)

    def _raise_if_stopped(self) -> None:
        """A checkpoint of an hour must not keep a cancel, or a seal, waiting."""
        if self._stopped is not None and self._stopped.is_set():
            raise _Stopped

    def _note_delay(self, error: Exception) -> None:
        """One line an outage."""
        if not self._ailing:
            job_id = self._shipper.of.job_id
            log.warning("event=shipping_delayed job=%s error=%r", job_id, str(error))
        self._ailing = True
