"""Assignments are a hint: each names a job once, that there is, and keeps others from none of them
for longer than from when it was assigned first."""

from __future__ import annotations

from stado.core import keys
from stado.core.hints import Assignments
from stado.core.order import parse_entry
from stado.core.records import Record
from stado.core.states import State
from tests.simulation.checkers.base import Change, Checker


class AssignmentsChecker(Checker):
    """What is wrong in itself (a job that is assigned twice) cannot be decoded."""

    rule = "an assignment is of one queued job, and keeps it from others no longer than at first"

    def on_change(self, change: Change) -> None:
        if change.key != keys.ASSIGNMENTS or change.after is None:
            return
        told = change.decode_after(Assignments)
        since = self._since(change.decode_before(Assignments)) if change.before else {}
        for name, since_ms in self._since(told).items():
            if since_ms > since.get(name, since_ms):  # earlier: by a clock that is behind
                self.fail(f"{name} was assigned at {since[name]}, and now at {since_ms}")
            self._check_job(name)

    @staticmethod
    def _since(told: Assignments) -> dict[str, int]:
        return {job.entry: job.since_ms for host in told.hosts for job in host.jobs}

    def _check_job(self, name: str) -> None:
        """It was queued as it was listed, or about to be: an entry is written before its record,
        once the epoch before has ended."""
        entry = parse_entry(name)
        if entry is None:
            self.fail(f"{name} is no entry")
            return
        record = self._find(Record, keys.record(State.QUEUED, entry.job_id))
        cells = (keys.claim_cell, keys.end_cell)
        begun = any(self._exists(cell(entry.job_id, entry.epoch)) for cell in cells)
        follows = entry.epoch > 1 and self._exists(keys.end_cell(entry.job_id, entry.epoch - 1))
        if not (record or begun or follows) and entry.job_id in self.world.known_jobs:
            self.fail(f"{name} is of a job that is not queued, and has not been claimed")
