"""The clocks of a job that is on this host: which of its limits has been reached.

What counts over all epochs is in the job's record, on the store's clock, which this process
carries on by its monotonic one; what counts on this host alone is measured by the monotonic clock.
A change of the host's time of day moves none of them. docs/clocks.md has the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stado.core.clocks import passed_limit
from stado.core.durations import duration_text
from stado.core.records import Record
from stado.core.states import Reason, Verdict
from stado.jobs.repository import Repository
from stado.jobs.saving import Fingerprint, fingerprint
from stado.ports import Clock


@dataclass(frozen=True, slots=True)
class TimeUp:
    """A limit that was reached, and what becomes of the job."""

    verdict: Verdict
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimits:
    """In seconds; None: no limit."""

    run_seconds: int | None = None
    """From the first start on this host."""
    pre_running_seconds: int | None = None
    """From the claim to that start."""


class JobClocks:
    """Of one job, from its claim on. An adopted epoch is the same stay on this host."""

    def __init__(
        self, repo: Repository, record: Callable[[], Record], limits: HostLimits = HostLimits()
    ) -> None:
        self._repo = repo
        self._record = record
        self._limits = limits
        self._claimed_at = repo.clock.monotonic()
        self._started_at: float | None = None

    def note_started(self) -> None:
        """Only the first time counts: what is run again shares its time."""
        if self._started_at is None:
            self._started_at = self._repo.clock.monotonic()

    def time_up(self) -> TimeUp | None:
        """The limit that was reached, the strongest first; None as long as there is time."""
        limit = passed_limit(self._record(), self._repo.now_ms())
        if limit is not None:
            return TimeUp(Verdict.TIMED_OUT, limit.reason, limit.detail)
        if self._started_at is None:
            return self._preparation_up()
        return self._run_up(self._started_at)

    def _run_up(self, started_at: float) -> TimeUp | None:
        allowed = self._limits.run_seconds
        if allowed is None or self._repo.clock.monotonic() - started_at < allowed:
            return None
        detail = f"its host lets nothing run for longer than {duration_text(allowed)}"
        return TimeUp(Verdict.FAILED, Reason.TIMEOUT, detail)

    def _preparation_up(self) -> TimeUp | None:
        allowed = self._limits.pre_running_seconds
        if allowed is None or self._repo.clock.monotonic() - self._claimed_at < allowed:
            return None
        detail = (
            f"its command was not started within {duration_text(allowed)} of being picked up "
            "(limits.pre_running_seconds)"
        )
        return TimeUp(Verdict.FAILED, Reason.PRE_RUNNING_DEADLINE, detail)


class IdleWatch:
    """Whether a command has been idle for too long: it printed nothing, its checkpoint folder
    stayed as it was, and it reported no progress."""

    def __init__(
        self, clock: Clock, checkpoints: Path, *, limit_seconds: int | None, look_seconds: float
    ) -> None:
        self._clock = clock
        self._checkpoints = checkpoints
        self._limit_seconds = limit_seconds
        self._look_seconds = look_seconds
        self._saved: Fingerprint = ()
        self._told: object = None
        self._looked_at = 0.0
        self._heard_at = 0.0

    def begin(self) -> None:
        """A command has been started."""
        if self._limit_seconds is not None:
            self._heard_at = self._looked_at = self._clock.monotonic()
            self._saved = fingerprint(self._checkpoints)

    def time_up(self, told: object) -> TimeUp | None:
        """`told`: what changes with all that the command prints and reports."""
        if self._limit_seconds is None:
            return None
        now = self._clock.monotonic()
        if told != self._told:
            self._told, self._heard_at = told, now
        if now - self._looked_at >= min(self._look_seconds, self._limit_seconds / 4):
            self._look_at_checkpoints(now)
        silent_seconds = now - self._heard_at
        if silent_seconds < self._limit_seconds:
            return None
        detail = f"it printed, saved and reported nothing for {silent_seconds:.0f} s"
        return TimeUp(Verdict.FAILED, Reason.BODY_HUNG, detail)

    def _look_at_checkpoints(self, now: float) -> None:
        self._looked_at = now
        saved = fingerprint(self._checkpoints)
        if saved != self._saved:
            self._saved, self._heard_at = saved, now
