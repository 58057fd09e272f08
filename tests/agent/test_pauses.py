"""Jobs that somebody pauses while a supervisor has them."""

from __future__ import annotations

import errno
import signal
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.spec import Spec
from stado.core.states import Reason, State, Verdict, WarningCode
from stado.jobs import saving
from stado.jobs.changes import cancel, pause, resume, retry
from stado.storage.faults import Fault, FaultKind, ScriptedFaults
from stado.storage.observe import Operation
from tests.agent.fakes import Script
from tests.agent.scene import Scene, Trouble
from tests.agent.test_agent import Host
from tests.agent.test_host_trouble import NO_MEMORY
from tests.agent.test_job_run import BEAT, FILES, scene_of


def ask_pause(scene: Scene) -> None:
    pause(scene.world.repo, scene.job, by="ada", note="the cluster is needed")


@pytest.mark.parametrize("deaf", [False, True])
def test_a_paused_job_is_stopped_and_what_it_has_is_saved(tmp_path: Path, deaf: bool) -> None:
    """R15, R46, R48, T21"""
    scene = scene_of(tmp_path)
    scene.script(Script(seconds=500, files=FILES, deaf=deaf))
    claimed = scene.claim()
    scene.clock.at(40, lambda: ask_pause(scene))
    assert scene.run(claimed).exit_code == 0
    signals = scene.processes.executions[0].process.signals
    assert signals == ([signal.SIGTERM, signal.SIGKILL] if deaf else [signal.SIGTERM])
    assert scene.world.states(scene.job) == {State.PAUSED}
    ending = scene.ending
    assert (ending.verdict, ending.reason) == (Verdict.PAUSED, Reason.PAUSED_BY_USER)
    assert ending.detail == "paused while it was running, by ada: the cluster is needed"
    assert scene.world.names(keys.checkpoints_folder(scene.job))


def test_a_resumed_job_goes_on_from_what_was_saved(tmp_path: Path) -> None:
    """R49: on whatever host."""
    scene = scene_of(tmp_path, Spec(command=""))
    scene.script(Script(seconds=500, files=FILES))
    claimed = scene.claim()
    scene.clock.at(40, lambda: ask_pause(scene))
    scene.run(claimed)
    resume(scene.world.repo, scene.job, by="bea")
    scene.script(Script(seconds=1))
    scene.run(scene.claim())
    assert scene.world.states(scene.job) == {State.COMPLETED}
    assert (scene.final.epoch, scene.final.starts, scene.final.pauses) == (2, 2, 1)
    assert scene.final.lease_losses == 0


def test_a_pause_waits_for_the_store_to_take_what_the_job_has(tmp_path: Path) -> None:
    """R48"""
    scene = scene_of(tmp_path)
    scene.script(Script(seconds=500, files=FILES))
    claimed = scene.claim()
    away = Trouble(FaultKind.UNAVAILABLE, lambda _, key: "/checkpoints/" in key)
    scene.clock.at(40, lambda: ask_pause(scene))
    scene.clock.at(400, lambda: setattr(away, "on", False))
    scene.run(claimed, faults=away)
    assert scene.clock.monotonic() > 400
    assert scene.world.states(scene.job) == {State.PAUSED}
    assert scene.world.names(keys.checkpoints_folder(scene.job))


def test_a_job_that_is_paused_before_its_start_is_never_started(tmp_path: Path) -> None:
    scene = scene_of(tmp_path)
    claimed = scene.claim()
    ask_pause(scene)
    slow = ScriptedFaults(Fault(FaultKind.DELAY, Operation.CREATE, seconds=BEAT * 4 + 1))
    scene.run(claimed, faults=slow)
    assert scene.commands == []
    assert scene.world.states(scene.job) == {State.PAUSED}
    assert (
        scene.ending.detail == "paused while it was being prepared, by ada: the cluster is needed"
    )
    assert scene.final.starts == 0


def test_a_command_that_has_ended_by_itself_is_not_paused_but_verified(tmp_path: Path) -> None:
    """The pause comes with the end of the command, whose outcome would be thrown away."""
    scene = scene_of(tmp_path)
    scene.script(Script(seconds=BEAT + 0.05))
    claimed = scene.claim()
    scene.clock.at(5, lambda: ask_pause(scene))
    asks = Fault(FaultKind.DELAY, Operation.GET, keys.asks(scene.job, 1), seconds=0.1)
    scene.run(claimed, faults=ScriptedFaults(asks))
    assert scene.commands == ["train", "check"]
    assert scene.ending.verdict is Verdict.COMPLETED


def test_a_cancel_that_follows_a_pause_is_the_end(tmp_path: Path) -> None:
    """It comes while the command has its grace."""
    scene = scene_of(tmp_path)
    scene.script(Script(seconds=500, deaf=True))
    claimed = scene.claim()
    scene.clock.at(40, lambda: ask_pause(scene))
    scene.clock.at(40 + BEAT + 5, lambda: cancel(scene.world.repo, scene.job, by="bea"))
    scene.run(claimed)
    assert scene.world.states(scene.job) == {State.CANCELLED}
    assert scene.heal() == []


def test_a_pause_that_could_not_save_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody resumes it in the belief that all is there."""
    scene = scene_of(tmp_path)
    scene.script(Script(seconds=500, files=FILES))

    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(folder))

    monkeypatch.setattr(saving, "make_folder", full)
    claimed = scene.claim()
    scene.clock.at(40, lambda: ask_pause(scene))
    scene.run(claimed)
    assert scene.ending.verdict is Verdict.PAUSED
    codes = [warning.code for warning in scene.ending.warnings]
    assert codes == [WarningCode.CHECKPOINT_UNDELIVERED]


def test_pauses_and_retries_are_no_hosts_that_gave_a_job_back(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, Spec(command=""))
    for _ in range(20):
        scene.world.end(scene.claim(), Verdict.FAILED)
        retry(scene.world.repo, scene.job, by="ada")
        (scene.entry,) = scene.world.entries()
    scene.script(Script(refused=NO_MEMORY))
    scene.run(scene.claim())
    assert scene.ending_of(21).reason is Reason.HOST_UNABLE


def test_a_resumed_job_waits_for_room_as_any_other(tmp_path: Path) -> None:
    """R16, R51: it is queued and started anew, as of now, by whoever has room; nothing of before
    is gone on with but what it saved."""
    host = Host(tmp_path, cpu=1)
    host.script(500)
    (job,) = host.submit("true", cpu=1)
    host.step_to_start()
    pause(host.world.repo, job, by="ada")
    host.step_until(lambda: host.world.states(job) == {State.PAUSED})
    (other,) = host.submit("true", cpu=1)
    host.step_to_start(2)
    resume(host.world.repo, job, by="ada")
    host.step_for(100)
    assert host.world.states(job) == {State.QUEUED}
    host.step_until_at_rest(other)
    host.step_until_at_rest(job)
    first, _, again = host.processes.executions
    assert (first.epoch, again.epoch) == (1, 2)
    assert first.process is not again.process
    assert host.world.record(State.COMPLETED, job).starts == 2
