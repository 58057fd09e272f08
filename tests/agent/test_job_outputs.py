"""What a job leaves: what was expected of it, what is dropped, and the copy elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.documents import decode
from stado.core.records import JobWarning, Manifest, OutputCopy, Phase
from stado.core.spec import Spec
from stado.core.states import Reason, Verdict, WarningCode
from stado.errors import Unavailable
from stado.jobs.changes import cancel
from stado.jobs.outputs import find_manifest, find_present_manifest
from stado.storage.faults import FaultKind
from stado.storage.memory import MemoryStore
from stado.storage.observe import Operation
from stado.storage.port import FileDigest, Store
from stado_agent.host import Host
from stado_agent.second_copy import COPY_SECONDS_MAX
from tests.agent.fakes import Script
from tests.agent.scene import Scene, Trouble

FILES = {"output/model.npz": b"weights", "output/plots/loss.png": b"png"}
ELSEWHERE = "s3://lab-models/night"


class Copying(Scene):
    """Whose host opens `elsewhere` for every address."""

    def __init__(self, folder: Path, spec: Spec) -> None:
        super().__init__(folder, spec)
        self.elsewhere: Store = MemoryStore(self.clock, self.world.tasks)
        self.opened: list[str] = []
        self.script(Script(seconds=20, files=FILES))

    def host(self) -> Host:
        return replace(super().host(), open_store=self._open)

    def _open(self, address: str, *, to_write: bool) -> Store:
        assert to_write
        self.opened.append(address)
        return self.elsewhere

    @property
    def manifest(self) -> Manifest:
        found = find_manifest(self.world.repo, self.job, 1)
        assert found is not None
        return found


def copy_in(store: Store, key: str) -> OutputCopy:
    return decode(OutputCopy, "a copy", store.get(key).data)


# --- what is expected -----------------------------------------------------------------------


def scene_expecting(folder: Path, *patterns: str, verify: str | None = "check") -> Scene:
    spec = Spec(command="", verify=verify, expected_outputs=list(patterns))
    scene = Scene(folder, spec)
    scene.script(Script(seconds=20, files=FILES))
    scene.script(Script(seconds=5), "check")
    return scene


def test_a_job_that_left_what_was_expected_has_completed(tmp_path: Path) -> None:
    scene = scene_expecting(tmp_path, "model.npz", "plots/*.png", "plots")
    scene.run(scene.claim())
    assert scene.ending.verdict is Verdict.COMPLETED
    assert scene.commands == ["train", "check"]


def test_a_success_without_what_was_expected_is_a_failure_that_names_it(tmp_path: Path) -> None:
    """R196: before the verify command runs, and what is there is delivered."""
    scene = scene_expecting(tmp_path, "model.npz", "curve.csv", "**/*.mp4")
    scene.run(scene.claim())
    assert scene.commands == ["train"]
    assert (scene.ending.verdict, scene.ending.reason) == (
        Verdict.FAILED,
        Reason.DECLARED_OUTPUT_MISSING,
    )
    assert scene.ending.detail == "not in its output folder: 'curve.csv', '**/*.mp4'"
    assert scene.ending.exit_code == 0
    assert scene.output(1, "model.npz") == b"weights"


def test_what_cannot_be_delivered_is_missing(tmp_path: Path) -> None:
    scene = scene_expecting(tmp_path, "latest")
    output = scene.folder.workspace(scene.job, 1).output
    claimed = scene.claim()
    scene.clock.at(10, lambda: (output / "latest").symlink_to("model.npz"))
    scene.run(claimed)
    assert scene.ending.detail == (
        "not in its output folder: 'latest' (latest: not a regular file)"
    )


def test_a_command_that_failed_has_failed_for_that(tmp_path: Path) -> None:
    scene = scene_expecting(tmp_path, "curve.csv")
    scene.script(Script(seconds=20, exit_code=3))
    scene.run(scene.claim())
    assert scene.ending.reason is Reason.JOB_FAILED


# --- what the ending tells ------------------------------------------------------------------


def test_the_ending_tells_how_much_was_left(tmp_path: Path) -> None:
    scene = scene_expecting(tmp_path)
    scene.run(scene.claim())
    assert (scene.ending.output_files, scene.ending.output_bytes) == (2, 10)
    assert scene.ending.warnings == []


def test_what_was_left_out_is_a_warning_and_no_failure(tmp_path: Path) -> None:
    scene = scene_expecting(tmp_path)
    output = scene.folder.workspace(scene.job, 1).output
    claimed = scene.claim()
    for name in ("latest", "other"):
        scene.clock.at(10, lambda name=name: (output / name).symlink_to("x"))
    scene.run(claimed)
    assert scene.ending.verdict is Verdict.COMPLETED
    assert scene.ending.warnings == [
        JobWarning(
            code=WarningCode.OUTPUT_LEFT_OUT, detail="latest: not a regular file, and 1 more"
        )
    ]


def test_output_that_a_cancel_gave_up_is_a_warning(tmp_path: Path) -> None:
    scene = scene_expecting(tmp_path, verify=None)
    trouble = Trouble(FaultKind.DENIED, lambda operation, _: operation is Operation.UPLOAD)
    scene.clock.at(300, lambda: cancel(scene.world.repo, scene.job, by="ada"))
    scene.run(scene.claim(), faults=trouble)
    assert scene.ending.verdict is Verdict.COMPLETED
    (warning,) = scene.ending.warnings
    assert warning.code is WarningCode.OUTPUT_UNDELIVERED
    assert warning.detail == "the job was cancelled before the store took its output"


def test_output_that_is_refused_for_an_hour_stays_on_the_host_until_it_is_taken(
    tmp_path: Path,
) -> None:
    """A60: uploading all the time, and never executed again."""
    scene = scene_expecting(tmp_path, verify=None)
    refused = Trouble(FaultKind.DENIED, lambda operation, _: operation is Operation.UPLOAD)
    output = scene.folder.workspace(scene.job, 1).output
    seen: list[tuple[Phase, bytes]] = []
    an_hour = 3600.0

    def look() -> None:
        seen.append((scene.heartbeat().phase, (output / "model.npz").read_bytes()))

    scene.clock.at(an_hour, look)
    scene.clock.at(an_hour + 60, lambda: setattr(refused, "on", False))
    scene.run(scene.claim(), faults=refused)
    assert seen == [(Phase.UPLOADING, b"weights")]
    assert scene.ending.verdict is Verdict.COMPLETED
    assert scene.commands == ["train"]
    assert (scene.final.epoch, scene.final.starts) == (1, 1)
    assert scene.output(1, "model.npz") == b"weights"
    assert not output.exists()


# --- recordings -----------------------------------------------------------------------------

RECORDED = {**FILES, "output/recordings/one.mcap": b"1", "output/recordings/two.mcap": b"22"}


@pytest.mark.parametrize("exit_code", [0, 3])
def test_recordings_of_a_job_that_ended_by_itself_are_kept(tmp_path: Path, exit_code: int) -> None:
    """R106: partial ones too."""
    scene = scene_expecting(tmp_path, verify=None)
    scene.script(Script(seconds=20, exit_code=exit_code, files=RECORDED))
    scene.run(scene.claim())
    assert scene.output(1, "recordings/two.mcap") == b"22"


def test_recordings_of_a_cancelled_job_are_dropped_and_nothing_else(tmp_path: Path) -> None:
    """R106, R103, R85: neither uploaded nor listed; other files and the last checkpoint stay."""
    scene = scene_expecting(tmp_path, verify=None)
    scene.script(Script(seconds=500, files={**RECORDED, "checkpoints/model": b"w"}))
    scene.clock.at(100, lambda: cancel(scene.world.repo, scene.job, by="ada"))
    scene.run(scene.claim())
    assert (scene.ending.verdict, scene.ending.reason) == (Verdict.CANCELLED, Reason.CANCELLED)
    manifest = find_manifest(scene.world.repo, scene.job, 1)
    assert manifest is not None
    assert manifest.partial
    assert [file.path for file in manifest.files] == ["model.npz", "plots/loss.png"]
    assert manifest.skipped == [
        "recordings/: 2 of its files: recordings of a cancelled job are dropped"
    ]
    assert not any("recordings" in request.key for request in scene.requests)
    assert scene.ending.warnings == []
    assert scene.world.names(keys.checkpoints_folder(scene.job))


def test_a_cancelled_job_lists_no_recordings_of_an_earlier_epoch(tmp_path: Path) -> None:
    """R106"""
    scene = scene_expecting(tmp_path, verify=None)
    scene.script(Script(seconds=20, files=RECORDED))
    scene.run(scene.claim())
    found = find_present_manifest(
        scene.world.repo, scene.job, 2, Verdict.CANCELLED.state or scene.final.state
    )
    assert found is not None
    assert [file.path for file in found.files] == ["model.npz", "plots/loss.png"]


# --- a copy elsewhere -----------------------------------------------------------------------


def test_a_copy_goes_to_a_place_in_the_own_store(tmp_path: Path) -> None:
    """R199"""
    scene = Copying(tmp_path, Spec(command="", output_uri="stado://models/night"))
    scene.run(scene.claim())
    place = keys.published("models/night")
    copy = copy_in(scene.world.store, place + keys.copied_manifest(scene.job))
    assert [(file.path, file.size) for file in copy.files] == [
        ("model.npz", 7),
        ("plots/loss.png", 3),
    ]
    assert [scene.world.store.get(place + file.key).data for file in copy.files] == [
        b"weights",
        b"png",
    ]
    assert scene.ending.warnings == []
    assert scene.opened == []


def test_a_copy_goes_to_another_store(tmp_path: Path) -> None:
    """R199"""
    scene = Copying(tmp_path, Spec(command="", output_uri=ELSEWHERE))
    scene.run(scene.claim())
    assert scene.opened == [ELSEWHERE]
    copy = copy_in(scene.elsewhere, keys.copied_manifest(scene.job))
    assert {file.sha256 for file in copy.files} == {file.sha256 for file in scene.manifest.files}
    assert not copy.partial


def test_a_copy_that_fails_is_a_warning_and_the_job_has_completed(tmp_path: Path) -> None:
    """R199: and its own output is delivered."""

    class Away(MemoryStore):
        def upload(self, key: str, path: Path) -> FileDigest:
            raise Unavailable(key, "no route")

    scene = Copying(tmp_path, Spec(command="", output_uri=ELSEWHERE))
    scene.elsewhere = Away(scene.clock, scene.world.tasks)
    scene.run(scene.claim())
    assert scene.ending.verdict is Verdict.COMPLETED
    (warning,) = scene.ending.warnings
    assert warning.code is WarningCode.OUTPUT_URI_FAILED
    assert warning.detail.startswith(f"the output could not be copied to {ELSEWHERE}: ")
    assert warning.detail.endswith("no route")
    assert len(scene.manifest.files) == 2


class Slow(MemoryStore):
    """Takes a file in a week."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.clock, scene.world.tasks)
        self._clock_of_scene = scene.clock

    def upload(self, key: str, path: Path) -> FileDigest:
        self._clock_of_scene.sleep(7 * 86_400)
        return super().upload(key, path)


def test_a_copy_that_does_not_end_is_not_waited_for(tmp_path: Path) -> None:
    """R199: the job beats meanwhile."""
    scene = Copying(tmp_path, Spec(command="", output_uri=ELSEWHERE))
    scene.elsewhere = Slow(scene)
    began = scene.clock.monotonic()
    scene.run(scene.claim())
    assert scene.ending.verdict is Verdict.COMPLETED
    (warning,) = scene.ending.warnings
    assert warning.detail.endswith("it was not done within 60 minutes")
    assert scene.ending.ended_at  # of the command, not of the copy
    assert scene.clock.monotonic() - began < COPY_SECONDS_MAX + 120
    assert scene.log(1) is not None


def test_who_cancels_waits_for_no_copy(tmp_path: Path) -> None:
    scene = Copying(tmp_path, Spec(command="", output_uri=ELSEWHERE))
    scene.elsewhere = Slow(scene)
    scene.clock.at(100, lambda: cancel(scene.world.repo, scene.job, by="ada"))
    scene.run(scene.claim())
    assert scene.ending.verdict is Verdict.COMPLETED
    (warning,) = scene.ending.warnings
    assert warning.detail.endswith("the job was cancelled meanwhile")
    assert scene.clock.monotonic() < 300


def test_an_address_that_somebody_wrote_into_the_bucket_is_a_warning(tmp_path: Path) -> None:
    """It was never checked by a submit."""
    scene = Copying(tmp_path, Spec(command="", output_uri="stado://x"))
    claimed = scene.claim()
    spec = claimed.record.spec.evolve(output_uri="stado://../../queue")
    scene.run(replace(claimed, record=claimed.record.evolve(spec=spec)))
    (warning,) = scene.ending.warnings
    assert "cannot be used" in warning.detail
