"""What schedules have to submit: decided by one change of a document, then brought about.

Any number of coordinators may do this at once. Of those who decide about one due time the replace
lets one through; what it has decided (`firing`) whoever meets it submits, under one run id.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from stado.core import ids, keys, schedules
from stado.core.schedules import (
    DroppedFire,
    DropReason,
    Due,
    Fire,
    OverlapPolicy,
    PriorJob,
    Schedule,
)
from stado.core.states import State
from stado.core.zones import find_zone
from stado.errors import Conflict, NotFound, Refused, StoreError, Unreadable
from stado.jobs import pipeline_sight
from stado.jobs.changes import cancel
from stado.jobs.finding import find_job
from stado.jobs.repository import PARALLEL_REQUESTS, Repository, Stored
from stado.jobs.status import states_of
from stado.jobs.submit import submit_as
from stado.storage.port import Entry, Version, walk

log = logging.getLogger(__name__)

_STEPS_MAX = 20
"""What one schedule may decide in one turn: the rest of what is due waits for the next."""

_SCHEDULES_MAX = 100_000
_FAILURES_MAX = 3
"""Schedules that may fail in one turn before it is the store that fails."""


# --- what was decided -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of a submission that was decided."""

    fire: Fire
    refusal: Refused | None = None
    """Why nothing was submitted."""


def replaced(
    repo: Repository, stored: Stored[Schedule], changed: Schedule
) -> Stored[Schedule] | None:
    """The document as it stands now; None when somebody else has changed it."""
    changed = changed.evolve(nonce=repo.entropy.token())
    try:
        version = repo.store.replace(changed.own_key(), changed.encode(), stored.version)
    except (Conflict, NotFound):
        return None
    return Stored(changed, version)


def finish_firing(repo: Repository, key: str, run_id: str) -> Finished:
    """Submits what was decided, unless somebody has done so by now, and notes it.

    A crash before the submission, or after it, leaves `firing`: whoever meets it calls this.
    Raises `NotFound` when the schedule is gone, which it is not before this is done."""
    for _ in repo.rounds():
        stored = repo.read(Schedule, key)
        fire = stored.value.firing
        if fire is None or fire.run_id != run_id:
            return Finished(_remembered(stored.value, run_id))
        changed, finished = _brought_about(repo, stored.value, fire)
        if replaced(repo, stored, changed) is not None:
            _tell_fired(stored.value, finished)
            return finished
    raise Conflict(key, "others keep changing it: try again")


def _remembered(schedule: Schedule, run_id: str) -> Fire:
    """One that the schedule has forgotten again was submitted long ago."""
    found = (fire for fire in schedule.fires if fire.run_id == run_id)
    return next(found, Fire(run_id=run_id, at=schedule.changed_at, by=schedule.changed_by))


def _brought_about(repo: Repository, schedule: Schedule, fire: Fire) -> tuple[Schedule, Finished]:
    """A run that cannot be is told, and stands in nobody's way."""
    try:
        submission = submit_as(
            repo,
            run_id=fire.run_id,
            request=schedule.request,
            submitter=schedule.created_by,
        )
    except (Refused, Unreadable) as error:
        dropped = DroppedFire(
            due_at=fire.due_at or fire.at,
            reason=DropReason.REFUSED,
            detail=str(error)[:1000],
            at=repo.now(),
        )
        refusal = error if isinstance(error, Refused) else Refused("run_unreadable", str(error))
        return schedule.evolve(firing=None, dropped=dropped), Finished(fire, refusal)
    fields = schedules.fired(schedule, submission.base_id)
    return schedule.evolve(**fields), Finished(fire.evolve(base_id=submission.base_id))


def _tell_fired(schedule: Schedule, finished: Finished) -> None:
    fire = finished.fire
    if finished.refusal is not None:
        log.error(
            "event=schedule_not_fired schedule=%s run=%s why=%r",
            schedule.name,
            fire.run_id,
            str(finished.refusal),
        )
        return
    log.info(
        "event=schedule_fired schedule=%s run=%s base=%s",
        schedule.name,
        fire.run_id,
        fire.base_id,
    )


# --- what is due ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Known:
    """A schedule as it was read last, as far as it says when to read it again."""

    version: Version
    look_at: datetime | None
    """None: not before it has changed."""


class Firing:
    """A coordinator's pass over all schedules. Keep it between turns: it reads those again that
    have changed, or have something to do.

    A turn lasts `turn_seconds` and one step of a schedule; what it leaves, the next goes on with,
    behind the schedule that was worked on last."""

    def __init__(self, repo: Repository, *, by: str, turn_seconds: float = math.inf) -> None:
        self._repo = repo
        self._by = by
        self._turn_seconds = turn_seconds
        self._known: dict[str, _Known] = {}
        self._zones_told: set[str] = set()
        self._zones_missing: dict[str, str] = {}
        """Of this turn, by schedule."""
        self._end = math.inf
        self._failures = 0
        self._last = ""
        """The key that the last turn worked on last, where time or failures have ended it."""

    @property
    def next_seconds(self) -> float:
        """Until something that is known of is due; infinite where nothing is."""
        now = self._repo.now()
        looks = (known.look_at for known in self._known.values())
        coming = [at for at in looks if at is not None and at > now]
        return (min(coming) - now).total_seconds() if coming else math.inf

    def turn(self) -> None:
        """A listing, a read of each schedule that has changed or has something to do, and what that
        takes. One that fails costs no other its turn; raises when several do, and the next turn
        begins with those behind them. Raises `Refused` (`zone_unknown`) once all have had theirs
        when one is due whose time zone this machine does not know."""
        self._end = self._repo.clock.monotonic() + self._turn_seconds
        self._failures = 0
        listed = {entry.key: entry.version for entry in self._listed()}
        for gone in self._known.keys() - listed.keys():
            del self._known[gone]
        now = self._repo.now()
        wanted = [key for key, version in listed.items() if self._is_wanted(key, version, now)]
        self._zones_missing = {}
        self._work_through(wanted)
        if self._zones_missing:
            name, zone = next(iter(self._zones_missing.items()))
            raise Refused("zone_unknown", f"schedule {name} is due: {_zone_words(zone)}")

    def _work_through(self, wanted: list[str]) -> None:
        for chunk in self._chunks(wanted):
            for key, stored in self._read(chunk):
                self._last = key
                self._act(key, stored)
                if self._is_over():
                    return
            self._last = chunk[-1]
        self._last = ""

    def _is_over(self) -> bool:
        return self._repo.clock.monotonic() >= self._end

    def _listed(self) -> Iterator[Entry]:
        for number, entry in enumerate(walk(self._repo.store, keys.SCHEDULES)):
            if number == _SCHEDULES_MAX:
                return
            if entry.key == keys.schedule(keys.schedule_of_key(entry.key)):
                yield entry

    def _is_wanted(self, key: str, version: Version, now: datetime) -> bool:
        known = self._known.get(key)
        if known is None or known.version != version:
            return True
        return known.look_at is not None and known.look_at <= now

    def _chunks(self, wanted: list[str]) -> Iterator[list[str]]:
        """Beginning behind what the last turn worked on last."""
        wanted = [key for key in wanted if key > self._last] + [
            key for key in wanted if key <= self._last
        ]
        for start in range(0, len(wanted), PARALLEL_REQUESTS):
            yield wanted[start : start + PARALLEL_REQUESTS]

    def _read(self, names: list[str]) -> list[tuple[str, Stored[Schedule]]]:
        try:
            found = self._repo.tasks.map(self._find, names, limit=PARALLEL_REQUESTS)
        except StoreError:  # one that is never answered must not keep the rest from their turn
            self._last = names[-1]
            raise
        return [(key, stored) for key, stored in zip(names, found, strict=True) if stored]

    def _find(self, key: str) -> Stored[Schedule] | None:
        try:
            return self._repo.find(Schedule, key)
        except Unreadable as error:
            self._repo.tell_unreadable(error)
            return None

    def _act(self, key: str, stored: Stored[Schedule]) -> None:
        try:
            last = self._work_on(stored)
        except (StoreError, Unreadable, Refused) as error:
            self._known.pop(key, None)
            if isinstance(error, NotFound | Conflict) and error.key == key:
                return  # gone, or others are at it: the next turn looks again
            log.warning("event=schedule_failed schedule=%s error=%r", stored.value.name, str(error))
            self._failures += 1
            if self._failures == _FAILURES_MAX:
                raise
            return
        self._known[key] = _Known(last.version, _look_at(last.value))

    def _work_on(self, stored: Stored[Schedule]) -> Stored[Schedule]:
        """One decision after another, until nothing is due or the turn is over. What is decided is
        brought about before that."""
        for _ in range(_STEPS_MAX):
            if not stored.value.needs_a_look(self._repo.now()):
                return stored
            changed = self._step(stored)
            if changed is None:
                return stored
            stored = changed
            if stored.value.firing is None and self._is_over():
                return stored
        return stored

    def _step(self, stored: Stored[Schedule]) -> Stored[Schedule] | None:
        """None where there is nothing to change now."""
        schedule = stored.value
        if schedule.removed is not None:
            self._repo.store.delete(schedule.own_key(), stored.version)
            raise NotFound(schedule.own_key(), "it was removed")
        if schedule.firing is not None:
            finish_firing(self._repo, schedule.own_key(), schedule.firing.run_id)
            return self._repo.read(Schedule, schedule.own_key())
        zone = find_zone(schedule.zone)
        if zone is None:
            self._tell_zone(schedule)
            return None
        late_seconds = schedules.LEASES_LATE * self._repo.deployment.lease_seconds
        now = self._repo.now()
        due = schedules.due(schedule, zone, now, late_seconds=late_seconds)
        if due is None and schedule.waiting_at is None:
            return None
        look = self._look(schedule)
        if due is None:
            return self._go_on_waiting(stored, look, now)
        is_first = schedule.waiting_at is not None and schedule.overlap is not OverlapPolicy.REPLACE
        if is_first and look.prior is None:  # what waits comes before what is due since
            return self._go_on_waiting(stored, look, now)
        return self._decide(stored, due, look, now)

    # --- one decision -------------------------------------------------------------------

    def _decide(
        self, stored: Stored[Schedule], due: Due, look: _Look, now: datetime
    ) -> Stored[Schedule]:
        schedule, gave_way = stored.value.evolve(next_at=due.next_at), None
        if due.at is not None and schedule.overlap is OverlapPolicy.REPLACE:
            schedule, gave_way = _given_way(schedule, now)
        if due.missed is not None:
            schedule = schedule.evolve(dropped=due.missed)
        if due.at is None:
            changed = self._replaced(stored, schedule)
        else:
            changed = self._decide_on(stored, schedule, due.at, look, now)
        if gave_way is not None:
            at = schedules.instant_words(gave_way)
            log.info("schedule %s: skip fire: the one due %s gave way", schedule.name, at)
        if due.missed is not None:
            _tell_missed(schedule, due.missed)
        return changed

    def _decide_on(
        self,
        stored: Stored[Schedule],
        schedule: Schedule,
        due_at: datetime,
        look: _Look,
        now: datetime,
    ) -> Stored[Schedule]:
        if look.prior is None:
            return self._replaced(stored, self._fire(schedule, due_at, now, look.fires))
        schedule = schedule.evolve(fires=look.fires)
        words = schedules.prior_words(look.prior, now)
        if schedule.overlap is OverlapPolicy.REPLACE:  # the next look cancels what it waits for
            changed = self._replaced(stored, schedule.evolve(waiting_at=due_at))
            log.info("schedule %s: replace: %s", schedule.name, words)
            return changed
        if schedule.overlap is OverlapPolicy.QUEUE and schedule.waiting_at is None:
            changed = self._replaced(stored, schedule.evolve(waiting_at=due_at))
            log.info("schedule %s: fire waits: %s", schedule.name, words)
            return changed
        dropped = DroppedFire(
            due_at=due_at, reason=DropReason.OVERLAP, job_id=look.prior.job_id, at=now
        )
        changed = self._replaced(stored, schedule.evolve(dropped=dropped))
        log.info("schedule %s: skip fire: %s", schedule.name, words)
        return changed

    def _go_on_waiting(
        self, stored: Stored[Schedule], look: _Look, now: datetime
    ) -> Stored[Schedule] | None:
        schedule = stored.value
        assert schedule.waiting_at is not None
        if look.prior is not None and schedule.overlap is OverlapPolicy.REPLACE:
            self._cancel(schedule, look, schedule.waiting_at)
            look = self._look(schedule)  # what was queued has ended by that
        if look.prior is not None:
            return None
        fired = self._fire(schedule, schedule.waiting_at, now, look.fires)
        return self._replaced(stored, fired)

    def _fire(
        self, schedule: Schedule, due_at: datetime, now: datetime, fires: list[Fire]
    ) -> Schedule:
        run_id = schedules.fire_run_id(schedule.name, due_at)
        firing = Fire(run_id=run_id, due_at=due_at, at=now, by=self._by)
        return schedule.evolve(firing=firing, fires=fires, waiting_at=None)

    def _replaced(self, stored: Stored[Schedule], changed: Schedule) -> Stored[Schedule]:
        """Raises `Conflict` when somebody else has decided."""
        new = replaced(self._repo, stored, changed)
        if new is None:
            raise Conflict(changed.own_key(), "somebody else has changed it")
        return new

    # --- earlier jobs -------------------------------------------------------------------

    def _look(self, schedule: Schedule) -> _Look:
        """Where overlaps do not matter, nobody looks."""
        if schedule.overlap is OverlapPolicy.ALLOW:
            return _Look(None, schedule.fires[-1:], [])
        return look_at_prior(self._repo, schedule)

    def _cancel(self, schedule: Schedule, look: _Look, due_at: datetime) -> None:
        """Each job that is live, and what would follow it. What cannot be reached now is tried
        again at the next turn."""
        at = schedules.instant_words(due_at)
        note = f"replaced by what schedule {schedule.name} submits for {at}"

        def stop(job_ids: list[str]) -> None:
            for job_id in job_ids:
                try:
                    cancel(self._repo, job_id, by=f"schedule {schedule.name}", note=note)
                except NotFound:  # it was deleted meanwhile
                    continue
                except Refused as error:
                    self._tell_not_cancelled(schedule, job_id, error)

        if not schedule.request.shared.then:
            stop(look.roots)
            return
        for root in look.roots:
            try:
                pipeline_sight.stop_pipeline(self._repo, root, stop)
            except NotFound:  # it was deleted meanwhile
                continue
            except Refused as error:
                self._tell_not_cancelled(schedule, root, error)

    def _tell_not_cancelled(self, schedule: Schedule, job_id: str, error: Refused) -> None:
        """It costs no other job its end; the next turn tries again."""
        log.warning(
            "event=schedule_not_cancelled schedule=%s job=%s why=%r",
            schedule.name,
            job_id,
            str(error),
        )

    def _tell_zone(self, schedule: Schedule) -> None:
        self._zones_missing[schedule.name] = schedule.zone
        if schedule.name not in self._zones_told:
            self._zones_told.add(schedule.name)
            log.error(
                "event=schedule_not_fired schedule=%s why=%r",
                schedule.name,
                _zone_words(schedule.zone),
            )


def _zone_words(zone: str) -> str:
    return f"this machine knows no time zone {zone}: update its tz database"


def _look_at(schedule: Schedule) -> datetime | None:
    if schedule.removed is not None:
        return schedule.removed.at + schedules.REMOVED_KEPT
    if schedule.firing is not None or (schedule.waiting_at is not None and not schedule.paused):
        return schedule.changed_at  # at the next turn
    return None if schedule.paused is not None else schedule.next_at


def _given_way(schedule: Schedule, now: datetime) -> tuple[Schedule, datetime | None]:
    """Of several that wait to replace what is live the last fires; and which one does not."""
    before = schedule.waiting_at
    if before is None:
        return schedule, None
    dropped = DroppedFire(due_at=before, reason=DropReason.OVERLAP, at=now)
    return schedule.evolve(waiting_at=None, dropped=dropped), before


def _tell_missed(schedule: Schedule, missed: DroppedFire) -> None:
    log.warning(
        "event=schedule_missed schedule=%s last_due=%s count=%s",
        schedule.name,
        schedules.instant_words(missed.due_at),
        schedules.count_words(missed.count),
    )


# --- what is live ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Look:
    """What is live of earlier submissions."""

    prior: PriorJob | None
    """One job; None: nothing is."""
    fires: list[Fire]
    """Those to remember: the last one, and before it the live ones."""
    roots: list[str]
    """All jobs that are live; of pipelines their roots."""


@dataclass(frozen=True, slots=True)
class _Live:
    """What is live of one submission: as `_Look` has it."""

    roots: list[str]
    shown: PriorJob | None


def look_at_prior(repo: Repository, schedule: Schedule) -> _Look:
    """Of all submissions that the schedule remembers. A job that cannot be read is taken for live.
    Raises `StoreError`."""
    fires: list[Fire] = []
    roots: list[str] = []
    prior: PriorJob | None = None
    for number, fire in enumerate(schedule.fires, 1):
        live = _live_of(repo, schedule, fire)
        if live.roots or number == len(schedule.fires):
            fires.append(fire)
        roots += live.roots
        prior = live.shown or prior
    if prior is not None:
        prior = _seen_working(repo, replace(prior, more=len(roots) - 1))
    return _Look(prior, fires, roots)


def _live_of(repo: Repository, schedule: Schedule, fire: Fire) -> _Live:
    job_ids = schedule.job_ids(fire)
    if not job_ids:
        return _Live([], None)
    if schedule.request.shared.then:
        return _live_pipelines(repo, job_ids)
    if schedule.request.batch:
        job_ids = _not_ended(repo, fire, job_ids)
    for number, job_id in enumerate(job_ids):
        shown = _live_job(repo, job_id)
        if shown is not None:
            return _Live(job_ids[number:], shown)
    return _Live([], None)


def _live_job(repo: Repository, job_id: str) -> PriorJob | None:
    try:
        found = find_job(repo, job_id)
    except Unreadable as error:
        repo.tell_unreadable(error)
        return PriorJob(job_id, None)
    if found is None or found.state.terminal:
        return None
    return PriorJob(job_id, found.record)


def _not_ended(repo: Repository, fire: Fire, job_ids: list[str]) -> list[str]:
    """Of a batch the jobs that are not seen to have ended, or to be deleted."""
    shown = states_of(repo, ids.base_of(job_ids[0]))
    live = [one for one in job_ids if one not in shown or not shown[one].terminal]
    if all(one in shown for one in live):
        return live
    run = repo.find_run(fire.run_id)
    deleted = set() if run is None else set(run.value.deleted)
    return [one for one in live if ids.number_in(one, ids.base_of(one)) not in deleted]


def _live_pipelines(repo: Repository, roots: list[str]) -> _Live:
    live: list[str] = []
    shown: PriorJob | None = None
    for root in roots:
        try:
            seen = pipeline_sight.look(repo, root)
        except (NotFound, Refused):  # it was deleted: what is left of it are jobs of their own
            continue
        except Unreadable as error:
            repo.tell_unreadable(error)
            live, shown = [*live, root], shown or PriorJob(root, None)
            continue
        if seen.state.is_over:
            continue
        live.append(root)
        if shown is None:
            job_ids = pipeline_sight.live_jobs(seen) or [root]
            shown = _live_job(repo, job_ids[0]) or PriorJob(root, seen.root)
    return _Live(live, shown)


def _seen_working(repo: Repository, prior: PriorJob) -> PriorJob:
    """With what its worker said last."""
    record = prior.record
    if record is None or record.state is not State.RUNNING or record.holder is None:
        return prior
    beat = repo.find_heartbeat(record.id)
    heard_at, started_at = record.holder.claimed_at, None
    if beat is not None and beat.value.epoch == record.epoch:
        heard_at, started_at = beat.value.at, beat.value.started_at
    until = heard_at + timedelta(seconds=record.holder.lease_seconds)
    return replace(prior, started_at=started_at, lease_until=until)
