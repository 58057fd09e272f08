"""What a checker hears of a run, and how it says that a rule was broken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from stado.core import keys
from stado.core.documents import Document, decode
from stado.core.ids import milliseconds
from stado.core.records import ClaimCell, OpenCell, Record
from stado.core.spec import Spec
from stado.core.states import Opening, State
from stado.errors import NotFound
from stado.storage.observe import Operation
from tests.simulation.placing import Held

if TYPE_CHECKING:
    from tests.simulation.commands import SimCommand
    from tests.simulation.people import Answer
    from tests.simulation.process import SimHost, SimProcess
    from tests.simulation.world import World

AnyDocument = TypeVar("AnyDocument", bound=Document)


@dataclass(frozen=True)
class Violation:
    """A rule that was broken, by which checker it was found, and how."""

    rule: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.at:.3f}: {self.text}"


@dataclass(frozen=True)
class Change:
    """A write as the store applied it. `author` is None before the run begins."""

    at: float
    author: SimProcess | None
    key: str
    before: bytes | None
    after: bytes | None

    @cached_property
    def parts(self) -> list[str]:
        return self.key.split("/")

    @property
    def folder(self) -> str:
        return self.parts[0]

    @property
    def job_id(self) -> str | None:
        """Of the job whose state or status it belongs to."""
        if self.folder == "status":
            return self.parts[1]
        return self.parts[1].removesuffix(".json") if self.folder in _STATES else None

    @property
    def written_cell(self) -> str | None:
        """`claim`, `end` or `open`; None where it wrote no cell."""
        if self.folder != "status" or self.parts[2] != "cells" or self.after is None:
            return None
        return self.parts[3].split(".")[1]

    def decode_after(self, kind: type[AnyDocument]) -> AnyDocument:
        assert self.after is not None, "it was deleted"
        return decode(kind, self.key, self.after)

    def decode_before(self, kind: type[AnyDocument]) -> AnyDocument:
        assert self.before is not None, "there was nothing"
        return decode(kind, self.key, self.before)


_STATES = frozenset(("queue", "running", "paused", "completed", "failed", "cancelled", "timed_out"))


_DRIFT = 0.006
"""Clocks are fast by half a percent at most; each process reads the store's once."""

_ROUNDING_MS = 10


class Checker:
    """Hears of everything, in true order, and knows the whole world. `rule` names it."""

    rule = ""

    def __init__(self, world: World, report: Callable[[Violation], None]) -> None:
        self.world = world
        self._report = report

    def fail(self, text: str) -> None:
        self._report(Violation(self.rule, self.world.kernel.now, text))

    @property
    def latest_now_ms(self) -> float:
        """The latest that a process can believe it to be, on the store's clock."""
        passed = self.world.kernel.now
        return milliseconds(self.world.store.now()) + 1000 * _DRIFT * passed + _ROUNDING_MS

    def _find(self, kind: type[AnyDocument], key: str) -> AnyDocument | None:
        """As the store has it now."""
        try:
            return decode(kind, key, self.world.store.get(key).data)
        except NotFound:
            return None

    def _exists(self, key: str) -> bool:
        try:
            self.world.store.head(key)
        except NotFound:
            return False
        return True

    def _was_deleted(self, job_id: str) -> bool:
        """Whether somebody has decided that the job is deleted."""
        return any(cell.kind is Opening.DELETE for cell in self._openings(job_id))

    def _openings(self, job_id: str) -> list[OpenCell]:
        return self.world.openings(job_id)

    def _resting(self, job_id: str) -> Record | None:
        """The record at rest of a job, of the highest epoch if there are several."""
        found = (self._find(Record, keys.record(s, job_id)) for s in State if s.at_rest)
        records = [record for record in found if record is not None]
        return max(records, key=lambda record: record.epoch, default=None)

    def _held_on(self, host: SimHost) -> list[Held]:
        """Jobs whose commands live there, be their epochs over or not."""
        cards: dict[str, set[str]] = defaultdict(set)
        specs: dict[str, Spec] = {}
        for command in host.commands:
            claim = self._find(ClaimCell, keys.claim_cell(command.job_id, command.epoch))
            if claim is not None:
                cards[command.job_id].update(command.cards)
                specs[command.job_id] = claim.record.spec
        return [Held(job, spec, tuple(sorted(cards[job]))) for job, spec in specs.items()]

    def on_request(self, process: SimProcess, operation: Operation, key: str) -> None:
        """A request has reached the store."""

    def on_change(self, change: Change) -> None:
        """The store has applied a write."""

    def on_start(self, command: SimCommand) -> None:
        """A command is about to be executed."""

    def on_command_end(self, command: SimCommand) -> None:
        """It has ended, by itself or by a signal."""

    def on_answer(self, answer: Answer) -> None:
        """Somebody has got an answer from a use case."""

    def on_look(self) -> None:
        """No fault goes on any more, and it is looked whether all has come to rest."""

    def at_end(self) -> None:
        """All faults are over, and the run has come to rest, or to its bound."""


HOOKS = ("on_request", "on_change", "on_start", "on_command_end", "on_answer", "on_look", "at_end")
"""What a checker can listen to."""
