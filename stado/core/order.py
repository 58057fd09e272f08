"""The order of the queue, and what admission needs, in one key: a page of names is the head of
the queue, and says which of it fits, without reading a document.

The queue record is the authority: an entry that differs from what its record computes to admits
nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from stado.core import keys
from stado.core.clocks import time_limit
from stado.core.ids import milliseconds
from stado.core.records import Record
from stado.core.spec import CPU_DEFAULT, MEMORY_GB_DEFAULT, PRIORITY_MAX, Spec

_NAME = re.compile(
    r"(?:(?P<waits>w)-|d(?P<due>[0-9]{13})-)?(?P<inverted>[0-9]{19})-(?P<queued>[0-9]{13})-(?P<job>[a-z]{16}(?:-[0-9]{1,6})?)"
    r"\.(?P<epoch>[1-9][0-9]{0,5})\.(?P<nonce>[a-z0-9]{1,64})~(?P<needs>[a-z0-9.]*)"
)
_NEED = re.compile(r"([a-z])(0|[1-9][0-9]{0,14})")


@dataclass(frozen=True, slots=True)
class Needs:
    """What a job takes from its host, as the entry's name says it."""

    cpu_milli: int
    memory_mib: int
    deadline_ms: int | None = None
    """On the store's clock: when its time is up. The job may not be started after it."""
    image: bool = False
    """Whether its commands run in a container image."""

    def encode(self) -> str:
        code = f"c{self.cpu_milli}.m{self.memory_mib}"
        if self.deadline_ms is not None:
            code += f".t{self.deadline_ms}"
        return f"{code}.i1" if self.image else code


@dataclass(frozen=True, slots=True)
class ReadyEntry:
    """A parsed name in `index/ready/`."""

    name: str
    priority: int
    queued_ms: int
    job_id: str
    epoch: int
    needs: Needs
    due_ms: int | None = None
    """On the store's clock: not to be started before."""
    waits: bool = False
    """For other jobs to end."""

    def is_due(self, now_ms: int) -> bool:
        if self.waits:
            return False
        return self.due_ms is None or now_ms >= self.due_ms

    @property
    def doomed(self) -> bool:
        """What it was to follow did not end as it had to: its time was up from the beginning."""
        return self.needs.deadline_ms == 0

    @property
    def rank(self) -> tuple[int, int, str]:
        """Orders what may be started, first first: as the names do, but whatever a job waited for
        before."""
        return (-self.priority, self.queued_ms, self.job_id)


def needs_of(spec: Spec) -> Needs:
    """A job that states nothing takes one core and one GiB."""
    return Needs(
        cpu_milli=round((CPU_DEFAULT if spec.cpu is None else spec.cpu) * 1000),
        memory_mib=round((MEMORY_GB_DEFAULT if spec.memory_gb is None else spec.memory_gb) * 1024),
        deadline_ms=None if spec.deadline_at is None else max(0, milliseconds(spec.deadline_at)),
        image=spec.image is not None,
    )


def needs_of_record(record: Record) -> Needs:
    """As `needs_of`, with the moment at which the job's time is up, whatever limits it."""
    limit = time_limit(record)
    return replace(needs_of(record.spec), deadline_ms=None if limit is None else limit.at_ms)


def entry_name(record: Record) -> str:
    """The one name in `index/ready/` that this queue record computes to. What is not due yet sorts
    behind all others, by when it will be, and what waits for other jobs behind that."""
    inverted = PRIORITY_MAX - record.priority
    due = "" if record.due_ms is None else f"d{record.due_ms:013d}-"
    return (
        f"{'w-' if record.awaits else due}{inverted:019d}-{record.queued_ms:013d}-{record.id}"
        f".{record.epoch}.{record.nonce}~{needs_of_record(record).encode()}"
    )


def entry_key(record: Record) -> str:
    return keys.ready(entry_name(record))


def parse_entry(name: str) -> ReadyEntry | None:
    """The entry of this name; None for what is none, or needs what this version cannot judge."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    needs = _parse_needs(match["needs"])
    priority = PRIORITY_MAX - int(match["inverted"])
    if needs is None or priority < 0:
        return None
    return ReadyEntry(
        name=name,
        priority=priority,
        queued_ms=int(match["queued"]),
        job_id=match["job"],
        epoch=int(match["epoch"]),
        needs=needs,
        due_ms=None if match["due"] is None else int(match["due"]),
        waits=match["waits"] is not None,
    )


def _parse_needs(code: str) -> Needs | None:
    values: dict[str, int] = {}
    for part in code.split("."):
        match = _NEED.fullmatch(part)
        if match is None or match[1] in values:
            return None
        values[match[1]] = int(match[2])
    if not {"c", "m"} <= values.keys() <= {"c", "m", "t", "i"}:
        return None
    needs = Needs(
        cpu_milli=values["c"],
        memory_mib=values["m"],
        deadline_ms=values.get("t"),
        image="i" in values,
    )
    return needs if needs.encode() == code else None
