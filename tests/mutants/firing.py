"""Schedules without one of their rules."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from stado.core import schedules as core
from stado.core.schedules import Schedule
from stado.jobs import firing, schedules
from stado.jobs.firing import Firing
from stado.jobs.repository import Repository, Stored
from stado.jobs.submit import submit_as
from tests.mutants.mutant import Mutant, replaced, replaced_everywhere

TESTS = "tests/jobs/test_schedules.py"

_needs_a_look = Schedule.needs_a_look


def written_over(
    repo: Repository, stored: Stored[Schedule], changed: Schedule
) -> Stored[Schedule] | None:
    changed = changed.evolve(nonce=repo.entropy.token())
    return Stored(changed, repo.store.put(changed.own_key(), changed.encode()))


def under_any_id(repo: Repository, **asked: Any) -> Any:
    return submit_as(repo, **asked | {"run_id": f"{asked['run_id']}-{repo.entropy.letters(6)}"})


def only_what_is_due(self: Schedule, now: datetime) -> bool:
    return self.firing is None and _needs_a_look(self, now)


def changed_at_once(
    repo: Repository, name: str, change: schedules.Change, *, by: str
) -> tuple[Schedule, bool]:
    stored = repo.read(Schedule, core.keys.schedule(name))
    changed = change(stored)
    if changed is None:
        return stored.value, False
    new = firing.replaced(repo, stored, changed.evolve(changed_by=by))
    assert new is not None
    return new.value, True


def deleted_at_once(repo: Repository, name: str, *, by: str) -> Schedule:
    stored = repo.read(Schedule, core.keys.schedule(name))
    repo.store.delete(core.keys.schedule(name), stored.version)
    return stored.value


def each_missed_one(
    schedule: Schedule, zone: Any, now: datetime, *, late_seconds: float
) -> core.Due | None:
    due = schedule.next_at
    if due is None or due > now or schedule.paused is not None:
        return None
    return core.Due(due, core._following(schedule, zone, due), None)


def nothing_live(repo: Repository, schedule: Schedule) -> firing._Look:
    return firing._Look(None, schedule.fires[-1:], [])


def the_last_alone(repo: Repository, schedule: Schedule) -> firing._Look:
    return _look_at_prior(repo, schedule.evolve(fires=schedule.fires[-1:]))


_look_at_prior = firing.look_at_prior


def resumed_where_it_was(schedule: Schedule, zone: Any, now: datetime) -> datetime | None:
    return schedule.next_at or _first_due(schedule, zone, now)


_first_due = core.first_due


def fire_and_submit_first(self: Firing, schedule: Schedule, due_at: datetime, *rest: Any) -> Any:
    """The run before it is decided."""
    run_id = core.fire_run_id(schedule.name, due_at)
    submit_as(self._repo, run_id=run_id, request=schedule.request, submitter=schedule.created_by)
    return _fire(self, schedule, due_at, *rest)


_fire = Firing._fire


MUTANTS = (
    Mutant(
        "schedules are written over what stands there",
        "Each change of a schedule is a replace by the version that was read.",
        f"{TESTS}::test_once_a_pause_or_a_removal_is_acknowledged_no_job_appears",
        replaced_everywhere(firing, "replaced", written_over),
        {"change": "pause", "steps": 6},
    ),
    Mutant(
        "a submission of a schedule has any run id",
        "The run id of a submission follows from the schedule and the due time.",
        f"{TESTS}::test_a_coordinator_that_dies_at_any_request_costs_no_due_time_and_makes_none_twice",
        replaced(firing, "submit_as", under_any_id),
        {"applied": False},
    ),
    Mutant(
        "nobody finishes what another has decided",
        "What was decided whoever meets it submits.",
        f"{TESTS}::test_a_coordinator_that_dies_at_any_request_costs_no_due_time_and_makes_none_twice",
        replaced(Schedule, "needs_a_look", only_what_is_due),
        {"applied": True},
    ),
    Mutant(
        "a pause does not wait for what is being submitted",
        "Who pauses a schedule finishes what was decided before.",
        f"{TESTS}::test_once_a_pause_or_a_removal_is_acknowledged_no_job_appears",
        replaced(schedules, "_change", changed_at_once),
        {"change": "pause", "steps": 3},
    ),
    Mutant(
        "schedules submit before they decide",
        "A submission is decided in the document before it is made.",
        f"{TESTS}::test_once_a_pause_or_a_removal_is_acknowledged_no_job_appears",
        replaced(Firing, "_fire", fire_and_submit_first),
        {"change": "pause", "steps": 2},
    ),
    Mutant(
        "a removed schedule is deleted at once",
        "The document of a removed schedule stays for a day.",
        f"{TESTS}::test_a_removed_schedule_does_not_come_back_by_a_create_that_was_long_on_its_way",
        replaced_everywhere(schedules, "remove", deleted_at_once),
        fails_with=pytest.fail.Exception,
    ),
    Mutant(
        "all that was missed is submitted",
        "Of the due times that were missed the last one is submitted at most.",
        f"{TESTS}::test_a_coordinator_that_comes_after_the_end_still_submits_the_latest",
        replaced(core, "due", each_missed_one),
    ),
    Mutant(
        "schedules look at no earlier job",
        "Nothing is submitted while a job of the submission before is live.",
        f"{TESTS}::test_a_submission_has_ended_when_all_its_jobs_have",
        replaced(firing, "look_at_prior", nothing_live),
    ),
    Mutant(
        "schedules look at the last submission alone",
        "An earlier submission that is live counts, whatever was submitted since.",
        f"{TESTS}::test_an_earlier_job_that_is_live_counts_though_another_was_submitted_since",
        replaced(firing, "look_at_prior", the_last_alone),
    ),
    Mutant(
        "a resumed schedule catches up",
        "A resumed schedule goes on from now.",
        f"{TESTS}::test_a_paused_schedule_submits_nothing_and_catches_nothing_up",
        replaced(core, "first_due", resumed_where_it_was),
    ),
)
