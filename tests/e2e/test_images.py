"""Jobs in containers, by real agents and supervisors, on a stand-in for an engine: what runs in its
containers are processes of this machine, and children of the engine's.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from stado.core.records import Ending
from stado.core.spec import Spec
from stado.core.states import Reason, State, Verdict
from stado.jobs.changes import cancel
from stado.jobs.downloads import download
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import SMALL, Fleet, wait_for
from tests.engines import StandIn, run_stand_in
from tests.jobs.world import stored_log

MARKER = "marker-9c1e-of-a-value"


@pytest.fixture
def docker() -> Iterator[StandIn]:
    with run_stand_in() as stand_in:
        yield stand_in


def with_image(image: str = "lab/train:1", **spec: object) -> Spec:
    return SMALL.evolve(image=image, **spec)


def ending_of(fleet: Fleet, job_id: str) -> Ending:
    ending = fleet.story(job_id).record.ending
    assert ending is not None
    return ending


def test_jobs_run_in_their_images(make_fleet: MakeFleet, tmp_path: Path, docker: StandIn) -> None:
    """Each command in a container of its own, with the job's folders and variables and without the
    host's; nothing of them is left."""
    docker.offer_image("lab/train:1")
    docker.add_image("lab/distroless", no_shell=True)
    docker.add_image("lab/bare", path=str(tmp_path / "nowhere"))
    docker.add_image("lab/hungry", oom=True)
    fleet = make_fleet()
    fleet.agent("one", "--docker", str(docker.client), "--cpu", "8")
    environment = {"DOCKER_HOST": "tcp://192.0.2.1:1", "LD_PRELOAD": "", "TWO": f"{MARKER}\nlines"}
    good = fleet.submit(
        'echo "$OF_THE_IMAGE $DOCKER_HOST [$CUDA_VISIBLE_DEVICES] $HOME $HOST_ONLY"; '
        'echo "$TWO" >$STADO_OUTPUT_DIR/two; cat made',
        spec=with_image(environment=environment, pre_command="echo x >made", verify="test -f made"),
    )
    cases = {
        "strict": ("true\nfalse\ntrue", with_image(strict_shell=True)),
        "no pull": ("true", with_image("lab/absent")),
        "no shell": ("true", with_image("lab/distroless")),
        "no bash": ("true", with_image("lab/bare", strict_shell=True)),
        "memory": ("kill -9 $$", with_image("lab/hungry", memory_gb=0.05)),
        "no folder": ("true", with_image("lab/bare", host_dir="/does/not/exist")),
    }
    others = {name: fleet.submit(command, spec=spec) for name, (command, spec) in cases.items()}
    (job_id,) = good.job_ids
    assert fleet.wait_at_rest(good) == {job_id: State.COMPLETED}
    log = stored_log(fleet.repo, job_id, 1).decode()
    assert f"yes tcp://192.0.2.1:1 [] {tmp_path}" in log
    assert log.endswith("/work \nx\n")
    assert "[stado] image lab/train:1 is sha256:" in log
    download(fleet.repo, job_id=job_id, epoch=1, folder=tmp_path / "results")
    assert (tmp_path / "results" / "two").read_text() == f"{MARKER}\nlines\n"
    for submission in others.values():
        fleet.wait_at_rest(submission)
    ends = {name: ending_of(fleet, one.job_ids[0]) for name, one in others.items()}
    details = {name: (end.reason, end.detail) for name, end in ends.items()}
    assert details["strict"] == (
        Reason.JOB_FAILED,
        "the command exited with 1 in line 2: false",
    )
    assert details["no pull"] == (
        Reason.INPUT_UNAVAILABLE,
        (
            "its image cannot be had: Error response from daemon: manifest for lab/absent not "
            "found: manifest unknown"
        ),
    )
    assert details["no shell"] == (
        Reason.LAUNCH_FAILED,
        (
            "the host could not start it: its image has no /bin/sh to execute it by: "
            "[FATAL tini (7)] exec /bin/sh failed: No such file or directory"
        ),
    )
    assert details["no bash"] == (
        Reason.LAUNCH_FAILED,
        "the host could not start it: --strict-shell takes bash, and its image has none",
    )
    assert details["memory"][0] is Reason.MEMORY_LIMIT_EXCEEDED
    assert details["no folder"] == (
        Reason.LAUNCH_FAILED,
        "the host could not start it: No such file or directory: /does/not/exist",
    )
    assert [ends[name].started_at for name in ("no pull", "no shell", "no folder")] == [None] * 3
    assert docker.containers() == []
    assert not [call for call in docker.calls() if any(MARKER in part for part in call)]


def test_a_cancel_ends_the_container_before_it_is_reported(
    make_fleet: MakeFleet, tmp_path: Path, docker: StandIn
) -> None:
    """A22, A24"""
    docker.add_image("lab/train:1")
    fleet = make_fleet(lease_seconds=3)
    fleet.agent("one", "--docker", str(docker.client))
    pid_file = tmp_path / "pid"
    submission = fleet.submit(
        f"trap '' TERM; echo $$ >{pid_file}.new; mv {pid_file}.new {pid_file}; "
        "while :; do sleep 0.05; done",
        spec=with_image(),
    )
    (job_id,) = submission.job_ids
    wait_for(pid_file.exists)
    cancel(fleet.repo, job_id, by="tests")
    assert fleet.wait_at_rest(submission) == {job_id: State.CANCELLED}
    assert not psutil.pid_exists(int(pid_file.read_text()))
    assert docker.containers() == []


def test_a_container_is_ended_when_its_supervisor_is_killed(
    make_fleet: MakeFleet, tmp_path: Path, docker: StandIn
) -> None:
    """A24: first the container, then the epoch is given back, and the job runs again."""
    docker.add_image("lab/train:1")
    fleet = make_fleet(lease_seconds=30)
    fleet.agent("one", "--docker", str(docker.client))
    trace, go_on = tmp_path / "trace", tmp_path / "go-on"
    submission = fleet.submit(
        f"echo $$ >>{trace}; until [ -e {go_on} ]; do sleep 0.05; done", spec=with_image()
    )
    (job_id,) = submission.job_ids
    wait_for(lambda: trace.exists() and trace.read_text().endswith("\n"))
    first = int(trace.read_text())
    os.kill(fleet.started("one", job_id).supervisor, signal.SIGKILL)
    wait_for(lambda: trace.read_text().count("\n") == 2)
    assert not psutil.pid_exists(first)
    lost = fleet.repo.find_end(job_id, 1)
    assert lost is not None
    assert (lost.ending.verdict, lost.ending.reason) == (Verdict.LOST, Reason.SUPERVISOR_DIED)
    assert len(docker.containers()) == 1
    go_on.touch()
    assert fleet.wait_at_rest(submission) == {job_id: State.COMPLETED}
    assert docker.containers() == []
