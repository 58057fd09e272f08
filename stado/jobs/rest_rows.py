"""The newest jobs at rest in one object, so that a list reads that one instead of a record a row:
kept by a coordinator, read by lists.

Derived, and never believed: a row counts where its version is the one that the listing shows.
"""

from __future__ import annotations

from dataclasses import dataclass

from stado.core import keys
from stado.core.documents import decode
from stado.core.records import PolicySeal, Record, policy_name
from stado.core.rest_rows import ROW_BYTES_MAX, ROWS_MAX, RestRow, decode_rows, encode_rows
from stado.core.states import State
from stado.errors import Conflict, Exists, NotFound, Unreadable
from stado.jobs.policy_seals import find_seal
from stado.jobs.repository import PARALLEL_REQUESTS, Repository
from stado.storage.port import Entry, Version

_ENDED = tuple(state for state in State if state.terminal)
_TICKS_BETWEEN_LOOKS = 4
_LOOKS_MAX = 5
"""So many looks at most a row waits that is missing; where many are, none."""

_MISSING_MAX = 10
"""Rows at rest that a list has to read by themselves then."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A job at rest, as a list shows it."""

    record: Record
    seal: PolicySeal | None


class RestRows:
    """As one list reads them: at the first row that is asked for, in one request. Without the
    object, or with one that cannot be read, there are none."""

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._rows: dict[str, RestRow] | None = None

    def find(self, key: str, version: Version | None) -> Ended | None:
        """The job whose record is under this key in this version."""
        row = self._read().get(key)
        if row is None or version is None or row.version != version:
            return None
        try:
            record = decode(Record, key, row.record)
            seal_key = keys.policy(policy_name(record.id, record.policy_revision))
            seal = None if row.seal is None else decode(PolicySeal, seal_key, row.seal)
        except Unreadable:
            return None
        return Ended(record, seal)

    def _read(self) -> dict[str, RestRow]:
        if self._rows is None:
            self._rows = _find_rows(self._repo)[0]
        return self._rows


def _find_rows(repo: Repository) -> tuple[dict[str, RestRow], Version | None]:
    try:
        blob = repo.store.get(keys.REST_ROWS)
    except NotFound:
        return {}, None
    try:
        return decode_rows(blob.data), blob.version
    except Unreadable as error:
        repo.tell_unreadable(error)
        return {}, blob.version


class RestRowsKept:
    """A coordinator's pass. Keep it between ticks."""

    def __init__(self, repo: Repository, *, missing_max: int = _MISSING_MAX) -> None:
        self._repo = repo
        self._missing_max = missing_max
        self._ticks = 0
        self._looks = 0
        self._rows: dict[str, RestRow] = {}
        self._version: Version | None = None
        self._known = False

    def turn_when_due(self) -> int:
        """How many rows were read anew. Each fourth tick: a listing for each of the four prefixes.
        Where ten rows are missing, or some have been for five looks: a read for each of them (two
        for a train job), 500 at most, and a write."""
        due = self._ticks % _TICKS_BETWEEN_LOOKS == 0
        self._ticks += 1
        return self.turn() if due else 0

    def turn(self) -> int:
        if not self._known:
            self._rows, self._version = _find_rows(self._repo)
            self._known = True
        newest = self._newest()
        missing = [entry for entry in newest if not self._has(entry)]
        self._looks = self._looks + 1 if missing else 0
        if not missing or (len(missing) < self._missing_max and self._looks < _LOOKS_MAX):
            return 0
        self._looks = 0
        read = self._repo.tasks.map(self._row, missing, limit=PARALLEL_REQUESTS)
        fresh = {row.key: row for row in read if row is not None}
        kept = {entry.key: self._rows[entry.key] for entry in newest if self._has(entry)}
        self._write(kept | fresh)
        return len(fresh)

    def _newest(self) -> list[Entry]:
        """Of the jobs that have ended those that were submitted last."""
        pages = self._repo.tasks.map(
            lambda state: self._repo.store.list(keys.prefix(state), limit=ROWS_MAX),
            _ENDED,
            limit=len(_ENDED),
        )
        entries = [entry for page in pages for entry in page]
        entries.sort(key=lambda entry: keys.job_of_record(entry.key))
        return [entry for entry in entries[:ROWS_MAX] if entry.size <= ROW_BYTES_MAX]

    def _has(self, entry: Entry) -> bool:
        row = self._rows.get(entry.key)
        return row is not None and row.version == entry.version

    def _row(self, entry: Entry) -> RestRow | None:
        """None: it is gone, or cannot be read. Who lists it reads it, and tells that."""
        try:
            blob = self._repo.store.get(entry.key)
            record = decode(Record, entry.key, blob.data)
            seal = None
            if record.spec.makes_policy:
                seal = find_seal(self._repo, record.id, record.policy_revision)
                if seal is None:
                    return None
        except (NotFound, Unreadable):
            return None
        return RestRow(entry.key, blob.version, blob.data, None if seal is None else seal.encode())

    def _write(self, rows: dict[str, RestRow]) -> None:
        """Of two coordinators that write at once one looks at what the other wrote."""
        data = encode_rows(rows.values())
        self._known = False
        try:
            if self._version is None:
                self._version = self._repo.store.create(keys.REST_ROWS, data)
            else:
                self._version = self._repo.store.replace(keys.REST_ROWS, data, self._version)
        except (Conflict, Exists):
            return
        self._rows, self._known = rows, True
