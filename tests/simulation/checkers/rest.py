"""When all faults are over: each job in one place, ended, with what it left; nothing besides."""

from __future__ import annotations

from stado.core import keys
from stado.core.records import EndCell, Record
from stado.core.states import State, Verdict
from stado.jobs.logs import LogReader
from stado.jobs.outputs import find_manifest
from stado.jobs.repository import Repository
from stado.storage.port import walk
from tests.jobs.fakes import FakeClock, FakeEntropy, InlineTasks
from tests.simulation.checkers.base import Checker
from tests.simulation.commands import SimCommand


class RestChecker(Checker):
    """Invariant 4, the second half of invariant 1, and what completed jobs left."""

    rule = "all has ended, in one place, with what it left"

    def at_end(self) -> None:
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
            if len(states) != 1 or not states[0].at_rest:
                self.fail(f"{job_id} is in {states}")
            else:
                self._check_job(job_id)
        self._check_hosts()

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
        if record.ending is not None and record.ending.verdict is Verdict.COMPLETED:
            self._check_completed(record)

    def _check_completed(self, record: Record) -> None:
        """It ran to its end, with exit code 0, and what it printed and wrote is there."""
        commands = [
            command
            for command in self.world.started
            if command.job_id == record.id and not command.is_verify
        ]
        ended = [command for command in commands if command.exit_code == 0]
        if not ended:
            self.fail(f"{record.id} completed, and no command of it did")
            return
        self._check_log(record, ended)
        manifest = find_manifest(self._repo, record.id, record.epoch)
        if manifest is None:
            if any(command.script.writes_output for command in ended):
                self.fail(f"{record.id} wrote a file, and has no manifest")
            return
        if manifest.partial or not manifest.files:
            self.fail(f"{record.id} completed, and its manifest is {manifest}")
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

    def _check_hosts(self) -> None:
        for host in self.world.hosts:
            for command in host.commands:
                self.fail(f"{command.job_id} still runs on {host.name}")
