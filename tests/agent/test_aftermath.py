"""What an agent says of the epochs of supervisors that died."""

from __future__ import annotations

from pathlib import Path

from stado.core.admission import Reservation
from stado.core.order import ReadyEntry
from stado.core.states import State
from stado.ports import ProcessIdentity
from stado_agent.aftermath import Aftermath
from stado_agent.workspace import HostFolder
from tests.agent.fakes import FakeProcesses, TurnClock, TurnTasks
from tests.jobs.world import ALICE, World, give_back

GONE = ProcessIdentity(99, 99)


class Scene:
    """A job of Alice's, whose supervisor died."""

    def __init__(self, folder: Path) -> None:
        clock = TurnClock()
        self.world = World(clock=clock, tasks=TurnTasks(clock))
        self.job = self.world.submit()
        self._entry: ReadyEntry = self.world.entries()[0]
        self.first = self.world.start(ALICE)
        own_folder = HostFolder(folder, ALICE.consumer)
        own_folder.make()
        self._aftermath = Aftermath(self.world.repo, FakeProcesses(clock), own_folder, ALICE)

    def look_after(self) -> bool:
        """Whether the agent is done with the supervisor of epoch 1."""
        self._aftermath.begin(GONE, job_id=self.job, epoch=1, held=Reservation(self._entry.needs))
        return self._aftermath.turn()


def test_the_epoch_of_a_dead_supervisor_is_given_back_at_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.look_after()
    assert scene.world.states(scene.job) == {State.QUEUED}
    assert scene.world.record(State.QUEUED, scene.job).epoch == 2


def test_the_next_epoch_is_left_alone_though_it_is_held_in_the_same_name(tmp_path: Path) -> None:
    """Another supervisor of this agent has it."""
    scene = Scene(tmp_path)
    give_back(scene.world, scene.job)
    second = scene.world.start(ALICE)
    assert scene.look_after()
    assert scene.world.record(State.RUNNING, scene.job) == second.record
    assert scene.world.repo.find_end(scene.job, 2) is None


def test_an_epoch_that_has_ended_is_not_ended_again(tmp_path: Path) -> None:
    """Its supervisor died after the verdict."""
    scene = Scene(tmp_path)
    scene.world.end(scene.first)
    assert scene.look_after()
    assert scene.world.states(scene.job) == {State.COMPLETED}
