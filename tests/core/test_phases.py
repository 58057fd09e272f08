"""Phases: what they are called, and what a job holds in each (R1-R13, R38)."""

from __future__ import annotations

import pytest

from stado.core import moves
from stado.core.phases import HOLDS, JobPhase, job_ref, phase_of, standing_named, state_named
from stado.core.records import Ending
from stado.core.states import State, Verdict
from tests.core.records import HOLDER, NOW, queued

RUNNING = moves.claimed(queued(), HOLDER)


def at_rest(state: State) -> JobPhase:
    ending = Ending(verdict=Verdict(state.value), ended_at=NOW, by="x")
    return phase_of(moves.ended(RUNNING, ending), heard=True, started_at=NOW)


def test_a_claimed_job_runs_once_its_command_was_started() -> None:
    """R4, R6, R7, R8, R13, R39, R40, R41, R42: queued is never what a worker has."""
    assert phase_of(queued(), heard=False, started_at=None) is JobPhase.QUEUED
    assert phase_of(RUNNING, heard=False, started_at=None) is JobPhase.SUBMITTED
    assert phase_of(RUNNING, heard=True, started_at=None) is JobPhase.PENDING
    assert phase_of(RUNNING, heard=True, started_at=NOW) is JobPhase.RUNNING


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        (State.PAUSED, "PAUSED"),
        (State.COMPLETED, "SUCCEEDED"),
        (State.FAILED, "FAILED"),
        (State.CANCELLED, "STOPPED"),
        (State.TIMED_OUT, "TIMED_OUT"),
    ],
)
def test_each_state_at_rest_has_a_phase(state: State, phase: str) -> None:
    """R10, R11, R12, R43, R44, R45, R72"""
    assert at_rest(state) == phase


def test_what_a_job_holds_is_one_table() -> None:
    """R38, R25, R26, R63: a place from the claim on, metered from the start of its command on, and
    nothing while it waits or rests."""
    assert set(HOLDS) == set(JobPhase)
    placed = {phase for phase, holds in HOLDS.items() if holds.place}
    assert placed == {JobPhase.SUBMITTED, JobPhase.PENDING, JobPhase.RUNNING}
    assert {phase for phase, holds in HOLDS.items() if holds.quota} == placed
    assert {phase for phase, holds in HOLDS.items() if holds.limit_clock} == placed
    assert [phase for phase, holds in HOLDS.items() if holds.metered] == [JobPhase.RUNNING]


@pytest.mark.parametrize("state", list(State))
def test_states_and_phases_are_understood_in_either_spelling(state: State) -> None:
    for word in (state.value, state.value.upper(), state.value.replace("_", "-")):
        assert state_named(word) is state


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("succeeded", State.COMPLETED),
        ("STOPPED", State.CANCELLED),
        ("pending", State.RUNNING),
        ("Submitted", State.RUNNING),
        ("canceled", State.CANCELLED),
        ("gone", None),
    ],
)
def test_words_of_other_queues_are_understood(word: str, state: State | None) -> None:
    assert state_named(word) is state


def test_each_stay_on_a_host_has_a_name_of_its_own() -> None:
    """R5: none while nobody has the job."""
    assert job_ref(queued()) is None
    assert job_ref(RUNNING) == "host-a/1-tttttttt"
    lost = moves.ended(RUNNING, Ending(verdict=Verdict.LOST, ended_at=NOW, by="x"))
    again = moves.claimed(lost.evolve(epoch=2, state=State.QUEUED), HOLDER)
    assert job_ref(again) != job_ref(RUNNING)


@pytest.mark.parametrize(
    ("word", "standing"),
    [
        ("pending", JobPhase.PENDING),
        ("SUBMITTED", JobPhase.SUBMITTED),
        ("RUNNING", State.RUNNING),
        ("succeeded", State.COMPLETED),
        ("done", None),
    ],
)
def test_what_is_looked_for_is_a_state_or_a_part_of_one(
    word: str, standing: State | JobPhase | None
) -> None:
    assert standing_named(word) is standing
