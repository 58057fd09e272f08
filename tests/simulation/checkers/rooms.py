"""Kept room: what an agent has made others leave goes to the job that waits for it; and no note
stays of which its writer knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stado.core import keys
from stado.core.order import parse_entry
from stado.core.records import Asks, ClaimCell, Record
from stado.core.states import State
from stado.storage.observe import Operation
from stado.storage.port import walk
from tests.simulation.checkers.base import Change, Checker, Violation
from tests.simulation.checkers.yields import room_asked_for
from tests.simulation.placing import Held, fits
from tests.simulation.process import Order, SimHost, SimProcess

if TYPE_CHECKING:
    from tests.simulation.world import World


class RoomsChecker(Checker):
    """Once an agent has asked jobs to make room for one, until it takes its note back, it lets in
    nothing behind that one that would take the room. It has written the note first: a note that
    nobody has asked for may be one that its writer never heard of."""

    rule = "room that is kept goes to who waits for it, and no note of it stays"

    def __init__(self, world: World, report: Callable[[Violation], None]) -> None:
        super().__init__(world, report)
        self._writers: dict[str, SimProcess | None] = {}
        """Of the notes that stand."""
        self._kept_since: dict[tuple[SimProcess, str], float] = {}
        """By whom, for whom: from the first job that was asked on."""
        self._known: set[tuple[SimProcess, str]] = set()
        """By whom, for whom: notes of which their writers know, for they have renewed them or asked
        for room, and that they have not taken back."""
        self._going: dict[tuple[SimProcess, str], set[str]] = {}

    def on_request(self, process: SimProcess, operation: Operation, key: str) -> None:
        """Who takes its note back, or finds that of another there, keeps no room any more."""
        if not key.startswith(keys.ROOMS) or operation is Operation.LIST:
            return
        job_id = key.removeprefix(keys.ROOMS).removesuffix(".json")
        if operation is Operation.REPLACE and self._writers.get(job_id) is process:
            self._known.add((process, job_id))
        if operation is Operation.DELETE:
            self._known.discard((process, job_id))
        if operation is Operation.DELETE or self._writers.get(job_id) is not process:
            self._kept_since.pop((process, job_id), None)
            self._going.pop((process, job_id), None)

    def on_change(self, change: Change) -> None:
        if change.key.startswith(keys.ROOMS):
            job_id = change.key.removeprefix(keys.ROOMS).removesuffix(".json")
            self._writers[job_id] = change.author if change.after is not None else None
        elif change.folder == "status" and change.parts[2] == "asks" and change.after is not None:
            self._note_asks(change, change.decode_after(Asks))
        elif change.written_cell == "claim" and change.author is not None:
            self._check_claim(change.decode_after(ClaimCell).record, change.author)

    def _note_asks(self, change: Change, asked: Asks) -> None:
        waiter, author = room_asked_for(asked), change.author
        before = change.decode_before(Asks) if change.before is not None else None
        if waiter is None or author is None or (before is not None and before.give_way):
            return
        if self._writers.get(waiter) is author:
            self._known.add((author, waiter))
            self._kept_since.setdefault((author, waiter), self.world.kernel.now)
            self._going.setdefault((author, waiter), set()).add(change.parts[1])
        elif not author.gone:
            self.fail(f"{change.key}: {author.host.name} keeps no room for {waiter}")

    def _check_claim(self, record: Record, claimer: SimProcess) -> None:
        order = claimer.order
        if order is None:
            return  # it adopts
        for (agent, waiter_id), since in self._kept_since.items():
            if agent is order.by and since < order.at:
                self._check_left(agent, waiter_id, record, order)

    def _check_left(self, agent: SimProcess, waiter_id: str, record: Record, order: Order) -> None:
        waiter = self._find(Record, keys.record(State.QUEUED, waiter_id))
        if waiter is None or waiter_id == record.id or not self._stands_behind(record, waiter):
            return
        orders = [(one, parse_entry(one.entry)) for one in agent.host.orders]
        since = self._kept_since[agent, waiter_id]
        if any(entry and entry.job_id == waiter_id and one.at >= since for one, entry in orders):
            return  # it has been let in itself, and may have missed
        later = {entry.job_id for one, entry in orders if entry and one.at >= order.at}
        going = self._going[agent, waiter_id]
        stay = [held for held in self._there(agent.host) if held.job_id not in later | going]
        own = Held(record.id, record.spec, tuple(record.holder.cards if record.holder else ()))
        if fits(agent.host.plan, waiter.spec, stay) and not fits(
            agent.host.plan, waiter.spec, [*stay, own]
        ):
            self.fail(
                f"{record.id} was let in on {agent.host.name}, where room is kept for {waiter_id}"
            )

    @staticmethod
    def _stands_behind(record: Record, waiter: Record) -> bool:
        """For certain: a priority that was changed may not be known there yet."""
        if record.priority_changes or waiter.priority_changes:
            return False
        own, other = ((-one.priority, one.queued_ms, one.id) for one in (record, waiter))
        return own > other

    def _there(self, host: SimHost) -> list[Held]:
        found = (
            self._find(Record, entry.key)
            for entry in walk(self.world.store, keys.prefix(State.RUNNING))
        )
        return [
            Held(record.id, record.spec, tuple(record.holder.cards))
            for record in found
            if record is not None and record.holder is not None and record.holder.host == host.name
        ]

    def at_end(self) -> None:
        """A note of who died over it, or has never heard of it, is swept in an hour or so."""
        for entry in walk(self.world.store, keys.ROOMS):
            job_id = entry.key.removeprefix(keys.ROOMS).removesuffix(".json")
            writer = self._writers.get(job_id)
            if writer is not None and not writer.gone and (writer, job_id) in self._known:
                self.fail(f"{entry.key} stays, and {writer.host.name} lives")
