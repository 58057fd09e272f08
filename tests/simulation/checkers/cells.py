"""Cells: made once, never changed, never deleted; one claim and one verdict an epoch, in order."""

from __future__ import annotations

from stado.core import keys
from stado.core.records import ClaimCell, EndCell, Heartbeat, Record
from stado.core.states import Verdict
from tests.simulation.checkers.base import Change, Checker


class CellsChecker(Checker):
    """Invariant 2 of the protocol, and who may give a verdict."""

    rule = "a cell is made once, by who may make it"

    def on_change(self, change: Change) -> None:
        if change.folder != "status" or change.parts[2] != "cells":
            return
        if change.before is not None:
            self.fail(f"{change.key} was {'changed' if change.after else 'deleted'}")
            return
        parsed = keys.parse_cell(change.key)
        if parsed is None:
            self.fail(f"{change.key} is no cell's name")
            return
        epoch, kind = parsed
        cell = change.decode_after(ClaimCell) if kind == "claim" else change.decode_after(EndCell)
        record = cell.record
        self._check_record(change, record, epoch)
        if kind == "end":
            self._check_verdict(change, record)

    def _check_record(self, change: Change, record: Record, epoch: int) -> None:
        if (record.id, record.epoch) != (change.job_id, epoch):
            self.fail(f"{change.key} holds {record.id} of epoch {record.epoch}")
        if epoch == 1:
            return
        before = self._find(EndCell, keys.end_cell(record.id, epoch - 1))
        if before is None or before.ending.verdict is not Verdict.LOST:
            self.fail(f"{change.key} was made, but epoch {epoch - 1} did not lead to it")
        elif record.starts < before.record.starts:
            self.fail(f"{change.key} has forgotten starts")

    def _check_verdict(self, change: Change, record: Record) -> None:
        """Nobody but its holder's host ends a claimed epoch that is not sealed; an intent is
        finished by anybody."""
        claim = self._find(ClaimCell, keys.claim_cell(record.id, record.epoch))
        if claim is not None and claim.intent is not None:
            return
        holder = claim.record.holder if claim is not None else None
        author = change.author
        if holder is not None and author is not None and author.host.name == holder.host:
            return
        beat = self._find(Heartbeat, keys.heartbeat(record.id))
        if beat is None or beat.epoch < record.epoch or not beat.sealed:
            who = author.host.name if author is not None else "somebody"
            self.fail(f"{who} made {change.key}, which it does not hold, without a seal")
