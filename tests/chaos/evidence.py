"""What a run leaves: the bucket, and what its jobs wrote down themselves. Read here, judged in
`checker`. Reads the store by its port and the documents by their models, and by none of the code
that moves jobs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from stado.core import keys
from stado.core.documents import AnyDocument
from stado.core.ids import job_ids
from stado.core.records import Asks, ClaimCell, EndCell, Manifest, Record, RunRecord
from stado.core.states import State
from stado.errors import NotFound, Unreadable
from stado.jobs.log_segments import epochs_with_log
from stado.jobs.logs import LogReader
from stado.jobs.repository import Repository
from stado.storage.port import walk
from tests.chaos.ledger import CancelTold, Ledger

_READERS = 8


@dataclass(frozen=True)
class Trace:
    """A line that a job's process wrote."""

    what: str
    """started, lives, ended, verified; child: of one that left the session."""
    epoch: int
    pid: int
    uptime: float
    """Seconds since boot, to the hundredth; read before the line was written."""
    wall: float | None = None
    exit_code: int | None = None


@dataclass
class JobEvidence:
    """Everything about one job."""

    job_id: str
    records: dict[State, Record] = field(default_factory=dict)
    claims: dict[int, ClaimCell] = field(default_factory=dict)
    ends: dict[int, EndCell] = field(default_factory=dict)
    cancels_asked: set[int] = field(default_factory=set)
    """Epochs whose asks hold the flag."""
    manifests: dict[int, Manifest] = field(default_factory=dict)
    logs: dict[int, dict[int, bytes]] = field(default_factory=dict)
    """By epoch: the segments, by offset."""
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Of what is there of a manifest's files: size and SHA-256, by key."""
    traces: list[Trace] = field(default_factory=list)

    @property
    def record(self) -> Record | None:
        """The only one; None when there are none or several."""
        return next(iter(self.records.values())) if len(self.records) == 1 else None

    def first_epoch_of(self, epoch: int) -> int:
        """The epoch whose command an epoch has: its own, or that from which it was adopted."""
        while epoch > 1 and self.is_adopted(epoch):
            epoch -= 1
        return epoch

    def last_epoch_of(self, epoch: int) -> int:
        """Under which the command that was started in `epoch` was held last."""
        while self.is_adopted(epoch + 1):
            epoch += 1
        return epoch

    def is_adopted(self, epoch: int) -> bool:
        claim = self.claims.get(epoch)
        return bool(claim and claim.record.holder and claim.record.holder.adopted)

    def of(self, what: str, epoch: int | None = None) -> list[Trace]:
        return [
            trace for trace in self.traces if trace.what == what and epoch in (None, trace.epoch)
        ]


@dataclass
class Evidence:
    """Everything about a run."""

    jobs: dict[str, JobEvidence]
    index: list[str]
    runs: dict[str, RunRecord]
    told: dict[str, list[list[str]]]
    cancels: list[CancelTold]
    killed_commands: set[str]
    unreadable: list[str]
    """What is said of documents that are none."""


class _Reader:
    """Reads documents, and keeps what is said of those that cannot be read."""

    def __init__(self, repo: Repository) -> None:
        self.repo = repo
        self.unreadable: list[str] = []

    def find(self, kind: type[AnyDocument], key: str) -> AnyDocument | None:
        try:
            found = self.repo.find(kind, key)
        except Unreadable as error:
            self.unreadable.append(str(error))
            return None
        return None if found is None else found.value


def collect(repo: Repository, traces: Path, ledger: Ledger) -> Evidence:
    """Of a deployment that is at rest."""
    reader = _Reader(repo)
    runs = {run.run_id: run for run in _read_runs(reader)}
    ids = {job_id for run in runs.values() for job_id in job_ids_of(run)}
    ids |= {job_id for answers in ledger.told.values() for ids_ in answers for job_id in ids_}
    ids |= {path.name for path in traces.iterdir()}
    records = _read_records(reader)
    ids |= records.keys()
    found = repo.tasks.map(
        lambda job_id: _read_job(reader, job_id, records.get(job_id, {}), traces / job_id),
        sorted(ids),
        limit=_READERS,
    )
    return Evidence(
        jobs={job.job_id: job for job in found},
        index=[entry.key for entry in walk(repo.store, keys.READY)],
        runs=runs,
        told=ledger.told,
        cancels=ledger.cancels,
        killed_commands=set(ledger.killed_commands),
        unreadable=reader.unreadable,
    )


def job_ids_of(run: RunRecord) -> list[str]:
    return job_ids(run.base_id, count=run.count, batch=run.request.batch)


def _read_runs(reader: _Reader) -> Iterable[RunRecord]:
    for entry in walk(reader.repo.store, keys.RUNS):
        run = reader.find(RunRecord, entry.key)
        if run is not None:
            yield run


def _read_records(reader: _Reader) -> dict[str, dict[State, Record]]:
    found: dict[str, dict[State, Record]] = {}
    for state in State:
        for entry in walk(reader.repo.store, keys.prefix(state)):
            record = reader.find(Record, entry.key)
            if record is not None:
                found.setdefault(record.id, {})[state] = record
    return found


def _read_job(
    reader: _Reader, job_id: str, records: dict[State, Record], trace: Path
) -> JobEvidence:
    repo = reader.repo
    job = JobEvidence(job_id, records, traces=read_traces(trace))
    for entry in walk(repo.store, keys.cells(job_id)):
        parsed = keys.parse_cell(entry.key)
        assert parsed is not None, entry.key
        epoch, kind = parsed
        if kind == "claim" and (claim := reader.find(ClaimCell, entry.key)) is not None:
            job.claims[epoch] = claim
        if kind == "end" and (end := reader.find(EndCell, entry.key)) is not None:
            job.ends[epoch] = end
    for epoch in range(1, max([0, *job.claims, *job.ends]) + 2):
        _read_epoch(reader, job, epoch)
    for epoch in epochs_with_log(repo, job_id):
        job.logs[epoch] = _read_log(LogReader(repo, job_id, epoch))
    return job


def _read_log(log: LogReader) -> dict[int, bytes]:
    """By the place of each piece."""
    return {log.offset - len(piece): piece for piece in log.read_new() if isinstance(piece, bytes)}


def _read_epoch(reader: _Reader, job: JobEvidence, epoch: int) -> None:
    asks = reader.find(Asks, keys.asks(job.job_id, epoch))
    if asks is not None and asks.cancel:
        job.cancels_asked.add(epoch)
    manifest = reader.find(Manifest, keys.output_manifest(job.job_id, epoch))
    if manifest is None:
        return
    job.manifests[epoch] = manifest
    for file in manifest.files:
        try:
            data = reader.repo.store.get(file.key).data
        except NotFound:
            continue
        job.files[file.key] = (len(data), hashlib.sha256(data).hexdigest())


def read_traces(path: Path) -> list[Trace]:
    """In the order in which they were written; none of a job that never ran."""
    if not path.exists():
        return []
    return [_parse(line.split()) for line in path.read_text().splitlines()]


def _parse(words: list[str]) -> Trace:
    what, epoch, pid, uptime, *more = words
    return Trace(
        what=what,
        epoch=int(epoch),
        pid=int(pid),
        uptime=float(uptime),
        wall=float(more[0]) if more else None,
        exit_code=int(more[1]) if more and more[1] != "-" else None,
    )
