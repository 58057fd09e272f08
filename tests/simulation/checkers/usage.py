"""What jobs use: noted once for each epoch that ran, before anything shows its end, with the
figures of its verdict, which agree with what happened on the hosts; and never lost or doubled on
its way into the ledger."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta

from stado.core import keys
from stado.core.ids import milliseconds
from stado.core.ledger import LedgerIndex, SegmentRef, decode_segment
from stado.core.records import EndCell, Heartbeat, Phase, Ran, Record
from stado.core.states import State
from stado.core.usage import Use, parse_use, use_key, use_of
from tests.simulation.checkers.base import Change, Checker
from tests.simulation.commands import SimCommand
from tests.simulation.process import SimProcess

_ROUNDING = timedelta(milliseconds=1)

_SHOWN = {keys.prefix(state): state for state in State if state is not State.RUNNING}


class UsageChecker(Checker):
    """Invariant 11."""

    rule = "what an epoch used is noted once, first, and is what it used"

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._noted: dict[tuple[str, int], str] = {}
        self._rows: dict[tuple[str, int], Use] = {}
        """What the segments have that count."""
        self._segments: set[str] = set()
        self._commands: dict[tuple[str, int], list[SimCommand]] = defaultdict(list)
        """By the epoch that started them."""
        self._ended_at: dict[SimCommand, datetime | None] = {}
        """As its supervisor would say; None of one that has never looked at a clock."""

    def on_change(self, change: Change) -> None:
        if change.folder == "usage":
            self._check_use(change)
        elif change.key == keys.LEDGER:
            self._check_index(change)
        elif change.key.startswith(keys.LEDGER_SEGMENTS):
            self._check_segment(change)
        elif change.parts[2:] == ["heartbeat"] and change.before and change.after:
            self._check_seal(change)
        elif change.parts[2:3] == ["cells"] and change.key.endswith(".end.json"):
            self._check_verdict(change.decode_after(EndCell))
        elif f"{change.folder}/" in _SHOWN and change.after is not None:
            self._check_shown(change.decode_after(Record))

    def _check_use(self, change: Change) -> None:
        use = parse_use(change.parts[-1])
        if use is None:
            self.fail(f"{change.key} says nothing")
            return
        if change.before is not None:
            if change.after is not None:
                self.fail(f"{change.key} was changed")
            elif use != self._rows.get(use.name):
                self.fail(f"{change.key} was deleted, and no segment that counts has it")
            return
        cell = self._find(EndCell, keys.end_cell(use.job_id, use.epoch))
        due = use_of(cell) if cell is not None else None
        if due is None or use_key(due) != change.key:
            self.fail(f"{change.key} is not what the verdict says")
        earlier = self._noted.setdefault((use.job_id, use.epoch), change.key)
        if earlier != change.key:
            self.fail(f"{change.key} was noted as {earlier} before")

    def _check_segment(self, change: Change) -> None:
        if change.before is not None and change.after is not None:
            self.fail(f"{change.key} was changed")
        elif change.after is None and change.parts[-1] in self._segments:
            self.fail(f"{change.key} was deleted, and the index names it")

    def _check_index(self, change: Change) -> None:
        """What it names is there, has each epoch once, and what the one before had."""
        index = change.decode_after(LedgerIndex)
        rows: dict[tuple[str, int], Use] = {}
        for ref in index.segments:
            for use in self._rows_of(ref):
                if use.name in rows:
                    self.fail(f"{change.key} counts {use.job_id} of epoch {use.epoch} twice")
                if use_key(use) != self._noted.get(use.name):
                    self.fail(f"{change.key} has {use_key(use)}, which nobody noted")
                rows[use.name] = use
        for name in self._rows.keys() - rows.keys():
            self.fail(f"{change.key} forgets {name[0]} of epoch {name[1]}")
        self._rows = rows
        self._segments = {ref.name for ref in index.segments}

    def _rows_of(self, ref: SegmentRef) -> list[Use]:
        key = keys.ledger_segment(ref.name)
        if not self._exists(key):
            self.fail(f"{keys.LEDGER} names {key}, which is not there")
            return []
        return decode_segment(ref.name, self.world.store.get(key).data)

    def _check_seal(self, change: Change) -> None:
        """Of an epoch that was heard it says when that was last."""
        seal, before = change.decode_after(Heartbeat), change.decode_before(Heartbeat)
        if not seal.sealed or before.sealed or before.epoch != seal.epoch:
            return
        lived_at = before.at if before.phase is not Phase.UPLOADING else before.phase_since
        if seal.heard_at is None or seal.heard_at < (lived_at or before.at):
            self.fail(f"{change.key} was heard at {before.at}, and the seal says {seal.heard_at}")

    def on_start(self, command: SimCommand) -> None:
        self._commands[command.job_id, command.epoch].append(command)

    def on_command_end(self, command: SimCommand) -> None:
        self._ended_at[command] = self._believed_by(command.owner)

    def _check_shown(self, record: Record) -> None:
        """Of the epoch that the record shows as ended, or that it follows."""
        ran = record.ending.ran if record.ending is not None else None
        epoch = record.epoch if record.state.at_rest else record.epoch - 1
        if ran is not None and (record.id, epoch) not in self._noted:
            self.fail(f"{record.id} is {record.state}, and the use of epoch {epoch} is not noted")

    def _believed_by(self, process: SimProcess) -> datetime | None:
        """What its store's clock says."""
        if process.store_clock is None:
            return None
        at, since = process.store_clock
        seconds = at + process.host.monotonic() - since - self.world.kernel.now
        return self.world.store.now() + timedelta(seconds=seconds)

    def _check_verdict(self, cell: EndCell) -> None:
        record, ending = cell.record, cell.ending
        what = f"{record.id} of epoch {record.epoch}"
        if (ending.started_at is None) is not (ending.ran is None):
            self.fail(f"{what} started at {ending.started_at} and counts as {ending.ran}")
        if ending.ran is None:
            return
        if milliseconds(ending.ran.ended_at) > self.latest_now_ms:
            self.fail(f"{what} counts until {ending.ran.ended_at}, which is to come")
        self._check_once(record, ending.ran, what)
        self._check_sealed(record, ending.ran, what)
        self._check_commands(record, ending.ran, what)

    def _check_once(self, record: Record, ran: Ran, what: str) -> None:
        """An adopted command counts on where the epoch before ended, any other from its start."""
        before = self._find(EndCell, keys.end_cell(record.id, record.epoch - 1))
        assert record.holder is not None  # it ran
        if not record.holder.adopted:
            if ran.began_at < record.holder.claimed_at:
                self.fail(f"{what} counts from {ran.began_at}, before it was claimed")
        elif before is not None and (had := before.ending.ran) and ran.began_at < had.ended_at:
            self.fail(f"{what} counts twice what epoch {record.epoch - 1} had")

    def _check_sealed(self, record: Record, ran: Ran, what: str) -> None:
        beat = self._find(Heartbeat, keys.heartbeat(record.id))
        if beat is None or not beat.sealed or beat.epoch != record.epoch or not ran.estimated:
            return
        if beat.heard_at is not None and ran.ended_at < beat.heard_at:
            self.fail(f"{what} counts until {ran.ended_at}, and was heard at {beat.heard_at}")

    def _check_commands(self, record: Record, ran: Ran, what: str) -> None:
        """Who saw the end saw it when nothing lived any more. Of what was adopted another epoch
        started the command."""
        if ran.estimated:
            return
        for command in self._commands[record.id, record.epoch]:
            if command.exit_code is None:
                self.fail(f"{what} counts as ended, and its command lives")
            ended_at = self._ended_at.get(command)
            if ended_at is not None and ran.ended_at < ended_at - _ROUNDING:
                self.fail(f"{what} counts until {ran.ended_at}, and ran until {ended_at}")

    def at_end(self) -> None:
        for name, key in self._noted.items():
            if name not in self._rows and not self._exists(key):
                self.fail(f"{key} was noted, and is neither there nor in the ledger")
        for job_id in self.world.known_jobs:
            record = self._resting(job_id)
            for epoch in range(1, record.epoch + 1 if record is not None else 1):
                cell = self._find(EndCell, keys.end_cell(job_id, epoch))
                if cell is not None and cell.ending.ran and (job_id, epoch) not in self._noted:
                    self.fail(f"{job_id} has ended epoch {epoch}, and its use is not noted")
            self._check_sum(record)

    def _check_sum(self, record: Record | None) -> None:
        """The record has what the names have."""
        if record is None:
            return
        uses = [self._noted.get((record.id, epoch)) for epoch in range(1, record.epoch + 1)]
        noted = [parse_use(key.rpartition("/")[2]) for key in uses if key is not None]
        wall_ms = sum(use.wall_ms for use in noted if use is not None)
        if wall_ms != record.usage.wall_ms:
            self.fail(f"{record.id} tells of {record.usage.wall_ms} ms, its names of {wall_ms}")
