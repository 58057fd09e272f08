"""Each profile that comes with stado, on a worker that has room for it; a session that holds its
room."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import stado
from stado.cli.main import cli
from stado.core import keys
from stado.core.records import Capacity
from stado.core.states import State
from stado.profile_files import profile_folder
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import wait_for
from tests.engines.nvml import card, stand_in_for_nvidia

CARDS_SEEN = 'printf %s "$CUDA_VISIBLE_DEVICES" | tr , "\\n" | grep -c .'

COMMANDS = {
    "pytorch-1gpu": f'test "$({CARDS_SEEN})" = 1 && test "$OMP_NUM_THREADS" = 4',
    "pytorch-ddp": f'test "$({CARDS_SEEN})" = 2 && test "$NCCL_DEBUG" = WARN',
    "cpu-batch": 'test -z "$CUDA_VISIBLE_DEVICES" && test "$OMP_NUM_THREADS" = 1',
    "notebook": None,
    "evaluation": f'test "$({CARDS_SEEN})" = 1 && test "$PYTHONUNBUFFERED" = 1',
}
"""What shows that a job has what its profile states; None: what the profile itself runs."""

JUPYTER = """#!/bin/sh
touch "$STADO_CHECKPOINT_DIR/a.ipynb"
test "$1 $2 $3 $4" = "lab --no-browser --allow-root --ServerApp.root_dir=$STADO_CHECKPOINT_DIR"
"""
"""Stands for the program of that name, which is on the host or is not."""


def test_each_profile_runs_where_there_is_room_for_it(
    make_fleet: MakeFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R171: the cards are a stand-in's, the rest is real."""
    monkeypatch.setenv("USER", "ada")
    monkeypatch.delenv("WC_PROFILES_DIR", raising=False)
    jupyter = tmp_path / "jupyter"
    jupyter.write_text(JUPYTER)
    jupyter.chmod(0o755)
    fleet = make_fleet()
    store = str(fleet.settings.store)
    assert sorted(COMMANDS) == profile_folder({}).names()
    with stand_in_for_nvidia() as nvidia:
        nvidia.play(card(0), card(1))
        fleet.see_cards_of(nvidia)
        fleet.find_programs_in(tmp_path)
        fleet.agent("one", "--poll-seconds", "0.1", "--cpu", "16", "--memory-gb", "64")
        jobs = {
            name: stado.submit(command, run_id=name, profile=name, store=store)
            for name, command in COMMANDS.items()
        }
        ended = {name: job.wait(timeout=60) for name, job in jobs.items()}
    assert {name: status.state for name, status in ended.items()} == dict.fromkeys(
        COMMANDS, State.COMPLETED
    )
    left = jobs["notebook"].outputs(tmp_path / "left")
    assert [path.name for path in left] == ["a.ipynb"]


def test_a_session_holds_its_room_until_it_is_stopped(
    make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R126, R127: what its kind declares is taken from what other jobs are let in with."""
    monkeypatch.setenv("USER", "ada")
    monkeypatch.delenv("WC_PROFILES_DIR", raising=False)
    fleet = make_fleet(lease_seconds=4)
    for name, value in fleet.settings.environment().items():
        monkeypatch.setenv(name, value)
    fleet.agent("one", "--poll-seconds", "0.1", "--cpu", "2", "--memory-gb", "4")
    wait_for(lambda: fleet.repo.find(Capacity, keys.capacity("one")) is not None)

    def run(*words: str) -> str:
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 0, result.stderr
        return result.stdout.strip()

    session = stado.job(run("workload", "start", "hold", "--cpu", "1.5"))
    wait_for(lambda: session.status().state == State.RUNNING)
    waiting = stado.submit("true", run_id="waits", cpu=1)
    beside = stado.submit("true", run_id="beside", cpu=0.5)
    assert beside.wait(timeout=60).state == State.COMPLETED
    assert waiting.status().state == State.QUEUED
    assert run("workload", "stop", session.id) == f"{session.id}  cancelled"
    assert waiting.wait(timeout=60).state == State.COMPLETED
