"""What a submitter asks for: validated once, stored with the job, never changed.

Limits come from what a host can execute: Linux takes at most 128 KiB in one argument, and the
command is one argument of a shell.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from stado.core import keys
from stado.core.destinations import OutputUri, parse_destination
from stado.core.documents import Count, Instant, Part, Text, canonical, from_plain
from stado.core.durations import DURATION_FORM, DURATION_SECONDS_MAX, Duration
from stado.core.envelope import (
    Gpus,
    HostWord,
    KindWord,
    Labels,
    ModelWord,
    Price,
    RuntimeSeconds,
    Spot,
    Yields,
    check_envelope,
)
from stado.core.ids import JOB_PATTERN, is_run_id
from stado.core.images import IMAGE_PATTERN, image_flaw
from stado.core.inputs import NAME_PATTERN
from stado.core.notices import Rules, check_rules
from stado.core.output_paths import PATTERNS_MAX, Patterns, check_pattern
from stado.core.repos import commit_flaw, folder_flaw, url_flaw
from stado.core.retries import RETRIES_MAX, RETRYABLE, Reasons, Retries
from stado.core.sidecar import Sha256
from stado.core.states import AfterWhen, JobType, Kind
from stado.core.tags import Tags, tag_list
from stado.core.trees import shown
from stado.errors import Refused

PRIORITY_MAX = 2**63 - 1
COMMAND_BYTES_MAX = 131_000
ENVIRONMENT_BYTES_MAX = 131_000
STRICT_SHELL_COMMAND_BYTES_MAX = 130_000
"""What is put before a command so that its failing line is named takes room, too."""
BATCH_COUNT_MAX = 100_000
INPUTS_MAX = 100
ARRAY_INDEX_MAX = 999_999_999
REQUEST_BYTES_MAX = 32 * 1024 * 1024
AMOUNT_MAX = 1e6
CPU_DEFAULT = 1.0
MEMORY_GB_DEFAULT = 1.0
MAX_LEASE_LOSSES_DEFAULT = 3
BODY_RETRIES_MAX = 1000

POLICY_PREFIX = "policy_"
"""With the id of the job that makes it: the name of a policy."""

CARDS_VARIABLE = "CUDA_VISIBLE_DEVICES"
"""Where a command finds the cards that it was given."""

SECRETS_MAX = 64
STEPS_MAX = 20
AFTER_MAX = 50
_DIFFERENCES_MAX = 5
_LARGEST_NAMED = 3

_SECRET_REFERENCE = re.compile(r"[A-Za-z0-9_+=.@:/-]{1,256}#[A-Za-z0-9_.-]{1,128}")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Priority = Annotated[int, msgspec.Meta(ge=0, le=PRIORITY_MAX)]
Size = Annotated[float, msgspec.Meta(gt=0, lt=AMOUNT_MAX)]
"""Of cores or GiB."""

ArrayIndex = Annotated[int, msgspec.Meta(ge=0, le=ARRAY_INDEX_MAX)]
AtATime = Annotated[int, msgspec.Meta(ge=1, le=999_999)]
BodyRetries = Annotated[int, msgspec.Meta(ge=0, le=BODY_RETRIES_MAX)]
Losses = Annotated[int, msgspec.Meta(ge=-1, le=PRIORITY_MAX)]
VariableName = Annotated[str, msgspec.Meta(pattern=rf"\A{_ENVIRONMENT_NAME.pattern}\Z")]
PolicyId = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"\A{POLICY_PREFIX}{JOB_PATTERN.pattern}(\.r([2-9]|[1-9][0-9]{{1,5}}))?\Z"
    ),
]
SecretReference = Annotated[str, msgspec.Meta(pattern=rf"\A{_SECRET_REFERENCE.pattern}\Z")]
"""`ITEM#FIELD`: what a host looks up. Never a value."""

JobId = Annotated[str, msgspec.Meta(pattern=rf"\A{JOB_PATTERN.pattern}\Z")]
Image = Annotated[str, msgspec.Meta(pattern=rf"\A{IMAGE_PATTERN.pattern}\Z")]
Folder = Annotated[str, msgspec.Meta(pattern=r"\A/[^\0]*\Z")]
InputName = Annotated[str, msgspec.Meta(pattern=rf"\A{NAME_PATTERN.pattern}\Z")]
Source = Annotated[str, msgspec.Meta(pattern=r"\A[^\x00-\x1f\x7f]{1,2000}\Z")]
Commit = Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{40}|[0-9a-f]{64})\Z")]
Address = Annotated[str, msgspec.Meta(pattern=r"\A[^\x00-\x1f\x7f-][^\x00-\x1f\x7f]{0,2047}\Z")]


class Input(Part, frozen=True, kw_only=True):
    """Exact content that a job takes along."""

    name: InputName
    """Of its folder below the job's folder of inputs."""
    source: Source
    """The key of a manifest or an artifact in this store; or an object's address elsewhere."""
    sha256: Sha256
    """Of the document, which has the digest of each file; or of the object."""
    path: Text = ""
    """Below the output that the document describes; "" is all of it."""

    @property
    def elsewhere(self) -> bool:
        """Whether it is an object outside this store."""
        return "://" in self.source


class StartFrom(Part, frozen=True, kw_only=True):
    """A save of a policy, pinned: it is restored before the job starts for the first time."""

    policy: PolicyId
    kind: Kind
    manifest: Text
    """Key of the save's manifest."""
    sha256: Sha256
    """Of the manifest."""

    @property
    def job_id(self) -> str:
        """Of the job that made the policy."""
        return keys.parse_policy_name(self.policy.removeprefix(POLICY_PREFIX))[0]

    @property
    def ref(self) -> str:
        """As people write it: `policy_x:best`."""
        return f"{self.policy}:{self.kind.value}"


class Snapshot(Part, frozen=True, kw_only=True):
    """A tree of files that a submitter had, and where it came from."""

    digest: Sha256
    """Of the tree (`stado.core.trees`): it alone says which tree it is."""
    files: Count
    bytes: Count
    """Of all contents together."""
    commit: Commit | None = None
    """The commit that was checked out there; null: no git, or no commit yet."""
    dirty: bool = False
    """Whether the tree is another one than the commit's."""


class GitRepo(Part, frozen=True, kw_only=True):
    """A commit that a host checks out."""

    url: Address
    commit: Commit
    folder: Text | None = None
    """Below the top of the repository, to run in; null: the top."""


class After(Part, frozen=True, kw_only=True):
    """A job that has to end first, and how."""

    job_id: JobId
    when: AfterWhen = AfterWhen.OK


class Step(Part, frozen=True, kw_only=True):
    """A job that is started once the one before it has completed."""

    name: InputName
    """Unique in its pipeline; of the folder in which later steps find what it left."""
    command: Text
    type: JobType = JobType.JOB


class StepOf(Part, frozen=True, kw_only=True):
    """Which step of which pipeline a job is."""

    root: JobId
    """The job that the pipeline began with."""
    number: Annotated[int, msgspec.Meta(ge=1, le=STEPS_MAX)]
    name: InputName


class ArrayPlace(Part, frozen=True, kw_only=True):
    """That a job is one of many which differ in a number."""

    index: ArrayIndex | None = None
    """Its number; None in what all of them have in common."""
    at_a_time: AtATime | None = None
    """How many jobs of its submission may run at a time."""


class Spec(Part, frozen=True, kw_only=True):
    """One job as it was asked for. None means: not stated."""

    command: Text
    """Given to `/bin/sh -c` on the host."""
    verify: Text | None = None
    """Runs after the command succeeded; a non-zero exit makes the job fail."""
    host_dir: Folder | None = None
    """Folder on the host to run in; a fresh one when not stated."""
    snapshot: Snapshot | None = None
    """Files that the fresh folder holds when the command starts."""
    repo: GitRepo | None = None
    """The same, from a repository."""
    environment: dict[VariableName, Text] = msgspec.field(default_factory=dict)
    pre_command: Text | None = None
    """Runs before the command, in the same folder and environment; a non-zero exit makes the job
    fail."""
    secrets: Annotated[
        dict[VariableName, SecretReference], msgspec.Meta(max_length=SECRETS_MAX)
    ] = msgspec.field(default_factory=dict)
    """By the variable that the command finds the value in."""
    strict_shell: bool = False
    """Whether a line that fails ends the command, and is named (by bash)."""
    image: Image | None = None
    """The container image that the commands run in; null: as processes of the host."""
    cpu: Size | None = None
    """Cores reserved on the host; one when not stated."""
    memory_gb: Size | None = None
    """GiB of memory reserved on the host; one when not stated."""
    gpus: Gpus | None = None
    """Whole cards, which nobody else has meanwhile. One of them when only their kind is stated."""
    gpu_type: KindWord | None = None
    """What the cards are called, or a part of it."""
    vram_gb: Size | None = None
    """GiB of memory of each card; without `gpus`: that much of one card, which others may share."""
    disk_gb: Size | None = None
    """GiB of the disk that the job's folder is on; nothing is reserved when not stated."""
    exclusive: bool = False
    """It starts on a host on which no other job runs, and none starts beside it."""
    machine_type: HostWord | None = None
    labels: Labels = msgspec.field(default_factory=list)
    """`KEY=VALUE`: what the host has to be; in order."""
    pinned_host: HostWord | None = None
    """The one worker that may run it."""
    provider: HostWord | None = None
    """Whose machine is preferred."""
    pin_provider: bool = False
    """No other will do."""
    spot: Spot = Spot.ALLOW
    max_cost_per_hour: Price | None = None
    """Dollars: no dearer host runs it."""
    boot_disk_gb: Size | None = None
    """GiB of the disk of a machine that is rented for it; without it none is."""
    model: ModelWord | None = None
    """What the job trains or runs: jobs of one model on one kind of host take about as long."""
    runtime_seconds_estimate: RuntimeSeconds | None = None
    """How long its command will run, as the submitter says."""
    group: HostWord | None = None
    """Of its jobs the deployment lets only so many run at a time."""
    not_before: Instant | None = None
    yieldable: bool = False
    """Whether it may be put back into the queue for a more urgent one."""
    max_yields: Yields | None = None
    """How often; never when not stated."""
    array: ArrayPlace | None = None
    priority: Priority = 0
    deadline_at: Instant | None = None
    """The job has ended by this instant, or is ended then."""
    timeout_seconds: Duration | None = None
    """How long it may take from when it is picked up first; no limit of its own when not stated."""
    idle_timeout_seconds: Duration | None = None
    """How long a command may print, save and report nothing; for ever when not stated."""
    body_retries: BodyRetries = 0
    """How often the command is run again where it failed, before the job has failed."""
    retries: Retries | None = None
    """How often it is queued again by itself after it failed; what the deployment says when not
    stated."""
    retry_on: Reasons = msgspec.field(default_factory=list)
    """After which failures; those of `stado.core.retries` when none is stated."""
    retry_delay_seconds: Duration | None = None
    """How long it waits before the first; then twice as long each time."""
    final: bool = False
    """Whether its end is one for ever: nobody has it retried."""
    max_lease_losses: Losses | None = None
    """How often the job is queued again after its host was lost; -1 for without limit."""
    terminates_agent: bool = False
    """Its command ends the agent that runs it: once it was started, that this agent is gone is its
    success."""
    expected_outputs: Patterns = msgspec.field(default_factory=list)
    """Paths and patterns below the output folder: without a file for each the job has failed."""
    output_uri: OutputUri | None = None
    """Where a copy of the output goes (`stado.core.destinations`)."""
    inputs: Annotated[list[Input], msgspec.Meta(max_length=INPUTS_MAX)] = msgspec.field(
        default_factory=list
    )
    """Fetched before the command is started, each into a folder of its name; ordered by that."""

    tags: Tags = msgspec.field(default_factory=list)
    """By which people find it again; in order."""
    type: JobType = JobType.JOB
    require_checkpoint: bool = False
    """A success without a saved checkpoint is none. A train job's never is."""
    start_from: StartFrom | None = None

    notify: Rules = msgspec.field(default_factory=list)
    """On which channels it is told what becomes of it (`stado.core.notices`)."""
    after: Annotated[list[After], msgspec.Meta(max_length=AFTER_MAX)] = msgspec.field(
        default_factory=list
    )
    """It waits in the queue until these have ended so; ordered by their ids."""
    then: Annotated[list[Step], msgspec.Meta(max_length=STEPS_MAX)] = msgspec.field(
        default_factory=list
    )
    """What is started once it has completed, one after another."""
    then_parallel: bool = False
    """All of them at once."""
    then_from: Kind | None = None
    """The save that they start from: the best when not stated, the latest where there is none."""
    then_cpu: Size | None = None
    """Cores reserved for each of them; one when not stated."""
    then_memory_gb: Size | None = None
    """GiB of memory; one when not stated."""
    then_gpus: Gpus | None = None
    """Whole cards, of the kind that the job itself asks for; none when not stated."""
    step_of: StepOf | None = None
    """Of a job that was started in that way."""
    workload_kind: HostWord | None = None
    """Of a job that somebody started as a session of this kind, on a host with room for it."""

    @property
    def takes_along(self) -> bool:
        """Whether a host has to fetch something before it can start the command."""
        if self.snapshot is not None or self.repo is not None or self.start_from is not None:
            return True
        return bool(self.inputs or self.secrets or self.image)

    @property
    def inputs_here(self) -> list[Input]:
        """Those in this store."""
        return [one for one in self.inputs if not one.elsewhere]

    @property
    def makes_policy(self) -> bool:
        return self.type is JobType.TRAIN

    @property
    def needs_checkpoint(self) -> bool:
        """Whether it has to leave a checkpoint."""
        return self.require_checkpoint or self.makes_policy


class Request(Part, frozen=True, kw_only=True):
    """A whole submission, normalised: equal requests have equal digests."""

    batch: bool
    commands: list[Text]
    shared: Spec
    """What all jobs have in common; its command is empty."""
    indices: Annotated[list[ArrayIndex], msgspec.Meta(max_length=BATCH_COUNT_MAX)] = msgspec.field(
        default_factory=list
    )
    """Of an array the number of each job."""

    def specs(self) -> list[Spec]:
        """One spec a job, in the order of the commands."""
        specs = [self.shared.evolve(command=command) for command in self.commands]
        if not self.indices:
            return specs
        place = self.shared.array or ArrayPlace()
        return [
            spec.evolve(array=place.evolve(index=index))
            for spec, index in zip(specs, self.indices, strict=True)
        ]

    def part(self, numbers: Sequence[int]) -> Request:
        """The same for some of its jobs, which are counted from 1."""
        commands = [self.commands[number - 1] for number in numbers]
        indices = [self.indices[number - 1] for number in numbers] if self.indices else []
        return self.evolve(commands=commands, indices=indices)

    def digest(self) -> str:
        """SHA-256 over the canonical JSON of what the request states.

        Fields at their defaults are left out, so that a field which a later version adds does
        not make another request of an old one."""
        unstated = type(self.shared)(command="").plain()
        shared = {
            name: value
            for name, value in self.shared.plain().items()
            if name not in unstated or unstated[name] != value
        }
        if self.shared.snapshot is not None:  # not by where the same files came from
            shared["snapshot"] = self.shared.snapshot.digest
        stated: dict[str, Any] = {
            "batch": self.batch,
            "commands": self.commands,
            "shared": shared,
        }
        if self.indices:
            stated["indices"] = self.indices
        return hashlib.sha256(canonical(stated)).hexdigest()


def checked_spec(**stated: Any) -> Spec:
    """What all jobs have in common, from values of a program, which may be of any type. Raises
    `Refused`, naming what cannot be."""
    spec = Spec(command="", **stated)
    try:
        return from_plain(Spec, spec.plain())
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        with suppress(TypeError, AttributeError):  # it says more, where it is not the type
            _check_shared(spec)
        why = str(error).replace("`$.", "`")
        raise Refused("option_invalid", f"what was asked for cannot be: {why}") from None


def make_request(commands: list[str], shared: Spec, *, batch: bool) -> Request:
    """A validated request. Raises `Refused`, naming the value and the remedy."""
    _check_shared(shared)
    if not commands:
        raise Refused("batch_empty", "the batch holds no command: write one command per line")
    if len(commands) > BATCH_COUNT_MAX:
        raise Refused(
            "batch_too_large",
            f"the batch holds {len(commands)} commands and at most {BATCH_COUNT_MAX} are taken: "
            "split it",
        )
    for number, command in enumerate(commands, start=1):
        where = f"command {number} of the batch" if batch else "the command"
        _check_command(command, where, strict_shell=shared.strict_shell)
    size = sum(len(command.encode()) for command in commands)
    if size > REQUEST_BYTES_MAX:
        raise Refused(
            "batch_too_large",
            f"the batch has {size} bytes and at most {REQUEST_BYTES_MAX} are taken: split it",
        )
    if shared.deadline_at is not None:  # one instant is written in one way
        shared = shared.evolve(deadline_at=_in_utc(shared.deadline_at))
    if shared.not_before is not None:
        shared = shared.evolve(not_before=_in_utc(shared.not_before))
    shared = shared.evolve(retry_on=sorted(set(shared.retry_on)), labels=sorted(set(shared.labels)))
    return Request(batch=batch, commands=commands, shared=shared.evolve(command=""))


def _in_utc(instant: datetime) -> datetime:
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise Refused(
            "instant_out_of_range", f"{instant.isoformat()} is outside the calendar"
        ) from None


def parse_batch(data: bytes, name: str) -> list[str]:
    """The commands of a batch file: one a line; blank lines and `#` comments are skipped.

    Raises `Refused`, naming the file and the line."""
    commands = []
    for number, raw in enumerate(data.split(b"\n"), start=1):
        where = f"line {number} of {name}"
        if b"\0" in raw:
            raise Refused(
                "batch_unreadable", f"{where} holds a NUL byte: a batch is text, a command a line"
            )
        try:
            line = raw.decode().strip()
        except UnicodeDecodeError as error:
            raise Refused(
                "batch_unreadable", f"{where} is not UTF-8 ({error.reason}): save it as UTF-8"
            ) from None
        if line and not line.startswith("#"):
            _check_command(line, where)
            commands.append(line)
    if not commands:
        raise Refused(
            "batch_empty",
            f"{name} holds no command: write one command per line "
            "(blank lines and lines that begin with # are skipped)",
        )
    return commands


RUN_ID_WORDS = ("last", "all")
"""They mean something else to the command line: a run of that name could not be named."""


def check_run_id(run_id: str) -> None:
    """Raises `Refused` unless the run id can be one."""
    if run_id.lower() in RUN_ID_WORDS:
        raise Refused(
            "run_id_reserved",
            f"run id {run_id!r} cannot be used: commands take {run_id.lower()!r} for another "
            "thing. Use another run id.",
        )
    if not is_run_id(run_id):
        raise Refused(
            "run_id_invalid",
            f"run id {run_id!r} cannot be used: 1 to 100 characters of A-Z a-z 0-9 . _ @ + -",
        )


def differing_fields(old: Request, new: Request) -> list[str]:
    """What tells two requests apart, one sentence each: `command: 'a' was submitted, now 'b'`.

    Of more differences than can be read the first are named, and how many there are."""
    before, after = _flat(old), _flat(new)
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    sentences = [
        f"{name}: {_short(before.get(name))} was submitted, now {_short(after.get(name))}"
        for name in names[:_DIFFERENCES_MAX]
    ]
    if len(names) > _DIFFERENCES_MAX:
        sentences.append(f"{len(names) - _DIFFERENCES_MAX} more differ")
    if old.shared.environment != new.shared.environment:
        variables = dict(old.shared.environment.items() ^ new.shared.environment.items())
        sentences.append(f"environment: {', '.join(sorted(variables))} differ")
    return sentences


def _flat(request: Request) -> dict[str, Any]:
    """The request field by field, without the environment, whose values may be private."""
    shared = request.shared.plain()
    del shared["command"], shared["environment"], shared["inputs"]
    shared |= {f"input {one.name}": _pin_text(one) for one in request.shared.inputs}
    shared["snapshot"] = request.shared.snapshot and shown(request.shared.snapshot.digest)
    shared["repo"] = request.shared.repo and repo_text(request.shared.repo)
    if not request.batch:
        return {**shared, "command": request.commands[0]}
    commands = enumerate(request.commands, start=1)
    return {**shared, **{f"command {number}": command for number, command in commands}}


def _pin_text(pinned: Input) -> str:
    return f"{pinned.source} {pinned.path} sha256={pinned.sha256}".replace("  ", " ")


def repo_text(repo: GitRepo) -> str:
    """`https://host/lab.git at 1a2b3c4d5e6f, folder train`."""
    folder = f", folder {repo.folder}" if repo.folder is not None else ""
    return f"{repo.url} at {shown(repo.commit)}{folder}"


def _short(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def check_inputs(inputs: list[Input]) -> None:
    """Raises `Refused` for more than are taken, or a name twice."""
    names = [one.name for one in inputs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Refused(
            "input_twice", f"input {twice[0]} is given twice: each is a folder of its own name"
        )
    if len(inputs) > INPUTS_MAX:
        raise Refused(
            "inputs_too_many",
            f"{len(inputs)} inputs are given and at most {INPUTS_MAX} are taken: put some into one "
            "artifact",
        )


def _check_command(command: str, where: str, *, strict_shell: bool = False) -> None:
    if not command.strip():
        raise Refused("command_empty", f"{where} is empty: say what to run")
    _check_text(command, where)
    size = len(command.encode())
    limit = STRICT_SHELL_COMMAND_BYTES_MAX if strict_shell else COMMAND_BYTES_MAX
    if size > limit:
        raise Refused(
            "command_too_long",
            f"{where} has {size} bytes and a host can execute at most {limit}: "
            "put it into a script and submit the script's name",
        )


def _check_text(text: str, where: str) -> None:
    if "\0" in text:
        raise Refused("not_text", f"{where} holds a NUL byte, which no command can: remove it")
    try:
        text.encode()
    except UnicodeEncodeError:
        # What it holds is not told: it may be a variable's value.
        raise Refused("not_text", f"{where} is not valid UTF-8 text: write it as such") from None


def _check_shared(spec: Spec) -> None:
    _check_priority(spec.priority)
    _check_amount("cpu", spec.cpu, "cores")
    _check_amount("memory-gb", spec.memory_gb, "GiB")
    _check_amount("vram-gb", spec.vram_gb, "GiB")
    _check_amount("disk-gb", spec.disk_gb, "GiB")
    _check_amount("boot-disk-gb", spec.boot_disk_gb, "GiB")
    check_envelope(spec)
    _check_duration("timeout", spec.timeout_seconds)
    _check_duration("idle-timeout", spec.idle_timeout_seconds)
    _check_count("body-retries", spec.body_retries, BODY_RETRIES_MAX)
    _check_retries(spec)
    check_rules(spec.notify)
    _check_environment(spec.environment)
    _check_secrets(spec)
    if spec.pre_command is not None:
        _check_command(spec.pre_command, "the pre-command", strict_shell=spec.strict_shell)
    check_inputs(spec.inputs)
    if spec.verify is not None:
        _check_command(spec.verify, "the verify command", strict_shell=spec.strict_shell)
    if spec.host_dir is not None:
        _check_text(spec.host_dir, "the working folder")
        if not spec.host_dir.startswith("/"):
            raise Refused(
                "host_dir_not_absolute",
                f"working folder {spec.host_dir!r} is not absolute: it names a folder on the host",
            )
    if spec.image is not None:
        _check_image(spec.image, spec.host_dir)
    check_sources(
        workdir=spec.snapshot is not None,
        repo=spec.repo is not None,
        host_dir=spec.host_dir is not None,
    )
    if spec.repo is not None:
        check_repo(spec.repo.url, spec.repo.commit, spec.repo.folder)
    if spec.max_lease_losses is not None and spec.max_lease_losses < -1:
        raise Refused(
            "max_lease_losses_invalid",
            f"max-lease-losses {spec.max_lease_losses} must be 0 or more, or 'unlimited'",
        )
    _check_outputs(spec)
    _check_declared_end(spec)
    tag_list(spec.tags)
    _check_steps(spec)
    check_after(spec.after)


def check_after(after: Sequence[After]) -> None:
    """Raises `Refused`."""
    names = [one.job_id for one in after]
    if len(names) > AFTER_MAX:
        raise Refused(
            "after_too_many",
            f"{len(names)} jobs are to end first and at most {AFTER_MAX} are taken",
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Refused("after_twice", f"job {twice} is to end first twice: state one condition")


def _check_steps(spec: Spec) -> None:
    names = [step.name for step in spec.then]
    if len(names) > STEPS_MAX:
        raise Refused(
            "steps_too_many", f"{len(names)} steps are to follow and at most {STEPS_MAX} are taken"
        )
    _check_amount("then-cpu", spec.then_cpu, "cores")
    _check_amount("then-memory-gb", spec.then_memory_gb, "GiB")
    for step in spec.then:
        _check_command(step.command, f"step {step.name}", strict_shell=spec.strict_shell)
        if names.count(step.name) > 1 or step.name == "root":
            raise Refused(
                "step_name_taken",
                f"two jobs of the pipeline would be named {step.name}: name each step differently, "
                "and none root",
            )
    sizes = spec.then_cpu or spec.then_memory_gb or spec.then_gpus
    stated = spec.then_parallel or spec.then_from or sizes
    if stated and not spec.then and spec.step_of is None:
        raise Refused("then_missing", "nothing is to follow: state --then NAME=COMMAND as well")


def _check_image(image: str, host_dir: str | None) -> None:
    flaw = image_flaw(image)
    if flaw is not None:
        raise Refused(
            "image_invalid",
            f"image {image!r} cannot be used: {flaw}. Name it as registry/path:tag, or as "
            "registry/path@sha256:… to run the same one each time",
        )
    if host_dir is not None and not host_dir.strip("/"):
        raise Refused(
            "host_dir_hides_image",
            f"working folder {host_dir!r} would lie over all of the image: name a folder below it",
        )


def _check_outputs(spec: Spec) -> None:
    if len(spec.expected_outputs) > PATTERNS_MAX:
        raise Refused(
            "expected_outputs_too_many",
            f"{len(spec.expected_outputs)} outputs are expected and at most {PATTERNS_MAX} can be "
            "stated: use a pattern",
        )
    for pattern in spec.expected_outputs:
        _check_text(pattern, "an expected output")
        check_pattern(pattern, "expected output")
    if spec.output_uri is not None:
        _check_text(spec.output_uri, "the output address")
        parse_destination(spec.output_uri)


def _check_declared_end(spec: Spec) -> None:
    """Without its agent nobody could check it: it would count as lost, and end further agents."""
    checks = {
        "--verify": spec.verify is not None,
        "--expect-output": bool(spec.expected_outputs),
        "--require-checkpoint": spec.require_checkpoint,
        "--type train": spec.type is JobType.TRAIN,
    }
    stated = [option for option, is_stated in checks.items() if is_stated]
    if spec.terminates_agent and stated:
        raise Refused(
            "terminates_agent_checked",
            f"the job ends its agent, and nobody could check afterwards what {stated[0]} asks for: "
            f"leave out {' and '.join(stated)}, or --terminates-agent",
        )


def check_sources(*, workdir: bool, repo: bool, host_dir: bool) -> None:
    """Raises `Refused` when a command would have to run in two folders."""
    named = [
        option
        for option, stated in (("--workdir", workdir), ("--repo", repo), ("--host-dir", host_dir))
        if stated
    ]
    if len(named) > 1:
        raise Refused(
            "working_folders_clash",
            f"{' and '.join(named)} each say where the command runs: use one of them",
        )


def check_repo(url: str, commit: str, folder: str | None) -> None:
    """Raises `Refused` for what no host could fetch, or what could mean another thing tomorrow."""
    flaw = url_flaw(url)
    if flaw is not None:  # the address is not repeated: it may hold a password
        raise Refused("repo_url_unusable", f"--repo cannot be used: {flaw}")
    flaw = commit_flaw(commit)
    if flaw is not None:
        raise Refused(
            "repo_ref_not_exact",
            f"--repo-ref {commit!r} is no full commit: {flaw}. `git rev-parse {commit}` in a clone "
            f"tells it, or `git ls-remote {url}`: 40 hexadecimal digits (64 of a SHA-256 "
            "repository)",
        )
    flaw = None if folder is None else folder_flaw(folder)
    if flaw is not None:
        raise Refused("repo_workdir_unusable", f"--repo-workdir {folder!r}: {flaw}")


def _check_priority(priority: int) -> None:
    if priority < 0:
        raise Refused("priority_negative", f"priority {priority} must be nonnegative")
    if priority > PRIORITY_MAX:
        raise Refused(
            "priority_too_large", f"priority {priority} is above the largest, {PRIORITY_MAX}"
        )


def _check_amount(name: str, value: float | None, unit: str) -> None:
    if value is not None and not 0 < value < AMOUNT_MAX:
        raise Refused(f"{name}_not_positive", f"{name} {value} must be a positive number of {unit}")


def _check_duration(name: str, seconds: int | None) -> None:
    """A program can hand over anything; True is no number of seconds."""
    if seconds is None:
        return
    if type(seconds) is not int or not 1 <= seconds <= DURATION_SECONDS_MAX:
        code = f"{name.replace('-', '_')}_invalid"
        raise Refused(code, f"{name} {seconds!r} must be {DURATION_FORM}, ten years at most")


def _check_count(name: str, count: int, most: int) -> None:
    if type(count) is not int or not 0 <= count <= most:
        raise Refused(
            f"{name.replace('-', '_')}_invalid",
            f"{name} {count!r} must be a whole number from 0 to {most}",
        )


def _check_retries(spec: Spec) -> None:
    if spec.retries is not None:
        _check_count("retries", spec.retries, RETRIES_MAX)
    _check_duration("retry-delay", spec.retry_delay_seconds)
    for reason in spec.retry_on:
        if reason not in RETRYABLE:
            raise Refused(
                "retry_on_invalid",
                f"nothing is tried again after {str(reason)!r}: there is {', '.join(RETRYABLE)}",
            )


def _check_variable_name(name: str) -> None:
    if not _ENVIRONMENT_NAME.fullmatch(name):
        raise Refused(
            "environment_name_invalid",
            f"environment name {name!r} cannot be set: letters, digits and _, "
            "not beginning with a digit",
        )
    if name.startswith("STADO_"):
        raise Refused(
            "environment_name_reserved",
            f"environment name {name} is reserved: stado sets the names that begin with STADO_",
        )
    if name == CARDS_VARIABLE:
        raise Refused(
            "environment_name_reserved",
            f"environment name {name} is reserved: a job finds the cards there that it asks for "
            "with --gpus or --vram-gb",
        )


def _check_secrets(spec: Spec) -> None:
    if len(spec.secrets) > SECRETS_MAX:
        raise Refused(
            "secrets_too_many",
            f"{len(spec.secrets)} secrets are named and at most {SECRETS_MAX} are taken",
        )
    for name, reference in spec.secrets.items():
        _check_variable_name(name)
        if name in spec.environment:
            raise Refused(
                "secret_name_taken",
                f"{name} is to be a secret and has a value in the environment too: state one",
            )
        item = reference.partition("#")[0].split("/")
        if not _SECRET_REFERENCE.fullmatch(reference):  # it may be the secret: not repeated
            raise Refused(
                "secret_reference_invalid",
                f"the secret for {name} is named by item and field, never by its value: write "
                "ITEM#FIELD, of letters, digits and _ + = . @ : / -",
            )
        if not {"", ".", ".."}.isdisjoint(item):
            raise Refused(
                "secret_reference_invalid",
                f"secret {reference!r} for {name} names nothing: an item is a path of names",
            )


def _check_environment(environment: dict[str, str]) -> None:
    for name, value in environment.items():
        _check_variable_name(name)
        _check_text(value, f"the value of {name}")
    size = sum(map(variable_bytes, environment.items()))
    if size > ENVIRONMENT_BYTES_MAX:
        raise Refused(
            "environment_too_large",
            f"the environment has {size} bytes and at most {ENVIRONMENT_BYTES_MAX} are taken "
            f"({largest_text(environment)}): let the job read what is large from a file",
        )


def variable_bytes(variable: tuple[str, str]) -> int:
    """What a name and its value take of what a host can execute."""
    name, value = variable
    return len(name) + len(value.encode(errors="surrogateescape")) + 2


def largest_text(environment: Mapping[str, str]) -> str:
    """`the largest: A with 200,002 bytes, B with 12`; values are never shown."""
    sizes = {item[0]: variable_bytes(item) for item in environment.items()}
    names = sorted(sizes, key=lambda name: (-sizes[name], name))[:_LARGEST_NAMED]
    first, *others = (f"{name} with {sizes[name]:,}" for name in names)
    return ", ".join([f"the largest: {first} bytes", *others])
