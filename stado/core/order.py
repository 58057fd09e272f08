"""The order of the queue, and what admission needs, in one key: a page of names is the head of
the queue, and says which of it fits, without reading a document.

The queue record is the authority: an entry that differs from what its record computes to admits
nothing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from stado.core import keys
from stado.core.clocks import time_limit
from stado.core.envelope import (
    CODE_LENGTH,
    GPUS_MAX,
    RUNTIME_SECONDS_MAX,
    code_of,
    fact_codes,
    group_code,
    kind_code,
    required_facts,
)
from stado.core.ids import milliseconds
from stado.core.records import Record
from stado.core.spec import CPU_DEFAULT, MEMORY_GB_DEFAULT, PRIORITY_MAX, Spec
from stado.core.states import JobType

_NAME = re.compile(
    r"(?:(?P<waits>w)-|d(?P<due>[0-9]{13})-)?(?P<inverted>[0-9]{19})-(?P<queued>[0-9]{13})-(?P<job>[a-z]{16}(?:-[0-9]{1,6})?)"
    r"\.(?P<epoch>[1-9][0-9]{0,5})\.(?P<nonce>[a-z0-9]{1,64})~(?P<needs>[a-z0-9.]*)"
)
_FACTS_NAMED_MAX = 4
_NEEDS_BYTES_MAX = 110
"""With all that stands before them in a name they stay below what a store takes."""

_TYPES = {code_of(f"type:{one}"): one for one in JobType}

_NUMBER = re.compile(r"([cmtidgvxpr])(0|[1-9][0-9]{0,14})")
_CODES = re.compile(rf"([kfqlj])((?:[a-z2-7]{{{CODE_LENGTH}}})+)")


@dataclass(frozen=True, slots=True)
class Needs:
    """What a job takes from its host, as the entry's name says it."""

    cpu_milli: int
    memory_mib: int
    deadline_ms: int | None = None
    """On the store's clock: when its time is up. The job may not be started after it."""
    image: bool = False
    """Whether its commands run in a container image."""
    disk_mib: int = 0
    gpus: int = 0
    """Whole cards."""
    vram_mib: int = 0
    """Of each whole card; with no whole card: of one that others may share."""
    kind: str | None = None
    """Code of what the cards are called."""
    exclusive: bool = False
    facts: frozenset[str] = frozenset()
    """Codes of what the host has to be."""
    price_milli: int | None = None
    """Thousandths of a dollar an hour, that the host may cost."""
    group: str | None = None
    """Code of the group of which only so many jobs run at a time."""
    runtime_seconds: int | None = None
    """As the submitter says."""
    model: str | None = None
    """Code of what it trains or runs: its run time may have been measured."""
    job_type: str | None = None
    """Code of what it is for; None: nothing in particular."""

    @property
    def uses_cards(self) -> bool:
        return bool(self.gpus or self.vram_mib)

    def encode(self) -> str:
        """As much of it as a name has room for, the last first to be left out: whoever claims
        looks at the record."""
        parts = {
            "c": self.cpu_milli,
            "m": self.memory_mib,
            "t": self.deadline_ms,
            "i": 1 if self.image else None,
            "g": self.gpus or None,
            "v": self.vram_mib or None,
            "k": self.kind,
            "x": 1 if self.exclusive else None,
            "d": self.disk_mib or None,
            "f": "".join(sorted(self.facts)[:_FACTS_NAMED_MAX]) or None,
            "q": self.group,
            "p": self.price_milli,
            "r": self.runtime_seconds,
            "l": self.model,
            "j": self.job_type,
        }
        named = [f"{name}{value}" for name, value in parts.items() if value is not None]
        while sum(map(len, named)) + len(named) - 1 > _NEEDS_BYTES_MAX:
            named.pop()
        return ".".join(named)


class ReadyEntry(NamedTuple):
    """A parsed name in `index/ready/`. Of these there are thousands in a look at the queue."""

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

    def is_over(self, now_ms: int) -> bool:
        """Whether its time is up."""
        return self.needs.deadline_ms is not None and now_ms >= self.needs.deadline_ms

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
        disk_mib=_mib(spec.disk_gb),
        gpus=spec.gpus or int(spec.gpu_type is not None and spec.vram_gb is None),
        vram_mib=_mib(spec.vram_gb),
        kind=None if spec.gpu_type is None else kind_code(spec.gpu_type),
        exclusive=spec.exclusive,
        facts=fact_codes(tuple(required_facts(spec))),
        price_milli=None
        if spec.max_cost_per_hour is None
        else math.ceil(spec.max_cost_per_hour * 1000),
        group=None if spec.group is None else group_code(spec.group),
        runtime_seconds=spec.runtime_seconds_estimate,
        model=None if spec.model is None else model_code(spec.model),
        job_type=None if spec.type is JobType.JOB else code_of(f"type:{spec.type}"),
    )


def model_code(model: str) -> str:
    return code_of(f"model:{model}")


def job_type_of(code: str | None) -> JobType | None:
    """The type that a code stands for; None for what stands for none."""
    return JobType.JOB if code is None else _TYPES.get(code)


def _mib(gib: float | None) -> int:
    return 0 if gib is None else max(1, round(gib * 1024))


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
    waits, due, inverted, queued, job_id, epoch, _, code = match.groups()
    needs = parse_needs(code)
    priority = PRIORITY_MAX - int(inverted)
    if needs is None or priority < 0:
        return None
    due_ms = None if due is None else int(due)
    return ReadyEntry(
        name, priority, int(queued), job_id, int(epoch), needs, due_ms, waits is not None
    )


@lru_cache(maxsize=8192)
def parse_needs(code: str) -> Needs | None:
    """None for what is none, or says what this version cannot judge. Jobs of one kind have the
    same object."""
    values: dict[str, int] = {}
    codes: dict[str, str] = {}
    for part in code.split("."):
        number = _NUMBER.fullmatch(part)
        word = None if number else _CODES.fullmatch(part)
        if number is not None:
            values[number[1]] = int(number[2])
        elif word is not None:
            codes[word[1]] = word[2]
        else:
            return None
    if not {"c", "m"} <= values.keys():
        return None
    needs = Needs(
        cpu_milli=values["c"],
        memory_mib=values["m"],
        deadline_ms=values.get("t"),
        image="i" in values,
        disk_mib=values.get("d", 0),
        gpus=values.get("g", 0),
        vram_mib=values.get("v", 0),
        kind=codes.get("k"),
        exclusive="x" in values,
        facts=frozenset(_codes_in(codes.get("f", ""))),
        price_milli=values.get("p"),
        group=codes.get("q"),
        runtime_seconds=values.get("r"),
        model=codes.get("l"),
        job_type=codes.get("j"),
    )
    return needs if _is_possible(needs) and needs.encode() == code else None


def _is_possible(needs: Needs) -> bool:
    """Whether a spec can ask for it: others work with these numbers."""
    seconds = needs.runtime_seconds
    return needs.gpus <= GPUS_MAX and (seconds is None or 1 <= seconds <= RUNTIME_SECONDS_MAX)


def _codes_in(text: str) -> list[str]:
    return [text[at : at + CODE_LENGTH] for at in range(0, len(text), CODE_LENGTH)]
