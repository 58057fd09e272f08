"""Jobs that run in images: which hosts take them, how the image gets there, and what is left when a
supervisor dies. What happens in a container is tried by `test_contained_process` and end to end.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stado.core.admission import Reservation
from stado.core.records import Phase
from stado.core.spec import Spec
from stado.core.states import Reason, State, Verdict
from stado.jobs.changes import cancel
from stado.ports import ProcessIdentity
from stado_agent.aftermath import Aftermath
from stado_agent.container import AGENT_LABEL, SUPERVISOR_LABEL, supervisor_name
from stado_agent.workspace import HostFolder, SupervisorNote, decode_note
from tests.agent.engines import FakeEngine
from tests.agent.fakes import FakeProcesses, Script, TurnClock, TurnTasks
from tests.agent.scene import Scene
from tests.agent.test_agent import Host
from tests.agent.test_secrets import NAMED, VALUE, Shelf, scene_of
from tests.jobs.world import ALICE, World

IMAGE = "lab/train:1"
WITH_IMAGE = Spec(command="", image=IMAGE)


# --- which hosts take them --------------------------------------------------------------


def test_a_host_without_an_engine_leaves_a_job_with_an_image_alone(tmp_path: Path) -> None:
    host = Host(tmp_path)
    (with_image,) = host.submit("true", image=IMAGE)
    (plain,) = host.submit("true")
    host.step_until_at_rest(plain)
    assert host.world.states(with_image) == {State.QUEUED}
    assert host.capacity().runs_images_by is None


def test_a_host_whose_engine_answers_says_so_and_asks_it_once_a_minute(tmp_path: Path) -> None:
    engine = FakeEngine()
    host = Host(tmp_path, engine=engine)
    host.step_for(119)
    assert host.capacity().runs_images_by == "docker 27.5.1"
    assert engine.facts_asked == 2


def test_what_could_not_be_removed_is_when_the_engine_answers_again(tmp_path: Path) -> None:
    engine = FakeEngine()
    host = Host(tmp_path, engine=engine)
    host.step_for(1)
    engine.answers = False
    host.step_for(70)
    engine.labels["left"] = {SUPERVISOR_LABEL: "7.7.boot-1", AGENT_LABEL: host.folder.root.name}
    host.step_for(70)
    assert engine.labels.keys() == {"left"}
    engine.answers = True
    host.step_for(70)
    assert not engine.labels


def test_an_engine_that_has_gone_is_noticed_and_hinders_no_other_job(tmp_path: Path) -> None:
    """The job that met it goes back untouched: no start and no loss is counted."""
    engine = FakeEngine()
    host = Host(tmp_path, engine=engine)
    host.step_for(1)
    engine.answers = False
    (with_image,) = host.submit("true", image=IMAGE)
    host.step_until(lambda: host.world.states(with_image) == {State.QUEUED} and bool(ended(host)))
    record = host.world.record(State.QUEUED, with_image)
    assert (record.epoch, record.starts, record.lease_losses) == (2, 0, 0)
    (plain,) = host.submit("true")
    host.step_until_at_rest(plain)
    assert (host.hindrance, host.capacity().runs_images_by) == (None, None)
    assert host.world.states(with_image) == {State.QUEUED}
    engine.answers = True
    host.step_for(61)
    assert host.capacity().runs_images_by == "docker 27.5.1"
    host.step_until_at_rest(with_image)
    assert host.world.record(State.FAILED, with_image).epoch == 2


def ended(host: Host) -> list[int]:
    """Epochs with a verdict of the first job that was submitted."""
    jobs = {entry.job_id for entry in host.world.entries()}
    return [e for job in jobs for e in (1,) if host.world.repo.find_end(job, e) is not None]


# --- how the image gets there -----------------------------------------------------------


class Pulling(FakeEngine):
    """What is pulled is there once the client's process has ended with 0."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene = scene

    def find_image(self, image: str) -> str | None:
        pulls = [one for one in self._scene.processes.executions if one.text == image]
        self.images |= {one.text for one in pulls if one.process.exit_code == 0}
        return super().find_image(image)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path, WITH_IMAGE)
    made.engine = Pulling(made)
    return made


def test_an_image_that_cannot_be_had_fails_the_job_in_the_engines_words(scene: Scene) -> None:
    """R7, T9: it is no start, and what was said is in the job's log."""
    words = b"Error response from daemon: manifest for lab/train:1 not found\n"
    scene.script(Script(seconds=2, exit_code=1, last_log=words), IMAGE)
    scene.run(scene.claim())
    assert (scene.ending.reason, scene.final.starts) == (Reason.INPUT_UNAVAILABLE, 0)
    assert scene.ending.detail == f"its image cannot be had: {words.decode().strip()}"
    assert scene.log(1).startswith(b"[stado] pulling image lab/train:1\nbegun\n" + words)
    assert scene.commands == [IMAGE]


def test_a_pull_that_fills_the_disk_is_the_hosts_trouble(scene: Scene) -> None:
    words = b"Error: write /var/lib/docker/x: no space left on device\n"
    scene.script(Script(seconds=2, exit_code=1, last_log=words), IMAGE)
    scene.run(scene.claim())
    assert scene.ending_of(1).reason is Reason.HOST_UNABLE


def test_an_engine_that_dies_over_a_pull_is_the_hosts_trouble(scene: Scene) -> None:
    engine = scene.engine
    assert isinstance(engine, FakeEngine)
    scene.script(Script(seconds=2, exit_code=1, last_log=b"Cannot connect\n"), IMAGE)
    scene.clock.at(1, lambda: setattr(engine, "answers", False))
    scene.run(scene.claim())
    assert (scene.ending_of(1).verdict, scene.ending_of(1).reason) == (
        Verdict.LOST,
        Reason.HOST_UNABLE,
    )
    assert "Cannot connect to the Docker daemon" in (scene.ending_of(1).detail or "")


@pytest.mark.parametrize("exit_code", [125, 127])
@pytest.mark.parametrize("words", [b"docker: " + b"x" * 290 + b"%s", b"a %s" + b"x" * 4090])
def test_a_secret_in_the_last_words_of_a_client_is_masked_before_they_are_cut(
    tmp_path: Path, words: bytes, exit_code: int
) -> None:
    """R140: half a value is one that nobody would know."""
    scene = scene_of(tmp_path, Shelf(), NAMED.evolve(image=IMAGE))
    scene.engine = FakeEngine(IMAGE)
    last_log = words % VALUE.encode() + b"\n"
    scene.script(Script(seconds=2, exit_code=exit_code, last_log=last_log))
    assert not scene.run(scene.claim()).errors
    told = scene.ending_of(1).detail or ""
    assert "xxx" in told
    assert not any(VALUE[at : at + 4] in told for at in range(len(VALUE) - 3))


def test_a_host_that_uses_no_engine_gives_the_job_back(scene: Scene) -> None:
    """It runs in its image or not at all."""
    scene.engine = None
    scene.run(scene.claim())
    assert scene.ending_of(1).reason is Reason.HOST_UNABLE
    assert scene.commands == []


def test_a_cancel_ends_a_pull(scene: Scene) -> None:
    scene.script(Script(seconds=1000), IMAGE)
    scene.clock.at(30, lambda: cancel(scene.world.repo, scene.job, by="ada"))
    scene.run(scene.claim())
    assert scene.ending.detail == "cancelled while it was being prepared, by ada"
    assert scene.final.starts == 0
    assert scene.processes.executions[0].process.living() == []


def test_a_pull_that_takes_long_is_told(scene: Scene) -> None:
    """R7, T7: the job is being prepared, and its beats say with what."""
    seen: list[tuple[Phase, str | None]] = []

    def look() -> None:
        beat = scene.heartbeat()
        seen.append((beat.phase, beat.trouble))

    scene.script(Script(seconds=1000, exit_code=1), IMAGE)
    for seconds in (30, 200):
        scene.clock.at(seconds, look)
    scene.run(scene.claim())
    assert seen[0] == (Phase.PREPARING, None)
    assert seen[1][0] is Phase.PREPARING
    assert (seen[1][1] or "").endswith("min: begun")
    assert (seen[1][1] or "").startswith("its image has been on its way for ")


# --- what a dead supervisor leaves ------------------------------------------------------


class AfterDeath:
    """A job of Alice's with an image, whose supervisor died over a container."""

    def __init__(self, folder: Path) -> None:
        self.clock = TurnClock()
        self.world = World(clock=self.clock, tasks=TurnTasks(self.clock))
        self.engine = FakeEngine()
        self.processes = FakeProcesses(self.clock)
        self.job = self.world.submit(spec=WITH_IMAGE)
        self.entry = self.world.entries()[0]
        self.world.start(ALICE)
        self.folder = HostFolder(folder, ALICE.consumer)
        self.folder.make()
        self.gone = ProcessIdentity(99, 99)

    def aftermath(self, engine: FakeEngine | None) -> Aftermath:
        made = Aftermath(
            self.world.repo, self.processes, self.folder, ALICE, engine=engine, boot_id="boot-1"
        )
        made.begin(self.gone, job_id=self.job, epoch=1, held=Reservation(self.entry.needs))
        return made

    def add_container(self, name: str, supervisor: ProcessIdentity, boot_id: str) -> None:
        self.engine.labels[name] = {
            SUPERVISOR_LABEL: supervisor_name(supervisor, boot_id),
            AGENT_LABEL: self.folder.root.name,
        }


def test_its_containers_are_ended_before_its_epoch_is_given_back(tmp_path: Path) -> None:
    """A24: and nobody else's."""
    death = AfterDeath(tmp_path)
    death.add_container("its", death.gone, "boot-1")
    death.add_container("another's", ProcessIdentity(99, 100), "boot-1")
    assert death.aftermath(death.engine).turn()
    assert death.engine.labels.keys() == {"another's"}
    assert death.world.states(death.job) == {State.QUEUED}


@pytest.mark.parametrize("engine_of", [lambda death: death.engine, lambda death: None])
def test_an_epoch_is_kept_while_nobody_knows_of_its_container(
    tmp_path: Path, engine_of: Callable[[AfterDeath], FakeEngine | None]
) -> None:
    """A24: an engine that does not answer, or is not used any more, has said nothing."""
    death = AfterDeath(tmp_path)
    death.add_container("its", death.gone, "boot-1")
    death.engine.answers = False
    aftermath = death.aftermath(engine_of(death))
    for _ in range(100):
        assert not aftermath.turn()
        death.clock.sleep(1)
    assert death.world.states(death.job) == {State.RUNNING}
    assert aftermath.reserved == [Reservation(death.entry.needs)]
    if engine_of(death) is not None:
        death.engine.answers = True
        death.clock.sleep(31)
        assert aftermath.turn()
        assert death.engine.labels == {}
        assert death.world.states(death.job) == {State.QUEUED}


def test_a_note_tells_that_there_may_be_a_container(tmp_path: Path) -> None:
    """For the next agent, which knows nothing else."""
    death = AfterDeath(tmp_path)
    note = SupervisorNote(death.gone, death.job, 1, death.entry.needs, "w")
    found = decode_note(note.encode())
    assert found is not None
    assert found.needs.image


def test_what_nobody_remembers_is_removed_when_an_agent_starts(tmp_path: Path) -> None:
    """Of an earlier life of the host, and of supervisors that are gone."""
    death = AfterDeath(tmp_path)
    aftermath = death.aftermath(death.engine)

    def look() -> None:
        living = death.processes.own_identity()
        death.add_container("of the living", living, "boot-1")
        death.add_container("of the dead", ProcessIdentity(7, 7), "boot-1")
        death.add_container("of an earlier life", living, "boot-0")
        death.engine.labels["of nobody"] = {
            SUPERVISOR_LABEL: "nonsense",
            AGENT_LABEL: death.folder.root.name,
        }
        death.engine.labels["another agent's"] = {SUPERVISOR_LABEL: "7.7.boot-1", AGENT_LABEL: "x"}
        aftermath.sweep_containers()

    assert death.processes.run(look).errors == []
    assert death.engine.labels.keys() == {"of the living", "another agent's"}
