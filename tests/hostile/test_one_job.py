"""What is written over a job's own objects while it runs costs that job at most, and ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import Heartbeat, Phase
from stado.core.states import State
from stado.jobs.listings import newest
from stado.jobs.reaping import Reaper
from tests.agent.fakes import Script
from tests.agent.scene import Scene
from tests.hostile.host import Host
from tests.hostile.poison import PAYLOADS
from tests.jobs.world import LEASE, TICK

payloads = pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())


@payloads
@pytest.mark.parametrize("what", ["heartbeat", "asks", "running", "queue", "late", "manifest"])
def test_a_running_job_ends_as_it_would_have(tmp_path: Path, what: str, payload: bytes) -> None:
    scene = Scene(tmp_path)
    scene.script(Script(seconds=120))
    over = {
        "heartbeat": keys.heartbeat(scene.job),
        "asks": keys.asks(scene.job, 1),
        "running": keys.record(State.RUNNING, scene.job),
        "queue": keys.record(State.QUEUED, scene.job),
        "late": keys.late(scene.job, 1),
        "manifest": keys.output_manifest(scene.job, 1),
    }
    scene.clock.at(50.0, lambda: scene.world.store.put(over[what], payload))
    process = scene.run(scene.claim())
    assert process.exit_code == 0
    assert scene.commands == ["train"]
    assert scene.world.find(scene.job).state is State.COMPLETED
    (row,) = newest(scene.world.repo, limit=10).rows
    assert row.state is State.COMPLETED


@pytest.mark.parametrize("epoch", [2, 999_999])
def test_a_beat_of_an_epoch_that_is_not_there_costs_an_epoch_and_no_second_start(
    tmp_path: Path, epoch: int
) -> None:
    scene = Scene(tmp_path)
    scene.script(Script(seconds=120))
    forged = Heartbeat(
        epoch=epoch, token="t", by="mallory", at=scene.clock.now(), phase=Phase.RUNNING
    )
    key = keys.heartbeat(scene.job)
    scene.clock.at(50.0, lambda: scene.world.store.put(key, forged.encode()))
    scene.run(scene.claim())
    assert scene.heal() == []
    assert scene.commands == ["train"]
    assert (scene.final.state, scene.final.epoch) == (State.COMPLETED, 2)


@payloads
def test_a_holder_that_is_gone_is_found_though_its_beat_is_nonsense(
    tmp_path: Path, payload: bytes
) -> None:
    scene = Scene(tmp_path)
    scene.world.start()
    scene.world.store.put(keys.heartbeat(scene.job), payload)
    report = scene.world.lose(Reaper(scene.world.repo, by="coordinator"))
    assert report.reaped == [scene.job]
    assert scene.world.find(scene.job).record.epoch == 2


@payloads
def test_checkpoints_that_are_none_fail_the_job_and_nothing_else(
    tmp_path: Path, payload: bytes
) -> None:
    scene = Scene(tmp_path)
    scene.lose_epoch_one()
    for sequence in (1, 2):
        scene.world.store.put(keys.checkpoint_manifest(scene.job, 1, sequence), payload)
    process = scene.run(scene.claim())
    assert process.exit_code == 0
    assert scene.commands == []
    assert scene.final.state is State.FAILED
    assert scene.ending.reason == "input_unavailable"
    assert scene.ending.detail is not None
    assert scene.ending.detail.isprintable()


def test_a_name_of_an_agent_makes_one_folder(tmp_path: Path) -> None:
    from stado_agent.workspace import HostFolder

    outside = set(tmp_path.parent.iterdir())
    for consumer in ("../../x", "/etc/x", "a/b", "..", "a\nb", "\x1b[2J", "x" * 1000):
        folder = HostFolder(tmp_path / "work", consumer)
        folder.make()
        assert folder.root.parent == tmp_path / "work"
    assert set(tmp_path.parent.iterdir()) == outside


def test_a_stranger_at_the_head_of_the_queue_costs_a_few_tries(tmp_path: Path) -> None:
    """An entry whose record is not there, and never comes."""
    host = Host(tmp_path)
    name = "0000000000000000000-0000000000000-mmmmmmmmmmmmmmmm.1.aaaaaaaa~c1.m1"
    host.world.store.put(keys.ready(name), b"")
    host.step_for(300)
    tries = [request for request in host.requests if "queue/mmmmmmmmmmmmmmmm" in request]
    assert 2 <= len(tries) <= 40
    (job,) = host.submit("true")
    before = host.clock.monotonic()
    host.step_until(lambda: host.at_rest(job))
    assert host.clock.monotonic() - before < 10


def test_a_record_that_comes_after_its_entry_is_not_kept_waiting(tmp_path: Path) -> None:
    host = Host(tmp_path)
    (job,) = host.submit("true")
    record = host.world.store.get(keys.record(State.QUEUED, job)).data
    host.world.store.delete(keys.record(State.QUEUED, job), None)
    host.step_for(3)
    host.world.store.put(keys.record(State.QUEUED, job), record)
    before = host.clock.monotonic()
    host.step_until(lambda: host.at_rest(job))
    assert host.clock.monotonic() - before < 10


def test_silence_is_still_counted_beside_nonsense(tmp_path: Path) -> None:
    """A reaper that meets an unreadable report of one agent judges the jobs of the others."""
    scene = Scene(tmp_path)
    scene.world.start()
    reaper = Reaper(scene.world.repo, by="coordinator")
    began = scene.clock.monotonic()
    while not reaper.turn().reaped:
        scene.world.store.put(keys.capacity("mallory"), str(scene.clock.monotonic()).encode())
        scene.clock.sleep(TICK)
    assert scene.clock.monotonic() - began <= LEASE + 2 * TICK
