"""Seals: final, and only for an epoch of which nothing was heard for a whole lease."""

from __future__ import annotations

from collections import defaultdict

from stado.core import keys
from stado.core.records import Capacity, Heartbeat, Record
from stado.core.states import State
from stado.storage.observe import Operation
from tests.simulation.checkers.base import Change, Checker
from tests.simulation.process import SimProcess

_TOLERANCE = 0.97
"""Of a lease: clocks are fast by half a percent at most, and the store's is read over a line."""


class _Sign:
    """When one kind of sign changed, oldest first; a judge may have looked before the newest."""

    def __init__(self) -> None:
        self._changes: list[float] = []
        self._evidence: object = None

    def note(self, at: float, evidence: object) -> None:
        if evidence != self._evidence:
            self._evidence = evidence
            self._changes.append(at)

    def newest(self, before: float) -> float:
        """0: there was none by then."""
        return max((at for at in self._changes if at <= before), default=0.0)


class SealsChecker(Checker):
    """Invariant 5: a job that beats, whose checkpoint makes progress, or whose agent reports
    signs of it, is never declared lost. No beat replaces a seal.

    A beat that comes while a judge makes up its mind makes its seal fail; of the other signs the
    judge knows what it has looked at last."""

    rule = "a seal is final, and comes after a lease of silence"

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._beats: dict[str, _Sign] = defaultdict(_Sign)
        self._checkpoints: dict[str, _Sign] = defaultdict(_Sign)
        self._newest_checkpoints: dict[str, str] = {}
        self._reports: dict[tuple[str, str, int], _Sign] = defaultdict(_Sign)
        self._newest_signs: dict[tuple[str, str, int], int] = {}
        """They only grow: a broadcast that lands late says nothing of now, nor does the next, which
        repeats what was there before it."""
        self._broadcasts: dict[str, list[tuple[float, Capacity]]] = defaultdict(list)
        """Of each agent."""
        self._looks: dict[tuple[SimProcess, str], float] = {}
        self._last_listed: dict[SimProcess, str] = {}

    def on_request(self, process: SimProcess, operation: Operation, key: str) -> None:
        """When a judge began to look: a listing of many pages shows what was, at its first."""
        if operation is Operation.LIST and self._last_listed.get(process) != key:
            self._looks[process, key] = self.world.kernel.now
        self._last_listed[process] = key if operation is Operation.LIST else ""

    def on_change(self, change: Change) -> None:
        if change.after is None:
            return
        if change.folder == "capacity":
            said = change.decode_after(Capacity)
            self._broadcasts[said.consumer].append((change.at, said))
            for report in said.jobs:
                of = (said.consumer, report.job_id, report.epoch)
                newest = max(report.signs, self._newest_signs.get(of, 0))
                self._newest_signs[of] = newest
                self._reports[of].note(change.at, newest)
        elif change.folder == "running":
            self._beats[change.parts[1].removesuffix(".json")].note(change.at, change.after)
        elif change.parts[2:3] == ["checkpoints"]:
            self._note_checkpoint(change)
        elif change.parts[2:] == ["heartbeat"]:
            self._check_heartbeat(change)

    def _note_checkpoint(self, change: Change) -> None:
        """Names are in the order of epochs and saves: a part of a lost epoch that comes late says
        nothing of the present one."""
        job_id = change.parts[1]
        newest = max(change.key, self._newest_checkpoints.get(job_id, ""))
        self._newest_checkpoints[job_id] = newest
        self._checkpoints[job_id].note(change.at, newest)

    def _check_heartbeat(self, change: Change) -> None:
        beat = change.decode_after(Heartbeat)
        if change.before is not None:
            before = change.decode_before(Heartbeat)
            if before.sealed and beat.epoch <= before.epoch and beat != before:
                self.fail(f"{change.key}: something replaced the seal of epoch {before.epoch}")
        if beat.sealed and change.author is not None:
            self._check_silence(change, beat, change.author)
        self._beats[change.parts[1]].note(change.at, change.after)

    def _check_silence(self, change: Change, seal: Heartbeat, judge: SimProcess) -> None:
        lease = self.world.plan.lease * _TOLERANCE
        job_id = change.parts[1]
        reports = self._looks.get((judge, keys.CAPACITY), change.at)
        names = self._looks.get((judge, keys.checkpoints_folder(job_id)), change.at)
        heard = {
            "a beat": self._beats[job_id].newest(change.at),
            "a checkpoint": self._checkpoints[job_id].newest(names),
            "its agent's report": self._newest_report(self._holder(job_id, seal), reports),
        }
        what, at = max(heard.items(), key=lambda pair: pair[1])
        if at and change.at - at < lease:
            self.fail(
                f"{job_id} was sealed in epoch {seal.epoch} by {seal.by}, "
                f"{change.at - at:.1f} s after {what}"
            )

    def _newest_report(self, of: tuple[str, str, int], before: float) -> float:
        """0 when a broadcast that the judge can have read, the last one by then or a later one,
        does not name the job: who wanted its epoch in vain was reported for a moment, too."""
        consumer, *job = of
        broadcasts = self._broadcasts[consumer]
        readable = [said for at, said in broadcasts if at <= before][-1:]
        readable += [said for at, said in broadcasts if at > before]
        in_all = all(job in [[one.job_id, one.epoch] for one in said.jobs] for said in readable)
        return self._reports[of].newest(before) if in_all else 0.0

    def _holder(self, job_id: str, seal: Heartbeat) -> tuple[str, str, int]:
        """Whose report counts: that of the agent whom the running record names."""
        record = self._find(Record, keys.record(State.RUNNING, job_id))
        holder = record.holder if record is not None else None
        return (holder.consumer if holder is not None else "", job_id, seal.epoch)
