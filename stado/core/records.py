"""The documents of the protocol: records, cells, asks, life signs, and the deployment itself.

PROTOCOL.md has them as a table (name, type, who writes it, when); a test holds the two together.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from stado.core import keys
from stado.core.documents import Count, Document, Epoch, Instant, Part
from stado.core.durations import Duration
from stado.core.envelope import (
    GPUS_MAX,
    HOST_LABELS_MAX,
    PROVIDER_DEFAULT,
    HostWord,
    Label,
    Price,
)
from stado.core.ids import BASE_PATTERN, RUN_PATTERN, base_of, milliseconds
from stado.core.notices import Rules
from stado.core.retries import RetryRule
from stado.core.sidecar import CheckpointMeta, Sha256
from stado.core.spec import (
    AFTER_MAX,
    BATCH_COUNT_MAX,
    POLICY_PREFIX,
    After,
    InputName,
    JobId,
    Priority,
    Request,
    Spec,
)
from stado.core.states import Kind, Leftover, NotifyOn, Opening, Reason, State, Verdict, WarningCode
from stado.reports import PROGRESS_TEXT_MAX, live_flaw

FORMAT_VERSION = 1
LEASE_SECONDS_DEFAULT = 120.0
CANCEL_GRACE_SECONDS_DEFAULT = 30.0

Seconds = Annotated[float, msgspec.Meta(ge=0.1, le=86_400)]
"""How long a lease lasts: never so short that somebody would spin."""

Pace = Annotated[float, msgspec.Meta(ge=0.01, le=86_400)]
"""How often something is to be expected."""

Grace = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
MicroPrice = Annotated[int, msgspec.Meta(ge=0, le=10**11)]
MicroPart = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
CardId = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9:._/-]{0,99}\Z")]
Gpus = Annotated[int, msgspec.Meta(ge=0, le=9_999)]
"""Of one host."""

ACCELERATORS_MAX = 128
"""Of one host: sixteen cards, each in seven parts, are fewer."""

OTHER_PIDS_MAX = 8
Pid = Annotated[int, msgspec.Meta(ge=0, le=2**32)]
Mebibytes = Annotated[int, msgspec.Meta(ge=0, le=2**30)]
AcceleratorId = Annotated[str, msgspec.Meta(pattern=r"\A[!-~]{1,96}\Z")]
AcceleratorKind = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9.+-]{1,64}\Z")]

REAPED_MAX = 1000
"""Processes at a time."""

LABELS_SAID_MAX = 16
"""By operators, of one host."""

LabelKey = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9][a-z0-9._/-]{0,62}\Z")]
LabelValue = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")]
LabelsSaid = Annotated[dict[LabelKey, LabelValue], msgspec.Meta(max_length=LABELS_SAID_MAX)]
RAN_SECONDS_MAX = 1e9
RanSeconds = Annotated[float, msgspec.Meta(ge=0, le=RAN_SECONDS_MAX)]
RECENT_ENDS_MAX = 8
"""Of an agent's jobs that its report names."""

SLOTS_MAX = 256
"""That one epoch has."""

SlotName = Annotated[
    str,
    msgspec.Meta(pattern=r"\A(~[0-9a-f]{24}|[A-Za-z0-9_@+-][A-Za-z0-9._@+-]{0,194})~[0-9]{6}\Z"),
]

Amount = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]
"""Of cores or GiB: what is free can be less than nothing."""

Code = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9]{1,64}\Z")]
"""Random letters that become part of a key."""

RunId = Annotated[str, msgspec.Meta(pattern=rf"\A{RUN_PATTERN.pattern}\Z")]
BaseId = Annotated[str, msgspec.Meta(pattern=rf"\A{BASE_PATTERN.pattern}\Z")]
MILLISECONDS_MAX = 9_999_999_999_999
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=MILLISECONDS_MAX)]
"""Since 1970, in the 13 digits that an index entry has for it."""

LINE_MAX = 1024
Line = Annotated[str, msgspec.Meta(max_length=LINE_MAX)]
Size = Annotated[int, msgspec.Meta(ge=1, le=2**36)]
"""Of a part of a log: what a reader would set out to read."""

_BLOCKS_MAX = 100_000

PRIORITY_CHANGES_MAX = 20
"""That a record keeps; of more the oldest are forgotten."""

Ordinal = Annotated[int, msgspec.Meta(ge=1, le=999_999)]


def policy_name(job_id: str, revision: int = 1) -> str:
    """Of the policy that a train job makes: each retry of the job makes another."""
    return job_id if revision == 1 else f"{job_id}.r{revision}"


def policy_id(job_id: str, revision: int = 1) -> str:
    """The same, for people."""
    return f"{POLICY_PREFIX}{policy_name(job_id, revision)}"


class Proof(Part, frozen=True, kw_only=True):
    """What the store was seen to honour when the deployment was made."""

    create_if_absent: bool
    compare_and_swap: bool
    conditional_delete: bool


class Deployment(Document, frozen=True, kw_only=True):
    """`stado.json`: what makes a folder or bucket a stado store."""

    format: int = FORMAT_VERSION
    deployment_id: str
    lease_seconds: Seconds = LEASE_SECONDS_DEFAULT
    cancel_grace_seconds: Grace = CANCEL_GRACE_SECONDS_DEFAULT
    created_at: Instant
    created_by: str
    proof: Proof

    @property
    def tick_seconds(self) -> float:
        """How often a supervisor checks in, an agent broadcasts, and a coordinator looks."""
        return self.lease_seconds / 8

    @property
    def beat_seconds(self) -> float:
        """How often a supervisor beats while it has nothing new to say: a write costs twelve times
        what a read does, and a check-in is one."""
        return 2 * self.tick_seconds


class Holder(Part, frozen=True, kw_only=True):
    """Who holds an epoch, as the claim recorded it."""

    token: str
    consumer: str
    incarnation: str
    """New at each start of the agent."""
    host: str
    claimed_at: Instant
    lease_seconds: Seconds
    adopted: bool = False
    """Whether the command was running already, under the epoch before."""
    gpus: Gpus = 0
    """How many GPUs of the host the epoch was given."""
    gpu_share: Fraction = 1.0
    """How much of the memory of each."""
    cards: Annotated[list[CardId], msgspec.Meta(max_length=GPUS_MAX)] = msgspec.field(
        default_factory=list
    )
    """Which ones."""
    hardware: Line | None = None
    """What the epoch runs on, by which run times are compared: `2x a100-sxm4-80gb`, `cpu`."""
    price_micro: MicroPrice | None = None
    """Millionths of a dollar that the host costs an hour; None: nobody states a price."""
    part_micro: MicroPart | None = None
    """Millionths of the host that the epoch has, by which its price is shared."""

    slots: Annotated[list[SlotName], msgspec.Meta(max_length=SLOTS_MAX)] = msgspec.field(
        default_factory=list
    )
    """Its places under limits of the deployment, by their names in `quota/`."""


class Ran(Part, frozen=True, kw_only=True):
    """From when until when an epoch counts as one that ran: what its job used is the sum of
    these. Of epochs that ran one command on end they do not overlap."""

    began_at: Instant
    ended_at: Instant
    """When nothing of its commands lived any more, as their supervisor saw it."""
    estimated: bool = False
    """Nobody saw that: it is the last sign of life."""

    @property
    def wall_ms(self) -> int:
        return max(0, milliseconds(self.ended_at) - milliseconds(self.began_at))


class StoreRequests(Part, frozen=True, kw_only=True):
    """What a process asked of the deployment's bucket, by what is billed. A directory bills
    nothing: then all of it is 0."""

    dear: Count = 0
    """Writes and listings."""
    cheap: Count = 0
    """Reads. Deletes are in neither: they are free."""
    received_bytes: Count = 0
    """Of the bodies of answers."""
    sent_bytes: Count = 0
    """Of the bodies of requests."""


class Usage(Part, frozen=True, kw_only=True):
    """What the ended epochs of a job used together."""

    wall_ms: Count = 0
    gpu_ms: Count = 0
    """Shared GPUs count as whole ones."""
    gpu_share_ms: Count = 0
    """Of shared GPUs the part alone."""
    estimated: bool = False


class JobWarning(Part, frozen=True, kw_only=True):
    """What did not go well, in an epoch whose outcome it does not change."""

    code: WarningCode
    detail: Annotated[str, msgspec.Meta(max_length=1024)]
    """One sentence of ours."""


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
    ran: Ran | None = None
    """What counts of that as its use; None when no command was started."""
    retry_at: Instant | None = None
    """Of one that is tried again: not before this."""
    by: str
    """Who created the verdict: a consumer, a user, a coordinator."""
    runs: Count | None = None
    """How often the holder ran the command; None where it never did, or others gave the verdict."""
    output_files: Count | None = None
    """How many the epoch's manifest names; None where there is none."""
    output_bytes: Count | None = None
    requests: StoreRequests | None = None
    """What the holder asked of the store; None: not known, as where others gave the verdict."""
    warnings: Annotated[list[JobWarning], msgspec.Meta(max_length=16)] = msgspec.field(
        default_factory=list
    )

    @property
    def told(self) -> str:
        """`failed (job_failed): the command exited with 3`, for people."""
        reason = f" ({self.reason.value})" if self.reason is not None else ""
        why = self.detail or _code_text(self.exit_code)
        return f"{self.verdict.value}{reason}" + (f": {why}" if why else "")


def _code_text(code: int | None) -> str:
    if not code:
        return ""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


class PriorityChange(Part, frozen=True, kw_only=True):
    """That somebody gave a queued job another priority."""

    at: Instant
    by: str
    epoch: Epoch
    before: Priority
    after: Priority


class Awaited(Part, frozen=True, kw_only=True):
    """How a job ended that another one waited for."""

    job_id: JobId
    epoch: Epoch
    state: State


class Record(Document, frozen=True, kw_only=True):
    """The whole job, as it stands under a prefix and in every cell."""

    id: str
    run_id: RunId
    batch: bool
    spec: Spec
    submitted_at: Instant
    submitter: str
    rerun_of: str | None = None

    state: State
    epoch: Epoch
    priority: Priority
    queued_ms: Milliseconds
    """Orders the queue within a priority: milliseconds on the store's clock."""
    nonce: Code
    """Makes the bytes of each queue record unique."""

    starts: Count = 0
    """Ended epochs whose command was executed."""
    lease_losses: Count = 0
    """Since it was submitted, or retried last."""
    picked_up_at: Instant | None = None
    """When it was claimed first; None before. Its time limit counts from here, over all epochs."""
    runtime_limit_seconds: Duration | None = None
    """What the deployment allowed at that claim; None: no limit."""
    given_back: Count = 0
    """How often a host gave it back untouched; since it was submitted, or retried last."""
    retry_rule: RetryRule | None = None
    """As it was fixed at the first claim, or the first after somebody retried it. None: it has not
    been claimed, or is not tried again by itself."""
    notify: Rules = msgspec.field(default_factory=list)
    """The deployment's rules of what is told of it, as they were at that claim."""
    auto_retries: Count = 0
    """How often it was queued again by itself after it had failed."""
    auto_retries_used: Count = 0
    """The same, since it was submitted, or retried by somebody last."""
    due_ms: Milliseconds | None = None
    """On the store's clock: while it is queued, not to be started before this."""
    met: Annotated[list[Awaited], msgspec.Meta(max_length=AFTER_MAX)] = msgspec.field(
        default_factory=list
    )
    """Of the jobs that it waits for those that have ended as they had to."""
    doomed_by: Awaited | None = None
    """The first that ended otherwise: nobody runs the job, and whoever meets it ends it."""
    yields: Count = 0
    """How often it gave way to a more urgent job."""
    priority_changes: Annotated[
        list[PriorityChange], msgspec.Meta(max_length=PRIORITY_CHANGES_MAX)
    ] = msgspec.field(default_factory=list)
    """The newest of them, oldest first."""
    manual_retries: Count = 0
    """How often somebody has had it run again after it had ended."""
    pauses: Count = 0
    usage: Usage = Usage()
    """Of all epochs that have ended."""
    opened_from: State | None = None
    """The state at rest that this epoch, or one that was lost since, was taken out of: who settles
    removes the record that may still be there."""
    holder: Holder | None = None
    """Of this epoch; None while it is queued."""
    ending: Ending | None = None
    """Of this epoch once it is at rest; of the one before while it is queued or running."""

    @property
    def batch_id(self) -> str | None:
        return base_of(self.id) if self.batch else None

    @property
    def awaits(self) -> list[After]:
        """The jobs that have still to end, while it may be run once they have."""
        if self.doomed_by is not None or not self.spec.after:
            return []
        met = {one.job_id for one in self.met}
        return [one for one in self.spec.after if one.job_id not in met]

    def is_due(self, now_ms: int) -> bool:
        if self.awaits:
            return False
        return self.due_ms is None or now_ms >= self.due_ms

    @property
    def notice_rules(self) -> list[str]:
        """By which it is told what becomes of it: its own, and the deployment's."""
        return [*self.spec.notify, *self.notify]

    @property
    def auto_retries_left(self) -> int:
        return 0 if self.retry_rule is None else self.retry_rule.retries - self.auto_retries_used

    @property
    def policy_revision(self) -> int:
        """A retried job makes another policy: the first one is sealed for ever."""
        return self.manual_retries + 1

    @property
    def policy_id(self) -> str | None:
        """Of the policy that the job makes."""
        return policy_id(self.id, self.policy_revision) if self.spec.makes_policy else None

    @property
    def yields_left(self) -> int:
        """How often it may still be put back for a more urgent one."""
        most = self.spec.max_yields or 0
        return max(0, most - self.yields) if self.spec.yieldable else 0

    def must_give_way(self, asked: Asks) -> bool:
        return asked.give_way and (asked.evict or self.yields_left > 0)

    def own_key(self) -> str:
        return keys.record(self.state, self.id)

    def flaw(self) -> str | None:
        if self.state is State.RUNNING and self.holder is None:
            return "it runs and nobody holds it"
        if self.manual_retries >= self.epoch:
            return f"it was retried {self.manual_retries} times by epoch {self.epoch}"
        if self.due_ms is not None and self.state is not State.QUEUED:
            return f"it is {self.state}, and waits for its time"
        if self.state.at_rest and self.ending is None:
            return "it is at rest and does not say how it ended"
        return None


class Intent(StrEnum):
    """What a claim cell that no agent holds will make of its epoch."""

    CANCEL = "cancel"
    PAUSE = "pause"
    EXPIRE = "expire"
    """Its time was up while it waited."""


class ClaimCell(Document, frozen=True, kw_only=True):
    """`<n>.claim.json`: an agent holds epoch n, or an intent will not let it run."""

    token: str
    intent: Intent | None = None
    by: str
    at: Instant
    note: Line | None = None
    """Of an intent: why, in the words of who asked."""
    record: Record

    def own_key(self) -> str:
        return keys.claim_cell(self.record.id, self.record.epoch)

    def flaw(self) -> str | None:
        expected = State.RUNNING if self.intent is None else State.QUEUED
        if self.record.state is not expected:
            return f"its record is {self.record.state} and would have to be {expected}"
        return self.record.flaw()


class EndCell(Document, frozen=True, kw_only=True):
    """`<n>.end.json`: the verdict. `record` is the job as it was when epoch n ended."""

    token: Code
    ending: Ending
    record: Record

    def own_key(self) -> str:
        return keys.end_cell(self.record.id, self.record.epoch)

    def flaw(self) -> str | None:
        if self.record.ending != self.ending:
            return "its record tells of another ending"
        at_rest = self.ending.verdict.state
        if self.record.state is not at_rest and (at_rest or self.record.state.at_rest):
            return f"its verdict is {self.ending.verdict} and its record is {self.record.state}"
        if (self.ending.verdict is Verdict.RETRYING) is not (self.ending.retry_at is not None):
            return f"its verdict is {self.ending.verdict} and it is tried at {self.ending.retry_at}"
        return self.record.flaw()


class OpenCell(Document, frozen=True, kw_only=True):
    """`<n>.open.json`: what follows an epoch that ended at rest. `record` is the queue record of
    epoch n; also where that is never queued, as after a cancel of a paused job."""

    token: Code
    kind: Opening
    by: str
    at: Instant
    note: Line | None = None
    """Why, in the words of who asked."""
    record: Record

    def own_key(self) -> str:
        return keys.open_cell(self.record.id, self.record.epoch)

    def flaw(self) -> str | None:
        record = self.record
        if record.state is not State.QUEUED or record.opened_from is None:
            return "its record is not that of an epoch that was opened"
        if not leads_on(record.opened_from, self.kind):
            return f"a job that is {record.opened_from} has no {self.kind}"
        return record.flaw()


def leads_on(state: State, kind: Opening) -> bool:
    """Whether a job at rest in this state can be asked for that."""
    if kind is Opening.RETRY:
        return state in (State.FAILED, State.CANCELLED, State.TIMED_OUT)
    if kind is Opening.DELETE:
        return state.terminal
    return state is State.PAUSED


class Asks(Document, frozen=True, kw_only=True):
    """`asks/<n>.json`: what has been asked of epoch n. Flags are only ever added. A cancel goes
    before a pause."""

    cancel: bool = False
    cancel_by: str | None = None
    cancel_at: Instant | None = None
    cancel_note: Line | None = None
    """Why, in the words of who asked."""
    terminate: bool = False
    """Whether the machine that has it is to be given back with the cancel. Nobody rents any yet."""
    pause: bool = False
    pause_by: str | None = None
    pause_at: Instant | None = None
    pause_note: Line | None = None
    give_way: bool = False
    """It is to be put back into the queue, for somebody else's sake; a pause goes before that."""
    give_way_by: str | None = None
    give_way_at: Instant | None = None
    give_way_note: Line | None = None
    evict: bool = False
    """Whatever the job says of that: its host is closed."""
    nonce: str

    @property
    def intent(self) -> Intent | None:
        """What is to become of the job; None: nothing was asked."""
        if self.cancel:
            return Intent.CANCEL
        return Intent.PAUSE if self.pause else None

    @property
    def by(self) -> str:
        """Who asked for it first."""
        return (self.cancel_by if self.cancel else self.pause_by) or "unknown"

    @property
    def at(self) -> datetime | None:
        return self.cancel_at if self.cancel else self.pause_at

    @property
    def note(self) -> str | None:
        return self.cancel_note if self.cancel else self.pause_note


class SlotToken(Document, frozen=True, kw_only=True):
    """`quota/<scope>~<slot>`: an epoch has this place under a limit, or is about to have it."""

    scope: Line
    slot: Annotated[int, msgspec.Meta(ge=0, le=999_999)]
    job_id: JobId
    epoch: Epoch
    token: str
    """Of who claims the epoch."""
    confirmed: bool = False
    """Whether the epoch was that holder's when it had the place."""
    by: str
    at: Instant

    def own_key(self) -> str:
        return keys.slot(self.scope, self.slot)


class Undelivered(Document, frozen=True, kw_only=True):
    """`notify/undelivered/...`: a notice that a coordinator gave up."""

    job_id: JobId
    epoch: Count
    word: NotifyOn
    channel: Line
    tries: Count
    why: Line
    at: Instant

    def own_key(self) -> str:
        return keys.undelivered(self.job_id, self.epoch, self.word, self.channel)


class Phase(StrEnum):
    """What the holder of an epoch is doing."""

    PREPARING = "preparing"
    RUNNING = "running"
    STOPPING = "stopping"
    VERIFYING = "verifying"
    UPLOADING = "uploading"


class Progress(Part, frozen=True, kw_only=True):
    """What a job says of itself while it runs."""

    fraction: Fraction
    """How much of it is done."""
    text: Annotated[str, msgspec.Meta(max_length=PROGRESS_TEXT_MAX)] = ""
    """What it is doing, in its own words."""


class Heartbeat(Document, frozen=True, kw_only=True):
    """`heartbeat`: the holder's latest sign of life, or the seal that ends its right to it."""

    epoch: Epoch
    token: str
    """The claim's; of a seal: the sealer's own."""
    counter: Count = 0
    """Makes each beat's bytes unique."""
    sealed: bool = False
    by: str
    at: Instant
    phase: Phase = Phase.PREPARING
    started_at: Instant | None = None
    heard_at: Instant | None = None
    """Of a seal: the last sign of life of what the epoch ran; None where there was none."""
    phase_since: Instant | None = None
    """When the phase began."""
    trouble: str | None = None
    """What the holder cannot get done, and how often it has tried: a process that does not end,
    an upload that is not taken. One sentence, at most 1,024 characters."""
    progress: Progress | None = None
    """What the job reported last, if it reports anything."""
    runs: Count = 0
    """How often the command was started in this epoch: more than once where it is run again."""
    live: str | None = None
    """Where the job says that it can be watched: a URL without a `live_flaw`."""

    @property
    def last_sign_at(self) -> datetime | None:
        """Of what the epoch ran: nothing of it lives once it is uploading."""
        if self.sealed:
            return self.heard_at
        return self.at if self.command_ended_at is None else self.command_ended_at

    @property
    def command_ended_at(self) -> datetime | None:
        """As far as the holder has told."""
        return self.phase_since if self.phase is Phase.UPLOADING else None

    def flaw(self) -> str | None:
        flaw = live_flaw(self.live) if self.live is not None else None
        return f"the URL of its live view {flaw}" if flaw is not None else None


class RunRecord(Document, frozen=True, kw_only=True):
    """`runs/<run-id>.json`: what makes a submission happen once."""

    run_id: RunId
    token: Code
    digest: str
    request: Request
    base_id: BaseId
    count: Count
    submitted_at: Instant
    submitter: str
    rerun_of: str | None = None
    complete: bool = False
    """Whether all queue records are written."""
    deleted: Annotated[list[Count], msgspec.Meta(max_length=BATCH_COUNT_MAX)] = msgspec.field(
        default_factory=list
    )
    """Which of its jobs, counted from 1, were deleted, in order."""

    def own_key(self) -> str:
        return keys.run(self.run_id)

    def flaw(self) -> str | None:
        commands = len(self.request.commands)
        if self.count != commands or not commands or (commands > 1 and not self.request.batch):
            return f"it counts {self.count} jobs and has {commands} commands"
        if self.request.indices and len(self.request.indices) != commands:
            return f"it has {commands} commands and {len(self.request.indices)} indices"
        return None


class SnapshotState(StrEnum):
    """What may be done with a snapshot in the store."""

    WHOLE = "whole"
    LEAVING = "leaving"
    """Somebody found that no submission names it. It is there, and stays if one does after all."""
    GONE = "gone"
    """Its archive is deleted, or about to be."""


class SnapshotRecord(Document, frozen=True, kw_only=True):
    """`snapshots/<digest>/snapshot.json`: commits an archive. Changed by replace, never deleted:
    who adds a reference and who removes the last one meet here."""

    digest: Sha256
    state: SnapshotState
    nonce: Code
    """New at each write."""
    archive: Code
    """The token of the upload that counts."""
    archive_bytes: Count
    archive_sha256: Sha256
    files: Count
    bytes: Count
    """Of the unpacked contents."""
    at: Instant

    def own_key(self) -> str:
        return keys.snapshot(self.digest)


class JobReport(Part, frozen=True, kw_only=True):
    """What an agent says of a job that it runs."""

    job_id: str
    epoch: Epoch
    signs: Count
    """How often the supervisor has been heard on this host, store or no store."""
    began_at: Instant | None = None
    """When its command was started, as far as its agent has heard."""


class Hindrance(Part, frozen=True, kw_only=True):
    """Why an agent claims nothing for the time being."""

    code: str
    """A word for programs: `disk_full`, `host_unable`."""
    detail: str
    """A sentence for people, with the remedy."""
    since: Instant


class AcceleratorReport(Part, frozen=True, kw_only=True):
    """What an agent says of one of its host's accelerators."""

    uuid: AcceleratorId
    kind: AcceleratorKind
    """Its model as a word: `a100-sxm4-80gb`."""
    index: Gpus
    """Of the card, as its driver counts."""
    vram_total_mib: Mebibytes
    vram_used_mib: Mebibytes
    vram_free_mib: Mebibytes
    """Not in use by anybody just now."""
    vram_used_by_others_mib: Mebibytes | None = None
    """In use by what is no job's of this host; None where who uses it cannot be told."""
    other_pids: Annotated[list[Pid], msgspec.Meta(max_length=OTHER_PIDS_MAX)] = msgspec.field(
        default_factory=list
    )
    """The first processes that are no job's of this host."""
    utilisation: Fraction | None = None
    ailment: Line | None = None
    """Why no job is let onto it."""
    vram_left_mib: Mebibytes | None = None
    """What a job may still be given of it."""
    taken: bool = False
    """Whether a job was given it, or a part."""
    closed: bool = False
    """Whether one was given all of it."""
    jobs: Annotated[list[JobId], msgspec.Meta(max_length=1024)] = msgspec.field(
        default_factory=list
    )
    """Of this host, that use it."""


class JobClaim(Part, frozen=True, kw_only=True):
    """That an agent got a job."""

    job_id: JobId
    at: Instant


class JobEnd(Part, frozen=True, kw_only=True):
    """How a job ended on a host, as its agent tells others. Words that a newer program has are
    text to this one."""

    job_id: JobId
    user: Line | None = None
    """Who submitted it; None: the agent did not hear."""
    verdict: Line
    reason: Line | None = None
    ran_seconds: RanSeconds | None = None
    """None: its command was not started."""
    at: Instant


class Capacity(Document, frozen=True, kw_only=True):
    """`capacity/<consumer>.json`: an agent's live resources, and what it runs."""

    consumer: str
    incarnation: str
    host: str
    at: Instant
    host_at: Instant | None = None
    """The same moment by the host's own clock."""
    counter: Count
    broadcast_seconds: Pace
    """How often it is written: silence is judged against it."""
    cpu_total: Amount
    cpu_free: Amount
    memory_total_gb: Amount
    memory_free_gb: Amount
    disk_free_gb: Amount
    disk_left_gb: Amount = 0.0
    """Of the disk, what no job has reserved and nothing has taken, less what is kept free."""
    machine_type: HostWord | None = None
    provider: HostWord = PROVIDER_DEFAULT
    spot: bool = False
    labels: Annotated[list[Label], msgspec.Meta(max_length=HOST_LABELS_MAX)] = msgspec.field(
        default_factory=list
    )
    price_per_hour: Price | None = None
    """Dollars; null: nobody counts them."""
    closed: bool = False
    """Whether a job has the host for itself."""
    disk_total_gb: Amount | None = None
    disk_reserve_gb: Amount = 0.0
    """Of it, what jobs must leave free."""
    accelerators: Annotated[list[AcceleratorReport], msgspec.Meta(max_length=ACCELERATORS_MAX)] = (
        msgspec.field(default_factory=list)
    )
    accelerators_unknown: Line | None = None
    """Why it cannot tell of accelerators, although its host has a driver for some."""
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
    runs_images_by: str | None = None
    """The container engine that answered there last, and its version: `docker 28.2.2`."""
    max_run_seconds: Duration | None = None
    """How long its host lets a command run; None: no limit."""
    keeps_room_for: JobId | None = None
    """What gets free there is kept for this queued job."""
    throttled: Count = 0
    """Requests of the agent that the store has put off since the broadcast before."""
    last_claim: JobClaim | None = None
    """Since the agent was started."""
    recent_ends: Annotated[list[JobEnd], msgspec.Meta(max_length=RECENT_ENDS_MAX)] = msgspec.field(
        default_factory=list
    )
    """Its last ones, oldest first."""

    def own_key(self) -> str:
        return keys.capacity(self.consumer)


class HostOrder(StrEnum):
    """How an operator keeps a host from taking jobs."""

    CORDON = "cordon"
    DRAIN = "drain"


class HostClosing(Part, frozen=True, kw_only=True):
    """That a host is to take no more jobs."""

    order: HostOrder
    by: Line
    at: Instant
    reason: Line | None = None
    deadline_at: Instant | None = None
    """From then on what still runs there is put back into the queue; None: it is not."""


class HostRelease(Part, frozen=True, kw_only=True):
    """That whatever quarantine a host was in by then is over."""

    by: Line
    at: Instant


class HostOrders(Document, frozen=True, kw_only=True):
    """`control/hosts/<consumer>.json`: what operators say to one host. Absent: nothing."""

    consumer: str
    closing: HostClosing | None = None
    """None: it may take jobs."""
    release: HostRelease | None = None
    """The last one."""
    labels: LabelsSaid = msgspec.field(default_factory=dict)
    """Over those that its agent was started with."""
    price_per_hour: Price | None = None
    """Dollars; None: what its agent was started with."""
    nonce: Code
    """New at each write."""
    changed_at: Instant
    changed_by: Line

    def own_key(self) -> str:
        return keys.host_orders(self.consumer)


class ReapOutcome(StrEnum):
    """What became of a process that somebody wanted ended."""

    ENDED = "ended"
    GONE = "gone"
    """It had ended before."""
    HELD = "held"
    """Somebody answered for it by then."""
    DENIED = "denied"
    """It was another account's."""
    STAYS = "stays"
    """It was killed, and was still there."""


class ReapedProcess(Part, frozen=True, kw_only=True):
    """A process that a job had left on a host."""

    pid: Pid
    job_id: JobId
    epoch: Epoch | None = None
    program: Line
    started_at: Instant
    outcome: ReapOutcome | None = None
    """None: not known yet."""


class HostReap(Document, frozen=True, kw_only=True):
    """`control/reaps/<inverted ms>-<token>.json`: what somebody ended on a host, of what jobs had
    left there. Written before anything is signalled, and again when all is done."""

    token: Code
    host: Line
    command: Line
    """The program that was named."""
    by: Line
    at: Instant
    processes: Annotated[list[ReapedProcess], msgspec.Meta(max_length=REAPED_MAX)]

    def own_key(self) -> str:
        return keys.host_reap(milliseconds(self.at), self.token)


class RoomNote(Document, frozen=True, kw_only=True):
    """`room/<id>.json`: a host keeps what gets free there for this queued job."""

    job_id: JobId
    consumer: str
    incarnation: str
    counter: Count
    at: Instant

    def own_key(self) -> str:
        return keys.room(self.job_id)


PASSES_MAX = 32


class PassNote(Part, frozen=True, kw_only=True):
    """How a pass of coordinators fared, for people: nothing is decided by it."""

    name: Line
    at: Instant | None = None
    """When it last succeeded."""
    failed_at: Instant | None = None
    error: Line | None = None
    """Why it failed then."""

    @property
    def fails(self) -> bool:
        """Whether it has not succeeded since it last failed."""
        return self.failed_at is not None and (self.at is None or self.at < self.failed_at)


class CoordinatorLease(Document, frozen=True, kw_only=True):
    """`control/coordinator.json`: which coordinator acts while the others stand by."""

    token: str
    holder: str
    counter: Count
    at: Instant
    lease_seconds: Seconds
    released: bool = False
    since: Instant | None = None
    """When it began to act."""
    version: Line | None = None
    passes: Annotated[list[PassNote], msgspec.Meta(max_length=PASSES_MAX)] = msgspec.field(
        default_factory=list
    )
    """How they fared up to its tick before."""


class FollowNote(Document, frozen=True, kw_only=True):
    """`status/<id>/watch`: somebody follows the log. Only that it changes says anything."""

    nonce: str
    """New at each write."""
    at: Instant


class OutputFile(Part, frozen=True, kw_only=True):
    """A file of an epoch's output."""

    path: str
    """Relative, with forward slashes."""
    key: str
    size: Count
    sha256: str


class LogAccount(Part, frozen=True, kw_only=True):
    """What became of the bytes that a command printed: `written == kept + dropped`."""

    written: Count
    kept: Count
    dropped: Count


class LogRange(Part, frozen=True, kw_only=True):
    """Bytes that an epoch printed one after another."""

    offset: Count
    """Of the first, in all that the epoch printed."""
    size: Size

    @property
    def end(self) -> int:
        return self.offset + self.size


class LogTime(Part, frozen=True, kw_only=True):
    """When a stretch of a log was printed: from `offset` to the next one's."""

    offset: Count
    ms: Milliseconds
    """When the last of it was read; none of it was printed later."""


class LogIndex(Document, frozen=True, kw_only=True):
    """`log/<n>-index`: commits the blocks that hold a whole log in place of its segments."""

    job_id: str
    epoch: Epoch
    token: Code
    """In the names of the blocks."""
    block_bytes: Annotated[int, msgspec.Meta(ge=1, le=2**30)]
    """Of each block but the last, which may be smaller."""
    digest_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**30)] = 0
    """Of each piece that has a digest, but the last one, which may be smaller."""
    digests: Annotated[list[Sha256], msgspec.Meta(max_length=_BLOCKS_MAX)] = msgspec.field(
        default_factory=list
    )
    ranges: Annotated[list[LogRange], msgspec.Meta(max_length=100_000)]
    """What the blocks hold, one after another."""
    times: Annotated[list[LogTime], msgspec.Meta(max_length=20_000)] = msgspec.field(
        default_factory=list
    )

    def own_key(self) -> str:
        return keys.log_index(self.job_id, self.epoch)

    def flaw(self) -> str | None:
        end = 0
        for one in self.ranges:
            if one.offset < end:
                return f"its range from {one.offset} on begins before the end of the one before"
            end = one.end
        if self.held_bytes > min(2**36, _BLOCKS_MAX * self.block_bytes):
            return "its ranges are larger than a log is"
        if not self._has_fitting_digests():
            return "its digests are not those of what its blocks hold"
        offsets = [time.offset for time in self.times]
        return None if offsets == sorted(offsets) else "its times are not in order"

    @property
    def held_bytes(self) -> int:
        """In all blocks."""
        return sum(one.size for one in self.ranges)

    def _has_fitting_digests(self) -> bool:
        if not self.digest_bytes:
            return not self.digests
        pieces = -(-self.held_bytes // self.digest_bytes)
        return self.block_bytes % self.digest_bytes == 0 and len(self.digests) == pieces


class Manifest(Document, frozen=True, kw_only=True):
    """`output/<n>/manifest.json`: the files that epoch n left, committed by this one write."""

    job_id: str
    epoch: Epoch
    partial: bool
    """Whether the command had not succeeded when the files were taken."""
    files: list[OutputFile]
    skipped: list[str] = msgspec.field(default_factory=list)
    """Paths that were left out, with the reason: `<path>: <why>`."""
    log: LogAccount | None = None

    def own_key(self) -> str:
        return keys.output_manifest(self.job_id, self.epoch)

    def flaw(self) -> str | None:
        return _foreign_file(self.job_id, self.epoch, self.files)


def _foreign_file(job_id: str, epoch: int, files: list[OutputFile]) -> str | None:
    """What is wrong when a file is not below its own job's and epoch's keys."""
    for file in files:
        if file.key != keys.output_file(job_id, epoch, file.path):
            return f"its file {file.path!r} is under {file.key!r}, which is not its own"
    return None


class Artifact(Document, frozen=True, kw_only=True):
    """`artifacts/versions/<name>@<version>.json`: output of a job under a name, for ever. The
    files stay where the job left them."""

    name: InputName
    version: Ordinal
    job_id: str
    epoch: Epoch
    run_id: str
    manifest_sha256: Sha256
    """Of the job's manifest, as it was when this was published."""
    path: str = ""
    """What part of the output this is; "": all of it."""
    partial: bool
    """Whether the job did not succeed."""
    files: list[OutputFile]
    """With their paths in the whole output."""
    published_at: Instant
    published_by: str

    def own_key(self) -> str:
        return keys.artifact(self.name, self.version)

    def flaw(self) -> str | None:
        return _foreign_file(self.job_id, self.epoch, self.files)


class OutputCopy(Document, frozen=True, kw_only=True):
    """`manifest.json` of a copy of an output, which is whole when this is there."""

    job_id: str
    epoch: Epoch
    partial: bool
    files: list[OutputFile]
    """`key`: below the place that the copy was sent to."""
    skipped: list[str] = msgspec.field(default_factory=list)

    def flaw(self) -> str | None:
        for file in self.files:
            if file.key != keys.copied_file(self.job_id, file.path):
                return f"its file {file.path!r} is under {file.key!r}, which is not its own"
        return None


class SaveRef(Part, frozen=True, kw_only=True):
    """A committed checkpoint, as others name it."""

    manifest: str
    """Key of its manifest."""
    sha256: Sha256
    """Of the manifest."""
    at: Instant
    size: Count
    """Bytes of its files."""
    meta: CheckpointMeta | None = None


class Expired(Document, frozen=True, kw_only=True):
    """`expired/<kind>/<id>.<n>`: what epochs up to n of a job left of this kind has gone for its
    age; the same with `.going` behind it: it is about to."""

    job_id: str
    epoch: Epoch
    kind: Leftover
    at: Instant
    by: Line
    rule: Line
    """`retention.logs 90d`"""
    gone: bool
    left: bool = True
    """Whether there was anything."""
    objects: Count = 0
    """How many were found and deleted; of what was interrupted the last part."""
    bytes: Count = 0

    def own_key(self) -> str:
        key = keys.expired if self.gone else keys.expiring
        return key(self.kind.value, self.job_id, self.epoch)


class CheckpointFile(Part, frozen=True, kw_only=True):
    """A file of a checkpoint, in parts that were uploaded one by one."""

    path: str
    size: Count
    sha256: str
    parts: list[str]
    """Keys, in order. Parts of earlier saves are among them, where they hold the same."""
    digests: list[str] = msgspec.field(default_factory=list)
    """SHA-256 of each part; empty where they are not known."""


class Checkpoint(Document, frozen=True, kw_only=True):
    """`checkpoints/<n>-<seq>.manifest.json`: commits the parts named before it."""

    job_id: str
    epoch: Epoch
    sequence: Ordinal
    at: Instant
    files: list[CheckpointFile]
    meta: CheckpointMeta | None = None
    meta_invalid: Line | None = None
    """Why what the job said of it is not believed."""
    best: SaveRef | None = None
    """The best save so far; None: this one, or nothing was measured yet."""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def own_key(self) -> str:
        return keys.checkpoint_manifest(self.job_id, self.epoch, self.sequence)

    def flaw(self) -> str | None:
        """Nothing is ever read or deleted of another job, or of a later save, because of it."""
        for part in (part for file in self.files for part in file.parts):
            saved = keys.parse_checkpoint_part(part, self.job_id)
            if saved is None or saved > (self.epoch, self.sequence):
                return f"its part {part!r} is not its own"
        if any(len(file.digests) not in (0, len(file.parts)) for file in self.files):
            return "it has not a digest for each part"
        if self.best is not None and not keys.is_checkpoint_manifest(
            self.best.manifest, self.job_id
        ):
            return f"its best save {self.best.manifest!r} is not its own"
        return None


class PolicySeal(Document, frozen=True, kw_only=True):
    """`policies/<id>.json`: what a train job left for others to start from, for ever."""

    job_id: str
    revision: Ordinal = 1
    """One more with each retry of the job."""
    epoch: Epoch
    at: Instant
    """When the job ended."""
    latest: SaveRef | None = None
    best: SaveRef | None = None

    @property
    def policy_id(self) -> str:
        return policy_id(self.job_id, self.revision)

    def save(self, kind: Kind) -> SaveRef | None:
        return self.best if kind is Kind.BEST else self.latest

    def own_key(self) -> str:
        return keys.policy(policy_name(self.job_id, self.revision))

    def flaw(self) -> str | None:
        for save in (self.latest, self.best):
            if save is not None and not keys.is_checkpoint_manifest(save.manifest, self.job_id):
                return f"its save {save.manifest!r} is not its own"
        return None


class LateResult(Document, frozen=True, kw_only=True):
    """`late/<n>.json`: what a worker that had been declared lost still had to say."""

    job_id: str
    epoch: Epoch
    consumer: str
    at: Instant
    exit_code: int | None
    detail: str

    def own_key(self) -> str:
        return keys.late(self.job_id, self.epoch)
