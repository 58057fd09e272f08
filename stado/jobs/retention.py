"""What of ended jobs is old enough to go, or takes too much room, what keeps it, and its going.

A walk through the records of ended jobs, newest submission first, side by side with the marks of
what has gone already: of what is too young, or has gone, nothing is read. Where a size is set for
outputs, the same walk adds up what they take, by the ledger; then they go, in the order in which
their jobs ended, until it fits. Any number may do it at once, and who was interrupted calls it
again.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from stado.core import keys
from stado.core.output_sizes import Left, OutputSizes, Room, enough
from stado.core.records import Record
from stado.core.retention import (
    AGE_SECONDS_MIN,
    OUTPUT_BYTES,
    PARTS,
    Keeps,
    Rules,
    rules_of,
    setting_of,
)
from stado.core.states import Leftover, Opening, State
from stado.errors import NotFound, Refused, Unreadable
from stado.jobs.deletion import delete
from stado.jobs.expiring import (
    expire,
    holding_of,
    is_begun,
    keeps_checkpoints,
    keeps_for_pipeline,
    keeps_outputs,
    note_nothing,
)
from stado.jobs.output_sizes import read_output_sizes
from stado.jobs.repository import Cells, Repository
from stado.jobs.settings import read_settings
from stado.storage.port import Entry, walk

_JOBS_AT_ONCE = 8
EMPTY_MAX = 100_000
"""Jobs that left nothing of what is to go: after so many a walk ends, too."""

_BATCH = 64
"""Jobs that are looked at before the next are: what an interruption stops in the middle of."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of one kind of thing that a job left, and that a rule would let go."""

    job_id: str
    kind: Leftover
    rule: str
    rested_at: datetime
    keeps: Keeps | None
    """What keeps it; None: it goes, or has gone."""
    objects: int = 0
    size: int = 0
    """In bytes, as far as the store counts them."""

    @property
    def is_whole_job(self) -> bool:
        return self.kind is Leftover.JOB

    @property
    def goes(self) -> bool:
        """False also where there is nothing of it, which is noted as gone."""
        return self.keeps is None and (self.objects > 0 or self.is_whole_job)


@dataclass(frozen=True, slots=True)
class _Mark:
    """What was noted of one kind of a job."""

    epoch: int
    """Of this one and those before."""
    gone: bool
    """False: somebody has begun, and may have died over it."""
    at: datetime


_Marks = Mapping[Leftover, Sequence[_Mark]]


@dataclass(frozen=True, slots=True)
class _Old:
    """A job of which something is old enough, as listings show it."""

    job_id: str
    entries: list[Entry]
    rested_at: datetime
    """When its record was written, by the store's clock: not before it came to rest."""
    marks: _Marks
    due: list[Leftover]
    keeps: Keeps | None
    """What keeps all of that, as the listings show."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An output that goes when its turn comes, if that is needed."""

    rested_at: datetime
    job_id: str
    states: tuple[State, ...]
    """Under which its record is."""
    marks: tuple[_Mark, ...]
    left: Left


def check_unchanged(repo: Repository, rules: Rules) -> None:
    """Raises `Refused` (`retention_changed`) where other rules are in force by now. A read."""
    now = rules_of(read_settings(repo).retention)
    if now == rules:
        return
    names = [setting_of(kind) for kind in Leftover if now.ages.get(kind) != rules.ages.get(kind)]
    names += [OUTPUT_BYTES] if now.output_bytes != rules.output_bytes else []
    names += ["retention.keep_newest"] if now.keep_newest != rules.keep_newest else []
    raise Refused(
        "retention_changed",
        f"{', '.join(names)} was changed meanwhile: what is gone is gone, nothing more goes; the "
        "same command goes on, by the rules that are in force then",
    )


class Retention:
    """One walk, by the rules that are in force when it is made."""

    room: Room | None = None
    """What outputs take, once it is over; None: no size is set for them."""

    is_cut = False
    """Whether it ended before all was looked at, for so many went, or had left nothing."""

    def __init__(
        self, repo: Repository, rules: Rules, *, by: str, empty_max: int = EMPTY_MAX
    ) -> None:
        self._repo = repo
        self._rules = rules
        self._by = by
        self._empty_max = empty_max
        self._now = repo.now()
        self._sizes: OutputSizes | None = None
        self._waiting: list[_Waiting] = []
        self._states: dict[tuple[State, ...], tuple[State, ...]] = {}
        """Each once in memory: of a million jobs most have the same."""
        self._by_age: dict[str, Keeps | None] = {}
        """Of outputs that are old enough: what keeps them; None: they went."""

    def outcomes(self, *, apply: bool, jobs_max: int) -> Iterator[list[Outcome]]:
        """Of what is old enough, some jobs at a time, until so many have something to go. `apply`:
        what may go has gone by then.

        A listing for each 1,000 ended jobs, and for each 1,000 marks; of a job that is old enough
        what is asked then. Where a size is set, the ledger is read before: `Unreadable` where that
        cannot be. Raises what the store raises: what was done stays done."""
        if self._rules.output_bytes is not None:
            self.room = Room(self._rules.output_bytes)
            self._sizes = read_output_sizes(self._repo)
        old, left, empty_left = self._old(), jobs_max, self._empty_max
        while min(left, empty_left) > 0 and (
            batch := list(itertools.islice(old, min(_BATCH, left, empty_left)))
        ):
            found = self._repo.tasks.map(
                lambda one: self._outcomes_of(one, apply=apply), batch, limit=_JOBS_AT_ONCE
            )
            going = sum(any(outcome.goes for outcome in some) for some in found)
            left -= going
            empty_left -= sum(any(one.keeps is None for one in some) for some in found) - going
            self._note_outputs(found)
            yield [outcome for some in found for outcome in some]
        self.is_cut = min(left, empty_left) <= 0
        if self.room is not None:
            yield from self._until_it_fits(
                self.room, apply=apply, jobs_max=0 if self.is_cut else left
            )

    # --- listings -----------------------------------------------------------------------

    def _old(self) -> Iterator[_Old]:
        youngest = self._rules.youngest_seconds
        if not self._rules.is_any:
            return
        kinds = {*self._rules.ages, *([] if self._sizes is None else [Leftover.OUTPUTS])}
        walks = {kind: _MarkWalk(self._repo, kind) for kind in PARTS if kind in kinds}
        for number, (job_id, entries) in enumerate(_ended(self._repo)):
            rested_at = max(entry.modified_at for entry in entries)
            rested_seconds = (self._now - rested_at).total_seconds()
            is_young = youngest is None or rested_seconds < youngest
            if is_young and self._sizes is None:
                continue
            marks = {kind: walks[kind].of_job(job_id) for kind in walks}
            self._add_up(number, job_id, entries, rested_at, marks.get(Leftover.OUTPUTS, []))
            if is_young:
                continue
            gone = [kind for kind in marks if _has_gone_since(marks[kind], rested_at)]
            due = self._rules.due(rested_seconds=rested_seconds, gone=gone)
            if due:
                keeps = (
                    Keeps.NEWEST
                    if number < self._rules.keep_newest
                    else _shown_to_keep(entries, due)
                )
                yield _Old(job_id, entries, rested_at, marks, due, keeps)

    # --- by size ------------------------------------------------------------------------

    def _add_up(
        self,
        number: int,
        job_id: str,
        entries: list[Entry],
        rested_at: datetime,
        marks: Sequence[_Mark],
    ) -> None:
        if self._sizes is None or self.room is None:
            return
        states = tuple(
            state
            for state in State
            if any(entry.key.startswith(keys.prefix(state)) for entry in entries)
        )
        gone = max((mark.epoch for mark in marks if mark.gone), default=0)
        left = self._sizes.take(job_id, after_epoch=gone, completed=State.COMPLETED in states)
        if _has_gone_since(marks, rested_at) or (left.is_known and not left.size):
            return
        self.room.add(left)
        if number < self._rules.keep_newest:
            self.room.keep(Keeps.NEWEST, left.size)
        elif (self._now - rested_at).total_seconds() < AGE_SECONDS_MIN:
            self.room.keep(Keeps.YOUNG, left.size)
        else:
            states = self._states.setdefault(states, states)
            self._waiting.append(_Waiting(rested_at, job_id, states, tuple(marks), left))

    def _note_outputs(self, found: Sequence[list[Outcome]]) -> None:
        for some in found:
            for outcome in some:
                if outcome.kind in (Leftover.OUTPUTS, Leftover.JOB) and self.room is not None:
                    self._by_age.setdefault(outcome.job_id, outcome.keeps)
                    if outcome.keeps is None:
                        self._by_age[outcome.job_id] = None

    def _until_it_fits(self, room: Room, *, apply: bool, jobs_max: int) -> Iterator[list[Outcome]]:
        """Those that ended first, a few at a time, and never one more than it takes: what was kept
        of some is asked of those that follow."""
        if jobs_max <= 0:
            room.is_whole = False
            return
        waiting = self._not_by_age(room)
        waiting.sort(key=lambda one: (one.rested_at, one.job_id))
        at = 0
        while room.beyond and at < len(waiting):
            if jobs_max <= 0:
                self.is_cut = True
                room.is_whole = False
                return
            following = waiting[at : at + min(_BATCH, jobs_max)]
            batch = following[: enough((one.left.size for one in following), room.beyond)]
            at += len(batch)
            found = self._repo.tasks.map(
                lambda one: self._by_size(one, apply=apply), batch, limit=_JOBS_AT_ONCE
            )
            for one, outcome in zip(batch, found, strict=True):
                if outcome is None or outcome.keeps is None:
                    room.let_go(one.left)
                else:
                    room.keep(outcome.keeps, one.left.size)
            told = [outcome for outcome in found if outcome is not None]
            jobs_max -= sum(outcome.goes for outcome in told)
            yield told

    def _not_by_age(self, room: Room) -> list[_Waiting]:
        """Of what was looked at for its age is known whether it goes, and what keeps it."""
        waiting = []
        for one in self._waiting:
            if one.job_id not in self._by_age:
                waiting.append(one)
                continue
            keeps = self._by_age[one.job_id]
            if keeps is None:
                room.let_go(one.left)
            else:
                room.keep(keeps, one.left.size)
        self._waiting = []
        return waiting

    def _by_size(self, one: _Waiting, *, apply: bool) -> Outcome | None:
        """None: its job has gone meanwhile, or goes on."""
        rule = self._rules.size_text
        try:
            found = [self._repo.find_record(state, one.job_id) for state in one.states]
            records = [stored.value for stored in found if stored is not None]
            record = max(records, key=lambda record: record.epoch, default=None)
            if record is None or record.ending is None:
                return None
            rested_at = max(one.rested_at, record.ending.ended_at)
            cells = self._repo.cells(one.job_id)
            keeps = None
            if cells.highest != record.epoch or record.epoch not in cells.ends:
                keeps = Keeps.GOES_ON
            elif (self._now - rested_at).total_seconds() < AGE_SECONDS_MIN:
                keeps = Keeps.YOUNG
            if keeps is not None:
                return Outcome(one.job_id, Leftover.OUTPUTS, rule, one.rested_at, keeps)
            old = _Old(one.job_id, [], one.rested_at, {Leftover.OUTPUTS: one.marks}, [], None)
            return self._outcome(old, record, cells, Leftover.OUTPUTS, rule, apply=apply)
        except Unreadable as error:
            self._repo.tell_unreadable(error)
            return Outcome(one.job_id, Leftover.OUTPUTS, rule, one.rested_at, Keeps.UNREADABLE)

    # --- one job ------------------------------------------------------------------------

    def _outcomes_of(self, old: _Old, *, apply: bool) -> list[Outcome]:
        if old.keeps is not None:
            return self._kept(old, old.keeps)
        try:
            return self._looked_at(old, apply=apply)
        except Unreadable as error:
            self._repo.tell_unreadable(error)
            return self._kept(old, Keeps.UNREADABLE)

    def _looked_at(self, old: _Old, *, apply: bool) -> list[Outcome]:
        record = self._record(old)
        if record is None or record.ending is None:
            return []  # it has just gone, or was taken out of its rest
        cells = self._repo.cells(old.job_id)
        goes_on = cells.highest != record.epoch or record.epoch not in cells.ends
        if goes_on and not self._is_being_deleted(record, cells):
            return self._kept(old, Keeps.GOES_ON)
        rested_at = max(old.rested_at, record.ending.ended_at)
        due = self._rules.due(
            rested_seconds=(self._now - rested_at).total_seconds(),
            gone=[kind for kind, marks in old.marks.items() if _has_gone(marks, record.epoch)],
        )
        outcomes: list[Outcome] = []
        for kind in [Leftover.JOB] if goes_on and Leftover.JOB in due else due:
            rule = self._rules.text(kind)
            outcome = self._outcome(old, record, cells, kind, rule, apply=apply)
            outcomes.append(outcome)
            if kind is Leftover.JOB and outcome.keeps is None:
                break
        return outcomes

    def _record(self, old: _Old) -> Record | None:
        """Of the highest epoch that the prefixes show."""
        found = [self._repo.find(Record, entry.key) for entry in old.entries]
        records = [stored.value for stored in found if stored is not None]
        return max(records, key=lambda record: record.epoch, default=None)

    def _is_being_deleted(self, record: Record, cells: Cells) -> bool:
        """By somebody who may have died over it."""
        following = record.epoch + 1
        if cells.highest != following or following not in cells.opens:
            return False
        return self._repo.open_cell(record.id, following).kind is Opening.DELETE

    def _kept(self, old: _Old, keeps: Keeps) -> list[Outcome]:
        return [
            Outcome(old.job_id, kind, self._rules.text(kind), old.rested_at, keeps)
            for kind in old.due
        ]

    def _outcome(
        self,
        old: _Old,
        record: Record,
        cells: Cells,
        kind: Leftover,
        rule: str,
        *,
        apply: bool,
    ) -> Outcome:
        keeps = self._keeps(record, kind)
        if keeps is not None:
            return Outcome(record.id, kind, rule, old.rested_at, keeps)
        if kind is Leftover.JOB:
            return self._job(old, record, cells, rule, apply=apply)
        holding = holding_of(self._repo, record, cells, kind)
        if apply and not holding.objects and not self._is_begun(old, record, kind):
            note_nothing(self._repo, record, kind, rule=rule, by=self._by)
        elif apply:
            keeps = expire(self._repo, record, kind, holding, rule=rule, by=self._by)
            if keeps is not None:
                return Outcome(record.id, kind, rule, old.rested_at, keeps)
        objects, size = len(holding.objects), holding.size
        return Outcome(record.id, kind, rule, old.rested_at, None, objects, size)

    def _is_begun(self, old: _Old, record: Record, kind: Leftover) -> bool:
        """Asked once nothing was found: whoever has deleted it made the mark before, and takes it
        away only once another one says that it has gone."""
        if any(not mark.gone for mark in old.marks[kind]):
            return True
        return is_begun(self._repo, record, kind)

    def _keeps(self, record: Record, kind: Leftover) -> Keeps | None:
        """Before anything is marked."""
        if kind is Leftover.LOG:
            return None
        if kind is Leftover.CHECKPOINTS:
            return keeps_checkpoints(record)
        return keeps_outputs(self._repo, record.id) or keeps_for_pipeline(self._repo, record)

    def _job(self, old: _Old, record: Record, cells: Cells, rule: str, *, apply: bool) -> Outcome:
        holdings = [holding_of(self._repo, record, cells, kind) for kind in PARTS]
        objects = sum(len(one.objects) for one in holdings)
        size = sum(one.size for one in holdings)
        if apply:
            try:
                delete(
                    self._repo,
                    record.id,
                    by=self._by,
                    note=rule,
                    epoch=record.epoch,
                    spare_taken=True,
                )
            except NotFound:
                pass  # somebody else was faster, and has finished it
            except Refused as error:
                keeps = Keeps.PUBLISHED if error.code == "output_published" else Keeps.GOES_ON
                return Outcome(record.id, Leftover.JOB, rule, old.rested_at, keeps)
        return Outcome(record.id, Leftover.JOB, rule, old.rested_at, None, objects, size)


def _ended(repo: Repository) -> Iterator[tuple[str, list[Entry]]]:
    """Ended jobs in the order of their ids, each with what shows it: of one whose record landed
    once more, long after, more than one entry."""
    walks = [repo.walk_records(state) for state in State if state.terminal]
    merged = heapq.merge(*walks, key=lambda entry: _order(keys.job_of_record(entry.key)))
    for job_id, entries in itertools.groupby(merged, key=lambda one: keys.job_of_record(one.key)):
        yield job_id, list(entries)


def _shown_to_keep(entries: list[Entry], due: list[Leftover]) -> Keeps | None:
    """What needs no look at the job: most of those that failed have nothing else to go."""
    completed = keys.prefix(State.COMPLETED)
    if due == [Leftover.CHECKPOINTS] and not any(
        entry.key.startswith(completed) for entry in entries
    ):
        return Keeps.MAY_BE_RETRIED
    return None


class _MarkWalk:
    """The marks of one kind, in the same order as the jobs that are asked for."""

    def __init__(self, repo: Repository, kind: Leftover) -> None:
        self._entries = walk(repo.store, keys.expired_folder(kind.value))
        self._next: tuple[str, _Mark] | None = None
        self._advance()

    def of_job(self, job_id: str) -> list[_Mark]:
        marks = []
        while self._next is not None and _order(self._next[0]) <= _order(job_id):
            if self._next[0] == job_id:
                marks.append(self._next[1])
            self._advance()
        return marks

    def _advance(self) -> None:
        self._next = None
        for entry in self._entries:
            parsed = keys.parse_expired(entry.key)
            if parsed is not None:
                job_id, epoch, gone = parsed
                self._next = job_id, _Mark(epoch, gone, entry.modified_at)
                return


def _has_gone_since(marks: Sequence[_Mark], rested_at: datetime) -> bool:
    """Whether nothing was left since: a job that was retried has come to rest after the mark."""
    return any(mark.gone and mark.at > rested_at for mark in marks)


def _has_gone(marks: Sequence[_Mark], epoch: int) -> bool:
    return any(mark.gone and mark.epoch >= epoch for mark in marks)


def _order(job_id: str) -> str:
    """As names sort that go on with a dot behind the id."""
    return f"{job_id}."
