"""When all faults are over: each job in one place, ended, with what it left; nothing besides."""

from __future__ import annotations

import signal

from stado.core import keys
from stado.core.records import Asks, ClaimCell, EndCell, Ending, Heartbeat, Intent, OpenCell, Record
from stado.core.states import Opening, Reason, State, Verdict
from stado.jobs.logs import LogReader
from stado.jobs.outputs import find_manifest
from stado.jobs.repository import Repository
from stado.storage.port import walk
from tests.jobs.fakes import FakeClock, FakeEntropy, InlineTasks
from tests.simulation.checkers.base import Checker
from tests.simulation.commands import RESULT, SimCommand, result_of

_STOPPED = (0 - signal.SIGTERM,)
"""Exit codes of what the system itself has ended: nobody else sends that signal here."""


class RestChecker(Checker):
    """Invariant 4, the second half of invariant 1, and what completed jobs left."""

    rule = "all has ended, in one place, with what it left"

    def at_end(self) -> None:
        """What still runs on hosts the world itself waits for."""
        self._repo = Repository(
            self.world.store,
            self.world.deployment,
            clock=FakeClock(),
            entropy=FakeEntropy(),
            tasks=InlineTasks(),
        )
        jobs: dict[str, list[State]] = {job_id: [] for job_id in self.world.known_jobs}
        for state in State:
            for entry in walk(self.world.store, keys.prefix(state)):
                jobs.setdefault(keys.job_of_record(entry.key), []).append(state)
        for job_id, states in jobs.items():
            if self._was_deleted(job_id):
                self._check_gone(job_id, states)
            elif states == [State.QUEUED] and self.world.is_held_up(job_id):
                continue
            elif len(states) != 1 or not states[0].at_rest:
                self.fail(f"{job_id} is in {states}")
            else:
                self._check_job(job_id)

    def _check_gone(self, job_id: str, states: list[State]) -> None:
        """Whoever deletes may have died over it; the record then waits for who goes on."""
        if len(states) > 1 or not all(state.terminal for state in states):
            self.fail(f"{job_id} was deleted, and is in {states}")

    def _check_job(self, job_id: str) -> None:
        record = self._resting(job_id)
        cells = self._repo.cells(job_id)
        assert record is not None  # it is in one place, at rest
        if cells.ends != set(range(1, record.epoch + 1)):
            self.fail(f"{job_id} rests in epoch {record.epoch} with verdicts on {cells.ends}")
        if not cells.claims <= cells.ends:
            self.fail(f"{job_id} has claims {cells.claims} and verdicts {cells.ends}")
        end = self._find(EndCell, keys.end_cell(job_id, record.epoch))
        if end is None or end.record != record:
            self.fail(f"{job_id} does not rest as its verdict says")
        if end is not None:
            self._check_ending(record, end.ending)

    def _check_ending(self, record: Record, ending: Ending) -> None:
        """That of a command that ended by itself is its own; a cancel was asked for."""
        asked = self._cancel_asked(record)
        if ending.verdict is Verdict.CANCELLED and not asked:
            self.fail(f"{record.id} is cancelled, and nobody asked for that")
        if ending.verdict is Verdict.TIMED_OUT and ending.exit_code is not None:
            self.fail(f"{record.id} had ended by itself, and timed out")
        if ending.verdict is Verdict.PAUSED and not self._pause_asked(record):
            self.fail(f"{record.id} is paused, and nobody asked for that")
        if ending.exit_code is None and ending.verdict is not Verdict.COMPLETED:
            return
        if ending.reason is Reason.AGENT_TERMINATED_AS_DECLARED:
            self._check_declared(record)
            return
        ended = [
            command
            for command in self.world.started
            if command.job_id == record.id
            and not command.is_verify
            and command.exit_code == ending.exit_code
        ]
        if not ended or ending.exit_code in _STOPPED:
            self.fail(f"no command of {record.id} ended by itself with {ending.exit_code}")
        elif ending.verdict is Verdict.COMPLETED and not asked:
            self._check_log(record, ended)
            self._check_output(record, ended)

    def _check_declared(self, record: Record) -> None:
        """Nobody saw it succeed: it was declared, nothing was to be checked, and it was started, or
        may have been: its supervisor says so right before, and can die between the two."""
        spec = record.spec
        beat = self._find(Heartbeat, keys.heartbeat(record.id))
        may_have_run = (
            beat is not None and beat.epoch == record.epoch and beat.started_at is not None
        )
        if not (spec.terminates_agent and may_have_run and spec.verify is None):
            self.fail(f"{record.id} completed though nobody saw it, and it was not declared so")

    def _cancel_asked(self, record: Record) -> bool:
        """By a flag or an intent. Who cancels gives up what the store does not take of a job that
        has ended by itself meanwhile."""
        claim = self._find(ClaimCell, keys.claim_cell(record.id, record.epoch))
        asks = (
            self._find(Asks, keys.asks(record.id, epoch)) for epoch in range(1, record.epoch + 1)
        )
        opened = self._find(OpenCell, keys.open_cell(record.id, record.epoch))
        intent = claim is not None and claim.intent is Intent.CANCEL
        intent = intent or (opened is not None and opened.kind is Opening.CANCEL)
        return intent or any(found is not None and found.cancel for found in asks)

    def _pause_asked(self, record: Record) -> bool:
        epochs = range(1, record.epoch + 1)
        asks = (self._find(Asks, keys.asks(record.id, epoch)) for epoch in epochs)
        claim = self._find(ClaimCell, keys.claim_cell(record.id, record.epoch))
        intent = claim is not None and claim.intent is Intent.PAUSE
        return intent or any(found is not None and found.pause for found in asks)

    def _check_output(self, record: Record, ended: list[SimCommand]) -> None:
        manifest = find_manifest(self._repo, record.id, record.epoch)
        if manifest is None:
            if any(command.script.writes_output for command in ended):
                self.fail(f"{record.id} wrote a file, and has no manifest")
            return
        stored = {file.path: self.world.store.get(file.key).data for file in manifest.files}
        if manifest.partial or stored != {RESULT: result_of(record.id).encode()}:
            self.fail(f"{record.id} completed, left {stored}, and its manifest is {manifest}")
        if manifest.log is None or manifest.log.written != manifest.log.kept:
            self.fail(f"{record.id}: something of a short log is missing: {manifest.log}")

    def _check_log(self, record: Record, ended: list[SimCommand]) -> None:
        """All of a short log is kept: the last epoch has its end, whichever epochs it ran in."""
        stored = b"".join(
            piece
            for epoch in range(1, record.epoch + 1)
            for piece in LogReader(self._repo, record.id, epoch).read_new()
            if isinstance(piece, bytes)
        )
        for command in ended:
            if bytes(command.printed) and bytes(command.printed) in stored:
                return
        self.fail(f"{record.id}: what it printed is not in its log")
