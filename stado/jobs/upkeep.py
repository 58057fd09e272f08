"""What has to be done for the queue by somebody: giving lost jobs back, submitting what schedules
have due, mending the index, finishing submissions whose submitter died, forgetting agents that are
gone. Coordinators do it; agents do when there is none.

Each pass is bounded and stands alone: one that fails does not keep the others from their turn.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from stado.errors import StadoError
from stado.jobs.departures import AgentReport, forget_departed
from stado.jobs.firing import Firing
from stado.jobs.leadership import CoordinatorWatch
from stado.jobs.queue_index import Repair
from stado.jobs.quotas import SlotSweep
from stado.jobs.reaping import Reaper
from stado.jobs.repository import Repository
from stado.jobs.rest_walk import RestWalk
from stado.jobs.submit import SubmissionSweep

log = logging.getLogger(__name__)

_TICKS_PER_WALK = 20
"""What the walk looks for happens to few jobs in years, and each turn costs some listings."""

_TICKS_PER_SLOT_SWEEP = 8
"""About a lease: no place is free for the sweep before."""

_SOONEST_SECONDS = 1.0
"""Between two ticks for the sake of schedules."""

_AGENT_TURN_SECONDS = 1.0
"""Of a pass that mends, in an agent: it hands over no job meanwhile, and hears no supervisor."""


Told = Callable[[str, str | None], None]
"""Hears of a pass: its name, and what it failed by; None where it succeeded."""


def told_to_nobody(_name: str, _error: str | None) -> None:
    """For who keeps no notes of passes."""


class Passes:
    """The passes of one tick, in order. Keep it between ticks: passes remember what they saw.

    `once`: for a process that makes one tick. `turn_seconds`: how long a pass that mends may go
    on; what it leaves, its next turn goes on with."""

    def __init__(
        self,
        repo: Repository,
        *,
        by: str,
        once: bool = False,
        turn_seconds: float = math.inf,
        told: Told = told_to_nobody,
    ) -> None:
        self._repo = repo
        self._told = told
        self._reaper = Reaper(repo, by=by, once=once)
        self._repair = Repair(repo, by=by, turn_seconds=turn_seconds, once=once)
        self._sweep = SubmissionSweep(repo, turn_seconds=turn_seconds, once=once)
        self._walk = RestWalk(repo, once=once)
        self._slots = SlotSweep(repo)
        self._firing = Firing(repo, by=by, turn_seconds=turn_seconds)
        self._ticks = 0
        self._deferred: dict[str, str] = {}
        self._idle_agents: list[AgentReport] = []
        self._next_reap_at = math.inf

    @property
    def next_seconds(self) -> float:
        """Until somebody's lease may be over, or a schedule is due: then a tick finds it."""
        until_reap = max(0.0, self._next_reap_at - self._repo.clock.monotonic())
        return min(until_reap, max(_SOONEST_SECONDS, self._firing.next_seconds))

    def tick(self) -> dict[str, bool]:
        """Runs each pass once; its name to whether it succeeded."""
        passes: dict[str, Callable[[], None]] = {
            "reap": self._reap,
            "fire": self._firing.turn,
            "repair": self._mend,
            "sweep": self._finish_submissions,
            "forget": self._forget_departed,
        }
        if self._ticks % _TICKS_PER_WALK == 0:
            passes["walk"] = self._walk_at_rest
        if self._ticks % _TICKS_PER_SLOT_SWEEP == 0:
            passes["slots"] = self._free_slots
        self._ticks += 1
        return {name: run_pass(name, work, self._told) for name, work in passes.items()}

    def _reap(self) -> None:
        self._idle_agents = []
        self._next_reap_at = math.inf
        report = self._reaper.turn()
        self._next_reap_at = self._repo.clock.monotonic() + report.next_seconds
        self._idle_agents = report.idle_agents
        for job_id, reason in report.deferred.items():
            if self._deferred.get(job_id) != reason:
                log.info("event=reap_deferred job=%s reason=%r", job_id, reason)
        self._deferred = report.deferred
        for job_id in report.settled:
            log.info("event=settled job=%s", job_id)

    def _mend(self) -> None:
        report = self._repair.turn()
        if report.changed:
            log.info(
                "event=repaired entries_written=%d entries_deleted=%d settled=%d expired=%d",
                report.entries_written,
                report.entries_deleted,
                report.settled,
                report.expired,
            )

    def _finish_submissions(self) -> None:
        for run_id in self._sweep.turn():
            log.info("event=submission_finished run=%s", run_id)

    def _walk_at_rest(self) -> None:
        for job_id in self._walk.turn():
            log.info("event=stale_record_removed job=%s", job_id)

    def _free_slots(self) -> None:
        for key in self._slots.turn():
            log.info("event=slot_freed key=%s", key)

    def _forget_departed(self) -> None:
        """By what the reaper has just seen: a job's record is looked at before its agent's."""
        for consumer in forget_departed(self._repo, self._idle_agents):
            log.info("event=forgotten consumer=%s", consumer)


def run_pass(name: str, work: Callable[[], None], told: Told = told_to_nobody) -> bool:
    """Whether it succeeded: what fails is logged, and told. Whatever it fails by: it would fail so
    again after each restart, and no other pass would ever have its turn."""
    try:
        work()
    except StadoError as error:
        log.warning("event=pass_failed pass=%s error=%r", name, str(error))
        told(name, str(error))
        return False
    except Exception as error:  # a fault of ours, or what others wrote: told with its traceback
        log.exception("event=pass_failed pass=%s", name)
        told(name, f"a fault of the program ({type(error).__name__}): its log has more")
        return False
    told(name, None)
    return True


class Upkeep:
    """An agent's share: the same passes, as long as no coordinator is seen."""

    def __init__(self, repo: Repository, *, by: str) -> None:
        self._repo = repo
        self._watch = CoordinatorWatch(repo)
        self._passes = Passes(repo, by=by, turn_seconds=_AGENT_TURN_SECONDS)
        self._due_at = float("-inf")

    def turn_when_due(self) -> None:
        now = self._repo.clock.monotonic()
        if now < self._due_at:
            return
        self._due_at = now + self._repo.deployment.tick_seconds
        if self._watch.silent():
            self._passes.tick()
            self._due_at = min(self._due_at, now + self._passes.next_seconds)
