"""Schedules as people make, change and look at them.

Each change is one replace of the document by the version that was read, so that none is lost, be
it made while a coordinator submits. (`firing` does what is due.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from stado.core import keys, schedules
from stado.core.records import RunRecord
from stado.core.schedules import NAME_PATTERN, Fire, Schedule, ScheduleStop
from stado.core.spec import differing_fields
from stado.core.states import State
from stado.core.zones import zone_named
from stado.errors import Conflict, NotFound, Refused, StoreError, Unreadable
from stado.jobs import snapshots, taking
from stado.jobs.finding import find_job
from stado.jobs.firing import finish_firing, replaced
from stado.jobs.repository import PARALLEL_REQUESTS, Repository, Stored
from stado.jobs.status import states_of
from stado.jobs.submission import job_ids_of
from stado.storage.port import Entry, walk

Change = Callable[[Stored[Schedule]], Schedule | None]

_DAY = timedelta(days=1)
_HISTORY_GROWTH = 8
_LOOKED_AT_MAX = 100
_PAGES_MAX = 20
_NAMED_MAX = 3
"""Schedules that are named where a part of a name fits several."""


# --- making and changing ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Created:
    """The answer to a create."""

    schedule: Schedule
    created: bool
    """False: it was there already, as it is."""


def create(repo: Repository, schedule: Schedule) -> Created:
    """Makes a schedule. The same again answers the one that is there.

    Refers to the snapshot and the outputs that its jobs take along, then creates the document. A
    crash between leaves references of a schedule that is not there, which take room. Raises
    `Refused` (`schedule_exists`) for another one of this name, (`schedule_never`) where nothing
    would ever be due, (`schedule_too_large`, `schedule_invalid`), (`snapshot_missing`)."""
    _check(schedule)
    now = repo.now()
    next_at = schedules.first_due(schedule, zone_named(schedule.zone), now)
    schedule = schedule.evolve(next_at=next_at, nonce=repo.entropy.token(), created_at=now)
    schedule = schedule.evolve(changed_at=now, changed_by=schedule.created_by)
    for _ in repo.rounds():
        found = repo.find(Schedule, schedule.own_key())
        if found is not None and found.value.removed is None:
            return Created(_checked_same(found.value, schedule), created=False)
        if next_at is None:
            raise Refused(
                "schedule_never",
                f"schedule {schedule.name} would never be due: no time of {schedule.cron!r} lies "
                "between now, or its start, and its end",
            )
        if _written(repo, schedule, found):
            return Created(schedule, created=True)
    raise Conflict(schedule.own_key(), "others keep changing it: try again")


def _written(repo: Repository, schedule: Schedule, removed: Stored[Schedule] | None) -> bool:
    """Whether it is there now, where there was none, or one that was removed; False: somebody else
    was faster."""
    holder = schedules.snapshot_holder(schedule)
    if schedule.snapshot_digest is not None:
        snapshots.refer(repo, schedule.snapshot_digest, holder)
    inputs = taking.of_jobs(schedule.request.shared.inputs)
    taking.take_along(repo, inputs, holder)
    if removed is not None:
        written = replaced(repo, removed, schedule) is not None
    else:
        written = repo.create(schedule.own_key(), schedule) is not None
    if written or (schedule.snapshot_digest is None and not inputs):
        return written
    there = repo.find(Schedule, schedule.own_key())
    if there is None or there.value.created_at != schedule.created_at:
        _forget_references(repo, schedule)
    return False


def _check(schedule: Schedule) -> None:
    schedules.check_name(schedule.name)
    flaw = schedule.flaw()
    if flaw is not None:
        raise Refused("schedule_invalid", f"schedule {schedule.name} cannot be made: {flaw}")
    size = sum(len(command.encode()) for command in schedule.request.commands)
    if size > schedules.REQUEST_BYTES_MAX:
        raise Refused(
            "schedule_too_large",
            f"the commands of schedule {schedule.name} have {size:,} bytes and at most "
            f"{schedules.REQUEST_BYTES_MAX:,} are taken: put them into a script that its job runs",
        )


def _checked_same(there: Schedule, new: Schedule) -> Schedule:
    differ = schedules.differences(there, new)
    if there.request.digest() != new.request.digest():
        differ += differing_fields(there.request, new.request) or ["what it submits"]
    if differ:
        raise Refused(
            "schedule_exists",
            f"schedule {there.name} is there already, and is another one: {'; '.join(differ)}. "
            f"Use another name, or remove it (stado schedule rm {there.name})",
        )
    return there


def pause(repo: Repository, name: str, *, by: str) -> tuple[Schedule, bool]:
    """Nothing more is submitted when this returns, but for what somebody asks for: what was being
    submitted is brought to its end before. What waited for earlier jobs is forgotten. And whether
    it was not paused before. Raises `NotFound`, `Unreadable`."""

    def paused(stored: Stored[Schedule]) -> Schedule | None:
        schedule = stored.value
        if schedule.paused is not None:
            return None
        said = ScheduleStop(by=by, at=repo.now())
        return schedule.evolve(paused=said, waiting_at=None)

    return _change(repo, name, paused, by=by)


def resume(repo: Repository, name: str, *, by: str) -> tuple[Schedule, bool]:
    """Its next due time is the first from now on; and whether it was paused. Raises `NotFound`,
    `Unreadable`, `Refused` (`zone_unknown`)."""

    def resumed(stored: Stored[Schedule]) -> Schedule | None:
        schedule = stored.value
        if schedule.paused is None:
            return None
        next_at = schedules.first_due(schedule, zone_named(schedule.zone), repo.now())
        return schedule.evolve(paused=None, next_at=next_at)

    return _change(repo, name, resumed, by=by)


def run_now(repo: Repository, name: str, *, by: str) -> tuple[Schedule, Fire]:
    """Submits once, whatever is due when, live, or paused; the schedule, and the submission.
    Raises `NotFound`, `Unreadable`, and `Refused` as a submission does."""
    now = repo.now()
    run_id = schedules.asked_run_id(name, now, repo.entropy.letters(6))

    def asked(stored: Stored[Schedule]) -> Schedule | None:
        return stored.value.evolve(firing=Fire(run_id=run_id, at=now, by=by))

    schedule, _ = _change(repo, name, asked, by=by)
    finished = finish_firing(repo, schedule.own_key(), run_id)
    if finished.refusal is not None:
        raise finished.refusal
    return schedule, _submitted(repo, finished.fire)


def _submitted(repo: Repository, fire: Fire) -> Fire:
    """With its base id, where a coordinator was faster and the schedule has forgotten it since."""
    if fire.base_id is not None:
        return fire
    run = repo.find_run(fire.run_id)
    if run is None:
        raise Refused(
            "schedule_not_fired",
            f"a coordinator could not submit {fire.run_id}: `stado schedule show` says why",
        )
    return fire.evolve(base_id=run.value.base_id)


def remove(repo: Repository, name: str, *, by: str) -> Schedule:
    """Leaves its jobs alone: nothing more is submitted when this returns.

    Marks the document, which a coordinator deletes a day later, then deletes the reference to its
    snapshot. A crash between leaves the reference, which takes room. Raises `NotFound`,
    `Unreadable`."""

    def removed(stored: Stored[Schedule]) -> Schedule:
        said = ScheduleStop(by=by, at=repo.now())
        return stored.value.evolve(removed=said, next_at=None, waiting_at=None)

    schedule, _ = _change(repo, name, removed, by=by)
    _forget_references(repo, schedule)
    return schedule


def _forget_references(repo: Repository, schedule: Schedule) -> None:
    holder = schedules.snapshot_holder(schedule)
    taking.leave_behind(repo, schedule.request.shared.inputs, holder)
    if schedule.snapshot_digest is not None:
        snapshots.drop_reference(repo, schedule.snapshot_digest, holder)
        snapshots.remove_unnamed(repo, schedule.snapshot_digest)


def _change(repo: Repository, name: str, change: Change, *, by: str) -> tuple[Schedule, bool]:
    """What is being submitted goes first: whoever is at it finds it done."""
    key = keys.schedule(name)
    for _ in repo.rounds():
        stored = repo.read(Schedule, key)
        if stored.value.removed is not None:
            raise NotFound(key, "it was removed")
        if stored.value.firing is not None:
            finish_firing(repo, key, stored.value.firing.run_id)
            continue
        changed = change(stored)
        if changed is None:
            return stored.value, False
        new = replaced(repo, stored, changed.evolve(changed_at=repo.now(), changed_by=by))
        if new is not None:
            return new.value, True
    raise Conflict(key, "others keep changing it: try again")


# --- looking ------------------------------------------------------------------------------


def schedule_named(repo: Repository, text: str) -> str:
    """The one schedule of this name, or whose name begins so: its name. A read; a listing where
    there is none of this name, and a read of each whose name begins so. Raises `Refused`
    (`schedule_unknown`, `schedule_ambiguous`)."""
    found: list[str] = []
    if NAME_PATTERN.fullmatch(text):
        if _is_there(repo, text):
            return text
        names = [one for one in _names(repo, text, limit=_LOOKED_AT_MAX) if one.startswith(text)]
        found = list(islice((name for name in names if _is_there(repo, name)), _NAMED_MAX + 1))
    if not found:
        raise Refused(
            "schedule_unknown",
            f"there is no schedule {text!r} in {repo.store.address}: `stado schedule list` has all",
        )
    if len(found) > 1:
        more = ", …" if len(found) > _NAMED_MAX else ""
        raise Refused(
            "schedule_ambiguous",
            f"several schedules begin with {text!r}: {', '.join(found[:_NAMED_MAX])}{more}",
        )
    return found[0]


def _is_there(repo: Repository, name: str) -> bool:
    """One that cannot be read is, as far as anybody knows."""
    try:
        find_schedule(repo, name)
    except NotFound:
        return False
    except Unreadable:
        return True
    return True


def find_schedule(repo: Repository, name: str) -> Schedule:
    """Raises `NotFound`, also for one that was removed, and `Unreadable`."""
    schedule = repo.read(Schedule, keys.schedule(name)).value
    if schedule.removed is not None:
        raise NotFound(keys.schedule(name), "it was removed")
    return schedule


@dataclass(frozen=True, slots=True)
class Outcome:
    """What has become of a submission."""

    run_id: str
    fire: Fire | None
    """As the schedule has it; None where it does not remember this one."""
    at: datetime
    """When it was due, or asked for."""
    was_due: bool
    job_ids: list[str]
    states: dict[str, State]
    """Of the jobs that are there."""
    problem: str | None = None
    """Why that cannot be told."""


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A schedule in a list."""

    name: str
    schedule: Schedule | None
    """None: it cannot be read, and `problem` says why."""
    last: Outcome | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ScheduleList:
    rows: list[ScheduleRow]
    more: bool
    """Whether there are further ones behind the last row."""


def list_schedules(repo: Repository, *, limit: int, after: str = "") -> ScheduleList:
    """By name, each with what its last submission has come to: a listing, and of each schedule a
    read and a look at that, however many it has submitted."""
    rows: list[ScheduleRow] = []
    for _ in range(_PAGES_MAX):
        names = _names(repo, "", limit=limit + 1, after=after)
        page = repo.tasks.map(lambda name: _row(repo, name), names[:limit], limit=PARALLEL_REQUESTS)
        rows += [row for row in page if row is not None]
        if len(names) <= limit or len(rows) >= limit:  # else some of them were removed
            break
        after = names[limit - 1]
    return ScheduleList(rows[:limit], more=len(names) > limit or len(rows) > limit)


def _row(repo: Repository, name: str) -> ScheduleRow | None:
    """None: it is gone."""
    try:
        schedule = find_schedule(repo, name)
    except NotFound:
        return None
    except Unreadable as error:
        return ScheduleRow(name, None, problem=error.why)
    last = schedule.last
    return ScheduleRow(name, schedule, None if last is None else outcome_of(repo, schedule, last))


def _names(repo: Repository, beginning: str, *, limit: int, after: str = "") -> list[str]:
    start = keys.schedule(after) if after else ""
    found = (keys.schedule_of_key(one.key) for one in _entries(repo, beginning, start))
    return list(islice((name for name in found if NAME_PATTERN.fullmatch(name)), limit))


def _entries(repo: Repository, beginning: str, start_after: str) -> Iterator[Entry]:
    return walk(repo.store, keys.SCHEDULES + beginning, start_after=start_after)


def outcome_of(repo: Repository, schedule: Schedule, fire: Fire) -> Outcome:
    """By what the schedule remembers."""
    at, was_due = fire.due_at or fire.at, fire.due_at is not None
    job_ids = schedule.job_ids(fire)
    states, problem = _states(repo, job_ids, schedule.request.batch)
    return Outcome(fire.run_id, fire, at, was_due, job_ids, states, problem)


def history(repo: Repository, schedule: Schedule, *, limit: int) -> list[Outcome]:
    """Its newest submissions, the newest first: of each the run record and a look at its jobs. The
    names of runs say when they were due, so that no more of them is listed than some times the
    limit."""
    found = _newest_runs(repo, schedule, limit=limit)
    outcomes = repo.tasks.map(lambda run_id: _outcome(repo, run_id), found, limit=PARALLEL_REQUESTS)
    return [outcome for outcome in outcomes if outcome is not None]


def _newest_runs(repo: Repository, schedule: Schedule, *, limit: int) -> list[str]:
    """Looks back from now, further each time, until there are enough or it did not exist."""
    prefix, now = keys.runs_of_schedule(schedule.name), repo.now()
    back = _DAY
    while True:
        is_all = back >= now - schedule.created_at + _DAY
        begin = "" if is_all else keys.run(schedules.fire_run_id(schedule.name, now - back))
        runs = [keys.run_of_key(one.key) for one in walk(repo.store, prefix, start_after=begin)]
        runs = [run_id for run_id in runs if schedules.parse_fire_run_id(run_id) is not None]
        if len(runs) >= limit or is_all:
            return runs[::-1][:limit]
        back *= _HISTORY_GROWTH


def _outcome(repo: Repository, run_id: str) -> Outcome | None:
    parsed = schedules.parse_fire_run_id(run_id)
    if parsed is None:
        return None
    _, at, was_due = parsed
    try:
        stored = repo.find(RunRecord, keys.run(run_id))
    except Unreadable as error:
        return Outcome(run_id, None, at, was_due, [], {}, error.why)
    if stored is None:
        return None
    job_ids = job_ids_of(stored.value)
    states, problem = _states(repo, job_ids, stored.value.request.batch)
    return Outcome(run_id, None, at, was_due, job_ids, states, problem)


def _states(
    repo: Repository, job_ids: list[str], batch: bool
) -> tuple[dict[str, State], str | None]:
    """Of the jobs of a submission that are there; or why that cannot be told."""
    if not job_ids:
        return {}, None
    try:
        if batch:
            return states_of(repo, job_ids[0].partition("-")[0]), None
        found = find_job(repo, job_ids[0])
        return ({} if found is None else {found.record.id: found.state}), None
    except (StoreError, Unreadable) as error:
        return {}, str(error)
