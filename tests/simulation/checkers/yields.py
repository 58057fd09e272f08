"""Jobs that make room: those that may, as often as they may, because somebody asked; and what an
agent asks for is needed, and of use to who waits."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stado.core import keys
from stado.core.order import parse_entry
from stado.core.records import Asks, ClaimCell, EndCell, Record
from stado.core.states import Reason, State, Verdict
from stado.storage.observe import Operation
from stado.storage.port import walk
from tests.simulation.checkers.base import Change, Checker, Violation
from tests.simulation.placing import Held, fits
from tests.simulation.process import SimHost, SimProcess, consumer_on

if TYPE_CHECKING:
    from tests.simulation.world import World

_FOR = re.compile(r"job (\S+) with priority ([\d,]+) waits for room")
_SURE_SHARE = 0.9
"""Of the time for which a job that was asked is counted on: clocks differ."""

_OLD_LOOK_SECONDS = 60.0

Epoch = tuple[str, int]


def room_asked_for(asked: Asks) -> str | None:
    """The id of the job for which an agent wants room; None where nobody says so."""
    found = _FOR.fullmatch(asked.give_way_note or "") if asked.give_way else None
    return None if found is None else found[1]


@dataclass
class _Episode:
    """An agent looks at who waits, and then asks some jobs to make room for it."""

    agent: SimProcess
    waiter: Record | None
    """As it was queued when the agent looked; None: it was not."""

    there: dict[Epoch, Held]
    """What was claimed on the host."""
    sure: bool
    """Whether that is all that the agent can have counted."""

    counted_on: set[Epoch] = field(default_factory=set)
    """Asked earlier, and still there."""
    asked: list[Epoch] = field(default_factory=list)


class YieldsChecker(Checker):
    """A job is put back for others only when somebody asked, and as often as it said. Agents ask
    jobs that run on their host and are less urgent than one that was queued when they looked, that
    had no room, and has with what may be had; and none that is not needed."""

    rule = "a job makes room as often as it may, and where it helps"

    def __init__(self, world: World, report: Callable[[Violation], None]) -> None:
        super().__init__(world, report)
        self._episodes: dict[SimProcess, _Episode] = {}
        self._asked_at: dict[SimProcess, dict[tuple[str, Epoch], float]] = {}
        """By whom, for whom, of whom."""

    # --- what is heard ------------------------------------------------------------------

    def on_request(self, process: SimProcess, operation: Operation, key: str) -> None:
        if process.name != "agent":
            return
        if operation is Operation.GET and key.startswith(keys.prefix(State.QUEUED)):
            self._close(process)
            self._episodes[process] = self._begun(process, keys.job_of_record(key))
        elif not (key.startswith("status/") and "/asks/" in key):
            episode = self._episodes.get(process)
            if episode is not None and episode.asked:
                self._close(process)

    def on_change(self, change: Change) -> None:
        if change.written_cell == "end":
            self._check_end(change.decode_after(EndCell))
        elif change.folder == "status" and change.parts[2] == "asks" and change.after is not None:
            self._note_asks(change, change.decode_after(Asks))

    def at_end(self) -> None:
        for process in list(self._episodes):
            self._close(process)

    # --- who is put back ----------------------------------------------------------------

    def _check_end(self, cell: EndCell) -> None:
        record, ending = cell.record, cell.ending
        if ending.verdict is not Verdict.YIELDED:
            return
        asked = self._asked_of(record)
        if asked is None:
            self.fail(f"{record.id} made room in epoch {record.epoch}, and nobody had asked")
        elif ending.reason is Reason.HOST_CLOSED:
            if not asked.evict:
                self.fail(f"{record.id} was put back in epoch {record.epoch}: its host is open")
        elif not record.spec.yieldable or record.yields > (record.spec.max_yields or 0):
            self.fail(f"{record.id} made room in epoch {record.epoch}, and is protected")

    def _asked_of(self, record: Record) -> Asks | None:
        """What made its holder stop the command: in this epoch, or in one from which it has adopted
        what it had stopped already."""
        for epoch in range(record.epoch, 0, -1):
            asked = self._find(Asks, keys.asks(record.id, epoch))
            if asked is not None and asked.give_way:
                return asked
            claim = self._find(ClaimCell, keys.claim_cell(record.id, epoch))
            holder = claim.record.holder if claim is not None else None
            if holder is None or not holder.adopted:
                return None
        return None

    # --- who is asked -------------------------------------------------------------------

    def _begun(self, agent: SimProcess, waiter_id: str) -> _Episode:
        there = dict(self._claimed_on(agent.host))
        return _Episode(
            agent,
            self._find(Record, keys.record(State.QUEUED, waiter_id)),
            there,
            sure=self._is_sure(agent.host, there),
        )

    def _claimed_on(self, host: SimHost) -> Iterator[tuple[Epoch, Held]]:
        """Epochs that agents of the host hold, by their claims."""
        for entry in walk(self.world.store, keys.prefix(State.RUNNING)):
            record = self._find(Record, entry.key)
            if record is None or record.holder is None or record.holder.host != host.name:
                continue
            if not self._exists(keys.claim_cell(record.id, record.epoch)):
                continue  # whoever wanted it died, or is about to claim it
            if not self._exists(keys.end_cell(record.id, record.epoch)):
                held = Held(record.id, record.spec, tuple(record.holder.cards))
                yield (record.id, record.epoch), held

    def _is_sure(self, host: SimHost, there: Collection[Epoch]) -> bool:
        """Whether nothing is in hand there that is not claimed, or is over and lives on."""
        orders = (process.order for process in host.processes.values())
        entries = (parse_entry(order.entry) for order in orders if order is not None)
        in_hand = {(entry.job_id, entry.epoch) for entry in entries if entry is not None}
        living = {(command.job_id, command.epoch) for command in host.commands}
        recent = self.world.kernel.now - host.ailed_at < _OLD_LOOK_SECONDS
        return in_hand | living <= set(there) and not recent and not host.supervisors_died

    def _note_asks(self, change: Change, asked: Asks) -> None:
        """Of an agent's for the sake of a job; anybody else may ask for any reason."""
        waiter_id = room_asked_for(asked)
        before = change.decode_before(Asks) if change.before is not None else None
        author = change.author
        if waiter_id is None or author is None or (before is not None and before.give_way):
            return
        epoch = (change.parts[1], int(change.parts[3].removesuffix(".json")))
        self._check_asked(author, epoch, waiter_id=waiter_id)
        self._asked_at.setdefault(author, {})[waiter_id, epoch] = self.world.kernel.now

    def _check_asked(self, agent: SimProcess, epoch: Epoch, *, waiter_id: str) -> None:
        episode = self._episodes.get(agent)
        waiter = episode.waiter if episode is not None else None
        if episode is None or waiter is None or waiter.id != waiter_id:
            if not agent.gone:  # a request of the dead may land at any time
                self.fail(f"{epoch} was asked for {waiter_id}, which was not queued")
            return
        claim = self._find(ClaimCell, keys.claim_cell(*epoch))
        if self._exists(keys.end_cell(*epoch)) or claim is None:
            return
        asked, holder = claim.record, claim.record.holder
        if holder is None or holder.consumer != consumer_on(agent.host):
            self.fail(f"{epoch} was asked by {agent.host.name}, where it does not run")
        if asked.yields_left < 1:
            self.fail(f"{epoch} was asked for {waiter_id}, and is protected")
        if asked.priority >= waiter.priority:
            self.fail(f"{epoch} was asked for {waiter_id}, which is no more urgent")
        self._check_gain(episode, waiter, epoch)
        episode.asked.append(epoch)

    def _check_gain(self, episode: _Episode, waiter: Record, epoch: Epoch) -> None:
        plan = episode.agent.host.plan
        stay = [held for one, held in episode.there.items() if not self._may_go(one, waiter)]
        if not fits(plan, waiter.spec, stay):
            self.fail(f"{epoch} was asked in vain: {waiter.id} would have no room all the same")
        episode.counted_on = self._still_counted_on(episode.agent, waiter.id)
        gone = episode.counted_on | set(episode.asked)
        if episode.sure and epoch not in gone and self._has_room(episode, waiter, gone):
            self.fail(f"{epoch} was asked for {waiter.id}, which has room without")

    def _may_go(self, epoch: Epoch, waiter: Record) -> bool:
        claim = self._find(ClaimCell, keys.claim_cell(*epoch))
        record = claim.record if claim is not None else None
        able = record is not None and record.yields_left > 0
        return able and record is not None and record.priority < waiter.priority

    def _still_counted_on(self, agent: SimProcess, waiter_id: str) -> set[Epoch]:
        now, limit = self.world.kernel.now, self.world.plan.room_waits.ask_again_seconds
        asked = self._asked_at.get(agent, {}).items()
        return {
            epoch
            for (waiter, epoch), at in asked
            if waiter == waiter_id and now - at < _SURE_SHARE * limit
        }

    @staticmethod
    def _has_room(episode: _Episode, waiter: Record, gone: Collection[Epoch]) -> bool:
        stay = [held for one, held in episode.there.items() if one not in gone]
        return fits(episode.agent.host.plan, waiter.spec, stay)

    def _close(self, process: SimProcess) -> None:
        """Each of those that were asked was needed."""
        episode = self._episodes.pop(process, None)
        if episode is None or episode.waiter is None or not episode.sure:
            return
        for epoch in episode.asked:
            gone = (episode.counted_on | set(episode.asked)) - {epoch}
            if len(episode.asked) > 1 and self._has_room(episode, episode.waiter, gone):
                self.fail(f"{epoch} was asked for {episode.waiter.id}, and others would have done")
