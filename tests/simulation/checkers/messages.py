"""Messages: each end that a rule asks for is told, as it was, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from stado.core import keys
from stado.core.notices import channels_for
from stado.core.records import Asks, ClaimCell, EndCell, Record
from stado.core.states import NotifyOn, State
from stado.storage.port import walk
from tests.simulation.checkers.base import Change, Checker, Violation

if TYPE_CHECKING:
    from tests.simulation.world import World


class MessagesChecker(Checker):
    """At least once each; of two with one id neither says what the other does not."""

    rule = "what is asked to be told is told as it is"

    def __init__(self, world: World, report: Callable[[Violation], None]) -> None:
        super().__init__(world, report)
        self._due: dict[tuple[str, str], tuple[str, str]] = {}
        """By channel and id: the key of the notice, and what the message has to say."""
        self._may: set[tuple[str, str]] = set()
        self._pauses: dict[tuple[str, str], Record] = {}
        self._cancelled: set[str] = set()
        """Keys of the asks in which somebody has asked to cancel: they may be deleted since."""

    def on_change(self, change: Change) -> None:
        if change.written_cell == "end":
            end = change.decode_after(EndCell)
            if end.ending.verdict.state is not None:
                self._expect(end.record, NotifyOn(end.ending.verdict.value))
        elif change.written_cell == "claim":
            claim = change.decode_after(ClaimCell)
            for channel in channels_for(claim.record.notice_rules, NotifyOn.RUNNING):
                self._may.add((channel, f"{claim.record.id}.{claim.record.epoch}.running"))
        elif change.parts[2:3] == ["asks"] and change.after is not None:
            self._cancelled |= {change.key} if change.decode_after(Asks).cancel else set()

    def _expect(self, record: Record, word: NotifyOn) -> None:
        for channel in channels_for(record.notice_rules, word):
            key = keys.notice(record.id, record.epoch, word, channel)
            told = f"{record.id}.{record.epoch}.{word}"
            self._due[channel, told] = (key, word.value)
            if word is NotifyOn.PAUSED:
                self._pauses[channel, told] = record

    def _was_cancelled(self, paused: Record | None) -> bool:
        """Whether a job may have been cancelled before anybody saw it paused."""
        return paused is not None and keys.asks(paused.id, paused.epoch) in self._cancelled

    def at_end(self) -> None:
        heard: dict[tuple[str, str], bytes] = {}
        for channel, body in self.world.messages:
            told = channel, json.loads(body)["id"]
            if heard.setdefault(told, body) != body:
                self.fail(f"{told} was told as {body!r} and as {heard[told]!r}")
        for told, (key, status) in self._due.items():
            if told in heard:
                if json.loads(heard[told])["status"] != status:
                    self.fail(f"{told} was told as {heard[told]!r}")
            elif self._was_cancelled(self._pauses.get(told)):
                continue
            elif self.world.has_channels or not self._exists(key):
                self.fail(f"{told} was never told")
        for told in heard.keys() - self._due.keys() - self._may:
            if not told[1].endswith(".pipeline"):
                self.fail(f"{told} was told and never so")
        self._check_pipelines({told for told in heard if told[1].endswith(".pipeline")})

    def _check_pipelines(self, heard: set[tuple[str, str]]) -> None:
        """One whose root did not complete ends with that: nothing can keep it from being told."""
        for state in (State.FAILED, State.CANCELLED, State.TIMED_OUT):
            for entry in walk(self.world.store, keys.prefix(state)):
                root = self._find(Record, entry.key)
                if root is None or not root.spec.then or root.spec.step_of is not None:
                    continue
                for channel in channels_for(root.notice_rules, NotifyOn.PIPELINE):
                    told = channel, f"{root.id}.{root.epoch}.pipeline"
                    key = keys.notice(root.id, root.epoch, NotifyOn.PIPELINE, channel)
                    if told not in heard and (self.world.has_channels or not self._exists(key)):
                        self.fail(f"{told} was never told")
