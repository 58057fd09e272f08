"""When a job's time is up, by what its record says. docs/clocks.md has the table of all clocks.

Pure, and on the store's clock: whoever meets a job whose time is up comes to the same end of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stado.core.durations import duration_text
from stado.core.ids import milliseconds
from stado.core.records import Record
from stado.core.states import Reason, Verdict


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """The moment at which a job ends, wherever it stands, and why: as `timed_out`, or, of one that
    waits for nothing any more, as `failed`."""

    at_ms: int
    """Milliseconds since 1970, on the store's clock."""
    reason: Reason
    detail: str

    @property
    def verdict(self) -> Verdict:
        doomed = self.reason is Reason.UPSTREAM_FAILED
        return Verdict.FAILED if doomed else Verdict.TIMED_OUT

    def is_over(self, now_ms: int) -> bool:
        return now_ms >= self.at_ms


def time_limit(record: Record) -> TimeLimit | None:
    """The first of its limits; None: nobody stated one, or it counts from a claim to come."""
    return min(_limits(record), key=lambda limit: limit.at_ms, default=None)


def passed_limit(record: Record, now_ms: int) -> TimeLimit | None:
    """The limit that has passed; None as long as there is time."""
    limit = time_limit(record)
    return limit if limit is not None and limit.is_over(now_ms) else None


def runtime_limit_seconds(record: Record) -> int | None:
    """The lower of what the job states and what the deployment did at its first claim."""
    stated = (record.spec.timeout_seconds, record.runtime_limit_seconds)
    return min((seconds for seconds in stated if seconds is not None), default=None)


def _limits(record: Record) -> Iterator[TimeLimit]:
    spec, doom = record.spec, record.doomed_by
    if doom is not None:
        detail = f"job {doom.job_id}, which it was to follow, ended as {doom.state}"
        yield TimeLimit(0, Reason.UPSTREAM_FAILED, detail)
    if spec.deadline_at is not None:
        at_ms = max(0, milliseconds(spec.deadline_at))
        yield TimeLimit(at_ms, Reason.DEADLINE_PASSED, "its deadline has passed")
    seconds = runtime_limit_seconds(record)
    if seconds is not None and record.picked_up_at is not None:
        at_ms = milliseconds(record.picked_up_at) + 1000 * seconds
        whose = "its own" if seconds == spec.timeout_seconds else "the deployment's"
        detail = (
            f"it reached {whose} time limit of {duration_text(seconds)}, "
            "counted from when it was picked up first"
        )
        yield TimeLimit(max(0, at_ms), Reason.ORG_RUNTIME_LIMIT_EXCEEDED, detail)
