"""Nobody waits for ever: once faults are over, who stands first gets room within a bound, however
large it is and whatever comes behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from stado.core import keys
from stado.core.ids import base_of, milliseconds
from stado.core.order import ReadyEntry, parse_entry
from stado.core.quotas import scopes_of
from stado.core.records import Record
from stado.core.states import State
from stado.storage.port import walk
from tests.simulation.checkers.base import Checker, Violation
from tests.simulation.placing import fits
from tests.simulation.process import SimHost

if TYPE_CHECKING:
    from tests.simulation.world import World


class StarvingChecker(Checker):
    """Of all that may be started and that some host could run if it were empty the first one is
    looked at. Jobs under a limit wait for its places, too: they are left out."""

    rule = "who stands first is started within a bound"

    def __init__(self, world: World, report: Callable[[Violation], None]) -> None:
        super().__init__(world, report)
        self._first: tuple[str, int] | None = None
        self._since = 0.0

    def on_look(self) -> None:
        found = next(self._startable(), None)
        first = None if found is None else (found[0].id, found[0].epoch)
        if first != self._first:
            self._first, self._since = first, self.world.kernel.now
        waited = self.world.kernel.now - self._since
        if found is not None and waited > self.world.patience_seconds:
            record, host = found
            self.fail(f"{record.id} stood first for {waited:.0f} s, and {host.name} could run it")

    def _startable(self) -> Iterator[tuple[Record, SimHost]]:
        """In order, each with a host that could run it."""
        now_ms = milliseconds(self.world.store.now())
        names = (entry.key.removeprefix(keys.READY) for entry in walk(self.world.store, keys.READY))
        entries = [entry for entry in map(parse_entry, names) if entry and entry.is_due(now_ms)]
        for entry in sorted(entries, key=lambda one: one.rank):
            record = self._unlimited(entry)
            host = None if record is None else self._host_for(record)
            if record is not None and host is not None:
                yield record, host

    def _unlimited(self, entry: ReadyEntry) -> Record | None:
        record = self._find(Record, keys.record(State.QUEUED, entry.job_id))
        if record is None or record.epoch != entry.epoch:
            return None
        spec, settings = record.spec, self.world.settings
        base_id = base_of(record.id)
        limits = scopes_of(spec, base_id=base_id, user=record.submitter, settings=settings)
        return None if limits else record

    def _host_for(self, record: Record) -> SimHost | None:
        hosts = (host for host in self.world.hosts if host.up and not host.vanished)
        able = (host for host in hosts if fits(host.plan, record.spec, ailing=host.ailing))
        return next(able, None)
