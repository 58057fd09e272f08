"""What a role asks of a store, tried without changing anything in it.

Reads and deletes name objects that do not exist; replaces name a version that none has, so that who
may write is told that the condition fails. What is written once may only be created, which would
leave something: that is tried on a cell that is there already. What a role writes and may not read
(logs of an agent) is not tried, since a bucket wants both rights for a replace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from stado.core import keys
from stado.core.states import State
from stado.errors import Conflict, Denied, Exists, NotFound
from stado.jobs.repository import Repository

_NOBODY = "doctor-probe"
"""Stands for a job, a run, a host: none is called so."""

_NO_VERSION = "9000000000000000000"
"""A number, as Google asks for, of more microseconds than there were: no object has it. (0 would
stand for an object that is not there, which would be made.)"""


class Act(StrEnum):
    """What is tried."""

    READ = "read"
    LIST = "list"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Probe:
    """One request, and what it stands for."""

    act: Act
    key: str
    what: str
    """`a job's record in the queue`."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What came of one. `error` None: it is allowed; `tried` no: nothing was there to try it on."""

    probe: Probe
    error: Denied | None = None
    tried: bool = True


def probes_of(role: str) -> list[Probe]:
    """Raises `KeyError` for a role that is none."""
    return _ROLES[role]()


def try_role(repo: Repository, role: str) -> Iterator[Probed]:
    """A request each, two more for what is written once. Raises what keeps the store from
    answering."""
    for probe in probes_of(role):
        if probe.act is Act.CREATE:
            yield _create_again(repo, probe)
            continue
        try:
            _send(repo, probe)
        except Denied as error:
            yield Probed(probe, error)
        else:
            yield Probed(probe)


def _send(repo: Repository, probe: Probe) -> None:
    store, key = repo.store, probe.key
    try:
        if probe.act is Act.READ:
            store.get(key)
        elif probe.act is Act.LIST:
            store.list(key, limit=1)
        elif probe.act is Act.WRITE:
            store.replace(key, b"", _NO_VERSION)
        else:
            store.delete(key, None)
    except (NotFound, Conflict):
        pass


def _create_again(repo: Repository, probe: Probe) -> Probed:
    """On a cell, which nobody ever deletes: the bytes that are sent are its own."""
    for state in (State.COMPLETED, State.FAILED, State.CANCELLED, State.TIMED_OUT, State.RUNNING):
        for entry in repo.store.list(keys.prefix(state), limit=1):
            folder = keys.cells(keys.job_of_record(entry.key))
            for cell in repo.store.list(folder, limit=1):
                return _create_as_it_is(repo, probe, cell.key)
    return Probed(probe, tried=False)


def _create_as_it_is(repo: Repository, probe: Probe, key: str) -> Probed:
    try:
        repo.store.create(key, repo.store.get(key).data)
    except Denied as error:
        return Probed(probe, error)
    except (Exists, NotFound):
        pass
    return Probed(probe)


def _read(key: str, what: str) -> Probe:
    return Probe(Act.READ, key, what)


def _write(key: str, what: str) -> Probe:
    return Probe(Act.WRITE, key, what)


def _delete(key: str, what: str) -> Probe:
    return Probe(Act.DELETE, key, what)


_CELL = Probe(Act.CREATE, keys.cells(_NOBODY), "cells: what is decided of a job once and for all")


def _everybody() -> list[Probe]:
    records = [
        _read(keys.record(state, _NOBODY), f"records of jobs that are {state.value}")
        for state in State
    ]
    return [
        Probe(Act.LIST, keys.RUNS, "names of objects"),
        *records,
        _read(keys.run(_NOBODY), "submissions"),
        _read(keys.end_cell(_NOBODY, 1), "how jobs ended"),
        _read(keys.asks(_NOBODY, 1), "what was asked of jobs"),
        _read(keys.heartbeat(_NOBODY), "signs of life of jobs"),
        _read(keys.capacity(_NOBODY), "reports of agents"),
    ]


def _reader() -> list[Probe]:
    return [
        *_everybody(),
        _read(keys.SETTINGS, "settings of the deployment"),
        _read(keys.log_segment(_NOBODY, 1, 0), "logs"),
        _read(keys.output_manifest(_NOBODY, 1), "outputs of jobs"),
        _read(keys.checkpoint_manifest(_NOBODY, 1, 1), "checkpoints"),
        _read(keys.policy(_NOBODY), "policies of train jobs"),
        _read(keys.schedule(_NOBODY), "schedules"),
    ]


def _submitter() -> list[Probe]:
    return [
        *_reader(),
        _write(keys.run(_NOBODY), "submissions"),
        _write(keys.record(State.QUEUED, _NOBODY), "records of queued jobs"),
        _write(keys.ready(_NOBODY), "places in the queue"),
        _write(keys.asks(_NOBODY, 1), "what is asked of jobs (cancel, pause)"),
        _write(keys.schedule(_NOBODY), "schedules"),
        _CELL,
        _delete(keys.record(State.QUEUED, _NOBODY), "records of queued jobs"),
        _delete(keys.ready(_NOBODY), "places in the queue"),
        _delete(keys.record(State.FAILED, _NOBODY), "records of jobs that failed (retry, delete)"),
    ]


def _agent() -> list[Probe]:
    return [
        *_everybody(),
        _read(keys.SETTINGS, "settings of the deployment"),
        _read(keys.COORDINATOR_LEASE, "whether a coordinator acts"),
        _read(keys.checkpoint_manifest(_NOBODY, 1, 1), "checkpoints"),
        _write(keys.capacity(_NOBODY), "its reports"),
        _write(keys.record(State.RUNNING, _NOBODY), "records of running jobs"),
        _write(keys.heartbeat(_NOBODY), "signs of life of jobs"),
        _write(keys.output_manifest(_NOBODY, 1), "outputs of jobs"),
        _write(keys.checkpoint_manifest(_NOBODY, 1, 1), "checkpoints"),
        _CELL,
        _delete(keys.record(State.QUEUED, _NOBODY), "records of queued jobs"),
        _delete(keys.record(State.RUNNING, _NOBODY), "records of running jobs"),
        _delete(keys.ready(_NOBODY), "places in the queue"),
    ]


def _coordinator() -> list[Probe]:
    return [
        *_everybody(),
        _read(keys.SETTINGS, "settings of the deployment"),
        _read(keys.schedule(_NOBODY), "schedules"),
        _read(keys.LEDGER, "the ledger"),
        _write(keys.COORDINATOR_LEASE, "the lease of coordinators"),
        _write(keys.run(_NOBODY), "submissions"),
        _write(keys.record(State.QUEUED, _NOBODY), "records of queued jobs"),
        _write(keys.ready(_NOBODY), "places in the queue"),
        _write(keys.heartbeat(_NOBODY), "seals of lost jobs"),
        _write(keys.schedule(_NOBODY), "schedules"),
        _write(keys.ASSIGNMENTS, "assignments"),
        _write(keys.BUDGETS, "what is spent of budgets"),
        _write(keys.LEDGER, "the ledger"),
        _CELL,
        _delete(keys.record(State.RUNNING, _NOBODY), "records of running jobs"),
        _delete(keys.ready(_NOBODY), "places in the queue"),
        _delete(keys.capacity(_NOBODY), "reports of agents that are gone"),
        _delete(keys.usage(_NOBODY), "what jobs used, once it is in the ledger"),
        _delete(keys.notice(_NOBODY, 1, "completed", "x"), "notices that were sent"),
    ]


_ROLES: dict[str, Callable[[], list[Probe]]] = {
    "reader": _reader,
    "submitter": _submitter,
    "agent": _agent,
    "coordinator": _coordinator,
}
