"""A supervisor: from the agent's word to the claim, the job, and the next word."""

from __future__ import annotations

from pathlib import Path

import pytest

from stado.core import keys
from stado.core.spec import Spec
from stado.core.states import Reason, State, Verdict
from stado.errors import ChannelClosed
from stado.jobs.claim import ANY_PLACE
from stado.storage.faults import FaultKind, FaultPlan
from stado.storage.port import Store
from stado_agent.places import order_of
from stado_agent.supervisor import serve
from tests.agent.fakes import FakeProcess, Script
from tests.agent.scene import DeathAt, FaultAt, Scene
from tests.jobs.world import BOB

SECONDS_MAX = 2000.0


def fork(scene: Scene, store: Store | None = None) -> FakeProcess:
    """A supervisor that waits for its agent, which is the test."""
    used = store if store is not None else scene.store()
    repo = scene.world.repo_over(used)
    scene.processes.fork(lambda channel: serve(channel, repo, scene.host()))
    return scene.processes.forked[-1]


def order(scene: Scene, supervisor: FakeProcess) -> None:
    wanted = {"do": "run", "entry": scene.entry.name, "place": order_of(ANY_PLACE)}
    supervisor.channel.send({**wanted, "rules": scene.rules.plain()})


def answers(scene: Scene, supervisor: FakeProcess) -> list[str]:
    """What it says, until it is idle or gone."""
    said: list[str] = []
    while said[-1:] != ["idle"] and supervisor.exit_code is None:
        try:
            message = supervisor.channel.receive(SECONDS_MAX)
        except ChannelClosed:
            break
        assert message is not None, "it says nothing"
        said.append(message["event"])
    return said


def run(scene: Scene, supervisor: FakeProcess) -> list[str]:
    order(scene, supervisor)
    return answers(scene, supervisor)


def test_one_job_after_another(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    supervisor = fork(scene)
    assert run(scene, supervisor) == ["claimed", "started", "ended", "idle"]
    assert scene.ending.verdict is Verdict.COMPLETED
    scene.job = scene.world.submit("train")
    scene.entry = scene.world.entries()[0]
    assert run(scene, supervisor) == ["claimed", "started", "ended", "idle"]
    assert scene.commands == ["train", "train"]
    assert supervisor.exit_code is None


def test_a_job_that_somebody_else_has_is_missed(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.world.start(BOB)
    assert run(scene, fork(scene)) == ["missed", "idle"]
    assert scene.commands == []
    assert list(scene.folder.notes()) == []


def test_a_note_says_on_the_host_which_job_it_has(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    supervisor = fork(scene)
    order(scene, supervisor)
    scene.clock.sleep(10)
    (note,) = scene.folder.notes()
    assert (note.supervisor, note.job_id, note.epoch) == (supervisor.identity, scene.job, 1)
    assert answers(scene, supervisor)[-1] == "idle"
    assert list(scene.folder.notes()) == []


def test_the_job_goes_on_when_the_agent_is_gone(tmp_path: Path) -> None:
    """The supervisor ends after it."""
    scene = Scene(tmp_path)
    supervisor = fork(scene)
    order(scene, supervisor)
    scene.clock.sleep(10)
    supervisor.channel.close()
    assert scene.clock.wait_until(lambda: supervisor.exit_code is not None, SECONDS_MAX)
    assert supervisor.exit_code == 0
    assert scene.ending.verdict is Verdict.COMPLETED
    assert list(scene.folder.notes()) == []


@pytest.mark.parametrize(
    ("stated", "ceiling", "reason"),
    [
        ({"timeout_seconds": 60}, None, Reason.ORG_RUNTIME_LIMIT_EXCEEDED),
        ({"idle_timeout_seconds": 60}, None, Reason.BODY_HUNG),
        ({}, 60, Reason.TIMEOUT),
    ],
    ids=["time limit", "silence", "host's limit"],
)
def test_no_clock_stops_when_the_agent_is_gone(
    tmp_path: Path, stated: dict[str, int], ceiling: int | None, reason: Reason
) -> None:
    scene = Scene(tmp_path, Spec(command="", **stated))  # type: ignore[arg-type]
    scene.script(Script(seconds=1000))
    scene.max_run_seconds = ceiling
    supervisor = fork(scene)
    order(scene, supervisor)
    scene.clock.sleep(10)
    supervisor.channel.close()
    assert scene.clock.wait_until(lambda: supervisor.exit_code is not None, 100)
    assert scene.ending.reason is reason


def test_who_waits_for_a_job_ends_when_the_agent_wants_no_more(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    supervisor = fork(scene)
    scene.clock.sleep(1)
    supervisor.channel.close()
    scene.clock.sleep(1)
    assert supervisor.exit_code == 0


def test_an_unforeseen_error_leaves_the_note_for_the_agent(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    death = DeathAt(scene.processes, at=8, error=RuntimeError("unforeseen"))
    supervisor = fork(scene, scene.store(before=death))
    order(scene, supervisor)
    assert scene.clock.wait_until(lambda: supervisor.exit_code is not None, SECONDS_MAX)
    assert supervisor.exit_code == 1
    assert [note.supervisor for note in scene.folder.notes()] == [supervisor.identity]
    assert not any(execution.process.living() for execution in scene.processes.executions)


# --- each request, each fault ---------------------------------------------------------------


@pytest.mark.parametrize("seconds", [None, 60.0])
@pytest.mark.parametrize(
    "kind",
    [FaultKind.LOST_REQUEST, FaultKind.LOST_ANSWER, FaultKind.UNAVAILABLE, FaultKind.DENIED],
)
def test_a_fault_at_any_request_costs_no_rule_and_not_the_supervisor(
    tmp_path: Path, kind: FaultKind, seconds: float | None
) -> None:
    """What fails at the claim is run by others, after a lease; what was begun is brought to its
    end."""
    at = 0
    while True:
        scene = _short(tmp_path / str(at))
        faults = FaultAt(scene.clock, kind, at=at, seconds=seconds)
        supervisor = _serve_one(scene, faults)
        if faults.met is None:
            break
        started = scene.heal()
        assert supervisor.exit_code is None, faults.met
        assert len(scene.commands) + len(started) == 1, faults.met
        assert scene.ending.verdict is Verdict.COMPLETED, faults.met
        assert scene.final.starts == 1, faults.met
        at += 1
    assert at > 10


def _short(folder: Path) -> Scene:
    scene = Scene(folder)
    scene.script(Script(seconds=20))
    return scene


def _serve_one(scene: Scene, faults: FaultPlan) -> FakeProcess:
    supervisor = fork(scene, scene.store(faults))
    assert run(scene, supervisor)[-1] == "idle"
    return supervisor


@pytest.mark.parametrize("error", [None, RuntimeError("unforeseen")])
def test_a_supervisor_that_dies_at_any_request_costs_no_rule(
    tmp_path: Path, error: Exception | None
) -> None:
    at = 0
    while True:
        scene = _short(tmp_path / str(at))
        death = DeathAt(scene.processes, at=at, error=error)
        supervisor = fork(scene, scene.store(before=death))
        order(scene, supervisor)
        answers(scene, supervisor)
        if death.met is None:
            break
        started = scene.heal()
        final = scene.final
        assert len(scene.commands) + len(started) <= final.starts <= final.epoch, death.met
        assert final.state is State.COMPLETED, death.met
        assert len(scene.commands) <= 1, death.met
        at += 1
    assert at > 10
    assert not scene.world.names(keys.READY)
