"""What a supervisor tells of its requests in a verdict."""

from __future__ import annotations

from pathlib import Path

from stado.core import keys
from stado.core.records import StoreRequests
from stado.core.states import Verdict
from stado.storage.faults import FaultKind
from stado.storage.meter import RequestMeter
from stado.system.tasks import LiveTasks
from stado_agent.request_count import RequestCount
from tests.agent.fakes import Script
from tests.agent.scene import Scene, Trouble


def meter_at(dear: int, cheap: int) -> RequestMeter:
    meter = RequestMeter(LiveTasks())
    meter.send(dear=dear, cheap=cheap, sent_bytes=10)
    return meter


def test_what_was_asked_before_the_job_is_not_the_jobs() -> None:
    """R260: and three writes that come after the count are in it."""
    meter = meter_at(100, 200)
    count = RequestCount(meter)
    meter.send(dear=4, sent_bytes=50)
    meter.send(cheap=1)
    meter.receive(7)
    assert count.told() == StoreRequests(dear=7, cheap=1, received_bytes=7, sent_bytes=50)


def test_a_verdict_that_is_given_again_says_the_same() -> None:
    """R260"""
    meter = meter_at(0, 0)
    count = RequestCount(meter)
    meter.send(dear=4)
    told = count.told()
    meter.send(dear=9)
    assert count.told() == told


def test_an_adopted_epoch_has_what_nobody_told_of_the_one_before() -> None:
    """R260: and nothing that was told."""
    meter = meter_at(0, 0)
    for was_told, dear in ((True, 5 + 3), (False, 2 + 5 + 3)):
        count = RequestCount(meter)
        meter.send(dear=2)
        count.told()
        count.begin_epoch(told=was_told)
        meter.send(dear=5)
        told = count.told()
        assert told is not None
        assert told.dear == dear


def test_a_directory_is_asked_nothing_and_without_a_meter_nothing_is_known() -> None:
    """R260"""
    assert RequestCount(meter_at(3, 4)).told() == StoreRequests()
    assert RequestCount(None).told() is None


def metered_scene(folder: Path, *, seconds: float = 20) -> Scene:
    scene = Scene(folder)
    scene.script(Script(seconds=seconds))
    scene.meter = RequestMeter(scene.world.tasks)
    return scene


def requests_up_to(scene: Scene, key: str) -> int:
    """Of the supervisor's, those before it first asked for a key."""
    return [request.key for request in scene.requests].index(key)


def test_the_holder_tells_it_in_its_verdict(tmp_path: Path) -> None:
    """R260: with the three writes that come then."""
    scene = metered_scene(tmp_path)
    scene.run(scene.claim())
    asked = scene.ending.requests
    assert asked is not None
    before = requests_up_to(scene, keys.end_cell(scene.job, 1))
    assert before > 3
    assert asked.dear == before + 3


def test_a_verdict_whose_answer_was_lost_is_still_ones_own(tmp_path: Path) -> None:
    """R260: although more was asked of the store since."""
    scene = metered_scene(tmp_path)
    claimed = scene.claim()
    key = keys.end_cell(scene.job, 1)
    scene.clock.at(21, scene.seal)
    trouble = Trouble(FaultKind.LOST_ANSWER, lambda operation, at: at == key)
    scene.clock.at(60, lambda: setattr(trouble, "on", False))
    scene.run(claimed, faults=trouble)
    assert scene.ending.verdict is Verdict.COMPLETED
    assert scene.late(1) is None
    assert scene.heal() == []


def test_who_adopts_tells_what_was_asked_before_too(tmp_path: Path) -> None:
    """R260: for a reaper that gave the verdict on the epoch before knows nothing of it."""
    scene = metered_scene(tmp_path, seconds=100)
    claimed = scene.claim()
    scene.clock.at(40, scene.give_back)
    scene.run(claimed)
    assert scene.ending_of(1).requests is None
    asked = scene.ending.requests
    assert asked is not None
    assert asked.dear == requests_up_to(scene, keys.end_cell(scene.job, 2)) + 3


def test_nothing_is_told_twice_where_the_holder_gave_both_verdicts(tmp_path: Path) -> None:
    """R260"""
    scene = metered_scene(tmp_path, seconds=100)
    claimed = scene.claim()
    scene.clock.at(40, scene.seal)
    scene.run(claimed)
    first, second = scene.ending_of(1).requests, scene.ending_of(2).requests
    assert first is not None
    assert second is not None
    both = first.dear + second.dear
    assert both - 6 <= requests_up_to(scene, keys.end_cell(scene.job, 2))
