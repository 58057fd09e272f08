"""Cells: made once, never changed, never deleted; one claim and one verdict an epoch, in order. And
what follows from the last verdict: a record at rest stays."""

from __future__ import annotations

from stado.core import keys
from stado.core.records import ClaimCell, EndCell, Heartbeat, Holder, OpenCell, Record
from stado.core.states import Opening, State
from tests.simulation.checkers.base import Change, Checker
from tests.simulation.process import SimProcess

_KINDS: dict[str, type[ClaimCell] | type[EndCell] | type[OpenCell]] = {
    "claim": ClaimCell,
    "end": EndCell,
    "open": OpenCell,
}
_AT_REST = frozenset(keys.prefix(state) for state in State if state.at_rest)


class CellsChecker(Checker):
    """Invariant 2 of the protocol, and who may give a verdict."""

    rule = "a cell is made once, by who may make it"

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._claimers: dict[tuple[str, int], SimProcess] = {}

    def on_change(self, change: Change) -> None:
        if f"{change.folder}/" in _AT_REST and change.before not in (None, change.after):
            self._check_left(change)
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
        cell = change.decode_after(_KINDS[kind])
        record = cell.record
        self._check_record(change, record, epoch)
        if isinstance(cell, OpenCell):
            self._check_opening(change, cell)
        elif kind == "end":
            self._check_verdict(change, record)
        elif change.author is not None:
            self._claimers[record.id, epoch] = change.author

    def _check_left(self, change: Change) -> None:
        """A record at rest goes, or gives way to one of a later epoch, by an open cell alone. Where
        a delete names no version, a late one can hit the record of a later rest."""
        before = change.decode_before(Record)
        openings = self._openings(before.id)
        if change.after is None and openings and not self.world.plan.ways.deletes_by_version:
            return
        later = any(cell.record.epoch > before.epoch for cell in openings)
        goes_on = change.after is None or change.decode_after(Record).epoch > before.epoch
        if not later or not goes_on:
            self.fail(f"{change.key} was {'changed' if change.after else 'deleted'}")

    def _check_opening(self, change: Change, cell: OpenCell) -> None:
        before = self._find(EndCell, keys.end_cell(cell.record.id, cell.record.epoch - 1))
        if before is None or before.ending.verdict.state is not cell.record.opened_from:
            self.fail(f"{change.key} opens an epoch after no such end")
        elif cell.kind is Opening.CANCEL:
            return  # also by who settles a pause, and has read that a cancel was asked for
        elif not self._exists(keys.record(before.record.state, cell.record.id)):
            self.fail(f"{change.key} was made by somebody who cannot have read the record at rest")

    def _check_record(self, change: Change, record: Record, epoch: int) -> None:
        if (record.id, record.epoch) != (change.job_id, epoch):
            self.fail(f"{change.key} holds {record.id} of epoch {record.epoch}")
        if epoch == 1:
            return
        before = self._find(EndCell, keys.end_cell(record.id, epoch - 1))
        opened = self._find(OpenCell, keys.open_cell(record.id, epoch))
        goes_on = before is not None and before.ending.verdict.state is None
        if before is None or not (goes_on or opened is not None):
            self.fail(f"{change.key} was made, but epoch {epoch - 1} did not lead to it")
        elif record.starts < before.record.starts:
            self.fail(f"{change.key} has forgotten starts")

    def _check_verdict(self, change: Change, record: Record) -> None:
        """Nobody but its holder's host ends a claimed epoch that is not sealed; an intent is
        finished by anybody."""
        claim = self._find(ClaimCell, keys.claim_cell(record.id, record.epoch))
        if claim is not None and claim.intent is not None:
            return
        opened = self._find(OpenCell, keys.open_cell(record.id, record.epoch))
        if opened is not None and opened.kind is Opening.CANCEL:
            return
        beat = self._find(Heartbeat, keys.heartbeat(record.id))
        if beat is not None and beat.epoch >= record.epoch and beat.sealed:
            return
        self._check_holder(change, record, claim.record.holder if claim is not None else None)

    def _check_holder(self, change: Change, record: Record, holder: Holder | None) -> None:
        """Its supervisor says how it ended, or the agent of a supervisor that is gone; and nothing
        that was started lives any more."""
        author = change.author
        if holder is None or author is None or author.host.name != holder.host:
            who = author.host.name if author is not None else "somebody"
            self.fail(f"{who} made {change.key}, which it does not hold, without a seal")
            return
        claimer = self._claimers.get((record.id, record.epoch), author)
        if claimer is not author and not claimer.gone:
            self.fail(f"{author.name} made {change.key}, whose supervisor lives, without a seal")
        for command in claimer.commands:
            if command.job_id == record.id and command.exit_code is None:
                self.fail(f"{change.key} was made while its command lives, without a seal")
