"""examples/digits-sweep as a pipeline: train, export, evaluate; and each of its two troubles."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from pathlib import Path

import stado
from stado.core.pipelines import PipelineState
from stado.core.states import State
from stado.jobs.changes import retry
from stado.jobs.pipeline_sight import PipelineSight, look
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import ROOT, Fleet, wait_for

EXAMPLE = ROOT / "examples" / "digits-sweep"
PYTHON = shlex.quote(sys.executable)


def ended(fleet: Fleet, root: str, word: PipelineState) -> list[State | None]:
    """The states of its steps once the pipeline has come to this word."""
    wait_for(lambda: look(fleet.repo, root).state is word, seconds=60, every_seconds=0.5)
    return [step.state for step in look(fleet.repo, root).steps]


def test_a_pipeline_gets_over_a_killed_training_and_an_export_that_failed(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """R50, R57, R60, R61, R62: on a bucket. The training is killed and retried, the export fails
    for its host and is retried; what comes out at the end is what was trained."""
    fleet = make_fleet("seaweedfs")
    fleet.agent("one", "--poll-seconds", "0.5")
    gate, models = tmp_path / "gate", tmp_path / "models"
    training = f"until [ -e {gate} ]; do sleep 0.1; done; {PYTHON} train.py --model logistic --C 1"
    place = fleet.settings
    submitted = stado.submit(
        training,
        run_id="digits",
        host_dir=EXAMPLE,
        then={
            "export": f"{PYTHON} export.py --to {models}",
            "eval": f"{PYTHON} evaluate.py --at-least 0.9",
        },
        store=place.store,
        endpoint=place.endpoint,
    )
    root = submitted.id

    os.killpg(fleet.started("one", root).leader, signal.SIGKILL)
    assert ended(fleet, root, PipelineState.FAILED) == [None, None]
    gate.touch()
    retry(fleet.repo, root, by="ada")

    assert ended(fleet, root, PipelineState.PARTIAL) == [State.FAILED, None]
    told = fleet.stado("pipeline", "show", root)
    assert "is partial: 0 of 2 steps completed, 1 skipped" in told.stderr
    models.mkdir()
    export = look(fleet.repo, root).steps[0].job_id
    assert export is not None
    retry(fleet.repo, export, by="ada")

    assert ended(fleet, root, PipelineState.SUCCEEDED) == [State.COMPLETED] * 2
    assert (models / "weights.json").exists()
    assert measured(fleet, look(fleet.repo, root)) > 0.9


def measured(fleet: Fleet, seen: PipelineSight) -> float:
    """The accuracy that the training found, and the evaluation of what was exported too."""
    evaluation = seen.steps[1].job_id
    assert evaluation is not None
    place = fleet.settings
    found = stado.job(evaluation, store=place.store, endpoint=place.endpoint).result()
    trained = stado.job(seen.root.id, store=place.store, endpoint=place.endpoint)
    (metrics,) = [
        path for path in trained.outputs(fleet.folder / "got") if path.name == "metrics.json"
    ]
    assert json.loads(metrics.read_text())["accuracy"] == found["accuracy"]
    return float(found["accuracy"])
