"""Which failures a job is tried again after, by itself, how often, and after how long.

What counts for a job is fixed at its first claim, from what it states and what the deployment
allows then (`RetryRule` in its record); docs/retries.md has it for people. Pure.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from stado.core.documents import Part
from stado.core.durations import Duration
from stado.core.states import Reason

RETRIES_MAX = 100
DELAY_SECONDS_DEFAULT = 60
DELAY_SECONDS_MAX = 6 * 3600
"""Pauses double from one failure to the next up to here, or to the first, if that is longer."""

RETRYABLE = (
    Reason.JOB_FAILED,
    Reason.BODY_HUNG,
    Reason.VERIFY_FAILED,
    Reason.DECLARED_OUTPUT_MISSING,
    Reason.NO_CHECKPOINT_SAVED,
    Reason.MEMORY_LIMIT_EXCEEDED,
)
"""Ways to fail once the command was started that another try can mend."""

RETRIED_UNLESS_STATED = (Reason.JOB_FAILED, Reason.BODY_HUNG)
ONLY_BY_DEPLOYMENT = (Reason.MEMORY_LIMIT_EXCEEDED,)
"""What failed so mostly fails so again, and may take other jobs of its host along."""

Retries = Annotated[int, msgspec.Meta(ge=0, le=RETRIES_MAX)]
Reasons = Annotated[list[Reason], msgspec.Meta(max_length=len(RETRYABLE))]


class RetryRule(Part, frozen=True, kw_only=True):
    """What a job may do again by itself."""

    retries: Retries
    """How often, since it was submitted, or retried by somebody."""
    on: Reasons
    delay_seconds: Duration
    """Before the first; each further one waits twice as long as the one before."""

    def allows(self, reason: Reason | None, *, used: int) -> bool:
        return reason in self.on and used < self.retries

    def pause_seconds(self, used: int, jitter: float) -> float:
        """`jitter`: 0 to 1; jobs that failed together do not come back together."""
        longest = max(DELAY_SECONDS_MAX, self.delay_seconds)
        return min(longest, self.delay_seconds * 2.0 ** min(used, 30)) * (1 + jitter / 4)


class RetrySettings(Part, frozen=True, kw_only=True):
    """What the deployment decides of it. None: nothing was said."""

    default: Retries | None = None
    """For jobs that state no number."""
    most: Retries | None = None
    on: Reasons | None = None
    delay_seconds: Duration | None = None


def rule_of(
    settings: RetrySettings, *, retries: int | None, on: list[Reason], delay_seconds: int | None
) -> RetryRule | None:
    """From what the job states, None and empty where it does not; None: it is not tried again."""
    count = retries if retries is not None else settings.default or 0
    if settings.most is not None:
        count = min(count, settings.most)
    if not count:
        return None
    allowed = settings.on if settings.on is not None else list(RETRIED_UNLESS_STATED)
    stated = [one for one in on if one in allowed or one not in ONLY_BY_DEPLOYMENT]
    return RetryRule(
        retries=count,
        on=stated if on else allowed,
        delay_seconds=delay_seconds or settings.delay_seconds or DELAY_SECONDS_DEFAULT,
    )
