"""The documents of one deployment, read and written as what they are.

One object a key; nothing here puts two writes in sequence. That is what the moves do
(`submit`, `claim`, `endings`, `changes`, `reaping`, `queue_index`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from stado.core import keys
from stado.core.documents import AnyDocument, Document, decode
from stado.core.ids import is_job_id, milliseconds
from stado.core.order import entry_key
from stado.core.records import (
    Asks,
    ClaimCell,
    Deployment,
    EndCell,
    Heartbeat,
    OpenCell,
    Record,
    RunRecord,
)
from stado.core.states import State
from stado.errors import Exists, NotFound, Unavailable, Unreadable
from stado.ports import Clock, Entropy, Tasks
from stado.storage.port import LIST_LIMIT_MAX, Entry, Meter, Store, Version, walk

log = logging.getLogger(__name__)

Value = TypeVar("Value", bound=Document)

PARALLEL_REQUESTS = 16
"""Reads of one command or pass that are in flight at once."""

_TOLD_MAX = 10_000
_ROUNDS_MAX = 20
_PAUSE_SECONDS = 0.05
"""The first pause between two rounds; each is longer by as much, ten seconds in all."""


@dataclass(frozen=True, slots=True)
class Stored(Generic[Value]):
    """A document as it was read."""

    value: Value
    version: Version


@dataclass(frozen=True, slots=True)
class Cells:
    """Which cells a job has, by epoch."""

    claims: frozenset[int]
    ends: frozenset[int]
    opens: frozenset[int]

    @property
    def highest(self) -> int:
        """The highest epoch that any cell names; 0 when there is no cell."""
        return max(self.claims | self.ends | self.opens, default=0)

    def begun(self, epoch: int) -> bool:
        """Whether the queue record of an epoch has done its work, or is not to be: somebody has
        the epoch, or it is over."""
        return epoch < self.highest or epoch in self.claims or epoch in self.ends


class Repository:
    """Everything that a move needs of a deployment: its store, its rules, and the ports."""

    def __init__(
        self,
        store: Store,
        deployment: Deployment,
        *,
        clock: Clock,
        entropy: Entropy,
        tasks: Tasks,
        meter: Meter | None = None,
    ) -> None:
        """`meter`: of what this process asks of the store; None: nobody counts."""
        self.store = store
        self.deployment = deployment
        self.clock = clock
        self.entropy = entropy
        self.tasks = tasks
        self.meter = meter
        self._told: set[str] = set()

    def now(self) -> datetime:
        """The store's clock: what orders and expires."""
        return self.store.now()

    def now_ms(self) -> int:
        return milliseconds(self.store.now())

    def rounds(self) -> Iterator[int]:
        """The attempts at a step that starts over when somebody else got ahead, or when a store
        shows late what was written: 20, with growing pauses and jitter between them."""
        for number in range(_ROUNDS_MAX):
            if number:
                self.clock.sleep(_PAUSE_SECONDS * number * self.entropy.uniform(0.75, 1.25))
            yield number

    def tell_unreadable(self, error: Unreadable) -> None:
        """One line an object, not one a look: it stays as it is until somebody mends it."""
        if error.key in self._told:
            return
        if len(self._told) == _TOLD_MAX:
            self._told.clear()
        self._told.add(error.key)
        log.warning("event=unreadable key=%s why=%r", error.key, error.why)

    # --- any document -------------------------------------------------------------------

    def read(self, kind: type[AnyDocument], key: str) -> Stored[AnyDocument]:
        """Raises `NotFound`, `Unreadable`."""
        blob = self.store.get(key)
        return Stored(decode(kind, key, blob.data), blob.version)

    def find(self, kind: type[AnyDocument], key: str) -> Stored[AnyDocument] | None:
        """None when the store holds no such object. Raises `Unreadable`."""
        try:
            return self.read(kind, key)
        except NotFound:
            return None

    def read_taken(self, kind: type[AnyDocument], key: str) -> Stored[AnyDocument]:
        """A document that is never deleted, and whose key was seen to be taken: it is waited for
        where a store shows it late. Raises `Unavailable`, `Unreadable`."""
        for _ in self.rounds():
            found = self.find(kind, key)
            if found is not None:
                return found
        raise Unavailable(key, "it was written but cannot be read yet: try again")

    def create(self, key: str, document: Document) -> Version | None:
        """None when the key is taken."""
        try:
            return self.store.create(key, document.encode())
        except Exists:
            return None

    # --- records ------------------------------------------------------------------------

    def find_record(self, state: State, job_id: str) -> Stored[Record] | None:
        return self.find(Record, keys.record(state, job_id))

    def walk_records(
        self, state: State, *, beginning: str = "", page_size: int = LIST_LIMIT_MAX
    ) -> Iterator[Entry]:
        """The records of a prefix whose job id starts with `beginning`, newest submission first.
        What is under a name that no job has is passed over."""
        for entry in walk(self.store, keys.prefix(state) + beginning, page_size=page_size):
            if is_job_id(keys.job_of_record(entry.key)):
                yield entry

    # --- cells --------------------------------------------------------------------------

    def cells(self, job_id: str) -> Cells:
        """One listing. A job has a few cells an epoch; more than a page is never read."""
        found: dict[str, set[int]] = {"claim": set(), "end": set(), "open": set()}
        for entry in walk(self.store, keys.cells(job_id)):
            parsed = keys.parse_cell(entry.key)
            if parsed is not None:
                found[parsed[1]].add(parsed[0])
        return Cells(frozenset(found["claim"]), frozenset(found["end"]), frozenset(found["open"]))

    def claim_cell(self, job_id: str, epoch: int) -> ClaimCell:
        """The cell of an epoch that was claimed. Raises `Unavailable`, `Unreadable`."""
        return self.read_taken(ClaimCell, keys.claim_cell(job_id, epoch)).value

    def find_claim(self, job_id: str, epoch: int) -> ClaimCell | None:
        found = self.find(ClaimCell, keys.claim_cell(job_id, epoch))
        return found.value if found else None

    def find_end(self, job_id: str, epoch: int) -> EndCell | None:
        """The verdict on an epoch; None while there is none."""
        found = self.find(EndCell, keys.end_cell(job_id, epoch))
        return found.value if found else None

    def open_cell(self, job_id: str, epoch: int) -> OpenCell:
        """The cell of an epoch that was opened. Raises `Unavailable`, `Unreadable`."""
        return self.read_taken(OpenCell, keys.open_cell(job_id, epoch)).value

    def find_open(self, job_id: str, epoch: int) -> OpenCell | None:
        found = self.find(OpenCell, keys.open_cell(job_id, epoch))
        return found.value if found else None

    # --- what surrounds a job -----------------------------------------------------------

    def find_asks(self, job_id: str, epoch: int) -> Stored[Asks] | None:
        return self.find(Asks, keys.asks(job_id, epoch))

    def find_heartbeat(self, job_id: str) -> Stored[Heartbeat] | None:
        """One that cannot be read counts as one of an epoch before the first: the holder's next
        beat replaces it, and so does a seal."""
        key = keys.heartbeat(job_id)
        try:
            blob = self.store.get(key)
        except NotFound:
            return None
        try:
            return Stored(decode(Heartbeat, key, blob.data), blob.version)
        except Unreadable as error:
            self.tell_unreadable(error)
            return Stored(Heartbeat(epoch=0, token="", by="", at=self.now()), blob.version)

    def find_run(self, run_id: str) -> Stored[RunRecord] | None:
        return self.find(RunRecord, keys.run(run_id))

    def create_entry(self, record: Record) -> bool:
        """The index entry of a queue record; False: it stands already, which is as good."""
        try:
            self.store.create(entry_key(record), b"")
        except Exists:
            return False
        return True

    def delete_entry(self, record: Record) -> None:
        self.store.delete(entry_key(record), None)
