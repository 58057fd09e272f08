"""Faults by plan: which requests of a run count, and what becomes of the n-th of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from stado.core.states import State
from stado.storage.observe import WRITES, Operation
from tests.simulation.process import SimProcess
from tests.simulation.weather import Fate

OUTAGE_SECONDS = 25.0
"""Longer than anybody tries again, so that the caller is told of the fault."""

_PERSON = "cli"
_ACTORS = frozenset(("supervisor", _PERSON))
_OF_A_JOB = frozenset(("schedules", "status", "room", *(state.value for state in State)))


class Fault(StrEnum):
    """What happens at one request."""

    CRASH_BEFORE = "crash_before"
    CRASH_AFTER = "crash_after"
    LOST_REQUEST = "lost_request"
    LOST_ANSWER = "lost_answer"
    LATE = "late"
    DUPLICATE = "duplicate"
    STALL_BEFORE = "stall_before"
    STALL_AFTER = "stall_after"
    UNAVAILABLE = "unavailable"
    THROTTLED = "throttled"
    OUTAGE = "outage"
    """Not applied, and its host gets nothing from the store until its callers have given up."""
    UNCLEAR = "unclear"
    """Applied, without an answer, and then an outage: nobody can read it back."""
    UNCLEAR_LATE = "unclear_late"
    """The same, and it is applied when nobody expects it any more."""

    @property
    def fate(self) -> Fate:
        return _FATES.get(self) or Fate(self.value)

    @property
    def for_writes_only(self) -> bool:
        """Whether a read would meet nothing, or the same as by another fault."""
        return self in _FOR_WRITES

    @property
    def begins_outage(self) -> bool:
        return self in _FATES


_FATES = {
    Fault.OUTAGE: Fate.UNAVAILABLE,
    Fault.UNCLEAR: Fate.LOST_ANSWER,
    Fault.UNCLEAR_LATE: Fate.LATE,
}
_FOR_WRITES = frozenset((Fault.LATE, Fault.DUPLICATE, Fault.UNCLEAR, Fault.UNCLEAR_LATE))


@dataclass(frozen=True)
class Planned:
    """A fault at the n-th of the requests that count, from 1."""

    number: int
    fault: Fault

    def __str__(self) -> str:
        return f"{self.number}:{self.fault}"


@dataclass(frozen=True)
class Counted:
    """A request that counts: whose, and which."""

    who: str
    """The name of its process."""
    operation: Operation
    key: str

    @property
    def by_person(self) -> bool:
        return self.who == _PERSON

    @property
    def is_write(self) -> bool:
        return self.operation in WRITES


def counts(process: SimProcess, operation: Operation, key: str) -> bool:
    """All that supervisors and people ask. Of agents and coordinators what names a job (its
    record, its status, its entry, the note of its room) and writes to runs, uses and the ledger.

    Not theirs: listings of whole folders, looks at runs, capacity and the coordinator's lease.
    These come again and again, decide nothing by themselves, and would be most of a run."""
    if process.name in _ACTORS:
        return True
    folder = key.partition("/")[0]
    if operation is Operation.LIST:
        return folder == "status"
    if folder in ("index", "runs", "usage", "ledger"):
        return operation in WRITES
    return folder in _OF_A_JOB


class Scripted:
    """Weather that is fine but for what is planned, and notes all requests that count."""

    def __init__(self, planned: Sequence[Planned] = ()) -> None:
        self.counted: list[Counted] = []
        self.happened: list[Planned] = []
        self.victims: list[SimProcess] = []
        """Whose requests they happened to."""
        self.last_at = 0.0
        """When the last of the faults began."""
        self._planned = {each.number: each for each in planned}
        self._away_until: dict[str, float] = {}

    @property
    def is_over(self) -> bool:
        return len(self.happened) == len(self._planned)

    def draw(self, process: SimProcess, operation: Operation, key: str) -> Fate:
        now = process.kernel.now
        if now < self._away_until.get(process.host.name, 0.0):
            return Fate.UNAVAILABLE
        if not counts(process, operation, key):
            return Fate.FINE
        self.counted.append(Counted(process.name, operation, key))
        planned = self._planned.get(len(self.counted))
        if planned is None:
            return Fate.FINE
        self.happened.append(planned)
        self.victims.append(process)
        self.last_at = now
        if planned.fault.begins_outage:
            self._away_until[process.host.name] = now + OUTAGE_SECONDS
        return planned.fault.fate
