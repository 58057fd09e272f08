"""Tries again: no more than a job may make, after what it may, and not before their time."""

from __future__ import annotations

from stado.core import keys
from stado.core.ids import milliseconds
from stado.core.records import ClaimCell, EndCell, OpenCell, Record
from stado.core.retries import rule_of
from stado.core.settings import DeploymentSettings
from stado.core.states import Opening, Verdict
from tests.simulation.checkers.base import Change, Checker


class RetriesChecker(Checker):
    """What a job may do again by itself is fixed at its first claim, and kept to."""

    rule = "a job is tried again as often as it may, when it may"

    def on_change(self, change: Change) -> None:
        if change.written_cell == "claim":
            self._check_claim(change, change.decode_after(ClaimCell))
        elif change.written_cell == "end":
            self._check_end(change.decode_after(EndCell))

    def _check_claim(self, change: Change, claim: ClaimCell) -> None:
        if claim.intent is not None:
            return
        record = claim.record
        before = self._find(EndCell, keys.end_cell(record.id, record.epoch - 1))
        retry_at = before.ending.retry_at if before is not None else None
        if retry_at is not None and milliseconds(retry_at) > self.latest_now_ms:
            self.fail(f"{change.key} was made before {retry_at}, when it may be tried again")
        if record.retry_rule != self._rule(record, before):
            self.fail(f"{change.key} has the rule {record.retry_rule}")

    def _rule(self, record: Record, before: EndCell | None) -> object:
        """As the job has had it, or, of one that is claimed first or was retried, as it is drawn
        up from what is stated."""
        if before is not None and before.record.picked_up_at is not None:
            opened = self._find(OpenCell, keys.open_cell(record.id, record.epoch))
            if opened is None or opened.kind is not Opening.RETRY:
                return before.record.retry_rule
        spec = record.spec
        settings = self._find(DeploymentSettings, keys.SETTINGS) or DeploymentSettings()
        return rule_of(
            settings.retries,
            retries=spec.retries,
            on=spec.retry_on,
            delay_seconds=spec.retry_delay_seconds,
        )

    def _check_end(self, cell: EndCell) -> None:
        record, ending = cell.record, cell.ending
        rule = record.retry_rule
        if ending.verdict is not Verdict.RETRYING:
            return
        if rule is None or record.auto_retries_used > rule.retries:
            self.fail(f"{record.id} is tried again in epoch {record.epoch}, and may not be")
        elif ending.reason not in rule.on or ending.started_at is None:
            self.fail(f"{record.id} is tried again after {ending.told}")
