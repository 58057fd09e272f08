"""Every key of the store, built and parsed here and nowhere else.

Keys are plain ASCII; a component has at most 200 bytes and no dot in front. What does not fit is
replaced by a short hash, and the document behind it decides.
"""

from __future__ import annotations

import hashlib
import re

from stado.core.states import State

DEPLOYMENT = "stado.json"
SETTINGS = "settings.json"
RUNS = "runs/"
READY = "index/ready/"
QUEUE_MARKS = "index/ready/!"
"""So begin the marks that pause and resume the queue: they sort before every entry."""
CAPACITY = "capacity/"
ARTIFACTS = "artifacts/versions/"
POLICIES = "policies/"
NOTICES = "notify/pending/"
UNDELIVERED = "notify/undelivered/"
ROOMS = "room/"
SCHEDULES = "schedules/"
QUOTA = "quota/"
COORDINATOR_LEASE = "control/coordinator.json"
HOST_ORDERS = "control/hosts/"
USAGE = "usage/"
LEDGER = "ledger/index.json"
LEDGER_SEGMENTS = "ledger/segments/"
REST_ROWS = "ledger/newest"
"""The newest jobs at rest, for lists."""
HOST_REAPS = "control/reaps/"
ESTIMATES = "estimates.json"
ASSIGNMENTS = "assignments.json"
BUDGETS = "budgets.json"
PROOF = "control/proof"
"""Where a proof of the store's conditions writes, and cleans up after itself."""

_PREFIXES = {state: f"{state.value}/" for state in State} | {State.QUEUED: "queue/"}
_PLAIN = re.compile(r"[A-Za-z0-9_@+-][A-Za-z0-9._@+-]{0,194}")
"""Leaves room for `.json` in the 200 bytes of a component."""

_EPOCH = "((?!000000)[0-9]{6})"
"""Sequences count from 1 in six digits, too."""

_MARK = re.compile(r"([0-9]{15})-(paused|open)")
_MARK_MS_MAX = 10**15 - 1

_NOTICE = re.compile(r"([a-z0-9-]+)\.([1-9][0-9]{0,8})\.([a-z_]+)\.([a-z0-9_-]+)")
_OUTPUT_MANIFEST = re.compile(r"status/([^/]+)/output/([1-9][0-9]{0,5})/manifest\.json")
_ARTIFACT = re.compile(rf"([^@/]+)@{_EPOCH}\.json")
_ARTIFACT_USE = re.compile(rf"([^@/]+)@{_EPOCH}")

_EXPIRED = re.compile(rf"([a-z0-9-]+)\.{_EPOCH}(\.going)?")

_PART = re.compile(rf"{_EPOCH}-{_EPOCH}\.[0-9]{{6,9}}")

_POLICY_REVISION = re.compile(r"(.*)\.r([2-9]|[1-9][0-9]{1,5})")

_SLOT = re.compile(r"(~[0-9a-f]{24}|[A-Za-z0-9_@+-][A-Za-z0-9._@+-]{0,194})~([0-9]{6})")

_KEY_BYTES_MAX = 800
"""What every store takes (`stado.storage.keys`)."""

_COPIED_KEY_BYTES_MAX = 480
"""Leaves room for the folder before it."""


def component(text: str) -> str:
    """`text` where it is a plain key component, else a short hash of it."""
    if _PLAIN.fullmatch(text):
        return text
    return "~" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def prefix(state: State) -> str:
    return _PREFIXES[state]


def record(state: State, job_id: str) -> str:
    return f"{_PREFIXES[state]}{job_id}.json"


def job_of_record(key: str) -> str:
    """The job id in the key of a record (or of any `<folder>/<name>.json`)."""
    return key.rpartition("/")[2].removesuffix(".json")


def run(run_id: str) -> str:
    return f"{RUNS}{component(run_id)}.json"


def capacity(consumer: str) -> str:
    return f"{CAPACITY}{component(consumer)}.json"


def host_orders(consumer: str) -> str:
    return f"{HOST_ORDERS}{component(consumer)}.json"


def slots_of(scope: str) -> str:
    """The beginning of the names of a scope's slots: no scope's name has a `~` after its first
    character."""
    return f"{QUOTA}{component(scope)}~"


def slot(scope: str, number: int) -> str:
    return f"{slots_of(scope)}{number:06d}"


def slot_named(slot_name: str) -> str:
    """`slot_name`: what follows the folder in a slot's key."""
    return f"{QUOTA}{slot_name}"


def parse_slot(key: str) -> tuple[str, int] | None:
    """(scope's component, number) of a slot's key."""
    match = _SLOT.fullmatch(key.removeprefix(QUOTA)) if key.startswith(QUOTA) else None
    return (match[1], int(match[2])) if match else None


def runs_of_schedule(schedule_id: str) -> str:
    """The beginning of the names of the runs that it has submitted, which sort by time."""
    return f"{RUNS}{schedule_id}@"


def run_of_key(key: str) -> str:
    """The run id in the key of a run, where it stands there as it is."""
    return key.removeprefix(RUNS).removesuffix(".json")


def schedule(schedule_id: str) -> str:
    return f"{SCHEDULES}{schedule_id}.json"


def schedule_of_key(key: str) -> str:
    return key.removeprefix(SCHEDULES).removesuffix(".json")


def by_user(user: str, base: str) -> str:
    return f"index/by-user/{component(user)}/{base}"


def by_user_folder(user: str) -> str:
    return f"index/by-user/{component(user)}/"


def room(job_id: str) -> str:
    """Which host keeps room for a queued job."""
    return f"{ROOMS}{job_id}.json"


def ready(entry_name: str) -> str:
    return f"{READY}{entry_name}"


def cells(job_id: str) -> str:
    return f"status/{job_id}/cells/"


def awaited(job_id: str) -> str:
    """Marks a job for which another one waits, or has waited."""
    return f"status/{job_id}/awaited"


def after_folder(parent_id: str) -> str:
    return f"index/after/{parent_id}/"


def after(parent_id: str, job_id: str) -> str:
    return f"{after_folder(parent_id)}{job_id}"


def claim_cell(job_id: str, epoch: int) -> str:
    return f"{cells(job_id)}{epoch}.claim.json"


def end_cell(job_id: str, epoch: int) -> str:
    return f"{cells(job_id)}{epoch}.end.json"


def open_cell(job_id: str, epoch: int) -> str:
    return f"{cells(job_id)}{epoch}.open.json"


def parse_cell(key: str) -> tuple[int, str] | None:
    """(epoch, kind) of a cell's key; None for what is no cell."""
    match = re.fullmatch(r"([1-9][0-9]{0,5})\.(claim|end|open)\.json", key.rpartition("/")[2])
    return (int(match[1]), match[2]) if match else None


def taken_folder(parent_id: str) -> str:
    """The submissions that take along what a job left."""
    return f"index/taken/{parent_id}/"


def taken(parent_id: str, run_id: str) -> str:
    return f"{taken_folder(parent_id)}{component(run_id)}"


def run_of_taken(key: str) -> str:
    """The key of the run that such a name is of, if there is that run."""
    return f"{RUNS}{key.rpartition('/')[2]}.json"


def expired_folder(kind: str) -> str:
    return f"expired/{kind}/"


def expired_of(kind: str, job_id: str) -> str:
    """The beginning of the names that a job has there, by epoch."""
    return f"{expired_folder(kind)}{job_id}."


def expired(kind: str, job_id: str, epoch: int) -> str:
    """What a job left up to this epoch has gone."""
    return f"{expired_of(kind, job_id)}{epoch:06d}"


def expiring(kind: str, job_id: str, epoch: int) -> str:
    """It is about to go."""
    return f"{expired(kind, job_id, epoch)}.going"


def parse_expired(key: str) -> tuple[str, int, bool] | None:
    """(job id, epoch, whether all of it has gone) of either."""
    match = _EXPIRED.fullmatch(key.rpartition("/")[2])
    return (match[1], int(match[2]), match[3] is None) if match else None


def asks(job_id: str, epoch: int) -> str:
    return f"status/{job_id}/asks/{epoch}.json"


def heartbeat(job_id: str) -> str:
    return f"status/{job_id}/heartbeat"


def late(job_id: str, epoch: int) -> str:
    return f"status/{job_id}/late/{epoch}.json"


def follow_note(job_id: str) -> str:
    return f"status/{job_id}/watch"


def notice(job_id: str, epoch: int, word: str, channel: str) -> str:
    """`epoch`: of a pipeline the sum of its jobs'."""
    return f"{NOTICES}{job_id}.{epoch}.{word}.{channel}"


def undelivered(job_id: str, epoch: int, word: str, channel: str) -> str:
    return f"{UNDELIVERED}{job_id}.{epoch}.{word}.{channel}"


def parse_notice(key: str) -> tuple[str, int, str, str] | None:
    """(job id, epoch, word, channel) of a notice's key, be it pending or given up."""
    match = _NOTICE.fullmatch(key.rpartition("/")[2])
    return (match[1], int(match[2]), match[3], match[4]) if match else None


def log_folder(job_id: str) -> str:
    return f"status/{job_id}/log/"


def log_segment(job_id: str, epoch: int, offset: int) -> str:
    """`offset`: of its first byte, in all that the command printed in this epoch."""
    return f"{log_folder(job_id)}{epoch:06d}-{offset:016d}"


def log_segments_of(job_id: str, epoch: int) -> str:
    """The beginning of the names of an epoch's segments."""
    return f"{log_folder(job_id)}{epoch:06d}-"


def log_block(job_id: str, epoch: int, token: str, part: int) -> str:
    return f"{log_segments_of(job_id, epoch)}block.{token}.{part:06d}"


def log_index(job_id: str, epoch: int) -> str:
    """Sorts behind all segments and blocks of its epoch."""
    return f"{log_segments_of(job_id, epoch)}index"


def parse_log_index(key: str) -> int | None:
    """The epoch of a log index's key."""
    match = re.fullmatch(rf"{_EPOCH}-index", key.rpartition("/")[2])
    return int(match[1]) if match else None


def parse_log_segment(key: str) -> tuple[int, int] | None:
    """(epoch, offset) of a log segment's key."""
    match = re.fullmatch(rf"{_EPOCH}-([0-9]{{16}})", key.rpartition("/")[2])
    return (int(match[1]), int(match[2])) if match else None


def epoch_of_log(key: str) -> int | None:
    """Of whatever is in a job's folder of logs."""
    match = re.match(rf"{_EPOCH}-", key.rpartition("/")[2])
    return int(match[1]) if match else None


def queue_mark(at_ms: int, *, paused: bool) -> str:
    """The mark of who paused or resumed the queue at this moment of the store's clock. The newest
    sorts first."""
    return f"{QUEUE_MARKS}{_MARK_MS_MAX - at_ms:015d}-{'paused' if paused else 'open'}"


def parse_queue_mark(key: str) -> tuple[int, bool] | None:
    """(milliseconds, whether it pauses) of a mark."""
    match = _MARK.fullmatch(key.removeprefix(QUEUE_MARKS))
    return (_MARK_MS_MAX - int(match[1]), match[2] == "paused") if match else None


def host_reap(at_ms: int, token: str) -> str:
    """What somebody ended on a host at this moment of the store's clock. The newest sorts first."""
    return f"{HOST_REAPS}{_MARK_MS_MAX - at_ms:015d}-{token}.json"


def output_manifest(job_id: str, epoch: int) -> str:
    return f"status/{job_id}/output/{epoch}/manifest.json"


def parse_output_manifest(key: str) -> tuple[str, int] | None:
    """(job id, epoch) of an output manifest's key."""
    match = _OUTPUT_MANIFEST.fullmatch(key)
    return (match[1], int(match[2])) if match else None


def output_file(job_id: str, epoch: int, path: str) -> str:
    """The key of an output file; `path` is relative, with forward slashes. Where the key would
    be too long, the whole path is one component."""
    folder = f"status/{job_id}/output/{epoch}/files/"
    key = folder + "/".join(component(part) for part in path.split("/"))
    return key if len(key) <= _KEY_BYTES_MAX else folder + component(path)


def published(place: str) -> str:
    """The folder of a place that jobs send copies of their output to."""
    return f"published/{place}/"


def copied_file(job_id: str, path: str) -> str:
    """The key of an output file below wherever the copy goes: a folder as `published` gives it, or
    a store of its own."""
    folder = f"{job_id}/files/"
    key = folder + "/".join(component(part) for part in path.split("/"))
    return key if len(key) <= _COPIED_KEY_BYTES_MAX else folder + component(path)


def copied_manifest(job_id: str) -> str:
    return f"{job_id}/manifest.json"


def checkpoints_folder(job_id: str) -> str:
    return f"status/{job_id}/checkpoints/"


def checkpoint_part(job_id: str, epoch: int, sequence: int, part: int) -> str:
    return f"{checkpoints_folder(job_id)}{epoch:06d}-{sequence:06d}.{part:06d}"


def checkpoint_manifest(job_id: str, epoch: int, sequence: int) -> str:
    """Sorts after its parts, so that the last name of a finished checkpoint is its manifest."""
    return f"{checkpoints_folder(job_id)}{epoch:06d}-{sequence:06d}.manifest.json"


def parse_checkpoint_manifest(key: str) -> tuple[int, int] | None:
    """(epoch, sequence) of a checkpoint manifest's key."""
    match = re.fullmatch(rf"{_EPOCH}-{_EPOCH}\.manifest\.json", key.rpartition("/")[2])
    return (int(match[1]), int(match[2])) if match else None


def artifact(name: str, version: int) -> str:
    """A published version; names hold no `@`."""
    return f"{ARTIFACTS}{name}@{version:06d}.json"


def artifact_versions(name: str) -> str:
    """The beginning of the names of an artifact's versions, which sort oldest first."""
    return f"{ARTIFACTS}{name}@"


def parse_artifact(key: str) -> tuple[str, int] | None:
    """(name, version) of an artifact's key."""
    match = _ARTIFACT.fullmatch(key.removeprefix(ARTIFACTS)) if key.startswith(ARTIFACTS) else None
    return (match[1], int(match[2])) if match else None


def artifact_uses(job_id: str) -> str:
    """Folder of what is published of a job."""
    return f"artifacts/uses/{job_id}/"


def artifact_use(job_id: str, name: str, version: int) -> str:
    return f"{artifact_uses(job_id)}{name}@{version:06d}"


def parse_artifact_use(key: str) -> tuple[str, int] | None:
    """(name, version) of the artifact that uses a job's output."""
    match = _ARTIFACT_USE.fullmatch(key.rpartition("/")[2])
    return (match[1], int(match[2])) if match else None


def parse_checkpoint_part(key: str, job_id: str) -> tuple[int, int] | None:
    """(epoch, sequence) of the save that uploaded a part of this job; None for any other key."""
    folder = checkpoints_folder(job_id)
    match = _PART.fullmatch(key.removeprefix(folder)) if key.startswith(folder) else None
    return (int(match[1]), int(match[2])) if match else None


def epoch_of_save(key: str) -> int | None:
    """Of whatever belongs to a save: its parts and its manifest."""
    match = re.match(rf"{_EPOCH}-", key.rpartition("/")[2])
    return int(match[1]) if match else None


def is_checkpoint_manifest(key: str, job_id: str) -> bool:
    """Whether it is the key of some save of this job."""
    parsed = parse_checkpoint_manifest(key)
    return parsed is not None and key == checkpoint_manifest(job_id, *parsed)


def usage(use_name: str) -> str:
    return f"{USAGE}{use_name}"


def ledger_segment(name: str) -> str:
    return f"{LEDGER_SEGMENTS}{name}"


def policy(name: str) -> str:
    """`name`: `<id>`, or `<id>.r<revision>`."""
    return f"{POLICIES}{name}.json"


def parse_policy_name(name: str) -> tuple[str, int]:
    """Job id (which it may not be) and revision."""
    match = _POLICY_REVISION.fullmatch(name)
    return (match[1], int(match[2])) if match else (name, 1)


def snapshot(digest: str) -> str:
    """`digest`: of the tree."""
    return f"snapshots/{digest}/snapshot.json"


def snapshot_archive(digest: str, token: str) -> str:
    """`token`: of the upload. Its own folder: what is listed beside it are references."""
    return f"snapshots/{digest}/archive/{token}.tar.gz"


def snapshot_reference(digest: str, run_id: str) -> str:
    return f"{snapshot_references(digest)}{component(run_id)}"


def snapshot_references(digest: str) -> str:
    return f"snapshots/{digest}/refs/"
