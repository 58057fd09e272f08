"""What a coordinator works out for others to go by: how long jobs ran, and which host should get
which. Both documents are derived: without them, or beyond what they are good for, every job may be
claimed by all.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from stado.core import keys
from stado.core.documents import Count, Document, Instant, Part
from stado.core.envelope import RuntimeSeconds
from stado.core.order import parse_entry
from stado.core.records import Line, Milliseconds
from stado.core.spec import JobId
from stado.core.states import JobType

RUNS_KEPT_MAX = 50
"""Of one model on one kind of hardware: the newest."""

MEASURED_MAX = 500
ASSIGNED_MAX = 1000
SKIPPED_MAX = 20_000


class Measured(Part, frozen=True, kw_only=True):
    """How long the last completed runs of one model took on one kind of hardware."""

    model: Line
    hardware: Line
    seconds: Annotated[list[RuntimeSeconds], msgspec.Meta(min_length=1, max_length=RUNS_KEPT_MAX)]
    ended_ms: Annotated[list[Milliseconds], msgspec.Meta(max_length=RUNS_KEPT_MAX)]
    """When each of them ended, the last one last."""


class Estimates(Document, frozen=True, kw_only=True):
    """`estimates.json`: run times that were measured."""

    counter: Count
    """One more with each write."""
    at: Instant
    read_to_ms: Milliseconds
    """What ended before this was looked at."""
    measured: Annotated[list[Measured], msgspec.Meta(max_length=MEASURED_MAX)] = msgspec.field(
        default_factory=list
    )

    def own_key(self) -> str:
        return keys.ESTIMATES

    def flaw(self) -> str | None:
        for one in self.measured:
            if len(one.seconds) != len(one.ended_ms):
                return f"of {one.model!r} it has {len(one.seconds)} runs, and other ends"
        return None


class Assignment(Part, frozen=True, kw_only=True):
    """One job that its host should get."""

    entry: Annotated[str, msgspec.Meta(max_length=400)]
    """Its name in `index/ready/`."""
    since_ms: Milliseconds
    """From when on the job has been assigned, to whichever host."""
    seconds: RuntimeSeconds
    """Its run time there."""
    begins_ms: Milliseconds
    """When it should begin there, by what is known of what runs."""


class HostPlan(Part, frozen=True, kw_only=True):
    """What one host should get."""

    consumer: Line
    incarnation: Line
    counter: Count
    """Of the report that this was worked out from."""
    jobs: Annotated[list[Assignment], msgspec.Meta(max_length=ASSIGNED_MAX)]


class Skipped(Part, frozen=True, kw_only=True):
    """Queued jobs of one model and type that are left unassigned."""

    code: Line
    """Why: `no_run_time`, `no_host`, `too_late`, `not_planned`."""
    text: Line
    model: Line | None
    """null: they name none."""
    job_type: JobType | None
    """null: one that this version does not know."""
    count: Count
    example: JobId


class Assignments(Document, frozen=True, kw_only=True):
    """`assignments.json`: which host should get which job, and which jobs are left to all."""

    counter: Count
    """One more with each write."""
    at: Instant
    expires_at: Instant
    """Nobody goes by it afterwards."""
    by: Line
    hosts: Annotated[list[HostPlan], msgspec.Meta(max_length=ASSIGNED_MAX)] = msgspec.field(
        default_factory=list
    )
    planned: Count = 0
    """How many jobs have a place in the plan; those that begin first are assigned."""
    ends_ms: Milliseconds | None = None
    """When the last of them should end."""
    skipped: Annotated[list[Skipped], msgspec.Meta(max_length=SKIPPED_MAX)] = msgspec.field(
        default_factory=list
    )
    """The most frequent first."""

    def own_key(self) -> str:
        return keys.ASSIGNMENTS

    def flaw(self) -> str | None:
        entries = [parse_entry(job.entry) for host in self.hosts for job in host.jobs]
        job_ids = [entry.job_id for entry in entries if entry is not None]
        return "it assigns a job twice" if len(set(job_ids)) != len(job_ids) else None
