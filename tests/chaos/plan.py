"""What a chaos run will do, drawn from its seed: jobs, what clients do with them, and faults.

The plan is the same for the same seed and options; what comes of it is not.
"""

from __future__ import annotations

import random
import shlex
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

SCRIPT = Path(__file__).with_name("work.sh")
LAST_SUBMISSION = 0.6
"""Of the time: what is submitted last shall meet faults, too, though its clients take a while."""


class Work(StrEnum):
    """What a job does beside taking time."""

    PLAIN = "plain"
    FILES = "files"
    CHECKPOINTS = "checkpoints"
    NOISY = "noisy"
    DEAF = "deaf"
    FORKING = "forking"


class Verify(StrEnum):
    """What verifies a job."""

    NOTHING = "nothing"
    PASSES = "passes"
    FAILS = "fails"


@dataclass(frozen=True)
class Job:
    work: Work
    seconds: float
    """Whole, or below one."""
    exit_code: int
    noise_bytes: int

    def command(self, traces: Path) -> str:
        return shlex.join(
            ["exec", "sh", str(SCRIPT), str(traces), self.work.value]
            + [str(value) for value in (self.seconds, self.exit_code, self.noise_bytes)]
        )

    @property
    def steps(self) -> int:
        """Lines that it prints."""
        return 2 * int(self.seconds) if self.seconds >= 1 else 1


@dataclass(frozen=True)
class Submission:
    """A run that a client submits, if need be again and again."""

    at: float
    run_id: str
    jobs: tuple[Job, ...]
    verify: Verify
    max_lease_losses: str | None
    killed_after: tuple[float, ...]
    """Its first clients are killed after so many seconds, one after another."""
    twice: bool
    """Two clients submit it at once."""


@dataclass(frozen=True)
class Cancel:
    at: float
    run_id: str
    index: int
    killed_after: tuple[float, ...]


class FaultKind(StrEnum):
    KILL_AGENT = "kill agent"
    FREEZE_AGENT = "freeze agent"
    DRAIN_AGENT = "TERM agent"
    LEAVE_AGENT = "TERM agent twice"
    KILL_SUPERVISOR = "kill supervisor"
    FREEZE_SUPERVISOR = "freeze supervisor"
    TERM_SUPERVISOR = "TERM supervisor"
    KILL_COMMAND = "kill command"
    CUT_POWER = "kill whole host"
    FREEZE_HOST = "freeze agent and supervisors"
    KILL_COORDINATOR = "kill coordinator"
    FREEZE_COORDINATOR = "freeze coordinator"
    TERM_COORDINATOR = "TERM coordinator"
    SHIFT_CLOCK = "shift clock"
    FILL_DISK = "fill disk"
    OUTAGE_OF_ONE = "store away for one"
    OUTAGE_OF_ALL = "store away for all"
    RESTART_STORE = "kill store"


PER_MINUTE = {
    FaultKind.KILL_AGENT: 2.5,
    FaultKind.FREEZE_AGENT: 1.5,
    FaultKind.DRAIN_AGENT: 0.7,
    FaultKind.LEAVE_AGENT: 1.0,
    FaultKind.KILL_SUPERVISOR: 4.0,
    FaultKind.FREEZE_SUPERVISOR: 3.0,
    FaultKind.TERM_SUPERVISOR: 1.0,
    FaultKind.KILL_COMMAND: 1.5,
    FaultKind.CUT_POWER: 1.5,
    FaultKind.FREEZE_HOST: 2.0,
    FaultKind.KILL_COORDINATOR: 1.5,
    FaultKind.FREEZE_COORDINATOR: 1.0,
    FaultKind.TERM_COORDINATOR: 1.0,
    FaultKind.SHIFT_CLOCK: 2.0,
    FaultKind.FILL_DISK: 1.0,
    FaultKind.OUTAGE_OF_ONE: 3.0,
    FaultKind.OUTAGE_OF_ALL: 0.7,
    FaultKind.RESTART_STORE: 0.7,
}
_OF_SERVERS = (FaultKind.OUTAGE_OF_ONE, FaultKind.RESTART_STORE)
_CLOCKS_OFF_BY = (-3600.0, -240.0, -30.0, 30.0, 240.0, 3600.0)


@dataclass(frozen=True)
class Fault:
    at: float
    kind: FaultKind
    seconds: float
    """How long it lasts: a moment, or longer than a lease."""
    target: float
    """Which of those there are by then, as a share of their number."""
    amount: float
    """Of a clock: by how many seconds it is off. Of an outage: whether the store refuses, or
    swallows what it is sent."""


@dataclass(frozen=True)
class Plan:
    seed: int
    seconds: float
    submissions: tuple[Submission, ...]
    cancels: tuple[Cancel, ...]
    faults: tuple[Fault, ...]


def make_plan(*, seed: int, seconds: float, jobs: int, server: bool) -> Plan:
    """`server`: whether the store is one, with proxies before it."""
    draw = random.Random(seed)
    submissions = _submissions(draw, seconds * LAST_SUBMISSION, jobs)
    kinds = [kind for kind in FaultKind if server or kind not in _OF_SERVERS]
    return Plan(
        seed,
        seconds,
        submissions,
        _cancels(draw, submissions, seconds),
        tuple(sorted(_faults(draw, seconds, kinds), key=lambda fault: fault.at)),
    )


def _submissions(draw: random.Random, until: float, jobs: int) -> tuple[Submission, ...]:
    """A third of the jobs at the beginning, the others in the course."""
    found: list[Submission] = []
    left = jobs
    while left > 0:
        size = min(left, draw.choice((1, 5, 10, 20, 30, 40)))
        at = draw.uniform(0, 5) if left > jobs * 2 / 3 else draw.uniform(5, until)
        found.append(_submission(draw, at, f"chaos-{len(found)}", size))
        left -= size
    return tuple(sorted(found, key=lambda submission: submission.at))


def _submission(draw: random.Random, at: float, run_id: str, size: int) -> Submission:
    killed = [draw.uniform(0.3, 3.0) for _ in range(draw.choice((0, 0, 0, 0, 1, 2)))]
    return Submission(
        at=at,
        run_id=run_id,
        jobs=tuple(_job(draw) for _ in range(size)),
        verify=draw.choice((Verify.NOTHING,) * 6 + (Verify.PASSES,) * 2 + (Verify.FAILS,)),
        max_lease_losses=draw.choice((None, None, "unlimited", "unlimited", "0", "1")),
        killed_after=tuple(killed),
        twice=draw.random() < 0.2,
    )


def _job(draw: random.Random) -> Job:
    work = draw.choices(list(Work), weights=(8, 2, 3, 1, 1, 1))[0]
    length = draw.random()
    if length < 0.4:
        seconds = round(draw.uniform(0.05, 0.95), 2)
    else:
        seconds = draw.randint(1, 4) if length < 0.8 else draw.randint(5, 20)
    return Job(
        work=work,
        seconds=seconds,
        exit_code=draw.choice((0,) * 9 + (7,)),
        noise_bytes=draw.randint(10_000, 4_000_000) if work is Work.NOISY else 0,
    )


def _cancels(
    draw: random.Random, submissions: tuple[Submission, ...], seconds: float
) -> tuple[Cancel, ...]:
    """Rather long jobs, soon after they were submitted or later."""
    found = []
    for submission in submissions:
        for index, job in enumerate(submission.jobs):
            if draw.random() < (1 / 4 if job.seconds >= 5 else 1 / 30):
                later = draw.choice((draw.uniform(0.5, 4), draw.uniform(4, 25)))
                killed = [draw.uniform(0.3, 2.0) for _ in range(draw.choice((0, 0, 1)))]
                at = min(submission.at + later, seconds)
                found.append(Cancel(at, submission.run_id, index, tuple(killed)))
    return tuple(sorted(found, key=lambda cancel: cancel.at))


def _faults(draw: random.Random, seconds: float, kinds: list[FaultKind]) -> list[Fault]:
    """Each kind at least once, at any time but the first moments, which agents need to start."""
    return [
        Fault(
            at=draw.uniform(min(4.0, seconds / 4), seconds),
            kind=kind,
            seconds=draw.choice((draw.uniform(0.5, 4), draw.uniform(8, 20))),
            target=draw.random(),
            amount=draw.choice(_CLOCKS_OFF_BY),
        )
        for kind in kinds
        for _ in range(max(1, round(PER_MINUTE[kind] * seconds / 60)))
    ]
