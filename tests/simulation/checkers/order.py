"""What follows what: jobs that wait for others, and the steps of pipelines."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

from stado.core import keys, pipelines
from stado.core.records import Asks, Awaited, ClaimCell, EndCell, OpenCell, Record, RunRecord
from stado.core.states import Opening, Reason, State, Verdict
from stado.storage.port import walk
from tests.simulation.checkers.base import Change, Checker, Violation

if TYPE_CHECKING:
    from tests.simulation.world import World


class OrderChecker(Checker):
    """No job runs before those that it waits for have ended as they had to, and none is doomed
    without reason; a step is launched once its job has completed, and not otherwise, nor after one
    of which a cancel was asked while it lived. An end counts
    for those that waited when it was there: not for who came when somebody had undone it."""

    rule = "what follows comes after what it follows"

    def __init__(self, world: World, report: Callable[[Violation], None]) -> None:
        super().__init__(world, report)
        self._moments = count()
        self._queued: dict[tuple[str, int], int] = {}
        """When the queue record of an epoch was there first."""
        self._undone: dict[tuple[str, int], int] = {}
        """When somebody took a job out of the rest to which an epoch had come."""
        self._to_be_cancelled: set[tuple[str, int]] = set()
        """Epochs of which that was asked before they had ended."""

    def on_change(self, change: Change) -> None:
        if change.folder == "queue" and change.after is not None:
            self._check_queued(change, change.decode_after(Record))
        if change.folder == "runs" and change.before is None and change.after is not None:
            self._check_launch(change.decode_after(RunRecord))
        elif change.folder == "status" and change.parts[2] == "asks" and change.after is not None:
            self._note_asks(change.parts[1], change.parts[3], change.decode_after(Asks))
        elif change.folder == "status" and change.parts[2] == "cells" and change.after is not None:
            if change.key.endswith(".claim.json"):
                self._check_claim(change, change.decode_after(ClaimCell))
            elif change.key.endswith(".end.json"):
                self._check_end(change.decode_after(EndCell))
            elif change.key.endswith(".open.json"):
                self._note_opening(change.decode_after(OpenCell))

    def _note_opening(self, cell: OpenCell) -> None:
        if cell.kind is not Opening.DELETE:
            self._undone[cell.record.id, cell.record.epoch - 1] = next(self._moments)

    def _check_queued(self, change: Change, record: Record) -> None:
        """What a job was told, in the epoch in which it was told."""
        since = self._queued.setdefault((record.id, record.epoch), next(self._moments))
        if change.before is None:
            return
        before = change.decode_before(Record)
        if before.epoch != record.epoch:
            return
        for told in (*record.met, *([record.doomed_by] if record.doomed_by else [])):
            if told not in before.met and told != before.doomed_by:
                self._check_told(record, told, since)

    def _check_told(self, record: Record, told: Awaited, since: int) -> None:
        cell = self._find(EndCell, keys.end_cell(told.job_id, told.epoch))
        if cell is None or cell.ending.verdict.state is not told.state:
            self.fail(f"{record.id} was told {told}, which did not end so")
        elif self._undone.get((told.job_id, told.epoch), since) < since:
            self.fail(f"{record.id} was told {told}, which was undone before it waited")

    def _note_asks(self, job_id: str, name: str, asks: Asks) -> None:
        epoch = int(name.removesuffix(".json"))
        if asks.cancel and not self._exists(keys.end_cell(job_id, epoch)):
            self._to_be_cancelled.add((job_id, epoch))

    def _check_claim(self, change: Change, claim: ClaimCell) -> None:
        if claim.intent is not None:
            return
        if claim.record.awaits or claim.record.doomed_by is not None:
            self.fail(f"{change.key} was made, though it waits for {claim.record.awaits}")
        for after in claim.record.spec.after:
            ends = self._ends(after.job_id)
            if not any(after.when.met_by(state) for state in ends):
                self.fail(f"{change.key} was made, and {after.job_id} has ended as {ends}")

    def _check_end(self, cell: EndCell) -> None:
        if cell.ending.reason is not Reason.UPSTREAM_FAILED:
            return
        doom = cell.record.doomed_by
        if doom is None or doom.state not in self._ends(doom.job_id):
            self.fail(f"{cell.record.id} was doomed by {doom}, which did not end so")

    def _check_launch(self, run: RunRecord) -> None:
        step = run.request.shared.step_of
        if step is None:
            return
        before = self._before(step.root, step.number)
        if before is None or State.COMPLETED not in self._ends(before):
            self.fail(f"step {step.number} of {step.root} was launched after {before}")
        elif any(
            (before, epoch) in self._to_be_cancelled and cell.ending.verdict is Verdict.COMPLETED
            for epoch, cell in self._end_cells(before)
        ):
            self.fail(f"step {step.number} of {step.root} follows {before}, which was cancelled")

    def _before(self, root: str, number: int) -> str | None:
        """The job that a step follows."""
        record = self._last(root)
        if number == 1 or (record is not None and record.spec.then_parallel):
            return root
        run = self._find(RunRecord, keys.run(pipelines.step_run_id(root, number - 1)))
        return run.base_id if run is not None else None

    def _last(self, job_id: str) -> Record | None:
        """The job as its highest verdict has it."""
        found = [cell.record for _, cell in self._end_cells(job_id)]
        return max(found, key=lambda record: record.epoch, default=None)

    def _end_cells(self, job_id: str) -> list[tuple[int, EndCell]]:
        found = []
        for entry in walk(self.world.store, keys.cells(job_id)):
            parsed = keys.parse_cell(entry.key)
            if parsed is not None and parsed[1] == "end":
                cell = self._find(EndCell, entry.key)
                if cell is not None:
                    found.append((parsed[0], cell))
        return found

    def _ends(self, job_id: str) -> list[State]:
        """How the job ended, each time that it did."""
        states = (cell.ending.verdict.state for _, cell in self._end_cells(job_id))
        return [state for state in states if state is not None and state.terminal]

    def _was_asked(self, record: Record) -> bool:
        """Whether a cancel was asked of its completed epoch."""
        asks = self._find(Asks, keys.asks(record.id, record.epoch))
        return asks is not None and asks.cancel

    def at_end(self) -> None:
        """Nothing is forgotten: what a completed job is followed by is there."""
        for entry in walk(self.world.store, keys.prefix(State.COMPLETED)):
            record = self._find(Record, entry.key)
            if record is None:
                continue
            for launch in pipelines.launches(record):
                run_id = pipelines.step_run_id(pipelines.root_of(record), launch.number)
                if not self._exists(keys.run(run_id)) and not self._was_asked(record):
                    self.fail(f"{record.id} has completed, and step {run_id} was not launched")
