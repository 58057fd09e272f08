"""Jobs that have to leave a checkpoint, and jobs that start from another job's."""

from __future__ import annotations

from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import Phase, PolicySeal
from stado.core.spec import Spec
from stado.core.states import JobType, Reason, State, Verdict
from stado.jobs.changes import cancel
from stado.jobs.policies import find_save, pin_start
from stado.jobs.policy_seals import find_seal
from stado.jobs.reaping import Reaper
from stado.storage.faults import FaultKind
from stado.storage.observe import Operation
from tests.agent.fakes import Script
from tests.agent.scene import Scene, Trouble
from tests.jobs.test_outputs import make_deep_folder

TRAIN = Spec(command="", type=JobType.TRAIN, verify="check")
NEEDS_ONE = Spec(command="", require_checkpoint=True, verify="check")
MODEL = {"checkpoints/model": b"weights"}


def scene_of(folder: Path, spec: Spec, script: Script) -> Scene:
    scene = Scene(folder, spec)
    scene.script(script)
    scene.script(Script(seconds=1), "check")
    return scene


def _is_save(operation: Operation, key: str) -> bool:
    return operation is Operation.PUT and "/checkpoints/" in key


def seal_of(scene: Scene) -> PolicySeal:
    seal = find_seal(scene.world.repo, scene.job)
    assert seal is not None
    return seal


# --- a checkpoint is required ---------------------------------------------------------------


@pytest.mark.parametrize("spec", [TRAIN, NEEDS_ONE])
def test_a_success_without_a_checkpoint_is_none(tmp_path: Path, spec: Spec) -> None:
    """R80, R88: and nothing is verified that is not there."""
    scene = scene_of(tmp_path, spec, Script(seconds=50))
    scene.run(scene.claim())
    assert scene.ending.reason is Reason.NO_CHECKPOINT_SAVED
    assert scene.ending.verdict is Verdict.FAILED
    assert scene.ending.exit_code == 0
    assert scene.ending.detail is not None
    assert "no checkpoint was saved" in scene.ending.detail
    assert scene.commands == ["train"]


def test_what_keeps_a_checkpoint_from_being_saved_is_in_the_log_and_the_ending(
    tmp_path: Path,
) -> None:
    """While the job runs, and when it has failed for it."""
    scene = scene_of(tmp_path, TRAIN, Script(seconds=100, files=MODEL))
    workspace = scene.folder.workspace(scene.job, 1)
    claimed = scene.claim()
    scene.clock.at(1, lambda: make_deep_folder(workspace.checkpoints))
    scene.clock.at(1, lambda: (workspace.checkpoints / "latest").symlink_to("model"))
    scene.run(claimed)
    assert scene.ending.reason is Reason.NO_CHECKPOINT_SAVED
    detail = scene.ending.detail or ""
    assert detail.startswith("no checkpoint was saved: ddd")
    lines = scene.log(1).decode().splitlines()
    assert lines[:2] == [
        "begun",
        "[stado] left out of its checkpoints: latest: not a regular file",
    ]
    assert lines[2].startswith("[stado] its checkpoint folder cannot be saved: ddd")
    assert lines[3:] == ["ended"]


@pytest.mark.parametrize("seconds", [1, 100])
def test_what_a_short_job_left_is_saved_before_it_is_judged(tmp_path: Path, seconds: float) -> None:
    scene = scene_of(tmp_path, TRAIN, Script(seconds=seconds, files=MODEL))
    scene.run(scene.claim())
    assert scene.ending.verdict is Verdict.COMPLETED
    assert scene.commands == ["train", "check"]
    latest = seal_of(scene).latest
    assert latest is not None
    assert latest.manifest == keys.checkpoint_manifest(scene.job, 1, 1)


@pytest.mark.parametrize(
    ("script", "reason"), [(Script(exit_code=3), Reason.JOB_FAILED), (Script(), Reason.CANCELLED)]
)
def test_a_job_that_did_not_succeed_keeps_its_status(
    tmp_path: Path, script: Script, reason: Reason
) -> None:
    """R90"""
    scene = scene_of(tmp_path, TRAIN, script)
    claimed = scene.claim()
    if reason is Reason.CANCELLED:
        scene.clock.at(20, lambda: cancel(scene.world.repo, scene.job, by="ada"))
    scene.run(claimed)
    assert scene.ending.reason is reason
    assert seal_of(scene).latest is None


def test_a_checkpoint_that_could_not_be_uploaded_was_not_saved(tmp_path: Path) -> None:
    """R89: the store takes none; somebody gives the job up."""
    scene = scene_of(tmp_path, TRAIN, Script(seconds=5, files=MODEL))
    claimed = scene.claim()
    refused = Trouble(FaultKind.DENIED, _is_save)
    scene.clock.at(60, lambda: cancel(scene.world.repo, scene.job, by="ada"))
    scene.run(claimed, faults=refused)
    assert scene.ending.reason is Reason.NO_CHECKPOINT_SAVED
    assert seal_of(scene).latest is None
    assert scene.clock.monotonic() < 200


def test_a_store_that_is_away_is_waited_for(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, TRAIN, Script(seconds=5, files=MODEL))
    claimed = scene.claim()
    away = Trouble(
        FaultKind.UNAVAILABLE,
        lambda operation, key: operation is Operation.PUT and "/checkp" in key,
    )
    seen: list[Phase] = []

    def come_back() -> None:
        seen.append(scene.heartbeat().phase)
        away.on = False

    scene.clock.at(400, come_back)
    scene.run(claimed, faults=away)
    assert seen == [Phase.UPLOADING]
    assert scene.ending.verdict is Verdict.COMPLETED
    assert seal_of(scene).latest is not None


def test_what_an_earlier_epoch_saved_counts(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, TRAIN, Script(seconds=50, files=MODEL))
    scene.processes.fork(lambda _: scene.job_run(scene.claim(), scene.store()).run())
    scene.clock.sleep(40)
    scene.processes.forked[-1].kill()
    scene.world.lose(Reaper(scene.world.repo, by="coordinator"))
    scene.entry = scene.world.entries()[0]
    scene.script(Script(seconds=10))
    scene.run(scene.claim())
    assert (scene.ending.verdict, scene.final.epoch) == (Verdict.COMPLETED, 2)
    latest = seal_of(scene).latest
    assert latest is not None
    assert latest.manifest == keys.checkpoint_manifest(scene.job, 1, 1)


def test_a_job_that_is_declared_lost_while_it_saves_is_not_run_again(tmp_path: Path) -> None:
    """Its command has ended by itself: the next epoch is adopted with what it did."""
    scene = scene_of(tmp_path, TRAIN, Script(seconds=5, files=MODEL))
    claimed = scene.claim()
    away = Trouble(
        FaultKind.UNAVAILABLE,
        lambda operation, key: operation is Operation.PUT and "/checkp" in key,
    )
    scene.clock.at(20, scene.give_back)

    def come_back() -> None:
        away.on = False

    scene.clock.at(100, come_back)
    scene.run(claimed, faults=away)
    assert (scene.ending.verdict, scene.final.epoch) == (Verdict.COMPLETED, 2)
    assert scene.commands == ["train", "check"]
    assert scene.final.starts == 1
    assert seal_of(scene).latest is not None


# --- cancelled and lost ---------------------------------------------------------------------


def test_what_was_saved_before_a_cancel_stays_in_the_policy(tmp_path: Path) -> None:
    """R96, R103: and what lay there when it was stopped."""
    scene = scene_of(tmp_path, TRAIN, Script(seconds=500, files=MODEL))
    claimed = scene.claim()
    scene.clock.at(20, lambda: cancel(scene.world.repo, scene.job, by="ada"))
    scene.run(claimed)
    assert scene.ending.verdict is Verdict.CANCELLED
    assert find_save(scene.world.repo, f"policy_{scene.job}:latest")[0] == seal_of(scene)


def test_a_fenced_holder_takes_nothing_from_a_sealed_policy(tmp_path: Path) -> None:
    """R108: the reaper gave the verdict at the last loss; the holder is cut off, saves on, and
    hears of it later. What it says then tells that the policy was sealed."""
    scene = scene_of(tmp_path, TRAIN.evolve(max_lease_losses=0), Script(seconds=2000))
    claimed = scene.claim()
    cut_off = Trouble(FaultKind.UNAVAILABLE, lambda _, key: key.endswith("/heartbeat"))
    cut_off.on = False

    def write(number: int) -> None:
        folder = scene.folder.workspace(scene.job, 1).checkpoints
        (folder / "model").write_bytes(b"x" * number)

    for at in (50, 100, 150, 200, 500, 550, 600, 650):
        scene.clock.at(at, lambda at=at: write(at))  # type: ignore[misc]

    def cut() -> None:
        cut_off.on = True

    def come_back() -> None:
        cut_off.on = False

    scene.clock.at(205, cut)
    reaper = Reaper(scene.world.repo, by="coordinator")
    for tick in range(60):
        scene.clock.at(210 + 15.0 * tick, reaper.turn)
    scene.clock.at(900, come_back)
    scene.run(claimed, faults=cut_off)
    assert scene.ending.reason is Reason.LEASE_EXPIRED_MAX_ATTEMPTS
    latest = seal_of(scene).latest
    assert latest is not None
    names = scene.world.names(keys.checkpoints_folder(scene.job))
    assert len([name for name in names if name > latest.manifest]) == 8
    assert find_save(scene.world.repo, f"policy_{scene.job}:latest")[2] == latest
    assert scene.world.has(latest.manifest)
    assert scene.world.has(latest.manifest.replace("manifest.json", "000000"))
    late = scene.late(1)
    assert late is not None
    assert "policy_sealed" in late.detail


# --- starting from another job's ------------------------------------------------------------


def started_from(folder: Path, spec: Spec, script: Script) -> Scene:
    """Somebody has trained before; another job starts from its latest."""
    scene = scene_of(folder, TRAIN, Script(seconds=20, files=MODEL))
    scene.run(scene.claim())
    start_from = pin_start(scene.world.repo, f"policy_{scene.job}:latest")
    scene.job = scene.world.submit("train", spec=spec.evolve(start_from=start_from))
    scene.entry = scene.world.entries()[0]
    scene.script(script)
    scene.processes.executions.clear()
    return scene


def source_names(scene: Scene) -> dict[str, str]:
    start_from = scene.world.find(scene.job).record.spec.start_from
    assert start_from is not None
    job = start_from.policy.removeprefix("policy_")
    folder = keys.checkpoints_folder(job)
    return {entry.key: entry.version for entry in scene.world.listed(folder)}


def watch_model(scene: Scene, epoch: int, at_seconds: float) -> list[bytes]:
    seen: list[bytes] = []

    def look() -> None:
        folder = scene.folder.workspace(scene.job, epoch).checkpoints
        seen.append((folder / "model").read_bytes())

    scene.clock.at(scene.clock.monotonic() + at_seconds, look)
    return seen


def test_a_job_starts_from_the_checkpoint_that_it_names(tmp_path: Path) -> None:
    """R111: a new job with a policy of its own; the source stays as it is."""
    scene = started_from(
        tmp_path, TRAIN, Script(seconds=50, files={"checkpoints/more": b"trained on"})
    )
    before = source_names(scene)
    seen = watch_model(scene, 1, 5)
    scene.run(scene.claim())
    assert seen == [b"weights"]
    assert scene.ending.verdict is Verdict.COMPLETED
    assert seal_of(scene).latest is not None
    assert source_names(scene) == before
    own = scene.world.names(keys.checkpoints_folder(scene.job))
    assert len([name for name in own if not name.endswith(".json")]) == 2


def test_what_was_restored_is_no_checkpoint_of_the_job(tmp_path: Path) -> None:
    scene = started_from(tmp_path, TRAIN, Script(seconds=50))
    scene.run(scene.claim())
    assert scene.ending.reason is Reason.NO_CHECKPOINT_SAVED


def test_a_start_is_announced_when_the_checkpoint_is_there(tmp_path: Path) -> None:
    """What never started does not count as a start."""
    scene = started_from(tmp_path, Spec(command=""), Script(seconds=50))
    claimed = scene.claim()
    away = Trouble(FaultKind.UNAVAILABLE, lambda operation, _: operation is Operation.DOWNLOAD)
    seen = []
    scene.clock.at(scene.clock.monotonic() + 30, lambda: seen.append(scene.heartbeat()))

    def come_back() -> None:
        away.on = False

    scene.clock.at(scene.clock.monotonic() + 60, come_back)
    scene.run(claimed, faults=away)
    assert [(beat.phase, beat.started_at) for beat in seen] == [(Phase.PREPARING, None)]
    assert (scene.ending.verdict, scene.final.starts) == (Verdict.COMPLETED, 1)


@pytest.mark.parametrize("what", ["manifest", "part", "forged", "foreign"])
def test_a_checkpoint_that_is_gone_starts_nothing(tmp_path: Path, what: str) -> None:
    scene = started_from(tmp_path, Spec(command=""), Script(seconds=50))
    store = scene.world.store
    (part, manifest) = source_names(scene)
    if what == "manifest":
        store.delete(manifest, None)
    elif what == "part":
        store.delete(part, None)
    elif what == "forged":
        store.put(manifest, store.get(manifest).data.replace(b"model", b"other"))
    else:
        record = scene.world.record(State.QUEUED, scene.job)
        start_from = record.spec.start_from
        assert start_from is not None
        foreign = start_from.evolve(manifest="../../etc/passwd")
        forged = record.evolve(spec=record.spec.evolve(start_from=foreign))
        store.put(keys.record(State.QUEUED, scene.job), forged.encode())
    scene.run(scene.claim())
    assert scene.ending.reason is Reason.INPUT_UNAVAILABLE
    assert scene.ending.detail is not None
    assert "policy_" in scene.ending.detail
    assert (scene.commands, scene.final.starts) == ([], 0)


@pytest.mark.parametrize("saved", [False, True])
def test_a_later_epoch_starts_from_its_own_where_there_is_one(tmp_path: Path, saved: bool) -> None:
    files = {"checkpoints/model": b"its own"} if saved else {}
    scene = started_from(tmp_path, Spec(command=""), Script(seconds=500, files=files))
    scene.processes.fork(lambda _: scene.job_run(scene.claim(), scene.store()).run())
    scene.clock.sleep(60)
    scene.processes.forked[-1].kill()
    scene.world.lose(Reaper(scene.world.repo, by="coordinator"))
    scene.entry = scene.world.entries()[0]
    scene.script(Script(seconds=10))
    seen = watch_model(scene, 2, 5)
    scene.run(scene.claim())
    assert seen == [b"its own" if saved else b"weights"]
