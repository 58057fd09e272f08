"""The documents of the protocol: records, cells, asks, life signs, and the deployment itself.

PROTOCOL.md has them as a table (name, type, who writes it, when); a test holds the two together.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from stado.core.documents import Document, Instant, Part
from stado.core.ids import base_of
from stado.core.spec import Request, Spec
from stado.core.states import Reason, State, Verdict

FORMAT_VERSION = 1
LEASE_SECONDS_DEFAULT = 120.0
CANCEL_GRACE_SECONDS_DEFAULT = 30.0


class Proof(Part, frozen=True, kw_only=True):
    """What the store was seen to honour when the deployment was made."""

    create_if_absent: bool
    compare_and_swap: bool
    conditional_delete: bool


class Deployment(Document, frozen=True, kw_only=True):
    """`stado.json`: what makes a folder or bucket a stado store."""

    format: int = FORMAT_VERSION
    deployment_id: str
    lease_seconds: float = LEASE_SECONDS_DEFAULT
    cancel_grace_seconds: float = CANCEL_GRACE_SECONDS_DEFAULT
    created_at: Instant
    created_by: str
    proof: Proof

    @property
    def beat_seconds(self) -> float:
        """How often a supervisor beats and checks in, and a coordinator looks."""
        return self.lease_seconds / 8


class Holder(Part, frozen=True, kw_only=True):
    """Who holds an epoch, as the claim recorded it."""

    token: str
    consumer: str
    incarnation: str
    """New at each start of the agent."""
    host: str
    claimed_at: Instant
    lease_seconds: float
    adopted: bool = False
    """Whether the command was running already, under the epoch before."""


class Ending(Part, frozen=True, kw_only=True):
    """How an epoch ended."""

    verdict: Verdict
    reason: Reason | None = None
    detail: str | None = None
    """One sentence of ours, at most 1,024 characters."""
    exit_code: int | None = None
    """Of the command; negative: the signal that ended it."""
    started_at: Instant | None = None
    """When the command was started; None when it never was."""
    ended_at: Instant
    by: str
    """Who created the verdict: a consumer, a user, a coordinator."""


class Record(Document, frozen=True, kw_only=True):
    """The whole job, as it stands under a prefix and in every cell."""

    id: str
    run_id: str
    batch: bool
    spec: Spec
    submitted_at: Instant
    submitter: str
    rerun_of: str | None = None

    state: State
    epoch: int
    priority: int
    queued_ms: int
    """Orders the queue within a priority: milliseconds on the store's clock."""
    nonce: str
    """Makes the bytes of each queue record unique."""

    starts: int = 0
    """Ended epochs whose command was executed."""
    lease_losses: int = 0
    holder: Holder | None = None
    """Of this epoch; None while it is queued."""
    ending: Ending | None = None
    """Of this epoch once it is at rest; of the one before while it is queued or running."""

    @property
    def batch_id(self) -> str | None:
        return base_of(self.id) if self.batch else None


class Intent(StrEnum):
    """What a claim cell that no agent holds will make of its epoch."""

    CANCEL = "cancel"


class ClaimCell(Document, frozen=True, kw_only=True):
    """`<n>.claim.json`: an agent holds epoch n, or an intent will not let it run."""

    token: str
    intent: Intent | None = None
    by: str
    at: Instant
    record: Record


class EndCell(Document, frozen=True, kw_only=True):
    """`<n>.end.json`: the verdict. `record` is the job as it was when epoch n ended."""

    token: str
    ending: Ending
    record: Record


class Asks(Document, frozen=True, kw_only=True):
    """`asks/<n>.json`: what has been asked of epoch n. Flags are only ever added."""

    cancel: bool = False
    cancel_by: str | None = None
    cancel_at: Instant | None = None
    nonce: str


class Phase(StrEnum):
    """What the holder of an epoch is doing."""

    PREPARING = "preparing"
    RUNNING = "running"
    STOPPING = "stopping"
    VERIFYING = "verifying"
    UPLOADING = "uploading"


class Heartbeat(Document, frozen=True, kw_only=True):
    """`heartbeat`: the holder's latest sign of life, or the seal that ends its right to it."""

    epoch: int
    token: str
    """The claim's; of a seal: the sealer's own."""
    counter: int = 0
    """Makes each beat's bytes unique."""
    sealed: bool = False
    by: str
    at: Instant
    phase: Phase = Phase.PREPARING
    started_at: Instant | None = None
    phase_since: Instant | None = None
    """When the phase began."""
    trouble: str | None = None
    """What the holder cannot get done, and how often it has tried: a process that does not end,
    an upload that is not taken. One sentence, at most 1,024 characters."""


class RunRecord(Document, frozen=True, kw_only=True):
    """`runs/<run-id>.json`: what makes a submission happen once."""

    run_id: str
    token: str
    digest: str
    request: Request
    base_id: str
    count: int
    submitted_at: Instant
    submitter: str
    rerun_of: str | None = None
    complete: bool = False
    """Whether all queue records are written."""


class JobReport(Part, frozen=True, kw_only=True):
    """What an agent says of a job that it runs."""

    job_id: str
    epoch: int
    signs: int
    """How often the supervisor has been heard on this host, store or no store."""


class Hindrance(Part, frozen=True, kw_only=True):
    """Why an agent claims nothing for the time being."""

    code: str
    """A word for programs: `disk_full`, `host_unable`."""
    detail: str
    """A sentence for people, with the remedy."""
    since: Instant


class Capacity(Document, frozen=True, kw_only=True):
    """`capacity/<consumer>.json`: an agent's live resources, and what it runs."""

    consumer: str
    incarnation: str
    host: str
    at: Instant
    host_at: Instant | None = None
    """The same moment by the host's own clock."""
    counter: int
    broadcast_seconds: float
    """How often it is written: silence is judged against it."""
    cpu_total: float
    cpu_free: float
    memory_total_gb: float
    memory_free_gb: float
    disk_free_gb: float
    jobs: list[JobReport] = msgspec.field(default_factory=list)
    draining: bool = False
    stopped: bool = False
    """The agent left in good order."""
    version: str
    hindrance: Hindrance | None = None
    """Why it claims nothing although it could; what runs there goes on."""
    contains_by: str | None = None
    """How it keeps a job's processes together: `cgroup-v2`, `cgroup-v1`, `process-tree`."""
    limits_memory_by: str | None = None
    """How it holds a job to the memory that it stated: `cgroup-v2`, `cgroup-v1`, `watchdog`."""
    throttled: int = 0
    """Requests of the agent that the store has put off since the broadcast before."""


class CoordinatorLease(Document, frozen=True, kw_only=True):
    """`control/coordinator.json`: which coordinator acts while the others stand by."""

    token: str
    holder: str
    counter: int
    at: Instant
    lease_seconds: float
    released: bool = False


class OutputFile(Part, frozen=True, kw_only=True):
    """A file of an epoch's output."""

    path: str
    """Relative, with forward slashes."""
    key: str
    size: int
    sha256: str


class LogAccount(Part, frozen=True, kw_only=True):
    """What became of the bytes that a command printed: `written == kept + dropped`."""

    written: int
    kept: int
    dropped: int


class Manifest(Document, frozen=True, kw_only=True):
    """`output/<n>/manifest.json`: the files that epoch n left, committed by this one write."""

    job_id: str
    epoch: int
    partial: bool
    """Whether the command had not succeeded when the files were taken."""
    files: list[OutputFile]
    skipped: list[str] = msgspec.field(default_factory=list)
    """Paths that were left out, with the reason: `<path>: <why>`."""
    log: LogAccount | None = None


class CheckpointFile(Part, frozen=True, kw_only=True):
    """A file of a checkpoint, in parts that were uploaded one by one."""

    path: str
    size: int
    sha256: str
    parts: list[str]


class Checkpoint(Document, frozen=True, kw_only=True):
    """`checkpoints/<n>-<seq>.manifest.json`: commits the parts named before it."""

    job_id: str
    epoch: int
    sequence: int
    at: Instant
    files: list[CheckpointFile]


class LateResult(Document, frozen=True, kw_only=True):
    """`late/<n>.json`: what a worker that had been declared lost still had to say."""

    job_id: str
    epoch: int
    consumer: str
    at: Instant
    exit_code: int | None
    detail: str
