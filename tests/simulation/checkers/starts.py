"""Commands: none without a claim and a fresh beat, none twice, two at once only where the older one
has been declared lost, and all of them accounted for."""

from __future__ import annotations

from collections import defaultdict

from stado.core import keys
from stado.core.records import ClaimCell, Heartbeat
from tests.simulation.checkers.base import Change, Checker
from tests.simulation.commands import SimCommand

_HALF = 0.505
"""Of a lease, with what clocks differ by. No turn is given to others between a supervisor's look at
its last beat and its start."""


class StartsChecker(Checker):
    """Invariant 3."""

    rule = "a command starts by its own claim and a fresh beat, once"

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._beats: dict[tuple[str, int], float] = {}
        self._starts: dict[str, list[SimCommand]] = defaultdict(list)

    def on_change(self, change: Change) -> None:
        if change.parts[2:] != ["heartbeat"] or change.after is None:
            return
        beat = change.decode_after(Heartbeat)
        if not beat.sealed and change.job_id is not None:
            self._beats[change.job_id, beat.epoch] = change.at

    def on_start(self, command: SimCommand) -> None:
        if command.is_verify:
            return
        what = f"{command.job_id} of epoch {command.epoch} on {command.host.name}"
        claim = self._find(ClaimCell, keys.claim_cell(command.job_id, command.epoch))
        holder = claim.record.holder if claim is not None else None
        if holder is None or holder.host != command.host.name:
            self.fail(f"{what} started without its claim")
        beat_at = self._beats.get((command.job_id, command.epoch))
        if beat_at is None or command.started_at - beat_at > _HALF * self.world.plan.lease:
            self.fail(f"{what} started without a fresh beat")
        self._check_others(command, what)
        self._starts[command.job_id].append(command)

    def _check_others(self, command: SimCommand, what: str) -> None:
        for other in self._starts[command.job_id]:
            if other.epoch >= command.epoch and not self._follows(command, other):
                self.fail(f"{what} started after epoch {other.epoch} had")
            if other.exit_code is None and not self._is_over(other):
                self.fail(f"{what} started beside epoch {other.epoch}, which was not lost")

    @staticmethod
    def _follows(command: SimCommand, other: SimCommand) -> bool:
        """Whether it is a later run of the same start: in the same hands, after the other one has
        failed by itself."""
        failed = other.exit_code not in (None, 0) and not other.stopped
        return failed and other.owner is command.owner and other.run < command.run

    def _is_over(self, command: SimCommand) -> bool:
        """Whether its epoch was ended without it: it is cut off, or has just not heard yet."""
        return self._exists(keys.end_cell(command.job_id, command.epoch))

    def at_end(self) -> None:
        for job_id, commands in self._starts.items():
            record = self._resting(job_id)
            if record is None:
                continue
            starts = sum(command.run == 1 for command in commands)
            if record.starts < starts:
                self.fail(f"{job_id} was started {starts} times and tells {record.starts}")
            if max(command.run for command in commands) > record.spec.body_retries + 1:
                self.fail(f"{job_id} was run more often than it may be")
            last = max(commands, key=lambda command: command.epoch)
            if record.epoch < last.epoch:
                self.fail(f"{job_id} ended in epoch {record.epoch} and ran in {last.epoch}")
