"""Ending what jobs left on a host: who did so, kept in the store. It changes no job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from stado.core import keys
from stado.core.ids import is_job_id, milliseconds
from stado.core.records import REAPED_MAX, HostReap, ReapedProcess, ReapOutcome
from stado.errors import Conflict, Refused, StoreError, Unreadable
from stado.jobs.repository import PARALLEL_REQUESTS, Repository
from stado.ports import HostProcess, HostProcesses
from stado.storage.port import Version

_LINE_MAX = 1024
_EPOCH_MAX = 999_999


@dataclass(frozen=True, slots=True)
class Reaped:
    """What became of processes that were to be ended."""

    record: HostReap
    untold: str | None = None
    """Why the store knows that they were to be ended, and not what became of them."""


def of_jobs(found: Sequence[HostProcess]) -> list[HostProcess]:
    """Those whose environment names what can be a job."""
    return [one for one in found if is_job_id(one.job_id)]


def reap(
    repo: Repository,
    processes: HostProcesses,
    found: Sequence[HostProcess],
    *,
    host: str,
    command: str,
    by: str,
    grace_seconds: float,
) -> Reaped:
    """Ends these processes, and keeps that before and after. Nothing is signalled that the store
    does not know of. Raises `Refused` for more than can be kept at once, and what the store raises
    before anything is signalled."""
    if len(found) > REAPED_MAX:
        raise Refused(
            "too_many_processes",
            f"{len(found)} processes would be ended and {REAPED_MAX} can be at once: name "
            "another program first",
        )
    asked = HostReap(
        token=repo.entropy.token(),
        host=host[:_LINE_MAX],
        command=command[:_LINE_MAX],
        by=by,
        at=repo.now(),
        processes=[_process(one) for one in found],
    )
    version = _create(repo, asked)
    ends = processes.end(found, grace_seconds=grace_seconds)
    done = asked.evolve(
        processes=[
            one.evolve(outcome=ReapOutcome(end.value))
            for one, end in zip(asked.processes, ends, strict=True)
        ]
    )
    try:
        key = keys.host_reap(milliseconds(done.at), done.token)
        repo.store.replace(key, done.encode(), version)
    except StoreError as error:
        return Reaped(done, str(error))
    return Reaped(done)


def _create(repo: Repository, asked: HostReap) -> Version:
    key = keys.host_reap(milliseconds(asked.at), asked.token)
    version = repo.create(key, asked)
    if version is None:
        raise Conflict(key, "another one is there: try again")
    return version


def _process(one: HostProcess) -> ReapedProcess:
    return ReapedProcess(
        pid=one.identity.pid,
        job_id=one.job_id,
        epoch=one.epoch if one.epoch is not None and 1 <= one.epoch <= _EPOCH_MAX else None,
        program=one.program[:_LINE_MAX],
        started_at=datetime.fromtimestamp(max(0.0, one.started_at), UTC),
    )


def newest_reaps(repo: Repository, *, limit: int) -> Iterator[HostReap]:
    """The newest first. One listing, and a read each; what cannot be read is left out, and told."""
    entries = repo.store.list(keys.HOST_REAPS, limit=limit)

    def read(key: str) -> HostReap | None:
        try:
            found = repo.find(HostReap, key)
        except Unreadable as error:
            repo.tell_unreadable(error)
            return None
        return None if found is None else found.value

    looks = repo.tasks.map(read, [entry.key for entry in entries], limit=PARALLEL_REQUESTS)
    return (one for one in looks if one is not None)
