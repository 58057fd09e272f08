"""Where a job stands, more finely than its state, and what it holds there.

States are prefixes of the store; phases are what people are shown who know other queues. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from stado.core.records import Record
from stado.core.states import State


class JobPhase(StrEnum):
    QUEUED = "QUEUED"
    SUBMITTED = "SUBMITTED"
    """A worker has it, and was not heard since."""
    PENDING = "PENDING"
    """A worker prepares it: its command has not been started."""
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"
    TIMED_OUT = "TIMED_OUT"


@dataclass(frozen=True, slots=True)
class Holds:
    """What a job has while it is in a phase."""

    place: bool = False
    """Cores, memory and accelerators of a host."""
    quota: bool = False
    """What its owner may have at a time."""
    metered: bool = False
    """Whether its time counts as used."""
    limit_clock: bool = False
    """Whether its time limit runs."""


HOLDS: Mapping[JobPhase, Holds] = {
    JobPhase.QUEUED: Holds(),
    JobPhase.SUBMITTED: Holds(place=True, quota=True, limit_clock=True),
    JobPhase.PENDING: Holds(place=True, quota=True, limit_clock=True),
    JobPhase.RUNNING: Holds(place=True, quota=True, metered=True, limit_clock=True),
    JobPhase.PAUSED: Holds(),
    JobPhase.SUCCEEDED: Holds(),
    JobPhase.FAILED: Holds(),
    JobPhase.STOPPED: Holds(),
    JobPhase.TIMED_OUT: Holds(),
}

_AT_REST: Mapping[State, JobPhase] = {
    State.QUEUED: JobPhase.QUEUED,
    State.PAUSED: JobPhase.PAUSED,
    State.COMPLETED: JobPhase.SUCCEEDED,
    State.FAILED: JobPhase.FAILED,
    State.CANCELLED: JobPhase.STOPPED,
    State.TIMED_OUT: JobPhase.TIMED_OUT,
}

_STATES: Mapping[str, State] = {phase.value: state for state, phase in _AT_REST.items()} | {
    phase.value: State.RUNNING for phase in (JobPhase.SUBMITTED, JobPhase.PENDING, JobPhase.RUNNING)
}


def phase_of(record: Record, *, heard: bool, started_at: datetime | None) -> JobPhase:
    """`heard` and `started_at`: of a running job, by the beats of its present epoch."""
    if record.state is not State.RUNNING:
        return _AT_REST[record.state]
    if started_at is not None:
        return JobPhase.RUNNING
    return JobPhase.PENDING if heard else JobPhase.SUBMITTED


def state_named(word: str) -> State | None:
    """The state that a word means, as a state or as a phase, in upper or lower case."""
    typed = word.replace("-", "_")
    if typed.lower() in set(State):
        return State(typed.lower())
    return _STATES.get(typed.upper()) or _OTHER_WORDS.get(typed.lower())


def standing_named(word: str) -> State | JobPhase | None:
    """What people may look for by a word: a state, or one of the phases that are a part of one."""
    typed = word.upper()
    if typed in (JobPhase.SUBMITTED, JobPhase.PENDING):
        return JobPhase(typed)
    return state_named(word)


_OTHER_WORDS = {"canceled": State.CANCELLED}


def job_ref(record: Record) -> str | None:
    """Names one stay of a job on a host; None while nobody has it."""
    holder = record.holder
    if holder is None or record.state is State.QUEUED:
        return None
    return f"{holder.host}/{record.epoch}-{holder.token[:8]}"
