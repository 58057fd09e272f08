"""Who looks finds: an acknowledged job is there at all times, and never goes back."""

from __future__ import annotations

from stado.core import keys
from stado.core.records import Record
from stado.core.states import projection_rank
from stado.errors import StadoError
from stado.jobs.finding import find_job
from stado.jobs.repository import Repository
from stado.storage.memory import MemoryStore
from tests.jobs.fakes import FakeClock, FakeEntropy, InlineTasks
from tests.simulation.checkers.base import Change, Checker
from tests.simulation.people import Answer

_SILENT = frozenset(("log", "output", "checkpoints", "heartbeat", "late"))
"""Below `status/<id>/`: what says nothing of a job's state."""


class FindingChecker(Checker):
    """Invariant 1, looked at after each write that could break it, in a copy of the store: a
    reader finishes what it meets, and must not disturb."""

    rule = "an acknowledged job can be found, and never goes back"

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._acknowledged: set[str] = set()
        self._furthest: dict[str, tuple[int, int]] = {}

    def on_answer(self, answer: Answer) -> None:
        if answer.what == "submitted":
            for job_id in answer.job_ids:
                self._acknowledged.add(job_id)
                self._look(job_id)

    def on_change(self, change: Change) -> None:
        job_id = change.job_id
        if job_id not in self._acknowledged:
            return
        if change.folder == "status" and change.parts[2] in _SILENT:
            return
        self._look(job_id)

    def _look(self, job_id: str) -> None:
        store = self.world.store.copy()
        repo = Repository(
            store,
            self.world.deployment,
            clock=FakeClock(),
            entropy=FakeEntropy(),
            tasks=InlineTasks(),
        )
        try:
            found = find_job(repo, job_id)
        except StadoError as error:
            self.fail(f"{job_id} cannot be found: {error}")
            return
        if found is None and self._was_deleted(job_id):
            return
        if found is None:
            self.fail(f"there is no trace of {job_id}")
        else:
            self._compare(
                found.record, decided=_cells(store, job_id) != _cells(self.world.store, job_id)
            )

    def _compare(self, record: Record, *, decided: bool) -> None:
        """`decided`: the reader itself made a cell. What it was told would hold from then on, but
        nobody has asked; a cancel may then still follow the job into its next epoch."""
        now = (record.epoch, projection_rank(record.state))
        before = self._furthest.get(record.id, (0, 0))
        if now < before:
            self.fail(f"{record.id} went back to {record.state} of epoch {record.epoch}")
        if not decided:
            self._furthest[record.id] = max(now, before)


def _cells(store: MemoryStore, job_id: str) -> list[str]:
    return [entry.key for entry in store.list(keys.cells(job_id))]
