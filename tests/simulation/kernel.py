"""Who runs when. One thread carries all strands, of which one runs at a time; at each wait the next
one is drawn by chance among those that could go on, and time moves only when none can.

All chance of a run comes from one seed, so that equal seeds make equal runs.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from greenlet import GreenletExit, getcurrent, greenlet

if TYPE_CHECKING:
    from tests.simulation.process import SimProcess


class Door:
    """What strands wait at until somebody opens it for them."""

    __slots__ = ("_kernel", "_waiting")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._waiting: list[Strand] = []

    def open(self) -> None:
        """For all who wait now; each of them looks itself whether there is reason to go on."""
        waiting, self._waiting = self._waiting, []
        for strand in waiting:
            strand.wake()

    def add(self, strand: Strand) -> None:
        self._waiting.append(strand)

    def remove(self, strand: Strand) -> None:
        if strand in self._waiting:
            self._waiting.remove(strand)


class Strand:
    """A thread of a simulated process. It runs until it waits for something."""

    def __init__(
        self, kernel: Kernel, process: SimProcess, name: str, work: Callable[[], None]
    ) -> None:
        self.process = process
        self.name = name
        self.done = False
        self.ended = Door(kernel)
        self.ticket = 0
        """Of the present wait: what would end an earlier one comes to nothing."""
        self._kernel = kernel
        self._work = work
        self._waits = True
        self._interruption: BaseException | None = None
        self._greenlet = greenlet(self._run, kernel.hub)

    def wake(self) -> None:
        """Ends the present wait, if there is one."""
        if self._waits and not self.done:
            self._waits = False
            self.ticket += 1
            self.process.admit(self)

    def interrupt(self, error: BaseException) -> None:
        """Has it raised out of whatever the strand waits for."""
        self._interruption = error
        self.wake()

    def rest(self, until: float, *doors: Door) -> None:
        """By the strand itself: waits for a moment, or for one of the doors to be opened."""
        if self._kernel.closing:
            raise GreenletExit
        self._waits = True
        for door in doors:
            door.add(self)
        if until < inf:
            self._kernel.wake_at(until, self)
        self._kernel.hub.switch()
        for door in doors:
            door.remove(self)
        if self._interruption is not None:
            error, self._interruption = self._interruption, None
            raise error

    def vanish(self) -> None:
        """By the strand itself, whose process is gone: nothing more of it is executed."""
        self._waits = False
        self._kernel.hub.switch()

    def resume(self) -> None:
        """By the kernel."""
        self._greenlet.switch()

    def bury(self) -> None:
        """When the run is over: frees what it still holds."""
        if self._greenlet and not self._greenlet.dead:
            with suppress(BaseException):  # It is dead, whatever it says.
                self._greenlet.throw(GreenletExit)

    def _run(self) -> None:
        try:
            self._work()
        except GreenletExit:
            raise
        except BaseException as error:  # noqa: BLE001 - told to whoever looks after the process
            self.process.note_error(self, error)
        finally:
            self.done = True
            self.ended.open()


class Kernel:
    """Time, chance and turns of one run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        """Seconds of true time, which no part of the system knows."""
        self.steps = 0
        self.halted = False
        self.closing = False
        self.hub = getcurrent()
        self.current: Strand | None = None
        self._ready: list[Strand] = []
        self._strands: list[Strand] = []
        self._order = itertools.count()
        self._timers: list[tuple[float, int, Strand | Callable[[], None], int]] = []

    # --- for what is simulated ----------------------------------------------------------

    def spawn(self, process: SimProcess, name: str, work: Callable[[], None]) -> Strand:
        strand = Strand(self, process, name, work)
        self._strands.append(strand)
        strand.wake()
        return strand

    def wait_until(self, condition: Callable[[], bool], seconds: float = inf, *doors: Door) -> bool:
        """By the running strand. The condition is looked at when a door opens."""
        strand = self.running
        until = self.now + seconds
        while not condition():
            if self.now >= until:
                return False
            strand.rest(until, *doors)
        return True

    def sleep(self, seconds: float) -> None:
        """By the running strand; others have their turn even when it is for no time at all."""
        until = self.now + max(0.0, seconds)
        self.running.rest(until)
        while self.now < until:
            self.running.rest(until)

    @property
    def running(self) -> Strand:
        assert self.current is not None, "only what is simulated can wait"
        return self.current

    # --- for the world ------------------------------------------------------------------

    def at(self, moment: float, happening: Callable[[], None]) -> None:
        """Something that happens by itself, in nobody's strand."""
        heapq.heappush(self._timers, (moment, next(self._order), happening, 0))

    def after(self, seconds: float, happening: Callable[[], None]) -> None:
        self.at(self.now + seconds, happening)

    def wake_at(self, moment: float, strand: Strand) -> None:
        heapq.heappush(self._timers, (moment, next(self._order), strand, strand.ticket))

    def make_ready(self, strand: Strand) -> None:
        self._ready.append(strand)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def halt(self) -> None:
        """Nobody moves any more."""
        self.halted = True

    def run_until(self, moment: float) -> None:
        """Gives out turns until then, or until somebody halts the run."""
        ready, timers = self._ready, self._timers
        while not self.halted:
            if ready:
                self._give_a_turn()
            elif timers and timers[0][0] <= moment:
                at, _, what, ticket = heapq.heappop(timers)
                self.now = max(self.now, at)
                if not isinstance(what, Strand):
                    what()
                elif what.ticket == ticket:
                    what.wake()
            else:
                self.now = max(self.now, moment)
                return

    def close(self) -> None:
        """Frees all strands. Ports raise while they are unwound."""
        self.closing = True
        for strand in self._strands:
            self.current = strand
            strand.bury()
        self.current = None

    def _give_a_turn(self) -> None:
        ready = self._ready
        index = int(self.random.random() * len(ready))
        strand = ready[index]
        ready[index] = ready[-1]
        ready.pop()
        if strand.process.gone:
            return
        self.steps += 1
        self.current = strand
        strand.resume()
        self.current = None
