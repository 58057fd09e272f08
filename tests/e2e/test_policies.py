"""Trainings on a real host: cancelled, and started from."""

from __future__ import annotations

from pathlib import Path

from stado.core.records import Checkpoint, SaveRef
from stado.core.states import JobType, Reason, State
from stado.jobs.changes import cancel
from stado.jobs.policies import pin_start
from stado.jobs.policy_seals import find_seal
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import SMALL, wait_for

TRAINS = SMALL.evolve(type=JobType.TRAIN)
SAVE = (
    "cd $STADO_CHECKPOINT_DIR; echo {step} > new; mv new model;"
    ' echo \'{{"step": {step}, "metric": "reward", "value": {value}}}\' > new;'
    " mv new stado-checkpoint.json;"
)
"""What a job does that knows nothing of stado."""


def test_what_a_cancelled_training_saved_is_what_another_starts_from(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """R88, R103, R111: the best and what lay there at the end; a job that saves nothing fails."""
    fleet = make_fleet(lease_seconds=2)
    fleet.coordinator()
    fleet.agent("one")
    saved, gate = tmp_path / "saved", tmp_path / "gate"
    first, second = SAVE.format(step=1, value=9.5), SAVE.format(step=2, value=3)
    training = fleet.submit(
        f"{first} touch {saved}; while [ ! -e {gate} ]; do sleep 0.1; done; {second} sleep 300",
        spec=TRAINS,
    )
    empty = fleet.submit("true", spec=TRAINS)
    (job,), (empty_job,) = training.job_ids, empty.job_ids
    wait_for(saved.exists)
    wait_for(lambda: fleet.story(job).checkpoint is not None)
    assert find_seal(fleet.repo, job) is None
    gate.touch()
    wait_for(lambda: _step(fleet.story(job).checkpoint) == 2)
    cancel(fleet.repo, job, by="ada")
    assert fleet.wait_at_rest(training) == {job: State.CANCELLED}
    seal = find_seal(fleet.repo, job)
    assert seal is not None
    assert [_step(save) for save in (seal.best, seal.latest)] == [1, 2]

    assert fleet.wait_at_rest(empty) == {empty_job: State.FAILED}
    ending = fleet.story(empty_job).record.ending
    assert ending is not None
    assert ending.reason is Reason.NO_CHECKPOINT_SAVED

    start_from = pin_start(fleet.repo, f"policy_{job}:best")
    going_on = fleet.submit(
        "test $(cat $STADO_CHECKPOINT_DIR/model) = 1", spec=SMALL.evolve(start_from=start_from)
    )
    assert set(fleet.wait_at_rest(going_on).values()) == {State.COMPLETED}
    assert find_seal(fleet.repo, job) == seal


def _step(saved: Checkpoint | SaveRef | None) -> int | None:
    return saved.meta.step if saved is not None and saved.meta is not None else None
