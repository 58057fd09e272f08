"""One job in its supervisor's hands, with a store that fails at each request in each way."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import Heartbeat, Phase
from stado.core.spec import Spec
from stado.core.states import Reason, State, Verdict
from stado.jobs.changes import cancel
from stado.jobs.outputs import find_manifest
from stado.jobs.reaping import Reaper
from stado.storage.faults import Fault, FaultKind, FaultPlan, ScriptedFaults
from stado.storage.observe import WRITES, Operation
from stado_agent.log_spool import LogLimit
from stado_agent.workspace import SupervisorNote
from tests.agent.fakes import Script
from tests.agent.scene import DeathAt, FaultAt, Scene, Trouble
from tests.jobs.world import ALICE, BOB, LEASE

BEAT = LEASE / 8
FAULTS_OF_ONE = (
    FaultKind.LOST_REQUEST,
    FaultKind.LOST_ANSWER,
    FaultKind.UNAVAILABLE,
    FaultKind.DENIED,
)
CHECKED = Spec(command="", verify="check")
FILES = {"output/result": b"42", "checkpoints/model": b"weights"}


def scene_of(folder: Path, spec: Spec | None = None) -> Scene:
    scene = Scene(folder, spec or CHECKED)
    scene.script(Script(seconds=50, files=FILES))
    scene.script(Script(seconds=20), "check")
    return scene


def fails(folder: Path) -> Scene:
    scene = scene_of(folder)
    scene.script(Script(seconds=50, exit_code=3, files=FILES))
    return scene


def goes_on(folder: Path) -> Scene:
    """Its second epoch, which starts from what the first one saved."""
    scene = scene_of(folder)
    scene.processes.fork(lambda _: scene.job_run(scene.claim(), scene.store()).run())
    dying = scene.processes.forked[-1]
    scene.clock.sleep(40)
    dying.kill()
    assert scene.world.names(keys.checkpoints_folder(scene.job))
    scene.world.lose(Reaper(scene.world.repo, by="coordinator"))
    scene.entry = scene.world.entries()[0]
    scene.processes.executions.clear()
    scene.requests.clear()
    return scene


def is_adopted(folder: Path) -> Scene:
    """It is declared lost while its command lives."""
    scene = scene_of(folder)
    scene.clock.at(20, lambda: _if_held(scene, scene.give_back))
    return scene


def is_fenced(folder: Path) -> Scene:
    """It is declared lost, and another agent is faster."""
    scene = scene_of(folder)
    scene.clock.at(20, lambda: _if_held(scene, scene.give_to_bob))
    return scene


def _if_held(scene: Scene, happening: Callable[[], None]) -> None:
    if scene.world.states(scene.job) == {State.RUNNING}:
        happening()


STORIES: dict[str, Callable[[Path], Scene]] = {
    "succeeds": scene_of,
    "fails": fails,
    "goes_on": goes_on,
}

SEALED_STORIES = {"is_adopted": is_adopted, "is_fenced": is_fenced}

story = pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
any_story = pytest.mark.parametrize(
    "story", [*STORIES.values(), *SEALED_STORIES.values()], ids=[*STORIES, *SEALED_STORIES]
)


def expected(scene: Scene) -> tuple[Verdict, list[str]]:
    if scene.processes.scripts["train"].exit_code:
        return Verdict.FAILED, ["train"]
    return Verdict.COMPLETED, ["train", "check"]


class Numbered:
    """The same story again and again, until there is no request left that a fault could meet."""

    def __init__(self, story: Callable[[Path], Scene], folder: Path) -> None:
        self._story = story
        self._folder = folder
        self.count = 0

    def scene(self) -> Scene:
        self.count += 1
        return self._story(self._folder / str(self.count))


def check_rules(scene: Scene, epoch: int, started_elsewhere: list[int]) -> None:
    """What holds whatever happened to a supervisor of this epoch, once all has come to rest."""
    final = scene.final
    ends = scene.world.repo.cells(scene.job).ends
    assert ends == set(range(1, max(ends) + 1))
    epochs = [
        execution.epoch for execution in scene.processes.executions if execution.text == "train"
    ]
    assert len(epochs) <= 1
    assert not set(epochs) & set(started_elsewhere)
    before = 1 if epoch > 1 else 0
    assert len(set(started_elsewhere)) == len(started_elsewhere)
    assert len(epochs) + len(started_elsewhere) + before <= final.starts <= final.epoch


# --- as it should be ------------------------------------------------------------------------


def test_a_job_is_run_verified_published_and_ended(tmp_path: Path) -> None:
    """T11"""
    scene = scene_of(tmp_path)
    assert scene.run(scene.claim()).exit_code == 0
    assert scene.commands == ["train", "check"]
    assert (scene.ending.verdict, scene.ending.exit_code) == (Verdict.COMPLETED, 0)
    assert scene.final.starts == 1
    assert scene.log(1) == b"begun\nended\n" * 2
    assert scene.output(1, "result") == b"42"
    assert not (scene.folder.root / "jobs" / f"{scene.job}.1").exists()


def test_a_verification_is_told_as_soon_as_it_begins(tmp_path: Path) -> None:
    """Whoever looks shall not be told that the command still runs."""
    scene = scene_of(tmp_path)
    seen = []

    def look() -> None:
        beat = scene.world.repo.find_heartbeat(scene.job)
        assert beat is not None
        seen.append(beat.value.phase)

    for at_seconds in (49, 53):  # the next beat would be due at 60 s
        scene.clock.at(scene.clock.monotonic() + at_seconds, look)
    scene.run(scene.claim())
    assert seen == [Phase.RUNNING, Phase.VERIFYING]


def test_a_second_epoch_starts_from_the_checkpoint(tmp_path: Path) -> None:
    scene = goes_on(tmp_path)
    scene.script(Script(seconds=10))
    seen = []

    def look() -> None:
        workspace = scene.folder.workspace(scene.job, 2)
        seen.append((workspace.checkpoints / "model").read_bytes())

    scene.clock.at(scene.clock.monotonic() + 5, look)
    scene.run(scene.claim())
    assert seen == [b"weights"]
    assert (scene.ending.verdict, scene.final.epoch) == (Verdict.COMPLETED, 2)
    assert scene.final.starts == 2


# --- each request, each fault ---------------------------------------------------------------


@story
@pytest.mark.parametrize("kind", FAULTS_OF_ONE)
def test_one_failed_request_changes_nothing(
    tmp_path: Path, story: Callable[[Path], Scene], kind: FaultKind
) -> None:
    numbered = Numbered(story, tmp_path)
    while True:
        scene = numbered.scene()
        claimed = scene.claim()
        faults = FaultAt(scene.clock, kind, at=numbered.count - 1)
        process = scene.run(claimed, faults=faults)
        if faults.met is None:
            break
        verdict, commands = expected(scene)
        assert process.exit_code == 0, faults.met
        assert scene.heal() == [], faults.met
        assert scene.commands == commands, faults.met
        assert scene.ending.verdict is verdict, faults.met
        assert scene.output(claimed.record.epoch, "result") == b"42", faults.met
        assert scene.log(claimed.record.epoch) == b"begun\nended\n" * len(commands), faults.met
        check_rules(scene, claimed.record.epoch, [])
    assert numbered.count > 14


@story
@pytest.mark.parametrize("kind", [FaultKind.UNAVAILABLE, FaultKind.DENIED])
def test_a_store_that_is_away_for_less_than_a_lease_delays_the_outcome(
    tmp_path: Path, story: Callable[[Path], Scene], kind: FaultKind
) -> None:
    """With a reaper that looks on: it sees no lease of silence."""
    numbered = Numbered(story, tmp_path)
    while True:
        scene = numbered.scene()
        claimed = scene.claim()
        scene.watch(seconds=400)
        faults = FaultAt(scene.clock, kind, at=numbered.count - 1, seconds=60)
        process = scene.run(claimed, faults=faults)
        if faults.met is None:
            break
        verdict, commands = expected(scene)
        assert process.exit_code == 0, faults.met
        assert scene.heal() == [], faults.met
        assert scene.commands == commands, faults.met
        assert scene.ending.verdict is verdict, faults.met
        check_rules(scene, claimed.record.epoch, [])
    assert numbered.count > 14


@any_story
@pytest.mark.parametrize("kind", [FaultKind.UNAVAILABLE, FaultKind.LOST_ANSWER])
def test_a_store_that_is_away_for_leases_costs_no_rule(
    tmp_path: Path, story: Callable[[Path], Scene], kind: FaultKind
) -> None:
    """A reaper declares the job lost meanwhile, and it is run elsewhere or adopted."""
    numbered = Numbered(story, tmp_path)
    while True:
        scene = numbered.scene()
        claimed = scene.claim()
        scene.watch(seconds=600)
        faults = FaultAt(scene.clock, kind, at=numbered.count - 1, seconds=2.5 * LEASE)
        process = scene.run(claimed, faults=faults)
        if faults.met is None:
            break
        assert process.exit_code == 0, faults.met
        started = scene.heal()
        check_rules(scene, claimed.record.epoch, started)
    assert numbered.count > 14


@pytest.mark.parametrize("story", SEALED_STORIES.values(), ids=SEALED_STORIES)
@pytest.mark.parametrize("seconds", [None, 60.0])
@pytest.mark.parametrize("kind", FAULTS_OF_ONE)
def test_a_fault_while_it_is_sealed_costs_no_rule(
    tmp_path: Path, story: Callable[[Path], Scene], kind: FaultKind, seconds: float | None
) -> None:
    numbered = Numbered(story, tmp_path)
    while True:
        scene = numbered.scene()
        faults = FaultAt(scene.clock, kind, at=numbered.count - 1, seconds=seconds)
        process = scene.run(scene.claim(), faults=faults)
        if faults.met is None:
            break
        assert process.exit_code == 0, faults.met
        assert not any(one.process.living() for one in scene.processes.executions)
        check_rules(scene, 1, scene.heal())
    assert numbered.count > 14


@any_story
@pytest.mark.parametrize("error", [None, RuntimeError("unforeseen"), OSError("unforeseen")])
def test_a_supervisor_that_dies_at_any_request_leaves_a_job_that_is_run_again(
    tmp_path: Path, story: Callable[[Path], Scene], error: Exception | None
) -> None:
    """It is killed, or ends by an error that it has no answer to."""
    numbered = Numbered(story, tmp_path)
    while True:
        scene = numbered.scene()
        claimed = scene.claim()
        death = DeathAt(scene.processes, at=numbered.count - 1, error=error)
        process = scene.run(claimed, before=death)
        if death.met is None:
            break
        started = scene.heal()
        check_rules(scene, claimed.record.epoch, started)
        if error is not None:
            living = [one for one in scene.processes.executions if one.process.living()]
            assert not living, death.met
            launch_failed = scene.ending.reason is Reason.LAUNCH_FAILED
            assert not (launch_failed and scene.commands), death.met
        if process.exit_code != 0:
            assert scene.final.epoch <= claimed.record.epoch + 2
    assert numbered.count > 14


# --- sealed ---------------------------------------------------------------------------------


def test_a_sealed_job_that_nobody_else_has_is_adopted(tmp_path: Path) -> None:
    """The same command goes on under the next epoch; it counts as one start."""
    scene = scene_of(tmp_path)
    scene.script(Script(seconds=100, files=FILES))
    claimed = scene.claim()
    scene.clock.at(40, scene.give_back)
    assert scene.run(claimed).exit_code == 0
    assert scene.commands == ["train", "check"]
    assert (scene.final.epoch, scene.final.starts, scene.final.lease_losses) == (2, 1, 1)
    assert scene.ending.verdict is Verdict.COMPLETED
    assert scene.log(1) == b"begun\n"
    assert scene.log(2) == b"ended\nbegun\nended\n"
    assert scene.output(2, "result") == b"42"
    assert scene.late(1) is None
    assert scene.heal() == []


def test_a_seal_without_a_verdict_is_finished_by_the_holder(tmp_path: Path) -> None:
    scene = scene_of(tmp_path)
    claimed = scene.claim()
    scene.clock.at(20, scene.seal)
    scene.run(claimed)
    assert scene.ending_of(1).verdict is Verdict.LOST
    assert scene.ending_of(1).by == ALICE.consumer
    assert (scene.ending.verdict, scene.final.starts) == (Verdict.COMPLETED, 1)


def test_a_job_that_is_sealed_again_and_again_goes_on_until_it_was_lost_too_often(
    tmp_path: Path,
) -> None:
    scene = scene_of(tmp_path)
    scene.script(Script(seconds=1000))
    claimed = scene.claim()
    for number in range(4):
        scene.clock.at(40 + 40 * number, scene.give_back if number < 3 else scene.seal)
    scene.run(claimed)
    assert scene.commands == ["train"]
    assert scene.ending.reason is Reason.LEASE_EXPIRED_MAX_ATTEMPTS
    assert (scene.final.epoch, scene.final.starts) == (4, 1)
    assert scene.processes.executions[0].process.exit_code == -signal.SIGTERM


def test_what_adopted_is_known_by_its_new_epoch_on_the_host(tmp_path: Path) -> None:
    """So that an agent that finds it dead ends the right epoch and removes the right folder."""
    scene = scene_of(tmp_path)
    scene.script(Script(seconds=100))
    claimed = scene.claim()
    scene.clock.at(40, scene.give_back)
    notes: list[SupervisorNote] = []
    scene.clock.at(80, lambda: notes.extend(scene.folder.notes()))
    scene.run(claimed)
    assert [(note.epoch, note.workspace) for note in notes] == [(2, f"{scene.job}.1")]


@pytest.mark.parametrize(
    ("step", "kind"),
    [(step, kind) for step in ("record", "gate", "cell", "queue") for kind in FAULTS_OF_ONE],
)
def test_a_failed_request_of_an_adoption_costs_no_second_execution(
    tmp_path: Path, step: str, kind: FaultKind
) -> None:
    scene = scene_of(tmp_path)
    scene.script(Script(seconds=100, files=FILES))
    claimed = scene.claim()
    scene.clock.at(40, scene.give_back)
    queued = keys.record(State.QUEUED, scene.job)
    faults = {
        "record": Fault(kind, Operation.GET, queued),
        "gate": Fault(kind, Operation.CREATE, keys.record(State.RUNNING, scene.job)),
        "cell": Fault(kind, Operation.CREATE, keys.claim_cell(scene.job, 2)),
        "queue": Fault(kind, Operation.DELETE, queued),
    }
    plan = ScriptedFaults(faults[step])
    scene.run(claimed, faults=plan)
    assert plan.used_up
    assert scene.heal() == []
    assert scene.commands == ["train", "check"]
    assert (scene.ending.verdict, scene.final.epoch) == (Verdict.COMPLETED, 2)


def test_a_full_disk_at_an_adoption_ends_no_command(tmp_path: Path) -> None:
    scene = scene_of(tmp_path)
    claimed = scene.claim()

    def fill_disk() -> None:
        """No note can be written where a folder has its name."""
        pid = scene.processes.forked[-1].identity.pid
        note = scene.folder.root / "supervisors" / f"{pid}.json"
        note.unlink()
        note.mkdir()
        scene.give_back()

    scene.clock.at(20, fill_disk)
    scene.run(claimed)
    assert scene.commands == ["train", "check"]
    assert (scene.ending.verdict, scene.final.epoch) == (Verdict.COMPLETED, 2)


def test_a_job_that_somebody_else_has_by_now_is_stopped(tmp_path: Path) -> None:
    """Its holder leaves a late result and the log below its own epoch, and nothing below the
    new one's keys."""
    scene = scene_of(tmp_path)
    scene.script(Script(seconds=100, files=FILES))
    claimed = scene.claim()
    scene.clock.at(40, scene.give_to_bob)
    assert scene.run(claimed).exit_code == 0
    assert scene.processes.executions[0].process.exit_code == -signal.SIGTERM
    late = scene.late(1)
    assert late is not None
    assert (late.consumer, late.exit_code) == (ALICE.consumer, None)
    assert scene.log(1) == b"begun\n"
    assert scene.world.states(scene.job) == {State.RUNNING}
    assert scene.heartbeat().by == BOB.consumer
    assert scene.log(2) == b""
    written = {request.key for request in scene.requests if request.operation in WRITES}
    foreign = [keys.claim_cell, keys.end_cell, keys.asks, keys.late]
    assert not written & {key(scene.job, 2) for key in foreign}
    assert not [key for key in written if "/output/" in key or "/000002-" in key]


def test_what_ended_by_itself_before_it_was_fenced_is_told_in_the_late_result(
    tmp_path: Path,
) -> None:
    """The store was away when the command ended."""
    scene = fails(tmp_path)
    claimed = scene.claim()
    away = Trouble(FaultKind.UNAVAILABLE, lambda *_: True)
    scene.clock.at(49, lambda: setattr(away, "on", True))
    away.on = False
    scene.clock.at(60, scene.give_to_bob)
    scene.clock.at(100, lambda: setattr(away, "on", False))
    scene.run(claimed, faults=away)
    late = scene.late(1)
    assert late is not None
    assert late.exit_code == 3
    assert scene.log(1) == b"begun\nended\n"


@pytest.mark.parametrize("away_until", [70.0, 400.0])
def test_an_outcome_is_carried_into_the_next_epoch_if_nobody_else_has_that(
    tmp_path: Path, away_until: float
) -> None:
    """A66: the command ended while the store was away for its host, and the job was declared
    lost. It is not executed again, and counts as one start."""
    scene = fails(tmp_path)
    claimed = scene.claim()
    away = Trouble(FaultKind.DENIED, lambda *_: True)
    away.on = False
    scene.clock.at(49, lambda: setattr(away, "on", True))
    scene.clock.at(60, scene.give_back)
    scene.clock.at(away_until, lambda: setattr(away, "on", False))
    scene.run(claimed, faults=away)
    assert scene.commands == ["train"]
    assert (scene.ending.verdict, scene.ending.exit_code) == (Verdict.FAILED, 3)
    assert (scene.final.epoch, scene.final.starts, scene.final.lease_losses) == (2, 1, 1)
    assert scene.output(2, "result") == b"42"
    assert scene.log(1) + scene.log(2) == b"begun\nended\n"
    assert scene.late(1) is None
    assert scene.heal() == []


@pytest.mark.parametrize("sealed_at", [55.0, 65.0])
def test_the_outcome_of_an_epoch_that_was_sealed_after_its_command_becomes_the_verdict(
    tmp_path: Path, sealed_at: float
) -> None:
    """Its output cannot be delivered for a while; the seal comes in that time."""
    scene = fails(tmp_path)
    claimed = scene.claim()
    away = Trouble(FaultKind.UNAVAILABLE, lambda operation, _: operation is Operation.UPLOAD)
    scene.clock.at(sealed_at, scene.seal)
    scene.clock.at(200, lambda: setattr(away, "on", False))
    scene.run(claimed, faults=away)
    assert (scene.ending.verdict, scene.ending.exit_code) == (Verdict.FAILED, 3)
    assert (scene.final.epoch, scene.final.starts) == (1, 1)
    assert scene.output(1, "result") == b"42"
    assert scene.late(1) is None
    assert scene.heal() == []


def test_a_supervisor_that_delivers_after_the_verdict_still_shows_that_it_lives(
    tmp_path: Path,
) -> None:
    """Its epoch was sealed and it beats no more, but its agent must not take it for hung."""
    scene = fails(tmp_path)
    claimed = scene.claim()
    away = Trouble(FaultKind.UNAVAILABLE, lambda operation, _: operation is Operation.UPLOAD)
    scene.clock.at(55, scene.seal)
    scene.clock.at(1000, lambda: setattr(away, "on", False))
    signs = []

    def look() -> None:
        """Whether a sign came since the last look, which set the note's time back."""
        (note,) = (scene.folder.root / "supervisors").glob("*.json")
        signs.append(note.stat().st_mtime > 0)
        os.utime(note, (0, 0))

    for number in range(20):
        scene.clock.at(200 + number * 2 * BEAT, look)
    scene.run(claimed, faults=away)
    assert scene.ending_of(1).exit_code == 3
    assert signs == [True] * 20


def test_a_seal_between_the_command_and_its_verification_costs_no_second_execution(
    tmp_path: Path,
) -> None:
    """The store is away when the command ends: its verification waits for no beat."""
    scene = scene_of(tmp_path)
    claimed = scene.claim()
    away = Trouble(FaultKind.UNAVAILABLE, lambda *_: True)
    away.on = False
    scene.clock.at(1, lambda: setattr(away, "on", True))
    scene.script(Script(seconds=LEASE))
    scene.clock.at(LEASE + 5, scene.give_back)
    scene.clock.at(LEASE + 50, lambda: setattr(away, "on", False))
    scene.run(claimed, faults=away)
    assert scene.commands == ["train", "check"]
    checked = scene.processes.executions[1]
    assert checked.at < LEASE + 5


# --- cancelled ------------------------------------------------------------------------------


def ask_cancel(scene: Scene) -> None:
    cancel(scene.world.repo, scene.job, by="ada")


def test_a_job_that_is_cancelled_while_it_waits_for_its_start_is_never_started(
    tmp_path: Path,
) -> None:
    """Its first beat took too long to permit a start."""
    scene = scene_of(tmp_path)
    claimed = scene.claim()
    ask_cancel(scene)
    slow = ScriptedFaults(Fault(FaultKind.DELAY, Operation.CREATE, seconds=LEASE / 2 + 1))
    scene.run(claimed, faults=slow)
    assert scene.commands == []
    assert scene.ending.verdict is Verdict.CANCELLED
    assert scene.final.starts == 0


@pytest.mark.parametrize("phase", ["log", "output"])
def test_a_cancel_gives_up_all_that_cannot_be_delivered(tmp_path: Path, phase: str) -> None:
    """Whichever of it is being delivered when the cancel comes; the outcome stays."""
    scene = fails(tmp_path)
    claimed = scene.claim()
    parts = ("/output/", "/log/") if phase == "log" else ("/output/",)
    denied = Trouble(FaultKind.DENIED, lambda _, key: any(part in key for part in parts))
    scene.clock.at(300, lambda: ask_cancel(scene))
    scene.run(claimed, faults=denied)
    assert scene.clock.monotonic() < 300 + BEAT + 60
    assert (scene.ending.verdict, scene.ending.exit_code) == (Verdict.FAILED, 3)
    assert scene.log(1) == (b"" if phase == "log" else b"begun\nended\n")
    assert not scene.world.has(keys.output_manifest(scene.job, 1))
    assert scene.heal() == []


def test_a_command_that_ends_by_itself_before_it_is_stopped_keeps_its_outcome(
    tmp_path: Path,
) -> None:
    """T20: the cancel was asked for, and is heard when the command has just ended."""
    scene = scene_of(tmp_path, Spec(command=""))
    scene.script(Script(seconds=BEAT + 0.05))
    claimed = scene.claim()
    scene.clock.at(5, lambda: ask_cancel(scene))
    asks = Fault(FaultKind.DELAY, Operation.GET, keys.asks(scene.job, 1), seconds=0.1)
    scene.run(claimed, faults=ScriptedFaults(asks))
    assert scene.processes.executions[0].process.signals == []
    assert scene.ending.verdict is Verdict.COMPLETED


def test_what_a_cancelled_job_leaves_waits_for_the_store(tmp_path: Path) -> None:
    scene = scene_of(tmp_path)
    scene.script(Script(seconds=500, files=FILES))
    claimed = scene.claim()
    away = Trouble(FaultKind.UNAVAILABLE, lambda _, key: "/log/" in key or "/output/" in key)
    scene.clock.at(40, lambda: ask_cancel(scene))
    scene.clock.at(200, lambda: setattr(away, "on", False))
    scene.run(claimed, faults=away)
    assert scene.ending.verdict is Verdict.CANCELLED
    assert scene.log(1) == b"begun\n"
    assert scene.output(1, "result") == b"42"


@pytest.mark.parametrize("deaf", [False, True])
def test_a_cancelled_job_is_stopped_and_leaves_what_it_has(tmp_path: Path, deaf: bool) -> None:
    """T18"""
    scene = scene_of(tmp_path)
    scene.script(Script(seconds=500, files=FILES, deaf=deaf))
    claimed = scene.claim()
    scene.clock.at(40, lambda: ask_cancel(scene))
    assert scene.run(claimed).exit_code == 0
    signals = scene.processes.executions[0].process.signals
    assert signals == ([signal.SIGTERM, signal.SIGKILL] if deaf else [signal.SIGTERM])
    assert (scene.ending.verdict, scene.ending.reason) == (Verdict.CANCELLED, Reason.CANCELLED)
    assert scene.final.starts == 1
    assert scene.clock.monotonic() < 40 + BEAT + scene.world.deployment.cancel_grace_seconds + 10
    assert scene.output(1, "result") == b"42"
    assert scene.world.names(keys.checkpoints_folder(scene.job))
    assert scene.heal() == []


def test_a_cancelled_epoch_that_is_sealed_is_not_adopted(tmp_path: Path) -> None:
    scene = scene_of(tmp_path)
    scene.script(Script(seconds=500))
    claimed = scene.claim()

    def cancel_and_seal() -> None:
        ask_cancel(scene)
        scene.seal()

    scene.clock.at(31, cancel_and_seal)
    scene.run(claimed)
    assert scene.ending.verdict is Verdict.CANCELLED
    assert scene.final.epoch == 1
    assert scene.processes.executions[0].process.exit_code == -signal.SIGTERM


# --- this host ------------------------------------------------------------------------------


def test_a_command_that_cannot_be_started_has_failed_without_a_start(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, Spec(command="", host_dir="/nowhere"))
    scene.script(Script(refused=FileNotFoundError(2, "No such file or directory", "/nowhere")))
    assert scene.run(scene.claim()).exit_code == 0
    assert (scene.ending.verdict, scene.ending.reason) == (Verdict.FAILED, Reason.LAUNCH_FAILED)
    assert "/nowhere" in (scene.ending.detail or "")
    assert scene.final.starts == 0
    assert scene.heal() == []


def test_a_job_whose_verification_fails_has_failed(tmp_path: Path) -> None:
    """T12"""
    scene = scene_of(tmp_path)
    scene.script(Script(seconds=5, exit_code=7), "check")
    scene.run(scene.claim())
    assert (scene.ending.verdict, scene.ending.reason) == (Verdict.FAILED, Reason.VERIFY_FAILED)
    assert (scene.ending.exit_code, scene.commands) == (0, ["train", "check"])


def test_a_failed_command_is_not_verified(tmp_path: Path) -> None:
    scene = fails(tmp_path)
    scene.run(scene.claim())
    assert scene.commands == ["train"]
    assert scene.ending.reason is Reason.JOB_FAILED


def test_a_command_that_refuses_to_go_on_has_failed_for_its_own_reason(tmp_path: Path) -> None:
    """R81: whatever else is said of it; it is verified no more and queued no more."""
    scene = scene_of(tmp_path)
    why = {"report/refusal.txt": b"iteration 300 is\ncovered already\n"}
    scene.script(Script(exit_code=86, files=FILES | why, over_memory="it had too much"))
    scene.run(scene.claim())
    ending = scene.ending
    assert (ending.verdict, ending.reason) == (Verdict.FAILED, Reason.JOB_REFUSED)
    assert (ending.detail, ending.exit_code) == ("iteration 300 is covered already", 86)
    assert scene.commands == ["train"]
    assert (scene.final.epoch, scene.final.starts) == (1, 1)
    assert scene.output(1, "result") == b"42"


@pytest.mark.parametrize(
    ("exit_code", "said"), [(86, False), (1, True), (0, True)], ids=["code", "reason", "well"]
)
def test_a_reason_without_the_code_or_the_code_without_a_reason_refuses_nothing(
    tmp_path: Path, exit_code: int, said: bool
) -> None:
    """R81: a command that ends with 86 by chance has failed like any."""
    scene = scene_of(tmp_path)
    files = FILES | ({"report/refusal.txt": b"no"} if said else {})
    scene.script(Script(exit_code=exit_code, files=files))
    scene.run(scene.claim())
    assert scene.ending.reason is (Reason.JOB_FAILED if exit_code else None)


def test_progress_goes_with_the_beats_and_makes_none(tmp_path: Path) -> None:
    scene = scene_of(tmp_path)
    begin = {"report/progress.json": b'{"fraction": 0}'}
    scene.script(Script(seconds=10.5 * BEAT, files=begin))
    file = scene.folder.workspace(scene.job, 1).report / "progress.json"
    for percent in range(1, 100):
        said = b'{"fraction": 0.%02d, "text": "%d"}' % (percent, percent)
        scene.clock.at(percent * BEAT / 10, partial(file.write_bytes, said))
    at_fifth: list[Heartbeat] = []
    scene.clock.at(5 * BEAT, lambda: at_fifth.append(scene.heartbeat()))
    signs = _life_signs(scene)
    beats = [at for at, operation in signs if operation is Operation.REPLACE]
    assert beats[:3] == [2 * BEAT, 4 * BEAT, 6 * BEAT]
    (progress,) = [beat.progress for beat in at_fifth]
    assert progress is not None
    assert 0.35 <= progress.fraction <= 0.40
    assert progress.text == str(round(100 * progress.fraction))


def test_a_live_view_goes_with_the_beats_until_the_command_has_ended(tmp_path: Path) -> None:
    """R125: no beat is made for it; what is none is told in the log."""
    scene = scene_of(tmp_path)
    scene.script(Script(seconds=10.5 * BEAT))
    file = scene.folder.workspace(scene.job, 1).report / "live"
    scene.clock.at(BEAT, partial(file.write_bytes, b"http://host:6006\n"))
    scene.clock.at(5 * BEAT, partial(file.write_bytes, b"ftp://host/"))
    told: list[str | None] = []
    for beats in (1.5, 3.5, 9.5):
        scene.clock.at(beats * BEAT, lambda: told.append(scene.heartbeat().live))
    signs = _life_signs(scene)
    beats_at = [at for at, operation in signs if operation is Operation.REPLACE]
    assert beats_at[:3] == [2 * BEAT, 4 * BEAT, 6 * BEAT]
    assert told == [None, "http://host:6006", "http://host:6006"]
    assert scene.heartbeat().live is None
    line = (
        b"[stado] the live view that the job states is ignored: its URL is no http:// or https://"
    )
    assert scene.log(1).count(line) == 1


def test_nothing_of_a_checkpoint_that_cannot_be_restored_is_run(tmp_path: Path) -> None:
    scene = goes_on(tmp_path)
    for name in scene.world.names(keys.checkpoints_folder(scene.job)):
        if not name.endswith(".json"):
            scene.world.store.delete(name, None)
    scene.run(scene.claim())
    assert scene.ending.reason is Reason.INPUT_UNAVAILABLE
    assert scene.commands == []


def test_a_heartbeat_that_cannot_be_read_is_replaced(tmp_path: Path) -> None:
    scene = scene_of(tmp_path)
    claimed = scene.claim()
    key = keys.heartbeat(scene.job)
    scene.clock.at(20, lambda: scene.world.store.put(key, b"not a heartbeat"))
    scene.run(claimed)
    assert scene.ending.verdict is Verdict.COMPLETED
    assert scene.heartbeat().token == claimed.token
    assert scene.final.epoch == 1


def _life_signs(scene: Scene, faults: FaultPlan | None = None) -> list[tuple[float, Operation]]:
    """When which request was made of the heartbeat and of what is asked, from the start on."""
    signs = []

    def note(operation: Operation, key: str) -> None:
        if key in (keys.heartbeat(scene.job), keys.asks(scene.job, 1)):
            signs.append((scene.clock.monotonic(), operation))

    scene.run(scene.claim(), before=note, faults=faults)
    return signs


def test_a_job_with_nothing_new_to_say_beats_at_every_second_check_in(tmp_path: Path) -> None:
    scene = scene_of(tmp_path)
    scene.script(Script(seconds=20.5 * BEAT))
    signs = _life_signs(scene)
    check_ins = [at for at, operation in signs if operation is Operation.GET and at > 0]
    beats = [at for at, operation in signs if operation is Operation.REPLACE]
    assert check_ins[:4] == [BEAT, 2 * BEAT, 3 * BEAT, 4 * BEAT]
    assert beats[:3] == [2 * BEAT, 4 * BEAT, 6 * BEAT]


def test_a_beat_that_failed_is_repeated_at_the_next_check_in(tmp_path: Path) -> None:
    scene = scene_of(tmp_path)
    scene.script(Script(seconds=20.5 * BEAT))
    fault = Fault(FaultKind.UNAVAILABLE, Operation.REPLACE, keys.heartbeat(scene.job))
    signs = _life_signs(scene, faults=ScriptedFaults(fault))
    beats = [at for at, operation in signs if operation is Operation.REPLACE]
    assert beats[:3] == [2 * BEAT, 3 * BEAT, 5 * BEAT]


@pytest.mark.parametrize("error", [RuntimeError("unforeseen"), PermissionError("unforeseen")])
@pytest.mark.parametrize("operation", [Operation.REPLACE, Operation.GET])
def test_a_pulse_that_ends_by_an_unforeseen_error_ends_its_supervisor(
    tmp_path: Path, error: Exception, operation: Operation
) -> None:
    """And the command; no verdict is given."""
    scene = scene_of(tmp_path)

    def fail(asked: Operation, key: str) -> None:
        if asked is operation and scene.clock.running is not None and scene.clock.monotonic() > 20:
            raise error

    process = scene.run(scene.claim(), before=fail)
    assert process.exit_code == 1
    assert [raised.__cause__ for raised in process.errors] == [error]
    assert scene.processes.executions[0].process.exit_code == -signal.SIGTERM
    assert not scene.world.repo.cells(scene.job).ends
    assert scene.clock.monotonic() < 60
    assert scene.heal() == [2]


# --- memory, what does not end, a host without room, a long log -------------------------------


def test_a_command_above_its_memory_fails_for_that(tmp_path: Path) -> None:
    """R82, T12: by what the kernel says, not by the exit code alone; all of it is ended."""
    scene = scene_of(tmp_path)
    scene.script(Script(seconds=1000, files=FILES))
    claimed = scene.claim()

    def exceed() -> None:
        scene.processes.executions[0].process.over_memory = "it used more than the 2 GiB it stated"

    scene.clock.at(20, exceed)
    scene.run(claimed)
    assert (scene.ending.verdict, scene.ending.reason) == (
        Verdict.FAILED,
        Reason.MEMORY_LIMIT_EXCEEDED,
    )
    assert "more than the 2 GiB" in (scene.ending.detail or "")
    assert scene.processes.executions[0].process.signals == [signal.SIGKILL]
    assert scene.log(1) == b"begun\n"
    assert scene.output(1, "result") == b"42"


@pytest.mark.parametrize(("exit_code", "reason"), [(-9, Reason.MEMORY_LIMIT_EXCEEDED), (0, None)])
def test_a_command_that_lost_a_process_for_its_memory_and_succeeded_has_succeeded(
    tmp_path: Path, exit_code: int, reason: Reason | None
) -> None:
    scene = scene_of(tmp_path)
    scene.script(Script(seconds=50, exit_code=exit_code, over_memory="too much"))
    scene.run(scene.claim())
    assert scene.ending.reason is reason
    assert scene.ending.exit_code == exit_code


def test_a_cancel_is_never_reported_while_a_process_lives(tmp_path: Path) -> None:
    """A24: the beats go on, and tell which process it is, why, and how often it was tried."""
    scene = scene_of(tmp_path)
    scene.script(Script(seconds=5000, resistance="Operation not permitted"))
    claimed = scene.claim()
    told: list[str | None] = []
    scene.clock.at(20, lambda: cancel(scene.world.repo, scene.job, by="ada"))
    scene.clock.at(200, lambda: told.append(scene.heartbeat().trouble))
    scene.clock.at(900, lambda: told.append(scene.heartbeat().trouble))
    scene.watch(seconds=900)

    def give_in() -> None:
        assert scene.world.states(scene.job) == {State.RUNNING}
        assert scene.heartbeat().phase is Phase.STOPPING
        scene.processes.executions[0].process.resistance = None

    scene.clock.at(901, give_in)
    scene.run(claimed)
    assert len(told) == 2
    early, late = told
    assert early is not None
    assert late is not None
    assert re.fullmatch(
        r"killed \d+ times and still alive: process \d+ \(python\): Operation not permitted", early
    )
    assert rounds_in(late) > rounds_in(early) > 3
    assert (scene.ending.verdict, scene.final.epoch) == (Verdict.CANCELLED, 1)


def rounds_in(trouble: str) -> int:
    found = re.search(r"killed (\d+) times", trouble)
    assert found is not None
    return int(found[1])


def test_an_outcome_waits_no_longer_than_a_minute_for_leftovers_that_cannot_be_killed(
    tmp_path: Path,
) -> None:
    """Its place on the host is not given away before they are gone."""
    scene = Scene(tmp_path)
    scene.script(Script(seconds=50, resistance="stuck"))
    claimed = scene.claim()
    scene.clock.at(400, lambda: setattr(scene.processes.executions[0].process, "resistance", None))
    at_rest_at: list[float] = []

    def look() -> None:
        if not at_rest_at and scene.world.states(scene.job) == {State.COMPLETED}:
            at_rest_at.append(scene.clock.monotonic())

    for second in range(50, 400, 5):
        scene.clock.at(second, look)
    scene.run(claimed)
    assert scene.clock.monotonic() >= 400
    assert at_rest_at
    assert at_rest_at[0] < 130


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EAGAIN])
def test_a_host_without_room_gives_the_job_back_untouched(tmp_path: Path, number: int) -> None:
    """No loss is counted, however often it happens."""
    scene = Scene(tmp_path, Spec(command="", max_lease_losses=0))
    scene.script(Script(refused=OSError(number, os.strerror(number))))
    scene.run(scene.claim())
    ending = scene.ending_of(1)
    assert (ending.verdict, ending.reason) == (Verdict.LOST, Reason.HOST_UNABLE)
    assert os.strerror(number) in (ending.detail or "")
    scene.script(Script(seconds=5))
    assert scene.heal() == [2]
    assert (scene.final.epoch, scene.final.starts, scene.final.lease_losses) == (2, 1, 0)


def test_a_priority_that_the_claim_could_not_take_over_is_in_the_holders_verdict(
    tmp_path: Path,
) -> None:
    """H38: it looks into the queue once more before it gives the job back."""
    scene = Scene(tmp_path)
    before = scene.world.record(State.QUEUED, scene.job)
    claimed = replace(scene.claim(), left_in_queue=True)
    queued = before.evolve(priority=5, nonce="later")
    scene.world.store.create(queued.own_key(), queued.encode())
    scene.script(Script(refused=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    scene.run(claimed)
    following = scene.world.record(State.QUEUED, scene.job)
    assert (following.epoch, following.priority) == (2, 5)


def test_what_was_dropped_of_a_log_is_in_the_manifest(tmp_path: Path) -> None:
    """A57, A46: by the byte, also of a job that leaves no file."""
    scene = Scene(tmp_path)
    scene.log_limit = LogLimit(16_000)
    scene.script(Script(seconds=20, log=b"x" * 99 + b"\n", last_log=b"last\n"))
    claimed = scene.claim()
    for second in range(1, 15):
        scene.clock.at(
            second, lambda: scene.processes.executions[0].process.print((b"y" * 99 + b"\n") * 100)
        )
    scene.run(claimed)
    manifest = find_manifest(scene.world.repo, scene.job, 1)
    assert manifest is not None
    assert manifest.log is not None
    kept = scene.log(1)
    assert manifest.log.written == 100 + 14 * 10_000 + 5
    assert (manifest.log.kept, manifest.log.kept + manifest.log.dropped) == (
        len(kept),
        manifest.log.written,
    )
    assert kept.startswith(b"x" * 99)
    assert kept.endswith(b"last\n")


def test_what_a_store_that_is_away_does_not_take_waits_on_the_host(tmp_path: Path) -> None:
    """The command is not kept waiting, and nothing of its log is lost."""
    scene = scene_of(tmp_path)
    claimed = scene.claim()
    away = Trouble(FaultKind.UNAVAILABLE, lambda *_: True)
    away.on = False
    scene.clock.at(10, lambda: setattr(away, "on", True))
    scene.clock.at(30, lambda: scene.processes.executions[0].process.print(b"meanwhile\n"))
    scene.clock.at(3000, lambda: setattr(away, "on", False))
    scene.run(claimed, faults=away)
    assert scene.commands == ["train", "check"]
    assert scene.log(1) == b"begun\nmeanwhile\nended\nbegun\nended\n"
    assert scene.ending.verdict is Verdict.COMPLETED


def test_uploads_that_are_refused_are_told_while_they_are_tried(tmp_path: Path) -> None:
    """A66, A60: uploading, with the error and how often it was tried; one execution."""
    scene = scene_of(tmp_path)
    claimed = scene.claim()
    refused = Trouble(FaultKind.DENIED, lambda operation, _: operation is Operation.UPLOAD)
    told: list[Heartbeat] = []
    scene.clock.at(600, lambda: told.append(scene.heartbeat()))
    scene.clock.at(700, lambda: setattr(refused, "on", False))
    scene.watch(seconds=700)
    scene.run(claimed, faults=refused)
    assert told[0].phase is Phase.UPLOADING
    assert "times" in (told[0].trouble or "")
    assert scene.ending.verdict is Verdict.COMPLETED
    assert scene.commands == ["train", "check"]
    assert scene.final.epoch == 1
