"""Whether a job can be taken out of its rest. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from stado.core.records import Record
from stado.core.states import State
from stado.errors import Refused


@dataclass(frozen=True, slots=True)
class Retryable:
    """Whether a job can be retried: no, or yes, or nobody looked if what it takes along is still
    in the store."""

    refusal: Refused | None
    looked: bool = True

    @property
    def allowed(self) -> bool | None:
        if self.refusal is not None:
            return False
        return True if self.looked else None


def by_its_record(record: Record, now: datetime) -> Retryable:
    return Retryable(retry_refusal(record, now), looked=not _takes_along(record))


def _takes_along(record: Record) -> bool:
    """What could be gone."""
    spec = record.spec
    return spec.snapshot is not None or bool(spec.inputs_here)


def retry_refusal(record: Record, now: datetime) -> Refused | None:
    """Why a job cannot be retried, as far as its record tells; None when it can, if the store still
    has what it takes along."""
    job_id, state = record.id, record.state
    if state is State.COMPLETED:
        text = f"job {job_id} has completed, and stays so: `stado job rerun` makes a new one of it"
        return Refused("completed_is_final", text)
    if state is State.QUEUED and record.opened_from is not None:
        return Refused("retry_already_queued", f"job {job_id} is queued again already")
    if not state.terminal:
        hint = " (`stado job resume` lets it go on)" if state is State.PAUSED else ""
        return Refused(
            "still_live", f"job {job_id} is {state}{hint}: only what has ended is retried"
        )
    if record.spec.final:
        text = f"job {job_id} was submitted as final: `stado job rerun` makes a new one of it"
        return Refused("terminal_is_final", text)
    deadline_at = record.spec.deadline_at
    if deadline_at is not None and deadline_at <= now:
        text = f"the deadline of job {job_id} has passed: submit it anew, with another or none"
        return Refused("deadline_passed", text)
    return None
