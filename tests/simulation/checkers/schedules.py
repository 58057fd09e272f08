"""Schedules: each due time is submitted once, or it is said why not, and nothing after it was
stopped."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from stado.core import keys
from stado.core.cron import due_after
from stado.core.records import RunRecord
from stado.core.schedules import (
    LEASES_LATE,
    DropReason,
    MissedPolicy,
    Schedule,
    parse_fire_run_id,
)
from tests.simulation.checkers.base import Change, Checker, Violation

if TYPE_CHECKING:
    from tests.simulation.people import Answer
    from tests.simulation.world import World


class SchedulesChecker(Checker):
    """What a run of a schedule may be is known from the document: it is decided there first."""

    rule = "each due time is submitted once, or dropped with a reason"

    def __init__(self, world: World, report: Callable[[Violation], None]) -> None:
        super().__init__(world, report)
        self._decided: set[tuple[str, datetime]] = set()
        """Run ids, each with when its schedule was made."""
        self._run_ids: set[str] = set()
        self._refused: set[str] = set()
        self._stopped: set[str] = set()
        """Those whose pause, or removal, was acknowledged, and that nobody has let go on since."""

    def on_change(self, change: Change) -> None:
        if change.folder == "schedules":
            self._on_document(change)
        elif change.folder == "runs" and change.before is None and change.after is not None:
            self._on_run(change.decode_after(RunRecord))

    def _on_run(self, run: RunRecord) -> None:
        parsed = parse_fire_run_id(run.run_id)
        if parsed is None:
            return
        if run.run_id not in self._run_ids:
            self.fail(f"{run.run_id} was submitted, and nobody had decided that")
        if parsed[0] in self._stopped and parsed[2]:
            self.fail(f"{run.run_id} was submitted after its schedule had been stopped")

    def _on_document(self, change: Change) -> None:
        if change.after is None:
            if change.decode_before(Schedule).removed is None:
                self.fail(f"{change.key} was deleted, and nobody had removed it")
            return
        after = change.decode_after(Schedule)
        before = change.decode_before(Schedule) if change.before is not None else None
        if after.paused is None and after.removed is None:
            self._stopped.discard(after.name)
        firing = after.firing
        if firing is not None and (before is None or before.firing != firing):
            if (firing.run_id, after.created_at) in self._decided:
                self.fail(f"{firing.run_id} was decided twice")
            self._decided.add((firing.run_id, after.created_at))
            self._run_ids.add(firing.run_id)
        if before is None or before.created_at != after.created_at:
            return
        if before.firing is not None and after.firing != before.firing:
            self._check_submitted(before.firing.run_id, after)
        if after.paused == before.paused and after.removed is None:
            self._check_due_times(before, after)

    def _check_submitted(self, run_id: str, after: Schedule) -> None:
        refused = after.dropped is not None and after.dropped.reason is DropReason.REFUSED
        if refused:
            self._refused.add(run_id)
        elif not self._exists(keys.run(run_id)):
            self.fail(f"{run_id} was decided, and forgotten before it was submitted")

    def _check_due_times(self, before: Schedule, after: Schedule) -> None:
        """Those between the first that was open before, and the first that is open now."""
        due, zone = before.next_at, ZoneInfo(before.zone)
        if due is None or due == after.next_at:
            return
        passed = []
        while due is not None and (after.next_at is None or due < after.next_at):
            passed.append(due)
            due = due_after(before.cron, zone, due)
            if before.end_at is not None and due is not None and due > before.end_at:
                break
        *others, last = passed
        dropped = after.dropped
        is_dropped = dropped is not None and dropped.due_at == last
        fired = after.firing is not None and after.firing.due_at == last
        if not (is_dropped or fired or after.waiting_at == last):
            self.fail(f"nothing was decided of what {after.name} had due at {last}")
        late = timedelta(seconds=LEASES_LATE * self.world.deployment.lease_seconds)
        missed = self._decided_at(after, fired=fired) - passed[0] > late
        if others and not missed:
            self.fail(f"{after.name} left out {others}, which were not late")
        if missed and before.missed is MissedPolicy.SKIP and fired:
            self.fail(f"{after.name} caught {last} up, and should have left it")

    def _decided_at(self, after: Schedule, *, fired: bool) -> datetime:
        """By the clock of who decided, where it is told."""
        if fired and after.firing is not None:
            return after.firing.at
        return self.world.store.now() if after.dropped is None else after.dropped.at

    def on_answer(self, answer: Answer) -> None:
        """Somebody may have let it go on before the answer came."""
        if answer.schedule is None or answer.what not in ("schedule paused", "schedule removed"):
            return
        there = self._find(Schedule, keys.schedule(answer.schedule))
        if there is not None and (there.paused is not None or there.removed is not None):
            self._stopped.add(answer.schedule)

    def at_end(self) -> None:
        for run_id in self._run_ids - self._refused:
            if not self._exists(keys.run(run_id)):
                self.fail(f"{run_id} was decided, and never submitted")
