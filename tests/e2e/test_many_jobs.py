"""Many jobs, several agents: each command is executed exactly once."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import StoreRequests
from stado.core.spec import Spec
from stado.core.states import State
from stado.jobs.downloads import download
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import SMALL, Fleet, wait_for


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "count"), [("directory", 200), ("seaweedfs", 80)])
def test_each_of_hundreds_of_jobs_is_executed_once(
    make_fleet: MakeFleet, tmp_path: Path, kind: str, count: int
) -> None:
    """R65, R175, R176: at the end each job is in exactly one prefix and the index is empty. There
    are many more jobs than the twelve that three agents run at once, so that all of them look for
    the same ones again and again; `make chaos` and `make bench` run more."""
    fleet = make_fleet(kind, lease_seconds=30)
    fleet.coordinator()
    for name in ("one", "two", "three"):
        fleet.agent(name, "--cpu", "4", "--poll-seconds", "0.5")
    traces = tmp_path / "traces"
    traces.mkdir()
    submission = fleet.submit(
        *(f"echo ran >> {traces}/{number}" for number in range(count)),
        spec=Spec(command="", memory_gb=0.05),
    )
    states = fleet.wait_at_rest(submission, seconds=240)
    assert set(states.values()) == {State.COMPLETED}
    assert {path.read_text() for path in traces.iterdir()} == {"ran\n"}
    assert len(list(traces.iterdir())) == count
    _assert_tidy(fleet, submission.job_ids)


def _assert_tidy(fleet: Fleet, job_ids: list[str]) -> None:
    """Soon after the last has ended: what it leaves behind is deleted after its end is shown."""

    def seen() -> list[str]:
        walks = [fleet.repo.walk_records(state) for state in State]
        return sorted(keys.job_of_record(one.key) or one.key for walk in walks for one in walk)

    wait_for(lambda: seen() == sorted(job_ids), seconds=20, what=lambda: f"there are {seen()}")
    assert fleet.repo.store.list(keys.READY) == []


@pytest.mark.parametrize("kind", ["directory", "seaweedfs"])
def test_outputs_log_and_manifest_come_back_as_they_were_left(
    make_fleet: MakeFleet, tmp_path: Path, kind: str
) -> None:
    """R198, R200, R260: sizes and digests; odd names; links are left out and named; and the verdict
    has what that asked of a bucket."""
    fleet = make_fleet(kind)
    fleet.agent("one", "--poll-seconds", "0.5")
    payload = os.urandom(300_000)
    (tmp_path / "payload").write_bytes(payload)
    submission = fleet.submit(
        f"cd $STADO_OUTPUT_DIR && mkdir -p deep/er && cp {tmp_path}/payload deep/er/payload.bin "
        "&& echo ü > 'spa ce ü.txt' && : > empty && ln -s /etc/passwd link && echo said"
    )
    (job_id,) = submission.job_ids
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    target = tmp_path / "results"
    manifest = download(fleet.repo, job_id=job_id, epoch=1, folder=target).manifest
    assert {file.path: (file.size, file.sha256) for file in manifest.files} == {
        "deep/er/payload.bin": (len(payload), hashlib.sha256(payload).hexdigest()),
        "spa ce ü.txt": (3, hashlib.sha256("ü\n".encode()).hexdigest()),
        "empty": (0, hashlib.sha256(b"").hexdigest()),
    }
    assert (target / "deep/er/payload.bin").read_bytes() == payload
    assert (target / "spa ce ü.txt").read_text() == "ü\n"
    assert (target / "empty").read_bytes() == b""
    assert (target / "log.txt").read_text() == "said\n"
    assert manifest.skipped == ["link: not a regular file"]
    assert not manifest.partial
    ending = fleet.story(job_id).record.ending
    assert ending is not None
    asked = ending.requests
    assert asked is not None
    if kind == "directory":
        assert asked == StoreRequests()
    else:
        # The gate, the cell, a beat, three files, a log, the manifest, and three at the end.
        assert 3 + 5 + 3 <= asked.dear < 30
        assert asked.cheap >= 1
        assert 300_000 < asked.sent_bytes < 400_000


def test_a_failed_job_leaves_its_log_and_its_files(make_fleet: MakeFleet, tmp_path: Path) -> None:
    """R201: marked as partial."""
    fleet = make_fleet()
    fleet.agent("one")
    submission = fleet.submit("echo a > $STADO_OUTPUT_DIR/a; echo oh no >&2; exit 7")
    (job_id,) = submission.job_ids
    assert fleet.wait_at_rest(submission) == {job_id: State.FAILED}
    folder = tmp_path / "results"
    fetched = download(fleet.repo, job_id=job_id, epoch=1, folder=folder, state=State.FAILED)
    assert fetched.manifest.partial
    assert (tmp_path / "results" / "a").read_text() == "a\n"
    assert (tmp_path / "results" / "log.txt").read_text() == "oh no\n"
    ending = fleet.story(job_id).record.ending
    assert ending is not None
    assert ending.exit_code == 7
    assert ending.detail == "the command exited with 7"


def test_random_bytes_and_split_characters_are_logged_unchanged(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """A43: the stored log has the digest of what was printed."""
    fleet = make_fleet()
    fleet.agent("one")
    noise = os.urandom(1_000_000)
    (tmp_path / "noise").write_bytes(noise)
    submission = fleet.submit(
        f"cat {tmp_path}/noise; printf '\\360\\237'; sleep 2; printf '\\220\\264\\n'", spec=SMALL
    )
    (job_id,) = submission.job_ids
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    download(fleet.repo, job_id=job_id, epoch=1, folder=tmp_path / "results")
    assert (tmp_path / "results" / "log.txt").read_bytes() == noise + "🐴\n".encode()
