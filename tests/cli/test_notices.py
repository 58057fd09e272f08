"""Notices, as people ask for them, and as a coordinator with a real channel sends them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import Undelivered
from stado.core.states import NotifyOn
from tests.cli.conftest import Program, World

ENDS = "completed,failed,cancelled,timed_out"


def submit(stado: Program, run_id: str, *rules: str) -> str:
    options = [part for rule in rules for part in ("--notify", rule)]
    return stado.ok("submit", "--run-id", run_id, *options, "run")


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ("team", f"team:{ENDS}"),
        ("team:failed", "team:failed"),
        ("team:STOPPED,Failed,timed-out", "team:failed,cancelled,timed_out"),
        ("team:pipeline,SUCCEEDED", "team:completed,pipeline"),
        ("team:running,paused", "team:running,paused"),
    ],
)
def test_a_job_says_what_is_told_of_it_in_states_or_phases(
    stado: Program, world: World, typed: str, stored: str
) -> None:
    """R226"""
    job = submit(stado, "r", typed)
    assert stado.json("job", "show", job)["notify"] == [stored]
    assert f"tells     {stored}" in stado.ok("job", "show", job)


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("team:sometimes", "nobody is told of 'sometimes': there is running, paused"),
        ("team:queued", "nobody is told of 'queued'"),
        ("https://example.org/hook", "nobody is told of '//example.org/hook'"),
        ("Team", "must be CHANNEL:WORD,WORD"),
        ("team:", "nobody is told of ''"),
    ],
)
def test_what_is_no_rule_is_refused(stado: Program, world: World, typed: str, why: str) -> None:
    """R227: an address is none: what is behind a channel, its coordinator's owner says."""
    sentence = stado.refused("submit", "--run-id", "r", "--notify", typed, "run")
    assert why in sentence


def test_a_channel_is_named_once(stado: Program, world: World) -> None:
    sentence = stado.refused(
        "submit", "--run-id", "r", "--notify", "a", "--notify", "a:paused", "x"
    )
    assert "channel a is named twice" in sentence


def test_rules_are_a_setting_of_the_deployment(stado: Program, world: World) -> None:
    """R226"""
    stado.ok("settings", "set", "notify.rules", "team:failed pager:TIMED_OUT")
    assert stado.json("settings", "get", "notify.rules")["value"] == [
        "pager:timed_out",
        "team:failed",
    ]
    assert "must be CHANNEL:WORD,WORD" in stado.refused("settings", "set", "notify.rules", "A")


def channel_file(folder: Path, out: Path) -> Path:
    path = folder / "channels.toml"
    path.write_text(f'[channels.team]\ncommand = ["/usr/bin/tee", "-a", "{out}"]\n')
    path.chmod(0o600)
    return path


def test_a_coordinator_sends_what_is_noted_on_its_own_channels(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """R226, R227: with a real program, in a process of its own."""
    out = tmp_path / "heard"
    path = channel_file(tmp_path, out)
    job = submit(stado, "r", "team:failed,running", "other:failed")
    world.fail(job, 3)
    coordinator = stado.start("coordinator", "run", "--once", "--channels", str(path))
    _, log = coordinator.communicate(timeout=60)
    assert coordinator.returncode == 0, log
    heard = [json.loads(line) for line in out.read_text().splitlines()]
    assert {one["id"]: one["status"] for one in heard} == {
        f"{job}.1.failed": "failed",
        f"{job}.1.running": "running",
    }
    assert f"event=notified id={job}.1.failed channel=team".encode() in log
    left = [entry.key for entry in world.repo.store.list(keys.NOTICES)]
    assert left == [keys.notice(job, 1, "failed", "other")]


def test_a_channel_file_that_others_can_write_is_refused(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """R227: with exit code 2, before anything is done."""
    path = channel_file(tmp_path, tmp_path / "heard")
    path.chmod(0o666)
    coordinator = stado.start("coordinator", "run", "--once", "--channels", str(path))
    _, log = coordinator.communicate(timeout=60)
    assert coordinator.returncode == 2
    assert b"others can read or write it: chmod 600" in log


def test_doctor_tells_what_could_not_be_told(stado: Program, world: World) -> None:
    """R226"""
    job = submit(stado, "r", "team")
    world.complete(job)
    assert not any(one["check"] == "notices" for one in stado.json("doctor")["findings"])
    lost = Undelivered(
        job_id=job,
        epoch=1,
        word=NotifyOn.COMPLETED,
        channel="team",
        tries=9,
        why="it answered with HTTP 500",
        at=datetime.now(UTC),
    )
    world.repo.create(lost.own_key(), lost)
    findings = {one["check"]: one for one in stado.json("doctor")["findings"]}
    assert findings["notices"]["text"] == (
        f"that job {job} is completed could not be told on channel team: it answered with "
        "HTTP 500 (tried 9 times)"
    )
    assert not findings["notices"]["ok"]
