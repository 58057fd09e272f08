"""Jobs that make room: those that may, as often as they may, and because somebody asked."""

from __future__ import annotations

from stado.core import keys
from stado.core.records import Asks, EndCell
from stado.core.states import Reason, Verdict
from tests.simulation.checkers.base import Change, Checker


class YieldsChecker(Checker):
    """A job is put back for others only when somebody asked, and as often as it said."""

    rule = "a job makes room as often as it may"

    def on_change(self, change: Change) -> None:
        if change.written_cell == "end":
            self._check_end(change.decode_after(EndCell))

    def _check_end(self, cell: EndCell) -> None:
        record, ending = cell.record, cell.ending
        if ending.verdict is not Verdict.YIELDED:
            return
        asked = self._find(Asks, keys.asks(record.id, record.epoch))
        if asked is None or not asked.give_way:
            self.fail(f"{record.id} made room in epoch {record.epoch}, and nobody had asked")
        elif ending.reason is Reason.HOST_CLOSED:
            if not asked.evict:
                self.fail(f"{record.id} was put back in epoch {record.epoch}: its host is open")
        elif not record.spec.yieldable or record.yields > (record.spec.max_yields or 0):
            self.fail(f"{record.id} made room in epoch {record.epoch}, and is protected")
