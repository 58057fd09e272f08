"""Who has used what: a name for each epoch that ran and has ended, written by whoever settles it;
and sums of them, with what runs now.

A name goes only where a segment of the ledger has what it says, so what a job used stays known when
the job is deleted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from stado.core import keys
from stado.core.ids import milliseconds
from stado.core.records import EndCell, Record
from stado.core.states import State
from stado.core.usage import (
    DAY_MS,
    Use,
    digest_word,
    use_key,
    use_of,
    use_so_far,
)
from stado.errors import Exists, Unreadable
from stado.jobs.ledger import Ledger, read_uses
from stado.jobs.repository import PARALLEL_REQUESTS, Repository

RUNNING_MAX = 5_000
"""Jobs that run of which as much is read."""

_Name = tuple[str, int]
"""Of an epoch: the job's id, and its number."""


def note_use(repo: Repository, cell: EndCell) -> None:
    """Notes what an ended epoch used, if it ran: one write, and none otherwise. Before anything
    shows that the epoch has ended: who settles it after a crash notes the same."""
    use = use_of(cell)
    if use is None:
        return
    try:
        repo.store.create(use_key(use), b"")
    except Exists:
        return


@dataclass(slots=True)
class Sum:
    """Of what some epochs used."""

    wall_ms: int = 0
    gpu_ms: int = 0
    share_ms: float = 0.0
    epochs: int = 0
    running: int = 0
    """Of these epochs."""
    estimated: bool = False
    """Some end among them is the last sign of life."""

    def add(self, use: Use, *, running: bool) -> None:
        self.wall_ms += use.wall_ms
        self.gpu_ms += use.wall_ms * use.gpus
        self.share_ms += use.wall_ms * use.share_milli / 1000
        self.epochs += 1
        self.running += running
        self.estimated |= use.estimated

    def merge(self, other: Sum) -> None:
        self.wall_ms += other.wall_ms
        self.gpu_ms += other.gpu_ms
        self.share_ms += other.share_ms
        self.epochs += other.epochs
        self.running += other.running
        self.estimated |= other.estimated


_Parts = Callable[[Use], Iterable[tuple[str | None, Use]]]
"""What a use counts for, and which part of it."""

_PARTS: Mapping[str, _Parts] = {
    "user": lambda use: [(use.user, use)],
    "group": lambda use: [(use.group, use)],
    "job": lambda use: [(use.job_id, use)],
    "pipeline": lambda use: [(use.root, use)],
    "model": lambda use: [(use.model, use)],
    "target": lambda use: [(use.hardware, use)],
    "day": Use.by_day,
}


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody wants to know."""

    since: datetime
    by: str
    """`user`, `group`, `job`, `pipeline`, `model`, `target` (what it ran on) or `day`."""
    user: str | None = None
    """None: everybody."""

    def wants(self, user: str) -> bool:
        """A name that is too long for a key is told as it is there."""
        return self.user is None or user in (self.user, digest_word(self.user))


class Tally:
    """Sums of what came after a moment, in groups and of all."""

    def __init__(self, question: Question, began_at: datetime) -> None:
        """`began_at`: nothing was used before."""
        self.groups: dict[str | None, Sum] = {}
        self.total = Sum()
        self._question = question
        self.since_ms = max(milliseconds(question.since), _first_ms(began_at))
        self._parts = _PARTS[question.by]

    def add(self, use: Use, *, running: bool = False) -> None:
        within = use.since(self.since_ms)
        if within is None or not self._question.wants(within.user):
            return
        self.total.add(within, running=running)
        for name, part in self._parts(within):
            self.groups.setdefault(name, Sum()).add(part, running=running)

    def merge(self, other: Tally) -> None:
        self.total.merge(other.total)
        for name, group in other.groups.items():
            self.groups.setdefault(name, Sum()).merge(group)


@dataclass(frozen=True, slots=True)
class Running:
    """A job that runs."""

    record: Record
    use: Use | None
    """What it has used so far; None before its command was started."""

    @property
    def name(self) -> _Name:
        return self.record.id, self.record.epoch

    @property
    def gpus(self) -> int:
        return self.record.holder.gpus if self.record.holder is not None else 0


@dataclass(frozen=True, slots=True)
class UsageReport:
    """What was used from `since` until `until`."""

    since: datetime
    until: datetime
    tally: Tally
    running: list[Running]
    running_cut: bool
    """Whether more run than were looked at."""
    unreadable: list[str]
    """Jobs that run, of which nothing more is known."""
    dark: list[str]
    """Keys of segments of the ledger that cannot be read: what they hold is not counted."""

    @property
    def running_gpus(self) -> int:
        return sum(one.gpus for one in self.running)


def report_usage(repo: Repository, question: Question) -> UsageReport:
    """What was used, and what runs.

    Requests: two listings (a page each 1,000), the index of the ledger and each segment that
    reaches into that time, and two reads for each job that runs. What runs is listed first: what
    ends meanwhile is found among what has ended then, and counted once."""
    until = repo.now()
    seen = see_running(repo, until)
    running = {one.name: one for one in seen.found if question.wants(one.record.submitter)}
    tally = Tally(question, repo.deployment.created_at)
    ended = read_uses(Ledger(repo), repo, from_ms=tally.since_ms)
    for use in ended.uses():
        running.pop(use.name, None)
        tally.add(use)
    for one in running.values():
        if one.use is not None:
            tally.add(one.use, running=True)
    return UsageReport(
        question.since,
        until,
        tally,
        list(running.values()),
        running_cut=seen.cut,
        unreadable=seen.unreadable,
        dark=ended.unreadable,
    )


@dataclass(frozen=True, slots=True)
class SeenRunning:
    """What runs."""

    found: list[Running]
    unreadable: list[str]
    """Ids of jobs."""
    cut: bool
    """Whether more run than were looked at."""


def see_running(repo: Repository, now: datetime) -> SeenRunning:
    """A listing, and two reads a job."""
    names = _running_names(repo)
    looks = repo.tasks.map(
        lambda job_id: _look(repo, job_id, now), names[:RUNNING_MAX], limit=PARALLEL_REQUESTS
    )
    return SeenRunning(
        [look for look in looks if isinstance(look, Running)],
        [look for look in looks if isinstance(look, str)],
        len(names) > RUNNING_MAX,
    )


def _running_names(repo: Repository) -> list[str]:
    entries = itertools.islice(repo.walk_records(State.RUNNING), RUNNING_MAX + 1)
    return [keys.job_of_record(entry.key) for entry in entries]


def _look(repo: Repository, job_id: str, now: datetime) -> Running | str | None:
    """None when it has just ended; its id where it cannot be read."""
    try:
        found = repo.find_record(State.RUNNING, job_id)
    except Unreadable:
        return job_id
    if found is None:
        return None
    beat = repo.find_heartbeat(job_id)
    record = found.value
    return Running(record, use_so_far(record, beat.value if beat is not None else None, now))


def _first_ms(began_at: datetime) -> int:
    """What a host's clock may have said then."""
    return milliseconds(began_at) - DAY_MS
