"""The states a job can be seen in, and the verdicts an epoch can end with."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a job stands. Each state is a prefix of the store (`stado.core.keys`)."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"

    @property
    def at_rest(self) -> bool:
        """Whether nothing happens to the job until somebody asks for it."""
        return self not in (State.QUEUED, State.RUNNING)

    @property
    def terminal(self) -> bool:
        return self.at_rest and self is not State.PAUSED


def projection_rank(state: State) -> int:
    """At equal epochs at rest beats running beats queued (PROTOCOL.md, "Finding a job")."""
    if state.at_rest:
        return 2
    return 1 if state is State.RUNNING else 0


class Verdict(StrEnum):
    """How an epoch ended, for ever."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    PAUSED = "paused"
    LOST = "lost"
    RETRYING = "retrying"
    """It failed, and is to be tried again after a while."""
    YIELDED = "yielded"
    """It was stopped for somebody else, and goes on when there is room again."""

    @property
    def state(self) -> State | None:
        """The state at rest that it leads to; None when the next epoch is queued."""
        goes_on = self in (Verdict.LOST, Verdict.RETRYING, Verdict.YIELDED)
        return None if goes_on else State(self.value)


class Opening(StrEnum):
    """What somebody asked for that takes a job out of its rest: the kind of an open cell."""

    RETRY = "retry"
    RESUME = "resume"
    CANCEL = "cancel"
    """Of a paused job."""
    DELETE = "delete"

    @property
    def queues(self) -> bool:
        """Whether the epoch that it opens is queued."""
        return self in (Opening.RETRY, Opening.RESUME)


class BudgetUnit(StrEnum):
    """What a budget counts."""

    USD = "usd"
    GPUH = "gpuh"
    """GPU hours, as in `usage`: shared GPUs as whole ones."""


class BudgetPeriod(StrEnum):
    """In what it is spent, by the calendar, in UTC."""

    DAY = "day"
    MONTH = "month"


class BudgetState(StrEnum):
    """How far one is spent."""

    OK = "ok"
    WARNED = "warned"
    HELD = "held"
    """Altogether: new jobs wait until the period is over."""


class AfterWhen(StrEnum):
    """Which end of a job lets those go on that wait for it."""

    OK = "ok"
    ANY = "any"
    FAIL = "fail"

    def met_by(self, state: State) -> bool:
        if self is AfterWhen.ANY:
            return state.terminal
        return (state is State.COMPLETED) is (self is AfterWhen.OK)


class NotifyOn(StrEnum):
    """What somebody wants to be told of a job: the state that it comes to, or how all of its
    pipeline went."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    PIPELINE = "pipeline"


class Reason(StrEnum):
    """Why a job ended as it did: `status_reason` in records and JSON."""

    JOB_FAILED = "job_failed"
    JOB_REFUSED = "job_refused"
    VERIFY_FAILED = "verify_failed"
    LAUNCH_FAILED = "launch_failed"
    INPUT_UNAVAILABLE = "input_unavailable"
    DECLARED_OUTPUT_MISSING = "declared_output_missing"
    CANCELLED = "cancelled"
    CANCELLED_BY_USER = "cancelled_by_user"
    PAUSED_BY_USER = "paused_by_user"
    LEASE_EXPIRED = "lease_expired"
    LEASE_EXPIRED_MAX_ATTEMPTS = "lease_expired_max_attempts"
    SUPERVISOR_DIED = "supervisor_died"
    MEMORY_LIMIT_EXCEEDED = "memory_limit_exceeded"
    HOST_UNABLE = "host_unable"
    NO_CHECKPOINT_SAVED = "no_checkpoint_saved"
    TIMEOUT = "timeout"
    ORG_RUNTIME_LIMIT_EXCEEDED = "org_runtime_limit_exceeded"
    DEADLINE_PASSED = "deadline_passed"
    PRE_RUNNING_DEADLINE = "pre_running_deadline"
    BODY_HUNG = "body_hung"
    UPSTREAM_FAILED = "upstream_failed"
    YIELDED = "yielded"
    HOST_CLOSED = "host_closed"
    AGENT_TERMINATED_AS_DECLARED = "agent_terminated_as_declared"


class WarningCode(StrEnum):
    """What did not go well of an epoch, and changes nothing of its outcome."""

    OUTPUT_LEFT_OUT = "output_left_out"
    OUTPUT_UNDELIVERED = "output_undelivered"
    OUTPUT_URI_FAILED = "output_uri_failed"
    CHECKPOINT_UNDELIVERED = "checkpoint_undelivered"


class JobType(StrEnum):
    """What a job is for. Only a train job is treated in its own way: it makes a policy."""

    JOB = "job"
    TRAIN = "train"
    PLAY = "play"
    PREVIEW = "preview"
    EVAL = "eval"
    EXPORT = "export"


class Kind(StrEnum):
    """Which of a policy's two saves."""

    BEST = "best"
    LATEST = "latest"


class Leftover(StrEnum):
    """What can go of an ended job for its age."""

    LOG = "log"
    OUTPUTS = "outputs"
    CHECKPOINTS = "checkpoints"
    JOB = "job"
    """The job itself, with all of these."""
