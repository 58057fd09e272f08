"""examples/resumable-training: a training that loses its host again and again, and nothing else."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import stado
from stado.core import keys
from stado.core.states import State
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import ROOT, SMALL, Fleet, wait_for

HOSTS = ("a", "b", "c", "d")
ROUNDS = 40
TRAINING = [
    *(sys.executable, str(ROOT / "examples" / "resumable-training" / "train.py")),
    *("--rounds", str(ROUNDS), "--hidden", "16", "--checkpoint-every", "4"),
]
PAUSE_SECONDS = "0.4"
"""After each round: no host may get to the end before a checkpoint of it was seen, however slow the
store is."""


def undisturbed(folder: Path) -> Path:
    """What the training leaves when nothing happens to it."""
    environment = {**os.environ, "STADO_OUTPUT_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    subprocess.run(TRAINING, env=environment, check=True, timeout=100, stdout=subprocess.DEVNULL)
    return folder


def holder_of(fleet: Fleet, job_id: str, epoch: int) -> str | None:
    claims = [story.claim for story in fleet.story(job_id).epochs if story.epoch == epoch]
    return claims[0].by if claims and claims[0] is not None else None


def has_saved(fleet: Fleet, job_id: str, epoch: int) -> bool:
    """Whether an epoch's training got further than the one before, and that is in the store."""
    names = fleet.repo.store.list(keys.checkpoints_folder(job_id))
    return any(f"/{epoch:06}-" in entry.key and "manifest" in entry.key for entry in names)


@pytest.mark.timeout(300)
def test_a_training_that_loses_its_host_three_times_ends_with_the_same_model(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """R211: agent, supervisor and command are killed in mid-run, on a bucket; other hosts go on
    from the last checkpoint. Its log and its metrics read as one."""
    expected = undisturbed(tmp_path / "undisturbed")
    fleet = make_fleet("seaweedfs", lease_seconds=2)
    fleet.coordinator()
    agents = {name: fleet.agent(name, "--poll-seconds", "0.5") for name in HOSTS[:2]}
    slowly = [*TRAINING, "--pause", PAUSE_SECONDS]
    submission = fleet.submit(shlex.join(slowly), spec=SMALL)
    (job_id,) = submission.job_ids
    place = fleet.settings
    job = stado.job(job_id, store=place.store, endpoint=place.endpoint)
    lines: list[str] = []
    follower = threading.Thread(target=lambda: lines.extend(job.logs(follow=True)), daemon=True)
    follower.start()
    for epoch, reserve in enumerate((*HOSTS[2:], None), start=1):
        wait_for(lambda: has_saved(fleet, job_id, epoch))  # noqa: B023 - it returns at once
        host = holder_of(fleet, job_id, epoch)
        assert host is not None
        started = fleet.started(host, job_id)
        agents.pop(host).kill()
        started.kill()
        if reserve is not None:
            agents[reserve] = fleet.agent(reserve, "--poll-seconds", "0.5")
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    follower.join(60)

    record = fleet.story(job_id).record
    assert (record.epoch, record.starts, record.lease_losses) == (4, 4, 3)
    job.outputs(tmp_path / "got")
    for name in ("model.npz", "result.json", "metrics.jsonl"):
        assert (tmp_path / "got" / name).read_bytes() == (expected / name).read_bytes(), name
    assert job.result() == json.loads((expected / "result.json").read_text())
    assert job.status().state == "completed"
    check_log(lines, job_id)
    assert list(job.logs()) == lines
    assert (tmp_path / "got" / "log.txt").read_text().splitlines() == lines


def check_log(lines: list[str], job_id: str) -> None:
    """Each epoch tells from which round it goes on, which is one that was done; the last one gets
    to the end. (Of what a host printed last, some is lost with it.)"""
    text = "\n".join(lines)
    parts = re.split(rf"\[stado: epoch \d of job {job_id} begins: epoch \d lost .+\]\n", text)
    assert len(parts) == 4
    begins = [int(found[1]) for part in parts if (found := re.match(r"from round (\d+) of", part))]
    assert begins == sorted(set(begins))
    assert begins[0] == 1
    assert all(begin % 4 == 1 for begin in begins)
    rounds = [int(number) for number in re.findall(r"^round (\d+):", parts[-1], re.MULTILINE)]
    assert rounds == list(range(begins[-1] + 3, ROUNDS + 1, 4))
    assert lines[-1].startswith("model.npz: accuracy ")
