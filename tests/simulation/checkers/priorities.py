"""Priorities: a job has the one that it was given last, and what was acknowledged is not lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from stado.core import keys
from stado.core.records import (
    PRIORITY_CHANGES_MAX,
    EndCell,
    OpenCell,
    PriorityChange,
    Record,
)
from tests.simulation.checkers.base import Change, Checker, Violation

if TYPE_CHECKING:
    from tests.simulation.people import Answer
    from tests.simulation.world import World


class PrioritiesChecker(Checker):
    """Whatever becomes of the epoch in which a job got another priority, the next one has it."""

    rule = "a job keeps the priority that it was given"

    def __init__(self, world: World, report: Callable[[Violation], None]) -> None:
        super().__init__(world, report)
        self._acknowledged: dict[str, list[PriorityChange]] = defaultdict(list)

    def on_answer(self, answer: Answer) -> None:
        if answer.what != "prioritized" or answer.record is None:
            return
        if answer.change is not None:
            self._acknowledged[answer.record.id].append(answer.change)

    def on_change(self, change: Change) -> None:
        if change.written_cell == "end":
            self._check(change.decode_after(EndCell).record, change.key)
        elif change.written_cell == "open":
            self._check(change.decode_after(OpenCell).record, change.key)
        elif change.folder == "queue" and change.after is not None:
            self._check_queued(change.decode_after(Record), change.key)

    def _check_queued(self, record: Record, where: str) -> None:
        """One of a slow submitter can stand once the epoch has begun, and means nothing."""
        cells = (keys.claim_cell, keys.end_cell)
        if not any(self._exists(cell(record.id, record.epoch)) for cell in cells):
            self._check(record, where)

    def _check(self, record: Record, where: str) -> None:
        changes = record.priority_changes
        last = changes[-1].after if changes else record.spec.priority
        if record.priority != last:
            self.fail(f"{where} has priority {record.priority} after {changes}")
        if len(changes) == PRIORITY_CHANGES_MAX:
            return
        for given in self._acknowledged[record.id]:
            if given not in changes:
                self.fail(f"{where} has forgotten {given}, which was acknowledged")
