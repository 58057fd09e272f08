"""Each reason, as it really comes about: a code, and a sentence that people can read (R70, R77)."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from stado.cli.views import job_fields
from stado.core.moves import after
from stado.core.records import Record
from stado.core.settings import DeploymentSettings, Limits
from stado.core.spec import After, Spec
from stado.core.states import Reason, Verdict
from stado.jobs.asking import ask_to_yield
from stado.jobs.changes import cancel, pause
from stado.jobs.reaping import Reaper
from stado.jobs.upkeep import Passes
from stado.reports import REFUSAL_NAME, REFUSED_EXIT_CODE
from tests.agent.fakes import Script
from tests.agent.scene import Scene
from tests.agent.test_agent import Host
from tests.agent.test_clocks import SlowBeats
from tests.jobs.world import BOB, World

FOR_EVER = Script(seconds=5000)
DONE = Script(seconds=5)
FAILS = Script(seconds=5, exit_code=3)
REFUSES = Script(
    seconds=5,
    exit_code=REFUSED_EXIT_CODE,
    files={f"report/{REFUSAL_NAME}": b"it is trained already"},
)
NO_FOLDER = Script(refused=FileNotFoundError(errno.ENOENT, "No such file or directory", "/nowhere"))
OUT_OF_MEMORY = Script(seconds=5, exit_code=-9, over_memory="it used more than it stated")

Story = Callable[[Path], Record]


def ran(
    script: Script, *, check: Script = DONE, limit: int | None = None, **stated: object
) -> Story:
    """A job that a host runs to its end."""

    def story(folder: Path) -> Record:
        scene = Scene(folder, Spec(command="", **stated))  # type: ignore[arg-type]
        scene.script(script)
        scene.script(check, "check")
        scene.max_run_seconds = limit
        scene.run(scene.claim())
        return scene.world.find(scene.job).record

    return story


def made_room(*, evict: bool) -> Story:
    """A job that is put back for the sake of others."""

    def story(folder: Path) -> Record:
        scene = Scene(folder, Spec(command="", yieldable=True, max_yields=1))
        scene.script(FOR_EVER)
        claimed = scene.claim()
        repo, job = scene.world.repo, scene.job
        why = "job z with priority 9 waits"
        scene.clock.at(40, lambda: ask_to_yield(repo, job, 1, by="b", note=why, evict=evict))
        scene.run(claimed)
        return scene.world.find(job).record

    return story


def asked(ask: Callable[..., object], *, at: float | None) -> Story:
    """A job that somebody stops; `at`: of its run; None: it is queued."""

    def story(folder: Path) -> Record:
        scene = Scene(folder)
        scene.script(FOR_EVER)
        if at is None:
            ask(scene.world.repo, scene.job, by="ada")
        else:
            scene.clock.at(at, lambda: ask(scene.world.repo, scene.job, by="ada", note="lunch"))
            scene.run(scene.claim())
        return scene.world.find(scene.job).record

    return story


def lost(*, allowed: int, **spec: object) -> Story:
    def story(_: Path) -> Record:
        world = World()
        job = world.submit(spec=Spec(command="", max_lease_losses=allowed).evolve(**spec))
        world.start(BOB)
        world.lose(Reaper(world.repo, by="coordinator"))
        return world.find(job).record

    return story


def out_of_room(folder: Path) -> Record:
    full = OSError(errno.ENOSPC, "No space left on device", str(folder / "jobs" / "work"))
    return ran(Script(refused=full))(folder)


def kept_from_its_start(folder: Path) -> Record:
    scene = Scene(folder)
    scene.rules = DeploymentSettings(limits=Limits(pre_running_seconds=200))
    scene.run(scene.claim(), faults=SlowBeats(scene.clock, seconds=90, end=500))
    return scene.world.find(scene.job).record


def past_its_deadline(_: Path) -> Record:
    world = World()
    job = world.submit(spec=Spec(command="", deadline_at=world.clock.now() + timedelta(seconds=5)))
    return after_a_while(world, job)


def after_one_that_failed(_: Path) -> Record:
    world = World()
    parent = world.submit()
    job = world.submit(spec=Spec(command="", after=[After(job_id=parent)]))
    world.end(world.claimed_of(parent), Verdict.FAILED)
    return after_a_while(world, job)


def after_a_while(world: World, job: str) -> Record:
    passes = Passes(world.repo, by="coordinator")
    for _ in range(10):
        passes.tick()
        world.clock.sleep(world.repo.deployment.tick_seconds)
    return world.find(job).record


def without_its_supervisor(folder: Path) -> Record:
    host = Host(folder)
    host.script(500)
    (job,) = host.submit("true")
    host.step_to_start()
    host.living()[0].kill()
    host.step_until(lambda: host.world.repo.find_end(job, 1) is not None)
    end = host.world.repo.find_end(job, 1)
    assert end is not None
    return after(end)


STORIES: dict[Reason, Story] = {
    Reason.JOB_FAILED: ran(FAILS),
    Reason.JOB_REFUSED: ran(REFUSES),
    Reason.VERIFY_FAILED: ran(DONE, check=FAILS, verify="check"),
    Reason.LAUNCH_FAILED: ran(NO_FOLDER, host_dir="/nowhere"),
    Reason.INPUT_UNAVAILABLE: ran(DONE, secrets={"TOKEN": "team#token"}),
    Reason.DECLARED_OUTPUT_MISSING: ran(DONE, expected_outputs=["model"]),
    Reason.CANCELLED: asked(cancel, at=20),
    Reason.CANCELLED_BY_USER: asked(cancel, at=None),
    Reason.PAUSED_BY_USER: asked(pause, at=20),
    Reason.LEASE_EXPIRED: lost(allowed=3),
    Reason.YIELDED: made_room(evict=False),
    Reason.HOST_CLOSED: made_room(evict=True),
    Reason.LEASE_EXPIRED_MAX_ATTEMPTS: lost(allowed=0),
    Reason.SUPERVISOR_DIED: without_its_supervisor,
    Reason.MEMORY_LIMIT_EXCEEDED: ran(OUT_OF_MEMORY),
    Reason.HOST_UNABLE: out_of_room,
    Reason.NO_CHECKPOINT_SAVED: ran(DONE, require_checkpoint=True),
    Reason.TIMEOUT: ran(FOR_EVER, limit=60),
    Reason.ORG_RUNTIME_LIMIT_EXCEEDED: ran(FOR_EVER, timeout_seconds=60),
    Reason.DEADLINE_PASSED: past_its_deadline,
    Reason.PRE_RUNNING_DEADLINE: kept_from_its_start,
    Reason.BODY_HUNG: ran(FOR_EVER, idle_timeout_seconds=60),
    Reason.AGENT_TERMINATED_AS_DECLARED: lost(allowed=0, terminates_agent=True),
    Reason.UPSTREAM_FAILED: after_one_that_failed,
}

_RAW = re.compile(r"Traceback|Errno|Error\(|Exception|\[\w+Error\]|<class|^\W|\n")
"""What no sentence of ours has in it."""


def test_every_reason_has_a_story() -> None:
    assert STORIES.keys() == set(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_a_code_and_a_sentence(tmp_path: Path, reason: Reason) -> None:
    """R70, R77: in JSON; of bounded length, without raw errors or where things lie on a host."""
    fields = job_fields(STORIES[reason](tmp_path))
    detail = fields["status_detail"]
    assert fields["status_reason"] == reason.value
    assert len(reason.value) <= 64
    assert detail is not None
    assert 10 <= len(detail) <= 1024
    assert not _RAW.search(detail), detail
    assert str(tmp_path) not in detail


def test_a_completed_job_has_none(tmp_path: Path) -> None:
    """R77"""
    fields = job_fields(ran(DONE)(tmp_path))
    assert (fields["status_reason"], fields["status_detail"]) == (None, None)


def test_where_things_lie_on_a_host_is_told_in_its_log_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    detail = job_fields(out_of_room(tmp_path))["status_detail"]
    assert detail == "the host has no room to start it: No space left on device"
    assert f"event=refused_by_host path={tmp_path}" in caplog.text
