"""What clients were told: never less than before, never "unknown" of an acknowledged job; and what
was promised is kept."""

from __future__ import annotations

from collections import Counter, defaultdict

from stado.core.records import Heartbeat, Record
from stado.core.states import Opening, State, projection_rank
from tests.simulation.checkers.base import Change, Checker
from tests.simulation.commands import SimCommand
from tests.simulation.people import Answer

_BEATS_MAX = 12
"""Of a holder, until it has heard of a cancel: it asks after each. The grace comes on top."""


class AnswersChecker(Checker):
    """The histories of all clients together."""

    rule = "what clients were told holds"

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._told: dict[str, list[tuple[float, int, int, State]]] = defaultdict(list)
        """Of each job: when it was told, and epoch, rank and state that were."""
        self._runs: dict[str, tuple[str, ...]] = {}
        self._acknowledged_at: dict[str, float] = {}

    def on_answer(self, answer: Answer) -> None:
        if answer.what == "submitted":
            self._note_submission(answer)
        elif answer.what in ("found", "cancelled", "paused", "resumed", "retried", "prioritized"):
            self._note_record(answer)
        elif answer.what == "listed":
            for job_id, state in answer.states:
                self._check_rest(job_id, state)

    def _note_submission(self, answer: Answer) -> None:
        assert answer.run_id is not None  # a submission has one
        known = self._runs.setdefault(answer.run_id, answer.job_ids)
        if known != answer.job_ids:
            self.fail(f"{answer.run_id} was {known} and is {answer.job_ids}")
        for job_id in answer.job_ids:
            self._acknowledged_at.setdefault(job_id, self.world.kernel.now)

    def _note_record(self, answer: Answer) -> None:
        (job_id,) = answer.job_ids
        if answer.record is None:
            known = self._acknowledged_at.get(job_id, answer.asked_at) < answer.asked_at
            if known and not self._was_deleted(job_id):
                self.fail(f"it was said that there is no {job_id}")
            return
        record = answer.record
        rank = projection_rank(record.state)
        for at, epoch, old_rank, state in self._told[job_id]:
            if at <= answer.asked_at and (record.epoch, rank) < (epoch, old_rank):
                self.fail(
                    f"{job_id} was {state} of epoch {epoch} at {at:.3f}, and somebody who asked "
                    f"at {answer.asked_at:.3f} was told {record.state} of epoch {record.epoch}"
                )
        self._told[job_id].append((self.world.kernel.now, record.epoch, rank, record.state))
        self._check_rest(job_id, record.state)

    def _check_rest(self, job_id: str, state: State) -> None:
        """Two ends of one job are never told, unless it was taken out of one."""
        ends = {told for *_, told in self._told[job_id] if told.at_rest}
        if state.at_rest and ends - {state} and not self._openings(job_id):
            self.fail(f"{job_id} was told to be {ends} and {state}")

    def at_end(self) -> None:
        for job_id, told in self._told.items():
            record = self._resting(job_id)
            ends = {state for *_, state in told if state.at_rest}
            if record is not None and ends - {record.state} and not self._openings(job_id):
                self.fail(f"{job_id} was told to be {ends} and is {record.state}")


class _StopsChecker(Checker):
    """After an acknowledged stop a job starts no later epoch, unless somebody wants that since,
    and ends so or in the outcome that it had reached. A holder that goes on beating does not go
    on running it."""

    answer = ""
    """The word for what was asked."""
    undone_by: frozenset[Opening] = frozenset()
    ends_as: frozenset[State] = frozenset()

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._last_epoch: dict[str, int] = {}
        self._ran_in: dict[str, int] = {}
        """The epoch in which a job was running when it was acknowledged."""
        self._beats: Counter[str] = Counter()
        """Of that epoch, since then."""

    def on_answer(self, answer: Answer) -> None:
        if answer.what != self.answer or answer.record is None:
            return
        record = answer.record
        running = record.state is State.RUNNING
        last = record.epoch if running else record.epoch - 1
        if running:
            self._ran_in[record.id] = record.epoch
            self._beats[record.id] = 0
        if record.state.at_rest:
            last = record.epoch if self._ran(record) else last
        self._last_epoch[record.id] = last

    def on_change(self, change: Change) -> None:
        if change.parts[2:] != ["heartbeat"] or change.after is None:
            return
        beat, job_id = change.decode_after(Heartbeat), change.parts[1]
        if beat.sealed or beat.epoch != self._ran_in.get(job_id):
            return
        self._beats[job_id] += 1
        plan = self.world.plan
        if self._beats[job_id] > _BEATS_MAX + plan.grace / (plan.lease / 8):
            self._check_stopped(job_id, change)

    def _check_stopped(self, job_id: str, change: Change) -> None:
        for command in change.author.commands if change.author is not None else ():
            if command.job_id == job_id and command.exit_code is None and not command.is_verify:
                self.fail(f"{job_id} goes on, {self._beats[job_id]} beats after it was told")

    def on_start(self, command: SimCommand) -> None:
        last = self._last_epoch.get(command.job_id)
        if last is None or command.epoch <= last or self._undone(command.job_id, last):
            return
        self.fail(
            f"{command.job_id} was {self.answer} in epoch {last} and started in {command.epoch}"
        )

    def _undone(self, job_id: str, epoch: int) -> bool:
        """Whether a later epoch was opened by somebody who wants the job to run."""
        openings = self._openings(job_id)
        return any(cell.kind in self.undone_by and cell.record.epoch > epoch for cell in openings)

    def at_end(self) -> None:
        for job_id, epoch in self._ran_in.items():
            record = self._resting(job_id)
            if self._was_deleted(job_id) or self._undone(job_id, epoch):
                continue
            if record is None:
                self.fail(f"{job_id} was {self.answer} and has no end")
            elif record.epoch > epoch and record.state not in self.ends_as:
                self.fail(
                    f"{job_id} was {self.answer} in epoch {epoch} and is {record.state} in "
                    f"{record.epoch}"
                )

    @staticmethod
    def _ran(record: Record) -> bool:
        return record.ending is not None and record.ending.started_at is not None


class CancelsChecker(_StopsChecker):
    """Invariant 6."""

    rule = "a cancelled job is not started again"
    answer = "cancelled"
    undone_by = frozenset((Opening.RETRY,))
    ends_as = frozenset((State.CANCELLED,))


class PausesChecker(_StopsChecker):
    """Invariant 6, of pauses."""

    rule = "a paused job is not started again before somebody wants it"
    answer = "paused"
    undone_by = frozenset((Opening.RETRY, Opening.RESUME))
    ends_as = frozenset((State.PAUSED, State.CANCELLED))
