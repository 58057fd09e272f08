"""Limits of time, and runs of a command, without one of their rules."""

from __future__ import annotations

from stado.core import clocks, moves
from stado.core.clocks import TimeLimit
from stado.core.records import Holder, Record
from stado.core.settings import DeploymentSettings
from stado.core.states import Reason
from stado.jobs import expiry
from stado_agent.breaks import OutOfTime
from stado_agent.job_clocks import TimeUp
from stado_agent.job_run import JobRun
from stado_agent.rules import Rules
from tests.mutants.mutant import Mutant, replaced

EXPIRY = "tests/jobs/test_expiry.py"
LIMITS = "tests/agent/test_time_limits.py"

_claimed = moves.claimed


def claimed_anew(
    record: Record, holder: Holder, settings: DeploymentSettings | None = None
) -> Record:
    fresh = record.evolve(picked_up_at=None)
    return _claimed(fresh, holder, settings)


def passed_anyway(record: Record, now_ms: int) -> TimeLimit:
    return TimeLimit(now_ms, Reason.DEADLINE_PASSED, "its entry says so")


def stop_without_asking(self: JobRun, time_up: TimeUp | None) -> None:
    if time_up is not None:
        self._commands.stop()
        raise OutOfTime(time_up)


MUTANTS = (
    Mutant(
        "lost jobs whose time is up are queued again",
        "Whoever ends an epoch as lost ends the job when its time is up.",
        f"{EXPIRY}::test_a_silent_holder_whose_time_is_up_is_not_queued_again",
        replaced(clocks, "passed_limit", lambda *_: None),
    ),
    Mutant(
        "each claim sets the clock anew",
        "The clock of a job starts with its first claim, and its limit is fixed there.",
        "tests/core/test_clocks.py::test_a_later_claim_changes_nothing",
        replaced(moves, "claimed", claimed_anew),
    ),
    Mutant(
        "entries end jobs",
        "A queued job is ended by what its record says of its time.",
        f"{EXPIRY}::test_an_entry_that_lies_ends_nothing",
        replaced(expiry, "passed_limit", passed_anyway),
    ),
    Mutant(
        "limits go before cancels",
        "A cancel that was asked for before a job was stopped for its time decides.",
        f"{LIMITS}::test_a_cancel_goes_before_every_limit",
        replaced(JobRun, "_stop_if_time_is_up", stop_without_asking),
        {"stated": {"timeout_seconds": 50}},
    ),
    Mutant(
        "commands are run again at any time",
        "A command is run again only while its last accepted beat is younger than half a lease.",
        "tests/agent/test_body_retries.py::test_no_run_begins_without_a_fresh_sign_of_life",
        replaced(JobRun, "_wait_for_permission", lambda _: None),
    ),
    Mutant(
        "agents claim before they know the limits",
        "Nothing is claimed before the settings could be read once.",
        "tests/agent/test_rules.py::test_nothing_is_claimed_before_the_limits_are_known",
        replaced(Rules, "_note_failure", lambda *_: None),
    ),
)
