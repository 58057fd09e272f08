"""The ledger, made anew from the verdicts: for one whose segments or index are gone or spoilt.

Nothing is given up that somebody can still read: what a segment tells of an epoch whose verdict
cannot be found stays, so does a segment that cannot be read unless its loss is asked for, and where
a newer program wrote one, nothing is done at all. New segments are created first, then the index is
replaced by version; a crash before that leaves segments that nobody names, which the coordinator's
sweep deletes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from stado.core import keys
from stado.core.ids import job_ids
from stado.core.ledger import (
    SEGMENT_ROWS_MAX,
    LedgerIndex,
    NewerSegment,
    SegmentRef,
    decode_segment,
    encode_segment,
    in_order,
    is_segment_name,
    segment_of,
)
from stado.core.records import RunRecord
from stado.core.usage import Use, use_of
from stado.errors import Conflict, NotFound, Refused, Unreadable
from stado.jobs.ledger import Ledger, next_index
from stado.jobs.repository import PARALLEL_REQUESTS, Repository, Stored
from stado.storage.port import walk

_CHUNK = 512
_TOKEN_LETTERS = 16
_ROUNDS_MAX = 20

_Name = tuple[str, int]


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What came of it."""

    jobs: int
    """Whose verdicts were looked for."""
    uses: int
    """In the new segments."""
    found: int
    """Of these, that no segment had before."""
    kept: int
    """Of these, whose verdicts are not there."""
    segments: int
    unreadable: list[str]
    """Keys of what could not be read."""
    left: list[str]
    """Of these, segments that stay where they are: the index goes on to name them."""
    removed: list[str]
    """Of these, segments that were deleted, as was asked for."""


@dataclass(slots=True)
class _Found:
    """What the segments are that are there."""

    uses: dict[_Name, Use] = field(default_factory=dict)
    readable: list[str] = field(default_factory=list)
    spoilt: list[str] = field(default_factory=list)
    """Names of segments."""


class Rebuild:
    """One command's work."""

    def __init__(self, repo: Repository, *, by: str, drop_unreadable: bool = False) -> None:
        """`drop_unreadable`: segments that nobody can read are deleted."""
        self._repo = repo
        self._by = by
        self._drops = drop_unreadable
        self._ledger = Ledger(repo)
        self._unreadable: list[str] = []

    def run(self, tell: Callable[[int], None] = lambda _: None) -> RebuildReport:
        """Requests: a read for each submission, a listing for each job, a read for each ended
        epoch, and a few for the segments. `tell` gets how many jobs were looked at. Raises
        `Conflict` where others write the index all the time, `Refused` before anything is
        changed where a newer program wrote a segment."""
        self._found()
        uses: dict[_Name, Use] = {}
        jobs = 0
        names = self._job_ids()
        while chunk := list(itertools.islice(names, _CHUNK)):
            for ended in self._repo.tasks.map(self._uses_of, chunk, limit=PARALLEL_REQUESTS):
                uses.update((use.name, use) for use in ended)
            jobs += len(chunk)
            tell(jobs)
        for _ in range(_ROUNDS_MAX):
            stored = self._index()
            found = self._found()
            kept = {name: use for name, use in found.uses.items() if name not in uses}
            rows = in_order([*uses.values(), *kept.values()])
            left = [] if self._drops else _left(stored, found.spoilt)
            refs = [self._written(part) for part in _parts(rows)]
            following = next_index(self._repo, stored, [*left, *refs], by=self._by)
            try:
                self._ledger.write_index(following, stored)
            except Conflict:  # something was compacted meanwhile: that stays, too
                self._delete([ref.name for ref in refs])
                continue
            removed = found.spoilt if self._drops else []
            self._delete([*found.readable, *removed])
            return RebuildReport(
                jobs,
                len(rows),
                len(rows) - len(found.uses),
                len(kept),
                len(refs),
                unreadable=sorted(set(self._unreadable)),
                left=sorted(keys.ledger_segment(ref.name) for ref in left),
                removed=sorted(map(keys.ledger_segment, removed)),
            )
        raise Conflict(keys.LEDGER)

    def _job_ids(self) -> Iterator[str]:
        """Of deleted jobs, too: their verdicts stay."""
        runs = walk(self._repo.store, keys.RUNS)
        while chunk := list(itertools.islice(runs, _CHUNK)):
            found = self._repo.tasks.map(
                lambda entry: self._run(entry.key), chunk, limit=PARALLEL_REQUESTS
            )
            for run in found:
                if run is not None:
                    yield from job_ids(run.base_id, count=run.count, batch=run.request.batch)

    def _run(self, key: str) -> RunRecord | None:
        try:
            found = self._repo.find(RunRecord, key)
        except Unreadable as error:
            self._unreadable.append(error.key)
            return None
        return None if found is None else found.value

    def _uses_of(self, job_id: str) -> list[Use]:
        uses = []
        for epoch in sorted(self._repo.cells(job_id).ends):
            try:
                cell = self._repo.find_end(job_id, epoch)
            except Unreadable as error:
                self._unreadable.append(error.key)
                continue
            use = None if cell is None else use_of(cell)
            if use is not None:
                uses.append(use)
        return uses

    def _index(self) -> Stored[LedgerIndex] | None:
        """One that cannot be read names nothing, and is replaced all the same."""
        try:
            return self._ledger.index()
        except Unreadable:
            self._unreadable.append(keys.LEDGER)
        version = self._repo.store.head(keys.LEDGER).version
        # Whatever counter it had: no index of ours shall be the same as one of before.
        empty = LedgerIndex(counter=self._repo.now_ms(), at=self._repo.now(), by=self._by)
        return Stored(empty, version)

    def _found(self) -> _Found:
        """Of all segments that are there, whether the index names them or not: each tells of
        epochs that have ended."""
        found = _Found()
        for entry in walk(self._repo.store, keys.LEDGER_SEGMENTS):
            name = entry.key.rpartition("/")[2]
            try:
                rows = decode_segment(name, self._repo.store.get(entry.key).data)
            except NotFound:
                continue
            except NewerSegment as error:
                raise Refused("newer_segment", f"{error}; nothing was changed") from None
            except Unreadable as error:
                self._unreadable.append(error.key)
                found.spoilt.append(name)
                continue
            found.readable.append(name)
            found.uses.update((use.name, use) for use in rows)
        return found

    def _written(self, rows: list[Use]) -> SegmentRef:
        ref = segment_of(rows, token=self._repo.entropy.letters(_TOKEN_LETTERS))
        self._repo.store.create(keys.ledger_segment(ref.name), encode_segment(rows))
        return ref

    def _delete(self, names: list[str]) -> None:
        self._repo.tasks.map(
            lambda name: self._repo.store.delete(keys.ledger_segment(name), None),
            names,
            limit=PARALLEL_REQUESTS,
        )


def _left(stored: Stored[LedgerIndex] | None, spoilt: list[str]) -> list[SegmentRef]:
    """Segments that cannot be read, as the index goes on to name them: what it does not name, the
    sweep deletes, and should where it was not named before. Where there is no index, or none that
    can be read, nobody knows: each of them stays by what its name says."""
    if stored is not None and stored.value.segments:
        return [ref for ref in stored.value.segments if ref.name in spoilt]
    return [
        SegmentRef(name=name, rows=0, first_ms=int(name[:13]), last_ms=int(name[:13]))
        for name in spoilt
        if is_segment_name(name)
    ]


def _parts(rows: list[Use]) -> Iterator[list[Use]]:
    for begin in range(0, len(rows), SEGMENT_ROWS_MAX):
        yield rows[begin : begin + SEGMENT_ROWS_MAX]
