"""Limits of time: no job is ended before its time, whoever ends it, whatever clocks were set."""

from __future__ import annotations

from datetime import datetime, timedelta

from stado.core import keys
from stado.core.clocks import time_limit
from stado.core.ids import milliseconds
from stado.core.records import ClaimCell, EndCell, OpenCell, Record
from stado.core.states import Opening, Reason, Verdict
from tests.simulation.checkers.base import Change, Checker


class TimesChecker(Checker):
    """A job ends as timed out once one of its limits has passed, and not before; its clock begins
    with its first claim, and no loss sets it anew."""

    rule = "no job is ended before its time"

    def on_change(self, change: Change) -> None:
        if change.written_cell == "claim":
            self._check_claim(change, change.decode_after(ClaimCell))
        elif change.written_cell == "end":
            self._check_end(change.decode_after(EndCell))

    def _check_claim(self, change: Change, claim: ClaimCell) -> None:
        record = claim.record
        known = self._clock_so_far(record)
        if claim.intent is None and known not in (None, record.picked_up_at):
            self.fail(f"{change.key} has set the clock of its job")
        if record.picked_up_at is not None:
            self._check_passed(record.picked_up_at, f"{change.key} was picked up")
        if claim.intent is None and record.runtime_limit_seconds not in (
            None,
            self.world.plan.runtime_limit_seconds,
        ):
            self.fail(f"{change.key} has a limit that nobody stated")

    def _clock_so_far(self, record: Record) -> datetime | None:
        """A retry begins anew; for a job that was paused it is set forward by what that took."""
        before = self._find(EndCell, keys.end_cell(record.id, record.epoch - 1))
        opened = self._find(OpenCell, keys.open_cell(record.id, record.epoch))
        known = before.record.picked_up_at if before is not None else None
        if opened is None or before is None:
            return known
        if opened.kind is Opening.RETRY:
            return None
        if known is not None:
            known += max(opened.at - before.ending.ended_at, timedelta(0))
        return known

    def _check_passed(self, at: datetime, what: str) -> None:
        if milliseconds(at) > self.latest_now_ms:
            self.fail(f"{what} at {at}, which is to come")

    def _check_end(self, cell: EndCell) -> None:
        record, ending = cell.record, cell.ending
        if ending.verdict is Verdict.TIMED_OUT:
            limit = time_limit(record)
            if limit is None or limit.at_ms > self.latest_now_ms:
                self.fail(f"{record.id} timed out before its time: {limit}")
        elif ending.reason is Reason.TIMEOUT:
            self._check_run(record)

    def _check_run(self, record: Record) -> None:
        """Of its own host."""
        assert record.ending is not None  # a verdict has one
        assert record.holder is not None  # a host gave it
        hosts = {host.name: host.plan.max_run_seconds for host in self.world.hosts}
        allowed, started_at = hosts[record.holder.host], record.ending.started_at
        if allowed is None or started_at is None:
            self.fail(f"{record.id} ran too long on {record.holder.host}, which allows anything")
        elif milliseconds(started_at) + 1000 * allowed > self.latest_now_ms:
            self.fail(f"{record.id} was ended before its host's time")
