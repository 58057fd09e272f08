"""Supervisors and agents without one of their rules."""

from __future__ import annotations

from typing import Any

from stado.core import keys, moves
from stado.core.ids import milliseconds
from stado.core.records import Ending, Holder, Record
from stado.core.states import State, Verdict
from stado.jobs.claim import Claimed
from stado.jobs.endings import project
from stado.jobs.finding import find_job
from stado.jobs.quotas import Slots
from stado.jobs.repository import Repository
from stado_agent import job_run
from stado_agent.aftermath import Aftermath, _Death
from stado_agent.checkpoint_sync import CheckpointSync
from stado_agent.command_ending import CommandEnding
from stado_agent.job_run import JobRun
from stado_agent.pulse import Pulse
from tests.mutants.mutant import Mutant, all_of, replaced

WORKERS = "tests/holes/test_workers.py"
POLICIES = "tests/holes/test_policies.py"
JOB_RUNS = "tests/agent/test_job_run.py"

_write_late = JobRun._write_late
_end_as_lost = Aftermath._end_as_lost


def adopt_by_force(repo: Repository, record: Record, holder: Holder, _slots: Slots) -> Claimed:
    running = moves.claimed(record, holder)
    key = keys.record(State.RUNNING, record.id)
    return Claimed(running, repo.store.put(key, running.encode()))


def insist_on_the_outcome(self: JobRun) -> None:
    now = self._repo.now()
    ending = Ending(verdict=Verdict.COMPLETED, started_at=now, ended_at=now, by="alice")
    project(self._repo, moves.ended(self._record, ending))
    _write_late(self)


def end_before_publishing(self: JobRun, outcome: Ending) -> bool:
    self._finish(outcome)
    self._publish(outcome)
    return True


def take_for_dead(self: Aftermath, death: _Death) -> None:
    death.ended = True


def end_the_present_epoch(self: Aftermath, death: Any) -> None:
    found = find_job(self._repo, death.job_id)
    if found is not None:
        death.epoch = found.record.epoch
    _end_as_lost(self, death)


MUTANTS = (
    Mutant(
        "commands start at any time",
        "A command starts only while its last accepted beat is younger than half a lease.",
        f"{WORKERS}::test_no_command_starts_long_after_the_last_accepted_beat",
        replaced(Pulse, "may_start", lambda _: True),
    ),
    Mutant(
        "starts are not announced",
        "The beat that permits a start says so, so that the start is counted whatever happens.",
        f"{WORKERS}::test_a_start_is_counted_though_all_dies_right_after_it",
        replaced(JobRun, "_announce_start", lambda _: None),
    ),
    Mutant(
        "nobody adopts",
        "A living command is carried over into the next epoch if nobody else has that.",
        f"{JOB_RUNS}::test_a_sealed_job_that_nobody_else_has_is_adopted",
        replaced(JobRun, "_adopt", lambda *_: False),
    ),
    Mutant(
        "adoption by force",
        "An epoch is adopted only through its queue record, the gate and the cell.",
        f"{WORKERS}::test_an_adoption_leaves_an_epoch_to_who_has_it",
        replaced(job_run, "adopt", adopt_by_force),
    ),
    Mutant(
        "adoption of a cancelled job",
        "What was asked of the lost epoch decides before the next can be adopted.",
        f"{WORKERS}::test_a_cancel_acknowledged_just_before_an_adoption_is_not_dropped",
        replaced(job_run, "adopt", adopt_by_force),
    ),
    Mutant(
        "verdicts before what the job leaves",
        "What a job leaves is in the store before its verdict is given.",
        f"{WORKERS}::test_what_a_job_leaves_is_in_the_store_before_its_verdict",
        replaced(JobRun, "_has_delivered", end_before_publishing),
    ),
    Mutant(
        "lost workers go on",
        "A worker that has lost its epoch to another ends its command.",
        f"{JOB_RUNS}::test_a_job_that_somebody_else_has_by_now_is_stopped",
        replaced(JobRun, "_fence", lambda _: None),
    ),
    Mutant(
        "lost workers insist on their outcome",
        "A worker that has lost its epoch writes nothing but what is below its own keys.",
        f"{JOB_RUNS}::test_a_job_that_somebody_else_has_by_now_is_stopped",
        replaced(JobRun, "_write_late", insist_on_the_outcome),
    ),
    Mutant(
        "hosts go by their own clocks",
        "What orders or expires anything is on the store's clock.",
        "tests/agent/test_clocks.py::test_a_deadline_is_on_the_clock_of_the_store",
        all_of(
            replaced(Repository, "now", lambda repo: repo.clock.now()),
            replaced(Repository, "now_ms", lambda repo: milliseconds(repo.clock.now())),
        ),
        {"hours": 2.0},
    ),
    Mutant(
        "agents end the epochs of others",
        "An agent ends an epoch only if it is held in its own name on its own host.",
        "tests/agent/test_agent.py::test_an_agent_of_the_same_name_on_another_host_is_left_alone",
        replaced(Aftermath, "_is_ours", lambda *_: True),
    ),
    Mutant(
        "agents end later epochs of their jobs",
        "An agent ends the epoch that its dead supervisor had, and no later one.",
        "tests/agent/test_aftermath.py"
        "::test_the_next_epoch_is_left_alone_though_it_is_held_in_the_same_name",
        replaced(Aftermath, "_end_as_lost", end_the_present_epoch),
    ),
    Mutant(
        "agents end epochs of living commands",
        "Nothing is said of an epoch while a process of it lives.",
        "tests/agent/test_host_trouble.py"
        "::test_what_cannot_be_killed_keeps_its_epoch_and_its_place",
        replaced(Aftermath, "_kill", take_for_dead),
    ),
    Mutant(
        "old saves go at once",
        "What is older than a save goes only after a beat that came after it was accepted.",
        f"{POLICIES}::test_a_holder_that_was_declared_dead_deletes_nothing_that_a_policy_names",
        replaced(CheckpointSync, "_sweep_when_heard", CheckpointSync.sweep_rest),
    ),
    Mutant(
        "cancels are reported while a process lives",
        "No cancel is reported while a process of the job lives.",
        f"{JOB_RUNS}::test_a_cancel_is_never_reported_while_a_process_lives",
        replaced(CommandEnding, "stop", lambda *_, **__: True),
    ),
)
