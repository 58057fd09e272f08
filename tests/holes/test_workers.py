"""Supervisors whose epoch is taken from them, or who die at the worst moment."""

from __future__ import annotations

import signal
from pathlib import Path

from stado.core import keys
from stado.core.spec import Spec
from stado.core.states import State, Verdict
from stado.jobs.changes import cancel, pause
from stado.jobs.reaping import Reaper
from stado.storage.faults import Fault, FaultKind, ScriptedFaults
from stado.storage.observe import WRITES, Operation
from tests.agent.fakes import Script
from tests.agent.scene import Scene
from tests.holes.staging import lose_unsettled
from tests.jobs.world import BOB


def scene_of(folder: Path, seconds: float = 100) -> Scene:
    scene = Scene(folder, Spec(command=""))
    scene.script(Script(seconds=seconds, files={"output/result": b"42"}))
    return scene


def test_a_claimer_that_is_declared_lost_before_its_first_beat_starts_nothing(
    tmp_path: Path,
) -> None:
    """H01: it won the cell of an epoch that is over, and its command must not start."""
    scene = scene_of(tmp_path)
    claimed = scene.claim()
    scene.give_back()
    scene.run(claimed)
    assert scene.commands == []
    assert scene.world.record(State.QUEUED, scene.job).epoch == 2
    assert scene.late(1) is None
    assert scene.heal() == [2]


def test_no_command_starts_long_after_the_last_accepted_beat(tmp_path: Path) -> None:
    """H11: its only beat took most of a lease; somebody may have judged it meanwhile."""
    scene = scene_of(tmp_path)
    claimed = scene.claim()
    slow = Fault(FaultKind.DELAY, Operation.CREATE, keys.heartbeat(scene.job), seconds=100)
    started: list[float] = []
    begun = scene.clock.monotonic()
    scene.run(claimed, faults=ScriptedFaults(slow))
    started += [execution.at for execution in scene.processes.executions]
    beats = [r.at for r in scene.requests if r.key == keys.heartbeat(scene.job)]
    assert len(started) == 1
    assert max(beat for beat in beats if beat <= started[0]) > begun + 100


def test_a_cancel_acknowledged_just_before_an_adoption_is_not_dropped(tmp_path: Path) -> None:
    """H09: the reaper had looked at what was asked before the cancel came."""
    scene = scene_of(tmp_path, seconds=500)
    claimed = scene.claim()

    def seal_cancel_lose() -> None:
        scene.seal()
        assert cancel(scene.world.repo, scene.job, by="ada").asked is not None
        lose_unsettled(scene.world, scene.job)

    scene.clock.at(46, seal_cancel_lose)  # after a check-in, before the next beat
    scene.run(claimed)
    assert scene.commands == ["train"]
    assert scene.processes.executions[0].process.exit_code == -signal.SIGTERM
    assert scene.ending.verdict is Verdict.CANCELLED
    assert scene.heal() == []


def test_a_pause_acknowledged_just_before_an_adoption_is_not_dropped(tmp_path: Path) -> None:
    """H28: the same."""
    scene = scene_of(tmp_path, seconds=500)
    claimed = scene.claim()

    def seal_pause_lose() -> None:
        scene.seal()
        assert pause(scene.world.repo, scene.job, by="ada").asked is not None
        lose_unsettled(scene.world, scene.job)

    scene.clock.at(46, seal_pause_lose)  # after a check-in, before the next beat
    scene.run(claimed)
    assert scene.commands == ["train"]
    assert scene.processes.executions[0].process.exit_code == -signal.SIGTERM
    assert scene.ending.verdict is Verdict.PAUSED
    assert scene.heal() == []


def test_an_adoption_leaves_an_epoch_to_who_has_it(tmp_path: Path) -> None:
    """H09: the next epoch is another agent's when the old holder hears of its loss."""
    scene = scene_of(tmp_path)
    claimed = scene.claim()
    scene.clock.at(31, scene.give_to_bob)
    scene.run(claimed)
    assert scene.commands == ["train"]
    record = scene.world.record(State.RUNNING, scene.job)
    assert record.holder is not None
    assert record.holder.consumer == BOB.consumer
    assert scene.world.repo.claim_cell(scene.job, 2).token == record.holder.token
    assert scene.world.states(scene.job) == {State.RUNNING}


def test_a_start_is_counted_though_all_dies_right_after_it(tmp_path: Path) -> None:
    """H20: in the first epoch and in a later one."""
    for epoch in (1, 2):
        scene = scene_of(tmp_path / str(epoch))
        if epoch == 2:
            scene.lose_epoch_one()
        claimed = scene.claim()
        scene.processes.fork(lambda _, s=scene, c=claimed: s.job_run(c, s.store()).run())  # type: ignore[misc]
        dying = scene.processes.forked[-1]
        scene.clock.wait_until(lambda s=scene: bool(s.commands))  # type: ignore[misc]
        dying.kill()
        scene.world.lose(Reaper(scene.world.repo, by="coordinator"))
        assert scene.world.record(State.QUEUED, scene.job).starts == epoch


def test_a_verdict_whose_answer_got_lost_is_known_for_its_own(tmp_path: Path) -> None:
    """H21: whoever took it for another's would leave a late result beside its own outcome."""
    scene = scene_of(tmp_path)
    lost_answer = ScriptedFaults(
        Fault(FaultKind.LOST_ANSWER, Operation.CREATE, keys.end_cell(scene.job, 1))
    )
    scene.run(scene.claim(), faults=lost_answer)
    assert lost_answer.used_up
    assert scene.ending.verdict is Verdict.COMPLETED
    assert (scene.commands, scene.late(1)) == (["train"], None)


def test_what_a_job_leaves_is_in_the_store_before_its_verdict(tmp_path: Path) -> None:
    """H24: and each file before the manifest that names it."""
    scene = scene_of(tmp_path)
    end, output = keys.end_cell(scene.job, 1), f"status/{scene.job}/output/1/"
    written: list[str] = []

    def note(operation: Operation, key: str) -> None:
        if operation in WRITES:
            written.append(key)
        if operation is Operation.CREATE and key == end:
            assert scene.output(1, "result") == b"42"
            assert scene.world.has(keys.output_manifest(scene.job, 1))
            assert scene.log(1) == b"begun\nended\n"

    scene.run(scene.claim(), before=note)
    assert scene.processes.forked[-1].errors == []
    left = [key for key in written if key.startswith(output)]
    assert left[-1] == keys.output_manifest(scene.job, 1)
    assert len(left) == 2
    assert written.index(left[-1]) < written.index(end)
