"""Another priority for a job that waits.

The queue record is replaced as it was read, and never created: what is not in the queue any more
stays where it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from stado.core import moves
from stado.core.records import PriorityChange, Record
from stado.core.spec import PRIORITY_MAX
from stado.core.states import State
from stado.errors import Ambiguous, Conflict, Refused, Unavailable
from stado.jobs.changes import on_present
from stado.jobs.repository import Repository, Stored


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer to a change of priority: the job as it is queued now, and what was changed.

    `change`: who has set the priority that it has, when, and what it was; None where it was
    submitted with it. `changed_now`: by this call."""

    record: Record
    change: PriorityChange | None
    changed_now: bool


class NotQueued(Refused):
    """A job whose place in the queue means nothing any more. `record`: the job as it is.
    `overtaken`: it left the queue in the very moment in which it was changed."""

    def __init__(self, record: Record, *, overtaken: bool = False) -> None:
        then = "its priority stays as it is"
        if overtaken:
            then = "it left the queue just now, and may have the new priority should it come back"
        super().__init__(
            "job_not_queued", f"job {record.id} is {record.state}, and not queued: {then}"
        )
        self.record = record


def set_priority(repo: Repository, job_id: str, priority: int, *, by: str) -> Receipt:
    """Moves a queued job to the place in the queue that this priority gives it. Durable when this
    returns; a job that has the priority already stays as it is.

    Raises `Refused` (`priority_negative`, `priority_too_large`), `NotQueued`, `NotFound`, and
    `Ambiguous` when the store did not say whether the job was changed before it left the queue. A
    change that meets a claim can be refused, and yet count should the job be queued again.

    Two writes, a deletion, a read and a listing, besides finding it. A crash after the first write
    leaves an entry that the record does not compute to: who meets it, or repair, writes the right
    one."""
    _check(priority)
    attempt = _Attempt(repo, priority, by)
    return on_present(repo, job_id, "given another priority", attempt.step)


def _check(priority: int) -> None:
    if priority < 0:
        raise Refused("priority_negative", f"job priority {priority} must be nonnegative")
    if priority > PRIORITY_MAX:
        text = f"job priority {priority} is above the largest, {PRIORITY_MAX}"
        raise Refused("priority_too_large", text)


class _Attempt:
    """One change, from look to look: what it has written, and where no answer came."""

    def __init__(self, repo: Repository, priority: int, by: str) -> None:
        self._repo = repo
        self._priority = priority
        self._by = by
        self._unclear: Ambiguous | None = None
        self._overtaken = False
        self._made: list[tuple[PriorityChange, Record]] = []
        """Each with the record that was to be replaced."""

    def step(self, record: Record) -> Receipt | None:
        """None when the job has moved, or was changed by others, since it was looked at."""
        if record.state is not State.QUEUED:
            raise self._too_late(record)
        queued = self._repo.find_record(State.QUEUED, record.id)
        if queued is None or queued.value.epoch != record.epoch:
            return None
        if queued.value.priority == self._priority:
            return self._as_it_is(queued.value)
        return self._replace(queued)

    def _too_late(self, record: Record) -> Exception:
        """Where an attempt had no answer, what became of it cannot be told any more."""
        refusal = NotQueued(record, overtaken=self._overtaken)
        if self._unclear is None:
            return refusal
        text = f"{refusal.text}, unless it was changed just before: {self._unclear}"
        return Ambiguous(self._unclear.key, text)

    def _as_it_is(self, record: Record) -> Receipt | None:
        """Also what an attempt of ours without an answer has written."""
        newest = record.priority_changes[-1] if record.priority_changes else None
        replaced = [before for change, before in self._made if change == newest]
        return self._receipt(record, newest, replaced)

    def _replace(self, found: Stored[Record]) -> Receipt | None:
        """The record comes before its entry here: one that no record computes to would be deleted
        by whoever meets it. Until then the old entry leads to the job."""
        before, repo = found.value, self._repo
        change = PriorityChange(
            at=repo.now(),
            by=self._by,
            epoch=before.epoch,
            before=before.priority,
            after=self._priority,
        )
        changed = moves.prioritized(before, change, nonce=repo.entropy.letters(8))
        self._made.append((change, before))
        try:
            repo.store.replace(changed.own_key(), changed.encode(), found.version)
        except Conflict:
            return None
        except Ambiguous as error:
            self._unclear = error
            return None
        return self._receipt(changed, change, [before])

    def _receipt(
        self, record: Record, change: PriorityChange | None, replaced: list[Record]
    ) -> Receipt | None:
        """Once the record stands: its entry (also for one who died before it), and whether the job
        still waits. None: it does not."""
        try:
            self._repo.create_entry(record)
            for before in replaced:
                self._repo.delete_entry(before)
            if self._repo.cells(record.id).begun(record.epoch):
                self._overtaken = bool(replaced)
                return None
        except Unavailable as error:
            text = f"the priority is {record.priority} if the job has not left the queue: {error}"
            raise Ambiguous(error.key, text) from error
        return Receipt(record, change, changed_now=bool(replaced))
